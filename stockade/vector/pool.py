"""All worker processes of a vector environment: start together, share memory, notice deaths, replace, close."""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import forkserver
from typing import Any

import gymnasium

from stockade.cores import available_cores
from stockade.vector.channel import from_peer, to_worker
from stockade.vector.description import Description, Inheritance, SliceConfig
from stockade.vector.errors import WorkerStartError
from stockade.vector.layout import Buffers
from stockade.vector.machine import allow_open_files, single_threaded_children
from stockade.vector.memory import SharedBlock
from stockade.vector.outcome import Failure
from stockade.vector.process import PoolConfig, Worker, pollable, span
from stockade.vector.rings import ring_bytes
from stockade.vector.worker import Placement, WorkerSpec, run_worker

_FDS_PER_WORKER = 5
_AWAKE = 0.0005
"""Seconds that a worker with a core of its own stays awake for the next command."""
_start_lock = threading.Lock()


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
            with _ready_to_start(config):
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
            with _ready_to_start(self.config):
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
            message = f"worker {worker.index} could not build its environments {span(worker)}"
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
        awake = _AWAKE if len(self.workers) <= available_cores() else 0.0
        placement = Placement(self._block.size, self._n_envs, commands, commands + self._ring, self._ring, awake)
        worker.place(self.deaths, self._block, placement)

    def _retire(self, worker: Worker) -> None:
        if worker.alive:
            self.deaths.unregister(worker.process.sentinel)
        worker.kill()
        worker.release()


@contextlib.contextmanager
def _ready_to_start(config: PoolConfig) -> Iterator[None]:
    """Start processes that use one thread, do not import the user's script again, and find our modules loaded.

    Workers get the factory by value (cloudpickle) and do not need the script, so it is hidden from `multiprocessing`
    while they start: no `if __name__ == "__main__"` is needed, and 200 workers do not import Torch 200 times.
    """
    with _start_lock, single_threaded_children():
        if config.start_method == "fork":
            yield
            return
        if config.start_method == "forkserver":  # heeds this only until it runs, which is from the first worker on
            server: Any = forkserver
            modules = [*getattr(server._forkserver, "_preload_modules", []), run_worker.__module__, *config.preload]
            server.set_forkserver_preload(list(dict.fromkeys(modules)))
        script = sys.modules["__main__"]
        sys.modules["__main__"] = types.ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = script
