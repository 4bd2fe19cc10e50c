"""`stockade runs`: what was trained or searched, how far it came, how good it is; and what differs between runs.

runs/NAME/ config.json, metrics.csv or summary.json, lock, failure.txt -> a summary of each -> tables
"""

from __future__ import annotations

import json as jsonlib
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from stockade.errors import InputError, did_you_mean
from stockade.files import JsonFile, json_output
from stockade.learn.config import RENAMED
from stockade.learn.files import check_runs, is_running
from stockade.learn.metrics import WINDOW, read_metrics
from stockade.text import Table, fixed, interval, sparkline

#: Settings of which the returns of two runs depend directly: they do not compare if one differs.
WORLD = ("red", "horizon", "horizons", "rules", "reward")
Status = Literal["running", "finished", "interrupted", "failed"]
#: Episode counts at which curves are shown.
POINTS = 8


@dataclass(frozen=True)
class Summary:
    """A training run or a search.

    Attributes:
        status: `interrupted` ones continue with --resume; `failed` ones ended with an error, which is `failure`.
    """

    name: str
    status: Status
    failure: str | None
    red: str
    rules: str
    obs: str
    seed: int
    total_episodes: int
    episodes: int

    @property
    def progress(self) -> str:
        """Episodes played, and of how many if it is not finished."""
        return f"{self.episodes:,}" + ("" if self.status == "finished" else f" of {self.total_episodes:,}")


@dataclass(frozen=True)
class RunSummary(Summary):
    """A training run.

    Attributes:
        last: mean return of its last 1000 episodes; NaN before the first. best: the highest such mean at any time.
    """

    last: float
    best: float
    seconds: float


@dataclass(frozen=True)
class SearchSummary(Summary):
    """A search for the best repair order.

    Attributes:
        orders: tried. best: the best of them, or several that are equal; None if none is yet. value: of it.
    """

    orders: int
    best: str | None
    value: float


# -------------------------------------------------------------------------------------------------------------- reading
def read_settings(folder: Path) -> dict[str, Any]:
    """Settings of a run by their present names; those of the learner and the like are not nested."""
    flat: dict[str, Any] = {}
    for name, value in jsonlib.loads((folder / "config.json").read_text()).items():
        flat |= value if isinstance(value, dict) and name != "reward" else {RENAMED.get(name, name): value}
    return flat


def read_summary(folder: Path) -> RunSummary | SearchSummary:
    """Of a run's or search's folder.

    Raises:
        InputError: a file in it is damaged.
    """
    try:
        settings = read_settings(folder)
        facts = {name: settings[name] for name in ("red", "rules", "obs", "seed", "total_episodes")}
        if settings.get("command") == "search":
            return _read_search(folder, facts)
        rows = read_metrics(folder / "metrics.csv")
        means = [row["return_window"] for row in rows if row["episodes"] >= WINDOW]
        last = rows[-1] if rows else {"episodes": 0.0, "return_window": math.nan, "seconds": 0.0}
        status, failure = _status(folder, last["episodes"] >= facts["total_episodes"])
        return RunSummary(
            folder.name, status, failure, **facts, episodes=int(last["episodes"]), last=last["return_window"],
            best=max((m for m in means if not math.isnan(m)), default=math.nan), seconds=last["seconds"],
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder}: damaged, {type(error).__name__}: {error}") from error


def _read_search(folder: Path, facts: dict[str, Any]) -> SearchSummary:
    path = folder / "summary.json"
    summary: dict[str, Any] = jsonlib.loads(path.read_text()) if path.exists() else {"best": None}
    best: Any = summary["best"]
    order, value = None, math.nan
    if isinstance(best, list):
        values = {entry["order"]: entry["value"] for entry in summary["classes"]}
        order, value = ", ".join(best), max((values[name] for name in best if name in values), default=math.nan)
        done, number = sum(entry["episodes"] for entry in summary["classes"]), len(values)
    else:  # version 0.1.0, or nothing is finished yet
        if best is not None:
            order, value = best["name"] or best["order"], best["mean"]
        done, number = summary.get("budget", {}).get("used", 0), len(summary.get("workflows", []))
    status, failure = _status(folder, bool(summary.get("ended")))
    facts["total_episodes"] = facts["total_episodes"] or done
    return SearchSummary(folder.name, status, failure, **facts, episodes=done, orders=number, best=order, value=value)


def _status(folder: Path, done: bool) -> tuple[Status, str | None]:
    if is_running(folder):
        return "running", None
    path = folder / "failure.txt"
    if path.exists():
        return "failed", path.read_text().strip()
    return "finished" if done else "interrupted", None


# -------------------------------------------------------------------------------------------------------------- command
@dataclass(frozen=True)
class RunsConfig:
    """List runs and searches, best first. With two or more names, compare them."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAMES", help_behavior_hint="")] = ()
    """Only runs whose name is, or else contains, one of these."""
    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs")
    """Folder of all runs."""
    json: JsonFile = None
    """Write the list to this file too; - is standard output."""

    def run(self) -> int:
        """Print one line per run; exit code 1 if there is none."""
        check_runs(self.runs)
        with json_output(self.json) as write:
            summaries = []
            for folder in self._folders():
                try:
                    summaries.append(read_summary(folder))
                except InputError as error:
                    print(f"skipped {error}", file=sys.stderr)
            trained = [s for s in summaries if isinstance(s, RunSummary)]
            searched = [s for s in summaries if isinstance(s, SearchSummary)]
            trained.sort(key=lambda r: -r.last if not math.isnan(r.last) else math.inf)
            searched.sort(key=lambda s: -s.value if not math.isnan(s.value) else math.inf)
            write([asdict(summary) for summary in (*trained, *searched)])
            if not summaries:
                print(f"there are no runs in {self.runs}")
                return 1
            print("\n\n".join(_tables(trained, searched)))
            if len(self.names) > 1 and len(summaries) > 1:
                print("\n" + compare([self.runs / s.name for s in summaries]))
        return 0

    def _folders(self) -> list[Path]:
        """Those that were asked for, in the order in which they were named."""
        known = sorted(path.parent for path in self.runs.glob("*/config.json"))
        if not self.names:
            return known
        found: dict[Path, None] = {}
        for name in self.names:
            exact = [f for f in known if f.name == name]
            some = exact or [f for f in known if name in f.name]
            if not some:
                raise InputError(f"there is no run {name!r} in {self.runs}."
                                 f"{did_you_mean(name, [f.name for f in known])}")  # fmt: skip
            found |= dict.fromkeys(some)
        return list(found)


def _tables(trained: list[RunSummary], searched: list[SearchSummary]) -> list[str]:
    parts = []
    if trained:
        head = ["run", "status", "red", "rules", "obs", "seed", "episodes", "last 1000", "best", "ep/s"]
        rows = [[r.name, r.status, r.red, r.rules, r.obs, str(r.seed), r.progress, fixed(r.last), fixed(r.best),
                 f"{r.episodes / r.seconds:.0f}" if r.seconds else ""] for r in trained]  # fmt: skip
        parts.append(str(Table(head, rows)))
    if searched:
        head = ["search", "status", "red", "rules", "obs", "seed", "episodes", "orders", "value", "best order"]
        rows = [[s.name, s.status, s.red, s.rules, s.obs, str(s.seed), s.progress, str(s.orders), fixed(s.value),
                 s.best or "none yet"] for s in searched]  # fmt: skip
        parts.append(str(Table(head, rows)))
    failures = [f"{s.name} failed: {s.failure}" for s in (*trained, *searched) if s.failure]
    return [*parts, "\n".join(failures)] if failures else parts


# ----------------------------------------------------------------------------------------------------------- comparison
def compare(folders: Sequence[Path]) -> str:
    """Settings that differ, and for training runs their curves and the difference of their last returns."""
    settings = [read_settings(folder) for folder in folders]
    names = [name for name in dict.fromkeys(key for s in settings for key in s) if name not in ("stockade", "command")]
    unequal = [name for name in names if any(s.get(name) != settings[0].get(name) for s in settings)]
    heads = [folder.name for folder in folders]
    rows = [[name, *("-" if s.get(name) is None else str(s[name]) for s in settings)] for name in unequal]
    parts = [str(Table(["setting", *heads], rows, "Settings that differ"))] if rows else ["All settings are equal."]
    curves = {f.name: read_metrics(f / "metrics.csv") for f in folders}
    if all(curves.values()):
        parts += [_curve_table(curves), _difference_table(folders, curves)]
        if others := [name for name in WORLD if name in unequal]:
            parts.append(f"These runs met different worlds ({', '.join(others)}), so their returns do not compare.\n"
                         "Play them in the same ones: stockade evaluate NAME")  # fmt: skip
    return "\n\n".join(parts)


def _curve_table(curves: dict[str, list[dict[str, float]]]) -> str:
    """Mean returns at episode counts that all runs have reached."""
    reached = min(rows[-1]["episodes"] for rows in curves.values())
    counts = [round(reached * (k + 1) / POINTS) for k in range(POINTS)]
    columns = []
    for rows in curves.values():
        before = [[row["return_window"] for row in rows if row["episodes"] <= count] for count in counts]
        columns.append([values[-1] if values else math.nan for values in before])
    body: list[list[object]] = [[count, *(fixed(column[k]) for column in columns)] for k, count in enumerate(counts)]
    body.append(["curve", *map(sparkline, columns)])
    title = f"Mean return of the last {WINDOW} training episodes"
    return str(Table(["episodes", *curves], body, title, "r" * (1 + len(curves))))


def _difference_table(folders: Sequence[Path], curves: dict[str, list[dict[str, float]]]) -> str:
    samples = [_last_returns(folder) for folder in folders]
    rows = []
    for folder, sample in zip(folders, samples, strict=True):
        own, minus = _mean(sample), ""
        if folder != folders[0]:
            means, halves = zip(_mean(samples[0]), own, strict=True)
            minus = interval(means[1] - means[0], math.hypot(*halves))
        validations = [row["validation"] for row in curves[folder.name] if not math.isnan(row["validation"])]
        rows.append([folder.name, interval(*own), minus, fixed(validations[-1]) if validations else ""])
    table = Table(["run", f"last {WINDOW} episodes", f"minus {folders[0].name}", "validation"], rows, "At the end")
    return f"{table}\n± is a 95% interval over episodes; another seed of training can differ by more."


def _mean(sample: np.ndarray) -> tuple[float, float]:
    """Mean and half width of its 95% interval."""
    if len(sample) < 2:
        return math.nan, math.nan
    return float(sample.mean()), 1.96 * float(sample.std(ddof=1)) / math.sqrt(len(sample))


def _last_returns(folder: Path) -> np.ndarray:
    """Returns of the last training episodes at the last checkpoint; none if it cannot be read."""
    try:
        from stockade.learn.checkpoint import CheckpointFolder

        return CheckpointFolder(folder / "checkpoints").load_last().arrays["window"]
    except (ModuleNotFoundError, InputError, KeyError):
        return np.empty(0)
