"""Backends `pipes` and `shared_memory`: command -> worker processes -> replies; deadlines, deaths, restarts.

`pipes`: actions -> pickled message to each worker -> slice of environments -> pickled arrays -> results.
`shared_memory`: actions -> shared rows, one eventfd signal to each worker -> slice of environments -> shared rows, one
signal back -> results. Infos, failures and untyped true states go over the socket, only when there are any.

Replies are awaited from the last worker to the first: when the last one has answered, the others mostly have too, so
that the parent is woken about once per step however many workers there are.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stockade.errors import VectorError, WorkerDiedError, WorkerTimeoutError
from stockade.vector.local.process import PoolConfig, Worker, WorkerPool
from stockade.vector.outcome import Factory, Outcome, RunConfig
from stockade.vector.workers import WorkerVectorEnv

Replies = list[tuple[int, int, Outcome | None]]


class Command(NamedTuple):
    """A command in flight: the slice's method, the number that replies must carry, and how a worker is given it.

    It is kept, to be given again to a replaced worker.
    """

    kind: str
    sequence: int
    post: Callable[[Worker], None]


class ProcessVectorEnv(WorkerVectorEnv):
    """Environments spread over worker processes; the factory is sent to them by cloudpickle."""

    def __init__(self, factory: Factory, n_envs: int, pool: PoolConfig, config: RunConfig) -> None:
        self.closed = True
        self._sequence = 0
        self._unsettled = False  # a call was interrupted, and replies to it may still come
        self._due: float | None = None  # when the call must be answered
        self._pool = WorkerPool(factory, n_envs, config, pool)
        super().__init__(self._pool.description, n_envs, self._pool.buffers, config, pool.shared)

    @property
    def workers(self) -> int:
        return len(self._pool.workers)

    @property
    def worker_pids(self) -> tuple[int, ...]:
        return tuple(worker.process.pid for worker in self._pool.workers)

    def _step_all(self) -> Outcome:
        sequence = self._next_sequence()
        actions = self._buffers.actions

        def post(worker: Worker) -> None:
            worker.post_step(sequence, actions, self._deadline())

        return self._exchange(Command("step", sequence, post))

    def _command(self, kind: str, parts: Sequence[Any] = (), common: Sequence[Any] = ()) -> Outcome:
        sequence = self._next_sequence()

        def post(worker: Worker) -> None:
            own = (part[worker.spec.rows] for part in parts)
            worker.post_message(sequence, kind, (*own, *common), self._deadline())

        return self._exchange(Command(kind, sequence, post))

    def _exchange(self, command: Command) -> Outcome:
        """Give a command to all workers and gather their replies, in the order of the environments."""
        if self._unsettled:
            self._settle()
        self._unsettled = True
        workers = self._pool.workers
        for worker in tuple(workers):
            self._give(command, worker)
        self._due = self._deadline()
        outcomes: dict[int, Outcome | None] = {}
        for index in reversed(range(len(workers))):
            if outcomes and workers[index].alive and workers[index].replies is not None:
                self._take(command, workers[index], outcomes)  # has mostly replied by now
            while index not in outcomes:
                self._await(command, workers[index], outcomes)
        self._unsettled = False
        merged = Outcome()
        for index in range(len(workers)):
            outcome = outcomes[index]
            if outcome is not None:
                merged.extend(outcome)
        return merged

    def _give(self, command: Command, worker: Worker) -> None:
        """Post a command; a worker that is found dead is replaced."""
        try:
            if not worker.alive:
                raise EOFError
            command.post(worker)
        except (EOFError, TimeoutError) as error:
            self._lose(command, worker, error)

    def _await(self, command: Command, worker: Worker, outcomes: dict[int, Outcome | None]) -> None:
        """Wait for one worker, and deal with what happens meanwhile."""
        if worker.alive and worker.wait(self._due):
            self._take(command, worker, outcomes)
            return
        died = self._pool.died()
        if not worker.alive and worker not in died:
            died.append(worker)
        for dead in died:
            if dead.index not in outcomes:
                self._keep(command, dead, self._last_replies(dead), outcomes)
            if dead.index not in outcomes:
                self._lose(command, dead, EOFError())
        if not died and self._due is not None and time.monotonic() >= self._due:
            self._lose(command, worker, TimeoutError())

    def _take(self, command: Command, worker: Worker, outcomes: dict[int, Outcome | None]) -> None:
        try:
            replies = worker.collect(self._pool.buffers, self._due)
        except (EOFError, TimeoutError) as error:
            self._lose(command, worker, error)
        else:
            self._keep(command, worker, replies, outcomes)

    def _keep(self, command: Command, worker: Worker, replies: Replies, outcomes: dict[int, Outcome | None]) -> None:
        """Replies to earlier, interrupted calls are dropped."""
        for sequence, _, outcome in replies:
            if sequence == command.sequence:
                outcomes[worker.index] = outcome

    def _last_replies(self, dead: Worker) -> Replies:
        """A worker may have answered before it died: then its death matters only for the next call."""
        try:
            return dead.collect(self._pool.buffers, time.monotonic() + 0.1)
        except (EOFError, TimeoutError):
            return []

    def _lose(self, command: Command, worker: Worker, error: EOFError | TimeoutError) -> None:
        """A worker is gone, or has not answered in time: replace it."""
        self._pool.kill(worker)
        late = isinstance(error, TimeoutError)
        self._replace(command, worker, worker.overdue() if late else worker.death())
        self._due = self._deadline()

    def _replace(self, command: Command, dead: Worker, error: WorkerDiedError | WorkerTimeoutError) -> None:
        """Start a worker in the place of a dead one and give it the command, or raise the error.

        If the new one dies too, before it has the command, that is the next loss.
        """
        while True:
            self._count_restart(command.kind, error)
            try:
                command.post(self._pool.replace(dead, self._inheritance(dead.spec)))
            except (EOFError, TimeoutError, WorkerDiedError) as second:
                dead = self._pool.workers[dead.index]
                self._pool.kill(dead)
                error = second if isinstance(second, (WorkerDiedError, WorkerTimeoutError)) else dead.death()
            except VectorError as second:
                raise second from error
            else:
                return

    def _settle(self) -> None:
        """After an interrupted call: wait for the workers that are still busy, and drop their replies."""
        deadline = self._deadline()
        for worker in self._pool.workers:
            while worker.alive and worker.outstanding:
                try:
                    if worker.wait(deadline):
                        worker.collect(self._pool.buffers, deadline)
                        continue
                except (EOFError, TimeoutError):
                    self._pool.kill(worker)
                    continue
                self._pool.died()
                if deadline is not None and time.monotonic() >= deadline:
                    self._pool.kill(worker)
        self._unsettled = False

    def _next_sequence(self) -> int:
        self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        return self._sequence

    def _shut_down(self, timeout: float) -> None:
        del self._buffers
        self._pool.close(timeout)


class PipesVectorEnv(ProcessVectorEnv):
    """Environments in worker processes; everything travels as messages, each worker has a connection of its own."""


class SharedMemoryVectorEnv(ProcessVectorEnv):
    """Environments in worker processes; arrays in anonymous shared memory, one signal each way per worker and step."""
