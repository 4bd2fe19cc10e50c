"""The parent's side of worker processes: start -> post commands -> collect replies -> replace the dead -> close.

A `Worker` is one process and the way to talk to it; a `WorkerPool` is all of them, with the memory they share.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import select
import selectors
import signal
import socket
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from typing import Any, Literal

import gymnasium

from stockade.vector.channel import Channel, from_peer, milliseconds_until, quickly_pickled, to_worker
from stockade.vector.errors import WorkerDiedError, WorkerStartError, WorkerTimeoutError
from stockade.vector.layout import Buffers
from stockade.vector.machine import allow_open_files, single_threaded_children
from stockade.vector.memory import SharedBlock
from stockade.vector.outcome import Failure, Outcome
from stockade.vector.rings import MESSAGE, PAYLOAD, Ring, new_signals, ring_bytes
from stockade.vector.slice import Inheritance, SliceConfig
from stockade.vector.worker import Description, Placement, WorkerSpec, run_worker

StartMethod = Literal["fork", "forkserver", "spawn"]

_FDS_PER_WORKER = 5
_DIE_SECONDS = 1.0
_start_lock = threading.Lock()


@dataclass(frozen=True)
class PoolConfig:
    """How worker processes are run.

    Attributes:
        workers: number of processes.
        timeout: seconds that a call to the environments may take; None waits for ever.
        start_method: of `multiprocessing`.
        daemon: daemonic processes may not have children; pass False if environments start processes of their own.
        shared: whether arrays are in shared memory.
    """

    workers: int
    timeout: float | None = 300.0
    start_method: StartMethod = "forkserver"
    daemon: bool = True
    shared: bool = True


class Worker:
    """One worker process, seen from the parent.

    Attributes:
        index: its number.
        first: its first environment.
        stop: one past its last environment.
        outstanding: replies it owes.
        alive: False once its death has been noticed.
    """

    def __init__(self, index: int, spec: WorkerSpec, config: PoolConfig, inherited: tuple[int, ...]) -> None:
        self.index = index
        self.first, self.stop = spec.first, spec.first + spec.count
        self.outstanding = 0
        self.alive = True
        self.commands: Ring | None = None
        self.replies: Ring | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            context: Any = multiprocessing.get_context(config.start_method)
            self.process = context.Process(
                target=run_worker,
                args=(theirs, to_worker(spec), (*inherited, ours.fileno()) if config.start_method == "fork" else ()),
                name=f"stockade-worker-{index}",
                daemon=config.daemon,
            )
            try:
                self.process.start()
            except BaseException:
                ours.close()
                raise
        self.channel = Channel(ours, patient=False)
        self._poll = select.poll()

    @property
    def env_ids(self) -> tuple[int, ...]:
        """The environments that live in it."""
        return tuple(range(self.first, self.stop))

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors of ours that a forked sibling must not keep."""
        rings = [ring.fd for ring in (self.commands, self.replies) if ring is not None]
        return (self.channel.fd, *rings)

    @property
    def reply_fd(self) -> int:
        """Readable when there is something to collect."""
        return self.channel.fd if self.replies is None else self.replies.fd

    def place(self, deaths: selectors.BaseSelector, block: SharedBlock | None, placement: Placement | None) -> None:
        """Tell the worker where its memory is, and get ready to wait for it."""
        self.channel.send(to_worker(placement))
        if block is not None and placement is not None:
            command_fd, reply_fd = new_signals()
            self.channel.send_fds([block.fd, command_fd, reply_fd])
            self.commands = Ring(block.view[placement.commands : placement.commands + placement.ring], command_fd)
            self.replies = Ring(block.view[placement.replies : placement.replies + placement.ring], reply_fd)
        self._poll.register(self.reply_fd, select.POLLIN)
        self._poll.register(pollable(deaths), select.POLLIN)

    def post(self, sequence: int, code: int) -> None:
        """Give a command that needs no message. Only with rings."""
        assert self.commands is not None
        self.commands.push(sequence, code)
        self.commands.announce(1)
        self.outstanding += 1

    def post_message(self, sequence: int, kind: str, data: Any, deadline: float | None) -> None:
        """Give a command with data."""
        if self.commands is None:
            pickled = quickly_pickled if kind == "step" else to_worker
            self.channel.send(pickled((kind, sequence, data)), deadline)
            self.outstanding += 1
        else:
            payload = to_worker((kind, data))
            self.post(sequence, MESSAGE)
            self.channel.send(payload, deadline)

    def wait(self, deadline: float | None) -> bool:
        """Sleep until this worker has replied (True), or some worker has died or the deadline has passed (False)."""
        events = self._poll.poll(milliseconds_until(deadline))
        return any(fd == self.reply_fd for fd, _ in events)

    def collect(self, buffers: Buffers, deadline: float | None) -> list[tuple[int, int, Outcome | None]]:
        """Replies that have arrived: (sequence, code, outcome if there is one). May be empty; never sleeps for them."""
        if self.replies is None:
            return [self._collect_message(buffers, deadline)]
        try:
            count = self.replies.wait()
        except BlockingIOError:
            return []
        entries = [self.replies.pop() for _ in range(count)]
        self.outstanding -= count
        if count == 1 and not entries[0][1] & PAYLOAD:  # mostly
            return [(*entries[0], None)]
        outcomes: deque[Outcome] = deque()
        missing = sum(1 for _, code in entries if code & PAYLOAD)
        while len(outcomes) < missing:  # several announcements may have come together, each with a message of its own
            outcomes += from_peer(self.channel.receive(deadline))
        return [
            (sequence, code & ~PAYLOAD, outcomes.popleft() if code & PAYLOAD else None) for sequence, code in entries
        ]

    def _collect_message(self, buffers: Buffers, deadline: float | None) -> tuple[int, int, Outcome]:
        sequence, outcome, results = from_peer(self.channel.receive(deadline))
        self.outstanding -= 1
        if results is not None:
            buffers.put_results(self.first, self.stop, results)
        return sequence, MESSAGE, outcome

    def kill(self) -> None:
        """End the process: politely, then not."""
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(_DIE_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def release(self) -> None:
        """Close what belongs to a process that has ended."""
        self.alive = False
        self.process.join()
        self.process.close()
        self.channel.close()
        for ring in (self.commands, self.replies):
            if ring is not None:
                ring.release()
                os.close(ring.fd)
        self.commands = self.replies = None

    def death(self, note: str = "") -> WorkerDiedError:
        """The error for a process that has ended on its own."""
        self.process.join(_DIE_SECONDS)
        code = self.process.exitcode
        return WorkerDiedError(
            f"worker {self.index} (process {self.process.pid}, environments {_span(self)}) {_manner(code)}. {note}",
            self.index,
            self.env_ids,
            code,
        )

    def overdue(self, timeout: float | None, note: str = "") -> WorkerTimeoutError:
        """The error for a process that did not answer."""
        return WorkerTimeoutError(
            f"worker {self.index} (environments {_span(self)}) did not answer within timeout={timeout} s and was "
            f"killed; pass a larger timeout=, or None to wait for ever, if steps may take that long. {note}",
            self.index,
            self.env_ids,
        )


class WorkerPool:
    """All workers of a vector environment.

    Attributes:
        workers: the processes, in the order of their environments.
        description: of the environments.
        buffers: the arrays of all environments.
        deaths: a selector that is readable while the death of a worker has not been dealt with.
    """

    def __init__(
        self,
        factory: Callable[[], gymnasium.Env[Any, Any]],
        n_envs: int,
        slice_config: SliceConfig,
        config: PoolConfig,
    ) -> None:
        self.config = config
        self.deaths = selectors.DefaultSelector()
        self.workers: list[Worker] = []
        self._block: SharedBlock | None = None
        allow_open_files(config.workers * _FDS_PER_WORKER)
        lasting = config.start_method == "forkserver" or threading.current_thread() is threading.main_thread()
        pickled = to_worker(factory)
        bounds = [n_envs * k // config.workers for k in range(config.workers + 1)]
        self._specs = [
            WorkerSpec(pickled, first, stop - first, slice_config, os.getpid(), lasting)
            for first, stop in itertools.pairwise(bounds)
        ]
        try:
            with _ready_to_start(config.start_method):
                for index in range(config.workers):
                    self._start(index, None)
            descriptions = [self._greet(worker) for worker in self.workers]
            self.description = descriptions[0]
            self.description.check(slice_config)
            self._check_equal(descriptions)
            self.buffers = self._allocate(n_envs)
            for worker in self.workers:
                self._place(worker)
        except BaseException:
            self.close(timeout=0.0)
            raise

    def replace(self, dead: Worker, inheritance: Inheritance) -> Worker:
        """Put a new process in the place of one that has ended."""
        self._retire(dead)
        spec = self._specs[dead.index]
        self._specs[dead.index] = replace(spec, inheritance=inheritance)
        try:
            with _ready_to_start(self.config.start_method):
                worker = self._start(dead.index, dead)
        finally:
            self._specs[dead.index] = spec
        self._greet(worker)
        self._place(worker)
        return worker

    def died(self) -> list[Worker]:
        """Workers that have ended on their own since the last look."""
        ready = {key.fd for key, _ in self.deaths.select(0)}
        found = [worker for worker in self.workers if worker.alive and worker.process.sentinel in ready]
        for worker in found:
            self.deaths.unregister(worker.process.sentinel)
            worker.alive = False
        return found

    def kill(self, worker: Worker) -> None:
        """End a worker that does not answer."""
        if worker.alive:
            self.deaths.unregister(worker.process.sentinel)
            worker.alive = False
        worker.kill()

    def close(self, timeout: float) -> None:
        """Ask all workers to close their environments, and kill those that have not ended after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        if timeout > 0:
            for worker in self.workers:
                with contextlib.suppress(EOFError, TimeoutError):
                    worker.post_message(0, "close", None, deadline)
        for worker in self.workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
        late = [worker for worker in self.workers if worker.process.is_alive()]
        for worker in late:
            worker.process.terminate()
        for worker in late:
            worker.kill()
        for worker in self.workers:
            worker.release()
        self.workers = []
        self.deaths.close()
        if self._block is not None:
            if hasattr(self, "buffers"):
                del self.buffers
            self._block.close()

    def _start(self, index: int, dead: Worker | None) -> Worker:
        others = [worker for worker in self.workers if worker is not dead]
        inherited = (pollable(self.deaths), *(fd for worker in others for fd in worker.fds))
        if self._block is not None:
            inherited = (*inherited, self._block.fd)
        worker = Worker(index, self._specs[index], self.config, inherited)
        self.deaths.register(worker.process.sentinel, selectors.EVENT_READ)
        if dead is None:
            self.workers.append(worker)
        else:
            self.workers[index] = worker
        return worker

    def _greet(self, worker: Worker) -> Description:
        """Wait until a worker has built its environments."""
        deadline = None if self.config.timeout is None else time.monotonic() + self.config.timeout
        try:
            answer = from_peer(worker.channel.receive(deadline))
        except EOFError:
            raise worker.death("It ended while it was building its environments.") from None
        except TimeoutError:
            raise worker.overdue(self.config.timeout, "It was building its environments.") from None
        if isinstance(answer, Failure):
            message = f"worker {worker.index} could not build its environments {_span(worker)}"
            error = WorkerStartError(f"{message}:\n{answer.text}", worker.index, worker.env_ids)
            original = answer.original()
            if original is None:
                raise error
            original.add_note(str(error))
            raise original from error
        description: Description = answer
        return description

    def _check_equal(self, descriptions: list[Description]) -> None:
        first = descriptions[0].layout
        for worker, description in zip(self.workers, descriptions, strict=True):
            if description.layout != first:
                raise WorkerStartError(
                    f"the environments of worker {worker.index} have other spaces than those of worker 0: "
                    f"{description.layout} and {first}; the factory must always give the same",
                    worker.index,
                    worker.env_ids,
                )

    def _allocate(self, n_envs: int) -> Buffers:
        layout = self.description.layout
        if not self.config.shared:
            return Buffers.allocate(layout, n_envs)
        self._arrays_size = layout.nbytes(n_envs)
        self._ring = ring_bytes(-(-n_envs // self.config.workers))
        self._n_envs = n_envs
        self._block = SharedBlock.allocate(self._arrays_size + 2 * self._ring * self.config.workers)
        return Buffers.allocate(layout, n_envs, self._block.view)

    def _place(self, worker: Worker) -> None:
        if self._block is None:
            worker.place(self.deaths, None, None)
            return
        commands = self._arrays_size + 2 * self._ring * worker.index
        placement = Placement(self._block.size, self._n_envs, commands, commands + self._ring, self._ring)
        worker.place(self.deaths, self._block, placement)

    def _retire(self, worker: Worker) -> None:
        if worker.alive:
            self.deaths.unregister(worker.process.sentinel)
        worker.kill()
        worker.release()


@contextlib.contextmanager
def _ready_to_start(method: str) -> Iterator[None]:
    """Start processes that use one thread, do not import the user's script again, and find our modules loaded.

    Workers get the factory by value (cloudpickle) and do not need the script, so it is hidden from `multiprocessing`
    while they start: no `if __name__ == "__main__"` is needed, and 200 workers do not import Torch 200 times.
    """
    with _start_lock, single_threaded_children():
        if method == "fork":
            yield
            return
        if method == "forkserver":
            server: Any = forkserver
            modules = list(getattr(server._forkserver, "_preload_modules", []))
            if run_worker.__module__ not in modules:
                server.set_forkserver_preload([*modules, run_worker.__module__])
        script = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script


def pollable(selector: selectors.BaseSelector) -> int:
    """An epoll or kqueue can itself be polled."""
    fd: int = selector.fileno()  # type: ignore[attr-defined]
    return fd


def _span(worker: Worker) -> str:
    return f"{worker.first}" if worker.stop - worker.first == 1 else f"{worker.first} to {worker.stop - 1}"


def _manner(code: int | None) -> str:
    """How a process ended, for people."""
    if code is None:
        return "ended in an unknown manner"
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = {
        "SIGKILL": " (somebody's kill -9, or the kernel was out of memory)",
        "SIGSEGV": " (a fault in native code)",
        "SIGBUS": " (a fault in native code, or out of memory)",
    }
    return f"was ended by {name}{hint.get(name, '')}"
