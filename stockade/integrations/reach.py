"""Single environments, reached from outside: what Stable-Baselines3 calls `env_method`, `get_attr`, `env_is_wrapped`.

Functions that vector environments `apply` to their environments, in worker processes too, so nothing heavy is imported
here; and the worlds of a native vector environment one by one, which have no objects of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np

from stockade.cage2.actions import ACTION_MASK
from stockade.cage2.config import WorldConfig
from stockade.cage2.render import render_world
from stockade.cage2.snapshot import Snapshot
from stockade.cage2.truth import TrueState
from stockade.errors import InputError
from stockade.vector.native import NativeVectorEnv

_MASK = ACTION_MASK.astype(np.bool_)[None]
_SETTINGS = {field.name for field in fields(WorldConfig)}


def call_method(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], environment: Any) -> Any:
    """Call a method of the environment or of one of its wrappers."""
    return environment.get_wrapper_attr(name)(*args, **kwargs)


def wrapper_names(environment: Any) -> frozenset[str]:
    """Names of the classes that the environment's wrappers are of, so that no process has to import the classes."""
    names: set[str] = set()
    while isinstance(environment, gymnasium.Wrapper):
        names.update(class_name(parent) for parent in type(environment).__mro__)
        environment = environment.env
    return frozenset(names)


def class_name(kind: type) -> str:
    """With its module."""
    return f"{kind.__module__}.{kind.__qualname__}"


class NativeWorld:
    """World i of a native vector environment, with what a single environment has besides `reset` and `step`."""

    def __init__(self, envs: NativeVectorEnv, index: int) -> None:
        self._envs = envs
        self._index = index

    @property
    def unwrapped(self) -> NativeWorld:
        """Itself."""
        return self

    @property
    def config(self) -> WorldConfig:
        """Red, horizon, rules and so on."""
        return self._envs.config

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """Of one world."""
        return self._envs.single_observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """Of one world."""
        return self._envs.single_action_space

    @property
    def render_mode(self) -> str | None:
        """None or `ansi`."""
        return self._envs.render_mode

    @property
    def metadata(self) -> dict[str, Any]:
        """Of the vector environment."""
        return self._envs.metadata

    def action_masks(self) -> np.ndarray:
        """(145,) bool: which actions can succeed at all."""
        return ACTION_MASK.astype(np.bool_)

    def true_state(self) -> TrueState:
        """What is really the case now; live views, arrays without the leading n."""
        state = self._envs.true_state()
        return TrueState(**{field.name: getattr(state, field.name)[self._index, ...] for field in fields(TrueState)})

    def snapshot(self) -> Snapshot:
        """This moment, chance included."""
        return self._envs.snapshot(self._index)

    def restore(self, snapshot: Snapshot, seed: int | None = None) -> np.ndarray:
        """Go back to a snapshot, with a new stream of chance if a seed is given; returns what blue sees there."""
        row: np.ndarray = self._envs.restore(snapshot, self._index, seed)[self._index]
        return row

    def random_peek(self) -> int:
        """The next 32 bits of the reference's stream, not drawn; only under `chance="cyborg"`."""
        return int(self._envs.random_peek()[self._index])

    def render(self) -> str | None:
        """With `render_mode="ansi"` the two tables as text."""
        if self.render_mode is None:
            return None
        self._envs.true_state()  # refuses a closed environment, and one that was never reset
        batch = self._envs._batch  # `render()` of the vector environment would draw all the worlds for one
        return render_world(batch.worlds, batch.ledgers, self._index)

    def get_wrapper_attr(self, name: str) -> Any:
        """An attribute."""
        return getattr(self, name)

    def has_wrapper_attr(self, name: str) -> bool:
        """Whether there is such an attribute."""
        return hasattr(self, name)

    def set_wrapper_attr(self, name: str, value: Any) -> None:
        """Keep a value under a new name; what the world is made of stays as it is."""
        if name in _SETTINGS or hasattr(type(self), name):
            raise InputError(f"{name!r} of the built-in world cannot be changed once it is made; make new environments")
        setattr(self, name, value)


class NativeWorlds:
    """The worlds of a native vector environment, to be reached as those of every other backend are: by `apply`."""

    def __init__(self, envs: NativeVectorEnv) -> None:
        self._worlds = [NativeWorld(envs, i) for i in range(envs.num_envs)]

    def apply(self, function: Callable[[Any], Any], indices: Iterable[int] | None = None) -> list[Any]:
        """`function(world)` of the chosen worlds, default all."""
        return [function(world) for world in self._chosen(indices)]

    def action_masks(self, indices: Iterable[int] | None = None) -> list[np.ndarray]:
        """The same as `action_masks()` of the chosen worlds, for learners that ask in every step."""
        return list(np.repeat(_MASK, len(self._chosen(indices)), axis=0))

    def _chosen(self, indices: Iterable[int] | None) -> list[NativeWorld]:
        return self._worlds if indices is None else [self._worlds[index] for index in indices]
