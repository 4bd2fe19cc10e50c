"""The order as a rule: which fixes are refused, what the agent sees of it, and that `observed` reads no true state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stockade
from stockade.cage2.actions import ACTION_HOST, ACTION_KIND, N_ACTIONS, REMOVE, RESTORE, SLEEP
from stockade.cage2.scenario import FOOTHOLD, HOSTS
from stockade.workflow.orders import ENTERPRISE, FREE, HOST_UNITS, OP_SERVER, TYPES, USER, Ranking, Units
from stockade.workflow.strict import StrictVectorEnv

ENTERPRISE_FIRST = (ENTERPRISE, OP_SERVER, USER, 0, 3)
USER_FIRST = (USER, 0, 3, OP_SERVER, ENTERPRISE)


def strict(
    n: int, orders: list[Ranking], judge: Any = "truth", units: Units = TYPES, **options: Any
) -> StrictVectorEnv:
    worlds = stockade.make_vec(n, copy=False, threads=1, **options)
    places, contexts = np.stack([TYPES.places(o) for o in orders]), np.stack([TYPES.context(o) for o in orders])
    return StrictVectorEnv(worlds, places, contexts, judge)


def forbidden(held: np.ndarray, action: int, units: Units, order: Ranking) -> bool:
    """The rule again, in plain Python: an earlier unit than the fix's has a host that red holds."""
    if ACTION_KIND[action] not in (REMOVE, RESTORE) or not order:
        return False
    sequence = [element if isinstance(element, tuple) else (element,) for element in order]
    place = {unit: k for k, group in enumerate(sequence) for unit in group}
    mine = place[units.of_host[ACTION_HOST[action]]]
    hosts = [h for h in range(len(HOSTS)) if held[h] and h != FOOTHOLD]
    return any(place[units.of_host[h]] < mine for h in hosts)


class Held:
    """Worlds in which red holds what a test says, and which remember the actions that reach them."""

    def __init__(self, held: np.ndarray) -> None:
        self.worlds = stockade.make_vec(len(held))
        self.num_envs, self.metadata = len(held), self.worlds.metadata
        self.single_action_space, self.action_space = self.worlds.single_action_space, self.worlds.action_space
        self.single_observation_space = self.worlds.single_observation_space
        self.red_access, self.carried_out = held, np.zeros(0)

    def true_state(self) -> Held:
        return self

    def reset(self, seed: Any = None) -> Any:
        return self.worlds.reset(seed=0)

    def step(self, actions: np.ndarray) -> Any:
        self.carried_out = actions.copy()
        return self.worlds.step(actions)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_exactly_the_forbidden_fixes_become_sleep(data: st.DataObject) -> None:
    units = data.draw(st.sampled_from([TYPES, HOST_UNITS]))
    order = data.draw(st.permutations(range(len(units.names))).map(tuple) | st.just(FREE))
    held = data.draw(
        st.lists(st.lists(st.sampled_from([0, 0, 1, 2]), min_size=13, max_size=13), min_size=8, max_size=8)
    )
    fixes = np.flatnonzero(np.isin(ACTION_KIND, (REMOVE, RESTORE))).tolist()
    actions = np.array(data.draw(st.lists(st.sampled_from([*fixes, SLEEP, 1, 20]), min_size=8, max_size=8)))
    worlds = Held(np.array(held, np.uint8))
    env = StrictVectorEnv(worlds, units.places(order)[None], units.context(order)[None], "truth")
    env.reset()
    env.step(actions)
    wanted = [SLEEP if forbidden(worlds.red_access[i], a, units, order) else a for i, a in enumerate(actions)]
    assert worlds.carried_out.tolist() == wanted


def test_a_refused_fix_looks_like_sleep_to_the_agent() -> None:
    """Observation, own history and reward are those of an agent that chose Sleep."""
    fix = int(np.flatnonzero((ACTION_KIND == RESTORE) & (HOSTS.index("Enterprise0") == ACTION_HOST))[0])
    env = strict(400, [USER_FIRST], obs="memory", red="meander")
    twin = strict(400, [FREE], obs="memory", red="meander")
    obs, _ = env.reset(seed=3)
    twin.reset(seed=3)
    size, refused = obs.shape[1] - len(TYPES.context(FREE)), 0
    for _ in range(40):
        held = env.envs.true_state().red_access
        chosen = np.array([forbidden(row, fix, TYPES, USER_FIRST) for row in held])
        mine = env.step(np.where(chosen, fix, SLEEP))
        other = twin.step(np.full(400, SLEEP))
        refused += int(chosen.sum())
        assert np.array_equal(mine[0][:, :size], other[0][:, :size])
        assert np.array_equal(mine[1], other[1])
    assert refused > 1000


def test_the_bonus_is_for_restores_that_are_carried_out_and_not_part_of_the_return() -> None:
    """Beside environments without a bonus, the same actions: only rewards differ, by the bonus of each Restore."""
    plain, paid = (strict(300, [USER_FIRST], red="meander", horizon=20) for _ in range(2))
    paid.restore_bonus = 1.5
    rng, restores, refused = np.random.default_rng(1), 0, 0
    plain.reset(seed=4), paid.reset(seed=4)
    over = np.zeros(300, np.bool_)
    for _ in range(60):
        held = plain.envs.true_state().red_access.copy()
        actions = rng.choice(np.flatnonzero(ACTION_KIND == RESTORE), 300)
        forbids = np.array([forbidden(row, a, TYPES, USER_FIRST) for row, a in zip(held, actions, strict=True)])
        (obs, rewards, _, truncated, _), other = plain.step(actions), paid.step(actions)
        assert np.array_equal(obs, other[0])
        np.testing.assert_allclose(other[1] - rewards, 1.5 * (~forbids & ~over))
        restores, refused, over = restores + int((~forbids).sum()), refused + int(forbids.sum()), truncated.copy()
    assert min(restores, refused) > 1000
    assert np.array_equal(plain.take().value, paid.take().value)


def test_observed_reads_no_true_state() -> None:
    env = strict(50, [USER_FIRST], judge="observed")
    env.envs.true_state = lambda: pytest.fail("the judge `observed` read the true state")
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(200):
        env.step(rng.integers(N_ACTIONS, size=50))
    assert env.take().refused.sum() > 0


@pytest.mark.parametrize("judge", ["truth", "observed"])
def test_the_free_agent_is_never_refused_and_plays_the_plain_world(judge: str) -> None:
    env, plain = strict(30, [FREE], judge), stockade.make_vec(30)
    env.reset(seed=1)
    plain.reset(seed=1)
    rng = np.random.default_rng(1)
    for _ in range(250):
        actions = rng.integers(N_ACTIONS, size=30)
        mine, theirs = env.step(actions), plain.step(actions)
        assert np.array_equal(mine[0][:, :52], theirs[0])
        assert np.array_equal(mine[1], theirs[1])
    played = env.take()
    assert played.refused.sum() == 0
    assert played.fixes.sum() > 0


def test_a_new_order_takes_effect_with_the_next_episode() -> None:
    env = strict(4, [ENTERPRISE_FIRST, USER_FIRST], horizon=5)
    first, second = TYPES.context(ENTERPRISE_FIRST), TYPES.context(USER_FIRST)
    obs, _ = env.reset(seed=0)
    env.next_order[:] = [1, 0, 1, 0]
    for step in range(6):  # five steps and the one that begins a new episode
        assert (obs[:, 52:] == first).all(), step
        obs = env.step(np.zeros(4, np.int64))[0]
    assert [row.tolist() for row in obs[:, 52:]] == [second.tolist(), first.tolist()] * 2
    assert env.take().order.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("judge", ["truth", "observed"])
def test_saved_worlds_continue_bit_for_bit(judge: str) -> None:
    rng = np.random.default_rng(2)
    env = strict(20, [ENTERPRISE_FIRST, USER_FIRST], judge, obs="memory", horizon=7)
    env.next_order[:] = np.arange(20) % 2
    env.reset(seed=5)
    for _ in range(11):
        env.step(rng.integers(N_ACTIONS, size=20))
    saved = env.save_worlds()
    actions = rng.integers(N_ACTIONS, size=(20, 20))
    wanted = [tuple(np.copy(x) for x in env.step(a)[:4]) for a in actions]
    other = strict(20, [ENTERPRISE_FIRST, USER_FIRST], judge, obs="memory", horizon=7)
    other.reset(seed=99)
    other.restore_worlds(saved)
    for a, (obs, reward, _, truncated) in zip(actions, wanted, strict=True):
        found = other.step(a)
        assert np.array_equal(found[0], obs)
        assert np.array_equal(found[1], reward)
        assert np.array_equal(found[3], truncated)
