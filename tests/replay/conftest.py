"""Fixtures for the tests of replays: a browser, and a policy that is bound to an order."""

import pytest

from stockade.cage2.actions import N_ACTIONS
from stockade.cage2.history import MEMORY_SIZE
from tests.browser import browser

__all__ = ["browser"]


@pytest.fixture(scope="module")
def ordered():
    """A policy of a search that knows nothing yet: it samples all actions, and is kept to an order."""
    from stockade.learn.policy import Architecture, Policy
    from stockade.workflow.orders import CANONICAL, TYPES
    from stockade.workflow.policies import OrderAgent

    order = CANONICAL["user_priority"]
    inputs = MEMORY_SIZE + len(TYPES.context(order))
    policy = Policy.create(Architecture(inputs, tuple(range(N_ACTIONS)), (8,), "relu", False), 0)
    return OrderAgent(policy, {"obs": "memory"}, "found", False, TYPES, order, "truth")
