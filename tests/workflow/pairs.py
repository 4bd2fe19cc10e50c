"""Precedences of orders that are given by names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np


def pairs_of(orders: Sequence[Sequence[str]]) -> tuple[tuple[tuple[str, str], ...], np.ndarray]:
    """Pairs of units, each once, and (K, P) bool whether the first stands before the second in each order."""
    pairs = tuple(itertools.combinations(sorted(orders[0]), 2))
    precedes = [[order.index(a) < order.index(b) for a, b in pairs] for order in map(list, orders)]
    return pairs, np.array(precedes, np.bool_).reshape(len(orders), len(pairs))
