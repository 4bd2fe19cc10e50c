"""Learned attackers of the package on the real CybORG 2.1, where one is installed: equal rewards, seed for seed."""

import os

import pytest

import stockade
from stockade.integrations.cyborg import CybORGEnv
from tests.integrations.reference import rules_of_the_reference
from tests.oracle import record_learned, record_red

RULES = rules_of_the_reference()

pytestmark = pytest.mark.filterwarnings("ignore")
EPISODES = int(os.environ.get("STOCKADE_CYBORG_EPISODES", "20"))


@pytest.mark.parametrize("name", record_learned.ZOO)
def test_rewards_are_the_references(name: str) -> None:
    """Every policy acts on what the reference showed it, and on what our world shows: every reward is equal."""
    red, blue = (stockade.load(one, rules=RULES) for one in (name, record_learned.ZOO[name]))
    env, cost = CybORGEnv(record_red.GivenRed, 100), 0.0
    for seed in range(1000, 1000 + EPISODES):
        episode = record_learned.play_reference(env, red, blue, seed)
        rewards = [float(step["reward"]) for step in episode.steps]
        assert rewards == record_learned.play_here(red, blue, RULES, seed), seed
        cost -= sum(rewards)
    assert cost / EPISODES > 50  # they do attack
