"""The compiled loops of PPO against slow, independent versions: NumPy in float64, and Torch's autograd."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stockade.learn.kernels import RUNNING, STATS, TERMINATED, TRUNCATED, estimate_advantages, loss_head, sample


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


# ------------------------------------------------------------------------------------------------------------- actions
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.01, 1.0, 10.0, 60.0]), st.integers(1, 30))
def test_sample_inverts_the_distribution_function(seed: int, spread: float, n_actions: int) -> None:
    chance = np.random.default_rng(seed)
    logits = (spread * chance.standard_normal((20, n_actions + 3))).astype(np.float32)
    uniforms = chance.random(20, np.float32)
    actions, log_probs = np.empty(20, np.int64), np.empty(20, np.float32)
    sample(logits, n_actions, uniforms, actions, log_probs)

    p = softmax(logits[:, :n_actions])
    cumulative = np.concatenate([np.zeros((20, 1)), p.cumsum(axis=1)], axis=1)
    rows = np.arange(20)
    assert (actions < n_actions).all()
    assert (cumulative[rows, actions] <= uniforms + 1e-5).all()
    assert (cumulative[rows, actions + 1] >= uniforms - 1e-5).all()
    np.testing.assert_allclose(log_probs, np.log(p[rows, actions]), rtol=1e-5, atol=1e-5)


def test_sample_has_the_right_frequencies() -> None:
    logits = np.repeat(np.log([[0.5, 0.3, 0.15, 0.05]]), 40_000, axis=0).astype(np.float32)
    actions, log_probs = np.empty(len(logits), np.int64), np.empty(len(logits), np.float32)
    sample(logits, 4, np.random.default_rng(0).random(len(logits), np.float32), actions, log_probs)
    np.testing.assert_allclose(np.bincount(actions) / len(actions), [0.5, 0.3, 0.15, 0.05], atol=0.01)


# ---------------------------------------------------------------------------------------------------------- advantages
def slow_advantage(
    t: int, rewards: np.ndarray, values: np.ndarray, ended: np.ndarray, gamma: float, lam: float, horizon_is_end: bool
) -> float:
    """Of one environment at step t, by the definition: the weighted mean of all n-step estimates, term by term."""
    total, weight = 0.0, 1.0
    for k in range(t, len(rewards)):
        no_future = ended[k] == TERMINATED or (horizon_is_end and ended[k] == TRUNCATED)
        total += weight * (rewards[k] + (0.0 if no_future else gamma * values[k + 1]) - values[k])
        if ended[k] != RUNNING:
            break
        weight *= gamma * lam
    return total


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 4), st.floats(0, 1), st.floats(0, 1), st.booleans()
)
def test_advantages_are_those_of_the_definition(
    seed: int, steps: int, n: int, gamma: float, lam: float, horizon_is_end: bool
) -> None:
    chance = np.random.default_rng(seed)
    rewards, values = chance.standard_normal((steps, n)), chance.standard_normal((steps + 1, n))
    ended = chance.choice([RUNNING, RUNNING, TRUNCATED, TERMINATED], (steps, n)).astype(np.uint8)
    out = np.empty((steps, n), np.float32)
    single = np.float32
    estimate_advantages(
        rewards.astype(single), values.astype(single), ended, single(gamma), single(lam), horizon_is_end, out
    )
    slow = [
        [slow_advantage(t, rewards[:, i], values[:, i], ended[:, i], gamma, lam, horizon_is_end) for i in range(n)]
        for t in range(steps)
    ]
    np.testing.assert_allclose(out, slow, rtol=1e-4, atol=1e-4)


def test_a_truncated_episode_goes_on_with_the_value_of_its_last_observation() -> None:
    # Row 1 is the dead one: next_step autoreset shows there what the episode ended with.
    rewards, values = np.array([[1.0], [0.0]], np.float32), np.array([[3.0], [7.0], [50.0]], np.float32)
    out = np.empty((2, 1), np.float32)
    for kind, horizon_is_end, wanted in ((TRUNCATED, False, 1 + 0.5 * 7 - 3), (TRUNCATED, True, 1 - 3),
                                         (TERMINATED, False, 1 - 3)):  # fmt: skip
        ended = np.array([[kind], [RUNNING]], np.uint8)
        estimate_advantages(rewards, values, ended, np.float32(0.5), np.float32(0.9), horizon_is_end, out)
        assert out[0, 0] == wanted


# ---------------------------------------------------------------------------------------------------------------- loss
def plain_loss(
    logits: torch.Tensor, values: torch.Tensor, batch: dict[str, torch.Tensor], c: dict[str, float]
) -> dict[str, torch.Tensor]:
    """PPO's loss as the papers have it, for autograd."""
    policy = torch.distributions.Categorical(logits=logits)
    ratio = (policy.log_prob(batch["actions"]) - batch["log_probs"]).exp()
    advantages = batch["advantages"]
    policy_loss = -torch.min(ratio * advantages, ratio.clamp(1 - c["clip"], 1 + c["clip"]) * advantages).mean()
    errors = (values - batch["returns"]) ** 2
    if c["value_clip"] > 0:
        moved = batch["values"] + (values - batch["values"]).clamp(-c["value_clip"], c["value_clip"])
        errors = torch.max(errors, (moved - batch["returns"]) ** 2)
    value_loss = 0.5 * errors.mean()
    entropy = policy.entropy().mean()
    return {
        "loss": policy_loss + c["value_weight"] * value_loss - c["entropy_weight"] * entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "kl": ((ratio - 1) - ratio.log()).mean(),
        "clipped": ((ratio - 1).abs() > c["clip"]).double().mean(),
    }


@pytest.mark.parametrize("value_clip", [0.0, 0.3])
@pytest.mark.parametrize("spread", [0.1, 3.0])
def test_loss_head_is_the_gradient_of_the_plain_formula(value_clip: float, spread: float) -> None:
    rows, n_actions, width = 300, 13, 16
    torch.manual_seed(0)
    logits = (spread * torch.randn(rows, n_actions, dtype=torch.float64)).requires_grad_()
    values = torch.randn(rows, dtype=torch.float64).requires_grad_()
    batch = {
        "actions": torch.randint(0, n_actions, (rows,)),
        "values": values.detach() + 0.4 * torch.randn(rows, dtype=torch.float64),
        "advantages": torch.randn(rows, dtype=torch.float64),
        "returns": torch.randn(rows, dtype=torch.float64),
    }
    now = torch.distributions.Categorical(logits=logits.detach()).log_prob(batch["actions"])
    batch["log_probs"] = now + 0.3 * torch.randn(rows, dtype=torch.float64)  # many ratios beyond the clip
    c = {"clip": 0.2, "value_clip": value_clip, "value_weight": 0.7, "entropy_weight": 0.05}
    plain = plain_loss(logits, values, batch, c)
    plain["loss"].backward()
    assert 0.2 < float(plain["clipped"]) < 0.8

    # The kernel finds its rows in larger arrays, in any order.
    order = np.random.default_rng(1).permutation(rows + 50)[:rows]
    names = ("actions", "log_probs", "values", "advantages", "returns")
    data = tuple(np.zeros(rows + 50, np.int64 if name == "actions" else np.float32) for name in names)
    for name, column in zip(names, data, strict=True):
        column[order] = batch[name].numpy()
    gradient = np.full((rows, width), 7, np.float32)
    gradient[:, :n_actions] = logits.detach().numpy()
    slope, stats = values.detach().numpy().astype(np.float32), np.zeros(len(STATS))
    coefficients = tuple(np.float32(c[name]) for name in ("clip", "value_clip", "value_weight", "entropy_weight"))
    loss_head(gradient, slope, n_actions, order, data, np.float32(1 / rows), coefficients, stats)

    assert logits.grad is not None
    assert values.grad is not None
    np.testing.assert_allclose(gradient[:, :n_actions], logits.grad.numpy(), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(slope, values.grad.numpy(), rtol=1e-4, atol=1e-7)
    assert (gradient[:, n_actions:] == 0).all()
    for name, total in zip(STATS, stats, strict=True):
        assert total / rows == pytest.approx(float(plain[name].detach()), rel=1e-4, abs=1e-6), name


def test_a_broken_network_shows_in_the_gradient() -> None:
    logits, values = np.zeros((1, 2), np.float32), np.zeros(1, np.float32)
    logits[0, 1] = np.nan
    one = np.zeros(1, np.float32)
    data = (np.zeros(1, np.int64), one, one, one + 1, one)
    coefficients = tuple(np.float32(x) for x in (0.2, 0, 0.5, 0.01))
    loss_head(logits, values, 2, np.zeros(1, np.int64), data, np.float32(1), coefficients, np.zeros(len(STATS)))
    assert np.isnan(logits).any()
