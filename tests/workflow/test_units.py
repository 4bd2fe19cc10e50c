"""Places of hosts and the context of an order."""

from __future__ import annotations

import itertools

import numpy as np

from stockade.cage2.scenario import HOSTS
from stockade.workflow.orders import DEFENDER, ENTERPRISE, FREE, HOST_UNITS, OP_HOST, OP_SERVER, ORDERS, TYPES, USER
from stockade.workflow.together import as_hosts, at_random, distances, linear, neighbour
from tests.workflow.choosers import kendall


def test_places_follow_the_order_and_hosts_of_a_type_share_theirs() -> None:
    places = TYPES.places((USER, ENTERPRISE, OP_SERVER, OP_HOST, DEFENDER))
    by_name = dict(zip(HOSTS, places.tolist(), strict=True))
    assert by_name["User3"] == by_name["User0"] == 0
    assert by_name["Enterprise0"] == by_name["Enterprise2"] == 1
    assert (by_name["Op_Server0"], by_name["Op_Host1"], by_name["Defender"]) == (2, 3, 4)


def test_contexts_tell_all_orders_apart_and_the_free_agent_from_them() -> None:
    contexts = {TYPES.context(order).tobytes() for order in [*ORDERS, FREE]}
    assert len(contexts) == 121
    assert not TYPES.context(FREE).any()


def test_an_order_of_types_forbids_the_same_in_types_and_in_hosts() -> None:
    for order in ORDERS[::7]:
        of_types, of_hosts = TYPES.places(order), HOST_UNITS.places(as_hosts(order))
        for a, b in itertools.permutations(range(13), 2):
            assert (of_types[a] < of_types[b]) == (of_hosts[a] < of_hosts[b])


def test_descriptions_are_short_and_name_what_matters() -> None:
    matters = np.array([name in ("Enterprise0", "Enterprise2", "Op_Server0", "User3") for name in HOSTS])
    assert TYPES.describe(ORDERS[0], np.array([False, True, True, False, True])) == "enterprise > op_server > user"
    assert HOST_UNITS.describe(as_hosts(ORDERS[0]), matters) == "enterprise > op_server > user"
    order = linear((3, (1, 7), 11), matters, np.random.default_rng(1))
    assert HOST_UNITS.describe(order, matters) in ("E2 > E0 > S0 > U3", "E2 > S0 > E0 > U3")
    assert HOST_UNITS.describe((3, (1, 7), 11), matters) == "E2 > E0 = S0 > U3"
    assert HOST_UNITS.describe(FREE) == "no order"


def test_distances_of_orders_of_types_are_kendalls_over_pairs_of_hosts() -> None:
    """With one host of each type that matters, both measures count the same pairs."""
    one_each = np.zeros(13, np.bool_)
    one_each[[HOSTS.index(name) for name in ("Defender", "Enterprise0", "Op_Server0", "Op_Host0", "User1")]] = True
    chosen = ORDERS[::11]
    found = distances([as_hosts(order) for order in chosen], one_each)
    assert found.tolist() == [[kendall(a, b) for b in chosen] for a in chosen]


def test_orders_of_hosts_are_complete_and_equal_in_effect_means_equal() -> None:
    rng = np.random.default_rng(0)
    matters = rng.random(13) < 0.6
    for _ in range(50):
        order = neighbour(at_random(matters, rng), matters, rng)
        flat = [h for element in order for h in (element if isinstance(element, tuple) else (element,))]
        assert sorted(flat) == list(range(13))
        assert order[-1] == tuple(np.flatnonzero(~matters).tolist())
        assert linear(order, matters, rng) == order
