"""The policy that ships: it is there, small, plain data, the same on every backend, and as good as it says."""

import json

import numpy as np
import pytest

import stockade
from stockade.cage2.actions import ACTION_MASK
from stockade.cli import main
from stockade.learn import load
from stockade.learn.config import CHALLENGER, CHAMPION, ORACLE, TrainConfig
from stockade.learn.evaluate import PUBLISHED, REDS, play
from stockade.learn.files import SHIPPED
from stockade.learn.mixture import cells_of

#: Seeds that nothing else uses.
SEED = 1_300_000_000
RULES = ("current", "leaderboard")


@pytest.mark.parametrize("rules", RULES)
def test_it_is_small_and_says_how_it_was_made(rules: str) -> None:
    files = list(SHIPPED.glob(f"champion-{rules}*"))
    assert {path.suffix for path in files} == {".json", ".safetensors"}
    assert sum(path.stat().st_size for path in files) < 1_000_000
    settings = load("champion", rules=rules).card["trained"]["settings"]
    trained = TrainConfig.from_json({name: value for name, value in settings.items() if name != "stockade"})
    assert trained.rules == rules
    for name in ("red", "horizons", "obs", "total_episodes", "n_envs", "action_mask"):
        assert getattr(trained, name) == getattr(CHAMPION, name), name
    assert {cell.world.red for cell in cells_of(CHAMPION)} == set(REDS)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("horizon", [30, 100])
def test_it_beats_the_winner_of_the_challenge(rules: str, horizon: int) -> None:
    """Four standard errors of slack: a few hundred episodes say this much and no more."""
    winner = next(row for row in PUBLISHED if row.name == "CardiffUni, replayed" and row.rules == rules)
    champion, total, theirs, variance = load("champion", rules=rules), 0.0, 0.0, 0.0
    for k, red in enumerate(("bline", "meander")):
        returns = play(champion, red, horizon, 400, SEED + 1000 * k, rules)
        total, variance = total + returns.mean(), variance + returns.var() / len(returns)
        theirs += winner.means[3 * k + (0 if horizon == 30 else 2)]
    assert total > theirs - 4 * np.sqrt(variance)
    assert play(champion, "sleep", horizon, 50, SEED, rules).tolist() == [0.0] * 50


def test_it_plays_the_same_on_every_backend() -> None:
    champion = load("champion")
    actions = []
    for backend in ("native", "serial"):
        with stockade.make_vec(3, backend, red="meander", horizon=20, obs=champion.obs) as envs:
            obs, _ = envs.reset(seed=SEED)
            taken = []
            for _ in range(20):
                taken.append(champion.act(obs, np.random.default_rng(0)))
                obs, *_ = envs.step(taken[-1])
            actions.append(np.array(taken))
    assert np.array_equal(*actions)
    assert ACTION_MASK[actions[0]].all()


def test_evaluate_takes_the_policy_of_the_rules(tmp_path, capsys: pytest.CaptureFixture) -> None:
    totals = {}
    for rules in RULES:
        path = tmp_path / f"{rules}.json"
        with pytest.raises(SystemExit) as done:
            main(
                ["evaluate", "champion", "--rules", rules, "--episodes", "20", "--seed", str(SEED), "--json", str(path)]
            )
        assert done.value.code == 0
        totals[rules] = json.loads(path.read_text())["cells"][2]["mean"]
        own = play(load("champion", rules=rules), "bline", 100, 20, SEED + 2_000_000, rules)
        assert totals[rules] == pytest.approx(own.mean())
    assert "champion" in capsys.readouterr().out


# ------------------------------------------------- one that knows what the challenge shows, one that knows all
@pytest.mark.parametrize(("name", "recipe"), [("challenger", CHALLENGER), ("oracle", ORACLE)])
def test_one_set_of_weights_serves_both_rule_sets(name: str, recipe: TrainConfig) -> None:
    names = (name, f"{name}-told") if name == "challenger" else (name,)
    agents = [load(one, rules=rules) for one in names for rules in RULES]
    for agent in agents[1:]:
        for part, weights in agents[0].policy.save_weights().items():
            assert np.array_equal(weights, agent.policy.save_weights()[part])
    assert agents[0].obs == agents[1].obs, "it is not told the rules"
    if name == "challenger":
        assert [agent.obs.split(":")[2] for agent in agents] == ["both", "both", *RULES]
    settings = agents[0].card["trained"]["settings"]
    trained = TrainConfig.from_json({name: value for name, value in settings.items() if name != "stockade"})
    for setting in ("red", "horizons", "obs", "rules", "total_episodes", "n_envs", "action_mask"):
        assert getattr(trained, setting) == getattr(recipe, setting), setting


@pytest.mark.parametrize("rules", RULES)
def test_the_challenger_holds_where_the_champion_does_not(rules: str) -> None:
    """With active staff, by four standard errors; and when the attacker changes, where that hurts the champion."""
    agents = [load(name, rules=rules) for name in ("challenger", "champion")]
    reds = ["bline+green:0.25", "bline+green:0.5"] + ["meander>bline@50"] * (rules == "current")
    for red in reds:
        ours, theirs = (play(agent, red, 100, 200, SEED, rules) for agent in agents)
        error = np.sqrt((ours.var() + theirs.var()) / 200)
        assert ours.mean() > theirs.mean() + 4 * error, red


def test_the_challenger_acts_by_what_it_saw_and_did_alone() -> None:
    """In worlds of other attackers, rules, horizons and hidden states, equal histories lead to equal actions."""
    agent, chosen, truths = load("challenger"), {}, {}
    for red in ("bline", "meander", "sleep", "meander>bline@5-20"):
        for rules, horizon in (("current", 30), ("leaderboard", 50)):
            envs = stockade.make_vec(100, red=red, rules=rules, horizon=horizon, obs=agent.obs)
            obs, _ = envs.reset(seed=SEED)
            histories = [b""] * 100
            for _ in range(12):
                actions, access = agent.act(obs), envs.true_state().red_access
                for i in range(100):
                    histories[i] += obs[i, :52].astype(np.uint8).tobytes()
                    assert chosen.setdefault(histories[i], actions[i]) == actions[i]
                    truths.setdefault(histories[i], set()).add((rules, horizon, access[i].tobytes()))
                    histories[i] += bytes([actions[i]])
                obs, *_ = envs.step(actions)
    hidden = [{access for _, _, access in truth} for truth in truths.values()]
    assert sum(len(accesses) > 1 for accesses in hidden) > 20, "what red holds differs where nothing else does"
    assert sum(len({rules for rules, *_ in truth}) > 1 for truth in truths.values()) > 20


@pytest.mark.parametrize("red", ["bline+delay:10", "meander+idle:0.2", "bline+noise:0.1", "meander-stealthy"])
def test_the_challenger_holds_where_its_belief_is_wrong(red: str) -> None:
    """An agent that trusts a wrong belief loses hundreds of points."""
    for rules in RULES:
        returns = play(load("challenger", rules=rules), red, 100, 200, SEED, rules)
        assert returns.mean() > -45
        assert (returns > -150).mean() > 0.97


@pytest.mark.parametrize("rules", RULES)
def test_what_is_true_is_worth_points(rules: str) -> None:
    ours, best = (play(load(name, rules=rules), "meander", 100, 200, SEED, rules) for name in ("challenger", "oracle"))
    assert best.mean() > ours.mean() + 1
