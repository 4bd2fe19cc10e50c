"""Spaces as arrays: single values -> rows of arrays (private memory, or one shared block) -> batches for the user.

Every supported space is a tree (Dict, Tuple) whose leaves (Box, Discrete, MultiDiscrete, MultiBinary) have a fixed
shape and dtype, so that n of them are a tree of arrays with n rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from stockade.vector.errors import UnsupportedSpaceError

Tree = Any
"""An array, or a dict or tuple of trees."""

_LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
_ALIGN = 64


@dataclass(frozen=True)
class Leaf:
    """One array-like part of a space."""

    path: tuple[Any, ...]
    space: Space[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def name(self) -> str:
        """The path as it reads in Python, for messages."""
        return "".join(f"[{key!r}]" for key in self.path)

    def of(self, value: Tree) -> Any:
        """This part of a value of the whole space."""
        for key in self.path:
            value = value[key]
        return value


def leaves(space: Space[Any], path: tuple[Any, ...] = ()) -> list[Leaf]:
    """All leaves of a space, in a fixed order."""
    if isinstance(space, spaces.Dict):
        return [leaf for key, sub in space.spaces.items() for leaf in leaves(sub, (*path, key))]
    if isinstance(space, spaces.Tuple):
        return [leaf for i, sub in enumerate(space.spaces) for leaf in leaves(sub, (*path, i))]
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
    """`function` of every array of a tree."""
    if isinstance(tree, dict):
        return {key: tree_map(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(tree_map(function, value) for value in tree)
    return function(tree)


def assign(target: Tree, rows: Any, source: Tree) -> None:
    """`target[rows] = source`, array by array."""
    if isinstance(target, dict):
        for key, value in target.items():
            assign(value, rows, source[key])
    elif isinstance(target, tuple):
        for value, part in zip(target, source, strict=True):
            assign(value, rows, part)
    else:
        target[rows] = source


def copied(value: Tree) -> Tree:
    """A value that shares no array with the original."""
    return tree_map(lambda part: part.copy() if isinstance(part, np.ndarray) else part, value)


def row_writer(space: Space[Any], tree: Tree) -> Callable[[int, Any], None]:
    """`write(i, value)`: put a value of `space` into row i of its tree of arrays."""
    parts = leaves(space)
    if parts and not parts[0].path:
        result: Callable[[int, Any], None] = tree.__setitem__
        return result
    targets = [(leaf, leaf.of(tree)) for leaf in parts]

    def write(i: int, value: Any) -> None:
        for leaf, array in targets:
            array[i] = leaf.of(value)

    return write


class RowReader:
    """Single values out of a tree of arrays that others will write to again, so always copies."""

    def __init__(self, space: Space[Any]) -> None:
        self._space = space
        self._parts = leaves(space)
        self._flat = bool(self._parts) and not self._parts[0].path

    def one(self, tree: Tree, i: int) -> Any:
        """The value in row i."""
        if self._flat:
            return tree[i].copy()
        return assemble(self._space, (leaf.of(tree)[i].copy() for leaf in self._parts))

    def all(self, tree: Tree) -> Any:
        """The values of all rows, one after the other."""
        if self._flat:
            return tree.copy()
        columns = [leaf.of(tree).copy() for leaf in self._parts]
        return [assemble(self._space, iter(row)) for row in zip(*columns, strict=True)]


def check_shape(space: Space[Any], value: Any) -> None:
    """Refuse a value that NumPy would silently broadcast into its row."""
    for leaf in leaves(space):
        shape = np.shape(leaf.of(value))
        if shape != leaf.shape:
            raise ValueError(f"the observation{leaf.name} has shape {shape}, its space {leaf.space} says {leaf.shape}")


@dataclass(frozen=True)
class Layout:
    """What one environment needs in arrays: observation, action, reward, two flags, true state and its age."""

    observation_space: Space[Any]
    action_space: Space[Any]
    truth_dtype: np.dtype[Any] | None = None

    def nbytes(self, n: int) -> int:
        """Size of `Buffers` for n environments."""
        return sum(_padded(n * dtype.itemsize * int(np.prod(shape))) for shape, dtype in self._fields())

    def _fields(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        parts = [
            (leaf.shape, leaf.dtype) for space in (self.observation_space, self.action_space) for leaf in leaves(space)
        ]
        scalars = [np.float64, np.bool_, np.bool_, np.int32]
        truth = [] if self.truth_dtype is None else [((), self.truth_dtype)]
        return parts + [((), np.dtype(scalar)) for scalar in scalars] + truth


@dataclass(frozen=True)
class Buffers:
    """The arrays of some environments, one row each. The same class for all of them and for one worker's slice.

    Attributes:
        observations: tree of arrays (n, ...).
        actions: tree of arrays (n, ...).
        rewards: (n,) float64.
        terminated: (n,) bool.
        truncated: (n,) bool.
        age: (n,) int32, steps since the true state was refreshed, -1 for never.
        truth: (n,) structured array of true states, or None if they are not typed.
    """

    observations: Tree
    actions: Tree
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    age: np.ndarray
    truth: np.ndarray | None

    @classmethod
    def allocate(cls, layout: Layout, n: int, memory: memoryview | None = None) -> Buffers:
        """Arrays for n environments, zeroed private ones unless `memory` is given."""
        if memory is None:
            memory = memoryview(bytearray(max(layout.nbytes(n), 1)))
        arrays, offset = [], 0
        for shape, dtype in layout._fields():
            count = n * int(np.prod(shape))
            arrays.append(np.frombuffer(memory, dtype, count, offset).reshape(n, *shape))
            offset += _padded(count * dtype.itemsize)
        parts = iter(arrays)
        observations = assemble(layout.observation_space, parts)
        actions = assemble(layout.action_space, parts)
        truth = None if layout.truth_dtype is None else arrays[-1]
        return cls(observations, actions, next(parts), next(parts), next(parts), next(parts), truth)

    def results(self) -> tuple[Any, ...]:
        """Everything but the actions: what a worker without shared memory sends back."""
        return self.observations, self.rewards, self.terminated, self.truncated, self.age, self.truth

    def put_results(self, first: int, stop: int, results: tuple[Any, ...]) -> None:
        """Take the `results` of a worker that has the rows first..stop-1."""
        rows = slice(first, stop)
        observations, *flat, truth = results
        assign(self.observations, rows, observations)
        for array, values in zip((self.rewards, self.terminated, self.truncated, self.age), flat, strict=True):
            array[rows] = values
        if self.truth is not None:
            self.truth[rows] = truth

    def part(self, first: int, stop: int) -> Buffers:
        """Views of the rows first..stop-1."""

        def cut(array: np.ndarray) -> np.ndarray:
            return array[first:stop]

        return Buffers(
            tree_map(cut, self.observations),
            tree_map(cut, self.actions),
            cut(self.rewards),
            cut(self.terminated),
            cut(self.truncated),
            cut(self.age),
            None if self.truth is None else cut(self.truth),
        )


def _padded(size: int) -> int:
    """Round up, so that every array starts on a cache line of its own."""
    return -(-size // _ALIGN) * _ALIGN
