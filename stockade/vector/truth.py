"""True states of many environments at once: rows written by the environments, or objects they gave -> named arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


class TrueStates:
    """The true states of n environments and how old each is.

    Fields read as arrays with n rows: `envs.true_state().red_access` is (n, 13).

    Attributes:
        states: structured array (n,), or a sequence of the n objects that the environments' `true_state()` gave.
        age: (n,) int32, steps since each was refreshed, 0 for the present one, -1 for one that was never fetched.
    """

    def __init__(
        self,
        states: np.ndarray | Sequence[Any],
        age: np.ndarray,
        view: Callable[[np.ndarray], Any] | None = None,
    ) -> None:
        self.states = states
        self.age = age
        self._view = view(states) if view is not None and isinstance(states, np.ndarray) else None

    def __len__(self) -> int:
        """Number of environments."""
        return len(self.states)

    def __getitem__(self, i: int) -> Any:
        """The true state of environment i."""
        return self.states[i]

    def __getattr__(self, name: str) -> Any:
        """A field, for all environments."""
        if name.startswith("__"):
            raise AttributeError(name)
        states = self.__dict__.get("states", ())
        view = self.__dict__.get("_view")
        if view is not None:
            return getattr(view, name)
        if isinstance(states, np.ndarray):
            names = states.dtype.names or ()
            if name in names:
                return states[name]
            raise AttributeError(f"true states have no field {name!r}, but {', '.join(names)}")
        return np.stack([getattr(state, name) for state in states])
