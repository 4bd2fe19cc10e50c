"""What all benches have in common: options -> checks -> cases measured in turns -> a `Result`, printed and written."""

from __future__ import annotations

import dataclasses
import math
import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from stockade.bench.result import Figure, Result, Skipped, content_of, print_result
from stockade.bench.stamp import machine_stamp
from stockade.errors import InputError, flag_of
from stockade.files import JsonFile, json_output


@dataclass
class Notes:
    """What a bench finds while it runs: figures, and what could not be measured."""

    label: str = ""
    figures: list[Figure] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def skip(self, what: str, why: str) -> None:
        """Note a case that cannot be measured, once."""
        if Skipped(what, why) not in self.skipped:
            self.skipped.append(Skipped(what, why))


@dataclass(frozen=True)
class BenchCommand:
    """A bench of the command line: subclasses add options and `measure`."""

    rounds: int = 3  # Rounds of each case; cases that are compared take turns.
    quick: bool = False
    """A few cases and short rounds, for a first look: options that are left at their defaults become smaller."""
    json: JsonFile = None  # Write the result to this file too; - for standard output.

    name: ClassVar[str] = ""
    #: What `quick` makes of options that were not given.
    quick_settings: ClassVar[dict[str, Any]] = {}
    #: Words that an option takes.
    choices: ClassVar[dict[str, Any]] = {}
    #: Smallest value of an option, if it is not 1 for whole numbers and more than 0 for others.
    least: ClassVar[dict[str, Any]] = {}

    def measure(self, notes: Notes) -> None:
        """Fill in the figures, and what had to be left out."""
        raise NotImplementedError

    def run(self) -> int:
        """Measure, print, write."""
        with json_output(self.json) as write:
            result = self.result()
            print_result(result)
            write(content_of(result))
        return 0

    def result(self) -> Result:
        """Measure; InputError, before anything is done, if an option cannot be used."""
        sized = self.sized()
        sized.check()
        stamp, notes, begin = machine_stamp(), Notes(self.name), time.perf_counter()
        sized.measure(notes)
        settings = {name: str(v) if isinstance(v, Path) else v for name, v in vars(sized).items() if name != "json"}
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
        """Refuse options that cannot be used, before any work: unknown words, numbers that are too small."""
        for name, value in vars(self).items():
            flag, known, least = flag_of(name), self.choices.get(name), self.least.get(name)
            if value == ():
                raise InputError(f"{flag} needs at least one value")
            for one in value if isinstance(value, tuple) else (value,):
                if known is not None and one not in known:
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
        for option in dataclasses.fields(self):
            value, flag = getattr(self, option.name), flag_of(option.name)
            if option.name == "json" or value == option.default:
                continue
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{flag[2:]}")
            else:
                words += [flag, *map(str, value if isinstance(value, tuple) else [value])]
        return shlex.join(words)
