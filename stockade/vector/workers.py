"""Backends with workers, seen from the parent: calls to workers -> in flight -> replies; deadlines, losses, restarts.

One engine for worker processes and Ray's actors, for `step` and for `send` with `recv`. A call is kept while it is in
flight: if its worker is lost, the one that replaces it is given the call again. How calls and replies travel is up to
the backend.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AutoresetMode

from stockade.cage2.seeds import Seeds, read_seeds
from stockade.errors import VectorError, WorkerDiedError, WorkerError, WorkerStartError, WorkerTimeoutError
from stockade.vector.base import BaseVectorEnv
from stockade.vector.host import SliceSpec
from stockade.vector.local.channel import collection_paused, from_peer, to_worker
from stockade.vector.outcome import (
    NOTHING,
    Description,
    Factory,
    Failure,
    Inheritance,
    Outcome,
    RunConfig,
    raise_original,
)
from stockade.vector.spaces import Buffers, Layout, assign, copied, rows_of

STEPS = ("step", "step_some")
REPLACEABLE = (*STEPS, "reset", "reset_some")
"""Commands that are given again to the worker that replaces a lost one."""
_PARTS, _LEAST_PART = 8, 4
"""True states of a worker come in so many messages, unless these would be of fewer environments."""


class Call(NamedTuple):
    """A call to a worker: its number, the slice's method, the environments, if only some are concerned.

    The actions of steps are not among the arguments, but taken from the arrays when the call is given.
    """

    worker: int
    kind: str
    arguments: tuple[Any, ...] = ()
    env_ids: tuple[int, ...] | None = None


Replies = list[tuple[Call, Outcome | None]]


class Worker:
    """A worker as the parent sees it; `where` it runs is for messages. Backends add kill() and death()."""

    spec: SliceSpec
    where = ""
    alive = True  # False once its loss has been noticed
    torn = False  # we ended it, since Ctrl-C came in the middle of an exchange with it

    @property
    def name(self) -> str:
        return f"worker {self.spec.index} ({self.where}environments {self.spec.span})"

    def greet(self) -> Description:
        """What it says of its environments, once it has built them; or the exception that stopped it."""
        answer = self._answer()
        if isinstance(answer, Failure):
            message = f"worker {self.spec.index} could not build its environments {self.spec.span}:\n{answer.text}"
            raise_original(answer, WorkerStartError(message, self.spec.index, self.spec.env_ids))
        description: Description = answer
        return description

    def _answer(self) -> Any:
        """Its first message: a description, or a failure."""
        raise NotImplementedError

    def unpickled(self, payload: bytes) -> Any:
        """A message of its environments."""
        try:
            return from_peer(payload)
        except Exception as exception:  # of the environments' own classes: they could be pickled there
            raise WorkerError(
                f"what {self.name} returned cannot be unpickled here: {type(exception).__name__}: {exception}; "
                f"call reset() to go on",
                self.spec.index,
                self.spec.env_ids,
            ) from exception

    def overdue(self, note: str = "") -> WorkerTimeoutError:
        return WorkerTimeoutError(
            f"{self.name} did not answer within timeout={self.spec.config.timeout} s and was killed; pass a larger "
            f"timeout=, or None to wait for ever, if steps may take that long. {note}",
            self.spec.index,
            self.spec.env_ids,
        )


class WorkerVectorEnv(BaseVectorEnv):
    """Environments in workers, of which `restart` may be replaced in the life of the vector environment.

    `restarts` tells how many were. `how` says how workers are run, in the backend's own way.
    """

    _shares = False  # whether workers write to the parent's arrays themselves

    def __init__(self, factory: Factory, n_envs: int, how: Any, config: RunConfig) -> None:
        self.closed = True
        self.restart = config.restart
        self.restarts = 0
        self._last_seeds = read_seeds(None, n_envs)
        self._flying: dict[Any, Call] = {}  # by what its reply is known by, in the order of sending
        self._workers: list[Any] = []
        pickled = to_worker(factory)
        count = self._connect(how, n_envs)
        try:
            bounds = itertools.pairwise(n_envs * k // count for k in range(count + 1))
            self._start([SliceSpec(index, pickled, *span, config) for index, span in enumerate(bounds)])
            descriptions = [worker.greet() for worker in self._workers]
            for description, worker in zip(descriptions, self._workers, strict=True):
                if description.layout != descriptions[0].layout:
                    raise WorkerStartError(
                        f"the environments of worker {worker.spec.index} have other spaces than those of worker 0: "
                        f"{description.layout} and {descriptions[0].layout}; the factory must always give the same",
                        worker.spec.index,
                        worker.spec.env_ids,
                    )
            descriptions[0].check(config)
            self._buffers = self._allocate(descriptions[0].layout, n_envs)
            # A worker that is killed may leave half of a row in shared memory: these are the last whole ones.
            self._whole = copied(self._buffers.results()) if config.restart and self._shares else None
            self._steps = [Call(index, "step") for index in range(count)]
            self._worker_of = [worker.spec.index for worker in self._workers for _ in worker.spec.env_ids]
            super().__init__(descriptions[0], n_envs, self._buffers, config)
        except BaseException:
            self._shut_down(0.0)
            raise

    @property
    def workers(self) -> int:
        return len(self._workers)

    # What a backend provides

    def _connect(self, how: Any, n_envs: int) -> int:
        """Get ready to start workers; returns how many there will be."""
        raise NotImplementedError

    def _start(self, specs: list[SliceSpec]) -> None:
        """Add workers that build their environments."""
        raise NotImplementedError

    def _start_again(self, spec: SliceSpec) -> None:
        """Put a worker, with its environments built, in the place of a dead one."""
        raise NotImplementedError

    def _allocate(self, layout: Layout, n_envs: int) -> Buffers:
        return Buffers.allocate(layout, n_envs)

    def _submit(self, call: Call) -> None:
        """Give a call to its worker; if that one is dead, it is found out when replies are awaited."""
        raise NotImplementedError

    def _land_all(self, deadline: float | None) -> Replies:
        """Wait for the replies to all calls in flight, or until a worker is lost or the deadline has passed."""
        raise NotImplementedError

    def _drop_calls(self) -> None:
        """The replies to the calls in flight are no longer wanted."""
        self._flying.clear()

    # Calls

    def _step_all(self) -> Outcome:
        return self._exchange(self._steps)

    def _command(self, kind: str, parts: Sequence[Any] = (), common: Sequence[Any] = ()) -> Outcome:
        rows = [worker.spec.rows for worker in self._workers]
        if kind == "refresh_some":
            return self._fetch_truths()
        return self._exchange([Call(i, kind, (*(part[own] for part in parts), *common)) for i, own in enumerate(rows)])

    def _fetch_truths(self) -> Outcome:
        """Objects come in parts: while one is unpickled here, the workers are at the next."""
        parts = _PARTS if self._description.layout.truth_dtype is None else 1
        calls = []
        for worker in self._workers:
            ids, size = worker.spec.env_ids, max(_LEAST_PART, -(-len(worker.spec.env_ids) // parts))
            calls.append([self._call_for("refresh_some", ids[k : k + size]) for k in range(0, len(ids), size)])
        with collection_paused():
            return self._exchange([call for turn in itertools.zip_longest(*calls) for call in turn if call is not None])

    def _call_for(self, kind: str, env_ids: Sequence[int], *arguments: Any) -> Call:
        """A call for some environments, all of one worker."""
        spec = self._workers[self._worker_of[env_ids[0]]].spec
        return Call(spec.index, kind, ([i - spec.first for i in env_ids], *arguments), tuple(env_ids))

    def _exchange(self, calls: list[Call]) -> Outcome:
        """Give a call to each worker and gather the replies, in the order of the environments."""
        if self._flying:
            self._drop_calls()  # of an exchange that was interrupted
        for call in calls:
            self._submit(call)
        deadline = self._deadline()
        replies = self._land_all(deadline)
        while self._flying:
            deadline = self._replace_lost(deadline)
            replies += self._land_all(deadline)
        if self._whole is not None:
            self._keep_whole()
        outcomes = [(call.worker, outcome) for call, outcome in replies if outcome is not None]
        if not outcomes:
            return NOTHING
        merged = Outcome()
        for _, outcome in sorted(outcomes, key=itemgetter(0)):
            merged.extend(outcome)
        return merged

    def _deadline(self) -> float | None:
        timeout = self._config.timeout
        return None if timeout is None else time.monotonic() + timeout

    def _rows(self, call: Call) -> Any:
        return self._workers[call.worker].spec.rows if call.env_ids is None else list(call.env_ids)

    def _arguments(self, call: Call) -> tuple[Any, ...]:
        if call.kind not in STEPS:
            return call.arguments
        return (*call.arguments, rows_of(self._buffers.actions, self._rows(call)))

    # Losses

    def _owed(self, worker: Any) -> dict[Any, Call]:
        return {key: call for key, call in self._flying.items() if call.worker == worker.spec.index}

    def _replace_lost(self, deadline: float | None) -> float | None:
        """Replace the workers that owe replies and are dead, or hang, if the deadline has passed; the new deadline."""
        lost = [(worker, worker.death()) for worker in self._workers if not worker.alive and self._owed(worker)]
        if not lost and deadline is not None and time.monotonic() >= deadline:
            lost = [(worker, worker.overdue()) for worker in self._workers if self._owed(worker)]
        for worker, error in lost:
            self._replace(worker, error)
        return self._deadline() if lost else deadline

    def _replace(self, lost: Any, error: WorkerDiedError | WorkerTimeoutError) -> None:
        """Start a worker in the place of a lost one and give it what that one owed, or raise the error.

        If the new one is lost too before it is ready, that is the next loss.
        """
        index = lost.spec.index
        owed = self._owed(lost)
        while True:
            self._workers[index].kill()
            self._count_restart(self._workers[index], next(iter(owed.values())).kind, error)
            try:
                self._start_again(replace(lost.spec, inheritance=self._inheritance(lost.spec)))
                break
            except (WorkerDiedError, WorkerTimeoutError) as second:
                error = second
            except VectorError as second:
                raise second from error
        for key, call in owed.items():
            del self._flying[key]
            self._submit(call)

    def _count_restart(self, lost: Any, kind: str, error: WorkerDiedError | WorkerTimeoutError) -> None:
        """A worker that served a command of this kind is replaced, or the error is raised and says why not."""
        if (self.restarts >= self.restart and not lost.torn) or kind not in REPLACEABLE:
            why = f"restart={self.restart} is used up" if self.restart else "pass restart=N to have N workers replaced"
            if kind not in REPLACEABLE:
                why = f"it was serving {kind}, which is not given to a new worker"
            error.args = (f"{error.args[0].rstrip()} Not replaced: {why}.",)
            raise error
        self.restarts += not lost.torn

    def _inheritance(self, spec: SliceSpec) -> Inheritance:
        """What the environments of a new worker must know about those that are lost."""
        if self._whole is not None:
            self._buffers.put_results(spec.rows, rows_of(self._whole, spec.rows))
        return Inheritance(
            [self._was_over(i) for i in spec.env_ids],
            [self._new_seed(i) for i in spec.env_ids],
            copied(rows_of(self._buffers.results(), spec.rows)),
        )

    def _was_over(self, i: int) -> bool:
        """Whether environment i was about to be reset by autoreset, so that nothing of it is lost."""
        return self.autoreset_mode is AutoresetMode.NEXT_STEP and bool(self._over[i])

    def _new_seed(self, i: int) -> int | None:
        """A seed for an environment that starts again: its past is not repeated, a repeated run still is."""
        if not self._last_seeds.given[i]:
            return None
        return int(np.random.SeedSequence([int(self._last_seeds.values[i]), self.restarts]).generate_state(1)[0])

    def _note_reset(self, mask: np.ndarray, seeds: Seeds, outcome: Outcome) -> None:
        seeded = seeds.given & mask
        self._last_seeds.values[seeded], self._last_seeds.given[seeded] = seeds.values[seeded], True
        super()._note_reset(mask, seeds, outcome)

    def _keep_whole(self, rows: Any = slice(None)) -> None:
        """These rows of the arrays are complete."""
        assign(self._whole, rows, rows_of(self._buffers.results(), rows))
