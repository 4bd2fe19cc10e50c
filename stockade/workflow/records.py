"""What passes between the search, its folder and those who train its orders: plain data that can go to other processes.

Proposed (chosen, written down) -> Task (with weights or state) -> UpdateRow, Saved ... -> WorkflowResult
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np

from stockade.learn.checkpoint import Checkpoint
from stockade.workflow.aligned import Statistics
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import Order

StopReason = Literal["compliant", "plateau", "max_episodes", "budget", "fixed"]
_ARRAYS = ("weights", "architecture", "returns", "state")
"""Fields of a result that stand beside state.json."""


@dataclass(frozen=True)
class Proposed:
    """An order that was chosen, and all that its training depends on."""

    number: int  #: of the training in this search, from 0
    order: Order  #: FREE for none
    seed: int
    episodes: int  #: that it may use of the budget
    inherit: int | None = None  #: training whose weights (strict: whose whole state) it begins with
    ucb: float = math.nan  #: what the model thought of it, as `mean`, `sd`, `feasibility`; NaN where nothing was asked
    mean: float = math.nan
    sd: float = math.nan
    feasibility: float = math.nan
    top: str = ""  #: the candidates that it thought best


@dataclass(frozen=True)
class Task:
    """One order to train."""

    number: int
    order: Order
    config: SearchConfig
    seed: int
    episodes: int  #: a multiple of n_envs, unless update_steps is not whole episodes
    weights: dict[str, np.ndarray] | None = None  #: to begin with, by name; None for new ones
    state: Checkpoint | None = None  #: to continue from, of this training or of the one that it continues
    threads: int | None = None  #: None: as many as there are cores; results do not depend on it


@dataclass(frozen=True)
class UpdateRow:
    """One update of one training, of the episodes that ended in it; NaN where none did."""

    number: int
    update: int  #: from 1
    episodes: int  #: of this training so far
    env_reward: float  #: mean return of the environment alone
    alignment: float  #: mean of what was paid for alignment
    compliance: float  #: mean over episodes with a judged fix
    fixes: float  #: judged fixes per episode; strict: fixes that were carried out
    no_fix: float  #: share of episodes without one
    collect_seconds: float
    update_seconds: float  #: 0 for the last, after which nothing is learned


@dataclass(frozen=True)
class Saved:
    """The state of a training after an update: from here it can continue, bit for bit."""

    number: int
    update: int
    state: Checkpoint


@dataclass(frozen=True)
class WorkflowResult:
    """A trained order."""

    number: int
    order: Order
    value: float  #: mean environment reward; with several attackers their mean or the worst, as the goal says
    value_error: float  #: its standard error
    value_episodes: int  #: that it rests on
    by_attacker: tuple[float, ...]  #: value against each of `config.reds`
    gain: float  #: value minus that of the training which this one continues; NaN if it continues none
    compliance: float  #: of the policy that is kept; NaN if no episode had a judged fix
    fixes: float  #: judged fixes per episode
    no_fix: float  #: share of episodes without one
    feasible: bool  #: compliance reached the threshold with enough fixes; always with strict
    episodes: int
    updates: int
    stopped: StopReason
    held: tuple[bool, ...]  #: (5,) types that red held at some time, its foothold apart; False where nobody looked
    statistics: Statistics  #: of the episodes that the compliance rests on; empty with strict
    seconds: float
    weights: dict[str, np.ndarray] = field(default_factory=dict)  #: of the policy that is kept, by name
    architecture: dict[str, object] = field(default_factory=dict)
    returns: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  #: (attackers, episodes)
    state: Checkpoint | None = None  #: to continue from; None if it cannot be continued

    def without_arrays(self) -> Self:
        """What state.json has of it."""
        return replace(self, weights={}, architecture={}, returns=np.zeros((0, 0)), state=None)

    def to_json(self) -> dict[str, Any]:
        """The same as a dictionary."""
        return {name: value for name, value in vars(self).items() if name not in _ARRAYS}
