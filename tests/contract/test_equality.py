"""The same seeds and actions give the same bits, whatever runs the environments."""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stockade
from stockade.vector import SyntheticEnv, make_vector
from stockade.vector.check.trial import actions_for, plain, rollout
from tests.vector.environments import EverySpace

SINGLE = functools.partial(SyntheticEnv, horizon=10, true_state="typed")


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize(
    ("backend", "options"),
    [
        ("pipes", {"workers": 1}),
        ("pipes", {"workers": 7}),
        ("shared_memory", {"workers": 1}),
        ("shared_memory", {"workers": 3}),
        ("shared_memory", {"workers": 7}),
        ("async", {"workers": 2, "batch_size": 1}),
        ("async", {"workers": 7, "batch_size": 7}),
    ],
)
def test_workers_make_no_difference(backend, options, mode):
    with (
        make_vector("serial", SINGLE, 7, autoreset_mode=mode) as serial,
        make_vector(backend, SINGLE, 7, autoreset_mode=mode, **options) as envs,
    ):
        actions = actions_for(serial, 40, 3)
        assert rollout(envs, 11, actions) == rollout(serial, 11, actions)


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("chance", ["fast", "cyborg"])
def test_the_built_in_world_is_the_same_everywhere(chance, mode):
    world = {"red": "meander", "horizon": 12, "chance": chance, "autoreset_mode": mode}
    records = []
    for backend in ("native", "serial", "pipes", "shared_memory", "async"):
        with stockade.make_vec(4, backend=backend, **world) as envs:
            records.append(rollout(envs, 21, actions_for(envs, 30, 3), infos=False))
    assert all(record == records[0] for record in records[1:])


@pytest.mark.parametrize("backend", ["serial", "pipes", "shared_memory", "async"])
def test_nested_spaces(backend):
    """Dict, Tuple, Box, Discrete, MultiDiscrete and MultiBinary, in observations and actions, as in Gymnasium."""
    workers = {} if backend == "serial" else {"workers": 2}
    with make_vector(backend, EverySpace, 3, **workers) as envs:
        theirs = gymnasium.vector.SyncVectorEnv([EverySpace] * 3)
        assert envs.observation_space == theirs.observation_space
        actions = actions_for(envs, 20, 5)
        assert rollout(envs, 9, actions) == rollout(theirs, 9, actions)
        theirs.close()


@pytest.mark.parametrize("backend", ["serial", "pipes", "shared_memory", "async"])
def test_wrapped_environments_of_gymnasium(backend):
    """A factory that is a lambda, with wrappers, of a registered environment."""
    make = lambda: gymnasium.wrappers.TimeLimit(gymnasium.make("CartPole-v1"), 9)  # noqa: E731
    with make_vector(backend, make, 3) as envs:
        theirs = gymnasium.vector.SyncVectorEnv([make] * 3)
        actions = actions_for(envs, 40, 5)
        assert rollout(envs, 9, actions) == rollout(theirs, 9, actions)
        theirs.close()


def test_async_runs_do_not_depend_on_batch_size():
    """Per environment, that is: which ones come together does depend on it."""
    runs = []
    for batch_size, workers in ((1, 1), (2, 2), (5, 3), (6, 6)):
        with make_vector("async", SINGLE, 6, workers=workers, batch_size=batch_size) as envs:
            envs.async_reset(seed=4)
            rows: list[list] = [[] for _ in range(6)]
            while min(map(len, rows)) < 25:
                observations, rewards, terminated, truncated, infos = envs.recv()
                for place, i in enumerate(infos["env_id"].tolist()):
                    parts = observations[place], rewards[place], terminated[place], truncated[place]
                    rows[i].append(plain(list(parts)))
                sent = [(len(rows[i]) * 7 + i) % 145 for i in infos["env_id"].tolist()]
                envs.send(np.array(sent), infos["env_id"])
            runs.append([row[:25] for row in rows])
    assert all(run == runs[0] for run in runs[1:])


def test_box_actions_are_the_environments_own():
    """An environment may keep the array it was given; the next step must not change it."""

    class Keeps(gymnasium.Env):
        observation_space = spaces.Box(-9, 9, (1,), np.float32)
        action_space = spaces.Box(-9, 9, (2,), np.float32)

        def reset(self, *, seed=None, options=None):
            self.kept = []
            return np.zeros(1, np.float32), {}

        def step(self, action):
            self.kept.append(action)
            return np.array([self.kept[0][0]], np.float32), 0.0, False, False, {}

    for backend in ("serial", "shared_memory", "async"):
        with make_vector(backend, Keeps, 2) as envs:
            envs.reset()
            envs.step(np.full((2, 2), 1, np.float32))
            observations, *_ = envs.step(np.full((2, 2), 2, np.float32))
            assert (observations == 1).all()
