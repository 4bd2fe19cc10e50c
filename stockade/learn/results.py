"""What `stockade.train` and `stockade.evaluate` return: numbers, and tables for terminal, notebook and JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from stockade.files import json_ready
from stockade.learn.leaderboard import CELLS, PUBLISHED
from stockade.text import Table, fixed, interval, plural

if TYPE_CHECKING:
    from stockade.baselines import Defender
    from stockade.learn.config import TrainConfig
    from stockade.learn.evaluate import EvaluateConfig


def in_notebook() -> bool:
    """Code runs in a kernel of Jupyter, whose output is no terminal but shows a progress bar all the same."""
    return "ipykernel" in sys.modules


def progress_bar(progress: bool, **options: Any) -> tqdm[Any]:
    """A bar on a terminal or in a notebook; nothing elsewhere, or if `progress` is False."""
    return tqdm(disable=not (progress and (sys.stderr.isatty() or in_notebook())), **options)


class Shown:
    """Shows its `tables()`: as text by `print`, as HTML in a notebook."""

    def tables(self) -> list[Table]:
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables())


# ------------------------------------------------------------------------------------------------------- evaluation
@dataclass(frozen=True)
class CellResult:
    """Returns against one attacker over one horizon."""

    red: str
    horizon: int
    episodes: int
    mean: float
    interval: float  #: half width of the mean's 95% interval, NaN for a single episode
    median: float
    q05: float  #: heavy tails show here
    returns: tuple[float, ...]

    @classmethod
    def of(cls, red: str, horizon: int, returns: np.ndarray) -> CellResult:
        figures = *mean_interval(returns), float(np.median(returns)), float(np.quantile(returns, 0.05))
        return cls(red, horizon, len(returns), *figures, tuple(np.round(returns, 1).tolist()))


def mean_interval(sample: np.ndarray) -> tuple[float, float]:
    """Mean, and half width of its 95% interval; NaN where there is too little to say."""
    n = len(sample)
    half_width = 1.96 * float(sample.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return float(sample.mean()) if n else math.nan, half_width


def total_interval(cells: Sequence[CellResult]) -> float:
    """Half width of the 95% interval of a sum of cells: they are independent."""
    return math.sqrt(sum(cell.interval**2 for cell in cells))


@dataclass(frozen=True)
class Section:
    """Something else that was measured of a policy: its table, and its entries in `to_dict()`."""

    table: Table
    content: dict[str, Any]


@dataclass(frozen=True, repr=False)
class EvaluateResult(Shown):
    """The challenge's protocol, played by one policy."""

    policy: str
    style: str  #: `greedy`, `sampled`, or `its own choices`
    config: EvaluateConfig
    cells: tuple[CellResult, ...]  #: nine, in the order of CELLS
    sections: tuple[Section, ...] = ()  #: what else was measured

    @property
    def total(self) -> float:
        """Sum of the cells' means: the challenge's score."""
        return sum(cell.mean for cell in self.cells)

    @property
    def interval(self) -> float:
        """Half width of the 95% interval of the total."""
        return total_interval(self.cells)

    def __repr__(self) -> str:
        return (f"<EvaluateResult {self.policy}, rules {self.config.rules}, {self.style}: total "
                f"{interval(self.total, self.interval)}>")  # fmt: skip

    def tables(self) -> list[Table]:
        """Our cells; the published scores of the same rules beside ours; what else was measured."""
        rules, episodes = self.config.rules, plural(self.config.episodes, "episode")
        rows = [[c.red, c.horizon, interval(c.mean, c.interval), fixed(c.median), fixed(c.q05)] for c in self.cells]
        rows.append(["total", None, interval(self.total, self.interval), None, None])
        ours = Table(
            ["attacker", "steps", "mean ± 95%", "median", "5% quantile"], rows,
            f"{self.policy}: rules {rules}, {self.style}, {episodes} per cell",
        )  # fmt: skip
        title = f"Beside published scores under the same rules ({rules}); sleep: sum of its three cells"
        if rules != "leaderboard":
            title += "\nThe challenge's own leader board was played under other rules: see rules leaderboard."
        means = tuple(cell.mean for cell in self.cells)
        compared = [(self.policy, means), *((row.name, row.means) for row in PUBLISHED if row.rules == rules)]
        header = ["mean", *(f"{red} {horizon}" for red, horizon in CELLS[:6]), "sleep", "total"]
        others = Table(header, [[n, *map(fixed, (*m[:6], sum(m[6:]), sum(m)))] for n, m in compared], title)
        return [ours, others, *(section.table for section in self.sections)]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: settings, total, cells with every single return, and what else was measured."""
        import stockade

        content: dict[str, Any] = {
            "stockade": stockade.__version__, **asdict(self.config), "policy": self.policy, "style": self.style,
            "total": self.total, "total_interval": self.interval, "cells": [asdict(cell) for cell in self.cells],
        }  # fmt: skip
        for section in self.sections:
            content |= section.content
        return dict(json_ready(content))


# --------------------------------------------------------------------------------------------------------- training
@dataclass(frozen=True, repr=False)
class TrainResult(Shown):
    """A run, finished or interrupted."""

    folder: Path
    config: TrainConfig
    metrics: dict[str, np.ndarray]  #: the columns of metrics.csv by name, (iterations,) float64 each
    stopped: int | None = None  #: number of the signal that ended it before its time
    saved: bool = True  #: its final state is on disk

    @property
    def interrupted(self) -> bool:
        """A signal (Ctrl-C, a notebook's stop button) ended it before its time; `train(resume=folder)` continues."""
        return self.stopped is not None

    @property
    def episodes(self) -> int:
        """Played so far, all sessions together."""
        return int(self.metrics["episodes"][-1]) if len(self.metrics["episodes"]) else 0

    @cached_property
    def agent(self) -> Defender:
        """The policy of the best checkpoint, as `stockade.load(folder)` gives it."""
        from stockade.learn.agents import load

        return load(self.folder.resolve())

    def __repr__(self) -> str:
        state = "interrupted" if self.interrupted else "finished"
        last = self.metrics["return_window"]
        score = f", return {fixed(float(last[-1]))}" if len(last) else ""
        return f"<TrainResult {self.folder}: {state} after {plural(self.episodes, 'episode')}{score}>"

    def tables(self) -> list[Table]:
        """About ten moments of the training."""
        columns = "episodes", "seconds", "return_mean", "return_window", "entropy", "explained_variance", "validation"
        m, n = self.metrics, len(self.metrics["episodes"])
        shown = [name for name in columns if np.isfinite(m[name]).any() or name == "return_window"]
        moments = sorted({round(k) for k in np.linspace(0, n - 1, min(n, 10))})
        rows = [
            [f"{m[name][k]:,.0f}" if name in ("episodes", "seconds") else fixed(m[name][k]) for name in shown]
            for k in moments
        ]
        return [Table([name.replace("_", " ") for name in shown], rows, repr(self).strip("<>"))]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: folder, settings, and the metrics as lists."""
        content = {
            "folder": self.folder, "settings": self.config.to_json(), "episodes": self.episodes,
            "interrupted": self.interrupted, "saved": self.saved, "metrics": self.metrics,
        }  # fmt: skip
        return dict(json_ready(content))
