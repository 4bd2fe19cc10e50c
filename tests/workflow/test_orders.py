"""Orders: names and numbers both ways, distances against their definitions, and which orders are equal in effect."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import stockade
from stockade.baselines import Baseline
from stockade.cage2.scenario import FOOTHOLD, HOSTS
from stockade.errors import InputError
from stockade.workflow.orders import (
    ALL_MATTER,
    CANONICAL,
    HOST_TYPES,
    ORDERS,
    UNIT_TYPES,
    Order,
    classes_of,
    distances,
    index_of,
    members_of,
    name_of,
    one_hot,
    representative,
    restricted,
    types_red_can_hold,
)
from tests.workflow.choosers import kendall

orders = st.sampled_from(ORDERS)
some_matter = st.lists(st.booleans(), min_size=5, max_size=5).map(np.array)


def spearman(a: Order, b: Order, matters: np.ndarray = ALL_MATTER) -> int:
    """Sum of squared differences of the types' ranks among those that matter."""
    kept, other = restricted(a, matters), restricted(b, matters)
    return sum((rank - other.index(unit)) ** 2 for rank, unit in enumerate(kept))


def types(*names: str) -> np.ndarray:
    return np.array([unit in names for unit in UNIT_TYPES])


# ------------------------------------------------------------------------------------------------- names and numbers
def test_all_permutations_once_and_sorted() -> None:
    assert len(ORDERS) == len(set(ORDERS)) == 120
    assert list(ORDERS) == sorted(ORDERS)
    assert all(sorted(order) == [0, 1, 2, 3, 4] for order in ORDERS)


@given(orders)
def test_the_number_of_an_order_leads_back_to_it(order: Order) -> None:
    assert ORDERS[index_of(order)] == order


def test_canonical_orders() -> None:
    first = {name: [UNIT_TYPES[unit] for unit in order] for name, order in CANONICAL.items()}
    assert first["enterprise_focus"][0] == "enterprise"
    assert first["user_priority"][0] == "user"
    assert first["operational_focus"][:2] == ["op_server", "op_host"]
    assert first["reverse"] == first["critical_first"][::-1]
    ends = CANONICAL["critical_first"], CANONICAL["reverse"]
    assert [kendall(CANONICAL["balanced"], end) for end in ends] == [5, 5]
    held_by_all = types("enterprise", "op_server", "user")
    assert len({restricted(order, held_by_all) for order in CANONICAL.values()}) == 6
    assert all(name_of(order) == name for name, order in CANONICAL.items())
    assert sum(name_of(order) is not None for order in ORDERS) == 6


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 1, 2, 3, 3), (1, 2, 3, 4, 5), ()])
def test_no_number_for_what_is_no_order(order: Order) -> None:
    for use in (index_of, one_hot):
        with pytest.raises(InputError, match="each of 0 to 4 once"):
            use(order)


@given(orders)
def test_one_hot_has_a_block_a_place(order: Order) -> None:
    code = one_hot(order)
    assert code.shape == (25,)
    assert code.dtype == np.uint8
    assert [int(i) for i in np.flatnonzero(code)] == [5 * place + unit for place, unit in enumerate(order)]


def test_host_types_follow_the_names() -> None:
    assert HOST_TYPES.dtype == np.int8
    assert [UNIT_TYPES[unit] for unit in HOST_TYPES] == [name.rstrip("0123456789").lower() for name in HOSTS]


# ---------------------------------------------------------------------------------------------------------- distances
@given(orders, orders)
def test_distances_of_whole_orders_are_those_of_scipy(a: Order, b: Order) -> None:
    places = np.argsort(a), np.argsort(b)
    tau, rho = stats.kendalltau(*places).statistic, stats.spearmanr(*places).statistic
    assert kendall(a, b) == round((1 - tau) / 2 * 10)
    assert spearman(a, b) == round((1 - rho) / 6 * 5 * 24)


@given(some_matter)
def test_the_matrices_hold_the_distances_by_definition(matters: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    matrices = distances("kendall", matters), distances("spearman", matters)
    for i, j in rng.integers(120, size=(60, 2)):
        assert matrices[0][i, j] == kendall(ORDERS[i], ORDERS[j], matters)
        assert matrices[1][i, j] == spearman(ORDERS[i], ORDERS[j], matters)


@given(orders, orders, some_matter)
def test_types_that_do_not_matter_move_freely(a: Order, b: Order, matters: np.ndarray) -> None:
    """Distance between orders is that between what is left of them, as orders of their own."""
    left = sorted(restricted(a, matters))
    short_a, short_b = ([left.index(unit) for unit in restricted(order, matters)] for order in (a, b))
    pairs = itertools.combinations(range(len(left)), 2)
    places_a, places_b = np.argsort(short_a), np.argsort(short_b)
    other_way = sum((places_a[i] < places_a[j]) != (places_b[i] < places_b[j]) for i, j in pairs)
    assert kendall(a, b, matters) == other_way
    assert spearman(a, b, matters) == int(((places_a - places_b) ** 2).sum())


@pytest.mark.parametrize("kind", ["kendall", "spearman"])
def test_no_order_is_nearer_to_all_than_another(kind: Any) -> None:
    for kept in range(32):
        matters = np.array([kept >> unit & 1 for unit in range(5)], np.bool_)
        assert np.ptp(distances(kind, matters).sum(axis=1)) == 0


@pytest.mark.parametrize("kind", ["kendall", "spearman"])
@pytest.mark.parametrize("theta", [0.003, 0.1, 1.0, 10.0])
def test_both_kernels_are_positive_definite(kind: Any, theta: float) -> None:
    smallest = np.linalg.eigvalsh(np.exp(-theta * distances(kind)))[0]
    if theta >= 0.1:
        assert smallest > 1e-8  # strictly
    assert smallest > -1e-12
    over_classes = np.exp(-theta * distances(kind, types("user", "op_host", "enterprise")))
    assert np.linalg.eigvalsh(over_classes)[0] > -1e-12


# --------------------------------------------------------------------------------------------- orders equal in effect
@given(some_matter)
def test_classes_are_what_distance_zero_joins(matters: np.ndarray) -> None:
    same = classes_of(matters)[:, None] == classes_of(matters)[None]
    for kind in ("kendall", "spearman"):
        np.testing.assert_array_equal(same, distances(kind, matters) == 0)
    count = [1, 1, 2, 6, 24, 120][int(matters.sum())]
    assert sorted(set(classes_of(matters).tolist())) == list(range(count))
    assert set(np.bincount(classes_of(matters)).tolist()) == {120 // count}


@given(orders, some_matter)
def test_a_class_has_one_representative_that_is_a_canonical_order_if_possible(
    order: Order, matters: np.ndarray
) -> None:
    members = members_of(order, matters)
    numbers = classes_of(matters)
    assert [index_of(member) for member in members] == np.flatnonzero(numbers == numbers[index_of(order)]).tolist()
    chosen = representative(order, matters)
    assert chosen in members
    assert {representative(member, matters) for member in members} == {chosen}
    canonical = [known for known in CANONICAL.values() if known in members]
    assert chosen == (canonical[0] if canonical else members[0])


# ------------------------------------------------------------------------------------------------- what red can hold
@pytest.mark.parametrize("rules", ["current", "leaderboard"])
@pytest.mark.parametrize(
    ("red", "held"),
    [
        ("bline", ("enterprise", "op_server", "user")),
        ("meander", ("enterprise", "op_server", "op_host", "user")),
        ("mix", ("enterprise", "op_server", "op_host", "user")),
        ("sleep", ()),
    ],
)
def test_what_red_can_hold(red: str, rules: str, held: tuple[str, ...]) -> None:
    for horizon, seed in ((100, 0), (100, 1), (30, 0)):
        np.testing.assert_array_equal(types_red_can_hold(red, rules, horizon, seed=seed), types(*held))


def test_what_red_can_hold_is_a_matter_of_time() -> None:
    assert types_red_can_hold("bline", horizon=1).sum() == 0
    np.testing.assert_array_equal(types_red_can_hold("bline", horizon=5), types("user"))
    np.testing.assert_array_equal(types_red_can_hold("B_lineAgent", horizon=50), types_red_can_hold("bline"))


@pytest.mark.parametrize("red", ["bline", "meander"])
@pytest.mark.parametrize("policy", ["greedy", "react-restore", "react-remove", "random"])
def test_red_holds_nothing_else_in_other_play(red: str, policy: str) -> None:
    """Other blues, other seeds, green at work: all they let red hold was foreseen."""
    blue, rng = Baseline(policy), np.random.default_rng(1)
    envs = stockade.make_vec(500, red=red, green="active")
    obs, _ = envs.reset(seed=12345)
    held = np.zeros(len(HOSTS), np.bool_)
    for _ in range(300):
        obs, *_ = envs.step(blue.act(obs, rng))
        held |= (envs.true_state().red_access > 0).any(axis=0)
    envs.close()
    held[FOOTHOLD] = False
    foreseen = types_red_can_hold(red)
    assert foreseen[HOST_TYPES[held]].all()


def test_all_matter() -> None:
    assert len(set(classes_of(ALL_MATTER).tolist())) == 120


def test_with_the_observation_as_judge_a_type_counts_that_only_seems_compromised() -> None:
    """Meander never holds the defender, but blue's observation calls it compromised at times."""
    assert "defender" not in names_of(types_red_can_hold("meander", horizon=30))
    assert "defender" in names_of(types_red_can_hold("meander", horizon=30, judge="observed"))
    np.testing.assert_array_equal(types_red_can_hold("bline", judge="observed"), types_red_can_hold("bline"))


def names_of(held: np.ndarray) -> list[str]:
    return [UNIT_TYPES[k] for k in np.flatnonzero(held)]
