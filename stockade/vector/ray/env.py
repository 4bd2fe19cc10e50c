"""Backend `ray`: calls to workers -> actors -> replies; synchronous or asynchronous.

send(actions, env_id) -> one call to each actor concerned -> its environments, one after the other -> one reply -> recv.
"""

import time
from typing import Any

from stockade.errors import WorkerDiedError, WorkerStartError
from stockade.vector.asynchronous import AsyncVectorEnv
from stockade.vector.host import SliceSpec
from stockade.vector.outcome import Outcome
from stockade.vector.ray.cluster import Connection, RayConfig, RemoteWorker, end_all, warn_if_waiting
from stockade.vector.workers import Call, Replies

_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 0.0)
"""Seconds between attempts to replace an actor."""


class RayVectorEnv(AsyncVectorEnv):
    """Environments in actors, returned as they become ready; the factory is sent to them by cloudpickle."""

    _workers: list[RemoteWorker]

    def _connect(self, how: RayConfig, n_envs: int) -> int:
        self._connection = Connection(how, n_envs)
        self._ray = self._connection.ray
        return self._connection.workers

    def _start(self, specs: list[SliceSpec]) -> None:
        self._workers += [RemoteWorker(self._connection, spec) for spec in specs]
        warn_if_waiting(self._connection, self._workers)

    def _start_again(self, spec: SliceSpec) -> None:
        """Tried a few times: for some seconds after the loss of a node, Ray may still place actors there."""
        for pause in _PAUSES:
            worker = RemoteWorker(self._connection, spec)
            try:
                worker.greet()
            except WorkerDiedError:
                worker.kill()
                time.sleep(pause)
            except BaseException:
                worker.kill()
                raise
            else:
                self._workers[spec.index] = worker
                return
        raise WorkerStartError(
            f"{worker.name} was to replace one that was lost, but {len(_PAUSES)} actors in a row died while they were "
            f"building their environments",
            spec.index,
            spec.env_ids,
        )

    @property
    def worker_pids(self) -> tuple[int, ...]:
        return tuple(worker.pid for worker in self._workers if worker.pid is not None)

    def _submit(self, call: Call) -> None:
        self._flying[self._workers[call.worker].call(call.kind, self._arguments(call))] = call

    def _land_all(self, deadline: float | None) -> Replies:
        flying = list(self._flying)
        seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:  # one wait for all of them; Ray ends it at once if one is lost
            replies = self._ray.get(flying, timeout=seconds)
        except self._ray.exceptions.RayError:
            landed, _ = self._ray.wait(flying, num_returns=len(flying), timeout=0)
            return self._take_all(landed)
        return [self._take(reference, reply) for reference, reply in zip(flying, replies, strict=True)]

    def _take_all(self, landed: list[Any]) -> Replies:
        """The replies to calls that are done, one way or the other: where an actor was lost, that is noted."""
        found = []
        for reference in landed:
            try:
                reply = self._ray.get(reference)
            except self._ray.exceptions.RayTaskError:
                raise  # an error of ours, not of the environments: those come as an outcome
            except self._ray.exceptions.RayError as error:
                self._workers[self._flying[reference].worker].note_loss(error)
            else:
                found.append(self._take(reference, reply))
        return found

    def _take(self, reference: Any, reply: bytes) -> tuple[Call, Outcome | None]:
        """Arrays go to their rows, the rest is returned."""
        call = self._flying.pop(reference)
        _, outcome, arrays = self._workers[call.worker].unpickled(reply)
        if arrays is not None:
            self._buffers.put_results(self._rows(call), arrays)
        return call, outcome

    def _batches(self, env_ids: list[int], kind: str) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for env_id in env_ids:
            found.setdefault(self._worker_of[env_id], []).append(env_id)
        if kind == "step_some":
            return list(found.values())
        # Two calls to each worker, so that it has one to work on while actions are chosen for the other's results.
        firsts = [ids[: -(-len(ids) // 2)] for ids in found.values()]
        return firsts + [ids[-(-len(ids) // 2) :] for ids in found.values() if len(ids) > 1]

    def _land(self, seconds: float | None, missing: int = 0) -> bool:
        """See the base class.

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
        self._accept(self._take_all(landed))
        return True

    def _shut_down(self, timeout: float) -> None:
        self._flying.clear()
        if self._ray.is_initialized():  # the user may have shut Ray down, and all actors with it
            end_all(self._ray, self._workers, timeout)
        self._workers = []
        self._connection.close()
