"""What a run writes while it trains: metrics.csv and TensorBoard events.

After a crash a run continues from its last checkpoint, and the lines that came after it are removed from metrics.csv,
so that there is one line for each iteration, no more and no fewer.
"""

import csv
import math
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from stockade.files import write_durably

#: Episodes of the running mean that agents are compared by.
WINDOW = 1000
COLUMNS = (
    "iteration", "episodes", "steps", "seconds", "episodes_per_second", "return_mean", "return_median", "return_q05",
    "return_window", "length_mean", "entropy", "kl", "clipped", "policy_loss", "value_loss", "explained_variance",
    "grad_norm", "learning_rate", "entropy_weight", "validation",
)  # fmt: skip


def episode_columns(returns: np.ndarray, lengths: np.ndarray, window: deque[float]) -> dict[str, float]:
    """Columns about the episodes of an iteration, and of the last WINDOW; NaN if there were none."""
    names = ("return_mean", "return_median", "return_q05", "length_mean")
    own = dict.fromkeys(names, math.nan)
    if len(returns):
        figures = returns.mean(), np.median(returns), np.quantile(returns, 0.05), lengths.mean()
        own = dict(zip(names, map(float, figures), strict=True))
    return {**own, "return_window": float(np.mean(window)) if window else math.nan}


class MetricsFile:
    """metrics.csv of a run, of which the lines of iterations that are done stay; and the same as TensorBoard events, by
    episodes, unless `events` is None."""

    def __init__(self, path: Path, iterations_done: int, events: Path | None = None, episodes_done: int = 0) -> None:
        kept = [row for row in read_metrics(path) if row["iteration"] <= iterations_done]
        write_durably(path, "".join([",".join(COLUMNS) + "\n", *map(_line, kept)]).encode())
        self._file = path.open("a", newline="")
        self._events: Any = None
        if events is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._events = SummaryWriter(str(events), purge_step=episodes_done + 1)

    def write(self, row: dict[str, float]) -> None:
        """One line, at once."""
        self._file.write(_line(row))
        self._file.flush()
        if self._events is not None:
            for name, value in row.items():
                if name not in ("iteration", "episodes") and not math.isnan(value):
                    self._events.add_scalar(name, value, int(row["episodes"]))

    def close(self) -> None:
        self._file.close()
        if self._events is not None:
            self._events.close()


def _line(row: dict[str, float]) -> str:
    cells = (row[name] for name in COLUMNS)
    texts = ("" if math.isnan(x) else str(int(x)) if float(x).is_integer() else f"{x:.6g}" for x in cells)
    return ",".join(texts) + "\n"


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Lines of a metrics.csv; one that was cut off by a crash is left out."""
    if not path.exists():
        return []
    whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [
        {name: float(row[name]) if row.get(name) else math.nan for name in COLUMNS}
        for row in csv.DictReader(whole)
        if None not in row and None not in row.values() and set(row) >= set(COLUMNS) - {"validation"}  # it is younger
    ]


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """The same by column: (lines,) float64 each."""
    rows = read_metrics(path)
    return {name: np.array([row[name] for row in rows]) for name in COLUMNS}
