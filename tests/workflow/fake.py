"""A trainer that trains nothing: in no time, and as a function of order, seed, episodes and inherited weights alone."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stockade.learn.checkpoint import Checkpoint
from stockade.workflow.config import RewardFlags, SearchConfig
from stockade.workflow.engine import Event
from stockade.workflow.orders import ENTERPRISE, OP_SERVER, UNIT_TYPES, USER, Order
from stockade.workflow.separate import SeparateSession
from stockade.workflow.store import Saved, SearchFolder, Task, UpdateRow, WorkflowResult

#: Types that red holds in this make-believe.
HELD = (False, True, True, False, True)


def true_value(order: Order) -> float:
    """What an order is worth: best is op_server before enterprise before user; without an order a little more."""
    if not order:
        return -16.0
    return -10.0 - 5 * order.index(OP_SERVER) - 2 * order.index(ENTERPRISE) - order.index(USER)


def is_feasible(order: Order) -> bool:
    """Nobody manages to comply with user first, unless it is a rule."""
    return not order or order.index(USER) > 0


@dataclasses.dataclass(frozen=True)
class FakeTrainer:
    """Callable like train_workflow.

    Attributes:
        pause: seconds of an update.
        die: numbers of trainings whose process kills itself at the third update, while `marks` has fewer than
            `deaths` marks of it.
        fail: numbers of trainings that raise.
        feasible_episodes: what a training that complies needs; others, and all that are strict, use all they may.
        marks: folder where each process leaves a file when it dies, and a line in `played` for each update.
    """

    pause: float = 0.0
    die: tuple[int, ...] = ()
    deaths: int = 1
    marks: Path | None = None
    fail: tuple[int, ...] = ()
    feasible_episodes: int = 40
    held: tuple[bool, ...] = HELD

    def __call__(self, task: Task, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        begin = time.perf_counter()
        strict, n_envs = task.config.constraint == "strict", task.config.n_envs
        feasible = strict or is_feasible(task.order)
        wanted = min(self.feasible_episodes, task.episodes) if feasible and not strict else task.episodes
        updates = wanted // n_envs
        rest = {"number": task.number, "update": 0, "chunks": 0, "value": None}
        if task.state is not None:
            mine = task.state.rest["number"] == task.number
            rest = {**rest, **(task.state.rest if mine else {k: task.state.rest[k] for k in ("chunks", "value")})}
        digest = hashlib.sha256(repr((task.order, task.seed, rest["chunks"])).encode())
        if task.weights is not None:
            digest.update(task.weights["head"].tobytes())
        rest = {"seed": list(digest.digest()), **rest}  # of its own state, if it has one
        chance = np.random.default_rng(rest["seed"])
        value = true_value(task.order) + 0.5 * chance.standard_normal()
        if strict:
            value -= 4.0 / 2 ** rest["chunks"]  # what more training brings
        compliance = 0.97 if feasible else 0.4
        for update in range(rest["update"] + 1, updates + 1):
            if should_stop():
                yield self._saved(task, rest, update - 1)
                return
            if self.pause:
                time.sleep(self.pause)
            if update == 3:
                self._perhaps_die(task.number)
            if task.number in self.fail:
                raise ZeroDivisionError("a fault in training")
            if self.marks is not None:
                with (self.marks / "played").open("a") as file:
                    file.write(f"{task.number} {update}\n")
            rate = compliance * update / updates
            yield UpdateRow(task.number, update, update * n_envs, value - 10 / update, 30 * rate, rate, 3.0, 0.1,
                            0.01, 0.02)  # fmt: skip
            if update % 2 == 0:
                yield self._saved(task, rest, update)
        counts = dict.fromkeys(("fixes", "complied", "violated", "held_steps"), 1.5)
        statistics = {"by_type": dict.fromkeys(UNIT_TYPES, counts), "by_host": {"User1": counts}}
        gain = math.nan if rest["value"] is None else value - rest["value"]
        end = {"number": task.number, "update": updates, "chunks": rest["chunks"] + 1, "value": value}
        head = chance.standard_normal((4, 3)).astype(np.float32)
        yield WorkflowResult(
            task.number, task.order, value, 0.5, 3 * n_envs, (value,), gain, compliance, 3.0, 0.1, feasible,
            updates * n_envs, updates, "fixed" if strict else "compliant" if feasible else "max_episodes",
            (False,) * 5 if strict else self.held, statistics, time.perf_counter() - begin, {"head": head},
            {"n_inputs": 4}, np.full((1, 3 * n_envs), value) + chance.standard_normal(3 * n_envs),
            Checkpoint({"head": head}, end) if strict else None,
        )  # fmt: skip

    def _saved(self, task: Task, rest: dict[str, Any], update: int) -> Saved:
        state = Checkpoint({"head": np.zeros(3, np.float32)}, {**rest, "update": update})
        return Saved(task.number, update, state)

    def _perhaps_die(self, number: int) -> None:
        if number in self.die:
            assert self.marks is not None
            if len(list(self.marks.glob(f"{number}-*"))) < self.deaths:
                (self.marks / f"{number}-{os.getpid()}").touch()
                os.kill(os.getpid(), signal.SIGKILL)


def result_of(task: Task) -> WorkflowResult:
    """Of a training to its end."""
    *_, result = FakeTrainer()(task)
    assert isinstance(result, WorkflowResult)
    return result


def rows_of(path: Path) -> list[dict[str, str]]:
    """Of a CSV file, times apart."""
    with path.open() as file:
        return [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in csv.DictReader(file)]


def content_of(folder: Path) -> dict[str, Any]:
    """Everything that a search found out, times apart: what must be equal after a resume.

    A kill may leave half a file under its temporary name, which begins with a dot.
    """
    state = json.loads((folder / "state.json").read_text())
    del state["seconds"], state["checksum"]
    for result in state["results"]:
        del result["seconds"]
    return {
        "state": state,
        "training_log": rows_of(folder / "training_log.csv"),
        "gp_log": rows_of(folder / "gp_log.csv"),
        **{
            name: {path.name: path.read_bytes() for path in sorted((folder / name).glob("[!.]*"))}
            for name in ("policies", "trainings")
        },
    }


def searched(config: SearchConfig, train: Any = None) -> SeparateSession:
    """A search to its end, begun or continued."""
    folder = SearchFolder.create(config) if config.resume is None else SearchFolder.find(config.resume, config.runs)
    if config.resume is not None:
        own = folder.read_config()
        config = dataclasses.replace(
            own, runs=config.runs, engine=config.engine, address=config.address,
            total_episodes=max(own.budget, config.total_episodes or 0),
        )  # fmt: skip
    session = SeparateSession(config, folder, FakeTrainer() if train is None else train)
    stopped = session.run()
    if stopped is not None:
        raise SystemExit(128 + stopped)
    return session


def changed(config: SearchConfig, **changes: Any) -> SearchConfig:
    """Other settings; the flags of `--constraint reward` stand among them."""
    flags = {name: changes.pop(name) for name in list(changes) if name in RewardFlags.__dataclass_fields__}
    return dataclasses.replace(config, first_version=dataclasses.replace(config.first_version, **flags), **changes)


def reward_config(**settings: Any) -> SearchConfig:
    """Settings of `--constraint reward`."""
    return changed(SearchConfig(constraint="reward"), **settings)
