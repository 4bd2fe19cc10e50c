"""Backends `pipes` and `shared_memory`, and worker processes, seen from the parent: calls -> workers -> replies.

`pipes`: actions -> pickled message to each worker -> slice of environments -> pickled arrays -> results.
`shared_memory`: actions -> shared rows, one eventfd signal to each worker -> slice of environments -> shared rows, one
signal back -> results. Infos, failures and untyped true states go over the socket, only when there are any.
"""

import contextlib
import functools
import multiprocessing
import os
import select
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stockade.cores import available_cores
from stockade.errors import UnsupportedFeatureError, WorkerDiedError, WorkerError, WorkerTimeoutError
from stockade.startup import WORKER
from stockade.vector.host import SliceSpec
from stockade.vector.local.channel import Channel, from_peer, milliseconds_until, quickly_pickled, to_worker
from stockade.vector.local.machine import (
    REAP_SECONDS,
    StartMethod,
    allow_open_files,
    describe_exit,
    is_lasting,
    ready_to_start,
)
from stockade.vector.local.shared import MESSAGE, PAYLOAD, STEP_ALL, Ring, SharedBlock, ring_bytes
from stockade.vector.local.worker import Placement, run_worker
from stockade.vector.outcome import Outcome
from stockade.vector.spaces import Buffers, Layout
from stockade.vector.workers import STEPS, Call, Replies, Worker, WorkerVectorEnv

_DIE_SECONDS = 1.0
_FDS_PER_WORKER = 5
_AWAKE = 0.0005
"""Seconds that a worker with a core of its own stays awake for the next command."""


@dataclass(frozen=True)
class PoolConfig:
    """How worker processes are run, see `BackendOptions`; `shared` if arrays are in shared memory."""

    workers: int
    start_method: StartMethod = "forkserver"
    daemon: bool = True
    shared: bool = True
    preload: tuple[str, ...] = ()


def _whole(exchange: Callable[..., Any]) -> Callable[..., Any]:
    """A part of the protocol: if Ctrl-C ends it half-way, replies may be lost, so the worker is ended and replaced."""

    @functools.wraps(exchange)
    def guarded(self: Any, *arguments: Any) -> Any:
        try:
            return exchange(self, *arguments)
        except Exception:
            raise
        except BaseException:
            self.torn = True
            self.kill()
            raise

    return guarded


class ProcessWorker(Worker):
    """A worker process. `deaths` is readable while a death was not noticed, `unwanted` what a forked one must close."""

    def __init__(
        self, spec: SliceSpec, config: PoolConfig, deaths: selectors.BaseSelector, unwanted: list[int]
    ) -> None:
        self.spec = spec
        self.outstanding = 0  # replies it owes
        self.commands: Ring | None = None
        self.replies: Ring | None = None
        self._late = False  # killed because it did not answer
        ours, theirs = socket.socketpair()
        with theirs:
            context: Any = multiprocessing.get_context(config.start_method)
            lasting = config.start_method == "forkserver" or is_lasting()
            inherited = (*unwanted, ours.fileno()) if config.start_method == "fork" else ()
            self.process = context.Process(
                target=run_worker,
                args=(theirs, to_worker(spec), os.getpid(), lasting, inherited),
                name=f"{WORKER}{spec.index}",
                daemon=config.daemon,
            )
            try:
                self.process.start()
            except (EOFError, ConnectionError) as error:
                ours.close()
                time.sleep(REAP_SECONDS)
                message = f"{self.name} could not be started: the fork server was killed."
                raise WorkerDiedError(message, spec.index, spec.env_ids) from error
            except BaseException:
                ours.close()
                raise
        self.where = f"process {self.process.pid}, "
        self.channel = Channel(ours)
        self.reply_fd = self.channel.fd  # readable when there is something to collect
        self._poll = select.poll()
        self._poll.register(pollable(deaths), select.POLLIN)
        self._deaths = deaths
        deaths.register(self.process.sentinel, selectors.EVENT_READ)

    @property
    def fds(self) -> list[int]:
        """Descriptors of ours that a forked sibling must not keep."""
        return [self.channel.fd, *(ring.fd for ring in (self.commands, self.replies) if ring is not None)]

    def _answer(self) -> Any:
        timeout = self.spec.config.timeout
        try:
            return from_peer(self.channel.receive(None if timeout is None else time.monotonic() + timeout))
        except EOFError:
            raise self.death("It ended while it was building its environments.") from None
        except TimeoutError:
            raise self.overdue("It was building its environments.") from None

    def place(self, block: SharedBlock | None, placement: Placement | None) -> None:
        """Tell the worker where its memory is, and get ready to wait for it."""
        try:
            self.channel.send(to_worker(placement))
            if block is not None and placement is not None:
                # It sleeps on the first, we poll the second.
                signals = os.eventfd(0, os.EFD_CLOEXEC), os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                self.commands, self.replies = placement.open_rings(block.view, *signals)
                self.channel.send_fds([block.fd, *signals])
                self.reply_fd = self.replies.fd
        except EOFError:
            raise self.death("It ended before its first command.") from None
        self._poll.register(self.reply_fd, select.POLLIN)

    @_whole
    def post_all(self, entries: Sequence[tuple[int, int]]) -> None:
        """Give commands (sequence, code) that need no message. Only with rings."""
        assert self.commands is not None
        for sequence, code in entries:
            self.commands.push(sequence, code)
        self.commands.announce(len(entries))
        self.outstanding += len(entries)

    @_whole
    def post_message(self, sequence: int, kind: str, arguments: tuple[Any, ...], deadline: float | None) -> None:
        if self.commands is None:
            pickled = quickly_pickled if kind == "step" else to_worker
            self.channel.send(pickled((kind, sequence, arguments)), deadline)
            self.outstanding += 1
        else:
            payload = to_worker((kind, arguments))
            self.post_all([(sequence, MESSAGE)])
            self.channel.send(payload, deadline)

    def wait(self, deadline: float | None) -> bool:
        """Sleep until this worker has replied (True); False if some worker has died, the deadline has passed, or it was
        time to look for a Ctrl-C."""
        return self.reply_fd in dict(self._poll.poll(milliseconds_until(deadline)))

    @_whole
    def collect(self, deadline: float | None) -> list[tuple[int, Outcome | None, Any]]:
        """Replies that have arrived: (sequence, outcome and arrays if there are any). Never sleeps for them."""
        if self.replies is None:
            payload = self.channel.receive(deadline)
            self.outstanding -= 1
            return [self.unpickled(payload)]
        try:
            count = self.replies.wait()
        except BlockingIOError:
            return []
        self.outstanding -= count
        entries: list[tuple[int, bytes | None]] = []
        outcomes: list[bytes] = []
        for _ in range(count):
            sequence, code = self.replies.pop()
            if code & PAYLOAD and not outcomes:  # each announcement has a message of its own
                outcomes = from_peer(self.channel.receive(deadline))
            entries.append((sequence, outcomes.pop(0) if code & PAYLOAD else None))
        # All are read before one of them turns out to be unreadable.
        return [(sequence, None if payload is None else self.unpickled(payload), None) for sequence, payload in entries]

    def note_death(self) -> None:
        if self.alive:
            self._deaths.unregister(self.process.sentinel)
            self.alive = False

    def kill(self, late: bool = False) -> None:
        """End the process: politely, then not."""
        self.note_death()
        self._late = late or self._late
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

    def death(self, note: str = "") -> WorkerDiedError | WorkerTimeoutError:
        if self._late:
            return self.overdue(note)
        self.process.join(_DIE_SECONDS)
        spec, code = self.spec, self.process.exitcode
        note = "It was ended, for an interrupt came in the middle of an exchange with it." if self.torn else note
        return WorkerDiedError(f"{self.name} {describe_exit(code)}. {note}", spec.index, spec.env_ids, code)


class ProcessVectorEnv(WorkerVectorEnv):
    """Environments spread over worker processes; the factory is sent to them by cloudpickle."""

    _workers: list[ProcessWorker]

    def _connect(self, how: PoolConfig, n_envs: int) -> int:
        if how.shared and not hasattr(os, "eventfd"):
            raise UnsupportedFeatureError(
                "the backends shared_memory and async need eventfd, which is Linux only: take 'pipes' or 'serial'"
            )
        allow_open_files(how.workers * _FDS_PER_WORKER)
        self._how, self._shares = how, how.shared
        self._sequence = 0  # of the last call
        self._deaths = selectors.DefaultSelector()
        self._block: SharedBlock | None = None
        self._placement: Placement | None = None  # of the first worker
        return how.workers

    def _start(self, specs: list[SliceSpec]) -> None:
        with ready_to_start(self._how.start_method, (run_worker.__module__, *self._how.preload)):
            for spec in specs:
                unwanted = [pollable(self._deaths), *(fd for worker in self._workers for fd in worker.fds)]
                if self._block is not None:
                    unwanted.append(self._block.fd)
                self._workers.append(ProcessWorker(spec, self._how, self._deaths, unwanted))

    def _start_again(self, spec: SliceSpec) -> None:
        self._start([spec])
        worker, dead = self._workers.pop(), self._workers[spec.index]
        self._workers[spec.index] = worker
        dead.release()
        worker.greet()
        self._place(worker)

    def _allocate(self, layout: Layout, n_envs: int) -> Buffers:
        if self._shares:
            size, ring, workers = (
                layout.nbytes(n_envs),
                ring_bytes(-(-n_envs // len(self._workers))),
                len(self._workers),
            )
            self._block = SharedBlock.allocate(size + 2 * ring * workers)
            awake = _AWAKE if workers <= available_cores() else 0.0
            self._placement = Placement(self._block.size, n_envs, size, ring, awake)
        buffers = Buffers.allocate(layout, n_envs, None if self._block is None else self._block.view)
        buffers.age[:] = -1
        for worker in self._workers:
            self._place(worker)
        return buffers

    def _place(self, worker: ProcessWorker) -> None:
        first = self._placement
        placement = None if first is None else replace(first, rings=first.rings + 2 * first.ring * worker.spec.index)
        worker.place(self._block, placement)

    @property
    def worker_pids(self) -> tuple[int, ...]:
        return tuple(worker.process.pid for worker in self._workers)

    def _next_sequence(self) -> int:
        """The number that the reply to the next call must carry."""
        self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        return self._sequence

    def _submit(self, call: Call) -> None:
        sequence = self._next_sequence()
        self._flying[sequence] = call
        worker = self._workers[call.worker]
        if not worker.alive:
            return
        try:
            if worker.commands is not None and call.kind in STEPS:
                code = STEP_ALL if call.env_ids is None else call.env_ids[0] - worker.spec.first
                worker.post_all([(sequence, code)])
            else:
                worker.post_message(sequence, call.kind, self._arguments(call), self._deadline())
        except (EOFError, TimeoutError) as error:
            worker.kill(late=isinstance(error, TimeoutError))

    def _land_all(self, deadline: float | None) -> Replies:
        """From the last worker to the first: when the last one has answered, the others mostly have too.

        So the parent is woken about once per step however many workers there are. Where they have several calls each,
        replies are taken as they come.
        """
        found: Replies = []
        calls = list(self._flying.items())
        for sequence, call in calls if len(calls) > len(self._workers) else reversed(calls):
            worker = self._workers[call.worker]
            if found and worker.replies is not None and worker.alive:
                found += self._take(worker, deadline)  # has mostly replied by now
            while sequence in self._flying:
                if worker.alive and worker.wait(deadline):
                    found += self._take(worker, deadline)
                    continue
                died = self._died()
                for dead in died:
                    found += self._take_last(dead)
                if died or not worker.alive:
                    return found
                if deadline is not None and time.monotonic() >= deadline:
                    break  # the others may have answered
        return found

    def _died(self) -> list[ProcessWorker]:
        """Workers that have ended on their own since the last check."""
        ready = {key.fd for key, _ in self._deaths.select(0)}
        found = [worker for worker in self._workers if worker.alive and worker.process.sentinel in ready]
        for worker in found:
            worker.note_death()
        return found

    def _take_last(self, dead: ProcessWorker) -> Replies:
        """A worker may have answered before it died: then its death matters only for the next call."""
        return self._take(dead, time.monotonic() + 0.1)

    def _take(self, worker: ProcessWorker, deadline: float | None) -> Replies:
        """Replies that have arrived; those to earlier, interrupted calls are dropped."""
        try:
            replies = worker.collect(deadline)
        except (EOFError, TimeoutError) as error:
            worker.kill(late=isinstance(error, TimeoutError))
            return []
        found = []
        for sequence, outcome, arrays in replies:
            call = self._flying.pop(sequence, None)
            if call is not None:
                if arrays is not None:
                    self._buffers.put_results(self._rows(call), arrays)
                found.append((call, outcome))
        return found

    def _drop_calls(self) -> None:
        """Wait for the workers that are still busy, and drop their replies."""
        deadline = self._deadline()
        for worker in self._workers:
            while worker.alive and worker.outstanding:
                if worker.wait(deadline):
                    with contextlib.suppress(WorkerError):  # what cannot be unpickled is dropped too
                        self._take(worker, deadline)
                elif not self._died() and deadline is not None and time.monotonic() >= deadline:
                    worker.kill(late=True)
        self._flying.clear()

    def _shut_down(self, timeout: float) -> None:
        """Ask all workers to close their environments, and kill those that have not ended in time."""
        self.__dict__.pop("_buffers", None)
        deadline = time.monotonic() + timeout
        for worker in self._workers if timeout > 0 else ():
            with contextlib.suppress(EOFError, TimeoutError):
                worker.post_message(0, "close", (), deadline)
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
        for worker in self._workers:
            if worker.process.is_alive():
                worker.process.terminate()  # all of them, before the first is waited for
        for worker in self._workers:
            worker.kill()
            worker.release()
        self._workers = []
        self._deaths.close()
        if self._block is not None:
            self._block.close()


class PipesVectorEnv(ProcessVectorEnv):
    """Environments in worker processes; everything travels as messages, each worker has a connection of its own."""


class SharedMemoryVectorEnv(ProcessVectorEnv):
    """Environments in worker processes; arrays in anonymous shared memory, one signal each way per worker and step."""


def pollable(selector: selectors.BaseSelector) -> int:
    """An epoll or kqueue can itself be polled."""
    fd: int = selector.fileno()  # type: ignore[attr-defined]
    return fd
