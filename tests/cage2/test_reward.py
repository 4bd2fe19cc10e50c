"""`reward=RewardWeights(...)`: the three parts of the reward, each times its weight, and nothing else changes."""

import dataclasses
import json
import math
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stockade
from stockade import RewardWeights
from stockade.cage2 import WorldConfig
from stockade.errors import InputError

from .play import CHANCES, play, random_actions
from .traces import load

REWARD_PAGE = Path(__file__).parents[2] / "docs" / "guides" / "own-reward.md"
#: Tenths per step that a host costs while red has root, as the table of docs/concepts/rules.md has them.
COSTS = np.array([1, 10, 10, 10, 1, 1, 1, 10, 0, 1, 1, 1, 1])
SERVICE_COST, RESTORE_COST = 100, 10
FIRST_RESTORE = 132
STEPS, N = 120, 16


def scripted(seed: int) -> np.ndarray:
    """(STEPS, N) actions that let red through to the service, with a few Restores."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((STEPS, N)) < 0.06, rng.integers(FIRST_RESTORE, 145, (STEPS, N)), 0)


def parts(**world) -> tuple[np.ndarray, np.ndarray]:
    """(3, STEPS, N) tenths that hosts, service and Restores cost, from true states and actions; and the rewards."""
    costs, rewards = np.zeros((3, STEPS, N), np.int64), np.zeros((STEPS, N))
    with stockade.make_vec(N, horizon=STEPS, **world) as envs:
        envs.reset(seed=5)
        for t, actions in enumerate(scripted(3)):
            rewards[t] = envs.step(actions)[1]
            state = envs.true_state()
            costs[0, t] = (state.red_root_sessions > 0) @ COSTS
            costs[1, t] = SERVICE_COST * state.service_down
            costs[2, t] = RESTORE_COST * (actions >= FIRST_RESTORE)
    return costs, rewards


@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_each_weight_alone_pays_its_part(red, chance):
    costs, rewards = parts(red=red, chance=chance)
    assert all(part.any() for part in costs), "every part occurs"
    assert np.array_equal(rewards, costs.sum(0) / -10 + 0.0)
    for k, name in enumerate(("hosts", "service", "restore")):
        alone = {"hosts": 0.0, "service": 0.0, "restore": 0.0, name: 1.0}
        _, paid = parts(red=red, chance=chance, reward=RewardWeights(**alone))
        assert np.array_equal(paid, costs[k] / -10 + 0.0), name
        assert not np.signbit(paid[paid == 0]).any(), "no minus zero"


WEIGHTS = st.floats(-1e3, 1e3) | st.sampled_from([0.0, -0.0, 1.0, -1.0])


@settings(max_examples=40)
@given(hosts=WEIGHTS, service=WEIGHTS, restore=WEIGHTS)
def test_the_reward_is_linear_in_the_weights(hosts, service, restore):
    costs, challenge = parts(red="bline")
    again, paid = parts(red="bline", reward=RewardWeights(hosts, service, restore))
    assert np.array_equal(again, costs), "the episodes are the same"
    expected = -(hosts * costs[0] + service * costs[1] + restore * costs[2]) / 10
    np.testing.assert_allclose(paid, expected, rtol=1e-12, atol=1e-9)
    if hosts == service == restore == 1.0:
        assert np.array_equal(paid, challenge)


def test_weights_of_one_are_the_reference_to_the_last_bit():
    trace = load("public_B_lineAgent_mixed.npz")
    n = len(trace["seed"])
    with stockade.make_vec(n, chance="cyborg", reward=RewardWeights(1, np.float32(1), 1.0)) as envs:
        envs.reset(seed=trace["seed"].tolist())
        rewards = np.array(play(envs, trace["blue_action"].T).rewards)
    assert rewards.T.tobytes() == trace["reward"].astype(np.float64).tobytes()


@pytest.mark.parametrize("chance", CHANCES)
def test_all_backends_pay_the_same(chance):
    world = {"red": "bline", "chance": chance, "horizon": 25, "reward": RewardWeights(0.3, 1.7, -2.0)}
    actions, records = random_actions(4, 60, 3), []
    for backend in ("native", "serial", "pipes", "shared_memory", "async"):
        with stockade.make_vec(3, backend=backend, **world) as envs:
            envs.reset(seed=9)
            records.append(play(envs, actions))
    assert all(record == records[0] for record in records[1:])
    single = stockade.make(**world)
    assert gymnasium.make("stockade/CAGE2-v0", **world).unwrapped.config == single.config
    single.reset(seed=9)
    rewards = [single.step(action)[1] for action in actions[:25, 0].tolist()]
    assert rewards == [row[0] for row in records[0].rewards[:25]]


def test_info_keeps_the_parts_of_the_challenge():
    env = stockade.make(red="sleep", reward=RewardWeights(restore=3.0))
    env.reset(seed=0)
    _, reward, _, _, info = env.step(FIRST_RESTORE)
    assert (reward, info["reward_restore"]) == (-3.0, -1.0)


@pytest.mark.parametrize("name", ["hosts", "service", "restore"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e308, "1", None, True, 1j, [1.0]], ids=repr)
def test_weights_must_be_finite_numbers(name, bad):
    with pytest.raises(InputError, match=name):
        RewardWeights(**{name: bad})
    with pytest.raises(InputError, match=name):
        RewardWeights(**{name: 10**400})


@pytest.mark.parametrize("backend", ["native", "serial", "pipes"])
@pytest.mark.parametrize("bad", [None, 1.0, {"users": 2.0}, (1.0, 1.0, 1.0)], ids=repr)
def test_anything_but_weights_is_refused(bad, backend):
    with pytest.raises(InputError, match="RewardWeights"):
        stockade.make_vec(2, backend=backend, reward=bad)


def test_a_configuration_survives_json():
    config = stockade.make(red="meander", reward=RewardWeights(0.25, 2.0, 0.0)).config
    assert WorldConfig(**json.loads(json.dumps(dataclasses.asdict(config)))) == config


def test_the_wrapper_of_the_page_on_rewards_runs():
    blocks = re.findall(r"```python\n(.*?)```", REWARD_PAGE.read_text(), re.DOTALL)
    example = next(block for block in blocks if "VectorRewardWrapper" in block)
    names: dict = {}
    exec(compile(example, REWARD_PAGE.name, "exec"), names)
    with stockade.make_vec(200, red="meander") as plain:
        plain.reset(seed=1)
        wrapped = names["envs"]
        wrapped.reset(seed=1)
        charged = 0
        for actions in random_actions(2, 110, 200):
            rewards = plain.step(actions)[1]
            users = (plain.true_state().red_access == 1).sum(axis=1)
            charged += users.sum()
            assert np.array_equal(wrapped.step(actions)[1], rewards - 0.05 * users)
        wrapped.close()
    assert charged > 100
