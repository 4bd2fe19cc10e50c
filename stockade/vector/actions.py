"""Actions at the border: the user's batch -> checked, cast -> rows of the action arrays. On error nothing is touched.

Checked are form (keys, count, shape), dtype (integers for discrete spaces; what casts within its kind for Box) and
values (range of discrete spaces; no NaN or infinity). A Box's bounds are left to the environment, as Gymnasium does:
policies with Gaussian heads overstep them as a rule, and clipping is a wrapper's choice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces

from stockade.vector.errors import InvalidActionError
from stockade.vector.layout import Leaf, Tree, leaves


class ActionGate:
    """Checks batches of actions for one single action space and writes them to their arrays."""

    def __init__(self, space: Space[Any], target: Tree) -> None:
        self._gates = [_LeafGate(leaf, leaf.of(target)) for leaf in leaves(space)]

    def put(self, actions: Any, count: int, where: Any = slice(None), env_ids: np.ndarray | None = None) -> None:
        """Write `actions` (a batch of `count`) to the rows `where`; `env_ids` names them in messages."""
        checked = [gate.checked(actions, count, env_ids) for gate in self._gates]
        for gate, array in zip(self._gates, checked, strict=True):
            gate.target[where] = array


class _LeafGate:
    """The gate of one leaf of the action space."""

    def __init__(self, leaf: Leaf, target: np.ndarray) -> None:
        self.target = target
        self._leaf = leaf
        self._low: Any = None
        self._high: Any = None
        space = leaf.space
        if isinstance(space, spaces.Discrete):
            self._low, self._high = int(space.start), int(space.start) + int(space.n) - 1
        elif isinstance(space, spaces.MultiDiscrete):
            self._low = np.asarray(space.start, np.int64)
            self._high = self._low + np.asarray(space.nvec, np.int64) - 1
        elif isinstance(space, spaces.MultiBinary):
            self._low, self._high = 0, 1

    def checked(self, actions: Any, count: int, env_ids: np.ndarray | None) -> np.ndarray:
        """This leaf's part of the batch as an array that fits."""
        leaf = self._leaf
        try:
            array = np.asarray(leaf.of(actions))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidActionError(
                f"actions{leaf.name} is missing or has no regular shape ({type(error).__name__}: {error}); "
                f"pass a batch as `envs.action_space.sample()` gives it"
            ) from error
        if array.shape != (count, *leaf.shape):
            raise InvalidActionError(
                f"actions{leaf.name} has shape {array.shape}, expected {(count, *leaf.shape)}: "
                f"one action of shape {leaf.shape} for each of {count} environments"
            )
        if self._low is None:
            self._check_real(array, env_ids)
        else:
            self._check_whole(array, env_ids)
        return array

    def _check_whole(self, array: np.ndarray, env_ids: np.ndarray | None) -> None:
        if array.dtype.kind not in "iub":
            raise InvalidActionError(
                f"actions{self._leaf.name} has dtype {array.dtype}, {self._leaf.space} needs integers; "
                f"convert with actions.astype(np.int64)"
            )
        if isinstance(self._low, int):
            fine = array.size == 0 or self._in_range(array)
        else:
            fine = bool(((array >= self._low) & (array <= self._high)).all())
        if not fine:
            self._refuse(array, (array < self._low) | (array > self._high), env_ids)

    def _in_range(self, array: np.ndarray) -> bool:
        if array.dtype == np.int64 and self._low == 0:
            return bool(array.view(np.uint64).max() <= self._high)  # negative ones look huge: one pass for both ends
        return bool(array.min() >= self._low and array.max() <= self._high)

    def _check_real(self, array: np.ndarray, env_ids: np.ndarray | None) -> None:
        if array.dtype.kind not in "iufb" or not np.can_cast(array.dtype, self._leaf.dtype, "same_kind"):
            raise InvalidActionError(
                f"actions{self._leaf.name} has dtype {array.dtype}, {self._leaf.space} needs {self._leaf.dtype}; "
                f"convert with actions.astype(np.{self._leaf.dtype})"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            self._refuse(array, ~np.isfinite(array), env_ids)

    def _refuse(self, array: np.ndarray, bad: np.ndarray, env_ids: np.ndarray | None) -> None:
        """Name the first offender."""
        row = int(np.argmax(bad.reshape(len(array), -1).any(axis=1)))
        index = row if env_ids is None else int(env_ids[row])
        raise InvalidActionError(
            f"the action{self._leaf.name} of environment {index} is {array[row]!r}, not in {self._leaf.space}", index
        )
