"""The one format of results: figures, and what they were measured on and with <-> a JSON file."""

from __future__ import annotations

import json as jsonlib
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stockade.errors import InputError
from stockade.files import as_json, write_durably
from stockade.text import Table, median_range

Tag = str | int | float
Tags = dict[str, Any]  # By name: words and numbers
RESULTS = Path("benchmarks/results")  # Where results are kept: in a checkout, those that the documentation shows
_FORMS = {"n_envs": "n={:,}", "workers": "{:,} workers", "threads": "{} threads", "step_us": "steps of {:g} us",
          "sigma": "sigma {}", "to": "to {}", "parallel": "{} at a time", "seed": "seed {}", "judged": "{:,} judged",
          "budget": "{:,} episodes", "episodes": "{:,} episodes"}  # fmt: skip


def name_of(tags: Tags) -> str:
    """Tags for people."""
    return ", ".join(_FORMS.get(name, "{}").format(tag) for name, tag in tags.items())


@dataclass(frozen=True)
class Figure:
    """One measured figure: `tags` and unit identify it within a result; `rounds` is what each round gave."""

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
        return name_of(self.tags)

    @property
    def text(self) -> str:
        """Median and range."""
        return median_range(self.value, min(self.rounds), max(self.rounds))

    def over(self, base: Figure, to: Tag) -> Figure:
        """The ratio to another, called `to`, round by round: what was measured at the same time is compared."""
        ratios = tuple(a / b for a, b in zip(self.rounds, base.rounds, strict=True))
        return Figure({**self.tags, "to": to}, "times", ratios)

    def turned_into(self, unit: str, change: Callable[[float], float]) -> Figure:
        """The same in another unit, round by round."""
        return Figure(self.tags, unit, tuple(map(change, self.rounds)))


def find(figures: Iterable[Figure], unit: str | None = None, **tags: Tag | tuple[Tag, ...] | None) -> list[Figure]:
    """Those with this unit and these tags: one value of a tuple is enough, None is for a tag that they lack."""
    wanted = {name: tag if isinstance(tag, tuple) else (tag,) for name, tag in tags.items()}
    return [figure for figure in figures if unit in (None, figure.unit)
            and all(figure.tags.get(name) in choice for name, choice in wanted.items())]  # fmt: skip


def in_order(values: Iterable[Tag]) -> list[Tag]:
    """Each once: numbers by size, words as they come."""
    unique = list(dict.fromkeys(values))
    return sorted(unique, key=float) if all(isinstance(value, (int, float)) for value in unique) else unique


@dataclass(frozen=True)
class Skipped:
    """A case that was asked for and could not be measured, and why, with what to do about it."""

    what: str
    why: str


@dataclass(frozen=True)
class Result:
    """What a bench found: `command` repeats it, `stamp` is `machine_stamp()` as it began, `settings` its options."""

    bench: str
    command: str
    stamp: dict[str, Any]
    settings: dict[str, Any]
    seconds: float
    figures: tuple[Figure, ...]
    skipped: tuple[Skipped, ...] = ()


Results = dict[str, Result]  # By name of the bench


def figures(results: Results, bench: str, unit: str | None = None, **tags: Any) -> list[Figure]:
    """Those of a bench with this unit and these tags; none if it was not run."""
    return find(results[bench].figures, unit, **tags) if bench in results else []


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
    """Read a file of `write_result`, also one of version 0.1.0; InputError if it is missing or something else."""
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
        advice = "make one with `stockade bench NAME --json FILE`"
        raise InputError(f"{path} is no result of a bench: {what}; {advice}") from error


def _figure_of(bench: str, entry: dict[str, Any]) -> Figure:
    tags, rounds = dict(entry["tags"]), tuple(float(value) for value in entry["rounds"])
    if "what" in entry:  # version 0.1.0 named the kernel's figures by sentences, and said whose a backend is
        tags = {"case": entry["what"]} if bench == "kernel" else tags
        tags = {name: tag for name, tag in tags.items() if (name, tag) not in (("kind", "ours"), ("kind", "peer"))}
    if not rounds or not all(map(math.isfinite, rounds)):
        raise ValueError(f"figure {tags} has numbers that are not finite, or none")
    return Figure(tags, str(entry["unit"]).replace(" an iteration", " per iteration"), rounds)


def read_results(path: Path) -> Results:
    """All results of a folder, or the one of a file; InputError also if two are of the same bench."""
    files: dict[str, Path] = {}
    results: Results = {}
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        result = read_result(file)
        first = files.setdefault(result.bench, file)
        if first != file:
            raise InputError(f"{first} and {file} are both results of bench {result.bench}: delete one of them")
        results[result.bench] = result
    return results


def flat_table(figures: Sequence[Figure], first: str = "case") -> Table:
    """One row per figure."""
    rows = [[figure.name, figure.text, figure.unit] for figure in figures]
    return Table([first, "median (range)", "unit"], rows, align="lrl")


def print_result(result: Result) -> None:
    """Machine, figures, and what was left out."""
    stamp = result.stamp
    versions = ", ".join(f"{name} {version}" for name, version in stamp["packages"].items())
    print(f"{stamp['cores']} cores of {stamp['cpu']}, Python {stamp['python']}, {versions}; load {stamp['load']}")
    if result.figures:
        print(flat_table(result.figures))
    for why in dict.fromkeys(skip.why for skip in result.skipped):
        print(f"left out: {'; '.join(skip.what for skip in result.skipped if skip.why == why)}: {why}")
    print(f"{len(result.figures)} figures in {result.seconds:.0f} s", flush=True)
