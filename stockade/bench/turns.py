"""Cases measured in turns: open one way to run environments -> warm it up -> steps a second -> close -> the next.

Cases that are compared form a group and take turns round by round, so that a busy minute hits all alike. Only one is
open at a time: a hundred idle processes of the others would cost a few percent of every core.
"""

from __future__ import annotations

import gc
import importlib.util
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from tqdm import tqdm

from stockade.bench.command import Notes
from stockade.bench.figures import Figure, Tag, figure_of, ratios

Turn = Callable[[], int]
"""One call: some environment steps; returns how many."""
Opening = Callable[[], AbstractContextManager[Turn]]
"""Opens one way to run environments."""


class UnavailableError(Exception):
    """A case that cannot be run here; the message says why, and what would help."""


def installed(package: str) -> bool:
    """Whether a package can be imported; a mere folder of that name, which Python would take for one, cannot."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


@dataclass(frozen=True)
class Case:
    """One way to run environments.

    Attributes:
        what: its name.
        open: opens it.
        tags: of its figures.
        start: seconds that opening and closing it take, about, to tell how long all will.
        least: steps that a round has at least, however long they take.
        foreign: of another library, whose faults are noted and not ours to stop for.
    """

    what: str
    open: Opening
    tags: dict[str, Tag] = field(default_factory=dict)
    start: float = 0.2
    least: int = 1
    foreign: bool = False


@dataclass
class Measured:
    """A case and what its rounds gave."""

    case: Case
    rates: list[float] = field(default_factory=list)

    def figure(self, unit: str = "steps/s") -> Figure:
        """As measured."""
        return figure_of(self.case.what, self.rates, unit, **self.case.tags)

    def ratio(self, base: Measured) -> Figure:
        """To another of the group, round by round."""
        name = str(base.case.tags.get("backend", base.case.what))
        tags: dict[str, Tag] = {**self.case.tags, "to": name}
        return figure_of(f"{self.case.what}: ratio to {name}", ratios(self.rates, base.rates), "times", **tags)


def expected_seconds(groups: Sequence[Sequence[Case]], rounds: int, seconds: float) -> float:
    """How long `in_turns` will take, about."""
    return rounds * sum(1.5 * seconds + case.start for group in groups for case in group)


def in_turns(groups: Sequence[Sequence[Case]], rounds: int, seconds: float, notes: Notes) -> Iterator[list[Measured]]:
    """Steps a second of every case, group after group; those that cannot be run are noted and left out."""
    total = rounds * sum(len(group) for group in groups)
    with tqdm(total=total, desc=f"bench {notes.label}", unit="case", disable=None) as progress:
        for group in groups:
            measured = [Measured(case) for case in group]
            for _ in range(rounds):
                for one in tuple(measured):
                    progress.set_postfix_str(one.case.what[:40])
                    why = _measure(one, seconds)
                    if why:
                        measured.remove(one)
                        notes.skip(one.case.what, why)
                    progress.update()
            yield measured


def rate(turn: Turn, seconds: float, least: int = 1) -> float:
    """Steps a second, after one turn more."""
    turn()
    begin = time.perf_counter()
    steps = 0
    while steps < least or time.perf_counter() - begin < seconds:
        steps += turn()
    return steps / (time.perf_counter() - begin)


def _measure(one: Measured, seconds: float) -> str:
    """One round; returns why it could not be run, if so."""
    try:
        with one.case.open() as turn, frozen_heap():
            one.rates.append(rate(turn, seconds, one.case.least))
    except UnavailableError as error:
        return str(error)
    except Exception as error:
        if not one.case.foreign:
            raise
        return f"it failed with {type(error).__name__}: {error}"
    return ""


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Only what is made from here on is searched for garbage. Else true states, which are many objects, would have all
    that the peers imported searched again and again."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
