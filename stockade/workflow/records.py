"""What passes between the search and those who train its orders: plain data that can go to other processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import Order

if TYPE_CHECKING:
    from stockade.learn.checkpoint import Checkpoint

StopReason = Literal["compliant", "plateau", "max_episodes", "budget", "fixed"]


@dataclass(frozen=True)
class Task:
    """One order to train.

    Attributes:
        number: of the training in this search, from 0.
        order: what the agent shall comply with; FREE for none.
        config: of the search.
        seed: of this training.
        episodes: what it may use of the budget; a multiple of n_envs, unless update_steps is not whole episodes.
        weights: to begin with, by name; None for new ones.
        state: to continue from, of this training or of the one that it continues; None for a new beginning.
        threads: that may work on it; results do not depend on it. None: as many as there are cores.
    """

    number: int
    order: Order
    config: SearchConfig
    seed: int
    episodes: int
    weights: dict[str, np.ndarray] | None = None
    state: Checkpoint | None = None
    threads: int | None = None


@dataclass(frozen=True)
class UpdateRow:
    """One update of one training. Of the episodes that ended in it; NaN where none did.

    Attributes:
        number: of the training. update: from 1. episodes: of this training so far.
        env_reward: mean return of the environment alone. alignment: mean of what was paid for alignment.
        compliance: mean over episodes with a judged fix. fixes: judged fixes per episode (strict: fixes that were
            carried out). no_fix: share of episodes without one.
        collect_seconds, update_seconds: time. update_seconds is 0 for the last, after which nothing is learned.
    """

    number: int
    update: int
    episodes: int
    env_reward: float
    alignment: float
    compliance: float
    fixes: float
    no_fix: float
    collect_seconds: float
    update_seconds: float


@dataclass(frozen=True)
class Saved:
    """The state of a training after an update: from here it can continue, bit for bit.

    Attributes:
        number: of the training. update: after which.
        state: arrays and the rest.
    """

    number: int
    update: int
    state: Checkpoint


@dataclass(frozen=True)
class FixStatistics:
    """What was repaired in the episodes that a compliance rests on, means per episode; empty with strict.

    Attributes:
        by_type: unit type -> {"fixes", "complied", "violated", "held_steps"}.
        by_host: host name -> the same.
    """

    by_type: dict[str, dict[str, float]]
    by_host: dict[str, dict[str, float]]


@dataclass(frozen=True)
class WorkflowResult:
    """A trained order.

    Attributes:
        number, order: of the task.
        value: mean environment reward; with several attackers their mean or the worst, as the goal says.
        value_error: its standard error; value_episodes: how many episodes it rests on.
        by_attacker: value against each of `config.reds`.
        gain: value minus that of the training which this one continues; NaN if it continues none.
        compliance: of the policy that is kept; NaN if no episode had a judged fix.
        fixes: judged fixes per episode. no_fix: share of episodes without one.
        feasible: compliance reached the threshold with enough fixes; always with strict.
        episodes: trained. updates: made.
        stopped: why.
        held: (5,) bool, types that red held at some time (its foothold apart); all False where nobody looked.
        statistics: what was repaired.
        seconds: wall time.
        weights: of the policy that is kept, by name. architecture: of it, as JSON.
        returns: (attackers, episodes) that the value rests on.
        state: to continue from; None if it cannot be continued.
    """

    number: int
    order: Order
    value: float
    value_error: float
    value_episodes: int
    by_attacker: tuple[float, ...]
    gain: float
    compliance: float
    fixes: float
    no_fix: float
    feasible: bool
    episodes: int
    updates: int
    stopped: StopReason
    held: tuple[bool, ...]
    statistics: FixStatistics
    seconds: float
    weights: dict[str, np.ndarray]
    architecture: dict[str, object]
    returns: np.ndarray
    state: Checkpoint | None = None
