"""What only the asynchronous backend does."""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError

from stockade.vector import SyntheticEnv, make_vector
from tests.vector.environments import OneSlow

SLEEPY = functools.partial(SyntheticEnv, step_seconds=0.02, work="sleep")


def test_a_batch_has_batch_size_rows_that_env_id_names():
    with make_vector("async", SyntheticEnv, 6, workers=2, batch_size=4) as envs:
        envs.async_reset(seed=0)
        observations, rewards, terminated, truncated, infos = envs.recv()
        assert observations.shape == (4, 52)
        assert rewards.shape == terminated.shape == truncated.shape == infos["env_id"].shape == (4,)
        *_, infos = envs.recv()
        assert infos["env_id"].shape == (2,)  # the rest; nothing more is under way
        with pytest.raises(NoAsyncCallError, match="send"):
            envs.recv()


def test_a_slow_environment_delays_only_its_worker(tmp_path):
    """The first environment does not get on; the others go on without it, and it comes when it is done."""
    slow = functools.partial(OneSlow, str(tmp_path / "go on"))
    with make_vector("async", slow, 4, workers=4, batch_size=3) as envs:
        envs.async_reset(seed=0)
        seen = np.zeros(4, int)

        def turn():
            *_, infos = envs.recv()
            seen[infos["env_id"]] += 1
            envs.send(np.zeros(len(infos["env_id"]), np.int64), infos["env_id"])

        while seen[1:].min() < 40:
            turn()
        assert seen[0] <= 1  # its reset
        (tmp_path / "go on").touch()
        while seen[0] < 2:
            turn()


def test_whoever_is_ready_first_is_returned_first():
    """With a batch size of one and all ready, everybody comes once before anybody comes twice."""
    with make_vector("async", SyntheticEnv, 5, workers=1, batch_size=1) as envs:
        envs.async_reset(seed=0)
        order = []
        for _ in range(50):
            *_, infos = envs.recv()
            order += infos["env_id"].tolist()
            envs.send(np.zeros(1, np.int64), infos["env_id"])
        for start in range(0, 50, 5):
            assert sorted(order[start : start + 5]) == [0, 1, 2, 3, 4]


def test_infos_have_the_rows_of_the_batch():
    with make_vector("async", functools.partial(SyntheticEnv, info_size=2), 4, workers=2, batch_size=2) as envs:
        envs.async_reset(seed=0)
        *_, infos = envs.recv()
        while "payload" not in infos:  # resets have none, and a slow worker's may come late
            envs.send(np.zeros(2, np.int64), infos["env_id"])
            *_, infos = envs.recv()
        assert infos["payload"].shape == (2, 2)
        assert infos["_payload"].shape == (2,)


def test_wrong_use_is_told():
    with make_vector("async", SLEEPY, 4, workers=2, batch_size=2) as envs:
        envs.async_reset(seed=0)
        *_, infos = envs.recv()
        mine = infos["env_id"]
        other = [i for i in range(4) if i not in mine][:1]
        with pytest.raises(AlreadyPendingCallError, match="in flight"):
            envs.send([0], other)
        with pytest.raises(AlreadyPendingCallError, match="in flight"):
            envs.step(np.zeros(4, np.int64))
        with pytest.raises(ValueError, match="between 0 and 3"):
            envs.send([0], [4])
        with pytest.raises(ValueError, match="different"):
            envs.send([0, 0], [mine[0], mine[0]])
        with pytest.raises(gymnasium.error.InvalidAction, match=f"environment {mine[1]} is"):
            envs.send([0, 999], mine)
        envs.send([0, 0], mine)


def test_disabled_autoreset_asks_for_a_reset_of_the_finished():
    short = functools.partial(SyntheticEnv, horizon=2, fixed_length=True)
    with make_vector("async", short, 2, workers=1, batch_size=2, autoreset_mode="disabled") as envs:
        envs.async_reset(seed=0)
        for _ in range(2):
            *_, infos = envs.recv()
            envs.send([0, 0], infos["env_id"])
        _, _, _, truncated, infos = envs.recv()
        assert truncated.all()
        with pytest.raises(gymnasium.error.ResetNeeded):
            envs.send([0, 0], infos["env_id"])
        envs.async_reset(options={"reset_mask": np.array([True, True])})
        observations, *_ = envs.recv()
        assert (observations[:, 0] == 0).all()


def test_reset_begins_again_whatever_is_under_way():
    with make_vector("async", SLEEPY, 4, workers=2, batch_size=2) as envs, make_vector("serial", SLEEPY, 4) as serial:
        envs.async_reset(seed=0)
        *_, infos = envs.recv()
        envs.send([0, 0], infos["env_id"])
        assert np.array_equal(envs.reset(seed=3)[0], serial.reset(seed=3)[0])
        for ours, theirs in zip(envs.step(np.arange(4))[:4], serial.step(np.arange(4))[:4], strict=True):
            assert np.array_equal(ours, theirs)
