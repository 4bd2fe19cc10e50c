"""The policy: its written-out gradient against autograd, its weights in and out, its choices."""

import numpy as np
import pytest
import torch

from stockade.learn.kernels import forward
from stockade.learn.policy import Architecture, Policy, Workspace, views_of


def make(shared: bool = False, activation: str = "relu", actions: int = 13) -> Policy:
    policy = Policy.create(Architecture(10, tuple(range(actions)), (16, 24), activation, shared), seed=1)
    noise = torch.Generator().manual_seed(2)
    for name, weight in policy.weights.items():  # biases and the policy's head away from zero
        real = weight[..., :actions] if name.startswith("policy") else weight
        real += 0.3 * torch.randn(real.shape, generator=noise)
    return policy


def plain_forward(
    weights: dict[str, torch.Tensor], arch: Architecture, x: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    ends = {}
    for body in arch.bodies:
        y = x
        for k in range(len(arch.hidden)):
            y = y @ weights[f"{body}.{k}.weight"] + weights[f"{body}.{k}.bias"]
            y = torch.tanh(y) if arch.activation == "tanh" else torch.relu(y)
        ends[body] = y
    logits = ends[arch.bodies[0]] @ weights["policy.weight"] + weights["policy.bias"]
    values = ends[arch.bodies[-1]] @ weights["value.weight"] + weights["value.bias"]
    return logits, values[:, 0]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_backward_is_what_autograd_finds(shared: bool, activation: str) -> None:
    policy = make(shared, activation)
    arch = policy.architecture
    observations = torch.randint(0, 2, (50, 10), dtype=torch.uint8)
    flat = policy.flat.double().requires_grad_()
    logits, values = plain_forward(views_of(flat, arch), arch, observations.double())
    by_logits, by_values = torch.randn(logits.shape), torch.randn(values.shape)
    by_logits[:, len(policy.actions) :] = 0
    ((logits * by_logits).sum() + (values * by_values).sum()).backward()

    work = Workspace(policy, 64)  # more room than rows
    ours_logits, ours_values = work.forward(observations)
    torch.testing.assert_close(ours_logits.double(), logits.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours_values.double(), values.detach(), rtol=1e-5, atol=1e-5)
    ours_logits.copy_(by_logits)
    ours_values.copy_(by_values)
    work.backward(50)
    assert flat.grad is not None
    torch.testing.assert_close(work.gradient.double(), flat.grad, rtol=1e-4, atol=1e-4)


def test_weights_come_back_from_a_copy_without_padding() -> None:
    policy, other = make(), Policy(make().architecture)
    saved = policy.save_weights()
    assert saved["policy.weight"].shape == (24, 13)
    other.load_weights(saved)
    assert torch.equal(other.flat, policy.flat)


def test_weights_of_another_shape_are_refused() -> None:
    policy = make()
    saved = policy.save_weights()
    with pytest.raises(ValueError, match=r"policy\.weight should have shape"):
        make(actions=12).load_weights(saved)
    del saved["value.bias"]
    with pytest.raises(ValueError, match=r"value\.bias.*found nothing"):
        policy.load_weights(saved)


def test_choices_are_the_environments_actions() -> None:
    policy = Policy.create(Architecture(10, (3, 5, 90)), seed=0)
    observations = np.ones((1000, 10), np.uint8)
    sampled = policy.act(observations, np.random.default_rng(0))
    assert set(sampled) == {3, 5, 90}
    policy.weights["policy.bias"][1] = 50.0
    assert set(policy.act(observations, None)) == {5}
    assert set(policy.act(observations, np.random.default_rng(0))) == {5}


def test_a_new_policy_is_nearly_indifferent_and_depends_on_the_seed() -> None:
    arch = Architecture(10, tuple(range(13)))
    one, same, other = (Policy.create(arch, seed) for seed in (1, 1, 2))
    assert torch.equal(one.flat, same.flat)
    assert not torch.equal(one.flat, other.flat)
    logits, _ = one.evaluate(np.random.default_rng(0).integers(0, 2, (100, 10)).astype(np.uint8))
    assert np.abs(logits).max() < 0.2


def test_architecture_survives_json() -> None:
    arch = Architecture(10, (1, 4, 2), (32,), "tanh", True)
    assert Architecture.from_json(arch.to_json()) == arch


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("hidden", [(16,), (16, 24), (24, 8, 16)])
def test_a_forward_pass_without_torch_says_the_same(shared: bool, activation: str, hidden: tuple[int, ...]) -> None:
    arch = Architecture(10, tuple(range(13)), hidden, activation, shared)
    policy = Policy.create(arch, seed=3)
    policy.flat += 0.2 * torch.randn(policy.flat.shape, generator=torch.Generator().manual_seed(4))
    for observations in (
        np.random.default_rng(0).integers(0, 2, (40, 10), np.uint8),
        np.random.default_rng(0).normal(size=(40, 10)).astype(np.float32),
    ):
        logits, values = np.empty((40, arch.n_logits), np.float32), np.empty((40, 1), np.float32)
        layers = np.empty((2, len(hidden), 40, max(hidden)), np.float32)
        forward(observations, policy.flat.numpy(), *arch.kernel_shape, layers, logits, values)
        theirs, their_values = plain_forward(policy.weights, arch, torch.from_numpy(observations).float())
        np.testing.assert_allclose(logits, theirs.numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(values[:, 0], their_values.numpy(), rtol=1e-4, atol=1e-5)
