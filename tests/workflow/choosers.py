"""Made-up results of trainings, and strategies that know them: for the tests of proposals."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stockade.workflow.orders import (
    ALL_MATTER,
    UNIT_TYPES,
    Order,
    index_of,
    restricted,
)
from stockade.workflow.proposals import Strategy
from tests.workflow.fake import reward_config

BLINE = np.array([unit in ("enterprise", "op_server", "user") for unit in UNIT_TYPES])
MEANDER = np.array([unit != "defender" for unit in UNIT_TYPES])
NOTHING = np.zeros(5, np.bool_)


def kendall(a: Sequence[int], b: Sequence[int], matters: np.ndarray = ALL_MATTER) -> int:
    """Pairs of types that matter which a and b put the other way round."""
    kept, other = restricted(a, matters), restricted(b, matters)
    return sum(other.index(first) > other.index(second) for first, second in itertools.combinations(kept, 2))


@dataclasses.dataclass(frozen=True)
class Result:
    order: Order
    value: float = -30.0
    value_error: float = 0.3
    gain: float = math.nan
    feasible: bool = True
    compliance: float = 0.96


def failed(order: Order, compliance: float = 0.3, value: float = -30.0) -> Result:
    return Result(order, value, feasible=False, compliance=compliance)


def strategy(search: str = "gp-ucb", matters: np.ndarray = ALL_MATTER, **settings: Any) -> Strategy:
    return Strategy(reward_config(search=search, **settings), matters)


def made_up_result(order: Order, seed: int) -> Result:
    """Of any order, a function of order and seed; a fifth fails."""
    rng = np.random.default_rng([index_of(order), seed])
    compliance = rng.choice([0.0, 0.5, 0.9, math.nan])
    if rng.random() < 0.2:
        return failed(order, compliance, rng.normal(-30, 5))
    return Result(order, rng.normal(-30, 5), rng.uniform(0, 1))


def proposed(chooser: Strategy, pending: Sequence[Order] = ()) -> Order:
    proposal = chooser.propose(pending)
    assert proposal is not None
    return proposal.order
