"""The world for two players, as PettingZoo and the rest of the package see it."""

import functools
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

import stockade
from stockade.cage2.actions import RED_ACTION_NAMES, red_action_index
from stockade.errors import InvalidActionError

pytest.importorskip("pettingzoo", reason="needs pip install 'stockade[pettingzoo]'")
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test
from pettingzoo.utils import parallel_to_aec

from stockade.integrations.pettingzoo import StockadeParallelEnv

OPTIONS: list[dict[str, Any]] = [{}, {"chance": "cyborg", "rules": "leaderboard", "green": "active", "obs": "memory"}]


def play(env: StockadeParallelEnv, seed: int, steps: int) -> list[Any]:
    """All that a random pair of players is told: it follows the masks."""
    generator = np.random.default_rng(seed)
    observations, infos = env.reset(seed=seed)
    told: list[Any] = [observations]
    for _ in range(steps):
        actions = {a: int(generator.choice(np.flatnonzero(infos[a]["action_mask"]))) for a in env.agents}
        observations, rewards, _, truncations, infos = env.step(actions)
        told.append((observations, rewards, truncations, infos))
    return told


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return np.array_equal(one, other)


@pytest.mark.parametrize("options", OPTIONS)
def test_pettingzoo_accepts_it(options: dict[str, Any]) -> None:
    make = functools.partial(stockade.parallel_env, horizon=40, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(make(), num_cycles=100)
        parallel_seed_test(make, num_cycles=100)


@pytest.mark.filterwarnings("ignore")  # it recommends other names, and the two sides see different things
def test_pettingzoo_accepts_it_turn_by_turn() -> None:
    api_test(parallel_to_aec(stockade.parallel_env(horizon=40)), num_cycles=200)


def test_an_episode_ends_for_both_at_the_horizon() -> None:
    env = stockade.parallel_env(horizon=3)
    env.reset(seed=0)
    for step in range(3):
        assert env.agents == ["blue", "red"]
        _, rewards, terminations, truncations, _ = env.step({"blue": 0, "red": 0})
        assert rewards["blue"] == -rewards["red"]
        assert terminations == {"blue": False, "red": False}
        assert truncations == {"blue": step == 2, "red": step == 2}
    assert env.agents == []
    with pytest.raises(ResetNeeded, match="over after 3 steps"):
        env.step({"blue": 0, "red": 0})


def test_red_attacks_what_blue_loses() -> None:
    """B_line's first moves, by hand: each opens the next one in red's mask, and root costs blue what it pays red."""
    env = stockade.parallel_env(chance="cyborg", horizon=30)
    _, infos = env.reset(seed=3)
    allowed = {RED_ACTION_NAMES[i] for i in np.flatnonzero(infos["red"]["action_mask"])}
    assert allowed == {"Sleep", "DiscoverRemoteSystems User"} | {
        f"{kind} User0" for kind in ("DiscoverNetworkServices", "ExploitRemoteService", "PrivilegeEscalate", "Impact")
    }
    for move in ("DiscoverRemoteSystems User", "DiscoverNetworkServices User2", "ExploitRemoteService User2"):
        assert infos["red"]["action_mask"][red_action_index(move)]
        _, _, _, _, infos = env.step({"blue": 0, "red": red_action_index(move)})
    while env.true_state().red_access[10] != 2:
        env.step({"blue": 0, "red": red_action_index("ExploitRemoteService User2")})
        _, rewards, _, _, _ = env.step({"blue": 0, "red": red_action_index("PrivilegeEscalate User2")})
    assert (rewards["blue"], rewards["red"]) == (-0.1, 0.1)


def test_a_red_player_who_sleeps_is_the_sleeping_red() -> None:
    scripted = stockade.make(red="sleep", chance="cyborg", green="active", horizon=60)
    played = stockade.parallel_env(chance="cyborg", green="active", horizon=60)
    obs, _ = scripted.reset(seed=8)
    views, _ = played.reset(seed=8)
    for action in range(0, 120, 2):
        np.testing.assert_array_equal(obs, views["blue"])
        obs, reward, *_ = scripted.step(action)
        views, rewards, *_ = played.step({"blue": action, "red": 0})
        assert reward == rewards["blue"]


@pytest.mark.parametrize("options", OPTIONS)
def test_snapshots_and_pickles_go_on_alike(options: dict[str, Any]) -> None:
    env = stockade.parallel_env(**options)
    play(env, 5, 20)
    snapshot, copy = env.snapshot(), pickle.loads(pickle.dumps(env))
    other = stockade.parallel_env(**options)
    views = other.restore(snapshot)
    actions = [{"blue": i, "red": i % 56} for i in range(0, 140, 7)]
    futures = [[e.step(action) for action in actions] for e in (env, copy, other)]
    assert equal(futures[0], futures[1])
    assert equal(futures[0], futures[2])
    assert views.keys() == {"blue", "red"}


@pytest.mark.parametrize("bad", [145, -1, 0.5, float("nan"), None, "Sleep"])
@pytest.mark.parametrize("side", ["blue", "red"])
def test_a_wrong_action_is_refused_before_anything_happens(side: str, bad: Any) -> None:
    env = stockade.parallel_env()
    env.reset(seed=0)
    with pytest.raises(InvalidActionError, match="red's action" if side == "red" else "action"):
        env.step({"blue": 0, "red": 0} | {side: bad})
    assert env.true_state().time == 0


def test_misuse_is_named() -> None:
    env = stockade.parallel_env()
    with pytest.raises(ResetNeeded):
        env.step({"blue": 0, "red": 0})
    env.reset()
    with pytest.raises(InvalidActionError, match="'blue' and 'red'"):
        env.step({"blue": 0})
    with pytest.raises(ValueError, match="render_mode"):
        stockade.parallel_env(render_mode="human")
    env.close()
    env.close()
    with pytest.raises(ClosedEnvironmentError):
        env.reset()


def test_environments_do_not_share_their_spaces() -> None:
    one, other = stockade.parallel_env(), stockade.parallel_env()
    assert one.action_space("red") is not other.action_space("red")
    assert one.action_space("blue") is not other.action_space("blue")


def test_render_shows_both_tables() -> None:
    env = stockade.parallel_env(render_mode="ansi")
    env.reset(seed=0)
    text = env.render()
    assert text is not None
    assert "Op_Server0" in text


def test_the_guide_runs_as_pasted() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "pettingzoo.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["env"].agents == []
    assert names["truncations"] == {"blue": True, "red": True}
