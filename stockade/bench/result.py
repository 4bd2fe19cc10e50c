"""The result of a bench: figures, and what they were measured on and with -> a JSON file -> the result again.

All benches write this one format, so that reports and comparisons need to know nothing of the single bench.
"""

from __future__ import annotations

import json as jsonlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stockade.bench.figures import Figure
from stockade.bench.stamp import describe
from stockade.errors import InputError
from stockade.learn.files import write_durably


@dataclass(frozen=True)
class Skipped:
    """A case that was asked for and could not be measured.

    Attributes:
        what: the case.
        why: in words for the user, with what to do about it.
    """

    what: str
    why: str


@dataclass(frozen=True)
class Result:
    """What a bench found.

    Attributes:
        bench: its name, as on the command line.
        command: repeats it.
        stamp: machine, versions, commit: `machine_stamp()` as the bench began.
        settings: its options and their values.
        seconds: how long it took.
        figures: what was measured.
        skipped: what was not, and why.
    """

    bench: str
    command: str
    stamp: dict[str, Any]
    settings: dict[str, Any]
    seconds: float
    figures: tuple[Figure, ...]
    skipped: tuple[Skipped, ...] = field(default=())


def write_result(path: Path, result: Result) -> None:
    """Write it as JSON: after a crash there is the old file or the new one."""
    content = asdict(result)
    try:
        text = jsonlib.dumps(content, indent=1, allow_nan=False)
    except ValueError:
        wrong = [f.what for f in result.figures if not all(map(math.isfinite, (f.value, f.low, f.high)))]
        raise ValueError(f"figures must be finite numbers, but not all are: {', '.join(wrong)}") from None
    write_durably(path.absolute(), text.encode() + b"\n")


def read_result(path: Path) -> Result:
    """Read a file of `write_result`.

    Raises:
        InputError: there is none, or it is something else.
    """
    try:
        content = jsonlib.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} is no result of a bench: it is no JSON ({error})") from error
    try:
        return _result_of(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path} is no result of a bench: {what}; make one with `stockade bench NAME --json FILE`"
        ) from error


def print_figures(figures: Sequence[Figure]) -> None:
    """A line a figure."""
    if not figures:
        return
    width = max(len(f.what) for f in figures)
    units = max(len(f.unit) for f in figures)
    for f in figures:
        print(f"{f.what:<{width}}  {_number(f.value):>12} {f.unit:<{units}}  ({_number(f.low)} to {_number(f.high)})")


def print_result(result: Result) -> None:
    """Machine, figures, and what was left out."""
    print(describe(result.stamp))
    print_figures(result.figures)
    for why in dict.fromkeys(skip.why for skip in result.skipped):
        print(f"left out: {'; '.join(skip.what for skip in result.skipped if skip.why == why)}: {why}")
    print(f"{len(result.figures)} figures in {result.seconds:.0f} s", flush=True)


def _result_of(content: dict[str, Any]) -> Result:
    figures = tuple(_figure_of(entry) for entry in content["figures"])
    skipped = tuple(Skipped(str(entry["what"]), str(entry["why"])) for entry in content["skipped"])
    stamp, settings = content["stamp"], content["settings"]
    if not isinstance(stamp, dict) or not isinstance(settings, dict):
        raise ValueError("its stamp and settings must be dictionaries")
    seconds = float(content["seconds"])
    return Result(str(content["bench"]), str(content["command"]), stamp, settings, seconds, figures, skipped)


def _figure_of(entry: dict[str, Any]) -> Figure:
    numbers = {name: float(entry[name]) for name in ("value", "low", "high")}
    rounds, tags = tuple(float(value) for value in entry["rounds"]), entry["tags"]
    if not all(map(math.isfinite, (*numbers.values(), *rounds))):
        raise ValueError(f"figure {entry['what']!r} has numbers that are not finite")
    if not isinstance(tags, dict):
        raise ValueError(f"the tags of figure {entry['what']!r} must be a dictionary")
    return Figure(what=str(entry["what"]), unit=str(entry["unit"]), rounds=rounds, tags=tags, **numbers)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
