"""Seeds as users give them, checked: None, one int for all, or a list with one each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LARGEST_SEED = 2**64 - 1
SeedLike = int | Sequence[int | None] | np.ndarray | None


class Seeds(NamedTuple):
    """A seed for each world: values (n,) uint64, and which were given (n,) bool. The others' streams continue."""

    values: np.ndarray
    given: np.ndarray

    def each(self) -> list[int | None]:
        return [seed if given else None for seed, given in zip(self.values.tolist(), self.given.tolist(), strict=True)]

    def or_fresh(self) -> Seeds:
        """For worlds that have no stream yet: where none was given, one out of the operating system's randomness."""
        fresh = np.random.SeedSequence().generate_state(len(self.values), np.uint64)
        return Seeds(np.where(self.given, self.values, fresh), np.ones_like(self.given))


def read_seeds(seed: SeedLike, n: int) -> Seeds:
    """Seeds of n worlds: s, s+1, ... of an int; a list as it is; None for streams that continue."""
    if seed is None:
        return Seeds(np.zeros(n, np.uint64), np.zeros(n, np.bool_))
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        _check(seed)
        if int(seed) + n - 1 > LARGEST_SEED:
            last = f"the last of which takes {seed} + {n - 1}"
            raise ValueError(f"seed {seed} is out of range for {n} environments, {last}")
        return Seeds(np.uint64(seed) + np.arange(n, dtype=np.uint64), np.ones(n, np.bool_))
    if not isinstance(seed, (list, tuple, np.ndarray)):
        raise TypeError(f"a seed must be None, an int, or a list of them, not {type(seed).__name__}")
    if len(seed) != n:
        raise ValueError(f"{len(seed)} seeds were given for {n} environments; give one each, or one int")
    for one in seed:
        if one is not None:
            _check(one)
    given = np.array([one is not None for one in seed], np.bool_)
    return Seeds(np.array([0 if one is None else int(one) for one in seed], np.uint64), given)


def _check(seed: object) -> None:
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"a seed must be a whole number, not {seed!r}")
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed {seed} is out of range; take 0 to 2**64-1")
