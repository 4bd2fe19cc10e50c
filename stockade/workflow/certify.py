"""`--certify K`: the leading order and a rival, each trained alone from scratch with K seeds, to confirm the verdict.

leader, rival -> 2 K separate trainings of equal budgets (any engine) -> greedy episodes on common seeds -> difference

The verdict of a search rests on one policy for all orders. If the leader also wins when each order has a network of its
own, nobody can say that the shared network decided. Training k of both orders has the same seed.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

import numpy as np

from stockade.text import fixed
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import Order
from stockade.workflow.records import Proposed
from stockade.workflow.runner import Runner
from stockade.workflow.separate import seed_of, whole_updates
from stockade.workflow.store import SearchFolder
from stockade.workflow.together import goal_value
from stockade.workflow.training import judged_returns, train_workflow
from stockade.workflow.units import UNITS, Ranking

LEAST_EPISODES = 12_000
"""Of one training, unless --max-episodes says otherwise."""
_T975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Student's t for an interval of 95% from 2, 3, ... seeds."""
Claim = Literal["better", "equal"]


@dataclass(frozen=True)
class CertifyResult:
    """What the separate trainings say."""

    leader: str
    rival: str
    claim: Claim  #: of the verdict: the leader is better, or they are equal within the margin
    leader_values: tuple[float, ...]  #: of each seed, by the goal of the search
    rival_values: tuple[float, ...]
    episodes: int  #: of each training
    difference: float  #: leader minus rival, mean over seeds
    low: float  #: of its 95% interval; NaN of a single seed
    high: float
    outcome: Literal["confirms", "contradicts", "open"]  #: what the interval does to the claim

    def to_dict(self) -> dict[str, Any]:
        """For summary.json."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For people."""
        n = len(self.leader_values)
        seeds = f"{n} seeds each" if n > 1 else "one seed each, which gives no interval"
        interval = f" ({self.low:+.2f} to {self.high:+.2f})" if n > 1 else ""
        said = "is better than" if self.claim == "better" else "equals"
        end = f"That {self.outcome} that the first {said} the second."
        if self.outcome == "open":
            end = "That decides nothing; more seeds (--certify) or episodes (--max-episodes) would."
        return [
            f"Trained alone for {self.episodes:,} episodes, {seeds}: {self.difference:+.2f} points{interval}.",
            f"  {fixed(float(np.mean(self.leader_values)))} {self.leader}",
            f"  {fixed(float(np.mean(self.rival_values)))} {self.rival}",
            f"  {end}",
        ]


class Certification:
    """The trainings that confirm a verdict, in the subfolder `certify` of a search; interrupted and continued like any.

    `n_orders` share the budget of the search: by default each training gets that of one of them.
    """

    def __init__(
        self, config: SearchConfig, folder: SearchFolder, leader: Ranking, rival: Ranking,
        matters: np.ndarray, n_orders: int,
    ) -> None:  # fmt: skip
        episodes = config.max_episodes or max(LEAST_EPISODES, config.budget // n_orders)
        self.config = replace(config, max_episodes=episodes)
        self._orders = cast("tuple[Order, Order]", (leader, rival))
        describe = UNITS[config.units].describe
        self._names = describe(leader, matters), describe(rival, matters)
        self._episodes = whole_updates(self.config, episodes)
        inner = SearchFolder(folder.path / "certify")
        inner.path.mkdir(exist_ok=True)
        self._runner = Runner(self.config, inner, 2 * config.certify * self._episodes, train_workflow, folder.path)
        labels = [f"{name}, seed {k}" for k in range(config.certify) for name in self._names]
        self._runner.set_rows(labels, lambda proposed: labels[proposed.number])

    def run(self) -> int | None:
        """Train; the signal that ended it before, if one did."""
        return self._runner.run(self._propose, lambda result: None)

    def _propose(self) -> Proposed | None:
        number = len(self._runner.proposals)
        if number == 2 * self.config.certify:
            return None
        seed = seed_of(self.config.seed, 1_000_000 + number // 2)  # no training of the search has these
        return Proposed(number, self._orders[number % 2], seed, self._episodes)

    def result(self, claim: Claim, margin: float) -> CertifyResult:
        """Judge all policies on common seeds."""
        results = [self._runner.results[number] for number in sorted(self._runner.results)]
        policies = [(r.order, self._runner.folder.load_policy(r.number, r.order)[0]) for r in results]
        means = judged_returns(self.config, policies).mean(axis=2)  # (attackers, 2 K)
        values = goal_value(means, self.config.goal)
        leader, rival = values[0::2], values[1::2]
        differences = leader - rival
        n, mean = len(differences), float(differences.mean())
        half = float(_T975[min(n - 2, len(_T975) - 1)] * differences.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
        low, high = mean - half, mean + half
        if claim == "better":
            confirms, contradicts = low > 0, high < 0
        else:
            confirms, contradicts = -margin <= low <= high <= margin, low > margin or high < -margin
        outcome: Any = "confirms" if confirms else "contradicts" if contradicts else "open"
        by_seed = tuple(leader.tolist()), tuple(rival.tolist())
        return CertifyResult(*self._names, claim, *by_seed, self._episodes, mean, low, high, outcome)
