"""What a search found: from measured returns to the verdict, the table, and the content of summary.json.

Outcome (of either way of training) -> posterior.Measured -> Verdict -> table, summary.json
"""

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import stockade
from stockade.text import Table, fixed, interval, plural
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import ORDERS, Ranking, Units, members_of
from stockade.workflow.posterior import Estimate, Measured, last_gains
from stockade.workflow.verdict import Posterior, Verdict, judge, verdict_lines


@dataclass(frozen=True)
class Outcome:
    """What a search measured of K orders, one of each class of equal orders that was tried."""

    units: Units  #: what orders put in sequence
    matters: np.ndarray  #: (units,) bool, which of them red can hold
    orders: tuple[Ranking, ...]
    returns: np.ndarray  #: (attackers, K, episodes) greedy returns on common seeds
    training_sd: np.ndarray  #: (attackers, K)
    episodes: np.ndarray  #: (K,) that each was trained for
    free_returns: np.ndarray | None = None  #: (attackers, episodes) of the agent without an order
    free_sd: np.ndarray | None = None  #: (attackers,)
    #: {"episodes": [...], "values": [(attackers, C) ...]}: values over training; also "orders", the C names, if these
    #: are not the K orders and, if it was measured, the agent without an order.
    curves: dict[str, Any] = field(default_factory=dict)
    ended: str = ""  #: why the training is over
    seconds: float = 0.0  #: that it took
    compliance: np.ndarray | None = None  #: (K,) share of fixes that complied; None where it is 1 by construction
    total: int = 0  #: number of classes of orders that there are
    tried: str = ""  #: a sentence of what was, in place of counts
    extra: dict[str, Any] = field(default_factory=dict)  #: more for summary.json
    level_sd: np.ndarray | None = None  #: (attackers,) see `Measured`
    policies: tuple[str, ...] = ()  #: (K,) file of each order's policy, relative to the folder of the search
    told: tuple[Ranking, ...] = ()  #: (K,) order that the policy is told, if that can be another than it is kept to

    def measured(self, attackers: Sequence[str]) -> Measured:
        """For the verdict; labels and pairs name only units that matter."""
        names = [self.units.names[u] for u in np.flatnonzero(self.matters)]
        ranks = np.stack([self.units.ranks(order) for order in self.orders])[:, self.matters].astype(np.int64)
        first, second = np.triu_indices(len(names), 1)
        return Measured(
            tuple(self.units.describe(order, self.matters) for order in self.orders), tuple(attackers),
            tuple(itertools.combinations(names, 2)), self.returns,
            (1 - np.sign(ranks[:, first] - ranks[:, second])) / 2,  # side by side: half
            self.training_sd, self.free_returns, self.free_sd, self.level_sd,
        )  # fmt: skip

    def equal_orders(self, order: Ranking) -> list[str]:
        """All orders of its class, itself included; of single hosts they are too many to list."""
        if self.units.kind == "hosts":
            return []
        units = [element for element in order if isinstance(element, int)]  # all: orders of types have no groups
        return [self.units.describe(other) for other in members_of(units, self.matters)]


@dataclass(frozen=True)
class Answer:
    """A search's verdict in every form: by goal, in words, as a table of all orders, as content of summary.json."""

    verdicts: tuple[Verdict, ...]
    lines: tuple[str, ...]
    table: Table
    summary: dict[str, Any]


def answer(config: SearchConfig, outcome: Outcome, name: str = "SEARCH") -> Answer:
    """Judge what was measured; `name` is what the command line calls the search."""
    measured = outcome.measured(config.reds)
    verdicts = judge(measured, margin=config.margin)
    verdict = verdicts[-1] if config.goal == "worst" else verdicts[0]
    ranked = sorted(enumerate(verdict.orders), key=lambda pair: -pair[1].value)
    equal = [outcome.equal_orders(order) for order in outcome.orders]
    remarks = [] if config.separate else rising(outcome, verdict)  # separate trainings have no rounds
    if not config.separate and config.budget < config.enough_episodes and any(p.status == "worse" for _, p in ranked):
        remarks.append(f"A budget below {config.enough_episodes:,.0f} episodes is short: orders that need Restores may "
                       "look far worse than they are. Train longer.")  # fmt: skip
    if found := outcome.extra.get("finer_order"):
        compared = f"{found['gain']:+.2f} points ({found['low']:+.2f} to {found['high']:+.2f})"
        remarks.insert(0, f"The best order of single hosts against the best order of types: {compared}.")
    total, left = outcome.total or len(outcome.orders), len(ORDERS) - sum(map(len, equal))
    coverage = outcome.tried or f"All {plural(total, 'class', 'classes')} of orders were tried."
    if total > len(outcome.orders):
        coverage = f"Not tried: {total - len(outcome.orders)} of {total} classes ({left} of {len(ORDERS)} orders)."
    again = f"stockade search --resume {name} --total-episodes {2 * config.budget}"
    if config.separate and config.n_workflows:  # which ended it, or will before a larger budget does
        again = f"a search with more than --n-workflows {config.n_workflows}"
    asked_first = sorted(verdicts, key=lambda v: v is not verdict)
    lines = verdict_lines(asked_first, coverage, remarks=remarks, next_step=again)
    return Answer(verdicts, tuple(lines), _table(config, outcome, verdict, ranked), {
        "stockade": stockade.__version__, "format": 2, "verdict": "\n".join(lines), "best": list(verdict.best),
        "margin": verdict.margin, "goal": verdict.goal,
        "best_by_goal": {v.goal: list(v.best) for v in verdicts},
        "classes": [
            {
                **asdict(p), "equal_orders": equal[k], "episodes": int(outcome.episodes[k]),
                "policy": outcome.policies[k] if outcome.policies else None, "ranking": outcome.orders[k],
                "told": outcome.told[k] if outcome.told else outcome.orders[k],
                "compliance": 1.0 if outcome.compliance is None else float(outcome.compliance[k]),
            }
            for k, p in ranked
        ],
        "precedences": [
            {"before": e.before, "after": e.after, "effect": e.value, "low": e.low, "high": e.high}
            for e in verdict.precedences.effects
        ],
        "free_agent": None if verdict.free is None else asdict(verdict.free),
        "cost_of_order": None if verdict.cost is None else asdict(verdict.cost),
        "settings": config.to_json(),
        "matters": [name for name, m in zip(outcome.units.names, outcome.matters, strict=True) if m],
        "ended": outcome.ended, "seconds": outcome.seconds,
        "curves": {"orders": [*measured.orders, *["no order"] * (verdict.free is not None)], **outcome.curves},
        **outcome.extra,
    })  # fmt: skip


def rising(outcome: Outcome, verdict: Verdict) -> list[str]:
    """A warning if the values of the best orders, or of others that might catch up, still rose when training ended."""
    rounds = np.array(outcome.curves.get("values", []), np.float64)
    if not len(rounds):
        return []
    values = np.array([order.value for order in verdict.orders])
    gains = last_gains(rounds).max(axis=0)[: len(values)]
    near = values[: len(gains)] + 2 * gains >= values.max() - verdict.margin
    if not (highest := float(np.max(gains, where=near, initial=0.0))) > verdict.margin:
        return []
    return [f"Values still rose by up to {highest:.1f} points at the end of the training: they are lower bounds, and "
            "the ranking may be one of learning speed. Train longer."]  # fmt: skip


def _table(config: SearchConfig, outcome: Outcome, verdict: Verdict, ranked: list[tuple[int, Posterior]]) -> Table:
    """All orders, the best first, then the free agent; at most 100 columns."""

    def numbers(found: Estimate, by_attacker: Sequence[float]) -> list[str]:
        value = interval(found.value, (found.high - found.low) / 2)
        return [value, *map(fixed, by_attacker)] if len(config.reds) > 1 else [value]

    rows: list[list[object]] = []
    for k, p in ranked:
        mark, each = {"equal": "=", "open": "?", "worse": ""}[p.status], [e.value for e in p.by_attacker.values()]
        rows.append([mark, p.order, *numbers(p, each), fixed(p.p_best), f"{int(outcome.episodes[k]):,}"])
    if verdict.free is not None and outcome.free_returns is not None:
        rows.append(["", "no order", *numbers(verdict.free, outcome.free_returns.mean(1)), "", ""])
    reds = config.reds if len(config.reds) > 1 else ()
    return Table(["", "order", "value", *reds, "P(best)", "episodes"], rows)
