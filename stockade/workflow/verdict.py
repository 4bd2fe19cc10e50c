"""The answer of a search: which orders are best, how surely, what each precedence is worth, and all of it in words.

Measured -> posterior draws -> Verdict (one per goal) -> lines of text

Goals with several attackers: `mean` over the attackers, and `worst`, the minimum over them.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stockade.errors import InputError
from stockade.text import WIDTH
from stockade.workflow.posterior import Estimate, Measured, Precedences, precedence_effects, sample_values

Goal = Literal["mean", "worst"]
Status = Literal["equal", "open", "worse"]
MARGIN_POINTS, MARGIN_SHARE = 0.3, 0.03
SURE = 0.95
NAMED_ORDERS, NAMED_PRECEDENCES = 6, 3  # that the words list at most


@dataclass(frozen=True)
class Posterior(Estimate):
    """What is known of one order, for one goal: value, low and high are of its true value."""

    order: str
    measured: float  #: mean return of its episodes
    #: Mean share of wins: in each draw, the orders within the margin of that draw's best share one win equally. So it
    #: sums to 1 over the orders, and n orders that are truly equal have 1/n each.
    p_best: float
    p_equal: float  #: probability of being within the margin of the best
    #: p_equal of at least 0.95; at most 0.05 and not in the winning set; or open: not told apart from the best yet.
    status: Status
    by_attacker: dict[str, Estimate]  #: its value against each


@dataclass(frozen=True)
class Verdict:
    """The answer for one goal."""

    goal: Goal
    attackers: tuple[str, ...]
    margin: float  #: points within which two orders count as equal
    orders: tuple[Posterior, ...]  #: in the sequence in which they were measured
    #: The winning set, the highest p_best first: the fewest orders that hold the one with the highest true value with
    #: probability 0.95, and every order with p_equal of at least 0.5.
    best: tuple[str, ...]
    #: Precedences (before, after) that all of the winning set share, if every other order lacks one of them.
    rule: tuple[tuple[str, str], ...]
    any_place: tuple[str, ...]  #: units that are in no precedence of the rule
    precedences: Precedences
    free: Estimate | None  #: value of the agent that may repair in any order, if it was measured
    cost: Estimate | None  #: that minus the value of the best order: positive if the order costs something


def judge(
    measured: Measured, *, margin: float | None = None, seed: int = 0, draws: int = 20_000
) -> tuple[Verdict, ...]:
    """The verdicts: for one attacker one (`mean`), for several those of `mean` and `worst`.

    Orders within `margin` points count as equal; default: the larger of 0.3 points and 3% of the best value. The
    posterior is drawn from so many times; the same input gives the same verdict.
    """
    if margin is not None and not (math.isfinite(margin) and margin >= 0):
        raise InputError(f"margin: {margin} is not possible; give 0 or more points")
    rng = np.random.default_rng(seed)
    values, free = sample_values(measured, draws, rng)
    goals: tuple[Goal, ...] = ("mean", "worst") if len(measured.attackers) > 1 else ("mean",)
    return tuple(_judge_goal(measured, goal, margin, values, free, rng) for goal in goals)


def _judge_goal(
    measured: Measured, goal: Goal, margin: float | None,
    by_attacker: np.ndarray, free_by_attacker: np.ndarray | None, rng: np.random.Generator,
) -> Verdict:  # fmt: skip
    """Of draws by attacker: (draws, A, K) of the orders, (draws, A) of the free agent."""
    combine = np.mean if goal == "mean" else np.min
    means, values = combine(measured.returns.mean(axis=2), axis=0), combine(by_attacker, axis=1)
    if margin is None:
        margin = max(MARGIN_POINTS, MARGIN_SHARE * abs(float(means.max())))
    near = values >= values.max(axis=1, keepdims=True) - margin
    p_best, p_equal = (near / near.sum(axis=1, keepdims=True)).mean(axis=0), near.mean(axis=0)
    best = _credible_set(values) | (p_equal >= 0.5)
    orders = []
    for k, label in enumerate(measured.orders):
        status: Status = "equal" if p_equal[k] >= SURE else "open" if best[k] or p_equal[k] > 1 - SURE else "worse"
        each = {red: Estimate.of(by_attacker[:, a, k]) for a, red in enumerate(measured.attackers)}
        orders.append(Posterior.of(
            values[:, k], order=label, measured=float(means[k]), p_best=float(p_best[k]), p_equal=float(p_equal[k]),
            status=status, by_attacker=each,
        ))  # fmt: skip
    free = None if free_by_attacker is None else combine(free_by_attacker, axis=1)
    leader = values[:, values.mean(axis=0).argmax()]
    return Verdict(
        goal, measured.attackers, margin, tuple(orders),
        tuple(measured.orders[k] for k in np.argsort(-p_best, kind="stable") if best[k]), *_rule(measured, best),
        precedence_effects(values, measured.precedes, measured.pairs, best, rng),
        None if free is None else Estimate.of(free), None if free is None else Estimate.of(free - leader),
    )  # fmt: skip


def _credible_set(values: np.ndarray) -> np.ndarray:
    """(K,) bool, the fewest orders among which is the best of a draw, (draws, K), in 95% of the draws."""
    wins = np.bincount(values.argmax(axis=1), minlength=values.shape[1]) / len(values)
    ranked = np.argsort(-wins, kind="stable")
    enough = np.searchsorted(np.cumsum(wins[ranked]), SURE - 1e-12) + 1
    return np.isin(np.arange(len(wins)), ranked[:enough])


def _rule(measured: Measured, best: np.ndarray) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Precedences that tell the orders of `best`, (K,) bool, from all others, and units of which they say nothing.

    Precedences that follow from two others (a before b before c) are left out.
    """
    inside = measured.precedes[best]
    shared = np.flatnonzero((inside == inside[0]).all(axis=0) & (inside[0] != 0.5))
    if best.all() or (measured.precedes[:, shared] == inside[0, shared]).all(axis=1).sum() > best.sum():
        return (), ()
    rule = {measured.pairs[p] if inside[0, p] == 1 else measured.pairs[p][::-1] for p in shared}
    units = {unit for pair in measured.pairs for unit in pair}
    named = {unit for pair in rule for unit in pair}
    direct = {(a, c) for a, c in rule if not any((a, b) in rule and (b, c) in rule for b in units)}
    return tuple(sorted(direct)), tuple(sorted(units - named))


# -------------------------------------------------------------------------------------------------------------- words
def verdict_lines(
    verdicts: Sequence[Verdict], coverage: str, *, remarks: Sequence[str] = (), next_step: str = ""
) -> list[str]:
    """The verdicts in words, at most 100 columns wide.

    `coverage` is a sentence that says what was not tried, `remarks` are sentences that come first, `next_step` is what
    to do if questions are open.
    """
    sentences = list(remarks)
    for verdict in verdicts:
        if len(verdicts) > 1:
            goal = "Mean over" if verdict.goal == "mean" else "Worst case of"
            sentences.append(f"{goal} {' and '.join(verdict.attackers)}:")
        sentences += _Words(verdict).sentences()
    sentences.append(coverage)
    if any(order.status == "open" for verdict in verdicts for order in verdict.orders):
        sentences.append(f"To settle what is open: {next_step or 'more training or evaluation episodes'}.")
    # A line does not break inside an order.
    wrap = textwrap.TextWrapper(WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False).wrap
    wrapped = [wrap(sentence.replace(" > ", "\xa0>\xa0")) for sentence in sentences]
    return [line.replace("\xa0", " ") for lines in wrapped for line in lines]


class _Words:
    """Sentences about one verdict."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.digits = max(1, math.ceil(-math.log10(verdict.margin))) if verdict.margin > 0 else 2
        self.within = f"{self.number(verdict.margin)} points"

    def number(self, value: float) -> str:
        """With the decimals that the margin needs, and no negative zero."""
        return f"{round(value, self.digits) + 0.0:.{self.digits}f}"

    def interval(self, found: Estimate) -> str:
        return f"({self.number(found.low)} to {self.number(found.high)})"

    def sentences(self) -> Iterator[str]:
        orders = self.verdict.orders
        value = self.number(max(order.value for order in orders))
        if len(orders) == 1:
            yield f"Only one class of orders was tried: {orders[0].order} ({value})."
            yield from self.cost()
        elif all(order.status == "equal" for order in orders):
            no_better = f"No order is better than another by more than {self.within} ({value})"
            yield f"{no_better}: the order does not matter here."
            yield from self.cost()
        else:
            for part in (self.claims, self.best, self.rule, self.cost, self.limits):
                yield from part()

    def claims(self) -> Iterator[str]:
        """Precedences that are surely worth something, the largest first."""
        margin = self.verdict.margin
        effects = [e for e in self.verdict.precedences.effects if round(e.low, self.digits) > 0 and e.value >= margin]
        for e in effects[:NAMED_PRECEDENCES]:
            pair, worth = f"{e.before} before {e.after}", f"worth +{self.number(e.value)} points per episode"
            claim = f"Repair {pair}: that precedence" if e.in_best else f"On average over the orders, {pair}"
            yield f"{claim} is {worth} {self.interval(e)}."

    def best(self) -> Iterator[str]:
        """The orders that are equal to the best, and those that may be."""
        ranked = sorted(self.verdict.orders, key=lambda order: -order.p_best)
        equal, unsure = ([o for o in ranked if o.status == status] for status in ("equal", "open"))
        if equal:
            several = f"{len(equal)} orders that are equal within {self.within}: " if len(equal) > 1 else ""
            yield f"{'Best so far' if unsure else 'Best'}: {several}{self.listed(equal)}"
        if unsure:
            yield f"{'Perhaps as good' if equal else 'Open, the best is among'}: {self.listed(unsure)}"

    def listed(self, orders: Sequence[Posterior]) -> str:
        """Orders with their values and probabilities."""
        named = [f"{o.order} ({self.number(o.value)})" for o in orders[:NAMED_ORDERS]]
        more = [f"{len(orders) - NAMED_ORDERS} more"] * (len(orders) > NAMED_ORDERS)
        chances = [f"{o.p_best:.2f}".removeprefix("0") for o in orders[:NAMED_ORDERS]]
        return f"{', '.join(named + more)}. P(best) {', '.join(chances)}."

    def rule(self) -> Iterator[str]:
        """What the best have in common, and what makes no difference; only said if it is certain."""
        verdict = self.verdict
        if verdict.rule and len(verdict.best) > 1 and all(order.status != "open" for order in verdict.orders):
            said = f"These are all tried orders with {' and '.join(f'{a} before {b}' for a, b in verdict.rule)}."
            if verdict.any_place:
                stand = " and ".join(verdict.any_place) + (" stands" if len(verdict.any_place) == 1 else " stand")
                said += f" Where {stand} makes no difference there (less than {self.within})."
            yield said

    def cost(self) -> Iterator[str]:
        """Of having to keep an order at all."""
        free, cost = self.verdict.free, self.verdict.cost
        if free is None or cost is None:
            return
        against = f"an agent that may repair in any order ({self.number(free.value)})"
        if cost.high < 0:
            better = f"{self.number(-cost.value)} points ({self.number(-cost.high)} to {self.number(-cost.low)})"
            yield f"The best order is {better} better than {against}, which needs more training."
        elif cost.low > 0 and round(cost.value, self.digits) > 0:
            yield f"The order costs {self.number(cost.value)} points {self.interval(cost)} against {against}."
        else:
            most = 10**-self.digits * math.ceil(max(cost.high, 1e-9) * 10**self.digits)
            size = f"costs nothing that can be measured (less than {self.number(most)} points)"
            yield f"The order {size} against {against}."

    def limits(self) -> Iterator[str]:
        """Where the words about precedences fall short."""
        found, margin = self.verdict.precedences, self.verdict.margin
        if found.residual_sd is not None and found.r_squared is not None and found.residual_sd > margin:
            left = f"{self.number(found.residual_sd)} points (R2 {found.r_squared:.3f})"
            yield f"Precedences interact: one by one they explain the values up to {left}."
        for e in found.effects:
            swaps = e.by_swaps
            if swaps and (swaps.low > e.high or swaps.high < e.low) and abs(swaps.value - e.value) > margin:
                worth = f"{self.number(swaps.value)} {self.interval(swaps)}"
                model = f"the additive model says {self.number(e.value)}"
                yield f"Orders that differ only in {e.before} before {e.after} differ by {worth}; {model}."
