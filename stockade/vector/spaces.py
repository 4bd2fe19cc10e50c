"""Spaces as arrays: single values -> rows of arrays (private memory, or one shared block) -> batches for the user.

Every supported space is a tree (Dict, Tuple) whose leaves (Box, Discrete, MultiDiscrete, MultiBinary) have a fixed
shape and dtype, so that n of them are a tree of arrays with n rows. What crosses the border is checked on the way:
actions before any environment is touched (`ActionGate`), observations before they are written (`row_writer`).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NoReturn, Self

import numpy as np
from gymnasium import Space, spaces

from stockade.errors import InvalidActionError, UnsupportedSpaceError

Tree = Any
"""An array, or a dict or tuple of trees."""

_LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True)
class Leaf:
    """One array-like part of a space. `name` is its path as it reads in Python, for messages."""

    path: tuple[Any, ...]
    space: Space[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        return "".join(f"[{key!r}]" for key in self.path)

    def of(self, value: Tree) -> Any:
        """This part of a value of the whole space."""
        for key in self.path:
            value = value[key]
        return value


def leaves(space: Space[Any], path: tuple[Any, ...] = ()) -> list[Leaf]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return [leaf for key, sub in parts for leaf in leaves(sub, (*path, key))]
    if isinstance(space, _LEAVES):
        return [Leaf(path, space, tuple(space.shape or ()), np.dtype(space.dtype))]
    raise UnsupportedSpaceError(
        f"{type(space).__name__} spaces have no fixed shape and cannot be laid out in arrays; "
        f"use Box, Discrete, MultiDiscrete, MultiBinary, or Dict and Tuple of these (wrap the environment to convert)"
    )


def assemble(space: Space[Any], parts: Iterator[Any]) -> Tree:
    """The tree of a space from its leaves' values, in the order of `leaves`."""
    if isinstance(space, spaces.Dict):
        return {key: assemble(sub, parts) for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(assemble(sub, parts) for sub in space.spaces)
    return next(parts)


def tree_map(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """`function` of every array of a tree; None stays None."""
    if type(tree) is np.ndarray:  # mostly
        return function(tree)
    if isinstance(tree, dict):
        return {key: tree_map(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(tree_map(function, value) for value in tree)
    return None if tree is None else function(tree)


def assign(target: Tree, rows: Any, source: Tree) -> None:
    """`target[rows] = source`, array by array; where either is None, nothing happens."""
    if isinstance(target, (dict, tuple)):
        for key in target if isinstance(target, dict) else range(len(target)):
            assign(target[key], rows, source[key])
    elif target is not None and source is not None:
        target[rows] = source


def copied(value: Tree) -> Tree:
    """A value that shares no array with the original."""
    return tree_map(lambda part: part.copy() if isinstance(part, np.ndarray) else part, value)


def rows_of(tree: Tree, rows: Any) -> Tree:
    """These rows (a slice, a list, an array) of every array."""
    return tree_map(lambda array: array[rows], tree)


def value_of(tree: Tree, i: int) -> Any:
    """The single value in row i: a copy, since others will write to the arrays again."""
    return tree_map(lambda array: array[i].copy(), tree)


def all_values(tree: Tree, n: int) -> Iterable[Any]:
    """The single values of n rows, one after the other: copies."""
    whole = copied(tree)
    return whole if type(whole) is np.ndarray else [rows_of(whole, i) for i in range(n)]


# ----------------------------------------------------------------------------------------- observations, single values
def row_writer(space: Space[Any], tree: Tree) -> Callable[[int, Any], None]:
    """`write(i, value)`: put a value of `space` into row i of its tree of arrays.

    It refuses what NumPy would silently change: a value of another shape would be broadcast, a complex one would lose
    its imaginary part.
    """
    targets = [(leaf, leaf.of(tree)) for leaf in leaves(space)]

    def write(i: int, value: Any) -> None:
        for leaf, _ in targets:
            check_value(leaf, leaf.of(value))
        for leaf, array in targets:
            array[i] = leaf.of(value)

    if len(leaves(space)) > 1 or tree is not targets[0][1] or tree.ndim != 2:
        return write
    rows = [memoryview(row) for row in tree]

    def write_array(i: int, value: Any) -> None:
        try:
            rows[i][:] = value  # a memoryview takes nothing but this shape and dtype, and faster than we can look
        except (TypeError, ValueError):
            write(i, value)

    return write_array


def check_value(leaf: Leaf, value: Any) -> None:
    """Refuse an observation of another shape than its space's, or one that is not made of real numbers."""
    array = np.asarray(value)
    if array.shape != leaf.shape:
        raise ValueError(
            f"the observation{leaf.name} has shape {array.shape}, its space {leaf.space} says {leaf.shape}"
        )
    if array.dtype.kind not in "biuf":
        raise TypeError(f"the observation{leaf.name} has dtype {array.dtype}, its space {leaf.space} says {leaf.dtype}")


# ------------------------------------------------------------------------------------------------------------- actions
class ActionGate:
    """Checks batches of actions for one single action space. On error nothing has been touched.

    Checked are form (keys, count, shape), dtype (integers for discrete spaces; what casts within its kind for Box) and
    values (range of discrete spaces; no NaN or infinity). A Box's bounds are left to the environment, as Gymnasium
    does: policies with Gaussian heads overstep them as a rule, and clipping is a wrapper's choice.
    """

    def __init__(self, space: Space[Any]) -> None:
        self._gates = [_LeafGate(leaf) for leaf in leaves(space)]

    def put(self, target: Tree, actions: Any, count: int, rows: Any = slice(None), env_ids: Any = None) -> None:
        """Write `actions` (a batch of `count`) to these rows of `target`; `env_ids` names them in messages."""
        checked = [gate.checked(actions, count, env_ids) for gate in self._gates]
        for gate, array in zip(self._gates, checked, strict=True):
            gate.leaf.of(target)[rows] = array


class _LeafGate:
    """The gate of one leaf of the action space: kinds of numbers and, unless it is a Box, the range."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self._low: Any = None
        self._high: Any = None
        self._kinds = "iu"
        space = leaf.space
        if isinstance(space, spaces.Discrete):
            self._low, self._high = int(space.start), int(space.start) + int(space.n) - 1
        elif isinstance(space, spaces.MultiDiscrete):
            self._low = np.asarray(space.start, np.int64)
            self._high = self._low + np.asarray(space.nvec, np.int64) - 1
        elif isinstance(space, spaces.MultiBinary):
            self._low, self._high, self._kinds = 0, 1, "iub"

    def checked(self, actions: Any, count: int, env_ids: np.ndarray | None) -> np.ndarray:
        """This leaf's part of the batch as an array that fits."""
        leaf, low, high = self.leaf, self._low, self._high
        try:
            array = np.asarray(leaf.of(actions))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidActionError(
                f"actions{leaf.name} is missing or has no regular shape ({type(error).__name__}: {error}); "
                f"pass a batch as `envs.action_space.sample()` gives it"
            ) from error
        if array.shape != (count, *leaf.shape):
            raise InvalidActionError(
                f"actions{leaf.name} have shape {array.shape}; {count} environments take shape {(count, *leaf.shape)}"
            )
        if low is None:
            if array.dtype.kind not in "iufb" or not np.can_cast(array.dtype, leaf.dtype, "same_kind"):
                self._refuse_dtype(array, f"{leaf.dtype}", f"{leaf.dtype}")
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                self._refuse(array, ~np.isfinite(array), env_ids)
            return array
        if array.dtype.kind not in self._kinds:
            self._refuse_dtype(array, "integers", "int64")
        if array.dtype == np.int64 and type(low) is int and low == 0:
            fine = not array.size or array.view(np.uint64).max() <= high  # negative ones look huge: one pass
        else:
            fine = ((array >= low) & (array <= high)).all()
        if not fine:
            self._refuse(array, (array < low) | (array > high), env_ids)
        return array

    def _refuse_dtype(self, array: np.ndarray, needed: str, dtype: str) -> NoReturn:
        raise InvalidActionError(
            f"actions{self.leaf.name} have dtype {array.dtype}, {self.leaf.space} needs {needed}; "
            f"convert with actions.astype(np.{dtype})"
        )

    def _refuse(self, array: np.ndarray, bad: np.ndarray, env_ids: np.ndarray | None) -> NoReturn:
        row = int(np.argmax(bad.reshape(len(array), -1).any(axis=1)))
        index = row if env_ids is None else int(env_ids[row])
        allowed = f"; take {self._low} to {self._high}" if isinstance(self._low, int) else ""
        raise InvalidActionError(
            f"action{self.leaf.name} {array[row]} of environment {index} is not in {self.leaf.space}{allowed}", index
        )


# ---------------------------------------------------------------------------------------------------------- the arrays
@dataclass(frozen=True)
class Layout:
    """What one environment needs in arrays: observation, action, reward, two flags, true state and its age."""

    observation_space: Space[Any]
    action_space: Space[Any]
    truth_dtype: np.dtype[Any] | None = None

    def nbytes(self, n: int) -> int:
        """Size of `Buffers` for n environments."""
        return sum(_padded(n * dtype.itemsize * int(np.prod(shape))) for shape, dtype in self.fields())

    def fields(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of a row of each array, in the order of `Buffers`, trees as their leaves."""
        both = [*leaves(self.observation_space), *leaves(self.action_space)]
        scalars = [np.dtype(scalar) for scalar in (np.float64, np.bool_, np.bool_, np.int32)]
        truth = [] if self.truth_dtype is None else [self.truth_dtype]
        return [(leaf.shape, leaf.dtype) for leaf in both] + [((), dtype) for dtype in scalars + truth]


@dataclass
class Buffers:
    """The arrays of some environments, one row each. The same class for all of them and for one worker's slice."""

    observations: Tree  # of arrays (n, ...)
    actions: Tree  # of arrays (n, ...)
    rewards: np.ndarray  # (n,) float64
    terminated: np.ndarray  # (n,) bool
    truncated: np.ndarray  # (n,) bool
    age: np.ndarray  # (n,) int32, steps since the true state was refreshed, -1 for never
    truth: np.ndarray | None = None  # (n,) structured array of true states, None if they are not typed

    @classmethod
    def allocate(cls, layout: Layout, n: int, memory: memoryview | None = None) -> Self:
        """Arrays for n environments, in private memory (zeroed, true states never fetched) unless `memory` is given."""
        block = memoryview(bytearray(max(layout.nbytes(n), 1))) if memory is None else memory
        arrays, offset = [], 0
        for shape, dtype in layout.fields():
            count = n * int(np.prod(shape))
            arrays.append(np.frombuffer(block, dtype, count, offset).reshape(n, *shape))
            offset += _padded(count * dtype.itemsize)
        parts = iter(arrays)
        observations, actions = assemble(layout.observation_space, parts), assemble(layout.action_space, parts)
        buffers = cls(observations, actions, *parts)
        if memory is None:
            buffers.age[:] = -1
        return buffers

    def results(self) -> tuple[Any, ...]:
        """Everything but the actions: what a worker without shared memory sends back."""
        return self.observations, self.rewards, self.terminated, self.truncated, self.age, self.truth

    def put_results(self, rows: Any, results: tuple[Any, ...]) -> None:
        """Take the `results` of other buffers into these rows; those that are None leave theirs as they are."""
        assign(self.results(), rows, results)

    def part(self, first: int, stop: int) -> "Buffers":
        return Buffers(*(rows_of(getattr(self, field.name), slice(first, stop)) for field in fields(self)))


def _padded(size: int) -> int:
    """Round up, so that every array starts on a cache line of its own (64 bytes)."""
    return -(-size // 64) * 64
