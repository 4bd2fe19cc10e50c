"""The baselines do what their names say, on hand-made observations and in play."""

import numpy as np
import pytest

import stockade
from stockade.baselines import BASELINES, Baseline
from stockade.cage2.actions import ACTION_NAMES
from stockade.cage2.scenario import HOSTS

SCAN, EXPLOIT = (1, 0), (1, 1)
USER, PRIVILEGED, UNSURE = (0, 1), (1, 1), (1, 0)


def see(**hosts: tuple[tuple[int, int], tuple[int, int]]) -> np.ndarray:
    """(1, 52): activity and belief of some hosts."""
    obs = np.zeros((13, 4), np.uint8)
    for name, (activity, belief) in hosts.items():
        obs[HOSTS.index(name)] = (*activity, *belief)
    return obs.reshape(1, 52)


def choices(name: str, obs: np.ndarray) -> set[str]:
    policy, generator = Baseline(name), np.random.default_rng(0)
    actions = policy.act(np.repeat(obs, 2000, axis=0), generator)
    return {ACTION_NAMES[action] for action in actions}


NONE = (0, 0)
TWO_FALLEN = see(User2=(NONE, USER), Enterprise1=(NONE, PRIVILEGED), User4=(SCAN, NONE), User3=(NONE, UNSURE))


def test_sleep_sleeps() -> None:
    assert choices("sleep", TWO_FALLEN) == {"Sleep"}


def test_random_takes_every_action() -> None:
    policy = Baseline("random")
    assert set(policy.act(np.zeros((5000, 52), np.uint8), np.random.default_rng(0))) == set(range(145))


def test_react_restore_restores_what_seems_compromised() -> None:
    assert choices("react-restore", TWO_FALLEN) == {"Restore User2", "Restore Enterprise1"}
    idle = choices("react", see())
    assert idle == {"Monitor", *(f"Analyse {host}" for host in HOSTS)}


def test_react_remove_removes_where_something_is() -> None:
    assert choices("react-remove", TWO_FALLEN) == {"Remove User2", "Remove Enterprise1", "Remove User4"}
    assert choices("react-remove", see()) == {"Monitor"}


def test_greedy_repairs_the_most_valuable_first() -> None:
    assert choices("greedy", TWO_FALLEN) == {"Restore Enterprise1"}
    assert choices("greedy", see(Enterprise1=(NONE, USER), Op_Server0=(NONE, USER))) == {"Restore Op_Server0"}
    assert choices("greedy", see(User0=(NONE, PRIVILEGED))) == {"Monitor"}
    assert choices("greedy", see(User4=(SCAN, NONE))) == {"Analyse User4"}


@pytest.mark.parametrize("name", BASELINES)
def test_they_play_on_either_observation(name: str) -> None:
    policy = Baseline(name)

    def play(obs: str) -> np.ndarray:
        envs, generator = stockade.make_vec(20, red="meander", horizon=50, obs=obs), np.random.default_rng(1)
        seen, _ = envs.reset(seed=0)
        total = np.zeros(20)
        for _ in range(50):
            actions = policy.act(seen, generator)
            assert actions.shape == (20,)
            assert actions.dtype == np.int64
            seen, rewards, *_ = envs.step(actions)
            total += rewards
        return total

    np.testing.assert_array_equal(play("bits"), play("memory"))


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="react-restore"):
        Baseline("reactive")
