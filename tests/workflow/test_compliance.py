"""Compliance and alignment pay against a slow version made of dictionaries and names, bit for bit."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stockade
from stockade.cage2.actions import ACTION_NAMES
from stockade.workflow.aligned import COMPLIES, NEUTRAL, NO_FIX, VIOLATES, AlignedVectorEnv, Episodes, judge, statistics
from stockade.workflow.config import RewardProtocol
from stockade.workflow.orders import CANONICAL, ORDERS, TYPES, UNIT_TYPES, index_of, one_hot

FIXES = [a for a, name in enumerate(ACTION_NAMES) if name.split()[0] in ("Remove", "Restore")]
HORIZON = 30


def type_of(host: str) -> str:
    for prefix, name in (("Defender", "defender"), ("Enterprise", "enterprise"), ("Op_Server", "op_server"),
                         ("Op_Host", "op_host"), ("User", "user")):  # fmt: skip
        if host.startswith(prefix):
            return name
    raise AssertionError(host)


class SlowBooks:
    """One environment's episode, from true states as dictionaries."""

    def __init__(self, order: tuple[int, ...], config: RewardProtocol) -> None:
        self.names = [UNIT_TYPES[t] for t in order]
        self.config = config
        self.by_host: dict[str, dict[str, int]] = {}
        self.begin()

    def begin(self) -> None:
        self.verdicts: list[str] = []
        self.paid: list[float] = []

    def step(self, state: dict[str, Any], action: int) -> float:
        held_hosts = [host for host, facts in state["hosts"].items() if facts["red_access"] != "none"]
        for host in held_hosts:
            self._book(host)["held_steps"] += 1
        words = ACTION_NAMES[action].split()
        if words[0] not in ("Remove", "Restore"):
            self.paid.append(0.0)
            return 0.0
        held = {type_of(h) for h in held_hosts if h != "User0" or self.config.foothold == "count"}
        wanted = next((name for name in self.names if name in held), None)
        self._book(words[1])["fixes"] += 1
        if wanted is None and self.config.idle_fixes == "neutral":
            self.paid.append(0.0)
            return 0.0
        before = self.rate()
        right = type_of(words[1]) == wanted
        self.verdicts.append("complied" if right else "violated")
        self._book(words[1])[self.verdicts[-1]] += 1
        config = self.config
        pay = config.alignment_lambda * (self.rate() - before)
        pay += config.compliant_bonus if right else -config.violation_penalty
        self.paid.append(pay)
        return pay

    def rate(self) -> float:
        return self.verdicts.count("complied") / len(self.verdicts) if self.verdicts else 0.0

    def _book(self, host: str) -> dict[str, int]:
        return self.by_host.setdefault(host, dict.fromkeys(("fixes", "complied", "violated", "held_steps"), 0))


configs = st.builds(
    RewardProtocol,
    alignment_lambda=st.sampled_from([0.0, 1.0, 30.0]),
    no_fix_penalty=st.sampled_from([0.0, 7.0]),
    compliant_bonus=st.sampled_from([0.0, 0.5]),
    violation_penalty=st.sampled_from([0.0, 0.25]),
    foothold=st.sampled_from(["ignore", "count"]),
    idle_fixes=st.sampled_from(["neutral", "violate"]),
)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(ORDERS), configs, st.sampled_from(["bline", "meander", "mix"]), st.integers(0, 2**31))
def test_equal_to_a_slow_version_bit_for_bit(order, config, red, seed):
    n, chance = 5, np.random.default_rng(seed)
    env = AlignedVectorEnv(stockade.make_vec(n, red=red, horizon=HORIZON), order, config)
    plain = stockade.make_vec(n, red=red, horizon=HORIZON)
    env.reset(seed=seed)
    plain.reset(seed=seed)
    books = [SlowBooks(order, config) for _ in range(n)]
    dead = np.zeros(n, bool)
    rows: list[tuple[int, float, float, int, int]] = []
    returns = np.zeros(n)
    fix_share = chance.choice([0.0, 0.05, 0.5])
    for _ in range(3 * (HORIZON + 1)):
        actions = np.where(chance.random(n) < fix_share, chance.choice(FIXES, n), chance.integers(0, 145, n))
        if fix_share == 0.0:
            actions = np.zeros(n, np.int64)
        states = [plain.true_state().to_dict(i) for i in range(n)]
        _, rewards, _, over, _ = plain.step(actions)
        _, total, _, also_over, _ = env.step(actions)
        np.testing.assert_array_equal(over, also_over)
        for i in range(n):
            pay = 0.0 if dead[i] else books[i].step(states[i], int(actions[i]))
            if over[i] and not books[i].verdicts:
                books[i].paid[-1] -= config.no_fix_penalty
                pay -= config.no_fix_penalty
            returns[i] += rewards[i]
            assert total[i] == rewards[i] + pay
            if over[i]:
                verdicts = books[i].verdicts
                paid = reduce(operator.add, books[i].paid, 0.0)  # `sum` does not round after each, from Python 3.12
                rows.append((i, returns[i], paid, verdicts.count("complied"), len(verdicts)))
                books[i].begin()
                returns[i] = 0.0
        dead = over
    episodes, means = env.take(), statistics(env.take_counts(), len(rows))
    assert len(rows) == 3 * n
    for column, name in enumerate(("env", "env_return", "alignment", "complied", "judged")):
        np.testing.assert_array_equal(getattr(episodes, name), [row[column] for row in rows], name)
    found = means["by_host"]
    for host, facts in found.items():
        for name, value in facts.items():
            slow = sum(book.by_host.get(host, {}).get(name, 0) for book in books)
            assert value == slow / len(rows), (host, name)
    by_type = means["by_type"]
    for kind in UNIT_TYPES:
        hosts = [facts for host, facts in found.items() if type_of(host) == kind]
        assert by_type[kind]["fixes"] == pytest.approx(sum(facts["fixes"] for facts in hosts))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=60), st.sampled_from([1.0, 10.0, 30.0]))
def test_pay_adds_up_to_lambda_times_the_final_rate(fixes, weight):
    env = AlignedVectorEnv(stockade.make_vec(1), ORDERS[0], RewardProtocol(alignment_lambda=weight))
    env.reset(seed=0)
    paid = [float(env._pay(np.array([COMPLIES if right else VIOLATES], np.uint8))[0]) for right in fixes]
    assert math.isclose(sum(paid), weight * Fraction(sum(fixes), len(fixes)), abs_tol=1e-9)


def test_the_foothold_counts_only_if_asked():
    user_first, held = TYPES.places(CANONICAL["user_priority"]), np.zeros((2, 13), bool)
    hosts = {name: h for h, name in enumerate(stockade.cage2.HOSTS)}
    held[:, hosts["User0"]] = True
    held[1, hosts["Enterprise1"]] = True
    fix = ACTION_NAMES.index("Restore User3")
    alive, counted = np.zeros(2, bool), RewardProtocol(foothold="count")
    assert judge(held, np.array([fix, fix]), alive, user_first, RewardProtocol()).tolist() == [NEUTRAL, VIOLATES]
    # The first version's number: any user fix complied.
    assert judge(held, np.array([fix, fix]), alive, user_first, counted).tolist() == [COMPLIES, COMPLIES]
    verdicts = judge(held, np.array([fix, 0]), np.array([True, False]), user_first, counted)
    assert verdicts.tolist() == [NO_FIX, NO_FIX]


def test_an_episode_without_a_fix_has_no_compliance():
    one, two = np.zeros(2, np.int64), np.array([0, 4])
    episodes = Episodes(np.arange(2), np.zeros(2), np.zeros(2), two // 2, two)
    assert episodes.rates(None).tolist() == [0.5]
    assert episodes.rates(0.5).tolist() == [0.5, 0.5]
    assert Episodes(one, one, one, one, one).rates(None).tolist() == []


def test_the_agent_is_told_its_order():
    order = CANONICAL["reverse"]
    env = AlignedVectorEnv(stockade.make_vec(3, obs="memory"), order, RewardProtocol())
    obs, _ = env.reset(seed=1)
    plain, _ = stockade.make_vec(3, obs="memory").reset(seed=1)
    np.testing.assert_array_equal(obs, np.hstack([plain, np.tile(one_hot(order), (3, 1))]))
    assert env.observation_space.contains(obs)
    assert index_of(order) == ORDERS.index(order)
