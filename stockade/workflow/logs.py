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

from stockade.files import write_durably
from stockade.workflow.orders import ORDERS, Order, index_of, name_of
from stockade.workflow.records import UpdateRow, WorkflowResult
from stockade.workflow.store import Proposed
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
    """training_log.csv of a search.

    Attributes:
        total_episodes: of all trainings in it.
    """

    def __init__(self, path: Path, last: Mapping[int, float]) -> None:
        """Keep what counts, then append. `last`: by training, the last update that counts; infinity for all."""
        self._path = path
        self._rewrite(lambda number, update: update <= last.get(number, 0))

    def _rewrite(self, keep: Callable[[int, int], bool]) -> None:
        """Leave out some rows; total_episodes are counted anew."""
        self._episodes: dict[int, int] = {}
        lines = [",".join(TRAINING_COLUMNS) + "\n"]
        for row in read_training_log(self._path):
            if keep(int(row["number"]), int(row["update"])):
                self._episodes[int(row["number"])] = int(row["episodes"])
                row["total_episodes"] = str(self.total_episodes)
                lines.append(_line(row[name] for name in TRAINING_COLUMNS))
        write_durably(self._path, "".join(lines).encode())
        self._file = self._path.open("a", newline="")

    @property
    def total_episodes(self) -> int:
        """Of all trainings in it."""
        return sum(self._episodes.values())

    def write(self, row: UpdateRow, order: Order, units: Units) -> None:
        """One line, at once."""
        self._episodes[row.number] = row.episodes
        head = [row.number, _number_of(order), units.describe(order), row.update, row.episodes, self.total_episodes]
        rewards = [row.env_reward, row.alignment, row.env_reward + row.alignment]
        rest = [row.compliance, row.fixes, row.no_fix, row.collect_seconds, row.update_seconds]
        self._file.write(_line(_cell(x) for x in (*head, *rewards, *rest)))
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


def read_training_log(path: Path) -> list[dict[str, str]]:
    """Rows of a training_log.csv; one that was cut off by a crash is left out."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    rows = csv.DictReader(whole)
    return [row for row in rows if None not in row and None not in row.values() and row["number"].isdecimal()]


def write_gp_log(
    path: Path, proposals: Iterable[Proposed], results: Mapping[int, WorkflowResult], units: Units
) -> None:
    """One row per proposal; the columns of its result are empty until there is one."""
    lines = [",".join(GP_COLUMNS) + "\n"]
    for p in proposals:
        row: list[object] = [
            p.number, _number_of(p.order), units.describe(p.order), name_of(p.order), p.ucb, p.mean, p.sd,
            p.feasibility, p.top, p.inherit, p.seed, p.episodes,
        ]  # fmt: skip
        result = results.get(p.number)
        columns = GP_COLUMNS[len(row) :]
        row += [None if result is None else getattr(result, name) for name in columns]
        lines.append(_line(_cell(x) for x in row))
    write_durably(path, "".join(lines).encode())


def _number_of(order: Order) -> int | None:
    return index_of(order) if order in ORDERS else None


def _line(cells: Iterable[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return str(value)
