"""Who trains the orders that the search hands out: a thread of this process, or several processes.

submit(task) -> train(task, report) somewhere -> next_event(): UpdateRow, Saved ... WorkflowResult | Restarted | Failed

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
from stockade.workflow.records import Saved, Task, UpdateRow, WorkflowResult

MAX_RESTARTS = 2
"""Times that a training is handed out again after its worker has died."""
_END_SECONDS = 2.0

Report = Callable[[UpdateRow | Saved], None]


class Trainer(Protocol):
    """What trains an order: `stockade.workflow.training.train_workflow`, or a stand-in for tests."""

    def __call__(self, task: Task, report: Report, should_stop: Callable[[], bool] = ..., /) -> WorkflowResult:
        """Train to the end and `report` each update and checkpoint; may raise at any time once `should_stop()`."""


class WorkflowError(WorkError):
    """A training could not be brought to its end.

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
    """The process of a training has died more often than is allowed."""


@dataclass(frozen=True)
class Restarted:
    """The worker of a training has died; another one continues from the last checkpoint. Updates after it are void.

    Attributes:
        number: of the training. reason: how the worker died.
        update: the last that counts; 0 if the training begins again.
    """

    number: int
    reason: str
    update: int = 0


@dataclass(frozen=True)
class Failed:
    """A training has ended without a result."""

    number: int
    error: WorkflowError


Event = UpdateRow | Saved | WorkflowResult | Restarted | Failed


class Engine(Protocol):
    """Trains orders beside the search.

    Attributes:
        capacity: tasks that may be in flight at once.
    """

    @property
    def capacity(self) -> int:
        """Tasks that may be in flight at once."""

    def submit(self, task: Task) -> None:
        """Begin a training. Never more than `capacity` at once."""

    def next_event(self, timeout: float | None = None) -> Event | None:
        """What happened next, in order of arrival; None if nothing did for `timeout` seconds.

        The updates and checkpoints of a training come in order and before its end.
        """

    def close(self) -> None:
        """End everything that is in flight; what it has sent can still be read. May be called twice."""


def local_engine(parallel: int, train: Trainer) -> Engine:
    """An engine on this machine: for one training at a time a thread, for more a process each."""
    return ThreadEngine(train) if parallel == 1 else ProcessEngine(parallel, train)


def failure(number: int, text: str) -> Failed:
    """A training that raised."""
    return Failed(number, TrainingFailedError(f"training {number} failed:\n{text.rstrip()}", number))


class Flights:
    """Bookkeeping of an engine whose workers may die: tasks in flight, their last checkpoints, events that arrived."""

    def __init__(self) -> None:
        self.arrived: deque[Event] = deque()
        self._tasks: dict[int, Task] = {}
        self._update: dict[int, int] = {}
        self._lost: dict[int, int] = {}

    def __len__(self) -> int:
        """Tasks in flight."""
        return len(self._tasks)

    def begin(self, task: Task) -> None:
        """A task is handed out."""
        self._tasks[task.number] = task

    def receive(self, event: Event) -> bool:
        """Take an event of a worker; whether it was the last of its training."""
        self.arrived.append(event)
        if isinstance(event, Saved):
            self._tasks[event.number] = replace(self._tasks[event.number], state=event.state)
            self._update[event.number] = event.update
        over = isinstance(event, WorkflowResult | Failed)
        if over:
            del self._tasks[event.number]
        return over

    def lose(self, number: int, manner: str) -> Task | None:
        """A worker is gone: the task to hand out again, from its last checkpoint; None if it is given up."""
        lost = self._lost[number] = self._lost.get(number, 0) + 1
        if lost > MAX_RESTARTS:
            message = f"training {number} was given up: its worker {manner}; {lost - 1} were lost before it"
            self.receive(Failed(number, WorkerLostError(message, number)))
            return None
        self.arrived.append(Restarted(number, f"its worker {manner}", self._update.get(number, 0)))
        return self._tasks[number]


# ---------------------------------------------------------------------------------------------------- in this process
class ThreadEngine:
    """One training at a time, in a thread of this process; all cores are its own.

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
            self._thread.join()  # it has sent its last event, or the caller has more in flight than there is room for
        self._thread = threading.Thread(target=self._run, args=(task,), name=f"training-{task.number}", daemon=True)
        self._thread.start()

    def _run(self, task: Task) -> None:
        try:
            self._events.put(self._train(task, self._events.put, self._stop.is_set))
        except BaseException:
            if not self._stop.is_set():  # else it did as it was asked
                self._events.put(failure(task.number, traceback.format_exc()))

    def next_event(self, timeout: float | None = None) -> Event | None:
        """What happened next; None if nothing did for `timeout` seconds."""
        with contextlib.suppress(queue.Empty):
            return self._events.get(timeout=timeout)
        return None

    def close(self) -> None:
        """Stop the training before its next update; its last checkpoint is among the events."""
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
    """Several trainings at once, each in a process of its own with one thread.

    A worker that dies is noticed at once; another one takes its place and its training, `MAX_RESTARTS` times.
    """

    def __init__(self, parallel: int, train: Trainer) -> None:
        self.capacity = parallel
        self._train: bytes = cloudpickle.dumps(train)
        self._modules = (__name__, getattr(train, "__module__", __name__))
        self._workers: list[_Worker] = []
        self._flights = Flights()
        self._started = 0

    def submit(self, task: Task) -> None:
        """Begin a training, in an idle worker or a new one."""
        task = replace(task, threads=1)
        worker = next((w for w in self._workers if w.task is None), None)
        if worker is None:
            if len(self._workers) == self.capacity:
                raise RuntimeError(f"all {self.capacity} workers are busy; wait for a result before the next task")
            worker = self._new_worker()
        self._flights.begin(task)
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
        while not self._flights.arrived:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            doors = {source: w for w in self._workers for source in (w.connection, w.process.sentinel)}
            ready = wait(list(doors), left)
            for worker in {id(doors[source]): doors[source] for source in ready}.values():
                self._collect(worker)
            if not ready and deadline is not None and time.monotonic() >= deadline:
                return None
        return self._flights.arrived.popleft()

    def _collect(self, worker: _Worker) -> None:
        """Take all that a worker has sent; what it sent before it died counts."""
        if not worker.process.is_alive():
            worker.process.join()  # from here on its end of the connection is closed
        try:
            while worker.connection.poll():
                if self._flights.receive(worker.connection.recv()):
                    worker.task = None
        except (EOFError, OSError):  # the end, maybe in the middle of a message
            self._bury(worker)

    def _bury(self, worker: _Worker) -> None:
        """A worker is gone: hand its task out again, or give it up."""
        worker.process.join(_END_SECONDS)
        manner, task = describe_exit(worker.process.exitcode), worker.task
        self._workers.remove(worker)
        worker.end()
        if task is not None and (again := self._flights.lose(task.number, manner)) is not None:
            self._new_worker().give(again)

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
                event = failure(task.number, traceback.format_exc())
            connection.send(event)
