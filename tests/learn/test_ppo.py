"""PPO as a whole: it learns, a seed decides everything, dead rows teach nothing, and it goes on where it stopped."""

import dataclasses
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import stockade
from stockade.learn.config import PPOConfig
from stockade.learn.ppo import PPO

SMALL = PPOConfig(update_steps=13, minibatch_size=64, epochs=2, hidden=(16,), shards=2)


def native(config: PPOConfig = SMALL, seed: int = 0, obs: str = "memory", horizon: int = 20) -> PPO:
    lanes = [stockade.make_vec(8, horizon=horizon, obs=obs, copy=False, threads=1) for _ in range(2)]
    return PPO(lanes, config, seed)


def trained(learner: PPO, iterations: int) -> torch.Tensor:
    for k in range(iterations):
        learner.iterate(k / iterations)
    weights = learner.policy.flat.clone()
    learner.close()
    return weights


def test_cartpole_is_solved() -> None:
    config = PPOConfig(
        update_steps=64, epochs=8, minibatch_size=512, learning_rate=2.5e-3, gamma=0.98, gae_lambda=0.9,
        entropy_weight=0.0, reward_scale=0.1, hidden=(64, 64), activation="tanh",
    )  # fmt: skip
    envs = gymnasium.make_vec("CartPole-v1", num_envs=32, vectorization_mode="vector_entry_point")
    learner = PPO([envs], config, seed=0)
    last: list[float] = []
    for k in range(60):
        last = [*last, *learner.iterate(k / 60).returns.tolist()][-50:]
    learner.close()
    assert learner.steps < 125_000
    assert np.mean(last) > 475  # Gymnasium's own threshold for "solved"


def test_a_seed_repeats_exactly_and_another_differs() -> None:
    first, again, other = trained(native(), 4), trained(native(), 4), trained(native(seed=1), 4)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_threads_do_not_matter_but_shards_do() -> None:
    one, two = (trained(native(dataclasses.replace(SMALL, threads=threads)), 3) for threads in (1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, trained(native(dataclasses.replace(SMALL, shards=3)), 3))


def test_padding_of_the_head_stays_zero() -> None:
    learner = native()
    trained(learner, 3)
    assert len(learner.policy.actions) == 145
    assert learner.policy.weights["policy.weight"].shape == (16, 152)
    assert (learner.policy.weights["policy.weight"][:, 145:] == 0).all()
    assert (learner.policy.weights["policy.bias"][145:] == 0).all()


def test_returns_and_lengths_are_those_of_whole_episodes() -> None:
    learner = native(horizon=20)
    returns, lengths = [], []
    for _ in range(5):
        result = learner.iterate(0.0)
        returns += result.returns.tolist()
        lengths += result.lengths.tolist()
    learner.close()
    assert learner.episodes == len(returns) == 16 * (5 * 13 // 21)
    assert set(lengths) == {20}
    assert learner.steps == 16 * (5 * 13 - 3)  # three dead rows in each environment
    assert all(-500 < r <= 0 for r in returns)


def test_dead_rows_teach_nothing() -> None:
    """Whatever stands in the rows of a reset, the update is the same."""

    def spoil(learner: PPO) -> None:
        r = learner.rollout
        assert r.dead.sum() == 16
        for array in (r.obs, r.actions, r.log_probs, r.advantages, r.returns):
            array[r.dead] = 1
        r.values[:-1][r.dead] = 1

    def train(change: Callable[[PPO], None]) -> torch.Tensor:
        learner = native(horizon=7)
        learner.collect()
        learner._estimate(gamma=0.99)
        change(learner)
        learner._update(1e-3, 0.01)
        learner.close()
        return learner.policy.flat.clone()

    assert torch.equal(train(lambda learner: None), train(spoil))


def test_dead_rows_are_those_after_an_end_also_across_rollouts() -> None:
    learner = native(horizon=13)  # episodes end with the rollout
    learner.collect()
    assert (learner.rollout.ended[-1] == 1).all()
    assert not learner.rollout.dead.any()
    learner.collect()
    assert learner.rollout.dead[0].all()
    assert not learner.rollout.dead[1:].any()
    learner.close()


def test_update_moves_towards_what_paid() -> None:
    """One state, two actions, one of them better: its probability rises, also with a shared body."""
    for shared in (False, True):
        config = PPOConfig(
            update_steps=16, minibatch_size=64, learning_rate=1e-2, entropy_weight=0.0, reward_scale=1.0, shared=shared
        )
        learner = PPO([gymnasium.vector.SyncVectorEnv([Bandit] * 8)], config, seed=0)
        trained(learner, 15)
        logits, values = learner.policy.evaluate(np.ones((1, 1), np.float32))
        assert logits[0, 1] - logits[0, 0] > 2
        assert values[0] == pytest.approx(1, abs=0.3)


class Bandit(gymnasium.Env[np.ndarray, np.int64]):
    """Action 1 pays 1, action 0 nothing; the episode ends at once."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.ones(1, np.float32), float(action), True, False, {}


def test_target_kl_ends_an_update_early() -> None:
    strict = dataclasses.replace(SMALL, epochs=50, learning_rate=0.1, target_kl=1e-3)
    learner = native(strict)
    learner.iterate(0.0)
    assert int(learner._adam.state[learner.policy.flat]["step"]) < 50 * 3
    learner.close()


def test_schedules_go_from_first_to_last() -> None:
    config = dataclasses.replace(SMALL, learning_rate=1e-3, final_learning_rate=1e-4, entropy_weight=0.1)
    learner = native(config)
    assert [learner.iterate(p).stats["learning_rate"] for p in (0.0, 0.5, 1.0)] == pytest.approx([1e-3, 5.5e-4, 1e-4])
    assert learner.iterate(1.0).stats["entropy_weight"] == 0
    learner.close()


def test_discount_goes_from_first_to_last() -> None:
    """Half way from 0.5 to 1 a learner learns what one learns whose discount is 0.75, and not what others learn."""
    learned = {}
    for first, last in ((0.5, 1.0), (0.75, None), (0.5, None)):
        learner = native(dataclasses.replace(SMALL, gamma=first, final_gamma=last))
        learner.iterate(0.5)
        learned[first, last] = learner.policy.flat.clone()
        learner.close()
    assert torch.equal(learned[0.5, 1.0], learned[0.75, None])
    assert not torch.equal(learned[0.5, 1.0], learned[0.5, None])


@pytest.mark.parametrize("obs", ["bits", "memory"])
def test_state_goes_on_bit_for_bit(obs: str) -> None:
    whole = trained(native(obs=obs), 5)
    first = native(obs=obs)
    for k in range(2):
        first.iterate(k / 5)
    state = first.state()
    first.close()
    second = native(obs=obs, seed=7)  # everything comes from the state, nothing from the seed
    second.restore(*state)
    for k in range(2, 5):
        second.iterate(k / 5)
    assert torch.equal(second.policy.flat, whole)
    assert (second.iteration, second.episodes) == (5, 16 * 3)
    second.close()


class Seeded(gymnasium.Env[np.ndarray, np.int64]):
    """Shows the seed of its last reset, and cannot be saved."""

    observation_space = gymnasium.spaces.Box(0, 2**32, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.array([seed or 0], np.float64), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(1), 0.0, False, False, {}


def test_lanes_that_cannot_be_put_back_begin_with_different_seeds() -> None:
    lanes = [stockade.make_vec(3, "serial", env=Seeded) for _ in range(2)]
    learner = PPO(lanes, SMALL, seed=0)
    before = {seed for lane in learner.lanes for seed in lane.obs.ravel().tolist()}
    learner.iterate(0.0)
    learner.restore(*learner.state())
    after = {seed for lane in learner.lanes for seed in lane.obs.ravel().tolist()}
    learner.close()
    assert len(before | after) == 12


def test_any_backend_learns_the_same() -> None:
    def learn(backend: str) -> torch.Tensor:
        envs = stockade.make_vec(8, backend, horizon=20)
        return trained(PPO([envs], SMALL, seed=3), 3)

    assert torch.equal(learn("native"), learn("serial"))


def test_environments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="next_step"):
        PPO([stockade.make_vec(4, autoreset_mode="same_step")], SMALL, 0)
    with pytest.raises(ValueError, match="Discrete"):
        PPO([gymnasium.make_vec("Pendulum-v1", num_envs=2)], SMALL, 0)


def test_the_first_weights_do_not_depend_on_torchs_threads() -> None:
    """A new process begins with as many threads as there are cores, and sums in another order."""
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            learner = native()
            found.append(learner.policy.flat.clone())
            learner.close()
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
