"""The verdict of a search: calibrated over simulated searches, right at the edges, and never more certain than its data."""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from stockade.text import WIDTH
from stockade.workflow.posterior import Measured
from stockade.workflow.precedence import pairs_of
from stockade.workflow.verdict import Verdict, judge, verdict_lines

UNITS = ("enterprise", "op_server", "user", "op_host")
TRUTHS = ("clusters", "near", "normal", "tied", "additive")


def permutations(units: int) -> list[tuple[str, ...]]:
    return list(itertools.permutations(UNITS[:units]))


def measured_of(returns: np.ndarray, units: int = 3, **parts: Any) -> Measured:
    """All orders of so many units; returns (A, K, E), of the first K orders."""
    orders = permutations(units)[: np.shape(returns)[1]]
    pairs, precedes = pairs_of(orders)
    attackers = ("bline", "meander")[: len(returns)]
    return Measured(tuple(" > ".join(order) for order in orders), attackers, pairs, returns, precedes, **parts)


def words(verdicts: tuple[Verdict, ...], **parts: Any) -> str:
    counts = {"tried": (len(verdicts[0].orders), 120), "total": (len(verdicts[0].orders), 120)} | parts
    lines = verdict_lines(verdicts, **counts)
    assert max(map(len, lines)) <= WIDTH
    return " ".join(line.strip() for line in lines)


# --------------------------------------------------------------------------------------------------- simulated searches
def true_values(rng: np.random.Generator, kind: str, units: int) -> np.ndarray:
    """(K,) values of all orders: exact groups, groups with differences within the margin, normal, all equal, additive."""
    orders = permutations(units)
    k = len(orders)
    if kind == "tied":
        return np.full(k, -8.0)
    if kind == "normal":
        return rng.normal(-10, np.exp(rng.uniform(np.log(0.1), np.log(6))), k)
    if kind == "additive":
        precedes = pairs_of(orders)[1]
        effects = rng.choice([0, 0, 1, 4], precedes.shape[1]) * rng.normal(0, 1.5, precedes.shape[1])
        return -10 + (precedes - 0.5) @ effects
    gaps = rng.uniform(0.5, 10, rng.integers(1, 3))
    group = rng.integers(len(gaps) + 1, size=k)
    group[rng.integers(k)] = 0
    return -4 - np.append(0, np.cumsum(gaps))[group] + (rng.normal(0, 0.15, k) if kind == "near" else 0.0)


def simulated(
    rng: np.random.Generator, kind: str, units: int, attackers: int, noise: float, training: float, known: float = 1.0
) -> tuple[np.ndarray, Measured]:
    """True values (A, K) and a search: skewed, heavy-tailed returns that share luck by seed, and training noise.

    `noise` and `training` are the standard deviations in an order's mean, about; `known` is the factor on what the
    search believes of the latter.
    """
    episodes = int(rng.choice([300, 1000]))
    values = np.stack([true_values(rng, kind, units) for _ in range(attackers)])
    a, k = values.shape
    common = rng.choice([0.0, 0.5, 0.9])
    shared, own = (2 - rng.exponential(size=size) ** 2 for size in ((a, 1, episodes), (a, k, episodes)))
    luck = (np.sqrt(common) * shared + np.sqrt(1 - common) * own) / np.sqrt(20)
    sd = noise * np.sqrt(episodes) * np.exp(rng.normal(0, 0.5, (a, k, 1)))
    training_sd = training * np.exp(rng.normal(0, 0.5, (a, k)))
    returns = values[:, :, None] + sd * luck + (training_sd * rng.standard_normal((a, k)))[:, :, None]
    return values, measured_of(returns, units, training_sd=training_sd * known)


@dataclasses.dataclass
class Outcome:
    """One order in one simulated search: what the verdict said, and the truth."""

    search: int
    p_best: float
    p_equal: float
    covered: bool
    share: float
    equal: bool
    kind: str


def play(searches: int, draws: int = 1000, seed: int = 1, **fixed: Any) -> tuple[list[Outcome], np.ndarray, np.ndarray]:
    """Outcomes of all orders; by search and goal whether the winning set has a true best, and how large it is."""
    outcomes, hits, sizes = [], [], []
    for number in range(searches):
        rng = np.random.default_rng([seed, number])
        drawn = {
            "kind": str(rng.choice(TRUTHS)),
            "units": int(rng.choice([3, 4], p=[0.85, 0.15])),
            "attackers": int(rng.choice([1, 2])),
            "noise": float(rng.choice([0.03, 0.1, 0.3, 1.0])),
            "training": float(rng.choice([0.0, 0.1, 0.5])),
        }
        setting = drawn | fixed
        values, measured = simulated(rng, **setting)
        verdict = judge(measured, draws=draws, seed=number)[-1]
        truth = values.min(axis=0)
        equal = truth >= truth.max() - max(0.3, 0.03 * abs(truth.max()))
        hits.append(any(o.best for o, v in zip(verdict.orders, truth, strict=True) if v >= truth.max() - 1e-9))
        sizes.append(sum(order.best for order in verdict.orders))
        for order, value, same in zip(verdict.orders, truth, equal, strict=True):
            share = same / equal.sum()
            covered = bool(order.low <= value <= order.high)
            outcomes.append(Outcome(number, order.p_best, order.p_equal, covered, share, bool(same), setting["kind"]))
    return outcomes, np.array(hits), np.array(sizes)


def bins(
    outcomes: list[Outcome], edges: tuple[float, ...] = (0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.01)
) -> np.ndarray:
    """(bins, 3): mean P(best), frequency with which such orders are the best (equal ones share), number of orders."""
    p, share = np.array([[o.p_best, o.share] for o in outcomes]).T
    places = np.digitize(p, edges)
    return np.array(
        [[p[places == i].mean(), share[places == i].mean(), (places == i).sum()] for i in np.unique(places)]
    )


@pytest.fixture(scope="module")
def searches() -> tuple[list[Outcome], np.ndarray, np.ndarray]:
    return play(500)


def test_the_winning_set_holds_a_true_best(searches: tuple[list[Outcome], np.ndarray, np.ndarray]) -> None:
    assert searches[1].mean() >= 0.93


def test_p_best_is_the_frequency_of_being_best(searches: tuple[list[Outcome], np.ndarray, np.ndarray]) -> None:
    table = bins(searches[0])
    many = table[table[:, 2] >= 200]
    assert len(many) >= 5
    np.testing.assert_allclose(many[:, 0], many[:, 1], atol=0.07)


def test_intervals_cover_the_true_values(searches: tuple[list[Outcome], np.ndarray, np.ndarray]) -> None:
    assert 0.92 <= np.mean([o.covered for o in searches[0]]) <= 0.98


def test_what_is_called_equal_is_equal(searches: tuple[list[Outcome], np.ndarray, np.ndarray]) -> None:
    sure = [o.equal for o in searches[0] if o.p_equal >= 0.95]
    assert len(sure) > 200
    assert np.mean(sure) >= 0.95
    assert np.mean([o.equal for o in searches[0] if o.p_equal <= 0.05]) <= 0.05
