"""Train one order alone, in a thread, a process or on a cluster: updates, checkpoints now and then, the result.

task -> RewardTraining or StrictTraining, update by update -> UpdateRow, Saved ... -> WorkflowResult

A training that was interrupted continues from its last checkpoint, bit for bit. A strict training may also continue an
earlier one of the same order: from its weights, Adam's moments and environments, with the schedules as far along as if
all episodes had been planned from the start.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from stockade.cores import available_cores
from stockade.learn.checkpoint import Checkpoint
from stockade.workflow.conditioned import ConditionedTraining
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import UNIT_TYPES, Order
from stockade.workflow.records import Saved, StopReason, Task, UpdateRow, WorkflowResult
from stockade.workflow.reward_training import RewardTraining, standard_error
from stockade.workflow.together import JUDGE_SEED, VALIDATION_SEED
from stockade.workflow.units import UNITS

CHECKPOINT_UPDATES = 10
"""Updates between two checkpoints of a training: what a kill repeats at most."""
VALUE_EPISODES = 1000
"""Greedy episodes against each attacker that the value of a strict training rests on, with the same seeds for all."""


class Interrupted(Exception):
    """The training was asked to stop before its end."""


def train_workflow(
    task: Task, report: Callable[[UpdateRow | Saved], None], should_stop: Callable[[], bool] = lambda: False
) -> WorkflowResult:
    """Train to the end; `report` each update and checkpoint, and ask `should_stop` before each update.

    Raises:
        Interrupted: `should_stop` said yes; a last checkpoint was reported.
    """
    begin = time.perf_counter()
    training = RewardTraining(task) if task.config.constraint == "reward" else StrictTraining(task)
    saved = training.updates
    try:
        while training.stopped is None:
            if should_stop():
                if training.updates > saved:
                    report(Saved(task.number, training.updates, training.state()))
                raise Interrupted
            report(training.update())
            if training.stopped is None and training.updates - saved >= CHECKPOINT_UPDATES:
                saved = training.updates
                report(Saved(task.number, saved, training.state()))
        return training.result(time.perf_counter() - begin)
    finally:
        training.close()


class StrictTraining:
    """One order as a rule, trained for so many episodes."""

    def __init__(self, task: Task) -> None:
        self.task, config = task, task.config
        self._training = ConditionedTraining(config, UNITS[config.units], [task.order], task.seed, task.threads)
        self.updates, self._first, self._value_before = 0, 0, math.nan
        self._fixes = [0.0, 0.0]  # fixes per episode in the last update, share of episodes without one
        if task.state is None:
            return
        mine = task.state.rest["strict"]
        self._training.restore(task.state.arrays, task.state.rest)
        if mine["number"] == task.number:
            self.updates, self._first, self._fixes = mine["updates"], mine["first"], mine["fixes"]
            self._value_before = math.nan if mine["value_before"] is None else mine["value_before"]
        else:  # the training that this one continues
            self._first, self._value_before = self._training.episodes, mine["value"]
            self._training.progress = self._first / (self._first + task.episodes)

    @property
    def _episodes(self) -> int:
        return self._training.episodes - self._first

    @property
    def stopped(self) -> StopReason | None:
        """Over when another update might not fit; so is a training that ended before its result was written down."""
        fits = self._episodes + episodes_of_update(self.task.config) <= self.task.episodes
        return None if fits else "fixed"

    def update(self) -> UpdateRow:
        """One iteration of PPO."""
        clock, task = time.perf_counter(), self.task
        played = self._training.advance(self._first + task.episodes)
        self.updates += 1
        fixes = played.fixes - played.refused
        reward, each, none = (float(x.mean()) if len(x) else math.nan for x in (played.value, fixes, fixes == 0))
        self._fixes, seconds = [each, none], time.perf_counter() - clock
        return UpdateRow(task.number, self.updates, self._episodes, reward, 0.0, 1.0, each, none, seconds, 0.0)

    def result(self, seconds: float) -> WorkflowResult:
        """Greedy episodes on the seeds that all orders are compared by."""
        task, training = self.task, self._training
        assert self.stopped is not None
        returns = training.returns(min(VALUE_EPISODES, task.config.judged_episodes or VALUE_EPISODES), VALIDATION_SEED)
        by_attacker = returns[:, 0].mean(axis=1)
        judged = returns[:, 0].mean(axis=0) if task.config.goal == "mean" else returns[by_attacker.argmin(), 0]
        value = float(judged.mean())
        return WorkflowResult(
            task.number, task.order, value, standard_error(judged), returns.size, tuple(by_attacker.tolist()),
            value - self._value_before, 1.0, self._fixes[0], self._fixes[1], True, self._episodes,
            self.updates, self.stopped, (False,) * len(UNIT_TYPES), {"by_type": {}, "by_host": {}}, seconds,
            training.policy.save_weights(), training.policy.architecture.to_json(), returns[:, 0], self.state(value),
        )  # fmt: skip

    def state(self, value: float | None = None) -> Checkpoint:
        """Everything that the rest of the training depends on, or with its `value` one that continues it."""
        arrays, rest = self._training.state()
        before = None if math.isnan(self._value_before) else self._value_before
        mine = {"number": self.task.number, "updates": self.updates, "first": self._first, "value_before": before,
                "value": value, "fixes": self._fixes}  # fmt: skip
        return Checkpoint(arrays, {**rest, "strict": mine})

    def close(self) -> None:
        """End threads and environments."""
        self._training.close()


def episodes_of_update(config: SearchConfig) -> int:
    """Episodes that an update plays at most."""
    return config.n_envs * -(-config.ppo.update_steps // (config.horizon + 1))


def judged_returns(config: SearchConfig, policies: Sequence[tuple[Order, dict[str, np.ndarray]]]) -> np.ndarray:
    """(attackers, policies, episodes) of greedy episodes on the seeds of the final judgement, the same for all.

    Of each policy the order that it keeps to, and its weights.
    """
    units = UNITS[config.units]

    def play(policy: tuple[Order, dict[str, np.ndarray]]) -> np.ndarray:
        training = ConditionedTraining(config, units, [policy[0]], seed=0, threads=1)
        try:
            training.policy.load_weights(policy[1])
            return training.returns(config.judged_episodes, JUDGE_SEED)[:, 0]
        finally:
            training.close()

    with ThreadPoolExecutor(available_cores()) as pool:
        return np.stack(list(pool.map(play, policies)), axis=1)
