"""The parent is killed, or interrupted: workers never outlive it, and a Ctrl-C is the parent's alone."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from stockade.vector.local.machine import interrupts_held
from tests.processes import PATIENCE, wait_until, wait_until_gone


def start_parent(backend, start_method, body):
    """A script that makes four slow environments, prints the process ids of two workers, and goes on with `body`."""
    script = textwrap.dedent(f"""
        import functools, sys, time
        import numpy as np
        from stockade.vector import SyntheticEnv, make_vector
        slow = functools.partial(SyntheticEnv, step_seconds=3600.0, work="sleep")
        envs = make_vector({backend!r}, slow, 4, workers=2, start_method={start_method!r})
        envs.reset(seed=0)
        print(*envs.worker_pids, flush=True)
    """) + textwrap.dedent(body)
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    return parent, pids


@pytest.fixture
def starting(tmp_path):
    """A script whose workers are being started, with a fork server that is busy with an import for an hour."""
    (tmp_path / "slow_to_import.py").write_text("import time; print('loading', flush=True); time.sleep(3600)")
    script = textwrap.dedent("""
        import sys
        from stockade.vector import SyntheticEnv, make_vector
        try:
            print("starting", flush=True)
            make_vector("pipes", SyntheticEnv, 2, workers=2, start_method=sys.argv[1], preload=["slow_to_import"])
            print("loading", flush=True)  # unless the fork server has said so
            __import__("time").sleep(3600)
        except KeyboardInterrupt:
            sys.exit("interrupted")
    """)
    started = []

    def start(method):
        path = os.pathsep.join([str(tmp_path), *sys.path])
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", script, method],
                env={**os.environ, "PYTHONPATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        assert started[0].stdout.readline() == "starting\n"
        if method == "forkserver":
            assert started[0].stdout.readline() == "loading\n"
        else:
            wait_until(psutil.Process(started[0].pid).children, "no worker is started")
            time.sleep(0.1)  # in the middle of the workers' imports
        return started[0]

    yield start
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started[0].pid, signal.SIGKILL)
    started[0].communicate()


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_ctrl_c_while_workers_start_is_one_message(starting, start_method):
    parent = starting(start_method)
    os.killpg(parent.pid, signal.SIGINT)
    _, said = parent.communicate(timeout=PATIENCE)
    assert said == "interrupted\n"
    assert parent.returncode == 1


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_nothing_is_left_when_the_parent_is_killed_while_workers_start(starting, start_method):
    parent = starting(start_method)
    family = [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
    assert family
    parent.kill()
    wait_until_gone(family)


@pytest.mark.parametrize(
    ("backend", "start_method", "busy"),
    [
        ("pipes", "fork", True),
        ("shared_memory", "forkserver", True),
        ("async", "spawn", True),
        ("shared_memory", "fork", False),
        ("pipes", "forkserver", False),
    ],
)
def test_workers_end_when_the_parent_is_killed(backend, start_method, busy):
    parent, pids = start_parent(backend, start_method, "envs.step(np.zeros(4, int))" if busy else "time.sleep(3600)")
    time.sleep(0.2)
    mapped = "".join(Path(f"/proc/{pid}/maps").read_text() for pid in (parent.pid, *pids))
    assert "/dev/shm" not in mapped  # nothing that has a name, so nothing that could be left there
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until_gone(pids)


def test_workers_do_not_end_with_the_thread_that_made_them():
    """PR_SET_PDEATHSIG, naively used, kills them when that thread is done."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    from stockade.vector import SyntheticEnv, make_vector

    for method in ("fork", "spawn"):
        with ThreadPoolExecutor(1) as pool:
            envs = pool.submit(make_vector, "pipes", SyntheticEnv, 2, workers=1, start_method=method).result()
        with envs:
            time.sleep(0.2)
            envs.reset(seed=0)
            envs.step(np.zeros(2, np.int64))


def test_the_fork_server_outlives_the_thread_that_needed_it_and_lets_ctrl_c_reach_processes_of_others():
    script = """
        import multiprocessing, subprocess, threading
        from stockade.vector import SyntheticEnv, make_vector
        found = []
        make = lambda: found.append(make_vector("pipes", SyntheticEnv, 2, workers=1, start_method="forkserver"))
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        blocked = ["grep", "SigBlk", "/proc/self/status"]
        other = multiprocessing.get_context("forkserver").Process(target=subprocess.run, args=(blocked,))
        other.start()
        other.join()
        with found[0] as envs:
            envs.reset(seed=0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert not int(done.stdout.split()[1], 16) & 1 << signal.SIGINT - 1


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_ctrl_c_interrupts_the_parent_alone(start_method):
    """SIGINT goes to the whole group, as from a terminal: the parent can still use and close its workers."""
    parent, pids = start_parent(
        "shared_memory",
        start_method,
        """
        try:
            print("ready", flush=True)
            time.sleep(3600)
        except KeyboardInterrupt:
            print(len(envs.get_attr("spec")), flush=True)
            envs.close()
            sys.exit(130)
        """,
    )
    assert parent.stdout.readline() == "ready\n"
    os.killpg(parent.pid, signal.SIGINT)
    answer, _ = parent.communicate(timeout=PATIENCE)
    assert answer.split() == ["4"]
    assert parent.returncode == 130
    wait_until_gone(pids)


def test_ctrl_c_that_another_thread_receives_waits_while_workers_are_forked():
    """Raised inside Python's own hooks around a fork it would be lost."""
    now, lines = threading.Event(), []
    # To itself: a signal to the process may reach a third thread, and that one late.
    sender = threading.Thread(target=lambda: now.wait() and signal.pthread_kill(threading.get_ident(), signal.SIGINT))
    sender.start()  # before SIGINT is blocked, so that it can receive it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGINT)

    def inside():
        with interrupts_held():
            now.set()
            sender.join()
            lines.append("the last line inside")

    with pytest.raises(KeyboardInterrupt):
        inside()
    assert lines
    assert (signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(signal.SIGINT)) == before


def test_ctrl_c_just_before_workers_are_forked_does_not_stay_blocked(monkeypatch):
    """`pthread_sigmask` raises what has arrived, after it has blocked what comes next."""
    mask = signal.pthread_sigmask

    def interrupted(how, signals):
        changed = mask(how, signals)
        if how == signal.SIG_BLOCK and signals:
            raise KeyboardInterrupt
        return changed

    monkeypatch.setattr(signal, "pthread_sigmask", interrupted)
    with pytest.raises(KeyboardInterrupt), interrupts_held():
        pass
    assert signal.SIGINT not in mask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_a_parent_that_forgets_to_close_leaves_nothing(start_method):
    parent, pids = start_parent("async", start_method, "sys.exit(0)")
    parent.communicate(timeout=PATIENCE)
    assert parent.returncode == 0
    wait_until_gone(pids)
