"""Engines: every event in order, faults really injected, and nothing left behind."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stockade.workflow.engine import (
    Engine,
    Event,
    Failed,
    ProcessEngine,
    Restarted,
    TrainingFailedError,
    WorkerLostError,
    make_engine,
)
from stockade.workflow.orders import ORDERS
from stockade.workflow.store import Saved, Task, UpdateRow, WorkflowResult
from tests.processes import PATIENCE, wait_until, wait_until_gone
from tests.vector.leaks import no_leaks, workers
from tests.workflow.fake import FakeTrainer, changed, result_of, reward_config

__all__ = ["no_leaks"]

CONFIG = reward_config(n_envs=10, total_episodes=1000, max_episodes=100, min_episodes=40)


def task(number: int, **more: object) -> Task:
    order = ORDERS[7 * number]  # all feasible
    return Task(number, order, CONFIG, seed=number, episodes=100, **more)  # type: ignore[arg-type]


def local_engine(parallel: int, train: FakeTrainer) -> Engine:
    return make_engine(changed(CONFIG, parallel=parallel), train)


def play(engine: Engine, tasks: list[Task]) -> list[Event]:
    """Hand out as there is room, until each has ended."""
    events: list[Event] = []
    waiting, open_ = list(tasks), 0
    while waiting or open_:
        while waiting and open_ < engine.capacity:
            engine.submit(waiting.pop(0))
            open_ += 1
        event = engine.next_event(3600)
        assert event is not None, "nothing happened for a minute"
        events.append(event)
        open_ -= isinstance(event, WorkflowResult | Failed)
    return events


def worker_pids() -> list[int]:
    return [process.pid for process in multiprocessing.active_children() if process.pid is not None]


def without_time(result: WorkflowResult) -> tuple[object, ...]:
    return (result.number, result.order, result.value, result.episodes, result.weights["head"].tobytes())


@pytest.mark.parametrize("parallel", [1, 2])
def test_updates_come_in_order_and_before_the_result(parallel: int) -> None:
    engine = local_engine(parallel, FakeTrainer())
    try:
        assert engine.capacity == parallel
        events = play(engine, [task(k) for k in range(5)])
        assert engine.next_event(0.01) is None
    finally:
        engine.close()
    for k in range(5):
        mine = [e for e in events if e.number == k]
        assert [(type(e), e.update) for e in mine[:-1]] == [  # type: ignore[union-attr]
            (UpdateRow, 1), (UpdateRow, 2), (Saved, 2), (UpdateRow, 3), (UpdateRow, 4), (Saved, 4),
        ]  # fmt: skip
        assert isinstance(mine[-1], WorkflowResult)


def test_processes_give_what_the_thread_gives() -> None:
    weights = {"head": np.arange(12, dtype=np.float32).reshape(4, 3)}
    tasks = [task(0), task(1), task(2, weights=weights)]
    answers = []
    for parallel in (1, 3):
        engine = local_engine(parallel, FakeTrainer())
        try:
            events = play(engine, tasks)
        finally:
            engine.close()
        answers.append(sorted(without_time(e) for e in events if isinstance(e, WorkflowResult)))
    assert answers[0] == answers[1]
    assert without_time(result_of(task(2))) not in answers[0]  # weights do matter


def test_a_worker_that_is_killed_is_replaced_and_its_training_continues_from_the_checkpoint(tmp_path: Path) -> None:
    engine = local_engine(2, FakeTrainer(die=(1,), deaths=2, marks=tmp_path))
    try:
        events = play(engine, [task(k) for k in range(4)])
    finally:
        engine.close()
    mine = [e for e in events if e.number == 1]
    places = [i for i, e in enumerate(mine) if isinstance(e, Restarted)]
    assert len(places) == 2
    assert all("SIGKILL" in mine[i].reason for i in places)  # type: ignore[union-attr]
    assert [mine[i].update for i in places] == [2, 2]  # type: ignore[union-attr]
    assert [e.update for e in mine[places[-1] + 1 : -1] if isinstance(e, UpdateRow)] == [3, 4]
    expected = result_of(task(1))
    assert isinstance(mine[-1], WorkflowResult)
    assert without_time(mine[-1]) == without_time(expected)
    assert sum(isinstance(e, WorkflowResult) for e in events) == 4


@pytest.mark.parametrize("start", [1, 3])  # the first worker, and the one that replaces a dead one
def test_a_worker_that_cannot_be_started_because_the_fork_server_was_killed_is_lost(
    start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, starts = forkserver.connect_to_new_process, itertools.count(1)

    def dead_once(fds: list[int]) -> Any:
        if next(starts) == start:
            raise EOFError("unexpected EOF")
        return connect(fds)

    monkeypatch.setattr(forkserver, "connect_to_new_process", dead_once)
    engine = local_engine(2, FakeTrainer(die=(1,), deaths=1, marks=tmp_path))
    try:
        events = play(engine, [task(0), task(1)])
    finally:
        engine.close()
    assert ["could not be started" in e.reason for e in events if isinstance(e, Restarted)].count(True) == 1
    assert {e.number for e in events if isinstance(e, WorkflowResult)} == {0, 1}


def test_a_workflow_that_kills_every_worker_is_given_up_with_a_typed_error(tmp_path: Path) -> None:
    engine = local_engine(2, FakeTrainer(die=(1,), deaths=99, marks=tmp_path))
    try:
        events = play(engine, [task(k) for k in range(3)])
    finally:
        engine.close()
    assert len(list(tmp_path.glob("1-*"))) == 3  # the first, and two more
    (failed,) = (e for e in events if isinstance(e, Failed))
    assert isinstance(failed.error, WorkerLostError)
    assert failed.number == 1
    assert "SIGKILL" in str(failed.error)
    assert {e.number for e in events if isinstance(e, WorkflowResult)} == {0, 2}


def test_a_kill_from_outside_is_noticed_at_once(tmp_path: Path) -> None:
    engine = ProcessEngine(2, FakeTrainer(pause=10 * PATIENCE))
    try:
        engine.submit(task(0))
        engine.submit(task(1))
        victim = worker_pids()[0]
        assert engine.next_event(0.05) is None
        os.kill(victim, signal.SIGKILL)
        event = engine.next_event(PATIENCE)
        assert isinstance(event, Restarted)  # and not when the update would have been done
        assert victim not in worker_pids()
        assert len(worker_pids()) == 2
    finally:
        engine.close()


@pytest.mark.parametrize("parallel", [1, 2])
def test_an_exception_is_reported_with_its_traceback_and_the_others_go_on(parallel: int) -> None:
    engine = local_engine(parallel, FakeTrainer(fail=(1,)))
    try:
        events = play(engine, [task(k) for k in range(3)])
    finally:
        engine.close()
    (failed,) = (e for e in events if isinstance(e, Failed))
    assert isinstance(failed.error, TrainingFailedError)
    assert failed.number == 1
    assert "ZeroDivisionError: a fault in training" in str(failed.error)
    assert "fake.py" in str(failed.error)
    assert {e.number for e in events if isinstance(e, WorkflowResult)} == {0, 2}


@pytest.mark.parametrize("parallel", [1, 2])
def test_closing_ends_what_is_in_flight(parallel: int) -> None:
    engine = local_engine(parallel, FakeTrainer(pause=0.05 if parallel == 1 else 30.0))
    engine.submit(task(0))
    engine.close()
    engine.close()
    assert not workers()


def test_a_training_that_is_stopped_leaves_a_checkpoint_of_its_last_update() -> None:
    engine = local_engine(1, FakeTrainer(pause=0.05))
    engine.submit(task(0))
    first = engine.next_event(3600)
    assert isinstance(first, UpdateRow)
    engine.close()
    events = [first, *iter(lambda: engine.next_event(0), None)]
    assert isinstance(events[-1], Saved)
    assert events[-1].update == max(e.update for e in events if isinstance(e, UpdateRow)) < 4


def test_more_tasks_than_room_are_refused() -> None:
    engine = ProcessEngine(2, FakeTrainer(pause=30.0))
    try:
        engine.submit(task(0))
        engine.submit(task(1))
        with pytest.raises(RuntimeError, match="all 2 places are taken"):
            engine.submit(task(2))
    finally:
        engine.close()


PARENT = """
import sys
from stockade.workflow.engine import ProcessEngine
from tests.workflow.fake import FakeTrainer, reward_config
from tests.workflow.test_engine import task, worker_pids
engine = ProcessEngine(2, FakeTrainer(pause=3600.0))
engine.submit(task(0))
engine.submit(task(1))
{body}
"""


def start_parent(body: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A script without a `__main__` guard that has two workers at work; `body` prints their process ids."""
    code = PARENT.format(body=body)
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    return parent, pids


def test_workers_end_when_the_parent_is_killed() -> None:
    parent, pids = start_parent("print(*worker_pids(), flush=True)\nengine.next_event(3600)")
    time.sleep(0.2)
    parent.kill()
    parent.communicate(timeout=PATIENCE)
    wait_until_gone(pids)


def test_ctrl_c_is_the_parents_alone() -> None:
    body = """
try:
    print(*worker_pids(), flush=True)
    engine.next_event(3600)
except KeyboardInterrupt:
    print(engine.next_event(0.5), flush=True)  # nobody has died of it
    engine.close()
    sys.exit(130)
"""
    parent, pids = start_parent(body)
    wait_until(lambda: all(signal.SIGINT in _ignored(pid) for pid in pids), "the workers have not begun")
    os.killpg(parent.pid, signal.SIGINT)
    answer, _ = parent.communicate(timeout=PATIENCE)
    assert answer.split() == ["None"]
    assert parent.returncode == 130
    wait_until_gone(pids)


def _ignored(pid: int) -> set[int]:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn")), 16)
    return {number for number in range(1, 64) if mask >> (number - 1) & 1}
