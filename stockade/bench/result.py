"""The one format of results: figures, and what they were measured on and with -> a JSON file -> the result again."""

from __future__ import annotations

import json as jsonlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stockade.bench.stamp import describe
from stockade.errors import InputError
from stockade.files import as_json, write_durably
from stockade.text import Table, median_range

Tag = str | int | float
Tags = dict[str, Any]
"""By name: words and numbers."""
RESULTS = Path("benchmarks/results")
"""Where results are kept: in a checkout, those that the documentation shows."""
_FORMS = {"n_envs": "n={:,}", "workers": "{:,} workers", "threads": "{} threads", "step_us": "steps of {:g} us",
          "sigma": "sigma {}", "to": "to {}", "parallel": "{} at a time", "seed": "seed {}", "judged": "{:,} judged",
          "budget": "{:,} episodes", "episodes": "{:,} episodes"}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
        tags: what was measured, such as backend and n_envs; with the unit they identify it within a result.
        unit: of the rounds.
        rounds: what each round gave.
    """

    tags: Tags
    unit: str
    rounds: tuple[float, ...]

    @property
    def value(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.rounds)

    @property
    def name(self) -> str:
        """For people, made of the tags."""
        return ", ".join(_FORMS.get(name, "{}").format(tag) for name, tag in self.tags.items())

    @property
    def text(self) -> str:
        """Median and range."""
        return median_range(self.value, min(self.rounds), max(self.rounds))

    def over(self, base: Figure, to: Tag) -> Figure:
        """The ratio to another, called `to`, round by round: what was measured at the same time is compared."""
        ratios = tuple(a / b for a, b in zip(self.rounds, base.rounds, strict=True))
        return Figure({**self.tags, "to": to}, "times", ratios)


def find(figures: Sequence[Figure], unit: str | None = None, **tags: Tag | tuple[Tag, ...] | None) -> list[Figure]:
    """Those with this unit and these tags: one value of a tuple is enough, None is for a tag that they lack."""
    wanted = {name: tag if isinstance(tag, tuple) else (tag,) for name, tag in tags.items()}
    return [figure for figure in figures if unit in (None, figure.unit)
            and all(figure.tags.get(name) in choice for name, choice in wanted.items())]  # fmt: skip


@dataclass(frozen=True)
class Skipped:
    """A case that was asked for and could not be measured, and why, with what to do about it."""

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
        figures, skipped: what was measured, and what was not.
    """

    bench: str
    command: str
    stamp: dict[str, Any]
    settings: dict[str, Any]
    seconds: float
    figures: tuple[Figure, ...]
    skipped: tuple[Skipped, ...] = field(default=())


def content_of(result: Result) -> dict[str, Any]:
    """For JSON; figures that are no numbers are refused."""
    wrong = [figure.name for figure in result.figures if not all(map(math.isfinite, figure.rounds))]
    if wrong:
        raise ValueError(f"figures must be finite numbers, but not all are: {', '.join(wrong)}")
    return asdict(result)


def write_result(path: Path, result: Result) -> None:
    """Write it as JSON: after a crash there is the old file or the new one."""
    write_durably(path.absolute(), as_json(content_of(result)).encode() + b"\n")


def read_result(path: Path) -> Result:
    """Read a file of `write_result`, also one of version 0.1.0.

    Raises:
        InputError: there is none, or it is something else.
    """
    try:
        content = jsonlib.loads(path.read_bytes())
        figures = tuple(_figure_of(content["bench"], entry) for entry in content["figures"])
        skipped = tuple(Skipped(str(entry["what"]), str(entry["why"])) for entry in content["skipped"])
        stamp, settings = {**content["stamp"]}, {**content["settings"]}
        seconds = float(content["seconds"])
        return Result(str(content["bench"]), str(content["command"]), stamp, settings, seconds, figures, skipped)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        kinds = {KeyError: "it has no ", jsonlib.JSONDecodeError: "it is no JSON: "}
        what = f"{kinds.get(type(error), '')}{error}"
        raise InputError(
            f"{path} is no result of a bench: {what}; make one with `stockade bench NAME --json FILE`"
        ) from error


def read_results(path: Path) -> dict[str, Result]:
    """All results of a folder, or the one of a file, by name of the bench.

    Raises:
        InputError: there is nothing, a file is something else, or two are of the same bench.
    """
    results: dict[str, Result] = {}
    origin: dict[str, Path] = {}
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        result = read_result(file)
        if result.bench in results:
            first = origin[result.bench]
            raise InputError(f"{first} and {file} are both results of bench {result.bench}: delete one of them")
        results[result.bench], origin[result.bench] = result, file
    return results


def print_result(result: Result) -> None:
    """Machine, figures, and what was left out."""
    print(describe(result.stamp))
    if result.figures:
        rows = [[figure.name, figure.text, figure.unit] for figure in result.figures]
        print(Table(["case", "median (range)", "unit"], rows, align="lrl"))
    for why in dict.fromkeys(skip.why for skip in result.skipped):
        print(f"left out: {'; '.join(skip.what for skip in result.skipped if skip.why == why)}: {why}")
    print(f"{len(result.figures)} figures in {result.seconds:.0f} s", flush=True)


def _figure_of(bench: str, entry: dict[str, Any]) -> Figure:
    tags, rounds = dict(entry["tags"]), tuple(float(value) for value in entry["rounds"])
    if "what" in entry:  # version 0.1.0 named the kernel's figures by sentences, and said whose a backend is
        tags = {"case": entry["what"]} if bench == "kernel" else tags
        tags = {name: tag for name, tag in tags.items() if (name, tag) not in (("kind", "ours"), ("kind", "peer"))}
    if not rounds or not all(map(math.isfinite, rounds)):
        raise ValueError(f"figure {tags} has numbers that are not finite, or none")
    return Figure(tags, str(entry["unit"]).replace(" an iteration", " per iteration"), rounds)
