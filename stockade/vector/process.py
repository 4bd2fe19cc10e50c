"""One worker process, seen from the parent: start -> post commands -> wait -> collect replies -> bury."""

from __future__ import annotations

import multiprocessing
import os
import select
import selectors
import signal
import socket
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal

from stockade.vector.channel import Channel, from_peer, milliseconds_until, quickly_pickled, to_worker
from stockade.vector.errors import WorkerDiedError, WorkerTimeoutError
from stockade.vector.layout import Buffers
from stockade.vector.memory import SharedBlock
from stockade.vector.outcome import Outcome
from stockade.vector.rings import MESSAGE, PAYLOAD, Ring, new_signals
from stockade.vector.worker import Placement, WorkerSpec, run_worker

StartMethod = Literal["fork", "forkserver", "spawn"]

_DIE_SECONDS = 1.0


@dataclass(frozen=True)
class PoolConfig:
    """How worker processes are run.

    Attributes:
        workers: number of processes.
        timeout: seconds that a call to the environments may take; None waits for ever.
        start_method: of `multiprocessing`.
        daemon: daemonic processes may not have children; pass False if environments start processes of their own.
        shared: whether arrays are in shared memory.
        preload: modules that the fork server imports once, so that workers are forked with them in place.
    """

    workers: int
    timeout: float | None = 300.0
    start_method: StartMethod = "forkserver"
    daemon: bool = True
    shared: bool = True
    preload: tuple[str, ...] = ()


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
        self.commands.post(sequence, code)
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
            f"worker {self.index} (process {self.process.pid}, environments {span(self)}) {_manner(code)}. {note}",
            self.index,
            self.env_ids,
            code,
        )

    def overdue(self, timeout: float | None, note: str = "") -> WorkerTimeoutError:
        """The error for a process that did not answer."""
        return WorkerTimeoutError(
            f"worker {self.index} (environments {span(self)}) did not answer within timeout={timeout} s and was "
            f"killed; pass a larger timeout=, or None to wait for ever, if steps may take that long. {note}",
            self.index,
            self.env_ids,
        )


def pollable(selector: selectors.BaseSelector) -> int:
    """An epoll or kqueue can itself be polled."""
    fd: int = selector.fileno()  # type: ignore[attr-defined]
    return fd


def span(worker: Worker) -> str:
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
