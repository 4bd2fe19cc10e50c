"""`stockade runs`: what was trained, how far it came, how good it is."""

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


def read_run(folder: Path) -> RunSummary | None:
    """Of a run's folder; None if there is no readable config.json in it."""
    try:
        config: dict[str, Any] = jsonlib.loads((folder / "config.json").read_text())
        facts = config["red_agent"], config["rules"], config["obs"], config["seed"]
        total = config["total_episodes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
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
        if self.json is not None:
            content = [{k: None if v != v else v for k, v in asdict(r).items()} for r in found]
            self.json.write_text(jsonlib.dumps(content, indent=1) + "\n")
        if not found:
            print(f"there are no runs{' of that name' if folders else ''} in {self.runs}")
            return 1
        print(_table(found))
        return 0


def _table(found: list[RunSummary]) -> str:
    head = ["run", "red", "rules", "obs", "seed", "episodes", "last 1000", "best", "ep/s", ""]
    rows = [
        [r.name, r.red, r.rules, r.obs, str(r.seed), f"{r.episodes:,}", f"{r.last:.2f}", f"{r.best:.2f}",
         f"{r.episodes / r.seconds:.0f}" if r.seconds else "", "" if r.finished else f"of {r.total_episodes:,}"]
        for r in found
    ]  # fmt: skip
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = zip(row, widths, strict=True)
        aligned = [c.rjust(w) if k in range(4, 9) else c.ljust(w) for k, (c, w) in enumerate(cells)]
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)
