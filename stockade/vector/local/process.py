"""Worker processes, seen from the parent. One: start -> post commands -> wait -> collect replies -> release; and all
of a vector environment: start together, share memory, notice deaths, replace, close.

Also how all our processes are started (`ready_to_start`) and how their end is described (`describe_exit`).
"""

import contextlib
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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing import forkserver
from typing import Any, Literal

from stockade.cores import available_cores
from stockade.errors import WorkerDiedError, WorkerTimeoutError
from stockade.vector.host import SliceSpec
from stockade.vector.local.channel import Channel, from_peer, milliseconds_until, quickly_pickled, to_worker
from stockade.vector.local.machine import ONE_THREAD, allow_open_files, variables_set
from stockade.vector.local.shared import MESSAGE, PAYLOAD, STEP_ALL, Ring, SharedBlock, require_eventfd, ring_bytes
from stockade.vector.local.worker import Placement, run_worker
from stockade.vector.outcome import Description, Factory, Inheritance, Outcome, RunConfig
from stockade.vector.spaces import Buffers, Tree, rows_of
from stockade.vector.workers import common_description, divide, overdue, raise_if_failed

StartMethod = Literal["fork", "forkserver", "spawn"]

_DIE_SECONDS = 1.0
_FDS_PER_WORKER = 5
_AWAKE = 0.0005
"""Seconds that a worker with a core of its own stays awake for the next command."""
_start_lock = threading.Lock()


@dataclass(frozen=True)
class PoolConfig:
    """How worker processes are run, see `BackendOptions`; `shared` if arrays are in shared memory."""

    workers: int
    start_method: StartMethod = "forkserver"
    daemon: bool = True
    shared: bool = True
    preload: tuple[str, ...] = ()


class Worker:
    def __init__(self, spec: SliceSpec, config: PoolConfig, inherited: tuple[int, ...]) -> None:
        self.index = spec.index
        self.spec = spec
        self.outstanding = 0  # replies it owes
        self.alive = True  # False once its death has been noticed
        self.commands: Ring | None = None
        self.replies: Ring | None = None
        ours, theirs = socket.socketpair()
        with theirs:
            context: Any = multiprocessing.get_context(config.start_method)
            lasting = config.start_method == "forkserver" or threading.current_thread() is threading.main_thread()
            unwanted = (*inherited, ours.fileno()) if config.start_method == "fork" else ()
            self.process = context.Process(
                target=run_worker,
                args=(theirs, to_worker(spec), os.getpid(), lasting, unwanted),
                name=f"stockade-worker-{spec.index}",
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
            # It sleeps on the first, we poll the second.
            signals = os.eventfd(0, os.EFD_CLOEXEC), os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self.channel.send_fds([block.fd, *signals])
            self.commands, self.replies = placement.open_rings(block.view, *signals)
        self._poll.register(self.reply_fd, select.POLLIN)
        self._poll.register(pollable(deaths), select.POLLIN)

    def post_step(self, sequence: int, actions: Tree, deadline: float | None) -> None:
        """Step all its environments; `actions` are those of all workers."""
        if self.commands is not None:
            self.post(sequence, STEP_ALL)
        else:
            self.post_message(sequence, "step", (rows_of(actions, self.spec.rows),), deadline)

    def post(self, sequence: int, code: int) -> None:
        """Give a command that needs no message. Only with rings."""
        assert self.commands is not None
        self.commands.post(sequence, code)
        self.outstanding += 1

    def post_message(self, sequence: int, kind: str, arguments: tuple[Any, ...], deadline: float | None) -> None:
        if self.commands is None:
            pickled = quickly_pickled if kind == "step" else to_worker
            self.channel.send(pickled((kind, sequence, arguments)), deadline)
            self.outstanding += 1
        else:
            payload = to_worker((kind, arguments))
            self.post(sequence, MESSAGE)
            self.channel.send(payload, deadline)

    def wait(self, deadline: float | None) -> bool:
        """Sleep until this worker has replied (True), or some worker has died or the deadline has passed (False)."""
        events = self._poll.poll(milliseconds_until(deadline))
        return any(fd == self.reply_fd for fd, _ in events)

    def collect(self, buffers: Buffers, deadline: float | None) -> list[tuple[int, int, Outcome | None]]:
        """Replies that have arrived: (sequence, code, outcome if there is one). May be empty; never sleeps for them."""
        if self.replies is None:
            sequence, outcome, results = from_peer(self.channel.receive(deadline))
            self.outstanding -= 1
            if results is not None:
                buffers.put_results(self.spec.rows, results)
            return [(sequence, MESSAGE, outcome)]
        try:
            count = self.replies.wait()
        except BlockingIOError:
            return []
        self.outstanding -= count
        entries = [self.replies.pop()]
        if count == 1 and not entries[0][1] & PAYLOAD:  # mostly
            return [(*entries[0], None)]
        entries += [self.replies.pop() for _ in range(count - 1)]
        outcomes: deque[Outcome] = deque()
        missing = sum(1 for _, code in entries if code & PAYLOAD)
        while len(outcomes) < missing:  # several announcements may have come together, each with a message of its own
            outcomes += from_peer(self.channel.receive(deadline))
        return [
            (sequence, code & ~PAYLOAD, outcomes.popleft() if code & PAYLOAD else None) for sequence, code in entries
        ]

    def kill(self) -> None:
        """End the process: politely, then not."""
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(_DIE_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def release(self) -> None:
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
        self.process.join(_DIE_SECONDS)
        code = self.process.exitcode
        name = f"worker {self.index} (process {self.process.pid}, environments {self.spec.span})"
        return WorkerDiedError(f"{name} {describe_exit(code)}. {note}", self.index, self.spec.env_ids, code)

    def overdue(self, note: str = "") -> WorkerTimeoutError:
        return overdue(f"worker {self.index} (environments {self.spec.span})", self.spec, note)


class WorkerPool:
    """All workers of a vector environment, in the order of their environments; `buffers` has the arrays of all.

    `deaths` is a selector that is readable while the death of a worker has not been dealt with.
    """

    def __init__(self, factory: Factory, n_envs: int, run: RunConfig, config: PoolConfig) -> None:
        self._timeout = run.timeout
        self.config = config
        self.deaths = selectors.DefaultSelector()
        self.workers: list[Worker] = []
        self._block: SharedBlock | None = None
        if config.shared:
            require_eventfd()
        allow_open_files(config.workers * _FDS_PER_WORKER)
        self._specs = divide(to_worker(factory), n_envs, config.workers, run)
        try:
            with self._ready_to_start():
                for spec in self._specs:
                    self.workers.append(self._start(spec))
            descriptions = [self._greet(worker) for worker in self.workers]
            self.description = common_description(descriptions, self._specs)
            self.buffers = self._allocate(n_envs)
            for worker in self.workers:
                self._place(worker)
        except BaseException:
            self.close(timeout=0.0)
            raise

    def replace(self, dead: Worker, inheritance: Inheritance) -> Worker:
        self.kill(dead)
        dead.release()
        with self._ready_to_start():
            worker = self._start(replace(self._specs[dead.index], inheritance=inheritance))
        self.workers[dead.index] = worker
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
                    worker.post_message(0, "close", (), deadline)
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

    def _ready_to_start(self) -> contextlib.AbstractContextManager[None]:
        return ready_to_start(self.config.start_method, (run_worker.__module__, *self.config.preload))

    def _start(self, spec: SliceSpec) -> Worker:
        inherited = [fd for worker in self.workers if worker.index != spec.index for fd in worker.fds]
        if self._block is not None:
            inherited.append(self._block.fd)
        worker = Worker(spec, self.config, (pollable(self.deaths), *inherited))
        self.deaths.register(worker.process.sentinel, selectors.EVENT_READ)
        return worker

    def _greet(self, worker: Worker) -> Description:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        try:
            answer = from_peer(worker.channel.receive(deadline))
        except EOFError:
            raise worker.death("It ended while it was building its environments.") from None
        except TimeoutError:
            raise worker.overdue("It was building its environments.") from None
        raise_if_failed(answer, worker.spec)
        description: Description = answer
        return description

    def _allocate(self, n_envs: int) -> Buffers:
        layout = self.description.layout
        if not self.config.shared:
            return Buffers.allocate(layout, n_envs)
        self._arrays_size = layout.nbytes(n_envs)
        self._ring = ring_bytes(-(-n_envs // self.config.workers))
        self._n_envs = n_envs
        self._block = SharedBlock.allocate(self._arrays_size + 2 * self._ring * self.config.workers)
        buffers = Buffers.allocate(layout, n_envs, self._block.view)
        buffers.age[:] = -1
        return buffers

    def _place(self, worker: Worker) -> None:
        placement = None
        if self._block is not None:
            rings = self._arrays_size + 2 * self._ring * worker.index
            awake = _AWAKE if len(self.workers) <= available_cores() else 0.0
            placement = Placement(self._block.size, self._n_envs, rings, self._ring, awake)
        try:
            worker.place(self.deaths, self._block, placement)
        except EOFError:
            raise worker.death("It ended before its first command.") from None


def pollable(selector: selectors.BaseSelector) -> int:
    """An epoll or kqueue can itself be polled."""
    fd: int = selector.fileno()  # type: ignore[attr-defined]
    return fd


@contextlib.contextmanager
def ready_to_start(start_method: StartMethod, modules: tuple[str, ...]) -> Iterator[None]:
    """Start processes that use one thread, do not import the user's script again, and find our modules loaded.

    Workers get what they run by value (cloudpickle) and do not need the script, so it is hidden from `multiprocessing`
    while they start: no `if __name__ == "__main__"` is needed, and 200 workers do not import Torch 200 times. The fork
    server imports `modules` once, for all, if it does not run yet: that is from the first process on.
    """
    with _start_lock, variables_set(ONE_THREAD):
        if start_method == "fork":
            yield
            return
        if start_method == "forkserver":
            server: Any = forkserver
            known = getattr(server._forkserver, "_preload_modules", [])
            server.set_forkserver_preload(list(dict.fromkeys([*known, *modules])))
        script = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script


def describe_exit(code: int | None) -> str:
    if code is None:
        return "ended, nobody knows how"
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hints = {"SIGKILL": "somebody's kill -9, or the kernel was out of memory", "SIGSEGV": "a fault in native code",
             "SIGBUS": "a fault in native code, or out of memory"}  # fmt: skip
    return f"was ended by {name} ({hints[name]})" if name in hints else f"was ended by {name}"
