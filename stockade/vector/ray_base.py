"""What backend `ray` does, asynchronous or not: commands -> calls to actors -> replies, deadlines, losses, restarts.

Calls under way are kept with what was asked, so that a new actor is given again what a lost one owed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium

from stockade.vector.channel import from_peer, to_worker
from stockade.vector.description import Description, Inheritance, SliceConfig
from stockade.vector.errors import VectorError, WorkerDiedError, WorkerStartError, WorkerTimeoutError
from stockade.vector.layout import Buffers, assign, copied, tree_map
from stockade.vector.outcome import Outcome
from stockade.vector.ray_actor import ActorSpec
from stockade.vector.ray_cluster import Connection, RayConfig, RemoteWorker, end_all, seconds_until, warn_if_waiting
from stockade.vector.replacing import ReplacingVectorEnv
from stockade.vector.worker import data_for

_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 0.0)
"""Seconds between attempts to replace an actor."""
_REPLACEABLE = ("step", "reset", "step_some", "reset_some")


@dataclass(frozen=True)
class Call:
    """A call under way.

    Attributes:
        index: the worker.
        kind: the command.
        data: what it takes.
        env_ids: the environments concerned, if it is for some of the worker's only.
    """

    index: int
    kind: str
    data: Any
    env_ids: tuple[int, ...] | None = None


class RayBase(ReplacingVectorEnv):
    """Environments spread over actors.

    Args:
        factory: makes one environment; sent to the actors by cloudpickle.
        n_envs: how many environments.
        cluster: how the actors are run.
        config: how the environments are stepped.
        copy: whether observations are copies.
        restart: how many actors may be replaced in the life of this vector environment before a loss is an error.
    """

    def __init__(
        self,
        factory: Callable[[], gymnasium.Env[Any, Any]],
        n_envs: int,
        cluster: RayConfig,
        config: SliceConfig | None = None,
        copy: bool = True,
        restart: int = 0,
    ) -> None:
        self.closed = True
        config = config or SliceConfig()
        self.restart = restart
        self.restarts = 0
        self._flying: dict[Any, Call] = {}  # by Ray's reference to the reply, in the order of sending
        self._workers: list[RemoteWorker] = []
        pickled = to_worker(factory)
        self._connection = Connection(cluster, n_envs)
        self._ray, self._cluster = self._connection.ray, self._connection.config
        try:
            count = self._connection.workers
            bounds = itertools.pairwise(n_envs * k // count for k in range(count + 1))
            self._specs = [ActorSpec(pickled, first, stop - first, config) for first, stop in bounds]
            self._workers += [RemoteWorker(self._ray, i, spec, self._cluster) for i, spec in enumerate(self._specs)]
            description = self._greet_all()
            description.check(config)
            super().__init__(description, n_envs, Buffers.allocate(description.layout, n_envs), config, copy)
        except BaseException:
            self._shut_down(0.0)
            raise

    @property
    def workers(self) -> int:
        """Number of actors."""
        return len(self._workers)

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of the actors, each on its own machine."""
        return tuple(worker.greeting.pid for worker in self._workers if worker.greeting is not None)

    # Commands to all environments: see the base class

    def _step_all(self) -> Outcome:
        actions = self._buffers.actions
        return self._exchange(
            "step", lambda spec: tree_map(lambda array: array[spec.first : spec.first + spec.count], actions)
        )

    def _command(self, kind: str, parts: Sequence[Any] | None, common: Any) -> Outcome:
        def data_of(spec: ActorSpec) -> Any:
            own = None if parts is None else parts[spec.first : spec.first + spec.count]
            return data_for(kind, own, common)

        return self._exchange(kind, data_of)

    def _exchange(self, kind: str, data_of: Callable[[ActorSpec], Any]) -> Outcome:
        """Give a command to all actors and gather their replies, in the order of the environments."""
        self._flying.clear()  # of a call that was interrupted: its replies are not wanted any more
        for index, spec in enumerate(self._specs):
            self._submit(Call(index, kind, data_of(spec)))
        outcomes: dict[int, Outcome] = {}
        deadline = self._deadline()
        while self._flying:
            restarts = self.restarts
            for call, outcome in self._all_replies(deadline):
                outcomes[call.index] = outcome
            if self.restarts > restarts:
                deadline = self._deadline()
            elif self._flying and deadline is not None and time.monotonic() >= deadline:
                self._give_up_waiting()
                deadline = self._deadline()
        merged = Outcome()
        for index in range(len(self._workers)):
            merged.extend(outcomes[index])
        return merged

    # Calls and replies

    def _submit(self, call: Call) -> None:
        self._flying[self._workers[call.index].call(call.kind, call.data)] = call

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
                self._replace(call, self._workers[call.index].death(error))
            else:
                found.append(self._take(reference, reply))
        return found

    def _take(self, reference: Any, reply: bytes) -> tuple[Call, Outcome]:
        """Arrays go to their rows, the rest is returned."""
        call = self._flying.pop(reference)
        outcome, arrays = from_peer(reply)
        if arrays is not None:
            self._put(call, arrays)
        return call, outcome or Outcome()

    def _put(self, call: Call, arrays: list[Any]) -> None:
        spec = self._specs[call.index]
        rows: Any = slice(spec.first, spec.first + spec.count) if call.env_ids is None else list(call.env_ids)
        buffers = self._buffers
        observations, rewards, terminated, truncated, age, truth = arrays
        assign(buffers.observations, rows, observations)
        buffers.rewards[rows], buffers.terminated[rows], buffers.truncated[rows] = rewards, terminated, truncated
        buffers.age[rows] = age
        if buffers.truth is not None and truth is not None:
            buffers.truth[rows] = truth

    # Losses

    def _give_up_waiting(self) -> None:
        """The deadline has passed: the actors that owe something hang."""
        for index in sorted({call.index for call in self._flying.values()}):
            owed = next(call for call in self._flying.values() if call.index == index)
            self._replace(owed, self._workers[index].overdue())

    def _replace(self, owed: Call, error: WorkerDiedError | WorkerTimeoutError) -> None:
        """Start an actor in the place of a lost one and give it what that one owed, or raise the error."""
        lost = self._workers[owed.index]
        lost.kill()  # Ray may think of an actor as out of reach only, and it must not come back
        self._count_restart(owed.kind, _REPLACEABLE, error)
        spec = replace(self._specs[lost.index], inheritance=self._inheritance(lost))
        try:
            self._workers[lost.index] = self._start_again(lost.index, spec)
        except VectorError as second:
            raise second from error
        again = {reference: call for reference, call in self._flying.items() if call.index == lost.index}
        for reference, call in again.items():
            del self._flying[reference]
            self._submit(call)

    def _start_again(self, index: int, spec: ActorSpec) -> RemoteWorker:
        """A new actor, with its environments built.

        Tried a few times: for some seconds after the loss of a node, Ray may still place actors there.
        """
        for pause in _PAUSES:
            worker = RemoteWorker(self._ray, index, spec, self._cluster)
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
            index,
            worker.env_ids,
        )

    def _inheritance(self, lost: RemoteWorker) -> Inheritance:
        """What the environments of a new actor must know of those that are lost."""
        last_seen = self._buffers.part(lost.first, lost.stop).results()
        return Inheritance(
            [self._was_over(i) for i in lost.env_ids],
            [self._new_seed(i) for i in lost.env_ids],
            tuple(copied(part) for part in last_seen),
        )

    def _deadline(self) -> float | None:
        return None if self._cluster.timeout is None else time.monotonic() + self._cluster.timeout

    def _greet_all(self) -> Description:
        """Wait for all actors to build their environments, which must be the same everywhere."""
        warn_if_waiting(self._ray, self._workers, self._cluster)
        descriptions = [worker.greet() for worker in self._workers]
        for worker, description in zip(self._workers, descriptions, strict=True):
            if description.layout != descriptions[0].layout:
                raise WorkerStartError(
                    f"the environments of worker {worker.index} have other spaces than those of worker 0: "
                    f"{description.layout} and {descriptions[0].layout}; the factory must always give the same",
                    worker.index,
                    worker.env_ids,
                )
        return descriptions[0]

    def _shut_down(self, timeout: float) -> None:
        self._flying.clear()
        if self._ray.is_initialized():  # the user may have shut Ray down, and all actors with it
            end_all(self._ray, self._workers, timeout)
        self._workers = []
        self._connection.close()
