"""What a run writes while it trains: metrics.csv, TensorBoard events, the progress line.

After a crash a run continues from its last checkpoint, and the lines that came after it are removed from metrics.csv,
so that there is one line for each iteration, no more and no fewer.
"""

from __future__ import annotations

import csv
import io
import math
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from stockade.learn.files import write_durably

#: Episodes of the running mean that agents are compared by.
WINDOW = 1000
COLUMNS = (
    "iteration", "episodes", "steps", "seconds", "episodes_per_second", "return_mean", "return_median", "return_q05",
    "return_window", "length_mean", "entropy", "kl", "clipped", "policy_loss", "value_loss", "explained_variance",
    "grad_norm", "learning_rate", "entropy_weight", "validation",
)  # fmt: skip


def episode_columns(returns: np.ndarray, lengths: np.ndarray, window: deque[float]) -> dict[str, float]:
    """Columns about the episodes of an iteration, and of the last WINDOW; NaN if there were none."""
    nothing = len(returns) == 0
    return {
        "return_mean": math.nan if nothing else float(returns.mean()),
        "return_median": math.nan if nothing else float(np.median(returns)),
        "return_q05": math.nan if nothing else float(np.quantile(returns, 0.05)),
        "return_window": float(np.mean(window)) if window else math.nan,
        "length_mean": math.nan if nothing else float(lengths.mean()),
    }


class MetricsFile:
    """metrics.csv of a run, one line per iteration."""

    def __init__(self, path: Path, iterations_done: int) -> None:
        """Keep the lines of the iterations that are done, then append."""
        kept = [row for row in read_metrics(path) if row["iteration"] <= iterations_done]
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(row[name]) for name in COLUMNS} for row in kept)
        write_durably(path, text.getvalue().encode())
        self._file = path.open("a", newline="")
        self._writer = csv.DictWriter(self._file, COLUMNS, lineterminator="\n")

    def write(self, row: dict[str, float]) -> None:
        """One line, at once."""
        self._writer.writerow({name: _cell(row[name]) for name in COLUMNS})
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _cell(value: float) -> str:
    if math.isnan(value):
        return ""
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}"


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Lines of a metrics.csv; one that was cut off by a crash is left out."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    rows = []
    for row in csv.DictReader(whole):
        if None not in row and None not in row.values() and set(row) >= set(COLUMNS) - {"validation"}:  # it is younger
            rows.append({name: float(row[name]) if row.get(name) else math.nan for name in COLUMNS})
    return rows


def read_columns(path: Path) -> dict[str, np.ndarray]:
    """The same by column: (lines,) float64 each."""
    rows = read_metrics(path)
    return {name: np.array([row[name] for row in rows]) for name in COLUMNS}


class Events:
    """TensorBoard events, by episodes; nothing if that is switched off."""

    def __init__(self, folder: Path | None, episodes_done: int) -> None:
        """`folder` None switches it off."""
        self._writer: Any = None
        if folder is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder), purge_step=episodes_done + 1)

    def write(self, row: dict[str, float]) -> None:
        """The same columns as in metrics.csv."""
        if self._writer is not None:
            for name, value in row.items():
                if name not in ("iteration", "episodes") and not math.isnan(value):
                    self._writer.add_scalar(name, value, int(row["episodes"]))

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
