"""`--device`: the PPO of ppo.py by operations of Torch, on a GPU, or on the CPU to compare.

Worlds, rollout and update are on the device. What comes to the host is the returns of episodes and the statistics, once
per iteration, and the weights. Settings, schedules, checkpoints and policies are those of ppo.py, and so is the
mathematics: tests give both the same rollout and compare. Actions and the order of rows are drawn on the device, from
seeds that the streams of ppo.py draw; so a seed gives other episodes than there, and the same ones every time.
"""

import itertools
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stockade.errors import SettingError, UnsupportedFeatureError
from stockade.learn.config import PPOConfig
from stockade.learn.kernels import RUNNING, STATS, TERMINATED, TRUNCATED
from stockade.learn.mixture import save_worlds
from stockade.learn.policy import Architecture, views_of
from stockade.learn.ppo import PPO, SAVED, AnyVectorEnv, Iteration, Lane, Rollout


def find_device(name: str) -> torch.device:
    """Where tensors of `--device` live; an error says what is missing for it."""
    if name == "cpu":
        return torch.device("cpu")
    try:
        from stockade.cage2.cuda import SIMULATED, require_device

        require_device()
    except UnsupportedFeatureError as error:
        raise SettingError("device", name, f"is not possible here: {error}") from error
    if not SIMULATED and not torch.cuda.is_available():
        problem = f"needs a build of PyTorch for CUDA that finds the GPU; PyTorch {torch.__version__} finds none"
        raise SettingError("device", name, problem)
    return torch.device("cpu" if SIMULATED else "cuda")


# --------------------------------------------------------------------------------------------------- the mathematics
def forward(weights: dict[str, Tensor], architecture: Architecture, observations: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (b, actions) and values (b,) of observations (b, n) of any type."""

    def layer(name: str, x: Tensor) -> Tensor:
        return torch.addmm(weights[f"{name}.bias"], x, weights[f"{name}.weight"])

    activation, last = (torch.tanh if architecture.activation == "tanh" else torch.relu), []
    for body in architecture.bodies:
        x = observations[:, : architecture.inputs_of(body)].float()
        for k in range(len(architecture.hidden)):
            x = activation(layer(f"{body}.{k}", x))
        last.append(x)
    return layer("policy", last[0])[:, : len(architecture.actions)], layer("value", last[-1])[:, 0]


def sample(logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """An action for each row by inverting its distribution function: actions (b,), their log probabilities (b,)."""
    log_probs = logits.log_softmax(1)
    sums = log_probs.exp().cumsum(1)
    actions = torch.searchsorted(sums, (uniforms * sums[:, -1])[:, None], right=True).clamp(max=logits.shape[1] - 1)
    return actions[:, 0], log_probs.gather(1, actions)[:, 0]


def estimate_advantages(
    rewards: Tensor, values: Tensor, ended: Tensor, gamma: float, gae_lambda: float, horizon_is_end: bool, out: Tensor
) -> None:
    """As `kernels.estimate_advantages`."""
    continues = ended != TERMINATED
    if horizon_is_end:
        continues &= ended != TRUNCATED
    errors = rewards + gamma * continues * values[1:] - values[:-1]
    weights = gamma * gae_lambda * (ended == RUNNING)
    carry = torch.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        carry = errors[t] + weights[t] * carry
        out[t] = carry


def loss(
    logits: Tensor, values: Tensor, data: Sequence[Tensor], coefficients: tuple[float, float, float, float]
) -> tuple[Tensor, Tensor]:
    """PPO's mean loss of some rows, and the sums over them that STATS names; arguments as of `kernels.loss_head`."""
    actions, old_log_probs, old_values, advantages, returns = data
    clip, value_clip, value_weight, entropy_weight = coefficients
    all_log_probs = logits.log_softmax(1)
    log_ratio = all_log_probs.gather(1, actions[:, None])[:, 0] - old_log_probs
    ratio = log_ratio.exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)
    squares = (values - returns).square()
    if value_clip > 0:
        near = old_values + (values - old_values).clamp(-value_clip, value_clip)
        squares = torch.maximum(squares, (near - returns).square())
    entropy = -(all_log_probs.exp() * all_log_probs).sum(1)
    kl, clipped = ratio - 1 - log_ratio, (ratio - 1).abs() > clip
    sums = torch.stack([x.sum() for x in (-gain, 0.5 * squares, entropy, kl, clipped)])
    return (sums[0] + value_weight * sums[1] - entropy_weight * sums[2]) / len(actions), sums.detach()


# -------------------------------------------------------------------------------------------------------- the learner
class TorchLane(Lane):
    """All environments. What they give, and the rollout, are tensors on the device."""

    envs: Any
    rollout: Any
    obs: Any
    dead: Any
    returns: Any
    lengths: Any

    def __init__(self, learner: "TorchPPO", envs: AnyVectorEnv, on_gpu: bool, seed: int) -> None:
        self._learner, self._device, self._on_gpu = learner, learner.device, on_gpu
        super().__init__(envs, slice(0, envs.num_envs), learner.policy, learner.rollout, seed)
        self._actions = torch.from_numpy(self.policy.actions).to(self._device)

    def begin(self, *entropy: int) -> None:
        super().begin(*entropy)
        self._move()

    def _move(self) -> None:
        """What continues, to the device."""
        for name in SAVED:
            setattr(self, name, torch.from_numpy(np.array(getattr(self, name))).to(self._device))

    def state(self) -> tuple[dict[str, np.ndarray], Any]:
        arrays = {name: getattr(self, name).cpu().numpy().copy() for name in SAVED}
        return arrays | save_worlds(self.envs), self.chance.bit_generator.state

    def restore(self, arrays: dict[str, np.ndarray], chance: Any) -> bool:
        found = super().restore(arrays, chance)
        if found:
            self._move()
        return found

    def _play(self, actions: Tensor) -> Sequence[Tensor]:
        """Observations, rewards, terminated, truncated; the next step may overwrite them."""
        if self._on_gpu:
            return tuple(self.envs.step_device(actions))
        return [torch.from_numpy(x) for x in self.envs.step(actions.numpy())[:4]]

    @torch.no_grad()
    def collect(self, reward_scale: float) -> tuple[np.ndarray, np.ndarray, float, float]:
        r, begin, world = self.rollout, time.perf_counter(), 0.0
        totals, counts = torch.zeros_like(r.rewards, dtype=torch.float64), torch.zeros_like(r.actions)
        uniforms = torch.rand(r.rewards.shape, generator=self._learner.seeded(self.chance), device=self._device)
        for t in range(len(r.actions)):
            r.obs[t] = self.obs
            logits, r.values[t] = self._learner.forward(self.obs)
            r.actions[t], r.log_probs[t] = sample(logits, uniforms[t])
            before = time.perf_counter()
            obs, reward, terminated, truncated = self._play(self._actions[r.actions[t]])
            world += time.perf_counter() - before
            self.obs = obs.reshape(len(obs), -1)
            r.rewards[t], r.dead[t] = reward * reward_scale, self.dead
            r.ended[t] = torch.where(terminated, TERMINATED, torch.where(truncated, TRUNCATED, RUNNING))
            self.returns, self.lengths = self.returns + reward, self.lengths + ~self.dead
            totals[t], counts[t] = self.returns, self.lengths
            self.dead = terminated | truncated
            self.returns, self.lengths = self.returns * ~self.dead, self.lengths * ~self.dead
        r.values[-1] = self._learner.forward(self.obs)[1]
        over = r.ended != RUNNING
        returns, lengths = totals[over].cpu().numpy(), counts[over].cpu().numpy()
        return returns, lengths, world, time.perf_counter() - begin - world


class TorchPPO(PPO):
    """As `PPO`, on a device; `shards` and `threads` have no meaning here. Arguments as there.

    Between iterations the weights of `policy`, on the host, are the ones that count.

    Args:
        envs: one vector environment; for `cuda` one with `step_device`.
        device: `cpu` or `cuda`.
    """

    rollout: Any  # of tensors

    def __init__(
        self, envs: AnyVectorEnv, config: PPOConfig, seed: int, actions: Sequence[int] | None = None,
        horizon_is_end: bool = False, device: str = "cpu",
    ) -> None:  # fmt: skip
        self.device, self._on_gpu = find_device(device), device == "cuda"
        super().__init__([envs], config, seed, actions, horizon_is_end)

    def _set_up(self, envs: Sequence[AnyVectorEnv]) -> None:
        self._flat = self.policy.flat.to(self.device, copy=True).requires_grad_()
        self._generator, self._pool = torch.Generator(self.device), None
        arch, dtype = self.policy.architecture, envs[0].single_observation_space.dtype
        self.rollout = Rollout(self.config.update_steps, envs[0].num_envs, arch.n_inputs, dtype)
        for name, array in vars(self.rollout).items():
            setattr(self.rollout, name, torch.from_numpy(array).to(self.device))
        self.lanes = [TorchLane(self, envs[0], self._on_gpu, self._seed)]

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values by the weights on the device."""
        return forward(views_of(self._flat, self.policy.architecture), self.policy.architecture, observations)

    def seeded(self, stream: np.random.Generator) -> torch.Generator:
        """Chance on the device, by a seed from this stream."""
        return self._generator.manual_seed(int(stream.integers(2**63)))

    def collect(self) -> Iteration:
        with torch.no_grad():
            self._flat.copy_(self.policy.flat)
        return super().collect()

    def _estimate(self, gamma: float) -> float:
        r, c, alive = self.rollout, self.config, ~self.rollout.dead
        estimate_advantages(r.rewards, r.values, r.ended, gamma, c.gae_lambda, self.horizon_is_end, r.advantages)
        torch.add(r.advantages, r.values[:-1], out=r.returns)
        advantages = r.advantages[alive]
        if not len(advantages):
            return math.nan
        explained = 1.0 - float(advantages.var(correction=0)) / (float(r.returns[alive].var(correction=0)) + 1e-12)
        if c.normalise_advantages:
            r.advantages -= advantages.mean()
            r.advantages /= advantages.std(correction=0) + 1e-8
        return explained

    def _update(self, learning_rate: float, entropy_weight: float) -> dict[str, float]:
        c, r = self.config, self.rollout
        rows = (~r.dead).flatten().nonzero()[:, 0]
        if not len(rows):  # short rollouts may hold nothing but beginnings of episodes
            return dict.fromkeys(STATS, math.nan) | {"grad_norm": 0.0}
        n_minibatches = max(1, round(len(rows) / c.minibatch_size))
        coefficients = c.clip, c.value_clip, c.value_weight, entropy_weight
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        obs, *data = (x.flatten(0, 1) for x in (r.obs, r.actions, r.log_probs, r.values[:-1], r.advantages, r.returns))
        totals, seen = torch.zeros(len(STATS), dtype=torch.float64, device=self.device), 0
        norms: list[Tensor] = []
        orders = (
            torch.randperm(len(rows), generator=self.seeded(self._order), device=self.device) for _ in range(c.epochs)
        )
        epochs = (rows[order].tensor_split(n_minibatches) for order in orders)
        for minibatch in itertools.chain.from_iterable(epochs):
            self._adam.zero_grad()
            value, stats = loss(*self.forward(obs[minibatch]), [x[minibatch] for x in data], coefficients)
            value.backward()
            gradient: Any = self._flat.grad
            norms.append(torch.linalg.vector_norm(gradient))
            gradient *= (c.max_grad_norm / norms[-1]).clamp(max=1)
            self._adam.step()
            totals += stats
            seen += len(minibatch)
            if c.target_kl > 0 and float(stats[STATS.index("kl")]) / len(minibatch) > 1.5 * c.target_kl:
                break
        self.policy.flat.copy_(self._flat.detach())
        means = dict(zip(STATS, (totals / seen).tolist(), strict=True))
        return means | {"grad_norm": float(torch.stack(norms).mean())}
