"""All worker processes of a vector environment: start together, share memory, notice deaths, replace, close."""

from __future__ import annotations

import contextlib
import selectors
import time
from dataclasses import replace

from stockade.cores import available_cores
from stockade.vector.host import SliceSpec
from stockade.vector.local.channel import from_peer, to_worker
from stockade.vector.local.machine import allow_open_files
from stockade.vector.local.process import PoolConfig, Worker, pollable, ready_to_start
from stockade.vector.local.rings import require_eventfd, ring_bytes
from stockade.vector.local.segment import SharedBlock
from stockade.vector.local.worker import Placement, run_worker
from stockade.vector.outcome import Description, Factory, Inheritance, RunConfig
from stockade.vector.spaces import Buffers
from stockade.vector.workers import common_description, divide, raise_if_failed

_FDS_PER_WORKER = 5
_AWAKE = 0.0005
"""Seconds that a worker with a core of its own stays awake for the next command."""


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
        """Put a new process in the place of one that has ended."""
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
        """Wait until a worker has built its environments."""
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
        """Tell a worker where its arrays are."""
        placement = None
        if self._block is not None:
            rings = self._arrays_size + 2 * self._ring * worker.index
            awake = _AWAKE if len(self.workers) <= available_cores() else 0.0
            placement = Placement(self._block.size, self._n_envs, rings, self._ring, awake)
        try:
            worker.place(self.deaths, self._block, placement)
        except EOFError:
            raise worker.death("It ended before its first command.") from None
