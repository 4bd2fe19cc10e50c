"""`snapshot(index)` and `restore(snapshot, index, seed)`: one signature and one meaning on every backend."""

import functools

import gymnasium
import numpy as np
import pytest

import stockade
from stockade.vector import LOCAL_BACKENDS, SyntheticEnv, make_vector
from tests.vector.environments import Refuses

TYPED = functools.partial(SyntheticEnv, horizon=10, fixed_length=True, true_state="typed")
OBJECT = functools.partial(SyntheticEnv, horizon=10, fixed_length=True, true_state="object")
BUILT_IN = functools.partial(stockade.make, "meander", 12, info=False)
N = 3


@pytest.fixture(params=LOCAL_BACKENDS)
def backend(request):
    return request.param


def steps(envs, count):
    for _ in range(count):
        values = envs.step(np.zeros(envs.num_envs, np.int64))
    return values


@pytest.mark.parametrize("factory", [TYPED, OBJECT, BUILT_IN], ids=["typed", "object", "built-in"])
@pytest.mark.parametrize("rule", ["every_step", 3, "episode_end"])
def test_true_states_and_their_ages_are_those_of_the_restored_moment(backend, factory, rule):
    with make_vector(backend, factory, N, true_states=rule) as envs:
        envs.reset(seed=0)
        steps(envs, 16)  # into the second episode
        snapshot, states = envs.snapshot(), envs.true_state()
        expected = states.time.tolist(), states.age.tolist()
        steps(envs, 4)
        assert envs.true_state().time.tolist() != expected[0] or rule == "episode_end"
        envs.restore(snapshot)
        for _ in range(2):  # and they age from there as they did
            states = envs.true_state()
            assert (states.time.tolist(), states.age.tolist()) == expected
            if rule == "every_step":
                return
            steps(envs, 1)
            envs.restore(snapshot)


@pytest.mark.parametrize("name", ["native", *LOCAL_BACKENDS])
def test_one_environment_goes_back_and_the_others_stay(name):
    with stockade.make_vec(N, name, red="meander", horizon=30) as envs:
        envs.reset(seed=0)
        early, *_ = steps(envs, 5)
        one = envs.snapshot(1)
        assert len(one) == 1
        late, *_ = steps(envs, 8)
        observations = envs.restore(one, index=2)
        assert np.array_equal(observations[2], early[1])
        assert np.array_equal(observations[:2], late[:2])
        assert envs.true_state().time.tolist() == [13, 13, 5]
        envs.restore(one)
        assert envs.true_state().time.tolist() == [5, 5, 5]
        with pytest.raises(ValueError, match="do not fit into"):
            envs.restore(envs.snapshot(), index=0)
        with pytest.raises(IndexError, match="there is no"):
            envs.snapshot(3)


def test_all_backends_give_the_same_after_a_restore_with_a_seed():
    futures = []
    for name in ("native", *LOCAL_BACKENDS):
        with stockade.make_vec(N, name, red="meander", horizon=60) as envs:
            envs.reset(seed=0)
            steps(envs, 5)
            envs.restore(envs.snapshot(0), seed=40)
            futures.append(np.stack([envs.step(np.zeros(N, int))[0] for _ in range(40)]))
    assert all(np.array_equal(future, futures[0]) for future in futures)
    assert len({futures[0][:, i].tobytes() for i in range(N)}) == N, "one moment, another chance for each"


@pytest.mark.parametrize("name", ["native", *LOCAL_BACKENDS])
def test_the_snapshot_of_a_single_world_is_put_into_all(name):
    env = stockade.make("meander", 30)
    env.reset(seed=9)
    for _ in range(6):
        seen, *_ = env.step(0)
    with stockade.make_vec(N, name, red="meander", horizon=30) as envs:
        observations = envs.restore(env.snapshot())  # before any reset
        assert (observations == seen).all()
        assert envs.true_state().time.tolist() == [6] * N
        assert (steps(envs, 1)[0] == env.step(0)[0]).all()


def test_a_refused_restore_changes_nothing(backend):
    with make_vector(backend, Refuses, N) as envs, make_vector("serial", SyntheticEnv, N) as twin:
        for one in (envs, twin):
            one.reset(seed=0)
            steps(one, 3)
        snapshot = envs.snapshot()
        steps(envs, 2)
        steps(twin, 2)
        with pytest.raises(LookupError, match="not this moment"):
            envs.restore(snapshot)
        assert np.array_equal(steps(envs, 1)[0], steps(twin, 1)[0])


def test_a_refused_restore_changes_nothing_where_episodes_are_over(backend):
    factory = functools.partial(Refuses, horizon=3, fixed_length=True)
    with make_vector(backend, factory, N, autoreset_mode="disabled") as envs:
        envs.reset(seed=0)
        steps(envs, 3)
        snapshot = envs.snapshot()
        envs.reset(seed=[10, 11, 2])
        last, *_ = steps(envs, 3)
        with pytest.raises(LookupError, match="not this moment"):
            envs.restore(snapshot)
        seen, _ = envs.reset(options={"reset_mask": np.array([False, False, True])})
        assert np.array_equal(seen[:2], last[:2])


def test_environments_without_snapshots_say_so(backend):
    with make_vector(backend, lambda: gymnasium.make("CartPole-v1"), 2) as envs:
        envs.reset(seed=0)
        with pytest.raises(NotImplementedError, match=r"no method snapshot\(\)"):
            envs.snapshot()
        envs.step(np.zeros(2, np.int64))
