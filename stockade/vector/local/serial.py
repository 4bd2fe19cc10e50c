"""Backend `serial`: actions -> one slice of all environments in this process, one after the other -> results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stockade.vector.base import BaseVectorEnv
from stockade.vector.outcome import Description, Factory, Outcome, RunConfig, build_environments
from stockade.vector.slice import EnvSlice
from stockade.vector.spaces import Buffers


class SerialVectorEnv(BaseVectorEnv):
    """All environments in this process. Nothing is faster for environments that take a few microseconds per step.

    Args:
        factory: makes one environment.
        n_envs: how many.
        config: how they are run.
    """

    def __init__(self, factory: Factory, n_envs: int, config: RunConfig) -> None:
        self.closed = True
        self.envs = build_environments(factory, n_envs)
        description = Description.of(self.envs[0])
        description.check(config)
        buffers = Buffers.allocate(description.layout, n_envs)
        self._slice = EnvSlice(self.envs, 0, buffers, config)
        super().__init__(description, n_envs, buffers, config)

    def _step_all(self) -> Outcome:
        return self._slice.step(self._buffers.actions)

    def _command(self, kind: str, parts: Sequence[Any] = (), common: Sequence[Any] = ()) -> Outcome:
        outcome: Outcome = getattr(self._slice, kind)(*parts, *common)
        return outcome

    def _shut_down(self, timeout: float) -> None:
        self._slice.close()
