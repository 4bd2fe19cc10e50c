"""`stockade runs`: what was trained or searched, how far it came, how good it is; and what differs between runs.
`stockade export`: the policy of a run as two small files that `stockade.load` takes anywhere.

runs/NAME/ config.json, metrics.csv or summary.json, lock, failure.txt -> a summary of each -> tables
"""

import json as jsonlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from stockade.errors import InputError, SettingError, did_you_mean
from stockade.files import JsonFile, check_writable, json_output
from stockade.learn.config import RENAMED
from stockade.learn.evaluate import mean_interval
from stockade.learn.files import (
    LOWEST,
    WINDOW,
    check_runs,
    checkpoint_numbers,
    command_of,
    find_folder,
    find_run,
    is_running,
    read_metrics,
)
from stockade.text import Table, fixed, interval, plural, sparkline

#: Settings of which the returns of two runs depend directly: they do not compare if one differs.
WORLD = ("red", "horizon", "horizons", "rules", "reward")
POINTS = 8  #: episode counts at which curves are shown


# -------------------------------------------------------------------------------------------------------------- reading
def read_settings(folder: Path) -> dict[str, Any]:
    """Settings of a run by their present names; those of the learner and the like are not nested."""
    flat: dict[str, Any] = {}
    for name, value in jsonlib.loads((folder / "config.json").read_text()).items():
        flat |= value if isinstance(value, dict) and name != "reward" else {RENAMED.get(name, name): value}
    return flat


def read_summary(folder: Path) -> dict[str, Any]:
    """A run or a search as `--json` writes it; InputError if a file in its folder is damaged.

    Its status is `running`, `finished`, `interrupted` (--resume continues it) or `failed`, with the error as `failure`.
    """
    try:
        settings = read_settings(folder)
        running, command = is_running(folder), settings.get("command")
        if command == "exploit":
            settings |= {"side": "red", "blue": settings["policy"]}
        if settings.get("side") == "red":
            settings |= {"red": f"against {settings['blue']}", "obs": "red"}
        facts = {name: settings[name] for name in ("red", "rules", "obs", "seed", "total_episodes")}
        if command == "exploit":
            facts["total_episodes"] *= settings["seeds"]
            is_done, own = _read_exploit(folder, running)
        elif command == "search":
            is_done, own = _read_search(folder)
            facts["total_episodes"] = facts["total_episodes"] or own["episodes"]
        else:
            own = _read_run(folder, running)
            is_done = own["episodes"] >= facts["total_episodes"]
        status, failure = "finished" if is_done else "interrupted", None
        if running:
            status = "running"
        elif (folder / "failure.txt").exists():
            status, failure = "failed", (folder / "failure.txt").read_text().strip()
        return {"name": folder.name, "status": status, "failure": failure, **facts, **own}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder}: damaged, {type(error).__name__}: {error}") from error


def _read_run(folder: Path, running: bool) -> dict[str, Any]:
    """`last`: mean return of its last 1000 episodes, NaN before the first. `best`: the highest such mean ever.

    What came after the last checkpoint counts while it is running only: otherwise it is lost, and --resume repeats it.
    """
    rows = read_metrics(folder / "metrics.csv")
    if not running:
        saved = checkpoint_numbers(folder / "checkpoints") or [0]
        rows = [row for row in rows if row["iteration"] <= saved[-1]]
    means = [row["return_window"] for row in rows if row["episodes"] >= WINDOW and not math.isnan(row["return_window"])]
    last = rows[-1] if rows else {"episodes": 0, "return_window": math.nan, "seconds": 0.0}
    own = {"episodes": int(last["episodes"]), "last": last["return_window"], "seconds": last["seconds"]}
    return own | {"best": max(means, default=math.nan)}


def _read_exploit(folder: Path, running: bool) -> tuple[bool, dict[str, Any]]:
    """Whether it is done; its trainings together, `last` and `best` of the strongest attacker."""
    runs = [_read_run(path.parent, running) for path in sorted(folder.glob("seed*/config.json"))]
    own: dict[str, Any] = {name: sum(run[name] for run in runs) for name in ("episodes", "seconds")}
    for name in ("last", "best"):
        own[name] = max((run[name] for run in runs if not math.isnan(run[name])), default=math.nan)
    return (folder / "exploit.json").exists(), own


def _read_search(folder: Path) -> tuple[bool, dict[str, Any]]:
    """Whether it is done; `best`: the best order, or several that are equal, None if none is yet. `value`: of it."""
    path = folder / "summary.json"
    summary: dict[str, Any] = jsonlib.loads(path.read_text()) if path.exists() else {"best": None}
    best, value = summary["best"], math.nan
    if isinstance(best, list):
        values = {entry["order"]: entry["value"] for entry in summary["classes"]}
        best, value = ", ".join(best), max((values[name] for name in best if name in values), default=math.nan)
        done, number = sum(entry["episodes"] for entry in summary["classes"]), len(values)
    else:  # version 0.1.0, or nothing is finished yet
        if best is not None:
            best, value = best["name"] or best["order"], best["mean"]
        done, number = summary.get("budget", {}).get("used", 0), len(summary.get("workflows", []))
    return bool(summary.get("ended")), {"episodes": done, "orders": number, "best": best, "value": value}


# ------------------------------------------------------------------------------------------------------------- commands
@dataclass(frozen=True)
class ExportConfig:
    """Write a run's policy to files of its own: weights, and a card that says how it was trained."""

    run_name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]  # A run's name or folder.
    to: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """Writes FILE.json and its file of weights; `stockade evaluate FILE.json` plays it."""
    last: bool = False  # Take the last checkpoint instead of the best.
    # Whether a belief knows the rules, if the agent was trained to know them: without, it has to find them out.
    tell_rules: bool = True
    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs")  # Folder of all runs.

    def run(self) -> int:
        from stockade.learn.checkpoint import Checkpoint, CheckpointFolder, save

        to = self.to.with_suffix("") if self.to.suffix == ".json" else self.to
        check_writable(to.with_name(f"{to.name}.json"), "FILE")
        folder = find_folder(self.run_name, self.runs)
        if command_of(folder) != "exploit":  # which has a policy too
            folder = find_run(self.run_name, self.runs)
        saved = CheckpointFolder(folder / "checkpoints").load_best(self.last)
        rest, settings = saved.rest, jsonlib.loads((folder / "config.json").read_text())
        trained = {"settings": settings, **{name: rest[name] for name in ("episodes", "steps", "seconds")}}
        card = {name: rest[name] for name in ("obs", "architecture")} | {"trained": trained}
        card["score"] = None if self.last or rest["best"] == LOWEST else rest["best"]  # only the best was judged
        card |= {"side": "red"} if rest.get("side") == "red" else {}
        card["context_rules"] = rest.get("context_rules", rest.get("told_rules", False))
        if not self.tell_rules and not rest.get("belief_rules"):
            raise SettingError("tell_rules", False, "is for a belief that was trained to know the rules")
        card |= {"belief_rules": True} if rest.get("belief_rules") and self.tell_rules else {}
        weights = {name: array for name, array in saved.arrays.items() if name.startswith("policy.")}
        save(to, Checkpoint(weights, card))
        print(f"{to}.json: the policy of {folder} after {plural(rest['episodes'], 'episode')}")
        return 0


@dataclass(frozen=True)
class RunsConfig:
    """List runs and searches, best first. With two or more names, compare them."""

    names: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]", help_behavior_hint="")
    ] = ()
    """Only runs whose name is, or else contains, one of these."""
    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs")  # Folder of all runs.
    json: JsonFile = None  # Write the list to this file too; - is standard output.

    def run(self) -> int:
        check_runs(self.runs)
        with json_output(self.json) as write:
            summaries = []
            for folder in self._folders():
                try:
                    summaries.append(read_summary(folder))
                except InputError as error:
                    print(f"skipped {error}", file=sys.stderr)
            ranked = sorted(summaries, key=lambda s: np.nan_to_num(-s.get("last", s.get("value", 0)), nan=np.inf))
            trained, searched = [s for s in ranked if "last" in s], [s for s in ranked if "value" in s]
            write([*trained, *searched])
            if not summaries:
                print(f"there are no runs in {self.runs}")
                return 1
            print("\n\n".join(_tables(trained, searched)))
            if len(self.names) > 1 and len(summaries) > 1:
                print("\n" + compare([self.runs / s["name"] for s in summaries]))
        return 0

    def _folders(self) -> list[Path]:
        """Those that were asked for, in the order in which they were named."""
        known = sorted(path.parent for path in self.runs.glob("*/config.json"))
        if not self.names:
            return known
        found: dict[Path, None] = {}
        for name in self.names:
            some = [f for f in known if f.name == name] or [f for f in known if name in f.name]
            if not some:
                near = did_you_mean(name, [f.name for f in known])
                raise InputError(f"there is no run {name!r} in {self.runs}.{near}")
            found |= dict.fromkeys(some)
        return list(found)


def _row(s: dict[str, Any], *own: str) -> list[str]:
    progress = f"{s['episodes']:,}" + ("" if s["status"] == "finished" else f" of {s['total_episodes']:,}")
    return [*(str(s[name]) for name in ("name", "status", "red", "rules", "obs", "seed")), progress, *own]


def _tables(trained: list[dict[str, Any]], searched: list[dict[str, Any]]) -> list[str]:
    parts, head = [], ["status", "red", "rules", "obs", "seed", "episodes"]
    if trained:
        rates = (f"{s['episodes'] / s['seconds']:.0f}" if s["seconds"] else "" for s in trained)
        rows = [_row(s, fixed(s["last"]), fixed(s["best"]), rate) for s, rate in zip(trained, rates, strict=True)]
        parts.append(str(Table(["run", *head, "last 1000", "best", "ep/s"], rows)))
    if searched:
        rows = [_row(s, str(s["orders"]), fixed(s["value"]), s["best"] or "none yet") for s in searched]
        parts.append(str(Table(["search", *head, "orders", "value", "best order"], rows)))
    if failures := [f"{s['name']} failed: {s['failure']}" for s in (*trained, *searched) if s["failure"]]:
        parts.append("\n".join(failures))
    return parts


# ----------------------------------------------------------------------------------------------------------- comparison
def compare(folders: Sequence[Path]) -> str:
    """Settings that differ, and for training runs their curves and the difference of their last returns."""
    settings = [read_settings(folder) for folder in folders]
    names = [name for name in dict.fromkeys(key for s in settings for key in s) if name not in ("stockade", "command")]
    if len({s.get("command") for s in settings}) > 1:  # a run and a search: what both have
        names = [name for name in names if all(name in s for s in settings)]
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
        before = [[math.nan, *(r["return_window"] for r in rows if r["episodes"] <= count)] for count in counts]
        columns.append([values[-1] for values in before])
    body: list[list[object]] = [[count, *(fixed(column[k]) for column in columns)] for k, count in enumerate(counts)]
    body.append(["curve", *map(sparkline, columns)])
    title = f"Mean return of the last {WINDOW} training episodes"
    return str(Table(["episodes", *curves], body, title, "r" * (1 + len(curves))))


def _difference_table(folders: Sequence[Path], curves: dict[str, list[dict[str, float]]]) -> str:
    rows, first = [], mean_interval(_last_returns(folders[0]))
    for folder in folders:
        own = mean_interval(_last_returns(folder))
        minus = interval(own[0] - first[0], math.hypot(first[1], own[1])) if folder != folders[0] else ""
        validations = ["", *(fixed(r["validation"]) for r in curves[folder.name] if not math.isnan(r["validation"]))]
        rows.append([folder.name, interval(*own), minus, validations[-1]])
    table = Table(["run", f"last {WINDOW} episodes", f"minus {folders[0].name}", "validation"], rows, "At the end")
    return f"{table}\n± is a 95% interval over episodes; another seed of training can differ by more."


def _last_returns(folder: Path) -> np.ndarray:
    """Returns of the last training episodes at the last checkpoint; none if it cannot be read."""
    try:
        from stockade.learn.checkpoint import CheckpointFolder

        return CheckpointFolder(folder / "checkpoints").load_last().arrays["window"]
    except (ModuleNotFoundError, InputError, KeyError):
        return np.empty(0)
