"""What backends with workers share, seen from the parent: how environments are divided, which worker is replaced, how
the environments of a lost one continue."""

import itertools
import time
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from stockade.cage2.seeds import Seeds, read_seeds
from stockade.errors import WorkerDiedError, WorkerStartError, WorkerTimeoutError
from stockade.vector.base import BaseVectorEnv
from stockade.vector.host import SliceSpec
from stockade.vector.outcome import Description, Failure, Inheritance, Outcome, RunConfig, raise_original
from stockade.vector.spaces import Buffers, assign, copied, rows_of

REPLACEABLE = ("step", "reset", "step_some", "reset_some")
"""Commands that are given again to the worker that replaces a lost one."""


class WorkerVectorEnv(BaseVectorEnv):
    """Environments in workers, of which `restart` may be replaced in the life of the vector environment.

    `restarts` tells how many were. `shared`: whether workers write to `buffers` themselves.
    """

    def __init__(
        self, description: Description, n_envs: int, buffers: Buffers, config: RunConfig, shared: bool
    ) -> None:
        self.restart = config.restart
        self.restarts = 0
        self._timeout = config.timeout
        self._last_seeds = read_seeds(None, n_envs)
        # A worker that is killed may leave half of a row in shared memory: these are the last whole ones.
        self._whole = copied(buffers.results()) if config.restart and shared else None
        super().__init__(description, n_envs, buffers, config)

    def _deadline(self) -> float | None:
        return None if self._timeout is None else time.monotonic() + self._timeout

    def _count_restart(self, kind: str, error: WorkerDiedError | WorkerTimeoutError) -> None:
        """A worker that served a command of this kind is replaced, or the error is raised and says why not."""
        if self.restarts >= self.restart or kind not in REPLACEABLE:
            why = f"restart={self.restart} is used up" if self.restart else "pass restart=N to have N workers replaced"
            if kind not in REPLACEABLE:
                why = f"it was serving {kind}, which is not given to a new worker"
            error.args = (f"{error.args[0].rstrip()} Not replaced: {why}.",)
            raise error
        self.restarts += 1

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
        if self._whole is not None:
            assign(self._whole, rows, rows_of(self._buffers.results(), rows))

    def _observations(self) -> Any:
        self._keep_whole()
        return super()._observations()


def divide(factory: bytes, n_envs: int, workers: int, config: RunConfig) -> list[SliceSpec]:
    bounds = itertools.pairwise(n_envs * k // workers for k in range(workers + 1))
    return [SliceSpec(index, factory, first, stop, config) for index, (first, stop) in enumerate(bounds)]


def overdue(name: str, spec: SliceSpec, note: str = "") -> WorkerTimeoutError:
    return WorkerTimeoutError(
        f"{name} did not answer within timeout={spec.config.timeout} s and was killed; pass a larger timeout=, or None "
        f"to wait for ever, if steps may take that long. {note}",
        spec.index,
        spec.env_ids,
    )


def raise_if_failed(answer: Any, spec: SliceSpec) -> None:
    """If a worker could not build its environments, raise what stopped it."""
    if isinstance(answer, Failure):
        message = f"worker {spec.index} could not build its environments {spec.span}:\n{answer.text}"
        raise_original(answer, WorkerStartError(message, spec.index, spec.env_ids))


def common_description(descriptions: list[Description], specs: list[SliceSpec]) -> Description:
    """The description of all environments, which must be the same in every worker."""
    first = descriptions[0]
    for description, spec in zip(descriptions, specs, strict=True):
        if description.layout != first.layout:
            raise WorkerStartError(
                f"the environments of worker {spec.index} have other spaces than those of worker 0: "
                f"{description.layout} and {first.layout}; the factory must always give the same",
                spec.index,
                spec.env_ids,
            )
    first.check(specs[0].config)
    return first
