"""One measured figure: the median of its rounds and their range."""

from __future__ import annotations

import statistics
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One line of a result."""

    what: str
    value: float
    unit: str
    low: float
    high: float


def figure_of(what: str, rounds: list[float], unit: str) -> Figure:
    """Median and range of the rounds."""
    return Figure(what, statistics.median(rounds), unit, min(rounds), max(rounds))
