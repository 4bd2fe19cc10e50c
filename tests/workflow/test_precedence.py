"""What precedences are worth: recovered from additive values, wider with interactions, left out if not identified."""

import itertools
from typing import Any

import numpy as np
import pytest

from stockade.workflow.posterior import Effect, Precedences, precedence_effects
from tests.workflow.pairs import pairs_of

ORDERS = list(itertools.permutations(("a", "b", "c", "d")))
PAIRS, PRECEDES = pairs_of(ORDERS)
WORTH = {("a", "b"): 4.0, ("a", "c"): 0.0, ("a", "d"): -2.0, ("b", "c"): 0.0, ("b", "d"): 0.5, ("c", "d"): 0.0}
ADDITIVE = -10 + (PRECEDES - 0.5) @ np.array([WORTH[pair] for pair in PAIRS])


def effects_of(values: np.ndarray, sd: float = 0.1, keep: Any = slice(None), draws: int = 4000) -> Precedences:
    """Of posterior draws around the values, for those orders that are kept."""
    rng = np.random.default_rng(0)
    centred = rng.standard_normal((draws, len(values)))
    samples = (values + sd * (centred - centred.mean(axis=0)))[:, keep]
    best = np.arange(samples.shape[1]) == samples.mean(axis=0).argmax()
    return precedence_effects(samples, PRECEDES[keep].astype(float), PAIRS, best, rng)


def one(found: Precedences, before: str, after: str) -> Effect:
    return next(e for e in found.effects if {e.before, e.after} == {before, after})


def test_pairs_of_orders() -> None:
    pairs, precedes = pairs_of([("user", "enterprise"), ("enterprise", "user")])
    assert pairs == (("enterprise", "user"),)
    assert precedes.tolist() == [[False], [True]]


def test_additive_effects_are_recovered_in_the_sequence_that_is_better() -> None:
    found = effects_of(ADDITIVE)
    first, second = found.effects[:2]
    assert (first.before, first.after, second.before, second.after) == ("a", "b", "d", "a")
    assert (first.value, second.value) == (pytest.approx(4, abs=0.05), pytest.approx(2, abs=0.05))
    for e in found.effects:
        true = WORTH.get((e.before, e.after), -WORTH.get((e.after, e.before), 0.0))
        assert e.low <= true <= e.high
        assert e.high - e.low < 0.5
        assert e.swaps == 6
        assert e.by_swaps is not None
        assert e.by_swaps.value == pytest.approx(true, abs=0.05)
    assert found.r_squared == pytest.approx(1, abs=0.01)
    assert found.residual_sd == pytest.approx(0, abs=0.05)


def test_interactions_widen_the_intervals_and_are_reported() -> None:
    """One order is 6 points better than the sum of its precedences."""
    values = ADDITIVE + 6.0 * (np.arange(len(ORDERS)) == 7)
    design = np.column_stack([np.ones(len(ORDERS)), PRECEDES])
    left = np.linalg.lstsq(design, values, rcond=None)[1].item() / (len(ORDERS) - design.shape[1])
    plain, found = effects_of(ADDITIVE), effects_of(values)
    assert found.residual_sd == pytest.approx(np.sqrt(left), rel=0.02)
    assert found.r_squared is not None
    assert found.r_squared < 0.9
    pair = one(found, "a", "b")
    assert pair.low < 4 < pair.high
    assert pair.high - pair.low > 3 * (one(plain, "a", "b").high - one(plain, "a", "b").low)


def test_pairs_that_do_not_vary_are_left_out() -> None:
    """Only orders with d last."""
    keep = [k for k, order in enumerate(ORDERS) if order[-1] == "d"]
    found = effects_of(ADDITIVE, keep=keep)
    assert {(e.before, e.after) for e in found.effects} <= set(itertools.permutations("abc", 2))
    assert one(found, "a", "b").value == pytest.approx(4, abs=0.2)
    assert len(found.effects) == 3


def test_what_two_pairs_share_is_not_given_to_either() -> None:
    """Two orders that differ in every pair: nothing says which precedence made the difference."""
    keep = [ORDERS.index(("a", "b", "c", "d")), ORDERS.index(("d", "c", "b", "a"))]
    found = effects_of(ADDITIVE, keep=keep)
    assert found.effects == ()
    assert found.residual_sd is None


def test_one_swap_is_the_difference_of_two_orders() -> None:
    keep = [ORDERS.index(("a", "b", "c", "d")), ORDERS.index(("b", "a", "c", "d"))]
    (effect,) = effects_of(ADDITIVE, keep=keep).effects
    assert (effect.before, effect.after, effect.swaps, effect.in_best) == ("a", "b", 1, True)
    assert effect.value == pytest.approx(4, abs=0.02)
    assert effect.high - effect.low == pytest.approx(2 * 1.96 * 0.1 * np.sqrt(2), rel=0.1)


def test_equal_values_have_no_effects_and_no_explained_share() -> None:
    found = effects_of(np.full(len(ORDERS), -4.0), sd=0.0)
    assert found.r_squared is None
    assert all(e.low - 1e-9 <= 0 <= e.high + 1e-9 for e in found.effects)


def test_precise_orders_count_more() -> None:
    """One order was measured badly: the effects stay where the others put them."""
    rng = np.random.default_rng(0)
    values = ADDITIVE.copy()
    values[0] += 3.0
    sd = np.where(np.arange(len(ORDERS)) == 0, 3.0, 0.05)
    samples = values + sd * rng.standard_normal((4000, len(ORDERS)))
    found = precedence_effects(samples, PRECEDES.astype(float), PAIRS, values == values.max(), rng)
    assert one(found, "a", "b").value == pytest.approx(4, abs=0.1)
