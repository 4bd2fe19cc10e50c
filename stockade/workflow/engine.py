"""Who trains the orders that the search hands out: a thread of this process, several processes, or a Ray cluster.

submit(task) -> train(task) somewhere -> next_event(): UpdateRow, Saved ... WorkflowResult | Restarted | Failed

Workers get everything with the call and send everything back: on a cluster they need the package and nothing else, no
shared files. A training whose worker or node is lost is handed out again, a few times, from its last checkpoint. This
module does not import Torch: what trains is given as a function.
"""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

import stockade
from stockade.errors import WorkError
from stockade.vector.local.channel import from_peer, quickly_pickled, to_worker
from stockade.vector.local.machine import describe_exit, die_with, ready_to_start, use_one_thread
from stockade.vector.ray.cluster import Connection as RayConnection
from stockade.vector.ray.cluster import RayConfig
from stockade.workflow.config import SearchConfig
from stockade.workflow.records import Saved, Task, UpdateRow, WorkflowResult

MAX_RESTARTS = 2
"""Times that a training is handed out again after its worker has died."""
_END_SECONDS, _RAY_END_SECONDS = 2.0, 10.0

Trainer = Callable[..., Iterator[UpdateRow | Saved | WorkflowResult]]
"""`training.train_workflow` or a stand-in for tests, called with a task and maybe should_stop: gives each update, each
checkpoint and the result, which is left out once `should_stop()`."""


class TrainingFailedError(WorkError):
    """The training raised an exception; the message shows its traceback."""


class WorkerLostError(WorkError):
    """The process of a training has died more often than is allowed."""


@dataclass(frozen=True)
class Restarted:
    """The worker of a training has died; another one continues after `update`, 0 if it begins again; later are void."""

    number: int
    reason: str
    update: int = 0


@dataclass(frozen=True)
class Failed:
    """A training has ended without a result."""

    number: int
    error: TrainingFailedError | WorkerLostError


Event = UpdateRow | Saved | WorkflowResult | Restarted | Failed


class Engine(ABC):
    """Trains orders beside the search, `capacity` at once. A training whose worker dies continues from its last
    checkpoint elsewhere."""

    def __init__(self, capacity: int, train: Trainer, threads: int | None = None) -> None:
        self.capacity, self._train, self._threads = capacity, train, threads
        self._arrived: deque[Event] = deque()
        self._tasks: dict[int, Task] = {}  # in flight, each as it would be handed out again
        self._update: dict[int, int] = {}  # that its state is of
        self._lost: Counter[int] = Counter()

    def submit(self, task: Task) -> None:
        """Begin a training. Never more than `capacity` at once."""
        if len(self._tasks) == self.capacity:
            raise RuntimeError(f"all {self.capacity} places are taken; wait for a result before the next task")
        self._tasks[task.number] = replace(task, threads=self._threads)
        self._start(self._tasks[task.number])

    def next_event(self, timeout: float) -> Event | None:
        """What happened next; None if nothing did for `timeout` seconds. Events of a training come in order."""
        deadline = time.monotonic() + timeout
        while not self._arrived:
            if not self._collect(max(0.0, deadline - time.monotonic())):
                return None
        return self._arrived.popleft()

    @abstractmethod
    def close(self) -> None:
        """End everything that is in flight; what it has sent can still be read. May be called twice."""

    @abstractmethod
    def _start(self, task: Task) -> None:
        """Hand a task out."""

    @abstractmethod
    def _collect(self, timeout: float) -> bool:
        """Wait for news, then `_receive` or `_lose`; False if there were none for so many seconds."""

    def _receive(self, event: Event) -> None:
        self._arrived.append(event)
        if isinstance(event, Saved):
            self._tasks[event.number] = replace(self._tasks[event.number], state=event.state)
            self._update[event.number] = event.update
        elif isinstance(event, WorkflowResult | Failed):
            del self._tasks[event.number]

    def _lose(self, number: int, manner: str) -> None:
        """A worker is gone: hand its task out again, or give it up."""
        before, self._lost[number] = self._lost[number], self._lost[number] + 1
        if before == MAX_RESTARTS:
            message = f"training {number} was given up: its worker {manner}; {before} were lost before it"
            self._receive(Failed(number, WorkerLostError(message)))
        else:
            self._arrived.append(Restarted(number, f"its worker {manner}", self._update.get(number, 0)))
            self._start(self._tasks[number])


def make_engine(config: SearchConfig, train: Trainer) -> Engine:
    """On this machine a thread for one training at a time, for more a process each."""
    if config.engine == "ray":
        return RayEngine(config.parallel, train, address=config.address, num_cpus=config.num_cpus_per_workflow)
    return ThreadEngine(train) if config.parallel == 1 else ProcessEngine(config.parallel, train)


def failure(number: int, text: str) -> Failed:
    """A training that raised."""
    return Failed(number, TrainingFailedError(f"training {number} failed:\n{text.rstrip()}"))


def events_of(number: int, get: Callable[[], tuple[Trainer, Task]], *arguments: Any) -> Iterator[Event]:
    """All of a training, in whatever thread, process or machine it runs."""
    try:
        train, task = get()
        yield from train(task, *arguments)
    except (Exception, SystemExit):
        yield failure(number, traceback.format_exc())


# --------------------------------------------------------------------------------------------------- on this machine
class ThreadEngine(Engine):
    """One training at a time, on all cores; in a thread, so that the caller sees events and hears signals at once."""

    def __init__(self, train: Trainer) -> None:
        super().__init__(1, train)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def _start(self, task: Task) -> None:
        self._thread = threading.Thread(target=self._run, args=(task,), name=f"training-{task.number}", daemon=True)
        self._thread.start()

    def _run(self, task: Task) -> None:
        for event in events_of(task.number, lambda: (self._train, task), self._stop.is_set):
            self._events.put(event)

    def _collect(self, timeout: float) -> bool:
        with contextlib.suppress(queue.Empty):
            self._receive(self._events.get(timeout=timeout))
            return True
        return False

    def close(self) -> None:
        """Stop the training before its next update; its last checkpoint is among the events."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


class ProcessEngine(Engine):
    """Several trainings at once, each in a process of its own with one thread. A death is noticed at once."""

    def __init__(self, parallel: int, train: Trainer) -> None:
        super().__init__(parallel, train, threads=1)
        self._modules = __name__, getattr(train, "__module__", __name__)
        self._workers: dict[Connection, tuple[int, Any]] = {}  # number of the training, and process

    def _start(self, task: Task) -> None:
        context: Any = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe()
        with theirs, ready_to_start("forkserver", self._modules):  # closed, so that a death shows as the end of it
            arguments = theirs, task.number, to_worker((self._train, task)), os.getpid()
            process = context.Process(target=_work, args=arguments, name="stockade-workflow", daemon=True)
            process.start()
        self._workers[ours] = task.number, process

    def _collect(self, timeout: float) -> bool:
        ready: list[Any] = wait(list(self._workers), timeout)
        for connection in ready:
            try:
                self._receive(connection.recv())
            except (EOFError, OSError):  # the end, maybe in the middle of a message
                number, manner = self._bury(connection)
                if number in self._tasks:
                    self._lose(number, manner)
        return bool(ready)

    def _bury(self, connection: Connection) -> tuple[int, str]:
        """Release a worker that has ended, or ends now; its training, and how it ended."""
        number, process = self._workers.pop(connection)
        connection.close()
        process.join(_END_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        manner = describe_exit(process.exitcode)
        process.close()
        return number, manner

    def close(self) -> None:
        """End all workers, whatever they are at."""
        for _, process in self._workers.values():
            process.terminate()  # all first, so that they end side by side
        for connection in list(self._workers):
            self._bury(connection)


def _work(connection: Connection, number: int, pickled: bytes, parent: int) -> None:
    """The process's main function: trains, and sends what happens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with(parent, parent_is_lasting=True)  # of the fork server, which ends with the parent
    use_one_thread()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for event in events_of(number, lambda: from_peer(pickled)):
            connection.send(event)


# ------------------------------------------------------------------------------------------------------------ on Ray
class RayEngine(Engine):
    """Several trainings at once, each as a Ray task with CPUs, and as many threads, of its own; some may have to wait.

    Without an `address` it starts a Ray here, unless one is running in this process or RAY_ADDRESS names one.
    """

    def __init__(self, parallel: int, train: Trainer, *, address: str | None = None, num_cpus: float = 1.0) -> None:
        super().__init__(parallel, train, threads=max(1, int(num_cpus)))
        self._streams: dict[int, Any] = {}  # by number of the training: Ray's generator of references to pickled events
        options = {"num_cpus": num_cpus}
        self._connection = RayConnection(RayConfig(workers=parallel, address=address, actor_options=options), parallel)
        self._ray = self._connection.ray
        self._remote = self._ray.remote(_work_on_ray).options(
            **options, num_returns="streaming", max_retries=0, scheduling_strategy="SPREAD", name="stockade-workflow"
        )
        try:
            self._warn_of_little_room(num_cpus)
        except BaseException:
            self.close()
            raise

    def _warn_of_little_room(self, num_cpus: float) -> None:
        """Tell the user why nothing will happen, or less at once than was asked for; a cluster may still grow."""
        nodes = [node["Resources"].get("CPU", 0.0) for node in self._ray.nodes() if node["Alive"]]
        room = sum(int(cpus / num_cpus) for cpus in nodes)
        if room < self.capacity:
            warnings.warn(
                f"the Ray cluster has room for {room} trainings of {num_cpus:g} CPUs at once (CPUs of its nodes: "
                f"{', '.join(f'{cpus:g}' for cpus in nodes)}), the others of --parallel {self.capacity} wait; change "
                "--num-cpus-per-workflow or --parallel, or add nodes",
                stacklevel=3,
            )

    def _start(self, task: Task) -> None:
        pickled = to_worker((self._train, task))
        self._streams[task.number] = self._remote.remote(stockade.__version__, task.number, pickled)

    def _collect(self, timeout: float) -> bool:
        streams = list(self._streams.values())
        if not streams or not self._ray.wait(streams, timeout=timeout)[0]:
            return False
        ready, _ = self._ray.wait(streams, num_returns=len(streams), timeout=0)  # whatever is there by now
        for number in [n for n, mine in self._streams.items() if any(mine is stream for stream in ready)]:
            self._take(number)
        return True

    def _take(self, number: int) -> None:
        """One event of a training, or the news that there will be none."""
        errors = self._ray.exceptions
        try:
            self._receive(from_peer(self._ray.get(next(self._streams[number]))))
        except errors.RayTaskError as error:  # not of the training, which reports its own failures
            hint = f"are stockade[train,ray] {stockade.__version__} and the same Python installed on every node?"
            self._receive(failure(number, f"{error}\n{hint}"))
        except errors.RayError as error:  # of the worker or its node: whatever Ray says of it, the training is gone
            self._lose(number, f"was lost: {' '.join(str(error).split()).rstrip('.')}")
        if number not in self._tasks:
            del self._streams[number]

    def close(self) -> None:
        """End all trainings in flight, and Ray if it was started here."""
        streams, self._streams = list(self._streams.values()), {}
        if streams and self._ray.is_initialized():
            with contextlib.suppress(self._ray.exceptions.RayError):
                for stream in streams:
                    self._ray.cancel(stream, force=True)
                ends = [stream.completed() for stream in streams]
                self._ray.wait(ends, num_returns=len(ends), timeout=_RAY_END_SECONDS)
        self._connection.close()


def _work_on_ray(version: str, number: int, pickled: bytes) -> Iterator[bytes]:
    """The Ray task, somewhere in the cluster."""
    events = events_of(number, lambda: from_peer(pickled))
    if version != stockade.__version__:
        text = f"this node has stockade {stockade.__version__}, the search is of {version}: install the same on all"
        events = iter([failure(number, text)])
    for event in events:  # no `yield from map`: Ray sends into its generators
        yield quickly_pickled(event)
