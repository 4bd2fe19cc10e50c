"""Several kinds of worlds at once: shares, equality with the worlds alone, runs that go on, presets, export."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stockade
from stockade.cage2.config import WorldConfig
from stockade.cli import defaults_of, main
from stockade.errors import InputError, SettingError
from stockade.learn import load
from stockade.learn.config import CHAMPION, PPOConfig, TrainConfig
from stockade.learn.mixture import Cell, cells_of, make_mixture, read_weights, share_out
from stockade.learn.train import knows_rules, make_learner, train

MIXED = TrainConfig(
    red="bline:2,meander,sleep", horizons="7,11:2", rules="both", n_envs=64, total_episodes=200,
    checkpoint_episodes=80, tensorboard=False, seed=3,
    ppo=PPOConfig(update_steps=20, minibatch_size=320, hidden=(16,)),
)  # fmt: skip


@given(st.lists(st.floats(0.5, 9), min_size=1, max_size=12), st.integers(0, 500))
def test_shares_are_whole_complete_and_near_the_weights(weights: list[float], more: int) -> None:
    n = 40 * len(weights) + more
    cells = [Cell(WorldConfig(horizon=k + 1), weight) for k, weight in enumerate(weights)]
    counts = share_out(cells, n)
    assert sum(counts) == n
    assert all(abs(count - n * w / sum(weights)) <= 1 for count, w in zip(counts, weights, strict=True))


@given(st.lists(st.floats(0.01, 9), min_size=1, max_size=12), st.integers(0, 30))
def test_every_cell_gets_an_environment(weights: list[float], more: int) -> None:
    cells = [Cell(WorldConfig(horizon=k + 1), weight) for k, weight in enumerate(weights)]
    counts = share_out(cells, len(weights) + more)
    assert min(counts) >= 1
    assert sum(counts) == len(weights) + more


def test_cells_are_all_combinations_with_the_product_of_their_weights() -> None:
    cells = cells_of(TrainConfig(red="B_lineAgent:9,sleep", horizons="30,100:2", rules="both"))
    found = {(c.world.red, c.world.horizon, c.world.rules): c.weight for c in cells}
    assert found == {
        (red, horizon, rules): red_weight * horizon_weight
        for red, red_weight in (("bline", 9), ("sleep", 1))
        for horizon, horizon_weight in ((30, 1), (100, 2))
        for rules in ("current", "leaderboard")
    }


def test_a_belief_knows_the_rules_in_a_share_of_the_environments() -> None:
    config = TrainConfig(obs="belief:16", rules="both", untold=0.25)
    found = {(cell.world.rules, cell.world.view.rules): cell.weight for cell in cells_of(config)}
    known = {(rules, rules): 0.75 for rules in ("current", "leaderboard")}
    assert found == known | {(rules, "both"): 0.25 for rules in ("current", "leaderboard")}
    assert not any(cell.context for cell in cells_of(config))
    for changes in ({"untold": 1.0}, {"untold": -0.1}, {"obs": "memory"}, {"rules": "current"}, {"tell_rules": False}):
        with pytest.raises(SettingError, match="untold"):
            dataclasses.replace(config, **changes)


def test_variants_have_weights_too() -> None:
    text = "bline+delay:5,meander+idle:0.2>bline+noise:0.1@50:3,bline|sleep:2,sleep"
    weights = {"bline+delay:5": 1, "meander+idle:0.2>bline+noise:0.1@50": 3, "bline|sleep": 2, "sleep": 1}
    assert read_weights(text, "--red-agent") == weights
    assert [cell.world.red for cell in cells_of(TrainConfig(red=text))] == list(weights)


@pytest.mark.parametrize("text", ["bline:", "bline:0", "bline:-1", "bline:x", "bline:nan", "bline:inf", ",", "a,a"])
def test_weights_that_cannot_be_read_are_named(text: str) -> None:
    if text == "bline:":
        assert read_weights(text, "--red-agent") == {"bline": 1.0}
        return
    with pytest.raises(InputError, match="--red-agent"):
        read_weights(text, "--red-agent")


def test_a_mixture_plays_the_same_episodes_as_its_parts_alone() -> None:
    cells = cells_of(TrainConfig(red="bline,meander", horizons="5,9", rules="both"))
    mixed = make_mixture(cells, 24)
    counts = share_out(cells, 24)
    first = np.cumsum([0, *counts])
    alone = [
        stockade.make_vec(n, red=c.world.red, horizon=c.world.horizon, rules=c.world.rules, obs="memory")
        for c, n in zip(cells, counts, strict=True)
    ]
    generator = np.random.default_rng(0)
    obs, _ = mixed.reset(seed=100)
    parts = [env.reset(seed=100 + int(begin))[0] for env, begin in zip(alone, first, strict=False)]
    context = np.repeat([c.world.rules == "leaderboard" for c in cells], counts)
    assert np.array_equal(obs, np.column_stack([np.concatenate(parts), context]))
    for _ in range(25):
        actions = generator.integers(0, 145, 24)
        *got, _ = mixed.step(actions)
        assert np.array_equal(got[0][:, -1], context)
        got[0] = got[0][:, :-1]
        steps = [env.step(actions[b:e])[:4] for env, b, e in zip(alone, first, first[1:], strict=False)]
        for mine, theirs in zip(got, zip(*steps, strict=True), strict=True):
            assert np.array_equal(mine, np.concatenate(theirs))


def test_a_mixed_run_that_stops_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    whole = make_learner(MIXED)
    first = make_learner(MIXED)
    for _ in range(3):
        whole.iterate(0.1)
        first.iterate(0.1)
    arrays, rest = first.state()
    second = make_learner(MIXED)
    second.restore(arrays, json.loads(json.dumps(rest)))
    for _ in range(3):
        whole.iterate(0.5)
        second.iterate(0.5)
    for name, weight in whole.policy.save_weights().items():
        assert np.array_equal(weight, second.policy.save_weights()[name]), name


def test_finding_out_the_rules_is_paid_for_once() -> None:
    """In an episode the bonus adds up to its weight times what is known at the end; returns leave it out."""
    config = dataclasses.replace(
        MIXED, red="bline", rules="both", obs="belief:16", horizons="9", untold=0.5, rules_bonus=4.0,
        ppo=dataclasses.replace(MIXED.ppo, update_steps=10),
    )  # fmt: skip
    with_bonus, without = make_learner(config), make_learner(dataclasses.replace(config, rules_bonus=0.0))
    assert without.shaping is None
    assert with_bonus.shaping is not None
    with_bonus.shaping.weight = 4.0
    (paid, returns), (unpaid, same) = (
        (learner.rollout.rewards, learner.collect().returns) for learner in (with_bonus, without)
    )
    assert np.array_equal(returns, same)
    alive = ~with_bonus.rollout.dead
    bonus = np.where(alive, paid - unpaid, 0).sum(0) / config.ppo.reward_scale
    after_nine_steps = with_bonus.rollout.obs[9]
    known = knows_rules(after_nine_steps)
    told = np.abs(with_bonus.rollout.obs[0, :, -1] - 0.5) > 0.4
    assert told.any()
    assert np.allclose(bonus[told], 0, atol=1e-4)
    assert (known[~told] > 0.05).any()
    assert np.allclose(bonus[~told], 4 * known[~told], atol=1e-4)


@pytest.mark.parametrize(
    "changes",
    [
        {"rules": "current"},
        {"obs": "memory"},
        {"obs": "truth"},
        {"side": "red"},
        {"device": "cpu"},
        {"rules_bonus": -1.0},
    ],
)
def test_a_bonus_that_could_not_be_paid_is_refused(changes: dict) -> None:
    possible = TrainConfig(rules="both", obs="belief", rules_bonus=1.0)
    with pytest.raises(SettingError, match=r"rules_bonus=.* is for a defender"):
        dataclasses.replace(possible, **changes)


def test_worlds_of_another_mixture_are_refused() -> None:
    arrays, rest = make_learner(MIXED).state()
    other = make_learner(dataclasses.replace(MIXED, horizons="7"))
    with pytest.raises(ValueError, match="worlds"):
        other.restore(arrays, rest)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_envs": 8}, "too few"),
        ({"backend": "serial"}, "--backend native"),
        ({"horizons": "30,x"}, "--horizons"),
        ({"red": "bline,nobody"}, "nobody"),
        ({"horizons": "0"}, "horizon=0"),
    ],
)
def test_what_cannot_work_is_said_before_a_run_is_begun(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(dataclasses.replace(MIXED, runs=tmp_path / "runs", **changes))
    assert not (tmp_path / "runs").exists()


def test_validation_chooses_the_best_and_export_plays_it_anywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    assert train(dataclasses.replace(MIXED, runs=tmp_path, name="x", validation_episodes=20)).saved
    scores = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines() if ": validation " in line]
    assert len(scores) >= 2
    with pytest.raises(SystemExit) as done:
        main(["export", "x", str(tmp_path / "mine"), "--runs", str(tmp_path)])
    assert done.value.code == 0
    agent = load(str(tmp_path / "mine.json"))
    assert agent.greedy
    assert agent.card["score"] == pytest.approx(max(scores), abs=0.01)
    assert agent.card["trained"]["settings"]["horizons"] == MIXED.horizons
    envs = stockade.make_vec(4, obs="memory")
    obs, _ = envs.reset(seed=0)
    generator = np.random.default_rng(0)
    same = load("x", tmp_path, greedy=True)
    assert np.array_equal(agent.act(obs, generator), same.act(obs, generator))
    assert agent.context.tolist() == [0]
    assert load("x", tmp_path, rules="leaderboard").context.tolist() == [1]


def test_flags_change_single_settings_of_a_preset() -> None:
    assert defaults_of(TrainConfig, ["--seed", "1", "--preset", "champion"]) is CHAMPION
    assert defaults_of(TrainConfig, ["--preset=champion"]) is CHAMPION
    assert defaults_of(TrainConfig, ["--seed", "1"]) == TrainConfig()
    with pytest.raises(InputError, match="champion"):
        defaults_of(TrainConfig, ["--preset", "winner"])
    cells = {(c.world.red, c.world.horizon, c.world.rules) for c in cells_of(CHAMPION)}
    assert len(cells) == 9


def test_a_preset_on_the_command_line(tmp_path: Path) -> None:
    flags = ["--total-episodes", "150", "--n-envs", "256", "--hidden", "8", "--no-tensorboard", "--update-steps", "35",
             "--validation-episodes", "2"]  # fmt: skip
    with pytest.raises(SystemExit) as done:
        main(["train", "--preset", "champion", *flags, "--runs", str(tmp_path)])
    assert done.value.code == 0
    settings = json.loads((tmp_path / "champion-memory-seed0" / "config.json").read_text())
    assert settings["rules"] == "current"
    assert settings["n_envs"] == 256
    assert settings["horizons"] == CHAMPION.horizons
