"""The one format of results: figures, and what they were measured on and with -> a JSON file."""

import contextlib
import datetime
import importlib.metadata
import math
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from stockade.cores import available_cores
from stockade.text import Table, median_range, plural

Tag = str | int | float
Tags = dict[str, Any]  # By name: words and numbers
RESULTS = Path("benchmarks/results")  # Where results are kept: in a checkout, those that the documentation shows
QUICK_RESULTS = Path("bench-quick")  # Quick results must not take the place of those that the documentation is made of
_FORMS = {"n_envs": "n={:,}", "workers": "{:,} workers", "threads": "{} threads", "step_us": "steps of {:g} us",
          "sigma": "sigma {}", "to": "to {}", "parallel": "{} at a time", "seed": "seed {}", "judged": "{:,} judged",
          "budget": "{:,} episodes", "episodes": "{:,} episodes"}  # fmt: skip
_PACKAGES = ("stockade", "numpy", "numba", "gymnasium", "torch", "stable-baselines3", "sbx-rl", "rejax", "jax", "ray",
             "pufferlib", "envpool", "CybORG")  # fmt: skip


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
        return name_of(self.tags)

    @property
    def text(self) -> str:
        return median_range(self.value, min(self.rounds), max(self.rounds))

    def over(self, base: Self, unit: str = "times", factor: float = 1.0, **tags: Tag) -> Self:
        """The ratio to another round by round, for what was measured at the same time is compared, with more tags."""
        ratios = tuple(factor * (a / b) for a, b in zip(self.rounds, base.rounds, strict=True))
        return replace(self, tags={**self.tags, **tags}, unit=unit, rounds=ratios)

    def turned_into(self, unit: str, change: Callable[[float], float], **tags: Tag) -> Self:
        """The same in another unit, round by round, with more tags."""
        return replace(self, tags={**self.tags, **tags}, unit=unit, rounds=tuple(map(change, self.rounds)))


def find(figures: Iterable[Figure], unit: str | None = None, **tags: Tag | tuple[Tag, ...] | None) -> list[Figure]:
    """Those with this unit and these tags: one value of a tuple is enough, None is for a tag that they lack."""
    wanted = {name: tag if isinstance(tag, tuple) else (tag,) for name, tag in tags.items()}
    return [figure for figure in figures if unit in (None, figure.unit)
            and all(figure.tags.get(name) in choice for name, choice in wanted.items())]  # fmt: skip


def ratios(figures: Sequence[Figure], to: str, tag: str = "backend") -> list[Figure]:
    """Of each figure to the one that differs from it only by this value of a tag, if that was measured."""
    return [one.over(base, to=to) for one in figures if one.tags[tag] != to
            for base in find(figures, one.unit, **{**one.tags, tag: to})]  # fmt: skip


@dataclass(frozen=True)
class Skipped:
    """A case that was asked for and could not be measured, and why, with what to do about it."""

    what: str
    why: str


@dataclass
class Result:
    """What a bench finds: `command` repeats it, `stamp` is `machine_stamp()` as it began, `settings` its options."""

    bench: str = ""
    command: str = ""
    stamp: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    figures: list[Figure] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def skip(self, what: str, why: str) -> None:
        """Note a case that cannot be measured, once."""
        if Skipped(what, why) not in self.skipped:
            self.skipped.append(Skipped(what, why))

    def content(self) -> dict[str, Any]:
        """For JSON; figures that are no numbers are refused."""
        wrong = [figure.name for figure in self.figures if not all(map(math.isfinite, figure.rounds))]
        if wrong:
            raise ValueError(f"figures must be finite numbers, but not all are: {', '.join(wrong)}")
        return asdict(self)

    def print(self) -> None:
        """Machine, figures, and what was left out."""
        stamp = self.stamp
        versions = ", ".join(f"{name} {version}" for name, version in stamp["packages"].items())
        cores = plural(stamp["cores"], "core")
        print(f"{cores} of {stamp['cpu']}, Python {stamp['python']}, {versions}; load {stamp['load']}")
        if self.figures:
            print(flat_table(self.figures))
        for why in dict.fromkeys(skip.why for skip in self.skipped):
            print(f"left out: {'; '.join(skip.what for skip in self.skipped if skip.why == why)}: {why}")
        print(f"{len(self.figures)} figures in {self.seconds:.0f} s", flush=True)


def flat_table(figures: Sequence[Figure], first: str = "case") -> Table:
    """One row per figure."""
    rows = [[figure.name, figure.text, figure.unit] for figure in figures]
    return Table([first, "median (range)", "unit"], rows, align="lrl")


# --------------------------------------------------------------------------------------------------------------- stamp
def machine_stamp() -> dict[str, Any]:
    """What figures were measured on. The load tells whether the machine was busy with something else."""
    packages = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return {
        "cpu": _cpu_name(),
        "cores": available_cores(),
        "cache": _last_cache(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": packages,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "load": round(os.getloadavg()[0], 2),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = re.search(r"^model name\s*: (.*)$", info, re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def _last_cache() -> str | None:
    """Size of the last cache: figures over many worlds change where these no longer fit into it."""
    with contextlib.suppress(OSError, ValueError):
        caches = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")
        return max(((c / "level").read_text(), (c / "size").read_text().strip()) for c in caches)[1]
    return None


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout.strip() or None
    return None
