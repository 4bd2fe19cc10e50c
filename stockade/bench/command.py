"""What all benches have in common: options -> checks -> cases measured in turns -> a `Result`, printed and written."""

from __future__ import annotations

import dataclasses
import math
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from stockade.bench.figures import Figure
from stockade.bench.result import Result, Skipped, print_result, write_result
from stockade.bench.stamp import machine_stamp
from stockade.errors import InputError


@dataclass
class Notes:
    """What a bench finds while it runs.

    Attributes:
        label: name of the bench, for the progress bar.
        figures: what was measured.
        skipped: what was not, and why.
    """

    label: str
    figures: list[Figure] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def skip(self, what: str, why: str) -> None:
        """Note a case that cannot be measured, once."""
        if Skipped(what, why) not in self.skipped:
            self.skipped.append(Skipped(what, why))


@dataclass(frozen=True)
class BenchCommand:
    """A bench of the command line: subclasses add options, `check` and `measure`."""

    rounds: int = 3
    """Rounds of each case; cases that are compared take turns."""
    quick: bool = False
    """A few cases and short rounds, for a first look: options that are left at their defaults become smaller."""
    json: Path | None = None
    """Write the result to this file too."""

    name: ClassVar[str] = ""
    #: What `quick` makes of options that were not given.
    quick_settings: ClassVar[dict[str, Any]] = {}

    def run(self) -> int:
        """Measure, print, write."""
        if self.json is not None and not self.json.absolute().parent.is_dir():
            raise InputError(f"--json {self.json}: there is no folder {self.json.parent}")
        result = self.result()
        print_result(result)
        if self.json is not None:
            write_result(self.json, result)
        return 0

    def result(self) -> Result:
        """Measure.

        Raises:
            InputError: an option cannot be used; nothing has been done then.
        """
        sized = self.sized()
        sized.check()
        stamp, notes, begin = machine_stamp(), Notes(self.name), time.perf_counter()
        sized.measure(notes)
        settings = {name: _plain(value) for name, value in vars(sized).items() if name != "json"}
        taken = time.perf_counter() - begin
        return Result(self.name, self.command(), stamp, settings, taken, tuple(notes.figures), tuple(notes.skipped))

    def sized(self) -> Self:
        """With `quick`, the options that were not given are smaller."""
        if not self.quick:
            return self
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        smaller = {name: v for name, v in self.quick_settings.items() if getattr(self, name) == defaults[name]}
        return dataclasses.replace(self, **smaller)

    def check(self) -> None:
        """Refuse options that cannot be used, before any work."""
        require_counts("--rounds", [self.rounds])

    def measure(self, notes: Notes) -> None:
        """Fill in the figures, and what had to be left out."""
        raise NotImplementedError

    def command(self) -> str:
        """The command line that repeats this."""
        words = ["stockade", "bench", self.name]
        for option in dataclasses.fields(self):
            value = getattr(self, option.name)
            if option.name == "json" or value == option.default:
                continue
            flag = f"--{option.name.replace('_', '-')}"
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{flag[2:]}")
            else:
                words += [flag, *(map(str, value) if isinstance(value, tuple) else [str(value)])]
        return shlex.join(words)


def announce(name: str, seconds: float) -> None:
    """Tell the user how long it will take, where he looks for progress."""
    told = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"
    print(f"bench {name}: about {told}", file=sys.stderr, flush=True)


def require_counts(option: str, values: Iterable[int], least: int = 1) -> None:
    """Whole numbers of at least so much, and at least one of them."""
    given = list(values)
    if not given:
        raise InputError(f"{option} needs at least one number")
    wrong = [value for value in given if value < least]
    if wrong:
        raise InputError(f"{option} {wrong[0]} must be at least {least}")


def require_seconds(option: str, value: float) -> None:
    """A time that can be waited for."""
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{option} {value} must be a time in seconds, more than 0")


def require_known(option: str, values: Sequence[str], known: Sequence[str]) -> None:
    """Names out of a list."""
    if not values:
        raise InputError(f"{option} needs at least one of {', '.join(known)}")
    unknown = [value for value in values if value not in known]
    if unknown:
        raise InputError(f"{option} {unknown[0]} is unknown; take {', '.join(known)}")


def _plain(value: Any) -> Any:
    """For JSON."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Path) else value
