"""Backend `ray`: commands -> calls to actors -> replies; deadlines, losses, restarts; synchronous or asynchronous.

send(actions, env_id) -> one call to each actor concerned -> its environments, one after the other -> one reply -> recv.
Calls in flight are kept with what was asked, so that a new actor is given again what a lost one owed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from stockade.errors import VectorError, WorkerDiedError, WorkerStartError, WorkerTimeoutError
from stockade.vector.asynchronous import AsyncVectorEnv
from stockade.vector.host import SliceSpec
from stockade.vector.local.channel import from_peer, to_worker
from stockade.vector.outcome import Factory, Outcome, RunConfig
from stockade.vector.ray.cluster import Connection, RayConfig, RemoteWorker, end_all, seconds_until, warn_if_waiting
from stockade.vector.spaces import Buffers, rows_of
from stockade.vector.workers import common_description, divide, overdue

_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 0.0)
"""Seconds between attempts to replace an actor."""


class Call(NamedTuple):
    """A call in flight: number of the worker, the slice's method, and the environments, if only some are concerned."""

    worker: int
    kind: str
    arguments: tuple[Any, ...]
    env_ids: tuple[int, ...] | None = None


class RayVectorEnv(AsyncVectorEnv):
    """Environments in actors, returned as they become ready; the factory is sent to them by cloudpickle."""

    def __init__(self, factory: Factory, n_envs: int, cluster: RayConfig, config: RunConfig) -> None:
        self._open_bookkeeping(n_envs, config.batch_size)
        self._flying: dict[Any, Call] = {}  # by Ray's reference to the reply, in the order of sending
        self._workers: list[RemoteWorker] = []
        pickled = to_worker(factory)
        self._connection = Connection(cluster, n_envs)
        self._ray, self._cluster = self._connection.ray, self._connection.config
        try:
            self._specs = divide(pickled, n_envs, self._connection.workers, config)
            self._workers += [RemoteWorker(self._ray, spec, self._cluster) for spec in self._specs]
            warn_if_waiting(self._ray, self._workers, self._cluster)
            description = common_description([worker.greet() for worker in self._workers], self._specs)
            buffers = Buffers.allocate(description.layout, n_envs)
            super().__init__(description, n_envs, buffers, config, shared=False)
        except BaseException:
            self._shut_down(0.0)
            raise

    @property
    def workers(self) -> int:
        return len(self._workers)

    @property
    def worker_pids(self) -> tuple[int, ...]:
        return tuple(worker.place[0] for worker in self._workers if worker.place is not None)

    # Commands to all environments: see the base class

    def _step_all(self) -> Outcome:
        return self._exchange("step", lambda spec: (rows_of(self._buffers.actions, spec.rows),))

    def _command(self, kind: str, parts: Sequence[Any] = (), common: Sequence[Any] = ()) -> Outcome:
        return self._exchange(kind, lambda spec: (*(part[spec.rows] for part in parts), *common))

    def _exchange(self, kind: str, arguments_of: Callable[[SliceSpec], tuple[Any, ...]]) -> Outcome:
        """Give a command to all actors and gather their replies, in the order of the environments."""
        self._flying.clear()  # of a call that was interrupted: its replies are no longer wanted
        for spec in self._specs:
            self._submit(Call(spec.index, kind, arguments_of(spec)))
        outcomes: dict[int, Outcome] = {}
        deadline = self._deadline()
        while self._flying:
            restarts = self.restarts
            for call, outcome in self._all_replies(deadline):
                outcomes[call.worker] = outcome
            if self.restarts > restarts:
                deadline = self._deadline()
            elif self._flying and deadline is not None and time.monotonic() >= deadline:
                self._give_up_waiting()
                deadline = self._deadline()
        merged = Outcome()
        for index in range(len(self._workers)):
            merged.extend(outcomes[index])
        return merged

    def _submit(self, call: Call) -> None:
        self._flying[self._workers[call.worker].call(call.kind, call.arguments)] = call

    def _all_replies(self, deadline: float | None) -> list[tuple[Call, Outcome]]:
        """The replies to all calls; only those that are there, if an actor was lost or the deadline has passed."""
        flying = list(self._flying)
        try:  # one wait for all of them; Ray ends it at once if one is lost
            replies = self._ray.get(flying, timeout=seconds_until(deadline))
        except self._ray.exceptions.RayError:
            landed, _ = self._ray.wait(flying, num_returns=len(flying), timeout=0)
            return self._replies(landed)
        return [self._take(reference, reply) for reference, reply in zip(flying, replies, strict=True)]

    def _replies(self, landed: list[Any]) -> list[tuple[Call, Outcome]]:
        """The replies to calls that are done. Where an actor was lost, it is replaced."""
        found = []
        for reference in landed:
            if reference not in self._flying:
                continue  # given again to a new actor meanwhile
            try:
                reply = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError:
                raise  # an error of ours, not of the environments: those come as an outcome
            except self._ray.exceptions.RayError as error:
                call = self._flying[reference]
                self._replace(call, self._workers[call.worker].death(error))
            else:
                found.append(self._take(reference, reply))
        return found

    def _take(self, reference: Any, reply: bytes) -> tuple[Call, Outcome]:
        """Arrays go to their rows, the rest is returned."""
        call = self._flying.pop(reference)
        _, outcome, arrays = from_peer(reply)
        if arrays is not None:
            rows: Any = self._specs[call.worker].rows if call.env_ids is None else list(call.env_ids)
            self._buffers.put_results(rows, arrays)
        return call, outcome or Outcome()

    def _give_up_waiting(self) -> None:
        """The deadline has passed: the actors that owe something hang."""
        for index in sorted({call.worker for call in self._flying.values()}):
            owed = next(call for call in self._flying.values() if call.worker == index)
            self._replace(owed, overdue(self._workers[index].name, self._specs[index]))

    def _replace(self, owed: Call, error: WorkerDiedError | WorkerTimeoutError) -> None:
        """Start an actor in the place of a lost one and give it what that one owed, or raise the error."""
        lost = self._workers[owed.worker]
        lost.kill()  # Ray may think of an actor as out of reach only, and it must not come back
        self._count_restart(owed.kind, error)
        spec = replace(lost.spec, inheritance=self._inheritance(lost.spec))
        try:
            self._workers[owed.worker] = self._start_again(spec)
        except VectorError as second:
            raise second from error
        again = {reference: call for reference, call in self._flying.items() if call.worker == owed.worker}
        for reference, call in again.items():
            del self._flying[reference]
            self._submit(call)

    def _start_again(self, spec: SliceSpec) -> RemoteWorker:
        """A new actor, with its environments built.

        Tried a few times: for some seconds after the loss of a node, Ray may still place actors there.
        """
        for pause in _PAUSES:
            worker = RemoteWorker(self._ray, spec, self._cluster)
            try:
                worker.greet()
            except WorkerDiedError:
                worker.kill()
                time.sleep(pause)
            except BaseException:
                worker.kill()
                raise
            else:
                return worker
        raise WorkerStartError(
            f"{worker.name} was to replace one that was lost, but {len(_PAUSES)} actors in a row died while they were "
            f"building their environments",
            spec.index,
            spec.env_ids,
        )

    # The asynchronous interface: see the base class

    def _send_resets(self, env_ids: list[int], seeds: list[int | None], options: dict[str, Any] | None) -> None:
        seed_of = dict(zip(env_ids, seeds, strict=True))
        by_worker = self._by_worker(env_ids)
        # Two calls to each worker, so that it has one to work on while actions are chosen for the other's results.
        halves = [(index, ids[: -(-len(ids) // 2)]) for index, ids in by_worker]
        halves += [(index, ids[-(-len(ids) // 2) :]) for index, ids in by_worker]
        for index, ids in halves:
            if ids:
                places = [i - self._specs[index].first for i in ids]
                self._submit(Call(index, "reset_some", (places, [seed_of[i] for i in ids], options), tuple(ids)))

    def _send_steps(self, env_ids: np.ndarray) -> None:
        for index, chosen in self._by_worker(env_ids.tolist()):
            places = [i - self._specs[index].first for i in chosen]
            own = rows_of(self._buffers.actions, chosen)
            self._submit(Call(index, "step_some", (places, own), tuple(chosen)))

    def _await_ready(self, size: int) -> None:
        deadline = self._deadline()
        self._land(0.0)
        while len(self._ready) < size:
            self._report_failures()
            if self._land(seconds_until(deadline)):
                deadline = self._deadline()
            elif deadline is not None and time.monotonic() >= deadline:
                self._give_up_waiting()
                deadline = self._deadline()

    def _land(self, seconds: float | None) -> bool:
        """Take the replies that are there, waiting at most so long for the first one. True if there were any.

        An actor serves calls in order, but a reply may overtake an earlier one on its way; it is then left until that
        one is here too, so that no environment comes twice before another of its worker comes once.
        """
        if not self._flying:
            return False
        oldest: dict[int, Any] = {}
        for reference, call in self._flying.items():
            oldest.setdefault(call.worker, reference)
        if not self._ray.wait(list(oldest.values()), num_returns=1, timeout=seconds)[0]:
            return False
        flying = list(self._flying)
        there = set(self._ray.wait(flying, num_returns=len(flying), timeout=0)[0])
        landed, overtaken = [], set()
        for reference, call in self._flying.items():
            if reference not in there:
                overtaken.add(call.worker)
            elif call.worker not in overtaken:
                landed.append(reference)
        for call, outcome in self._replies(landed):
            self._accept_replies(call.env_ids or (), outcome)
        return True

    def _by_worker(self, env_ids: list[int]) -> list[tuple[int, list[int]]]:
        """Environments by the worker that has them, both in the order given."""
        found: dict[int, list[int]] = {}
        count, n = len(self._workers), self.num_envs
        for env_id in env_ids:
            found.setdefault(((env_id + 1) * count - 1) // n, []).append(env_id)
        return list(found.items())

    def _forget_all(self) -> None:
        """Drop what is in flight: actors serve calls in order, so what is asked next comes after it."""
        self._flying.clear()
        super()._forget_all()

    def _shut_down(self, timeout: float) -> None:
        self._flying.clear()
        if self._ray.is_initialized():  # the user may have shut Ray down, and all actors with it
            end_all(self._ray, self._workers, timeout)
        self._workers = []
        self._connection.close()
