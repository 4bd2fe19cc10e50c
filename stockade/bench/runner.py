"""Cases measured in turns: round -> samples -> figures.

Cases that are compared form a group and take turns round by round, so that a busy minute hits all alike. A case opens
what it needs in its round and closes it: a hundred idle processes of the others would cost a few percent of every core.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from tqdm import tqdm

from stockade.bench.command import Notes
from stockade.bench.result import Figure, Tags, name_of

Turn = Callable[[], int]  # One call: some environment steps; returns how many
Opening = Callable[[], AbstractContextManager[Turn]]  # Opens one way to run environments


class UnavailableError(Exception):
    """A case that cannot be run here; the message says why, and what would help."""


class Sample(NamedTuple):
    """One number of one round; `tags` are added to those of its case."""

    unit: str
    value: float
    tags: Tags = {}  # noqa: RUF012 - never changed


@dataclass(frozen=True)
class Case:
    """Something to measure: `round` measures once; `why_not` says why it cannot be measured, empty if it can.

    Faults of another library's (`foreign`) case are noted and do not stop the bench.
    """

    tags: Tags
    round: Callable[[], Iterable[Sample]]
    why_not: str = ""
    foreign: bool = field(default=False, kw_only=True)


def in_turns(groups: Sequence[Sequence[Case]], rounds: int, notes: Notes) -> list[list[Figure]]:
    """Figures of every case, group by group, noted and returned; cases that cannot be run are noted and left out."""
    for case in (case for group in groups for case in group if case.why_not):
        notes.skip(name_of(case.tags), case.why_not)
    chosen = [[case for case in group if not case.why_not] for group in groups]
    total, measured = rounds * sum(map(len, chosen)), []
    with tqdm(total=total, desc=f"bench {notes.label}", unit="case", disable=None) as progress:
        for group in chosen:
            found: dict[int, list[list[Sample]]] = {place: [] for place in range(len(group))}
            for _ in range(rounds):
                for place in tuple(found):
                    progress.set_postfix_str(name_of(group[place].tags)[:40])
                    why = _measure(group[place], found[place])
                    if why:
                        del found[place]
                        notes.skip(name_of(group[place].tags), why)
                    progress.update()
            measured.append([
                Figure({**group[place].tags, **same[0].tags}, same[0].unit, tuple(float(s.value) for s in same))
                for place, samples in found.items() for same in zip(*samples, strict=True)
            ])  # fmt: skip
            notes.figures += measured[-1]
    return measured


def _measure(case: Case, found: list[list[Sample]]) -> str:
    """One round; returns why it could not be run, if so."""
    try:
        found.append(list(case.round()))
    except UnavailableError as error:
        return str(error)
    except Exception as error:
        if not case.foreign:
            raise
        return f"it failed with {type(error).__name__}: {error}"
    return ""


def rate_case(tags: Tags, opening: Opening, seconds: float, least: int = 1, why_not: str = "",
              foreign: bool = False) -> Case:  # fmt: skip
    """Steps per second of one way to run environments, over rounds of so many seconds and at least so many steps."""

    def round_() -> list[Sample]:
        with opening() as turn, frozen_heap():
            return [Sample("steps/s", rate(turn, seconds, least))]

    return Case(tags, round_, why_not, foreign=foreign)


def rate(turn: Turn, seconds: float, least: int = 1) -> float:
    """Steps per second, after one turn more."""
    turn()
    begin = time.perf_counter()
    steps = 0
    while steps < least or time.perf_counter() - begin < seconds:
        steps += turn()
    return steps / (time.perf_counter() - begin)


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Only what is made from here on is searched for garbage: all that other libraries imported would slow every
    search, and true states, which are many objects, cause many."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
