"""Searches for tests: their settings, trainers that wait for each other, and what a search has written down."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stockade.workflow.config import SearchConfig
from stockade.workflow.engine import Event, Trainer
from stockade.workflow.store import Task
from tests.ray.conftest import wait_until
from tests.workflow.fake import FakeTrainer, content_of, reward_config, rows_of, searched

CONFIG = reward_config(n_envs=10, total_episodes=700, max_episodes=100, min_episodes=40, inherit="nearest", name="x")
SIX = dataclasses.replace(CONFIG, total_episodes=2000, n_workflows=6, parallel=2)
#: In which the results of SIX come. After the first two, numbers 2 and 3 are under way at once.
ORDER = (1, 0, 3, 4, 2, 5)


@dataclasses.dataclass(frozen=True)
class InOrder(FakeTrainer):
    """A training ends when the search has written down the results that shall come before its own.

    Attributes:
        folder: of the search.
        gate: a file without which none ends from the third on, if given.
    """

    folder: Path = Path()
    gate: Path | None = None

    def __call__(self, task: Task, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        pid_file(self.folder, task.number).write_text(str(os.getpid()))
        *events, result = super().__call__(task, should_stop)
        yield from events
        if self.gate is not None and task.number >= 2:
            wait_until(self.gate.exists, "nobody opened the gate")
        before = list(ORDER[: ORDER.index(task.number)])
        wait_until(lambda: numbers_of(self.folder) == before, f"{before} before {task.number}")
        yield result


def pid_file(folder: Path, number: int) -> Path:
    """Where a training of `InOrder` writes its process id."""
    return folder.with_name(f"pid-{number}")


def run(folder: Path, config: SearchConfig, train: Trainer, **changes: Any) -> dict[str, Any]:
    """A search to its end; what it found out."""
    searched(dataclasses.replace(config, runs=folder, **changes), train)
    return content_of(folder / "x")


def run_in_order(folder: Path, gate: Path | None = None, **changes: Any) -> dict[str, Any]:
    """SIX, with its results in ORDER. What it found out, but for the order of the log's rows, which is chance."""
    content = run(folder, SIX, InOrder(folder=folder / "x", gate=gate), **changes)
    assert tuple(numbers_of(folder / "x")) == ORDER
    for row in content["training_log"]:
        del row["total_episodes"]  # those of others that happened to be under way
    content["training_log"].sort(key=str)
    return content


def results_of(folder: Path) -> list[dict[str, Any]]:
    """That are safe on disk, in the order in which they came."""
    state = folder / "state.json"
    found: list[dict[str, Any]] = json.loads(state.read_text())["results"] if state.exists() else []
    return found


def numbers_of(folder: Path) -> list[int]:
    """Of the trainings whose results are safe."""
    return [result["number"] for result in results_of(folder)]


def under_way(folder: Path) -> set[str]:
    """Numbers of the trainings of which an update was heard, and not taken back."""
    log = folder / "training_log.csv"
    return {row["number"] for row in rows_of(log)} if log.exists() else set()
