"""The tables of separate trainings: training_log.csv, one row per update, and gp_log.csv, one row per proposal.

training_log.csv grows by a line at a time. When trainings continue from a checkpoint (after a kill, or because a worker
died), the rows after it are taken out first, so that each update of each training is there once. gp_log.csv is small
and is written anew, in one instant, whenever it changes.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from stockade.files import write_durably
from stockade.workflow.orders import ORDERS, Order, index_of, name_of
from stockade.workflow.records import Proposed, UpdateRow, WorkflowResult
from stockade.workflow.units import Units

TRAINING_COLUMNS = (
    "number", "workflow", "order", "update", "episodes", "total_episodes", "env_reward", "alignment", "total",
    "compliance", "fixes", "no_fix", "collect_seconds", "update_seconds",
)  # fmt: skip
GP_COLUMNS = (
    "number", "workflow", "order", "name", "ucb", "mean", "sd", "feasibility", "top", "inherit", "seed",
    "allowed_episodes", "value", "gain", "value_error", "compliance", "fixes", "feasible", "episodes", "stopped",
    "seconds",
)  # fmt: skip


class TrainingLog:
    """training_log.csv of a search. `last`: by training, the last update that counts; infinity for all."""

    def __init__(self, path: Path, last: Mapping[int, float]) -> None:
        self._path = path
        self._rewrite(lambda number, update: update <= last.get(number, 0))

    def _rewrite(self, keep: Callable[[int, int], bool]) -> None:
        """Leave out some rows; total_episodes are counted anew."""
        self._episodes: dict[int, int] = {}
        kept: list[Iterable[object]] = [TRAINING_COLUMNS]
        for row in _whole_rows(self._path):
            if keep(int(row["number"]), int(row["update"])):
                self._episodes[int(row["number"])] = int(row["episodes"])
                kept.append({**row, "total_episodes": self.total_episodes}.values())
        write_durably(self._path, _lines(kept).encode())
        self._file = self._path.open("a", newline="")

    @property
    def total_episodes(self) -> int:
        """Of all trainings in it."""
        return sum(self._episodes.values())

    def write(self, row: UpdateRow, order: Order, units: Units) -> None:
        """One line, at once."""
        self._episodes[row.number] = row.episodes
        values = {
            **vars(row), "workflow": _number_of(order), "order": units.describe(order),
            "total_episodes": self.total_episodes, "total": row.env_reward + row.alignment,
        }  # fmt: skip
        self._file.write(_lines([[values[name] for name in TRAINING_COLUMNS]]))
        self._file.flush()

    def forget(self, number: int, after: int) -> None:
        """A training continues after an earlier update: later rows never were."""
        self._file.close()
        self._rewrite(lambda other, update: other != number or update <= after)

    def sync(self) -> None:
        """What is written survives a power cut."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _whole_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a training_log.csv; one that was cut off by a crash is left out."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    rows = csv.DictReader(line for line in lines if line.endswith("\n"))
    return [row for row in rows if None not in row and None not in row.values() and row["number"].isdecimal()]


def write_gp_log(
    path: Path, proposals: Iterable[Proposed], results: Mapping[int, WorkflowResult], units: Units
) -> None:
    """One row per proposal; the columns of its result are empty until there is one."""
    rows: list[Iterable[object]] = [GP_COLUMNS]
    for p in proposals:
        names = {"workflow": _number_of(p.order), "order": units.describe(p.order), "name": name_of(p.order)}
        result = vars(results[p.number]) if p.number in results else {}
        values = {**vars(p), "episodes": None, **result, **names, "allowed_episodes": p.episodes}
        rows.append([values.get(name) for name in GP_COLUMNS])
    write_durably(path, _lines(rows).encode())


def _number_of(order: Order) -> int | None:
    return index_of(order) if order in ORDERS else None


def _lines(rows: Iterable[Iterable[object]]) -> str:
    """As CSV; None and NaN are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow([("" if math.isnan(x) else f"{x:.6g}") if isinstance(x, float) else x for x in row])
    return text.getvalue()
