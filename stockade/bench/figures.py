"""One measured figure: the median of its rounds, their range, and tags that say what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Tag = str | int | float


@dataclass(frozen=True)
class Figure:
    """One line of a result.

    Attributes:
        what: a short name of the case, unique within a result together with the tags.
        value: median of the rounds.
        unit: of the value.
        low, high: range of the rounds.
        rounds: what each round gave.
        tags: facts about the case for tables and pictures, such as backend and n_envs.
    """

    what: str
    value: float
    unit: str
    low: float
    high: float
    rounds: tuple[float, ...] = ()
    tags: dict[str, Tag] = field(default_factory=dict)


def figure_of(what: str, rounds: Iterable[float], unit: str, /, **tags: Tag) -> Figure:
    """Median and range of the rounds."""
    values = tuple(float(value) for value in rounds)
    return Figure(what, statistics.median(values), unit, min(values), max(values), values, tags)


def ratios(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Round by round: what was measured at the same time is compared with each other."""
    return [x / y for x, y in zip(a, b, strict=True)]
