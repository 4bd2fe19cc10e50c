"""True states of many environments at once: rows written by the environments, or objects they gave -> named arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from stockade.vector.spaces import copied


@dataclass(frozen=True, eq=False)
class TrueStates:
    """The true states of n environments and how old each is.

    Fields read as arrays with n rows: `envs.true_state().red_access` is (n, 13). For the built-in world all attributes
    and methods of `stockade.cage2.TrueState` are there.

    Attributes:
        states: structured array (n,), or a sequence of the n objects that the environments' `true_state()` gave.
        age: (n,) int32, steps since each was refreshed, 0 for the present one, -1 for one that was never fetched.
    """

    states: np.ndarray | Sequence[Any]
    age: np.ndarray
    named: Any = None  # the same as an object with named arrays, if the environments have one
    view: Callable[[np.ndarray], Any] | None = None  # makes such an object of an array of states, or of a single one

    def copy(self) -> Self:
        """The same, to be kept and changed: on `native` the original follows the worlds as they are stepped."""
        named = None if self.named is None else self.named.copy()
        return replace(self, states=copied(self.states), age=self.age.copy(), named=named)

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, i: int) -> Any:
        if self.view is not None and isinstance(self.states, np.ndarray):
            return self.view(self.states[i, ...])
        return self.states[i]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.named is not None:
            return getattr(self.named, name)
        if isinstance(self.states, np.ndarray):
            names = self.states.dtype.names or ()
            if name in names:
                return self.states[name]
            raise AttributeError(f"true states have no field {name!r}, but {', '.join(names)}")
        return np.stack([getattr(state, name) for state in self.states])
