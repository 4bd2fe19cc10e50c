"""`--train together`: one training for all orders, from its first episode to measured values, through interruptions.

rounds: train a twentieth of the budget -> play every order greedily on the same validation seeds -> shares, checkpoint
end:    values stopped improving, or the budget is used -> judge every order on fresh seeds -> measured values

The shares of the environments move towards orders whose values still improve, and towards those near the best. All that
decides what happens next is in the checkpoint: a search that was killed continues bit for bit.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from stockade.learn.checkpoint import Checkpoint, CheckpointError, CheckpointFolder
from stockade.workflow.conditioned import ConditionedTraining
from stockade.workflow.config import SearchConfig
from stockade.workflow.units import UNITS, Ranking, as_ranking

ROUNDS = 20  #: of a whole budget
PLATEAU_ROUNDS = 4  #: without a gain, after which values count as no longer improving
FINISH = 0.2  #: Once values no longer improve, so much of what was used goes into running the schedules to their end.
VALIDATION_SEED, JUDGE_SEED = 1_700_000_000, 1_800_000_000  #: first seeds of both; no training has them
_EVEN = 0.5  #: part of the environments that is always spread evenly over all orders


@dataclass
class Curves:
    """What the rounds measured."""

    episodes: list[int] = field(default_factory=list)  #: trained before each round
    values: list[np.ndarray] = field(default_factory=list)  #: (attackers, orders) of each round
    shares: list[np.ndarray] = field(default_factory=list)  #: (orders,) in it

    def to_json(self) -> dict[str, Any]:
        return {"episodes": self.episodes, "values": [v.tolist() for v in self.values],
                "shares": [s.tolist() for s in self.shares]}  # fmt: skip

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        values, shares = ([np.array(x) for x in content[name]] for name in ("values", "shares"))
        return cls(list(content["episodes"]), values, shares)


@dataclass
class AllOrders:
    """The plan of a training: all orders from the beginning to the end, FREE (no order) among them."""

    config: SearchConfig
    orders: list[Ranking]
    best: list[Ranking] = field(default_factory=list)  #: what a plan must know to continue: nothing here

    def round(self, training: ConditionedTraining, curves: Curves) -> np.ndarray:
        """Measure, set the shares of what is trained next, and give (attackers, ...) values for the curves."""
        episodes = round_episodes(self.config.budget, len(self.orders))
        values = training.returns(episodes, VALIDATION_SEED).mean(axis=2)
        training.shares = next_shares([*curves.values, values], self.config.goal)
        return values


class TogetherTraining(ConditionedTraining):
    """The training of many orders, in rounds, by a plan; its state goes to `checkpoints`, or nowhere."""

    def __init__(self, config: SearchConfig, plan: AllOrders, checkpoints: CheckpointFolder | None) -> None:
        super().__init__(config, UNITS[config.units], plan.orders, config.seed)
        self.plan, self.budget, self._checkpoints, self._saved = plan, config.budget, checkpoints, -1
        self.curves = Curves()
        self.last_goal = self.budget  #: episodes at which it ends; less than the budget once values stop improving
        self.episodes_by_order = np.zeros(len(plan.orders), np.int64)
        self._begin, self._before = time.monotonic(), 0.0
        self._restore()

    def run(self, should_stop: Callable[[], bool], show: Callable[[Self], None]) -> bool:
        """Train to the end; False if `should_stop` said so before. `show` is called after every iteration."""
        largest = self.config.n_envs * -(-self.config.ppo.update_steps // (self.config.horizon + 1))
        while (before := self.episodes) + largest <= self.last_goal:  # the budget is never exceeded
            if should_stop():
                self.save()
                return False
            played = self.advance(self.last_goal)
            counts = np.bincount(played.order, minlength=len(self.orders))
            counts[: len(self.episodes_by_order)] += self.episodes_by_order
            self.episodes_by_order = counts
            every = max(1, self.budget // ROUNDS)
            if self.episodes // every > before // every:
                self._round()
                self.save()
            show(self)
        self.save()
        return True

    def _round(self) -> None:
        self.curves.shares.append(self.shares.copy())
        self.curves.values.append(self.plan.round(self, self.curves))
        self.curves.episodes.append(self.episodes)
        if self.last_goal == self.budget and no_longer_improving(self.curves.values):
            self.last_goal = min(self.budget, int(self.episodes * (1 + FINISH)))

    def training_sd(self) -> np.ndarray:
        """(attackers, orders) how much a value still moved from round to round at the end: the training noise left.

        The rounds play the same seeds, so that most of the difference between two of them is the policy's.
        """
        last = np.stack(self.curves.values[-3:])
        return last.std(axis=0, ddof=1) if len(last) > 1 else np.zeros(last.shape[1:])

    def seconds(self) -> float:
        """That the training has taken, earlier sessions included."""
        return self._before + time.monotonic() - self._begin

    def save(self) -> None:
        """Write a checkpoint; if that fails, warn and continue: the next one tries again."""
        if self._checkpoints is None or self._saved == self.learner.iteration:
            return
        arrays, rest = self.state()
        rest |= {"curves": self.curves.to_json(), "goal": self.last_goal, "budget": self.budget,
                 "seconds": self.seconds(), "plan": {"best": [list(order) for order in self.plan.best]}}  # fmt: skip
        checkpoint = Checkpoint({**arrays, "counts": self.episodes_by_order.copy()}, rest)
        if self._checkpoints.save(self.learner.iteration, checkpoint, is_best=False):
            self._saved = self.learner.iteration

    def _restore(self) -> None:
        if self._checkpoints is None or not self._checkpoints.numbers():
            return
        try:
            checkpoint = self._checkpoints.load_last()
        except CheckpointError as error:
            warnings.warn(f"{error}; the training begins again", stacklevel=2)
            return
        arrays, rest = checkpoint.arrays, checkpoint.rest
        self.restore(arrays, rest)
        self.plan.best = [as_ranking(order) for order in rest["plan"].get("best", ())]
        self.curves, self.episodes_by_order = Curves.from_json(rest["curves"]), arrays["counts"].copy()
        self._saved, self._before = self.learner.iteration, float(rest["seconds"])
        if rest["budget"] == self.budget:
            self.last_goal = rest["goal"]
        else:  # extended: the schedules stand where they would in a search of the new budget
            self.progress = min(1.0, self.episodes / self.budget)


def round_episodes(budget: int, orders: int) -> int:
    """Validation episodes of each order in a round: few enough that playing them costs a tenth of the training."""
    return int(np.clip(0.3 * budget / (ROUNDS * orders), 50, 500))


def goal_value(values: np.ndarray, goal: str) -> np.ndarray:
    """(orders,) of (attackers, orders): their mean or their worst."""
    return np.asarray(values.mean(axis=0) if goal == "mean" else values.min(axis=0))


def goal_returns(returns: np.ndarray, goal: str) -> np.ndarray:
    """(episodes,) of (attackers, episodes) of one order: their mean, or those of the attacker that decides."""
    return np.asarray(returns.mean(axis=0) if goal == "mean" else returns[returns.mean(axis=1).argmin()])


def next_shares(values: Sequence[np.ndarray], goal: str) -> np.ndarray:
    """(orders,) of the environments: half of them evenly, the rest by what is still to be gained and to be decided.

    Given (attackers, orders) values of each round so far.
    """
    merits = [goal_value(v, goal) for v in values]
    now = merits[-1]
    even = np.full(len(now), 1 / len(now))
    gained = np.maximum(now - merits[-min(3, len(merits))], 0.0)
    near = np.exp((now - now.max()) / max(1.0, 0.1 * abs(now.max())))
    gained = gained / gained.sum() if gained.sum() > 0 else even
    return np.asarray(_EVEN * even + (1 - _EVEN) * (gained + near / near.sum()) / 2)


def no_longer_improving(values: Sequence[np.ndarray]) -> bool:
    """Whether the last rounds brought no order and no attacker a gain worth mentioning over the rounds before them."""
    if len(values) < 2 * PLATEAU_ROUNDS:
        return False
    before = np.mean(values[-2 * PLATEAU_ROUNDS : -PLATEAU_ROUNDS], axis=0)
    lately = np.mean(values[-PLATEAU_ROUNDS:], axis=0)
    worth = np.maximum(0.05, 0.005 * np.abs(lately))
    return bool((lately - before < worth).all())
