"""The verdict of a search: calibrated over simulated searches, right at the edges, and in words that claim no more."""

import dataclasses
import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stockade.errors import InputError
from stockade.text import WIDTH
from stockade.workflow import posterior
from stockade.workflow.posterior import Estimate, Measured
from stockade.workflow.verdict import Verdict, judge, verdict_lines
from tests.workflow.pairs import pairs_of

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
    lines = verdict_lines(verdicts, "Not tried: nothing.", **parts)
    assert max(map(len, lines)) <= WIDTH
    return " ".join(line.strip() for line in lines)


# --------------------------------------------------------------------------------------------------- simulated searches
def true_values(rng: np.random.Generator, kind: str, units: int) -> np.ndarray:
    """(K,) of all orders: exact groups, groups with small differences, normal, all equal, sums of effects."""
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
        hits.append(
            any(o.order in verdict.best for o, v in zip(verdict.orders, truth, strict=True) if v >= truth.max() - 1e-9)
        )
        sizes.append(len(verdict.best))
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
    return play(500, draws=500)


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


def test_training_noise_above_evaluation_noise_is_covered_if_it_is_known() -> None:
    outcomes, hits, _ = play(100, seed=6, units=3, noise=0.03, training=0.5)
    assert hits.mean() >= 0.93
    assert np.mean([o.covered for o in outcomes]) >= 0.92


def test_training_noise_believed_half_as_large_still_finds_a_best_but_intervals_are_too_narrow() -> None:
    """What to expect of an estimate of training noise that is too low."""
    outcomes, hits, _ = play(100, seed=6, units=3, noise=0.03, training=0.5, known=0.5)
    assert hits.mean() >= 0.9
    assert np.mean([o.covered for o in outcomes]) < 0.85


# -------------------------------------------------------------------------------------------------------- the posterior
def test_particles_agree_with_the_sum_over_all_groupings() -> None:
    """Four orders, three groups: 81 groupings times 8 spreads can be weighed one by one."""
    means, sd = np.array([-3.7, -4.2, -9.0, -9.6]), np.array([0.15, 0.3, 0.4, 0.2])
    noise = np.diag(sd**2) + 0.05
    scale = np.ptp(means) + np.sqrt(np.trace(noise) / 4)
    spreads = np.geomspace(1e-3, 1, posterior.SPREADS) * scale
    prior = np.append(0.5, np.full(posterior.SPREADS - 1, 0.5 / (posterior.SPREADS - 1)))
    total, mean = 0.0, np.zeros(4)
    for groups in itertools.product(range(posterior.GROUPS), repeat=4):
        member = np.eye(posterior.GROUPS)[list(groups)]
        alpha = posterior.CONCENTRATION / posterior.GROUPS
        chance = math.prod(math.gamma(alpha + n) / math.gamma(alpha) for n in member.sum(axis=0))
        for spread, weight in zip(spreads, prior, strict=True):
            values = spread**2 * np.eye(4) + scale**2 * (member @ member.T + posterior.LEVEL_VARIANCE)
            evidence = weight * chance * stats.multivariate_normal(np.full(4, means.mean()), values + noise).pdf(means)
            total += evidence
            mean += evidence * (means.mean() + values @ np.linalg.solve(values + noise, means - means.mean()))
    draws = posterior._sample_grouped(means, noise, 40_000, np.random.default_rng(0))
    np.testing.assert_allclose(draws.mean(axis=0), mean / total, atol=0.02)


def test_noise_of_paired_means() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(0, 5, 4000)
    returns = np.stack([common + rng.normal(0, sd, 4000) for sd in (0.5, 0.5, 2)])
    noise = posterior.noise_of_means(returns)
    np.testing.assert_allclose(
        np.sqrt(noise.diagonal()), np.sqrt(25 + np.array([0.25, 0.25, 4])) / np.sqrt(4000), rtol=0.05
    )
    difference = noise[0, 0] + noise[1, 1] - 2 * noise[0, 1]
    assert difference == pytest.approx(0.5 / 4000, rel=0.2)  # what the seeds have in common cancels


@pytest.mark.parametrize("episodes", [2, 3, 10])
def test_noise_of_few_episodes_is_positive_definite(episodes: int) -> None:
    returns = np.random.default_rng(0).normal(-5, 2, (24, episodes))
    assert np.linalg.eigvalsh(posterior.noise_of_means(returns)).min() > 0


def test_a_free_agent_with_the_same_luck_is_compared_with_small_error() -> None:
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 5, (1, 1, 1000))
    returns = np.full((1, 6, 1), -4.0) + luck + rng.normal(0, 0.3, (1, 6, 1000))
    verdict = judge(measured_of(returns, free_returns=luck[:, 0] - 3.5 + rng.normal(0, 0.3, (1, 1000))))[0]
    assert verdict.cost is not None
    assert verdict.free is not None
    assert verdict.cost.low < 0.5 < verdict.cost.high
    assert verdict.cost.high - verdict.cost.low < 0.15
    assert verdict.free.high - verdict.free.low > 0.4


# --------------------------------------------------------------------------------------------------------------- edges
#: enterprise before user is worth 10 points: the orders of three units, lexicographically by UNITS.
TWO_GROUPS = np.array([-3.7, -3.7, -3.7, -13.7, -13.7, -13.7])


def two_groups(sd: float = 2.0, values: np.ndarray = TWO_GROUPS, episodes: int = 2000, **parts: Any) -> Measured:
    """(1, 6) values with independent noise; the three good orders are those with enterprise before user."""
    good = np.array([o.index("enterprise") < o.index("user") for o in permutations(3)])
    placed = np.empty(6)
    placed[good], placed[~good] = values[:3], values[3:]
    noise = np.random.default_rng(0).normal(0, sd, (1, 6, episodes))
    return measured_of(placed[:, None] + noise - noise.mean(axis=2, keepdims=True), **parts)


def test_probabilities_sum_to_one_and_equal_orders_share_them() -> None:
    verdict = judge(two_groups(), draws=4000)[0]
    assert sum(order.p_best for order in verdict.orders) == pytest.approx(1)
    assert sorted(round(order.p_best, 2) for order in verdict.orders) == [0, 0, 0, 0.33, 0.33, 0.33]
    assert {order.status for order in verdict.orders} == {"equal", "worse"}
    assert (verdict.rule, verdict.any_place) == ((("enterprise", "user"),), ("op_server",))


def test_same_input_same_verdict() -> None:
    assert judge(two_groups(), draws=500) == judge(two_groups(), draws=500)
    assert judge(two_groups(), draws=500) != judge(two_groups(), draws=500, seed=1)


def test_the_margin_is_the_larger_of_points_and_share_unless_given() -> None:
    assert judge(two_groups(), draws=10)[0].margin == 0.3
    assert judge(two_groups(values=TWO_GROUPS * 10), draws=10)[0].margin == pytest.approx(0.03 * 37)
    wide = judge(two_groups(), margin=20, draws=500)[0]
    assert all(order.status == "equal" for order in wide.orders)


def test_the_worst_case_is_the_minimum_over_attackers() -> None:
    """An order that is the best on average, and bad against one attacker."""
    values = np.array([[-2.0, -6, -9], [-8.0, -6, -9]])
    verdicts = judge(measured_of(values[:, :, None] + np.random.default_rng(0).normal(0, 1, (2, 3, 2000))), draws=2000)
    assert [verdict.goal for verdict in verdicts] == ["mean", "worst"]
    first, second = (verdicts[0].orders[k].order for k in (0, 1))
    assert [verdict.best for verdict in verdicts] == [(first,), (second,)]
    assert verdicts[1].orders[0].value == pytest.approx(-8, abs=0.1)
    assert [each.value for each in verdicts[0].orders[0].by_attacker.values()] == pytest.approx([-2, -8], abs=0.1)
    text = words(verdicts)
    assert "Mean over bline and meander:" in text
    assert "Worst case of bline and meander:" in text


def test_one_order() -> None:
    verdict = judge(measured_of(np.random.default_rng(0).normal(-4, 1, (1, 1, 400))), draws=4000)[0]
    assert (verdict.orders[0].p_best, verdict.best) == (1.0, (verdict.orders[0].order,))
    assert verdict.orders[0].high - verdict.orders[0].low == pytest.approx(2 * 1.96 / 20, rel=0.1)
    assert "Only one class of orders was tried" in words((verdict,))


def test_constant_returns_are_certain() -> None:
    verdict = judge(measured_of(np.repeat([[[-1.0], [-5.0]]], 10, axis=2), units=2), draws=500)[0]
    assert [(o.value, o.p_best) for o in verdict.orders] == [
        (pytest.approx(-1, abs=0.02), 1),
        (pytest.approx(-5, abs=0.02), 0),
    ]
    same = judge(measured_of(np.full((1, 6, 5), -4.0)), draws=500)[0]
    assert [o.value for o in same.orders] == [-4.0] * 6
    assert "the order does not matter here" in words((same,))


def test_two_episodes_are_not_overrated() -> None:
    hits, covered = [], []
    for number in range(100):
        rng = np.random.default_rng(number)
        truth = true_values(rng, "normal", 3)
        returns = truth[:, None] + rng.normal(0, rng.choice([0.5, 3.0]), (6, 2))
        verdict = judge(measured_of(returns[None]), draws=500)[0]
        hits.append(verdict.orders[int(truth.argmax())].order in verdict.best)
        covered += [order.low <= value <= order.high for order, value in zip(verdict.orders, truth, strict=True)]
    assert np.mean(hits) >= 0.9
    assert np.mean(covered) >= 0.85


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"returns": np.full((1, 6, 10), np.nan)}, r"returns: the value at \(0, 0, 0\) is nan"),
        ({"returns": np.zeros((1, 6, 1))}, "2 episodes"),
        ({"returns": np.zeros((1, 5, 10))}, r"returns: shape \(1, 5, 10\)"),
        ({"precedes": np.zeros((6, 2))}, "precedes: shape"),
        ({"precedes": np.full((6, 3), 0.3)}, r"precedes: the value at \(0, 0\) is 0.3"),
        ({"training_sd": np.full((1, 6), -1.0)}, r"training_sd: the value at \(0, 0\) is -1"),
        ({"free_returns": np.zeros((1, 9))}, "free_returns: shape"),
    ],
)
def test_bad_input_is_named(change: dict[str, np.ndarray], message: str) -> None:
    good = measured_of(np.zeros((1, 6, 10)))
    with pytest.raises(InputError, match=message):
        dataclasses.replace(good, **change)


@pytest.mark.parametrize("margin", [-1.0, math.nan, math.inf])
def test_an_impossible_margin_is_refused(margin: float) -> None:
    with pytest.raises(InputError, match="margin"):
        judge(two_groups(), margin=margin)


# --------------------------------------------------------------------------------------------------------------- words
def test_words_for_a_clear_case() -> None:
    free = np.random.default_rng(1).normal(-3.2, 1, (1, 2000))
    verdicts = judge(two_groups(free_returns=free), draws=4000)
    text = words(verdicts)
    assert text.startswith("Repair enterprise before user: that precedence is worth +10.0 points per episode (")
    assert "Best: 3 orders that are equal within 0.3 points" in text
    assert "Where op_server stands makes no difference there (less than 0.3 points)." in text
    assert "The order costs 0.5 points (0." in text
    assert text.endswith("Not tried: nothing.")
    assert "open" not in text
    assert json.loads(json.dumps(dataclasses.asdict(verdicts[0])))["best"] == list(verdicts[0].best)


def test_words_for_open_questions_say_what_to_do_next() -> None:
    verdicts = judge(two_groups(training_sd=np.full((1, 6), 1.0)), draws=2000)
    text = words(verdicts, next_step="more episodes: --total-episodes 200000")
    assert "Best:" not in text
    assert text.endswith("To settle what is open: more episodes: --total-episodes 200000.")


def test_words_claim_no_effect_whose_interval_has_zero() -> None:
    """Two points between the groups, and training noise that is as large."""
    unsure = two_groups(values=np.array([-3.0, -3.1, -3.3, -5.2, -5.4, -5.0]), training_sd=np.full((1, 6), 2.0))
    verdicts = judge(unsure, draws=2000)
    effect = verdicts[0].precedences.effects[0]
    assert effect.low < 0 < 0.3 < effect.value
    assert "worth" not in words(verdicts)


def test_words_for_an_order_that_beats_the_free_agent_or_equals_it() -> None:
    rng = np.random.default_rng(1)
    assert "better than an agent that may repair in any order" in words(
        judge(two_groups(free_returns=rng.normal(-6, 1, (1, 2000))), draws=1000)
    )
    assert "costs nothing that can be measured (less than 0.1 points)" in words(
        judge(two_groups(free_returns=rng.normal(-3.7, 1, (1, 2000))), draws=1000)
    )


def test_words_say_where_single_precedences_fall_short() -> None:
    verdict = judge(two_groups(), draws=500)[0]
    effect = dataclasses.replace(verdict.precedences.effects[0], by_swaps=Estimate(12.0, 11.5, 12.5))
    found = dataclasses.replace(verdict.precedences, effects=(effect,), residual_sd=1.5, r_squared=0.8)
    text = words((dataclasses.replace(verdict, precedences=found),))
    assert "explain the values up to 1.5 points (R2 0.800)" in text
    assert "differ only in enterprise before user differ by 12.0 (11.5 to 12.5); the additive model says 10.0" in text
    assert "additive model" not in words((verdict,))


# ------------------------------------------------------------------------------------------------------- training noise
def test_training_noise_holds_what_other_seeds_what_movement_and_what_gains_say() -> None:
    still = np.tile([-4.0, -4.0, -13.0], (8, 1, 1))
    settled, level = posterior.training_noise(still)
    np.testing.assert_allclose(settled[0, :2], 4 * posterior.VALUE_SHARE, rtol=1e-6)
    np.testing.assert_allclose(level, 4 * posterior.LEVEL_SHARE, rtol=1e-6)
    assert settled[0, 2] > 9 * posterior.GAP_SHARE
    swing = np.array([0.5, -0.5, 0.5, -0.5, 0.5, -0.5, 0.5, 0.0])[:, None, None]
    moving = posterior.training_noise(still + swing * [[0, 1, -1]])[0]
    assert (moving > settled).all()  # a few rounds say little of one order: all share what most of them do
    alone = posterior.training_noise(still + 8 * swing * [[0, 0, 1]])  # a bad order that plays far worse now and then
    np.testing.assert_allclose(alone[0][0, :2], settled[0, :2])  # does not make the others doubtful
    np.testing.assert_allclose(alone[1], level)
    assert alone[0][0, 2] > settled[0, 2]
    together = posterior.training_noise(still + swing)  # all orders alike: no order gains on another
    np.testing.assert_allclose(together[0], settled)
    assert together[1] > level
    rising = still.copy()
    rising[:4, 0, 1] -= 2.0
    assert posterior.training_noise(rising)[0][0, 1] >= 2.0
    np.testing.assert_allclose(posterior.last_gains(rising)[0], [0, 2, 0])
    spell = still.copy()
    spell[1:4, 0, 2] -= 2.0  # three bad rounds: that it recovers is no gain
    np.testing.assert_allclose(posterior.last_gains(spell)[0], 0)
    assert posterior.training_noise(still[:1])[0].shape == (1, 3)


def test_intervals_cover_what_differs_between_trainings() -> None:
    """Searches that see three rounds of a training, whose noise is shared by the orders and grows with their gap."""
    covered, effects = [], []
    for number in range(80):
        rng = np.random.default_rng([9, number])
        truth = np.where(rng.random(6) < 0.5, -4.0, -13.0)
        truth[0] = -4.0
        sd = np.hypot(0.06 * (truth.max() - truth), 0.01 * np.abs(truth)) * np.exp(rng.normal(0, 0.2, 6))
        trained = truth + 0.1 * rng.standard_normal() + sd * rng.standard_normal(6)
        rounds = trained + 0.3 * sd * rng.standard_normal((8, 1, 6))
        returns = trained[:, None] + rng.normal(0, 3, (1, 6, 1000))
        noise, level = posterior.training_noise(rounds)
        measured = measured_of(returns, training_sd=noise, level_sd=level)
        verdict = judge(measured, draws=500, seed=number)[0]
        covered += [o.low <= value <= o.high for o, value in zip(verdict.orders, truth, strict=True)]
        effects.append(any(truth[k] == -4.0 for k, o in enumerate(verdict.orders) if o.order in verdict.best))
    assert np.mean(covered) >= 0.88
    assert np.mean(effects) >= 0.95


def test_noise_that_all_orders_share_widens_values_and_not_differences() -> None:
    alone, shared = (judge(two_groups(level_sd=np.full(1, sd)), draws=4000)[0] for sd in (0.0, 1.0))
    narrow, wide = (v.precedences.effects[0].high - v.precedences.effects[0].low for v in (alone, shared))
    assert wide < 1.2 * narrow
    assert shared.orders[0].high - shared.orders[0].low > 3  # about 4 standard deviations
    assert shared.best == alone.best
