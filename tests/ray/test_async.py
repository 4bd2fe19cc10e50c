"""The asynchronous interface of backend `ray`: fair, in batches, independent of their size."""

import functools

import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError

import stockade
from stockade.vector import SyntheticEnv, make_vector
from stockade.vector.check.trial import plain
from stockade.vector.testing import SyntheticFault
from tests.ray.conftest import wait_until
from tests.vector.environments import EverySpace

pytestmark = pytest.mark.usefixtures("local_ray")

SLEEPY = functools.partial(SyntheticEnv, step_seconds=0.02, work="sleep")


class OneSlow(SyntheticEnv):
    """The environment that was seeded with 0 waits in its first step until there is a file."""

    def __init__(self, file):
        super().__init__()
        self._file = file

    def step(self, action):
        if self._seed == 0:
            wait_until(self._file.exists, "nobody made the file")
        return super().step(action)


def own_run(envs, steps):
    """What each environment gave, by environment."""
    envs.async_reset(seed=4)
    rows = [[] for _ in range(envs.num_envs)]
    while min(map(len, rows)) < steps:
        observations, rewards, terminated, truncated, infos = envs.recv()
        ids = infos["env_id"].tolist()
        for place, i in enumerate(ids):
            rows[i].append(plain([part[place] for part in (observations, rewards, terminated, truncated)]))
        envs.send(np.array([(len(rows[i]) * 7 + i) % 145 for i in ids]), ids)
    return [row[:steps] for row in rows]


@pytest.mark.essential
@pytest.mark.parametrize(("batch_size", "workers"), [pytest.param(1, 1, marks=pytest.mark.slow), (4, 3), (7, 2)])
def test_the_built_in_world_gives_the_bits_of_native_in_any_batches(batch_size, workers):
    options = {"red": "meander", "horizon": 9, "obs": "memory"}
    with stockade.make_vec(7, **options) as native:
        observations, _ = native.reset(seed=4)
        nothing = np.zeros(7), np.zeros(7, bool), np.zeros(7, bool)
        expected = [[plain([part[i] for part in (observations, *nothing)])] for i in range(7)]
        for step in range(1, 25):
            values = native.step(np.array([(step * 7 + i) % 145 for i in range(7)]))
            for i in range(7):
                expected[i].append(plain([part[i] for part in values[:4]]))
    with stockade.make_vec(7, backend="ray", workers=workers, batch_size=batch_size, **options) as envs:
        assert own_run(envs, 25) == expected


def test_a_batch_has_batch_size_rows_that_env_id_names():
    with make_vector("ray", functools.partial(SyntheticEnv, info_size=2), 6, workers=2, batch_size=4) as envs:
        envs.async_reset(seed=0)
        observations, rewards, terminated, truncated, infos = envs.recv()
        assert observations.shape == (4, 52)
        assert rewards.shape == terminated.shape == truncated.shape == infos["env_id"].shape == (4,)
        *_, rest = envs.recv()
        assert sorted([*infos["env_id"], *rest["env_id"]]) == list(range(6))
        with pytest.raises(NoAsyncCallError, match="send"):
            envs.recv()
        envs.send(np.zeros(2, np.int64), rest["env_id"])
        *_, infos = envs.recv()
        assert infos["payload"].shape == (2, 2)


def test_a_slow_environment_delays_only_its_worker_and_nobody_starves(tmp_path):
    file = tmp_path / "go on"
    with make_vector("ray", functools.partial(OneSlow, file), 3, workers=3, batch_size=1) as envs:
        envs.async_reset(seed=0)
        seen = np.zeros(3, int)

        def pump(enough):
            while not enough():
                *_, infos = envs.recv()
                seen[infos["env_id"]] += 1
                envs.send(np.zeros(1, np.int64), infos["env_id"])

        pump(lambda: seen[1:].min() > 20)
        assert seen[0] <= 1  # its reset
        file.touch()
        pump(lambda: seen[0] > 20)  # though the others are always ready too


def test_with_all_ready_everybody_comes_once_before_anybody_comes_twice():
    with make_vector("ray", SyntheticEnv, 5, workers=1, batch_size=1) as envs:
        envs.async_reset(seed=0)
        order = []
        for _ in range(50):
            *_, infos = envs.recv()
            order += infos["env_id"].tolist()
            envs.send(np.zeros(1, np.int64), infos["env_id"])
        for start in range(0, 50, 5):
            assert sorted(order[start : start + 5]) == [0, 1, 2, 3, 4]


def test_nested_actions_reach_the_environments_they_are_for():
    with make_vector("ray", EverySpace, 4, workers=2, batch_size=4) as envs:
        envs.async_reset(seed=0)
        *_, infos = envs.recv()
        ids = infos["env_id"]
        envs.send({"move": ids % 3, "force": np.repeat(ids[:, None], 2, axis=1).astype(np.float32) / 4}, ids)
        _, rewards, _, _, infos = envs.recv()
        ids = infos["env_id"]
        assert rewards.tolist() == (ids % 3 + ids / 2).tolist()


def test_wrong_use_is_told_and_reset_begins_again():
    with make_vector("ray", SLEEPY, 4, workers=2, batch_size=2) as envs, make_vector("serial", SLEEPY, 4) as serial:
        envs.async_reset(seed=0)
        *_, infos = envs.recv()
        mine = infos["env_id"]
        other = [i for i in range(4) if i not in mine][:1]
        with pytest.raises(AlreadyPendingCallError, match="in flight"):
            envs.send([0], other)
        with pytest.raises(AlreadyPendingCallError, match="in flight"):
            envs.true_state() if envs._description.has_true_state else envs.get_attr("spec")
        with pytest.raises(ValueError, match="between 0 and 3"):
            envs.send([0], [4])
        envs.send([0, 0], mine)
        assert np.array_equal(envs.reset(seed=3)[0], serial.reset(seed=3)[0])
        for ours, theirs in zip(envs.step(np.arange(4))[:4], serial.step(np.arange(4))[:4], strict=True):
            assert np.array_equal(ours, theirs)


def test_a_failure_is_raised_once_and_the_others_go_on():
    from stockade.vector import Fault

    raises = functools.partial(SyntheticEnv, horizon=20, faults=(Fault("exception", step=3, seed=102),))
    with make_vector("ray", raises, 4, workers=2, batch_size=2) as envs:
        envs.async_reset(seed=100)
        seen = np.zeros(4, int)

        def pump(enough):
            while not enough():
                *_, infos = envs.recv()
                seen[infos["env_id"]] += 1
                envs.send(np.zeros(len(infos["env_id"]), np.int64), infos["env_id"])

        with pytest.raises(SyntheticFault) as caught:
            pump(lambda: False)
        assert caught.value.__cause__.env_id == 2
        before = seen.sum()
        pump(lambda: seen.sum() > before + 20)
        assert seen[2] == 3  # reset and two steps
        envs.async_reset(options={"reset_mask": np.array([False, False, True, False])})
        pump(lambda: seen[2] > 5)
