"""Who trains the orders that the search hands out: a thread of this process, several processes, or a Ray cluster.

submit(task) -> train(task) somewhere -> a thread that follows it -> next_event(): UpdateRow, Saved ... WorkflowResult

Workers get everything with the call and send everything back: on a cluster they need the package and nothing else, no
shared files. A training whose worker or node is lost is handed out again, a few times, from its last checkpoint. This
module does not import Torch: what trains is given as a function.
"""

import contextlib
import math
import multiprocessing
import os
import queue
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import stockade
from stockade.cage2.batch import compile_ahead
from stockade.cage2.config import WorldConfig
from stockade.errors import WorkError
from stockade.startup import WORKER
from stockade.vector.local.channel import from_peer, quickly_pickled, to_worker
from stockade.vector.local.machine import REAP_SECONDS, describe_exit, die_with, ready_to_start, use_one_thread
from stockade.vector.ray.cluster import Connection as RayConnection
from stockade.vector.ray.cluster import RayConfig
from stockade.workflow.config import SearchConfig
from stockade.workflow.store import Saved, Task, UpdateRow, WorkflowResult

MAX_RESTARTS = 2  #: times that a training is handed out again after its worker has died
_END_SECONDS, _RAY_END_SECONDS = 2.0, 10.0

Trainer = Callable[..., Iterator[UpdateRow | Saved | WorkflowResult]]
"""`training.train_workflow` or a stand-in for tests, called with a task and maybe should_stop: gives each update, each
checkpoint and the result, which is left out once `should_stop()`."""


class TrainingFailedError(WorkError):
    """The training raised an exception; the message shows its traceback."""


class WorkerLostError(WorkError):
    """The process of a training has died, maybe more often than is allowed."""


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


def make_engine(config: SearchConfig, train: Trainer) -> "Engine":
    """On this machine a thread for one training at a time, for more a process each."""
    if config.engine == "ray":
        return RayEngine(config.parallel, train, address=config.address, num_cpus=config.num_cpus_per_workflow)
    if config.parallel == 1:
        return Engine(train)
    compile_ahead(WorldConfig(obs=config.obs))
    return ProcessEngine(config.parallel, train)


def failure(number: int, text: str) -> Failed:
    """A training that raised."""
    return Failed(number, TrainingFailedError(f"training {number} failed:\n{text.rstrip()}"))


class Engine:
    """Trains orders beside the search, `capacity` at once: here one, on all cores, in the thread that follows it, so
    that the caller sees events and hears signals at once. Other engines start a worker for each training."""

    _patience = math.inf  #: seconds that `close` waits for trainings to end

    def __init__(self, train: Trainer, capacity: int = 1, threads: int | None = None) -> None:
        self.capacity, self._train, self._threads = capacity, train, threads
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._followers: list[threading.Thread] = []
        self.in_flight: list[int] = []  #: numbers of the trainings without an end so far
        self._closing = threading.Event()

    def submit(self, task: Task) -> None:
        """Begin a training. Never more than `capacity` at once."""
        if len(self.in_flight) == self.capacity:
            raise RuntimeError(f"all {self.capacity} places are taken; wait for a result before the next task")
        task = replace(task, threads=self._threads)
        arguments = task, self._start(task)
        follower = threading.Thread(target=self._follow, args=arguments, name=f"training-{task.number}", daemon=True)
        follower.start()
        self._followers.append(follower)
        self.in_flight.append(task.number)

    def next_event(self, timeout: float) -> Event | None:
        """What happened next; None if nothing did for `timeout` seconds. Events of a training come in order."""
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(event, WorkflowResult | Failed):
            self.in_flight.remove(event.number)
        return event

    def close(self) -> None:
        """End everything that is in flight; what it has sent can still be read. May be called twice."""
        self._closing.set()
        deadline = time.monotonic() + self._patience
        for follower in self._followers:
            while follower.is_alive() and time.monotonic() < deadline:
                self._end_workers()
                follower.join(1.0)

    def _follow(self, task: Task, events: Iterator[Event]) -> None:
        """Pass the events of a training on; hand it out again, or give it up, if its worker is lost."""
        update = lost = 0
        while True:
            try:
                for event in events:
                    if isinstance(event, Saved):
                        task, update = replace(task, state=event.state), event.update
                    self._events.put(event)
                return
            except WorkerLostError as error:
                if self._closing.is_set():
                    return
                if lost == MAX_RESTARTS:
                    text = f"training {task.number} was given up: its worker {error}; {lost} were lost before it"
                    self._events.put(Failed(task.number, WorkerLostError(text)))
                    return
                lost, events = lost + 1, self._start(task)
                self._events.put(Restarted(task.number, f"its worker {error}", update))
            except (Exception, SystemExit):
                self._events.put(failure(task.number, traceback.format_exc()))
                return

    def _start(self, task: Task) -> Iterator[Event]:
        """Hand a task out; its events, or a WorkerLostError that says how its worker ended."""
        return self._train(task, self._closing.is_set)  # the last event is then a checkpoint

    def _end_workers(self) -> None:
        """Whatever they are at."""


def _work(number: int, pickled: bytes, version: str) -> Iterator[bytes]:
    """All events of a training, pickled, in whatever process or machine it runs."""
    if version != stockade.__version__:
        text = f"this node has stockade {stockade.__version__}, the search is of {version}: install the same on all"
        yield quickly_pickled(failure(number, text))
        return
    try:
        train, task = from_peer(pickled)
        for event in train(task):  # no `yield from map`: Ray sends into its generators
            yield quickly_pickled(event)
    except (Exception, SystemExit):
        yield quickly_pickled(failure(number, traceback.format_exc()))


# ------------------------------------------------------------------------------------------------------- in processes
class ProcessEngine(Engine):
    """Several trainings at once, each in a process of its own with one thread. A death is noticed at once."""

    def __init__(self, parallel: int, train: Trainer) -> None:
        super().__init__(train, parallel, threads=1)
        self._modules = __name__, getattr(train, "__module__", __name__)
        self._workers: set[Any] = set()
        self._lock = threading.Lock()  # an exit code can be read once: by `join`, or by the next `start`

    def _start(self, task: Task) -> Iterator[Event]:
        context: Any = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe(duplex=False)
        arguments = theirs, task.number, to_worker((self._train, task)), os.getpid()
        process = context.Process(target=_work_here, args=arguments, name=f"{WORKER}{task.number}", daemon=True)
        try:
            with theirs, self._lock, ready_to_start("forkserver", self._modules):
                process.start()  # after it `theirs` is closed here: a death shows as the end of the connection
        except (EOFError, OSError) as error:  # the fork server was killed, or no process can be had
            ours.close()
            time.sleep(REAP_SECONDS)
            return _lost(f"could not be started ({type(error).__name__}: {error})")
        self._workers.add(process)
        return self._receive(ours, process)

    def _receive(self, connection: Connection, process: Any) -> Iterator[Event]:
        event = None
        with connection, contextlib.suppress(EOFError, OSError):  # the end, maybe in the middle of a message
            while True:
                event = from_peer(connection.recv_bytes())
                yield event
        with self._lock:
            process.join(_END_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        self._workers.remove(process)
        if not isinstance(event, WorkflowResult | Failed):
            raise WorkerLostError(describe_exit(process.exitcode))

    def _end_workers(self) -> None:
        for process in list(self._workers):
            process.kill()


def _lost(text: str) -> Iterator[Event]:
    """The events of a training whose worker never ran."""
    raise WorkerLostError(text)
    yield


def _work_here(connection: Connection, number: int, pickled: bytes, parent: int) -> None:
    """The process's main function: trains, and sends what happens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with(parent, parent_is_lasting=True)  # of the fork server, which ends with the parent
    use_one_thread()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for event in _work(number, pickled, stockade.__version__):
            connection.send_bytes(event)


# ------------------------------------------------------------------------------------------------------------ on Ray
class RayEngine(Engine):
    """Several trainings at once, each as a Ray task with CPUs, and as many threads, of its own; some may have to wait.

    Without an `address` it starts a Ray here, unless one is running in this process or RAY_ADDRESS names one.
    """

    _patience = _RAY_END_SECONDS

    def __init__(self, parallel: int, train: Trainer, *, address: str | None = None, num_cpus: float = 1.0) -> None:
        super().__init__(train, parallel, threads=max(1, int(num_cpus)))
        self._streams: list[Any] = []  # Ray's generators of references to pickled events
        options = {"num_cpus": num_cpus}
        self._connection = RayConnection(RayConfig(workers=parallel, address=address, actor_options=options), parallel)
        self._ray = self._connection.ray
        self._remote = self._ray.remote(_work).options(
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

    def _start(self, task: Task) -> Iterator[Event]:
        stream = self._remote.remote(task.number, to_worker((self._train, task)), stockade.__version__)
        self._streams.append(stream)
        return self._receive(task.number, stream)

    def _receive(self, number: int, stream: Any) -> Iterator[Event]:
        errors = self._ray.exceptions
        try:
            for reference in stream:
                yield from_peer(self._ray.get(reference))
        except errors.RayTaskError as error:  # not of the training, which reports its own failures
            hint = f"are stockade[train,ray] {stockade.__version__} and the same Python installed on every node?"
            yield failure(number, f"{error}\n{hint}")
        except errors.RayError as error:  # of the worker or its node: whatever Ray says of it, the training is gone
            raise WorkerLostError(f"was lost: {' '.join(str(error).split()).rstrip('.')}") from error
        finally:
            self._streams[:] = [other for other in self._streams if other is not stream]

    def _end_workers(self) -> None:
        if self._ray.is_initialized():
            with contextlib.suppress(self._ray.exceptions.RayError):
                for stream in list(self._streams):
                    self._ray.cancel(stream, force=True)

    def close(self) -> None:
        """End all trainings in flight, and Ray if it was started here."""
        super().close()
        self._connection.close()
