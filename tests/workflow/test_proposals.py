"""What is proposed next: rules that hold for every strategy, the simple strategies, classes."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import (
    ALL_MATTER,
    CANONICAL,
    ORDERS,
    Order,
    classes_of,
    index_of,
    representative,
    restricted,
)
from stockade.workflow.proposals import Strategy
from tests.workflow.choosers import BLINE, MEANDER, NOTHING, Result, failed, made_up_result, proposed, strategy

STRATEGIES = ("gp-ucb", "random", "round-robin", "all")
searches = st.sampled_from(STRATEGIES)
some_matter = st.sampled_from([NOTHING, BLINE, MEANDER, ALL_MATTER])


# --------------------------------------------------------------------------------------------- rules for every strategy
@given(searches, some_matter, st.booleans(), st.integers(1, 4), st.integers(0, 1000), st.integers(0, 12))
@settings(max_examples=35)
def test_rules_of_every_search(
    search: str, matters: np.ndarray, classes: bool, parallel: int, seed: int, resumed_at: int
) -> None:
    """Nothing pending, failed or other than a representative is proposed, and a resumed search goes on the same way."""
    config = SearchConfig(search=search, classes=classes, seed=seed)  # type: ignore[arg-type]
    chooser, again = Strategy(config, matters), Strategy(config, matters)
    counted = matters if classes else ALL_MATTER
    class_of = classes_of(counted)
    told: list[Result] = []
    pending: list[Order] = []
    for _ in range(12):
        while len(pending) < parallel and (proposal := chooser.propose(pending)) is not None:
            if len(told) == resumed_at:
                again = Strategy(config, matters)
                for result in told:
                    again.tell(result)
            assert repr(again.propose(pending)) == repr(proposal)  # NaN is not equal to itself
            assert proposal.order == representative(proposal.order, counted)
            closed = {class_of[index_of(r.order)] for r in told if not r.feasible}
            busy = {class_of[index_of(order)] for order in pending}
            assert class_of[index_of(proposal.order)] not in closed | busy
            pending.append(proposal.order)
        if not pending:
            break
        result = made_up_result(pending.pop(seed % len(pending)), seed)
        told.append(result)
        for one in (chooser, again):
            one.tell(result)


@pytest.mark.parametrize("search", STRATEGIES)
def test_a_proposal_shows_what_is_thought_of_it_and_of_the_best(search: str) -> None:
    chooser = strategy(search, MEANDER, gp_beta=1.5)
    first = chooser.propose()
    assert first is not None
    assert math.isnan(first.mean + first.sd + first.ucb)
    assert first.feasibility == pytest.approx(0.69, abs=0.01)
    chooser.tell(Result(CANONICAL["critical_first"], -20.0))
    chooser.tell(Result(CANONICAL["reverse"], -40.0))
    proposal = chooser.propose()
    assert proposal is not None
    mean, sd = chooser.value_model().posterior()
    for candidate in (proposal, *proposal.top):
        number = index_of(candidate.order)
        assert candidate.mean == mean[number]
        assert candidate.sd == sd[number]
        assert candidate.ucb == pytest.approx(candidate.mean + 1.5 * candidate.sd)
        assert 0.5 < candidate.feasibility < 1
    assert len({candidate.order for candidate in proposal.top}) == 5
    assert [c.ucb for c in proposal.top] == sorted((c.ucb for c in proposal.top), reverse=True)
    if search == "gp-ucb":
        assert proposal.top[0].order == proposal.order


@pytest.mark.parametrize("search", ["gp-ucb", "random", "all"])
def test_each_class_comes_once_before_any_comes_twice(search: str) -> None:
    """If one training tells the value well enough."""
    for matters, count in ((BLINE, 6), (MEANDER, 24)):
        chooser = strategy(search, matters)
        rng = np.random.default_rng(0)
        seen = []
        for _ in range(count):
            seen.append(proposed(chooser))
            chooser.tell(Result(seen[-1], -30 + 10 * rng.standard_normal(), 0.1))
        assert len({restricted(order, matters) for order in seen}) == count
        assert (chooser.propose() is None) == (search == "all")


@pytest.mark.parametrize("search", STRATEGIES)
def test_where_nothing_matters_one_training_is_enough(search: str) -> None:
    chooser = strategy(search, NOTHING)
    order = proposed(chooser)
    assert order == CANONICAL["critical_first"]
    assert chooser.propose([order]) is None
    chooser.tell(Result(order, 0.0, 0.0))
    assert chooser.propose() is None


@pytest.mark.parametrize("search", STRATEGIES)
def test_all_failed_is_the_end(search: str) -> None:
    chooser, tried = strategy(search, BLINE), []
    while (proposal := chooser.propose()) is not None:
        tried.append(restricted(proposal.order, BLINE))
        chooser.tell(failed(proposal.order))
    assert len(tried) == len(set(tried)) == 6


@pytest.mark.parametrize("search", ["gp-ucb", "random", "round-robin"])
def test_the_last_that_has_not_failed_is_not_trained_for_ever(search: str) -> None:
    chooser = strategy(search, BLINE)
    kept = CANONICAL["user_priority"]
    for _ in range(30):
        proposal = chooser.propose()
        if proposal is None:
            break
        chooser.tell(Result(proposal.order) if proposal.order == kept else failed(proposal.order))
    assert chooser.propose() is None


def test_failing_after_a_success_closes_a_class_too() -> None:
    """Else it would be tried again and again, since a failure tells the value model nothing."""
    chooser = strategy(matters=BLINE)
    good = CANONICAL["critical_first"]
    for name in CANONICAL.values():
        chooser.tell(Result(name, -10.0 if name == good else -50.0))
    assert proposed(chooser) == good
    chooser.tell(failed(good))
    for _ in range(20):
        order = proposed(chooser)
        assert order != good
        chooser.tell(Result(order, -50.0))


# ---------------------------------------------------------------------------------------------------- simple strategies
def test_random_search_is_a_random_sequence_of_all_and_starts_again() -> None:
    firsts, seconds, sequences = Counter[int](), Counter[int](), set()
    for seed in range(150):
        chooser = strategy("random", BLINE, seed=seed)
        numbers = []
        for _ in range(12 if seed < 8 else 2):
            order = proposed(chooser)
            numbers.append(int(classes_of(BLINE)[index_of(order)]))
            chooser.tell(Result(order))
        if seed < 8:
            assert sorted(numbers[:6]) == sorted(numbers[6:]) == list(range(6))
            sequences.add(tuple(numbers))
        firsts[numbers[0]] += 1
        seconds[(numbers[1] - numbers[0]) % 6] += 1
    assert len(sequences) == 8
    assert stats.chisquare(list(firsts.values())).pvalue > 0.001
    assert len(firsts) == 6
    assert stats.chisquare(list(seconds.values())).pvalue > 0.001
    assert len(seconds) == 5


def test_random_search_cares_for_no_value() -> None:
    one, other = strategy("random", seed=3), strategy("random", seed=3)
    for i in range(10):
        assert proposed(one) == proposed(other)
        order = proposed(one)
        one.tell(Result(order, -30.0 + i))
        other.tell(Result(order, -30.0 - i * i))


def test_round_robin_goes_around_the_canonical_orders() -> None:
    for matters in (BLINE, MEANDER, ALL_MATTER):
        chooser = strategy("round-robin", matters)
        names = list(CANONICAL.values())
        for order in names * 2:
            assert proposed(chooser) == order
            chooser.tell(Result(order))
    assert proposed(chooser, names[:2]) == names[2]
    assert chooser.propose(names) is None
    chooser.tell(failed(names[1]))
    for order in (names[0], *names[2:], names[0]):
        assert proposed(chooser) == order
        chooser.tell(Result(order))


def test_all_takes_every_order_in_sequence() -> None:
    chooser = strategy("all", classes=False)
    for i in range(10):
        assert proposed(chooser) == ORDERS[i]
        chooser.tell(Result(ORDERS[i], -30.0 - i))
    chooser = strategy("all", BLINE)
    tried = []
    while (proposal := chooser.propose()) is not None:
        tried.append(proposal.order)
        chooser.tell(made_up_result(proposal.order, 1))
    assert tried == sorted(CANONICAL.values())


# -------------------------------------------------------------------------------------------------------------- classes
def test_a_type_seen_later_splits_the_classes_and_keeps_what_is_known() -> None:
    chooser = strategy(matters=BLINE)
    assert chooser.n_classes == 6
    for order in list(CANONICAL.values())[:4]:
        chooser.tell(Result(order, -30.0 - index_of(order) / 10))
    chooser.tell(failed(CANONICAL["balanced"], value=-5.0))
    chooser.set_matters(MEANDER & ~BLINE)  # those of before still count
    np.testing.assert_array_equal(chooser.matters, MEANDER)
    assert chooser.n_classes == 24
    fresh = strategy(matters=MEANDER)
    for order in list(CANONICAL.values())[:4]:
        fresh.tell(Result(order, -30.0 - index_of(order) / 10))
    fresh.tell(failed(CANONICAL["balanced"], value=-5.0))
    assert fresh.propose() == chooser.propose()
    np.testing.assert_array_equal(fresh.value_model().posterior(), chooser.value_model().posterior())


def test_without_classes_all_orders_differ() -> None:
    chooser = strategy(matters=BLINE, classes=False)
    assert chooser.n_classes == 120
    chooser.set_matters(BLINE)
    assert chooser.n_classes == 120
    chooser.tell(Result(ORDERS[0], -20.0))
    assert len(set(np.round(chooser.value_model().posterior().sd, 9))) > 2
