"""One worker process, seen from the parent: start -> post commands -> wait -> collect replies -> release.

Also how all our processes are started (`ready_to_start`) and how their end is described (`describe_exit`).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import selectors
import signal
import socket
import sys
import threading
import types
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import forkserver
from typing import Any, Literal

from stockade.errors import WorkerDiedError, WorkerTimeoutError
from stockade.vector.host import SliceSpec
from stockade.vector.local.channel import Channel, from_peer, milliseconds_until, quickly_pickled, to_worker
from stockade.vector.local.machine import ONE_THREAD, variables_set
from stockade.vector.local.rings import MESSAGE, PAYLOAD, STEP_ALL, Ring, new_signals
from stockade.vector.local.segment import SharedBlock
from stockade.vector.local.worker import Placement, run_worker
from stockade.vector.outcome import Outcome
from stockade.vector.spaces import Buffers, Tree, rows_of
from stockade.vector.workers import overdue

StartMethod = Literal["fork", "forkserver", "spawn"]

_DIE_SECONDS = 1.0
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
    """One worker process, seen from the parent."""

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
            signals = new_signals()
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
        """Give a command with arguments."""
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
        name = f"worker {self.index} (process {self.process.pid}, environments {self.spec.span})"
        return WorkerDiedError(f"{name} {describe_exit(code)}. {note}", self.index, self.spec.env_ids, code)

    def overdue(self, note: str = "") -> WorkerTimeoutError:
        """The error for a process that did not answer."""
        return overdue(f"worker {self.index} (environments {self.spec.span})", self.spec, note)


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
    """How a process ended, for people."""
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
