"""A trainer that trains nothing: in no time, and as a function of order, seed, episodes and inherited weights alone."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stockade.workflow.orders import ENTERPRISE, OP_SERVER, UNIT_TYPES, USER, Order
from stockade.workflow.records import FixStatistics, Task, UpdateRow, WorkflowResult

#: Types that red holds in this make-believe.
HELD = (False, True, True, False, True)


class Interrupted(Exception):
    """As in training."""


def true_value(order: Order) -> float:
    """What an order is worth: best is op_server before enterprise before user."""
    return -10.0 - 5 * order.index(OP_SERVER) - 2 * order.index(ENTERPRISE) - order.index(USER)


def is_feasible(order: Order) -> bool:
    """Nobody manages to comply with user first."""
    return order.index(USER) > 0


@dataclasses.dataclass(frozen=True)
class FakeTrainer:
    """Callable like train_workflow.

    Attributes:
        pause: seconds of an update.
        die: numbers of trainings whose process kills itself at the second update, while `marks` has fewer than
            `deaths` marks of it.
        fail: numbers of trainings that raise.
        feasible_episodes: what a training that complies needs; others use all they may.
    """

    pause: float = 0.0
    die: tuple[int, ...] = ()
    deaths: int = 1
    marks: Path | None = None
    fail: tuple[int, ...] = ()
    feasible_episodes: int = 40
    held: tuple[bool, ...] = HELD

    def __call__(
        self, task: Task, report: Callable[[UpdateRow], None], should_stop: Callable[[], bool] = lambda: False
    ) -> WorkflowResult:
        begin = time.perf_counter()
        n_envs, feasible = task.config.n_envs, is_feasible(task.order)
        wanted = min(self.feasible_episodes, task.episodes) if feasible else task.episodes
        updates = wanted // n_envs
        digest = hashlib.sha256(repr((task.order, task.seed)).encode())
        if task.weights is not None:
            digest.update(task.weights["head"].tobytes())
        chance = np.random.default_rng(list(digest.digest()))
        value = true_value(task.order) + 0.5 * chance.standard_normal()
        compliance = 0.97 if feasible else 0.4
        for update in range(1, updates + 1):
            if should_stop():
                raise Interrupted
            if self.pause:
                time.sleep(self.pause)
            if update == 2:
                self._perhaps_die(task.number)
            if task.number in self.fail:
                raise ZeroDivisionError("a fault in training")
            rate = compliance * update / updates
            report(UpdateRow(task.number, update, update * n_envs, value - 10 / update, 30 * rate, rate, 3.0, 0.1,
                             0.01, 0.02))  # fmt: skip
        counts = dict.fromkeys(("fixes", "complied", "violated", "held_steps"), 1.5)
        statistics = FixStatistics(dict.fromkeys(UNIT_TYPES, counts), {"User1": counts})
        return WorkflowResult(
            task.number, task.order, value, 0.5, 3 * n_envs, compliance, 3.0, 0.1, feasible, updates * n_envs, updates,
            "compliant" if feasible else "max_episodes", self.held, statistics,
            {"head": chance.standard_normal((4, 3)).astype(np.float32)}, {"n_inputs": 4}, time.perf_counter() - begin,
        )  # fmt: skip

    def _perhaps_die(self, number: int) -> None:
        if number in self.die:
            assert self.marks is not None
            if len(list(self.marks.glob(f"{number}-*"))) < self.deaths:
                (self.marks / f"{number}-{os.getpid()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)


def rows_of(path: Path) -> list[dict[str, str]]:
    """Of a CSV file, times apart."""
    with path.open() as file:
        return [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in csv.DictReader(file)]


def content_of(folder: Path) -> dict[str, object]:
    """Everything that a search found out, times apart: what must be equal after a resume."""
    summary = json.loads((folder / "summary.json").read_text())
    del summary["seconds"]
    for workflow in summary["workflows"]:
        del workflow["seconds"]
    return {
        "summary": summary,
        "training_log": rows_of(folder / "training_log.csv"),
        "gp_log": rows_of(folder / "gp_log.csv"),
        "policies": {path.name: path.read_bytes() for path in sorted((folder / "policies").iterdir())},
    }
