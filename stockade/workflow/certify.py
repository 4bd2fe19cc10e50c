"""`--certify K`: the leading order and a rival, each trained alone from scratch with K seeds, to confirm the verdict.

leader, rival -> 2 K separate trainings of equal budgets (any engine) -> greedy episodes on common seeds -> difference

The verdict of a search rests on one policy for all orders. If the leader also wins when each order has a network of its
own, nobody can say that the shared network decided. Training k of both orders has the same seed.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from stockade.text import fixed
from stockade.workflow.config import SearchConfig
from stockade.workflow.runner import Runner
from stockade.workflow.separate import seed_of, whole_updates
from stockade.workflow.store import Proposed, SearchFolder
from stockade.workflow.summary import Outcome
from stockade.workflow.together import goal_value
from stockade.workflow.training import judged_returns, train_workflow

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


def certify(
    config: SearchConfig, folder: SearchFolder, outcome: Outcome, summary: dict[str, Any]
) -> CertifyResult | int:
    """Train the leader and its best rival alone, in the subfolder `certify` of a search; interrupted and continued like
    any. What these trainings say, or the signal that interrupted them."""
    best, ranked = summary["best"], summary["classes"]
    outside = [entry for entry in ranked if entry["order"] not in best]
    leader = next(entry for entry in ranked if entry["order"] == best[0])
    rival = next(entry for entry in outside or ranked if entry is not leader)
    names, orders = (leader["order"], rival["order"]), (leader["ranking"], rival["ranking"])
    # By default each training gets the budget that an order had in the search.
    most = config.max_episodes or max(LEAST_EPISODES, config.budget // len(outcome.orders))
    config = replace(config, max_episodes=most)
    episodes = whole_updates(config, most)
    inner = SearchFolder(folder.path / "certify")
    inner.path.mkdir(exist_ok=True)

    def label(proposed: Proposed) -> str:
        return f"{names[proposed.number % 2]}, seed {proposed.number // 2}"

    runner = Runner(config, inner, 2 * config.certify * episodes, train_workflow, label, folder.path)

    def propose() -> Proposed | None:
        number = len(runner.proposals)
        seed = seed_of(config.seed, 1_000_000 + number // 2)  # no training of the search has these
        return Proposed(number, orders[number % 2], seed, episodes) if number < 2 * config.certify else None

    stopped = runner.run(propose, lambda result: None)
    if stopped is not None:
        return stopped
    policies = [(orders[n % 2], inner.load_policy(n, orders[n % 2])[0]) for n in sorted(runner.results)]
    values = goal_value(judged_returns(config, policies).mean(axis=2), config.goal)  # (2 K,)
    return compare(*names, "better" if outside else "equal", values[0::2], values[1::2], episodes, summary["margin"])


def compare(
    leader: str, rival: str, claim: Claim, leader_values: np.ndarray, rival_values: np.ndarray, episodes: int,
    margin: float,
) -> CertifyResult:  # fmt: skip
    """What (seeds,) values of both orders do to the claim."""
    differences = leader_values - rival_values
    n, mean = len(differences), float(differences.mean())
    half = float(_T975[min(n - 2, len(_T975) - 1)] * differences.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    low, high = mean - half, mean + half
    if claim == "better":
        confirms, contradicts = low > 0, high < 0
    else:
        confirms, contradicts = -margin <= low <= high <= margin, low > margin or high < -margin
    outcome: Any = "confirms" if confirms else "contradicts" if contradicts else "open"
    by_seed = tuple(leader_values.tolist()), tuple(rival_values.tolist())
    return CertifyResult(leader, rival, claim, *by_seed, episodes, mean, low, high, outcome)
