"""What a search found: from measured returns to the verdict, the table, and the content of summary.json.

Outcome (of either way of training) -> posterior.Measured -> Verdict -> table, summary.json
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import stockade
from stockade.text import Table, fixed, interval, plural
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import ORDERS, members_of
from stockade.workflow.posterior import Measured
from stockade.workflow.units import Ranking, Units
from stockade.workflow.verdict import Verdict, judge, verdict_lines


@dataclass(frozen=True)
class Outcome:
    """What a search measured.

    Attributes:
        units, matters: what orders put in sequence, and (units,) bool which of them red can hold.
        orders: K that were tried, one of each class of equal orders.
        returns: (attackers, K, episodes) greedy returns on common seeds. training_sd: (attackers, K).
        episodes: (K,) that each was trained for.
        free_returns: (attackers, episodes) of the agent without an order, or None. free_sd: (attackers,).
        curves: {"episodes": [...], "values": [(attackers, C) ...]}: values over training; also "orders", the C names,
            if these are not the K orders and, if it was measured, the agent without an order.
        ended: why the training is over. seconds: that it took.
        policies: (K,) file of each order's policy, relative to the folder of the search.
        compliance: (K,) share of fixes that complied; None where it is 1 by construction.
        total: number of classes of orders that there are. tried: a sentence of what was, in place of counts.
        extra: more for summary.json.
    """

    units: Units
    matters: np.ndarray
    orders: tuple[Ranking, ...]
    returns: np.ndarray
    training_sd: np.ndarray
    episodes: np.ndarray
    free_returns: np.ndarray | None = None
    free_sd: np.ndarray | None = None
    curves: dict[str, Any] = field(default_factory=dict)
    ended: str = ""
    seconds: float = 0.0
    compliance: np.ndarray | None = None
    total: int = 0
    tried: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    policies: tuple[str, ...] = ()

    def labels(self) -> list[str]:
        """The orders for people: only units that matter."""
        return [self.units.describe(order, self.matters) for order in self.orders]

    def measured(self, attackers: Sequence[str]) -> Measured:
        """For the verdict."""
        names = [self.units.names[u] for u in np.flatnonzero(self.matters)]
        pairs = tuple(itertools.combinations(names, 2))
        ranks = np.stack([self.units.ranks(order) for order in self.orders])[:, self.matters].astype(np.int64)
        first, second = np.triu_indices(len(names), 1)
        precedes = (1 - np.sign(ranks[:, first] - ranks[:, second])) / 2  # side by side: half
        return Measured(
            tuple(self.labels()), tuple(attackers), pairs, self.returns, precedes,
            self.training_sd, self.free_returns, self.free_sd,
        )  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """A search's verdict in every form.

    Attributes:
        verdicts: one per goal. lines: in words. table: of all orders. summary: content of summary.json.
    """

    verdicts: tuple[Verdict, ...]
    lines: tuple[str, ...]
    table: Table
    summary: dict[str, Any]


def answer(config: SearchConfig, outcome: Outcome) -> Answer:
    """Judge what was measured."""
    verdicts = judge(outcome.measured(config.reds), margin=config.margin)
    verdict = verdicts[-1] if config.goal == "worst" else verdicts[0]
    equal = [_equal_orders(order, outcome) for order in outcome.orders]
    lines = verdict_lines(
        verdicts, outcome.tried or _not_tried(outcome, equal), remarks=_finer(outcome),
        next_step=f"stockade search --resume SEARCH --total-episodes {2 * config.budget}",
    )  # fmt: skip
    labels = outcome.labels()
    return Answer(verdicts, tuple(lines), _table(config, outcome, verdict), {
        "stockade": stockade.__version__, "format": 2,
        "verdict": "\n".join(lines),
        "best": list(verdict.best),
        "margin": verdict.margin,
        "goal": verdict.goal,
        "best_by_goal": {v.goal: list(v.best) for v in verdicts},
        "classes": [
            {
                "order": labels[k], "equal_orders": equal[k], "value": p.value, "low": p.low, "high": p.high,
                "p_best": p.p_best, "p_equal": p.p_equal, "status": p.status, "measured": p.measured,
                "episodes": int(outcome.episodes[k]),
                "by_attacker": {red: asdict(e) for red, e in zip(config.reds, p.by_attacker, strict=True)},
                "policy": outcome.policies[k] if outcome.policies else None, "ranking": outcome.orders[k],
                "compliance": 1.0 if outcome.compliance is None else float(outcome.compliance[k]),
            }
            for k, p in _ranked(verdict)
        ],
        "precedences": [
            {"before": e.before, "after": e.after, "effect": e.effect, "low": e.low, "high": e.high}
            for e in verdict.precedences.effects
        ],
        "free_agent": None if verdict.free is None else asdict(verdict.free),
        "cost_of_order": None if verdict.cost is None else asdict(verdict.cost),
        "settings": config.to_json(),
        "matters": [name for name, m in zip(outcome.units.names, outcome.matters, strict=True) if m],
        "ended": outcome.ended,
        "seconds": outcome.seconds,
        "curves": {"orders": labels + ["no order"] * (outcome.free_returns is not None), **outcome.curves},
        **outcome.extra,
    })  # fmt: skip


def _not_tried(outcome: Outcome, equal: Sequence[Sequence[str]]) -> str:
    tried, total = len(outcome.orders), outcome.total or len(outcome.orders)
    orders = len(ORDERS) - sum(map(len, equal))
    return f"Not tried: {total - tried} of {plural(total, 'class', 'classes')} ({orders} of {len(ORDERS)} orders)."


def _finer(outcome: Outcome) -> list[str]:
    """With --units hosts: whether the finer order pays."""
    if "finer_order" not in outcome.extra:
        return []
    found = outcome.extra["finer_order"]
    compared = f"{found['gain']:+.2f} points ({found['low']:+.2f} to {found['high']:+.2f})"
    return [f"The best order of single hosts against the best order of types: {compared}."]


def _ranked(verdict: Verdict) -> list[tuple[int, Any]]:
    """Index and posterior of every order, the best first."""
    return sorted(enumerate(verdict.orders), key=lambda pair: -pair[1].value)


def _equal_orders(order: Ranking, outcome: Outcome) -> list[str]:
    """All orders of its class, itself included; of single hosts they are too many to list."""
    if outcome.units.kind == "hosts":
        return []
    units = [element for element in order if isinstance(element, int)]  # all of them: orders of types have no groups
    return [outcome.units.describe(other) for other in members_of(units, outcome.matters)]


def _table(config: SearchConfig, outcome: Outcome, verdict: Verdict) -> Table:
    """All orders, the best first, then the free agent; at most 100 columns."""
    labels = outcome.labels()
    several = list(config.reds) if len(config.reds) > 1 else []
    header = ["", "order", "value", *several, "P(best)", "episodes"]
    rows: list[list[object]] = []
    for k, p in _ranked(verdict):
        mark = {"equal": "=", "open": "?", "worse": ""}[p.status]
        by_attacker = [fixed(e.value) for e in p.by_attacker] if several else []
        value = interval(p.value, (p.high - p.low) / 2)
        rows.append([mark, labels[k], value, *by_attacker, fixed(p.p_best), f"{int(outcome.episodes[k]):,}"])
    if verdict.free is not None:
        free = verdict.free
        means = [] if outcome.free_returns is None or not several else [fixed(m) for m in outcome.free_returns.mean(1)]
        rows.append(["", "no order", interval(free.value, (free.high - free.low) / 2), *means, "", ""])
    return Table(header, rows)
