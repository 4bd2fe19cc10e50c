"""Evaluation: the reference's recorded returns, the official order of chance, tables, policies of all kinds."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import stockade
from stockade.baselines import Baseline
from stockade.cli import main
from stockade.learn import Agent, load
from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.evaluate import CELLS, PUBLISHED, CellResult, EvaluateConfig, evaluate, play, total_interval
from stockade.learn.runs import ExportConfig
from stockade.learn.train import train
from stockade.workflow.evaluation import Evaluate

REDS = {"B_lineAgent": "bline", "RedMeanderAgent": "meander", "SleepAgent": "sleep"}
POLICIES = ("sleep", "random", "react_restore")
#: Recorded: seed of episode i of cell k, where k counts the policies of B_line, then Meander, then Sleep.
FIRST_SEED, SEEDS_A_CELL = 5_000_000, 10_000


def recorded(data_dir: Path) -> dict[str, np.ndarray]:
    with np.load(data_dir / "reference_returns.npz") as file:
        return dict(file)


@pytest.mark.parametrize("red", REDS)
def test_each_single_episode_of_sleep_is_the_references(data_dir: Path, red: str) -> None:
    returns = recorded(data_dir)[f"{red}__sleep"]
    cell = list(REDS).index(red) * len(POLICIES)
    for k, horizon in enumerate((30, 50, 100)):
        seed = FIRST_SEED + SEEDS_A_CELL * cell
        ours = play(Baseline("sleep"), REDS[red], horizon, len(returns), seed, chance="cyborg")
        np.testing.assert_array_equal(np.round(10 * ours), np.round(10 * returns[:, k]))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("red", REDS)
def test_means_are_those_of_the_reference(data_dir: Path, red: str, policy: str) -> None:
    """Within 4 standard errors of the difference, for 9 x 3 cells."""
    cells = json.loads((data_dir / "reference_returns.json").read_text())["cells"]
    for cell in cells:
        if (cell["red"], cell["policy"]) == (red, policy):
            ours = play(Baseline(policy.replace("_", "-")), REDS[red], cell["horizon"], 2000, seed=11)
            error = np.hypot(cell["sem"], ours.std() / np.sqrt(2000))
            assert abs(ours.mean() - cell["mean"]) <= 4 * error, cell


class RestoreFirst:
    """Restores the first host that seems compromised, but not User0; else sleeps. No chance in it."""

    obs = "bits"

    def act(self, observations: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        seems = observations.reshape(-1, 13, 4)[:, :, 3] == 1
        seems[:, 8] = False
        return np.where(seems.any(axis=1), 132 + seems.argmax(axis=1), 0)


def test_official_order_is_that_of_the_challenges_script() -> None:
    """Recorded from the script's loop on the reference simulator (26ce1c1), random.seed(153), 3 episodes a cell."""
    on_the_reference = {
        ("bline", 30): [-14.8, -14.6, -13.5], ("meander", 30): [-12.0, -11.8, -11.9], ("sleep", 30): [0, 0, 0],
        ("bline", 50): [-25.8, -25.9, -26.6], ("meander", 50): [-25.6, -22.9, -23.9], ("sleep", 50): [0, 0, 0],
        ("bline", 100): [-54.1, -94.3, -55.5], ("meander", 100): [-57.4, -53.7, -53.1], ("sleep", 100): [0, 0, 0],
    }  # fmt: skip
    config = EvaluateConfig("x", episodes=3, chance="cyborg", seed=153, official_order=True)
    results = evaluate(config, RestoreFirst()).cells
    assert {(r.red, r.horizon): list(r.returns) for r in results} == on_the_reference


def test_seeds_decide_and_horizons_are_prefixes_of_the_same_episodes() -> None:
    sleep = Baseline("sleep")
    a, b, c = (play(sleep, "meander", 50, 40, seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a[1:], c[:-1])  # episode i has the seed seed + i
    assert (play(sleep, "meander", 30, 40, 7) >= a).all()


def test_leader_board_rules_are_kinder(tmp_path: Path) -> None:
    policy = Baseline("react-restore")
    current, old = (play(policy, "bline", 100, 2000, 0, rules) for rules in ("current", "leaderboard"))
    assert old.mean() > current.mean() + 5


def test_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    assert Evaluate(EvaluateConfig("random", episodes=20), json=path).run() == 0
    printed = capsys.readouterr().out
    content = json.loads(path.read_text())
    assert [(cell["red"], cell["horizon"]) for cell in content["cells"]] == list(CELLS)
    assert all(len(cell["returns"]) == cell["episodes"] == 20 for cell in content["cells"])
    assert content["total"] == pytest.approx(sum(cell["mean"] for cell in content["cells"]))
    assert f"{content['total']:.2f}" in printed
    with pytest.raises(ValueError, match="--chance cyborg"):
        EvaluateConfig("random", official_order=True)


@pytest.mark.parametrize("rules", ["current", "leaderboard"])
def test_only_published_scores_of_the_same_rules_stand_beside_ours(rules: str) -> None:
    result = evaluate(EvaluateConfig("sleep", episodes=3, rules=rules))  # type: ignore[arg-type]
    for row in PUBLISHED:
        assert (f"{row.total:.2f}" in str(result)) == (row.rules == rules), row
    assert all(len(line) <= 100 for line in str(result).splitlines())


def test_one_episode_has_no_interval_and_says_so() -> None:
    result = evaluate(EvaluateConfig("sleep", episodes=1))
    assert "nan" not in str(result).lower()
    assert "± n/a" in str(result)
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert content["total_interval"] is None
    assert content["cells"][0]["interval"] is None


def test_a_missing_reference_simulator_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("CybORG") is not None:
        pytest.skip("CybORG is installed")
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "sleep", "--simulator", "cyborg", "--episodes", "1"])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    assert len(message.splitlines()) == 1
    assert "CybORG" in message


def test_published_totals_are_the_sums_that_were_published() -> None:
    totals = {(row.name, row.rules): row.total for row in PUBLISHED}
    assert totals["CardiffUni, published", "leaderboard"] == pytest.approx(-54.57)
    assert totals["Keeping it RL, ensemble", "leaderboard"] == pytest.approx(-56.9)
    assert totals["Mindrake", "leaderboard"] == pytest.approx(-57.05)
    assert totals["React-Restore, published", "leaderboard"] == pytest.approx(-823.89)
    assert totals["random, published", "leaderboard"] == pytest.approx(-2015.61, abs=0.02)
    assert totals["sleep, published", "leaderboard"] == pytest.approx(-3112.2, abs=0.02)


def test_intervals() -> None:
    returns = np.array([-1.0, -2.0, -3.0, -4.0])
    cell = CellResult.of("bline", 30, returns)
    assert cell.interval == pytest.approx(1.96 * np.std(returns, ddof=1) / 2)
    assert (cell.mean, cell.median) == (-2.5, -2.5)
    assert total_interval([cell] * 4) == pytest.approx(2 * cell.interval)


@pytest.mark.parametrize("obs", ["bits", "memory"])
def test_a_run_can_be_evaluated(tmp_path: Path, obs: str) -> None:
    ppo = PPOConfig(update_steps=20, minibatch_size=200, hidden=(8,))
    config = TrainConfig(
        name="x", runs=tmp_path, total_episodes=40, n_envs=10, horizon=20, obs=obs, tensorboard=False, ppo=ppo,
        action_mask=True,
    )  # type: ignore[arg-type]  # fmt: skip
    assert train(config).saved
    policy = load("x", tmp_path, greedy=False)
    assert isinstance(policy, Agent)
    assert policy.obs == obs
    greedy = load(str(tmp_path / "x"))
    env = stockade.make(obs=obs)
    seen, _ = env.reset(seed=0)
    assert len({int(greedy.act(seen[None], np.random.default_rng(k))[0]) for k in range(20)}) == 1
    assert len({int(policy.act(seen[None], np.random.default_rng(k))[0]) for k in range(20)}) > 5
    with pytest.raises(ValueError, match="neither a baseline"):
        load("nothing", tmp_path)


def test_runs_and_exports_are_played_greedily_unless_asked_and_the_table_says_so(tmp_path: Path) -> None:
    ppo = PPOConfig(update_steps=20, minibatch_size=200, hidden=(8,))
    assert train(
        TrainConfig(name="x", runs=tmp_path, total_episodes=40, n_envs=10, horizon=20, tensorboard=False, ppo=ppo)
    ).saved
    assert ExportConfig("x", tmp_path / "mine", runs=tmp_path).run() == 0
    results = [
        evaluate(EvaluateConfig(name, episodes=5, runs=tmp_path, greedy=greedy))
        for name in ("x", str(tmp_path / "mine.json"))
        for greedy in (True, False)
    ]
    assert [result.style for result in results] == ["greedy", "sampled"] * 2
    assert all(f"{result.style}, 5 episodes per cell" in str(result) for result in results)
    assert results[0].cells == results[2].cells != results[1].cells == results[3].cells
