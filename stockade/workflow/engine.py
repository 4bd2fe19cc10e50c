"""Who trains the workflows that the search hands out: a thread of this process, or several processes.

submit(task) -> train(task, report) somewhere -> next_event(): UpdateRow ... WorkflowResult | Restarted | Failed

The search knows only the protocol `Engine`, so that other engines (a cluster's) can take the place of these two. This
module does not import Torch: what trains is given as a function.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import cloudpickle

from stockade.errors import WorkError
from stockade.vector.local.machine import die_with, use_one_thread
from stockade.vector.local.process import describe_exit, ready_to_start
from stockade.workflow.records import Task, UpdateRow, WorkflowResult

MAX_RESTARTS = 2
"""Times that a workflow is handed out again after its worker has died."""
_END_SECONDS = 2.0

Report = Callable[[UpdateRow], None]


class Trainer(Protocol):
    """What trains a workflow: `stockade.workflow.training.train_workflow`, or a stand-in for tests."""

    def __call__(self, task: Task, report: Report, should_stop: Callable[[], bool] = ..., /) -> WorkflowResult:
        """Train to the end, telling `report` of each update; may raise at any time once `should_stop()` says so."""


class WorkflowError(WorkError):
    """A workflow could not be trained to its end.

    Attributes:
        number: of the training.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        """For its way from a worker to the parent."""
        return type(self), (self.args[0], self.number)


class TrainingFailedError(WorkflowError):
    """The training raised an exception; the message shows its traceback."""


class WorkerLostError(WorkflowError):
    """The process that trained a workflow has died more often than is put up with."""


@dataclass(frozen=True)
class Restarted:
    """The worker of a training has died, and another one trains it from the beginning: earlier updates are void."""

    number: int
    reason: str


@dataclass(frozen=True)
class Failed:
    """A training has ended without a result."""

    number: int
    error: WorkflowError


Event = UpdateRow | WorkflowResult | Restarted | Failed


class Engine(Protocol):
    """Trains workflows beside the search.

    Attributes:
        capacity: tasks that may be under way at once.
    """

    @property
    def capacity(self) -> int:
        """Tasks that may be under way at once."""

    def submit(self, task: Task) -> None:
        """Begin a training. Never more than `capacity` at once."""

    def next_event(self, timeout: float | None = None) -> Event | None:
        """What happened next, in order of arrival; None if nothing did for `timeout` seconds.

        The updates of a training come in order and before its end; `Restarted` voids those that came before.
        """

    def close(self) -> None:
        """End everything that is under way. May be called twice."""


def local_engine(parallel: int, train: Trainer) -> Engine:
    """An engine on this machine: for one workflow at a time a thread, for more a process each."""
    return ThreadEngine(train) if parallel == 1 else ProcessEngine(parallel, train)


def _failure(number: int, text: str) -> Failed:
    return Failed(number, TrainingFailedError(f"training {number} failed:\n{text.rstrip()}", number))


# ---------------------------------------------------------------------------------------------------- in this process
class ThreadEngine:
    """One workflow at a time, in a thread of this process; all cores are its own.

    A thread, so that the caller sees events as they come and hears signals at once.
    """

    capacity = 1

    def __init__(self, train: Trainer) -> None:
        self._train = train
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def submit(self, task: Task) -> None:
        """Begin a training."""
        if self._thread is not None:
            self._thread.join()  # it has sent its last event, or the caller has more under way than there is room for
        self._thread = threading.Thread(target=self._run, args=(task,), name=f"training-{task.number}", daemon=True)
        self._thread.start()

    def _run(self, task: Task) -> None:
        try:
            self._events.put(self._train(task, self._events.put, self._stop.is_set))
        except BaseException:
            if not self._stop.is_set():  # else it did as it was told
                self._events.put(_failure(task.number, traceback.format_exc()))

    def next_event(self, timeout: float | None = None) -> Event | None:
        """What happened next; None if nothing did for `timeout` seconds."""
        with contextlib.suppress(queue.Empty):
            return self._events.get(timeout=timeout)
        return None

    def close(self) -> None:
        """Stop the training before its next update."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None


# ----------------------------------------------------------------------------------------------- in other processes
class _Worker:
    """One worker process, seen from the parent.

    Attributes:
        task: what it is at, or None.
    """

    def __init__(self, train: bytes, modules: tuple[str, ...], index: int) -> None:
        """`modules` are what it needs to import."""
        self.task: Task | None = None
        context: Any = multiprocessing.get_context("forkserver")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_work, args=(theirs, train, os.getpid()), name=f"stockade-workflow-{index}", daemon=True
        )
        try:
            with ready_to_start("forkserver", modules):
                self.process.start()
        except BaseException:
            self.connection.close()
            raise
        finally:
            theirs.close()  # so that its death shows as the end of the stream

    def give(self, task: Task) -> None:
        """Hand a task out; if the worker is dead already, `wait` will tell soon."""
        self.task = task
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(task)

    def end(self) -> None:
        """End the process and release what belongs to it."""
        self.connection.close()
        self.process.terminate()
        self.process.join(_END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.process.close()


class ProcessEngine:
    """Several workflows at once, each in a process of its own with one thread.

    A worker that dies is noticed at once; another one takes its place and its workflow, `MAX_RESTARTS` times.
    """

    def __init__(self, parallel: int, train: Trainer) -> None:
        self.capacity = parallel
        self._train: bytes = cloudpickle.dumps(train)
        self._modules = (__name__, getattr(train, "__module__", __name__))
        self._workers: list[_Worker] = []
        self._arrived: deque[Event] = deque()
        self._restarts: dict[int, int] = {}
        self._started = 0

    def submit(self, task: Task) -> None:
        """Begin a training, in an idle worker or a new one."""
        task = replace(task, threads=1)
        worker = next((w for w in self._workers if w.task is None), None)
        if worker is None:
            if len(self._workers) == self.capacity:
                raise RuntimeError(f"all {self.capacity} workers are busy; wait for a result before the next task")
            worker = self._new_worker()
        worker.give(task)

    def _new_worker(self) -> _Worker:
        worker = _Worker(self._train, self._modules, self._started)
        self._started += 1
        self._workers.append(worker)
        return worker

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of the workers that are there."""
        return tuple(worker.process.pid for worker in self._workers)

    def next_event(self, timeout: float | None = None) -> Event | None:
        """What happened next; None if nothing did for `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._arrived:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            doors = {source: w for w in self._workers for source in (w.connection, w.process.sentinel)}
            ready = wait(list(doors), left)
            for worker in {id(doors[source]): doors[source] for source in ready}.values():
                self._collect(worker)
            if not ready and deadline is not None and time.monotonic() >= deadline:
                return None
        return self._arrived.popleft()

    def _collect(self, worker: _Worker) -> None:
        """Take all that a worker has sent; what it sent before it died counts."""
        if not worker.process.is_alive():
            worker.process.join()  # from here on its end of the connection is closed
        try:
            while worker.connection.poll():
                event = worker.connection.recv()
                if not isinstance(event, UpdateRow):
                    worker.task = None
                self._arrived.append(event)
        except (EOFError, OSError):  # the end, maybe in the middle of a message
            self._bury(worker)

    def _bury(self, worker: _Worker) -> None:
        """A worker is gone: hand its task out again, or give it up."""
        worker.process.join(_END_SECONDS)
        manner, task = describe_exit(worker.process.exitcode), worker.task
        self._workers.remove(worker)
        worker.end()
        if task is None:
            return
        lost = self._restarts[task.number] = self._restarts.get(task.number, 0) + 1
        if lost > MAX_RESTARTS:
            message = f"training {task.number} was given up: its process {manner}, and {lost - 1} were lost before it"
            self._arrived.append(Failed(task.number, WorkerLostError(message, task.number)))
            return
        self._arrived.append(Restarted(task.number, f"its process {manner}"))
        self._new_worker().give(task)

    def close(self) -> None:
        """End all workers, whatever they are at."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.process.terminate()  # all first, so that they end side by side
        for worker in workers:
            worker.end()


def _work(connection: Connection, pickled: bytes, parent: int) -> None:
    """The process's main function: tasks in, events out, until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with(parent, parent_is_lasting=True)  # of the fork server, which ends with the parent
    use_one_thread()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            task: Task = connection.recv()
            try:
                event: Event = cloudpickle.loads(pickled)(task, connection.send)
            except Exception:
                event = _failure(task.number, traceback.format_exc())
            connection.send(event)
