"""Exceptions and impossible numbers inside environments: reported as what they are, the others stay usable."""

import functools
import gc
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from stockade.vector import LOCAL_BACKENDS as BACKENDS
from stockade.vector import EnvironmentFailure, Fault, NonFiniteError, SyntheticEnv, WorkerError, make_vector
from stockade.vector.testing import SyntheticFault
from tests.processes import PATIENCE
from tests.vector.environments import (
    AwkwardEnv,
    FailsInReset,
    FailsToTell,
    GivesAListAsInfo,
    GivesAListAsInfoOfReset,
    GivesALockAsInfo,
    GivesAnInfoThatCannotBeUnpickled,
    ObservesInAnotherShape,
    TellsWhatCannotBeUnpickled,
)

ACTIONS = np.arange(4)
RAISES = functools.partial(SyntheticEnv, horizon=20, faults=(Fault("exception", step=3, seed=102),))


def step(envs, times):
    for _ in range(times):
        envs.step(np.zeros(envs.num_envs, np.int64))


def workers_of(backend):
    return {} if backend == "serial" else {"workers": 2}


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def test_the_original_exception_with_everything_that_is_known(backend):
    with make_vector(backend, RAISES, 4, **workers_of(backend)) as envs:
        envs.reset(seed=100)
        envs.step(ACTIONS)
        envs.step(ACTIONS)
        with pytest.raises(SyntheticFault, match="ordered for step 3") as caught:
            envs.step(ACTIONS)
        failure = caught.value.__cause__
        assert isinstance(failure, EnvironmentFailure)
        assert (failure.env_id, failure.seed, failure.action, failure.during) == (2, 102, 2, "step")
        assert "_suffer" in failure.remote_traceback
        assert "_suffer" in caught.value.__notes__[0]
        _, rewards, *_ = failure.results
        assert rewards[[0, 1, 3]].all()
        assert not rewards[2]


def test_the_others_stay_usable(backend):
    clean = functools.partial(SyntheticEnv, horizon=20)
    with make_vector(backend, RAISES, 4, **workers_of(backend)) as envs, make_vector("serial", clean, 4) as undisturbed:
        envs.reset(seed=100)
        undisturbed.reset(seed=100)
        for _ in range(2):
            envs.step(ACTIONS)
            undisturbed.step(ACTIONS)
        with pytest.raises(SyntheticFault):
            envs.step(ACTIONS)
        undisturbed.step(ACTIONS)
        with pytest.raises(gymnasium.error.ResetNeeded, match=r"\[2\]"):
            envs.step(ACTIONS)
        envs.reset(options={"reset_mask": np.array([False, False, True, False])})
        for _ in range(10):
            for ours, theirs in zip(envs.step(ACTIONS)[:4], undisturbed.step(ACTIONS)[:4], strict=True):
                assert np.array_equal(ours[[0, 1, 3]], theirs[[0, 1, 3]])


def test_several_failures_in_one_step_are_all_told(backend):
    everyone = functools.partial(SyntheticEnv, faults=(Fault("exception", step=1),))
    with make_vector(backend, everyone, 4, **workers_of(backend)) as envs:
        envs.reset(seed=0)
        with pytest.raises(SyntheticFault) as caught:
            envs.step(ACTIONS)
        failure = caught.value.__cause__
        assert [failure.env_id, *(other.env_id for other in failure.others)] == [0, 1, 2, 3]


def test_an_exception_that_cannot_travel_is_told_as_text(backend):
    with make_vector(backend, AwkwardEnv, 2, **workers_of(backend)) as envs:
        envs.reset(seed=0)
        with pytest.raises(EnvironmentFailure, match="7: no"):
            envs.step(ACTIONS[:2])


def test_exception_in_reset(backend):
    with make_vector(backend, FailsInReset, 4, **workers_of(backend)) as envs:
        with pytest.raises(LookupError, match="not this seed") as caught:
            envs.reset(seed=10, options={"fail": True})
        assert caught.value.__cause__.env_id == 1
        with pytest.raises(gymnasium.error.ResetNeeded, match=r"\[1\]"):
            envs.step(ACTIONS)
        envs.reset(seed=10)
        envs.step(ACTIONS)


def test_exception_in_a_call_breaks_nothing(backend):
    with make_vector(backend, SyntheticEnv, 4, **workers_of(backend)) as envs:
        envs.reset(seed=0)
        with pytest.raises(AttributeError, match="nonsense"):
            envs.get_attr("nonsense")
        envs.step(ACTIONS)


@pytest.mark.parametrize(("kind", "what"), [("nan_reward", "reward"), ("nan_observation", "observation")])
def test_nan_names_environment_and_step(backend, kind, what):
    bad = functools.partial(SyntheticEnv, horizon=20, faults=(Fault(kind, step=4, seed=101),))
    with make_vector(backend, bad, 4, **workers_of(backend)) as envs:
        envs.reset(seed=100)
        for _ in range(3):
            envs.step(ACTIONS)
        with pytest.raises(NonFiniteError, match=rf"environment 1 .*{what} at step 4") as caught:
            envs.step(ACTIONS)
        assert (caught.value.env_id, caught.value.step, caught.value.what) == (1, 4, what)
        envs.reset(options={"reset_mask": np.array([False, True, False, False])})
        envs.step(ACTIONS)
    with make_vector(backend, bad, 4, check_finite=False, **workers_of(backend)) as envs:
        envs.reset(seed=100)
        for _ in range(4):
            values = envs.step(ACTIONS)
        assert np.isnan(values[1][1] if what == "reward" else values[0][1, 2])


def test_memory_growth_ends_as_an_error_not_as_a_hang():
    def greedy():
        import resource

        env = SyntheticEnv(horizon=1000, faults=(Fault("grow", step=2, megabytes=256),))
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 30), size + (1 << 30)))
        return env

    with make_vector("shared_memory", greedy, 2, workers=1) as envs:
        envs.reset(seed=0)
        with pytest.raises(MemoryError):
            step(envs, 100)


MANY_TURNS = 100_000  # on a busy machine a worker may get no time while the others take hundreds of turns


def pump(envs, turns, seen, enough=lambda: False):
    for _ in range(turns):
        if enough():
            return
        *_, infos = envs.recv()
        seen[infos["env_id"]] += 1
        envs.send(np.zeros(len(infos["env_id"]), np.int64), infos["env_id"])


def test_async_failure_is_raised_once_and_the_others_go_on():
    with make_vector("async", RAISES, 4, workers=2, batch_size=2) as envs:
        envs.async_reset(seed=100)
        seen = np.zeros(4, int)
        with pytest.raises(SyntheticFault) as caught:
            pump(envs, MANY_TURNS, seen)
        assert caught.value.__cause__.env_id == 2
        pump(envs, 10, seen)
        assert seen[2] == 3  # reset and two steps
        envs.async_reset(options={"reset_mask": np.array([False, False, True, False])})
        pump(envs, MANY_TURNS, seen, enough=lambda: (seen > 5).all())
        assert (seen > 5).all()


def test_an_info_that_is_no_dictionary_is_named(backend):
    with make_vector(backend, GivesAListAsInfo, 2) as envs:
        envs.reset(seed=0)
        with pytest.raises(TypeError, match=r"an info must be a dictionary, not a list: \[1, 2\]"):
            envs.step(np.zeros(2, np.int64))


def test_an_info_that_is_no_dictionary_is_named_at_the_end_of_an_episode(backend):
    with make_vector(backend, functools.partial(GivesAListAsInfo, horizon=1), 2, autoreset_mode="same_step") as envs:
        envs.reset(seed=0)
        with pytest.raises(TypeError, match=r"an info must be a dictionary, not a list: \[1, 2\]"):
            envs.step(np.zeros(2, np.int64))


def test_an_info_that_is_no_dictionary_is_named_in_reset(backend):
    message = r"an info must be a dictionary, not a list: \[3\]"
    with make_vector(backend, GivesAListAsInfoOfReset, 2) as envs, pytest.raises(TypeError, match=message):
        envs.reset(seed=0)


@pytest.mark.parametrize("backend", ["pipes", "shared_memory", "async"])
def test_an_info_that_cannot_be_unpickled_names_its_worker_and_a_reset_helps(backend):
    with make_vector(backend, GivesAnInfoThatCannotBeUnpickled, 4, workers=2, timeout=PATIENCE) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerError, match=r"worker 0 .*cannot be unpickled here: TypeError") as caught:
            envs.step(ACTIONS)
        assert caught.value.env_ids == (0, 1)
        envs.reset(seed=10)  # who waited for a reply that had been read would get an error
        envs.step(ACTIONS)


@pytest.mark.parametrize("backend", ["pipes", "shared_memory", "async"])
def test_after_many_messages_that_cannot_be_unpickled_a_reset_helps(backend):
    """Several of each worker are on their way when the first is read."""
    with make_vector(backend, TellsWhatCannotBeUnpickled, 40, workers=2, timeout=PATIENCE) as envs:
        for seed in range(3):
            envs.reset(seed=seed)
            envs.step(np.zeros(40, np.int64))
            with pytest.raises(WorkerError, match="cannot be unpickled here"):
                envs.true_state()


@pytest.mark.parametrize("backend", ["pipes", "shared_memory", "async"])
def test_true_states_that_come_in_parts_belong_to_their_environments(backend):
    """40 environments of 2 workers: several messages each, taken while others are written."""
    with make_vector(backend, functools.partial(SyntheticEnv, true_state="object"), 40, workers=2) as envs:
        envs.reset(seed=0)
        for turn in range(1, 4):
            observations, *_ = envs.step(np.zeros(40, np.int64))
            states = envs.true_state()
            assert [state.time for state in states] == [turn] * 40
            assert np.array_equal([state.values[0] for state in states], observations[:, 2])
            assert not states.age.any()
    with make_vector(backend, FailsToTell, 40, workers=2) as envs:
        envs.reset(seed=0)
        with pytest.raises(ZeroDivisionError) as caught:
            envs.true_state()
        assert caught.value.__cause__.env_id == 5
        assert gc.isenabled()
        envs.step(np.zeros(40, np.int64))


@pytest.mark.parametrize("backend", ["pipes", "shared_memory", "async"])
def test_an_info_that_cannot_travel_is_blamed_on_its_environment(backend):
    with make_vector(backend, GivesALockAsInfo, 3, workers=1) as envs:
        envs.reset(seed=0)
        with pytest.raises(TypeError, match="cannot be sent to the parent") as caught:
            envs.step(np.zeros(3, np.int64))
        assert caught.value.__cause__.env_id == 1
        assert not caught.value.__cause__.others


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda seen: seen[0], ValueError),
        (lambda seen: seen[None, :1], ValueError),
        (lambda seen: seen + 1j, TypeError),
    ],
    ids=["scalar", "broadcast", "complex"],
)
def test_an_observation_that_would_be_changed_silently_is_refused_in_step_too(backend, change, error):
    with make_vector(backend, lambda: ObservesInAnotherShape(change), 2) as envs:
        envs.reset(seed=0)
        with pytest.raises(error, match="the observation has"):
            envs.step(np.zeros(2, np.int64))
