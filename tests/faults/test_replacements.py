"""Workers in the place of dead ones: they may die too, and never see half of what the dead one wrote."""

import functools
import os
import signal
import time
from multiprocessing import forkserver

import numpy as np
import pytest

from stockade.vector import SyntheticEnv, WorkerDiedError, make_vector
from stockade.vector.local.env import ProcessVectorEnv
from tests.vector.environments import DiesAtBirth

PROCESS_BACKENDS = ("pipes", "shared_memory", "async")
ACTIONS = np.zeros(4, np.int64)


def kill(envs, worker):
    os.kill(envs.worker_pids[worker], signal.SIGKILL)
    time.sleep(0.05)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_replacements_that_die_while_building_count_against_the_budget(backend, tmp_path):
    """The workers number 3 and 4 that are started die; the next one lives."""
    factory = functools.partial(DiesAtBirth, str(tmp_path / "count"), (3, 4))
    with make_vector(backend, factory, 2, workers=2, restart=3) as envs:
        envs.reset(seed=0)
        kill(envs, 0)
        *_, truncated, infos = envs.step(ACTIONS[:2])
        assert truncated.tolist() == [True, False]
        assert infos["worker_restarted"].tolist() == [True, False]
        assert envs.restarts == 3
        kill(envs, 1)
        with pytest.raises(WorkerDiedError, match="restart=3 is used up"):
            envs.step(ACTIONS[:2])


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
@pytest.mark.parametrize("moment", ["construction", "replacement"])
def test_a_worker_killed_between_its_greeting_and_its_first_command(backend, moment, monkeypatch):
    place = ProcessVectorEnv._place
    doomed = []

    def kill_and_place(envs, worker):
        if doomed:
            doomed.pop()
            worker.process.kill()
            worker.process.join()
        place(envs, worker)

    monkeypatch.setattr(ProcessVectorEnv, "_place", kill_and_place)
    if moment == "construction":
        doomed.append(True)
        with pytest.raises(WorkerDiedError, match="SIGKILL"):
            make_vector(backend, SyntheticEnv, 4, workers=2).reset(seed=0)
        return
    with make_vector(backend, SyntheticEnv, 4, workers=2, restart=2) as envs:
        envs.reset(seed=0)
        doomed.append(True)
        kill(envs, 1)
        assert envs.step(ACTIONS)[3].tolist() == [False, False, True, True]
        assert envs.restarts == 2


@pytest.mark.parametrize("backend", ["shared_memory", "async"])
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_half_a_row_of_a_killed_worker_is_never_shown(backend, mode):
    with make_vector(backend, SyntheticEnv, 4, workers=2, restart=1, autoreset_mode=mode) as envs:
        envs.reset(seed=0)
        whole, *_ = envs.step(ACTIONS)
        kill(envs, 1)
        envs._buffers.observations[2:, :20] = 7.0  # as far as the worker came
        observations, *_, infos = envs.step(ACTIONS)
        last = observations[2:] if mode == "next_step" else np.stack(infos["final_obs"][2:])
        assert np.array_equal(last, whole[2:])


@pytest.mark.parametrize("error", [EOFError("unexpected EOF"), ConnectionRefusedError("nobody listens")])
def test_a_fork_server_that_is_killed_is_a_worker_that_died(error, monkeypatch):
    """At construction a typed error, later a loss that counts against the budget."""
    connect = forkserver.connect_to_new_process
    failures = [error]
    monkeypatch.setattr(forkserver, "connect_to_new_process", lambda fds: raise_or(failures, connect, fds))
    with pytest.raises(WorkerDiedError, match="the fork server was killed"):
        make_vector("pipes", SyntheticEnv, 4, workers=2)
    with make_vector("pipes", SyntheticEnv, 4, workers=2, restart=2) as envs:
        envs.reset(seed=0)
        failures.append(error)
        kill(envs, 1)
        assert envs.step(ACTIONS)[3].tolist() == [False, False, True, True]
        assert envs.restarts == 2


def raise_or(failures, function, argument):
    if failures:
        raise failures.pop()
    return function(argument)
