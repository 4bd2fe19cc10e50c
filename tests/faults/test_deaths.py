"""Workers that die: noticed at once, named, and replaced if `restart=` allows."""

import functools
import os
import signal
import threading
import time

import numpy as np
import pytest

from stockade.vector import AsyncPoolVectorEnv, Fault, SyntheticEnv, WorkerDiedError, make_vector
from tests.processes import PATIENCE

PROCESS_BACKENDS = ("pipes", "shared_memory", "async")
ACTIONS = np.zeros(4, np.int64)


def env_with(*faults: Fault, **options):
    return functools.partial(SyntheticEnv, horizon=20, fixed_length=True, faults=faults, **options)


def step_until_error(envs, steps=50):
    for _ in range(steps):
        envs.step(np.zeros(envs.num_envs, np.int64))


@pytest.mark.parametrize(
    ("backend", "start_method"), [("pipes", "fork"), ("shared_memory", "forkserver"), ("async", "spawn")]
)
def test_kill_during_step_is_noticed_long_before_the_step_is_over(backend, start_method):
    """Else it would be a WorkerTimeoutError, after minutes."""
    slow = functools.partial(SyntheticEnv, step_seconds=10 * PATIENCE, work="sleep")
    with make_vector(backend, slow, 4, workers=2, start_method=start_method, timeout=PATIENCE) as envs:
        envs.reset(seed=0)
        timer = threading.Timer(0.3, lambda: os.kill(envs.worker_pids[0], signal.SIGKILL))
        timer.start()
        with pytest.raises(WorkerDiedError, match=r"worker 0 .*environments 0 to 1.*SIGKILL") as caught:
            envs.step(ACTIONS)
        timer.join()
        assert caught.value.worker == 0
        assert caught.value.env_ids == (0, 1)
        assert caught.value.exitcode == -signal.SIGKILL
        envs.close(terminate=True)  # the other one sleeps


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
@pytest.mark.parametrize(
    ("kind", "exitcode", "words"),
    [("exit", 3, "exit code 3"), ("segfault", -signal.SIGSEGV, "SIGSEGV"), ("kill", -signal.SIGKILL, "out of memory")],
)
def test_death_names_worker_environments_and_manner(backend, kind, exitcode, words):
    with make_vector(backend, env_with(Fault(kind, step=3, seed=102)), 4, workers=2) as envs:
        envs.reset(seed=100)
        with pytest.raises(WorkerDiedError, match=words) as caught:
            step_until_error(envs)
        assert (caught.value.worker, caught.value.env_ids, caught.value.exitcode) == (1, (2, 3), exitcode)
        with pytest.raises(WorkerDiedError):
            envs.step(ACTIONS)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_death_between_calls_is_noticed_by_the_next(backend):
    with make_vector(backend, SyntheticEnv, 4, workers=2) as envs:
        envs.reset(seed=0)
        os.kill(envs.worker_pids[1], signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="worker 1"):
            envs.step(ACTIONS)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_restart_truncates_the_lost_episodes_and_leaves_the_others_alone(backend, mode):
    """Worker 1 dies in its third step. The run goes on; worker 0's numbers are those of an undisturbed run."""
    faulty = env_with(Fault("kill", step=3, seed=102))
    options = {"workers": 2, "autoreset_mode": mode}
    with (
        make_vector(backend, faulty, 4, restart=3, **options) as envs,
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
                    assert infos["final_obs"][2][0] == 2.0  # the last observation that was seen, or the one after
                if mode == "disabled":
                    envs.reset(options={"reset_mask": truncated})
        assert envs.restarts == 1
        assert values[0][2, 0] == values[0][3, 0]
        assert 0 < values[0][2, 0] < 15  # a new episode


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_restarted_environments_do_not_repeat_their_past_but_the_run_is_repeatable(backend):
    def run():
        with make_vector(backend, env_with(Fault("kill", step=3, seed=7)), 1, workers=1, restart=1) as envs:
            envs.reset(seed=7)
            return [envs.step(ACTIONS[:1])[0][0, 2] for _ in range(8)]

    first = run()
    assert first[0] == first[1]
    assert first[-1] != first[0]
    assert run() == first


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_restarts_are_bounded(backend):
    """Every worker dies in its second step: no endless loop."""
    with make_vector(backend, env_with(Fault("exit", step=2)), 2, workers=2, restart=3) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDiedError, match="restart=3 is used up"):
            step_until_error(envs, 100)
        assert envs.restarts == 3


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_death_in_reset_is_tried_again(backend):
    """The environment dies in its first seeded reset; its successor is given the same reset, and dies too."""
    with make_vector(backend, env_with(Fault("kill", step=0, seed=1)), 2, workers=2, restart=2) as envs:
        with pytest.raises(WorkerDiedError, match="used up"):
            envs.reset(seed=0)
        assert envs.restarts == 2


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_death_in_a_call_is_an_error_and_the_next_step_restarts(backend):
    with make_vector(backend, SyntheticEnv, 4, workers=2, restart=1) as envs:
        envs.reset(seed=0)
        os.kill(envs.worker_pids[0], signal.SIGKILL)
        with pytest.raises(WorkerDiedError, match="serving call"):
            envs.get_attr("spec")
        *_, truncated, infos = envs.step(ACTIONS)
        assert truncated.tolist() == infos["worker_restarted"].tolist() == [True, True, False, False]


def pump(envs, enough):
    """The asynchronous way, until everybody came so often; returns how often, and whose episodes were marked.

    On a busy machine a worker may get no time while the others take hundreds of turns.
    """
    seen, marked = np.zeros(envs.num_envs, int), set()
    while seen.min() < enough:
        *_, infos = envs.recv()
        ids = infos["env_id"]
        seen[ids] += 1
        marked |= {int(i) for place, i in enumerate(ids) if infos.get("_worker_restarted", np.zeros(9))[place]}
        envs.send(np.zeros(len(ids), np.int64), ids)
    return seen, marked


def test_async_death_is_an_error_of_recv():
    with make_vector("async", env_with(Fault("kill", step=3, seed=102)), 4, workers=2, batch_size=2) as envs:
        envs.async_reset(seed=100)
        with pytest.raises(WorkerDiedError, match="worker 1"):
            pump(envs, 50)


def test_async_restart_goes_on():
    with make_vector("async", env_with(Fault("kill", step=3, seed=102)), 4, workers=2, batch_size=2, restart=1) as envs:
        assert isinstance(envs, AsyncPoolVectorEnv)
        envs.async_reset(seed=100)
        _, marked = pump(envs, 20)
        assert envs.restarts == 1
        assert marked == {2, 3}


def test_async_death_while_all_results_are_in_hand():
    with make_vector("async", SyntheticEnv, 4, workers=2, batch_size=4, restart=1) as envs:
        envs.async_reset(seed=0)
        *_, infos = envs.recv()
        os.kill(envs.worker_pids[0], signal.SIGKILL)
        time.sleep(0.1)
        envs.send(ACTIONS, infos["env_id"])
        _, _, _, truncated, infos = envs.recv()
        assert {int(i): bool(t) for i, t in zip(infos["env_id"], truncated, strict=True)} == {
            0: True, 1: True, 2: False, 3: False,
        }  # fmt: skip
