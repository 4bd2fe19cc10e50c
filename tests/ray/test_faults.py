"""Actors that are lost, hang or cannot be built: a typed error that names them, or a new actor; no endless wait."""

import functools
import os
import signal
import threading
import time

import numpy as np
import pytest

import stockade
from stockade.vector import (
    Fault,
    NonFiniteError,
    SyntheticEnv,
    UnsupportedFeatureError,
    WorkerDiedError,
    WorkerError,
    WorkerTimeoutError,
    make_vector,
)
from stockade.vector.testing import SyntheticFault
from tests.processes import gone
from tests.ray.conftest import wait_until
from tests.vector.environments import AwkwardEnv, GivesAnInfoThatCannotBeUnpickled, OneFails

pytestmark = pytest.mark.usefixtures("local_ray")

ACTIONS = np.zeros(4, np.int64)
PATIENCE = 15  # seconds: enough for an actor that does not hang, on a busy machine too


def env_with(*faults: Fault, **options):
    return functools.partial(SyntheticEnv, horizon=20, fixed_length=True, faults=faults, **options)


def step(envs, times):
    for _ in range(times):
        envs.step(np.zeros(envs.num_envs, np.int64))


def pump(envs, enough):
    """The asynchronous way, until everybody came so often; returns whose episodes were marked."""
    seen, marked = np.zeros(envs.num_envs, int), set()
    while seen.min() < enough:
        *_, infos = envs.recv()
        ids = infos["env_id"]
        seen[ids] += 1
        marked |= {int(i) for place, i in enumerate(ids) if infos.get("_worker_restarted", np.zeros(9))[place]}
        envs.send(np.zeros(len(ids), np.int64), ids)
    return marked


def kill_later(pid, seconds=0.3):
    timer = threading.Timer(seconds, lambda: os.kill(pid, signal.SIGKILL))
    timer.start()
    return timer


@pytest.mark.essential
def test_kill_during_a_step_is_an_error_that_names_worker_and_environments(local_ray):
    slow = functools.partial(SyntheticEnv, step_seconds=600.0, work="sleep")
    with make_vector("ray", slow, 4, workers=2, timeout=None) as envs:
        envs.reset(seed=0)
        pids = envs.worker_pids
        timer, begin = kill_later(pids[0]), time.monotonic()
        with pytest.raises(WorkerDiedError, match=rf"worker 0 \(process {pids[0]} .*environments 0 to 1\)") as caught:
            envs.step(ACTIONS)
        timer.join()
        assert time.monotonic() - begin < 300.0  # the other's step takes ten minutes
        assert (caught.value.worker, caught.value.env_ids) == (0, (0, 1))
        assert "pass restart=N" in str(caught.value)
        with pytest.raises(WorkerDiedError, match="worker 0"):
            envs.reset()
    wait_until(lambda: gone(pids), "close() must end actors in the middle of a step too")


def test_an_actor_that_somebody_else_kills(local_ray):
    with make_vector("ray", SyntheticEnv, 4, workers=2) as envs:
        envs.reset(seed=0)
        local_ray.kill(envs._workers[1].actor)
        with pytest.raises(WorkerDiedError, match=r"worker 1 .*environments 2 to 3"):
            envs.step(ACTIONS)


@pytest.mark.essential
@pytest.mark.parametrize("mode", ["next_step", pytest.param("same_step", marks=pytest.mark.slow)])
def test_restart_truncates_the_lost_episodes_and_leaves_the_others_alone(mode):
    """Worker 1 dies in its third step. The run goes on; worker 0's numbers are those of an undisturbed run."""
    faulty = env_with(Fault("kill", step=3, seed=102))
    with (
        make_vector("ray", faulty, 4, restart=3, workers=2, autoreset_mode=mode) as envs,
        make_vector("serial", env_with(), 4, autoreset_mode=mode) as undisturbed,
    ):
        envs.reset(seed=100)
        undisturbed.reset(seed=100)
        for step in range(1, 16):
            values, expected = envs.step(ACTIONS), undisturbed.step(ACTIONS)
            for ours, theirs in zip(values[:4], expected[:4], strict=True):
                assert np.array_equal(ours[:2], theirs[:2])
            truncated, infos = values[3], values[4]
            assert truncated[2:].all() == (step == 3)
            if step == 3:
                assert infos["worker_restarted"].tolist() == [False, False, True, True]
                assert not values[1][2:].any()
                if mode == "same_step":
                    assert infos["final_obs"][2][0] == 2.0  # the last observation that was seen
        assert envs.restarts == 1
        assert 0 < values[0][2, 0] == values[0][3, 0] < 15  # a new episode


@pytest.mark.parametrize("mode", ["next_step", pytest.param("same_step", marks=pytest.mark.slow), "disabled"])
def test_restart_of_the_built_in_world(mode):
    """The same for compiled batches; and a run with the same loss is the same."""

    def run():
        record = []
        options = {"horizon": 10, "red": "meander", "autoreset_mode": mode}
        with (
            stockade.make_vec(4, backend="ray", workers=2, restart=1, **options) as envs,
            stockade.make_vec(4, **options) as undisturbed,
        ):
            envs.reset(seed=5)
            undisturbed.reset(seed=5)
            for step in range(1, 10):
                if step == 4:
                    os.kill(envs.worker_pids[1], signal.SIGKILL)
                values, expected = envs.step(ACTIONS), undisturbed.step(ACTIONS)
                for ours, theirs in zip(values[:4], expected[:4], strict=True):
                    assert np.array_equal(ours[:2], theirs[:2])
                if step == 4:
                    assert values[3].tolist() == values[4]["worker_restarted"].tolist() == [False, False, True, True]
                    if mode == "disabled":
                        envs.reset(options={"reset_mask": values[3]})
                else:
                    assert not values[3].any()
                record.append([part.tolist() for part in values[:4]])
            assert envs.true_state().time.tolist()[:2] == [9, 9]
            assert envs.true_state().time.tolist()[2:] == ([4, 4] if mode == "next_step" else [5, 5])
        return record

    first = run()
    assert mode != "next_step" or run() == first


def test_restarts_are_bounded():
    """Every worker dies in its second step: no endless loop."""
    with make_vector("ray", env_with(Fault("exit", step=2)), 2, workers=1, restart=2) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDiedError, match="restart=2 is used up"):
            step(envs, 100)
        assert envs.restarts == 2


def test_death_in_a_call_is_an_error_and_the_next_step_restarts():
    with make_vector("ray", SyntheticEnv, 4, workers=2, restart=1) as envs:
        envs.reset(seed=0)
        os.kill(envs.worker_pids[0], signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="serving call"):
            envs.get_attr("spec")
        *_, truncated, infos = envs.step(ACTIONS)
        assert truncated.tolist() == infos["worker_restarted"].tolist() == [True, True, False, False]


def test_a_hanging_actor_is_killed_at_the_deadline_and_replaced():
    hangs = functools.partial(SyntheticEnv, horizon=20, faults=(Fault("hang", step=2, seed=103),))
    with make_vector("ray", hangs, 4, workers=2, timeout=PATIENCE, restart=1) as envs:
        envs.reset(seed=100)
        envs.step(ACTIONS)
        pid = envs.worker_pids[1]
        *_, truncated, infos = envs.step(ACTIONS)
        assert truncated.tolist() == infos["worker_restarted"].tolist() == [False, False, True, True]
        wait_until(lambda: gone([pid]), "the hanging process lives on")


def test_a_stopped_actor_without_restart_is_an_error():
    """It cannot even hear that it is to end."""
    with make_vector("ray", SyntheticEnv, 4, workers=2, timeout=PATIENCE) as envs:
        envs.reset(seed=0)
        pid = envs.worker_pids[0]
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(WorkerTimeoutError, match=rf"worker 0 .*timeout={PATIENCE}") as caught:
            envs.step(ACTIONS)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.env_ids == (0, 1)
        wait_until(lambda: gone([pid]), "the stopped process lives on")


def test_the_asynchronous_way_goes_on_after_a_loss():
    faulty = env_with(Fault("kill", step=3, seed=102))
    with make_vector("ray", faulty, 4, workers=2, batch_size=2, restart=1) as envs:
        envs.async_reset(seed=100)
        assert pump(envs, 10) == {2, 3}
        assert envs.restarts == 1
        os.kill(envs.worker_pids[0], signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match=r"worker 0 .*used up"):
            pump(envs, 1000)


def test_exceptions_and_impossible_numbers_are_told_and_the_others_stay_usable():
    faults = Fault("exception", step=3, seed=102), Fault("nan_reward", step=5, seed=101)
    with (
        make_vector("ray", functools.partial(SyntheticEnv, faults=faults), 4, workers=2) as envs,
        make_vector("serial", SyntheticEnv, 4) as undisturbed,
    ):
        envs.reset(seed=100)
        undisturbed.reset(seed=100)
        for _ in range(2):
            envs.step(ACTIONS)
        with pytest.raises(SyntheticFault, match="ordered for step 3") as caught:
            envs.step(ACTIONS)
        assert (caught.value.__cause__.env_id, caught.value.__cause__.seed) == (2, 102)
        assert "_suffer" in caught.value.__cause__.remote_traceback
        envs.reset(options={"reset_mask": np.arange(4) == 2})
        envs.step(ACTIONS)
        with pytest.raises(NonFiniteError, match=r"environment 1 .*reward"):
            envs.step(ACTIONS)
        for _ in range(5):
            undisturbed.step(ACTIONS)
        envs.reset(options={"reset_mask": np.arange(4) == 1})
        for ours, theirs in zip(envs.step(ACTIONS)[:4], undisturbed.step(ACTIONS)[:4], strict=True):
            assert np.array_equal(ours[[0, 3]], theirs[[0, 3]])
        with pytest.raises(TypeError, match="cannot be sent to the parent"):
            envs.apply(lambda env: threading.Lock())


def test_construction_that_fails_leaves_no_actor(tmp_path):
    with pytest.raises(ConnectionError, match="third one"):
        make_vector("ray", functools.partial(OneFails, str(tmp_path / "count")), 4, workers=2)
    with pytest.raises(WorkerDiedError, match="building its environments"):
        make_vector("ray", lambda: os._exit(9), 2, workers=1)
    with pytest.raises(WorkerTimeoutError, match="building its environments"):
        make_vector("ray", lambda: time.sleep(60), 2, workers=1, start_timeout=1.0)
    with pytest.raises(UnsupportedFeatureError, match="true_state"):
        make_vector("ray", SyntheticEnv, 2, workers=1, true_states="every_step")
    with pytest.raises(ValueError, match="obs_dtype"):
        stockade.make_vec(2, backend="ray", workers=1, obs_dtype="int32")


def test_an_exception_that_cannot_travel_is_told_as_text():
    from stockade.vector import EnvironmentFailure

    with make_vector("ray", AwkwardEnv, 2, workers=1) as envs:
        envs.reset(seed=0)
        with pytest.raises(EnvironmentFailure, match="7: no"):
            envs.step(ACTIONS[:2])


def test_after_an_interrupted_step_late_replies_are_dropped():
    """Ctrl-C in the middle of a step; then a reset must give the reset's numbers, not the late step's."""
    slow = functools.partial(SyntheticEnv, step_seconds=2.0, work="sleep")
    with make_vector("ray", slow, 2, workers=2) as envs, make_vector("serial", SyntheticEnv, 2) as undisturbed:
        envs.reset(seed=0)

        def interrupt():
            wait_until(lambda: len(envs._flying) == 2, "no step under way")
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        fault = threading.Thread(target=interrupt)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, if the tests run in the background
        try:
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012
                fault.start()
                envs.step(ACTIONS[:2])
        finally:
            fault.join()
            signal.signal(signal.SIGINT, before)
        assert np.array_equal(envs.reset(seed=5)[0], undisturbed.reset(seed=5)[0])
        for one, other in zip(envs.step(ACTIONS[:2])[:4], undisturbed.step(ACTIONS[:2])[:4], strict=True):
            assert np.array_equal(one, other)


@pytest.mark.essential
def test_what_cannot_be_unpickled_names_its_worker_and_true_states_come_in_parts():
    with make_vector("ray", GivesAnInfoThatCannotBeUnpickled, 4, workers=2) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerError, match=r"worker 0 .*cannot be unpickled here: TypeError"):
            envs.step(ACTIONS)
        envs.reset(seed=10)
        envs.step(ACTIONS)
    with make_vector("ray", env_with(true_state="object"), 24, workers=2) as envs:
        envs.reset(seed=0)
        observations, *_ = envs.step(np.zeros(24, np.int64))
        values = [state.values[0] for state in envs.true_state()]
        assert np.array_equal(values, observations[:, 2])
