"""What all benches have in common: options -> checks -> cases measured in turns -> a `Result`, printed and written.

Cases that are compared form a group and take turns round by round, so that a busy minute hits all alike. A case opens
what it needs in its round and closes it: a hundred idle processes of the others would cost a few percent of every core.
"""

import dataclasses
import gc
import math
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

from tqdm import tqdm

from stockade.bench.result import Figure, Result, Tags, machine_stamp, name_of
from stockade.errors import InputError, flag_of
from stockade.files import JsonFile, json_output

Turn = Callable[[], int]  # One call: some environment steps; returns how many
Words = tuple[str, ...]
Numbers = tuple[int, ...]


class Sample(NamedTuple):
    """One number of one round; `tags` are added to those of its case."""

    unit: str
    value: float
    tags: Tags = {}  # noqa: RUF012 - never changed


@dataclass
class Case:
    """Something to measure: `round` measures once; `why_not` says why it cannot be measured, empty if it can. Faults of
    another library's (`foreign`) case are noted and do not stop the bench."""

    tags: Tags
    round: Callable[[], Iterable[Sample]]
    why_not: str = ""
    foreign: bool = False
    samples: list[list[Sample]] = field(default_factory=list)  # of each round


def in_turns(groups: Sequence[Sequence[Case]], rounds: int, result: Result) -> list[list[Figure]]:
    """Figures of every case, group by group, noted and returned; cases that cannot be run are noted and left out."""
    total, measured = rounds * sum(not case.why_not for group in groups for case in group), []
    with tqdm(total=total, desc=f"bench {result.bench}", unit="case", disable=None) as progress:
        for group in groups:
            for case in (case for _ in range(rounds) for case in group if not case.why_not):
                progress.set_postfix_str(name_of(case.tags)[:40])
                try:
                    case.samples.append(list(case.round()))
                except Exception as error:
                    if not case.foreign:
                        raise
                    case.why_not = f"it failed with {type(error).__name__}: {error}"
                progress.update()
            for case in (case for case in group if case.why_not):
                result.skip(name_of(case.tags), case.why_not)
            measured.append([
                Figure({**case.tags, **same[0].tags}, same[0].unit, tuple(float(sample.value) for sample in same))
                for case in group if not case.why_not for same in zip(*case.samples, strict=True)
            ])  # fmt: skip
            result.figures += measured[-1]
    return measured


def rate(turn: Turn, seconds: float, least: int = 1) -> float:
    """Steps per second, after one turn more."""
    turn()
    begin, steps = time.perf_counter(), 0
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


def option(default: Any, *, quick: Any = None, choices: Collection[str] = (), least: float | None = None) -> Any:
    """An option of a bench: what `quick` makes of it if it was not given, the words that it takes, and its smallest
    value, if that is not 1 for whole numbers and more than 0 for others."""
    return field(default=default, metadata={"quick": quick, "choices": choices, "least": least})


@dataclass(frozen=True)
class BenchCommand:
    """A bench of the command line: subclasses, with their name, add options and `measure`."""

    rounds: int = option(3, quick=1)  # Rounds of each case; cases that are compared take turns.
    quick: bool = False  # For a first look, a few cases and short rounds: options that are not given become smaller.
    json: JsonFile = None  # Write the result to this file too; - for standard output.

    name: ClassVar[str]

    def __init_subclass__(cls, name: str) -> None:
        cls.name = name

    def measure(self, result: Result) -> None:
        """Fill in the figures, and what had to be left out."""
        raise NotImplementedError

    def run(self) -> int:
        with json_output(self.json) as write:
            result = self.result()
            result.print()
            write(result.content())
        return 0

    def result(self) -> Result:
        """Measure; InputError, before anything is done, if an option cannot be used."""
        sized = self.sized()
        sized.check()
        settings = {name: value for name, value in vars(sized).items() if name != "json"}
        result, begin = Result(self.name, self.command(), machine_stamp(), settings), time.perf_counter()
        sized.measure(result)
        result.seconds = time.perf_counter() - begin
        return result

    def sized(self) -> Self:
        """With `quick`, the options that were not given are smaller."""
        smaller = {f.name: f.metadata["quick"] for f in dataclasses.fields(self)
                   if f.metadata.get("quick") is not None and getattr(self, f.name) == f.default}  # fmt: skip
        return dataclasses.replace(self, **smaller) if self.quick else self

    def check(self) -> None:
        """Refuse options that cannot be used, before any work: unknown words, numbers that are too small."""
        for each in dataclasses.fields(self):
            value, flag = getattr(self, each.name), flag_of(each.name)
            known, least = each.metadata.get("choices"), each.metadata.get("least")
            if value == ():
                raise InputError(f"{flag} needs at least one value")
            for one in value if isinstance(value, tuple) else (value,):
                if known and one not in known:
                    raise InputError(f"{flag} {one} is unknown; take {', '.join(known)}")
                if not isinstance(one, int | float) or isinstance(one, bool):
                    continue
                smallest = 1 if least is None and isinstance(one, int) else least
                if not math.isfinite(one) or (one <= 0 if smallest is None else one < smallest):
                    what = "a number above 0" if smallest is None else f"at least {smallest:g}"
                    raise InputError(f"{flag} {one} must be {what}")

    def command(self) -> str:
        """The command line that repeats this."""
        words = ["stockade", "bench", self.name]
        for each in dataclasses.fields(self):
            value, flag = getattr(self, each.name), flag_of(each.name)
            if each.name == "json" or value == each.default:
                continue
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{flag[2:]}")
            else:
                words += [flag, *map(str, value if isinstance(value, tuple) else [value])]
        return shlex.join(words)
