"""`stockade runs`: what was trained or searched, how far it came, how good it is."""

from __future__ import annotations

import json as jsonlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tyro

from stockade.learn.metrics import read_metrics


@dataclass(frozen=True)
class RunSummary:
    """One run.

    Attributes:
        last: mean return of its last 1000 episodes. best: the highest such mean at any time.
        finished: it played all its episodes; otherwise `--resume` goes on with it.
    """

    name: str
    red: str
    rules: str
    obs: str
    seed: int
    episodes: int
    total_episodes: int
    last: float
    best: float
    seconds: float

    @property
    def finished(self) -> bool:
        """It played all its episodes."""
        return self.episodes >= self.total_episodes


@dataclass(frozen=True)
class SearchSummary:
    """One search for the best workflow.

    Attributes:
        workflows: trained. best: the best order; None as long as none was complied with. value: of it.
        finished: it is over; otherwise `--resume` goes on with it.
    """

    name: str
    red: str
    rules: str
    obs: str
    seed: int
    episodes: int
    total_episodes: int
    workflows: int
    best: str | None
    value: float
    finished: bool


def _read_facts(folder: Path) -> tuple[dict[str, Any], tuple[str, str, str, int], int] | None:
    """Settings, (red, rules, observation, seed) and total episodes; None if there is no readable config.json."""
    try:
        config: dict[str, Any] = jsonlib.loads((folder / "config.json").read_text())
        facts = config["red_agent"], config["rules"], config["obs"], config["seed"]
        return config, facts, config["total_episodes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_search(folder: Path) -> SearchSummary | None:
    """Of a search's folder; None if it is none."""
    found = _read_facts(folder)
    if found is None or found[0].get("command") != "search":
        return None
    _, facts, total = found
    try:
        summary: dict[str, Any] = jsonlib.loads((folder / "summary.json").read_text())
        best = summary["best"] or {"order": None, "name": None, "mean": math.nan}
        done, workflows, ended = summary["budget"]["used"], len(summary["workflows"]), summary["ended"] is not None
    except (OSError, ValueError, KeyError, TypeError):  # nothing was finished yet
        best, done, workflows, ended = {"order": None, "name": None, "mean": math.nan}, 0, 0, False
    return SearchSummary(
        folder.name, *facts, done, total, workflows, best["name"] or best["order"], best["mean"], ended
    )


def read_run(folder: Path) -> RunSummary | None:
    """Of a run's folder; None if it is none."""
    found = _read_facts(folder)
    if found is None or found[0].get("command") == "search":
        return None
    _, facts, total = found
    rows = read_metrics(folder / "metrics.csv")
    means = [row["return_window"] for row in rows if not math.isnan(row["return_window"]) and row["episodes"] >= 1000]
    last = rows[-1] if rows else None
    return RunSummary(
        folder.name, *facts, int(last["episodes"]) if last else 0, total,
        last["return_window"] if last else math.nan, max(means, default=math.nan), last["seconds"] if last else 0.0,
    )  # fmt: skip


@dataclass(frozen=True)
class RunsConfig:
    """List runs, best first, and compare them; names say where settings differ."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Only runs whose name contains one of these."""
    runs: Path = Path("runs")
    """Folder of all runs."""
    json: Path | None = None
    """Write the list to this file too."""

    def run(self) -> int:
        """Print a line a run; exit code 1 if there is none."""
        folders = sorted(path for path in self.runs.iterdir() if path.is_dir()) if self.runs.is_dir() else []
        wanted = [f for f in folders if not self.names or any(part in f.name for part in self.names)]
        found = [summary for summary in map(read_run, wanted) if summary is not None]
        found.sort(key=lambda r: -r.last if not math.isnan(r.last) else math.inf)
        searches = [summary for summary in map(read_search, wanted) if summary is not None]
        searches.sort(key=lambda s: -s.value if not math.isnan(s.value) else math.inf)
        if self.json is not None:
            entries = [asdict(run) for run in found] + [asdict(search) for search in searches]
            content = [{k: None if v != v else v for k, v in entry.items()} for entry in entries]
            self.json.write_text(jsonlib.dumps(content, indent=1) + "\n")
        if not found and not searches:
            print(f"there are no runs{' of that name' if folders else ''} in {self.runs}")
            return 1
        tables = ([_table(found)] if found else []) + ([_search_table(searches)] if searches else [])
        print("\n\n".join(tables))
        return 0


def _table(found: list[RunSummary]) -> str:
    head = ["run", "red", "rules", "obs", "seed", "episodes", "last 1000", "best", "ep/s", ""]
    rows = [
        [r.name, r.red, r.rules, r.obs, str(r.seed), f"{r.episodes:,}", f"{r.last:.2f}", f"{r.best:.2f}",
         f"{r.episodes / r.seconds:.0f}" if r.seconds else "", "" if r.finished else f"of {r.total_episodes:,}"]
        for r in found
    ]  # fmt: skip
    return _aligned([head, *rows], right=range(4, 9))


def _search_table(found: list[SearchSummary]) -> str:
    head = ["search", "red", "rules", "obs", "seed", "episodes", "workflows", "value", "best workflow", ""]
    rows = [
        [s.name, s.red, s.rules, s.obs, str(s.seed), f"{s.episodes:,}", str(s.workflows), f"{s.value:.2f}",
         s.best or "none complied", "" if s.finished else f"of {s.total_episodes:,}"]
        for s in found
    ]  # fmt: skip
    return _aligned([head, *rows], right=range(4, 8))


def _aligned(rows: list[list[str]], right: range) -> str:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = zip(row, widths, strict=True)
        aligned = [c.rjust(w) if k in right else c.ljust(w) for k, (c, w) in enumerate(cells)]
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)
