"""Workers that do not answer: a deadline, then they are killed; a late answer is never taken for the next one."""

import functools
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from stockade.vector import Fault, SyntheticEnv, WorkerTimeoutError, make_vector
from tests.processes import PATIENCE

PROCESS_BACKENDS = ("pipes", "shared_memory", "async")
ACTIONS = np.zeros(4, np.int64)
HANGS = functools.partial(SyntheticEnv, horizon=20, faults=(Fault("hang", step=2, seed=103),))
DEADLINE = 3.0
"""Seconds: a hundred times what workers that do not hang need, on a busy machine too."""


@pytest.fixture(autouse=True, scope="module")
def fork_server():
    """It runs before anything has a deadline, for it loads for seconds."""
    make_vector("pipes", SyntheticEnv, 1, workers=1).close()


@contextmanager
def interrupted(envs) -> Iterator[None]:
    """Ctrl-C while the workers have something to do for the parent, which it does not wake: the signal goes to another
    thread, which is as if it came right before the main one fell asleep."""
    waits, land = threading.Event(), envs._land_all

    def land_all(deadline):
        waits.set()
        return land(deadline)

    def interrupt():
        assert waits.wait(PATIENCE)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    envs._land_all = land_all
    with pytest.raises(KeyboardInterrupt):
        yield
    thread.join()
    del envs._land_all


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_hanging_worker_is_killed_at_the_deadline(backend):
    with make_vector(backend, HANGS, 4, workers=2, timeout=DEADLINE) as envs:
        envs.reset(seed=100)
        envs.step(ACTIONS)
        pid = envs.worker_pids[1]
        with pytest.raises(WorkerTimeoutError, match=rf"worker 1 .*timeout={DEADLINE}") as caught:
            envs.step(ACTIONS)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.env_ids == (2, 3)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_stopped_worker_is_killed_although_it_ignores_the_polite_way():
    with make_vector("shared_memory", SyntheticEnv, 4, workers=2, timeout=DEADLINE) as envs:
        envs.reset(seed=0)
        os.kill(envs.worker_pids[0], signal.SIGSTOP)
        with pytest.raises(WorkerTimeoutError, match="worker 0"):
            envs.step(ACTIONS)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_restart_replaces_a_hanging_worker(backend):
    with make_vector(backend, HANGS, 4, workers=2, timeout=DEADLINE, restart=1) as envs:
        envs.reset(seed=100)
        envs.step(ACTIONS)
        *_, truncated, infos = envs.step(ACTIONS)
        assert truncated.tolist() == [False, False, True, True]
        assert infos["worker_restarted"].tolist() == [False, False, True, True]
        for _ in range(5):
            envs.step(ACTIONS)


def test_async_recv_keeps_the_deadline():
    with make_vector("async", HANGS, 4, workers=2, batch_size=4, timeout=DEADLINE) as envs:
        envs.async_reset(seed=100)
        for _ in range(2):
            *_, infos = envs.recv()
            envs.send(ACTIONS, infos["env_id"])
        with pytest.raises(WorkerTimeoutError, match="worker 1"):
            envs.recv()


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_after_an_interrupted_step_late_replies_are_dropped(backend):
    """Ctrl-C in the middle of a step; then a reset must give the reset's numbers, not the late step's."""
    slow = functools.partial(SyntheticEnv, step_seconds=0.4, work="sleep")
    with make_vector(backend, slow, 4, workers=2) as envs, make_vector("serial", slow, 4) as undisturbed:
        envs.reset(seed=0)
        with interrupted(envs):
            envs.step(ACTIONS)
        ours, _ = envs.reset(seed=5)
        theirs, _ = undisturbed.reset(seed=5)
        assert np.array_equal(ours, theirs)
        for one, other in zip(envs.step(ACTIONS)[:4], undisturbed.step(ACTIONS)[:4], strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_close_does_not_wait_for_a_hanging_worker(backend):
    envs = make_vector(backend, HANGS, 4, workers=2, timeout=None)
    envs.reset(seed=100)
    envs.step(ACTIONS)
    with interrupted(envs):
        envs.step(ACTIONS)
    envs.close(timeout=0.5)  # else this would never return
