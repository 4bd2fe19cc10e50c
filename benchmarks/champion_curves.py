"""`champion.py curves`: how the seeds learned: metrics.csv of each run -> champion-curves.json, thinned -> picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from champion_protocol import RESULTS, ROOT, check_out, write_json

from stockade.bench.pictures import legend_below, new_figure, plain, require_matplotlib, save
from stockade.bench.stamp import machine_stamp
from stockade.errors import InputError
from stockade.learn.metrics import WINDOW, read_metrics
from stockade.learn.train import find_run, read_config

#: Points of a curve that are kept; more cannot be told apart in the picture.
MAX_POINTS = 300
_COLOURS = ("#1f5fa8", "#d9730d", "#2e8b57", "#7d3c98", "#c0392b", "#6b7480")
_TITLES = {
    "training": f"training, sampled actions: mean return of the last {WINDOW:,} episodes",
    "validation": "validation, greedy actions: sum of the mean returns over all kinds of worlds",
}


@dataclass(frozen=True)
class Curves:
    """Draw the learning curves of runs, one line each."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Folders of runs."""
    out: Path = RESULTS / "champion-curves.json"
    """Where the figures of the picture go."""
    picture: Path = ROOT / "docs" / "images" / "champion-curves.svg"
    """Where the picture goes."""

    def run(self) -> int:
        """Read, write, draw."""
        require_matplotlib()
        check_out(self.out)
        if not self.runs:
            raise InputError("name at least one run")
        curves = [read_curve(find_run(name, Path("runs"))) for name in self.runs]
        write_json(self.out, {"stamp": machine_stamp(), "window": WINDOW, "runs": curves})
        save(draw(curves), self.picture)
        print(f"wrote {self.picture}")
        return 0


def read_curve(folder: Path) -> dict[str, Any]:
    """Returns of training and, where they were measured, validation scores: (episodes, minutes, value) each."""
    rows, config = read_metrics(folder / "metrics.csv"), read_config(folder)
    full = [row for row in rows if row["episodes"] >= WINDOW and not math.isnan(row["return_window"])]
    if not full:
        raise InputError(f"{folder / 'metrics.csv'} has no line after {WINDOW} episodes, so there is no curve to draw")
    thinned = [*full[: -1 : -(-len(full) // MAX_POINTS)], full[-1]]
    validated = [row for row in rows if not math.isnan(row.get("validation", math.nan))]
    return {"name": folder.resolve().name, "seed": config.seed, "rules": config.rules,
            "training": [_point(row, "return_window") for row in thinned],
            "validation": [_point(row, "validation") for row in validated]}  # fmt: skip


def _point(row: dict[str, float], column: str) -> list[float]:
    return [int(row["episodes"]), round(row["seconds"] / 60, 3), round(row[column], 3)]


def draw(runs: list[dict[str, Any]]) -> Any:
    """A panel for training and, if there is any, one for validation; one line per seed."""
    panels = [what for what in _TITLES if any(run[what] for run in runs)]
    figure = new_figure(9.5, 3.2 * len(panels) + 0.5, "The champion: learning curves")
    axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axis, what in zip(axes, panels, strict=True):
        plain(axis, _TITLES[what], "episodes", "return")
        values = []
        for k, run in enumerate(run for run in runs if run[what]):
            episodes, _, ys = zip(*run[what], strict=True)
            axis.plot(episodes, ys, color=_COLOURS[k % len(_COLOURS)], linewidth=1.2,
                      label=f"{run['rules']}, seed {run['seed']}")  # fmt: skip
            values += ys[len(ys) // 4 :]  # what a beginner earns would squeeze the rest
        margin = 0.08 * (max(values) - min(values)) + 1e-3
        axis.set_ylim(min(values) - margin, max(values) + margin)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    legend_below(figure, axes)
    return figure
