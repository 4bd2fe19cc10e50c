"""What has to be known before environments are stepped: how to treat them, what they are, what a dead worker leaves.

factory -> environments -> `Description` (spaces, metadata, true states) -> the parent, which sets up arrays for them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from stockade.vector.errors import UnsupportedFeatureError
from stockade.vector.layout import Layout

TruthRule = Literal["every_step", "episode_end"] | int | None
"""When the cached true state of an environment is refreshed; None: only when asked for."""


@dataclass(frozen=True)
class SliceConfig:
    """How a slice treats its environments.

    Attributes:
        autoreset_mode: Gymnasium's mode.
        check_finite: refuse NaN and infinity in rewards and float observations.
        true_states: when cached true states are refreshed.
    """

    autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP
    check_finite: bool = True
    true_states: TruthRule = None


@dataclass(frozen=True)
class Inheritance:
    """What the slice of a replaced worker takes over, by environment.

    Attributes:
        owed: whether the lost environment was about to be reset anyway.
        seeds: for the first reset.
        results: the arrays as they were last seen (see `Buffers.results`), for a slice without shared memory.
    """

    owed: Sequence[bool]
    seeds: Sequence[int | None]
    results: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Description:
    """What the parent has to know of the environments."""

    layout: Layout
    metadata: dict[str, Any]
    render_mode: str | None
    has_true_state: bool
    true_state_view: Callable[[np.ndarray], Any] | None

    @classmethod
    def of(cls, environment: gymnasium.Env[Any, Any]) -> Description:
        """Describe one environment, on behalf of all that its factory makes."""
        world: Any = environment.unwrapped
        return cls(
            layout_of(environment),
            dict(environment.metadata),
            environment.render_mode,
            hasattr(world, "true_state") or hasattr(world, "write_true_state"),
            getattr(world, "true_state_view", None),
        )

    def check(self, config: SliceConfig) -> None:
        """Refuse a configuration that the environments cannot serve."""
        if config.true_states is not None and not self.has_true_state:
            raise UnsupportedFeatureError(
                f"true_states={config.true_states!r} needs environments with a method true_state(); pass None"
            )


def build_environments(factory: Callable[[], gymnasium.Env[Any, Any]], count: int) -> list[gymnasium.Env[Any, Any]]:
    """Build `count` environments; if one fails, close those that exist."""
    environments: list[gymnasium.Env[Any, Any]] = []
    try:
        for _ in range(count):
            environments.append(factory())
            first, latest = environments[0], environments[-1]
            if (latest.observation_space, latest.action_space) != (first.observation_space, first.action_space):
                raise ValueError(f"the factory gives environments with different spaces: {first} and {latest}")
    except BaseException:
        for environment in environments:
            environment.close()
        raise
    return environments


def layout_of(environment: gymnasium.Env[Any, Any]) -> Layout:
    """The arrays that environments like this one need."""
    dtype = getattr(environment.unwrapped, "true_state_dtype", None)
    typed = dtype is not None and hasattr(environment.unwrapped, "write_true_state")
    return Layout(environment.observation_space, environment.action_space, np.dtype(dtype) if typed else None)
