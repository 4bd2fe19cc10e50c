"""Attackers that learn: training them, their names and sides, what `exploit` and leagues say of them."""

import dataclasses
import json
import signal
from pathlib import Path

import numpy as np
import pytest

import stockade
from stockade.cage2.actions import N_RED_ACTIONS
from stockade.cage2.red_view import RED_GATES, RED_OBS_SIZE
from stockade.cli import main
from stockade.errors import InputError, SettingError
from stockade.learn import load
from stockade.learn.agents import Agent
from stockade.learn.behaviour import watch
from stockade.learn.checkpoint import CheckpointFolder
from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.evaluate import play
from stockade.learn.exploit import ExploitConfig, ExploitResult, exploit
from stockade.learn.files import SHIPPED
from stockade.learn.mixture import read_policies
from stockade.learn.policy import Architecture, Policy
from stockade.learn.runs import read_summary
from stockade.learn.train import train

SMALL = TrainConfig(
    side="red", blue="react-restore", total_episodes=200, n_envs=16, horizon=20, checkpoint_episodes=60, seed=3,
    tensorboard=False, ppo=PPOConfig(update_steps=50, minibatch_size=400, hidden=(16,)),
)  # fmt: skip
#: Name, rule set, whom it learned against, and how many times B_line's damage there it does at least.
ZOO = (
    ("nemesis", "current", "champion", 2.0), ("nemesis", "leaderboard", "champion", 2.0),
    ("nemesis-react-restore", "current", "react-restore", 1.2), ("nemesis-sleep", "current", "sleep", 1.0),
)  # fmt: skip


def weights(run: Path) -> bytes:
    arrays = CheckpointFolder(run / "checkpoints").load_last().arrays
    return b"".join(arrays[name].tobytes() for name in sorted(arrays))


# ------------------------------------------------------------------------------------------------------------- learning
def test_gates_are_what_red_can_try() -> None:
    """The bit of each action's gate is the environment's mask, in episodes of anything that can be tried."""
    generator = np.random.default_rng(0)
    with stockade.make_vec(50, side="red", blue=load("react-remove")) as envs:
        obs, _ = envs.reset(seed=1)
        for _ in range(100):
            mask = envs.action_masks()
            shown = np.array([np.ones(50) if bit < 0 else obs[:, bit] for bit in RED_GATES]).T == 1
            assert np.array_equal(shown, mask)
            obs, *_ = envs.step((mask * generator.random(mask.shape)).argmax(axis=1))


def test_a_policy_with_gates_never_takes_a_closed_action() -> None:
    generator = np.random.default_rng(0)
    gates = (-1, *generator.integers(0, 10, 12).tolist())
    policy = Policy.create(Architecture(10, tuple(range(13)), (16,), gates=gates), seed=1)
    obs = generator.integers(0, 2, (5000, 10)).astype(np.uint8)
    for source in (None, generator):
        actions = policy.act(obs, source)
        needed = np.array(gates)[actions]
        assert ((needed < 0) | (obs[np.arange(len(obs)), needed] == 1)).all()
        assert len(set(actions.tolist())) > 5
    again = Architecture.from_json(json.loads(json.dumps(policy.architecture.to_json())))
    assert again == policy.architecture


def test_red_learns_and_an_interrupted_training_continues_bit_for_bit(tmp_path: Path) -> None:
    whole = train(dataclasses.replace(SMALL, runs=tmp_path, name="whole", total_episodes=400), progress=False)
    half = dataclasses.replace(SMALL, runs=tmp_path, name="half")
    first = train(half, progress=False)
    config = json.loads((first.folder / "config.json").read_text())
    (first.folder / "config.json").write_text(json.dumps(config | {"total_episodes": 400}))
    second = train(TrainConfig.resumed("half", tmp_path), progress=False)
    agent = load("whole", tmp_path)
    assert isinstance(agent, Agent)
    assert (agent.side, agent.obs, agent.policy.architecture.gates) == ("red", "red", RED_GATES)
    assert agent.probabilities(np.zeros((3, RED_OBS_SIZE), np.uint8)).shape == (3, N_RED_ACTIONS)
    summary = read_summary(whole.folder)
    assert (summary["red"], summary["status"]) == ("against react-restore", "finished")
    rate = [r.metrics["learning_rate"][-1] for r in (whole, second)]
    assert rate[0] == rate[1]
    # its schedules knew of 200 episodes in the first half, so only what does not depend on them is compared
    assert second.episodes == whole.episodes
    same = [train(dataclasses.replace(SMALL, runs=tmp_path, name=name), progress=False).folder for name in "ab"]
    assert weights(same[0]) == weights(same[1])


@pytest.mark.slow
def test_red_learns_to_hurt_a_defender_that_sleeps(tmp_path: Path) -> None:
    """After a few thousand episodes of 30 steps it costs ten times as much as a red that tries anything."""

    def anything(observations: np.ndarray, action_mask: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        return (action_mask * generator.random(action_mask.shape)).argmax(axis=1)

    config = dataclasses.replace(
        SMALL, blue="sleep", horizon=30, total_episodes=6000, n_envs=64, runs=tmp_path, checkpoint_episodes=1000,
        validation_episodes=200, ppo=PPOConfig(minibatch_size=1280),
    )  # fmt: skip
    result = train(config, progress=False)
    learned, random = (play(load("sleep"), red, 30, 200, 0).mean() for red in (result.agent, anything))
    assert learned < 10 * random < -10


def test_blue_may_be_several_and_have_colons() -> None:
    assert read_policies("champion:3,my_module:MyPolicy,builtin:sleep:2,runs/a:0.5") == {
        "champion": 3.0, "my_module:MyPolicy": 1.0, "builtin:sleep": 2.0, "runs/a": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"red": "meander"}, "red='meander'"), ({"backend": "serial"}, "backend='serial'"),
     ({"blue": "chmpion"}, "chmpion"), ({"side": "blue"}, "blue='react-restore'"),
     ({"league": True}, "side='red'"), ({"blue": "nemesis"}, "attacks")],
)  # fmt: skip
def test_settings_that_cannot_be(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        train(dataclasses.replace(SMALL, runs=tmp_path, **changes), progress=False)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------------------------ names and sides
@pytest.mark.parametrize(("name", "rules", "blue", "times"), ZOO)
def test_shipped_attackers_hurt_as_they_say(name: str, rules: str, blue: str, times: float) -> None:
    stem = f"{name}-{rules}"
    assert sum(path.stat().st_size for path in SHIPPED.glob(f"{stem}*")) < 1_000_000
    assert load(name, rules=rules).card["trained"]["settings"]["blue"] == blue
    defender = load(blue, rules=rules)
    own, bline, meander = (play(defender, red, 100, 300, 77, rules).mean() for red in (name, "bline", "meander"))
    assert own <= times * bline
    assert own < meander


def test_an_attacker_has_the_same_name_everywhere() -> None:
    """On every backend, for one environment and many, in training; the same moves as the policy from outside."""
    red, blue = load("nemesis"), load("champion")
    options = {"obs": blue.obs, "horizon": 15, "chance": "cyborg"}
    returns = []
    for backend in ("native", "serial"):
        with stockade.make_vec(3, backend, red="nemesis", **options) as envs:
            obs, _ = envs.reset(seed=5)
            total = np.zeros(3)
            for _ in range(15):
                obs, rewards, *_ = envs.step(blue.act(obs))
                total += rewards
            returns.append(total.tolist())
    with stockade.make_vec(3, side="red", blue=blue, horizon=15, chance="cyborg") as envs:
        obs, _ = envs.reset(seed=5)
        total = np.zeros(3)
        for _ in range(15):
            obs, rewards, *_ = envs.step(red.act(obs))
            total -= rewards
        returns.append(total.tolist())
    assert returns[0] == returns[1] == returns[2]
    assert stockade.make(red="nemesis").config.red == "player"


def test_wrong_sides_are_errors() -> None:
    with pytest.raises(SettingError, match="defends; take a policy that attacks"):
        stockade.make_vec(2, red=load("champion"))
    with pytest.raises(SettingError, match="attacks; take a policy that defends"):
        stockade.make_vec(2, side="red", blue=load("nemesis"))
    with pytest.raises(InputError, match="attacks; take a policy that defends"):
        stockade.evaluate("nemesis", episodes=2, progress=False)
    with pytest.raises(SettingError, match="nemesis-slep"):
        stockade.make_vec(2, red="nemesis-slep")
    with pytest.raises(SettingError, match="can only attack alone"):
        stockade.make_vec(2, red="nemesis+delay:5")
    with pytest.raises(InputError, match="side='red'"):
        load("nemesis").act(np.zeros((2, 52), np.uint8))
    path = str(SHIPPED / "champion-current.json")
    with pytest.raises(SettingError, match="defends"):
        stockade.make_vec(2, red=path)


def test_blue_trains_against_a_learned_attacker(tmp_path: Path) -> None:
    config = TrainConfig(
        red="bline:2,nemesis", total_episodes=60, n_envs=12, horizon=10, tensorboard=False, runs=tmp_path,
        validation_episodes=5, ppo=PPOConfig(update_steps=20, minibatch_size=100, hidden=(16,)),
    )  # fmt: skip
    assert train(config, progress=False).episodes >= 60


# ------------------------------------------------------------------------------------------------------------- exploit
def test_what_an_attacker_does_is_counted() -> None:
    seen = watch(load("sleep"), "bline", 100, 200, 9)
    assert seen.returns.tolist() == play(load("sleep"), "bline", 100, 200, 9).tolist()
    assert seen.impact_share == 1.0
    assert seen.first_impact < 20
    assert sum(seen.actions.values()) == pytest.approx(100)
    assert sum(seen.exploits.values()) == pytest.approx(seen.actions["ExploitRemoteService"])
    assert sum(seen.costs) == pytest.approx(-seen.returns.mean())
    assert "stops the service in 100% of the episodes" in " ".join(seen.words("sleep"))
    repaired = watch(load("react-restore"), "meander", 50, 100, 9)
    assert repaired.costs.restores == pytest.approx(sum(repaired.restores.values()))
    assert repaired.costs.hosts > 0


def test_exploit_finds_the_strongest_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import stockade.learn.train as training

    config = ExploitConfig("react-restore", seeds=2, total_episodes=64, horizon=15, episodes=20, n_envs=32,
                           runs=tmp_path)  # fmt: skip
    real, calls = training.train, []

    def interrupted(config: TrainConfig, **options: object) -> object:
        calls.append(config)
        result = real(config, progress=False)
        return dataclasses.replace(result, stopped=signal.SIGINT) if len(calls) == 2 else result

    monkeypatch.setattr(training, "train", interrupted)
    stopped = exploit(config)
    assert stopped == (tmp_path / "exploit-react-restore", signal.SIGINT)
    assert read_summary(tmp_path / "exploit-react-restore")["status"] == "interrupted"
    monkeypatch.setattr(training, "train", real)
    with pytest.raises(SystemExit, match="0"):
        main(["exploit", "--resume", "exploit-react-restore", "--runs", str(tmp_path), "--json", "-"])
    result = json.loads(capsys.readouterr().out)
    assert result["strengths"][result["strongest"]] == max(result["strengths"])
    assert [entry["red"] for entry in result["against"]] == ["learned", "bline", "meander"]
    assert read_summary(tmp_path / "exploit-react-restore")["status"] == "finished"
    own = play(load("react-restore"), load("exploit-react-restore", tmp_path), 15, 20, 153)
    assert own.mean() == pytest.approx(result["exploitability"])
    again = exploit(ExploitConfig.resumed("exploit-react-restore", tmp_path), progress=False)
    assert isinstance(again, ExploitResult)
    assert again.to_dict()["against"] == result["against"]
    with pytest.raises(SystemExit, match="0"):
        main(["export", "exploit-react-restore", str(tmp_path / "one"), "--runs", str(tmp_path)])
    assert load(tmp_path / "one.json").side == "red"
    capsys.readouterr()
    with pytest.raises(SystemExit, match="0"):
        main(["evaluate", str(tmp_path / "one.json"), "--episodes", "3"])
    assert "against champion" in capsys.readouterr().out


def test_exploit_needs_a_policy_that_is_there(tmp_path: Path) -> None:
    for name, said in (("", "name the policy"), ("chmpion", "champion"), ("nemesis", "attacks")):
        with pytest.raises(InputError, match=said):
            exploit(ExploitConfig(name, runs=tmp_path))
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------------------------------------- leagues
LEAGUE = TrainConfig(
    league=True, league_rounds=2, league_episodes=40, red="bline,meander", horizon=12, total_episodes=120, n_envs=24,
    checkpoint_episodes=40, tensorboard=False, validation_episodes=5,
    ppo=PPOConfig(update_steps=26, minibatch_size=200, hidden=(16,)),
)  # fmt: skip


def test_a_league_grows_its_pool_and_continues_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import stockade.learn.train as training

    whole = train(dataclasses.replace(LEAGUE, runs=tmp_path, name="whole"), progress=False)
    rounds = json.loads((whole.folder / "league.json").read_text())["rounds"]
    assert [list(row["learned"]) for row in rounds] == [["red0"], ["red0", "red1"]]
    assert [row["episodes"] >= least for row, least in zip(rounds, (60, 120), strict=True)] == [True, True]
    assert set(rounds[0]["given"]) == {"bline", "meander"}
    assert (whole.folder / "league.svg").exists()
    real = training.train

    def interrupted(config: TrainConfig, **options: object) -> object:
        result = real(config, progress=False)
        return dataclasses.replace(result, stopped=signal.SIGTERM) if config.name == "red1" else result

    monkeypatch.setattr(training, "train", interrupted)
    cut = real(dataclasses.replace(LEAGUE, runs=tmp_path, name="cut"), progress=False)
    assert cut.stopped == signal.SIGTERM
    monkeypatch.setattr(training, "train", real)
    resumed = train(TrainConfig.resumed("cut", tmp_path), progress=False)
    assert not resumed.interrupted
    assert weights(resumed.folder) == weights(whole.folder)
    assert json.loads((resumed.folder / "league.json").read_text())["rounds"] == rounds
    assert train(TrainConfig.resumed("cut", tmp_path), progress=False).episodes == whole.episodes


def test_a_training_may_begin_with_a_policy(tmp_path: Path) -> None:
    config = dataclasses.replace(LEAGUE, league=False, runs=tmp_path, total_episodes=24)
    first = train(dataclasses.replace(config, name="first"), progress=False)
    still = dataclasses.replace(config.ppo, learning_rate=1e-30)
    second = train(dataclasses.replace(config, name="second", start="first", ppo=still), progress=False)
    obs = np.random.default_rng(0).integers(0, 2, (20, 160)).astype(np.uint8)
    assert np.array_equal(first.agent.probabilities(obs), second.agent.probabilities(obs))
    with pytest.raises(SettingError, match="another network"):
        train(dataclasses.replace(config, name="third", start="champion"), progress=False)
    assert not (tmp_path / "third").exists()
