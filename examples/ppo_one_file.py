"""PPO on CAGE Challenge 2 in one file: plain PyTorch on `stockade.make_vec`. Copy it, then change what you like.

    python examples/ppo_one_file.py                                    # B_line, 30 steps
    python examples/ppo_one_file.py --red meander --horizon 100 --total-steps 10_000_000
    python examples/ppo_one_file.py --protocol 100                     # then play the challenge's protocol
    python examples/ppo_one_file.py --help

Needs `pip install '.[train]'`. Read from top to bottom: settings, agent, rollout, advantages, update, the loop.
"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from gymnasium.vector import VectorEnv
from torch import Tensor, nn

import stockade
from stockade.cage2 import ACTION_MASK

#: What the agent chooses from: 82 of the 145 actions. The others are decoys that their host can never run.
ACTIONS = np.flatnonzero(ACTION_MASK)


@dataclass(frozen=True)
class Settings:
    """Train a defender with PPO, then play it in episodes that it has not seen."""

    red: str = "bline"  # Who attacks: bline, meander, sleep, or mix (one of the three, drawn anew each episode).
    horizon: int = 30  # Steps per episode.
    total_steps: int = 1_000_000  # Steps to train for, over all environments.
    seed: int = 0  # Seed of everything: the same seed gives the same agent.
    save: Path | None = None  # Write the agent's weights here.
    protocol: int = 0  # At the end, play this many episodes of each cell of the challenge's protocol.

    n_envs: int = 256  # Environments that run at once.
    n_steps: int = 50  # Steps of each environment between two updates.
    epochs: int = 4  # Passes of an update over its steps.
    minibatch_size: int = 1280  # Steps per gradient.
    learning_rate: float = 2e-3  # Learning rate of Adam at the start; it falls to 0.
    entropy_weight: float = 0.01  # Weight of the entropy bonus at the start; it falls to 0.
    gamma: float = 0.99  # Discount per step.
    gae_lambda: float = 0.95  # Weight of longer advantage estimates (GAE).
    clip: float = 0.2  # Relative change of a probability beyond which it earns nothing more.
    value_weight: float = 0.5  # Weight of the value loss.
    max_grad_norm: float = 0.5  # Longer gradients are shortened to this.
    reward_scale: float = 0.1  # Rewards are multiplied by this before they are learned from.
    hidden: int = 64  # Units in each of the two hidden layers.
    threads: int = 1  # Threads of PyTorch. For networks this small, more are seldom faster.


# --------------------------------------------------------------------------------------------------------------- agent
class Agent(nn.Module):
    """Two small networks: the actor gives the logits of `ACTIONS`, the critic predicts the return.

    With `obs` and `act` it is also a policy for `stockade.evaluate(agent)` and `stockade.replay(agent)`.
    """

    obs = "memory"  # 160 bits: the challenge's 52, and what the defender knows from its own history, the clock included

    def __init__(self, n_inputs: int, hidden: int) -> None:
        super().__init__()
        self.actor = network(n_inputs, hidden, len(ACTIONS), last_gain=0.01)  # all actions are about equally likely
        self.critic = network(n_inputs, hidden, 1, last_gain=1.0)

    @torch.no_grad()
    def act(self, observations: np.ndarray) -> np.ndarray:
        """The likeliest action in each environment: (n, 160) uint8 -> (n,) int64."""
        return ACTIONS[self.actor(torch.from_numpy(observations).float()).argmax(dim=1).numpy()]


def network(n_inputs: int, hidden: int, n_outputs: int, last_gain: float) -> nn.Sequential:
    """Two hidden layers of ReLU, with orthogonal weights."""
    layers = [nn.Linear(n_inputs, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, n_outputs)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, last_gain), strict=True):
        nn.init.orthogonal_(layer.weight, gain)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


# ------------------------------------------------------------------------------------------------------------- rollout
@dataclass
class Rollout:
    """What n environments did in T steps; tensors (T, n) unless said otherwise."""

    obs: Tensor  # (T, n, 160) uint8
    choices: Tensor  # int64, indices of ACTIONS
    log_probs: Tensor  # of the choices, when they were made
    rewards: Tensor  # scaled
    dones: Tensor  # 1 where the episode ended with this step
    values: Tensor  # (T + 1, n) of the critic; the last row is of the observations after the last step
    returns: list[float]  # of the episodes that ended, not scaled


class Collector:
    """Plays in a vector environment by the agent as it is, and keeps what the next rollout begins with."""

    def __init__(self, envs: VectorEnv, s: Settings) -> None:
        self.envs, self.s = envs, s
        self.obs = torch.from_numpy(envs.reset(seed=s.seed)[0])
        self.running = np.zeros(s.n_envs)  # returns of the episodes so far

    @torch.no_grad()
    def collect(self, agent: Agent) -> Rollout:
        """Play `n_steps` in every environment. Actions are drawn by their probabilities."""
        shape = self.s.n_steps, self.s.n_envs
        floats = (torch.empty(shape) for _ in range(3))
        r = Rollout(
            torch.empty(*shape, self.obs.shape[1], dtype=torch.uint8), torch.empty(shape, dtype=torch.int64), *floats,
            values=torch.empty(shape[0] + 1, shape[1]), returns=[],
        )  # fmt: skip
        for t in range(self.s.n_steps):
            r.obs[t] = self.obs
            inputs = self.obs.float()
            r.values[t] = agent.critic(inputs)[:, 0]
            log_probs = agent.actor(inputs).log_softmax(dim=1)
            choices = torch.multinomial(log_probs.exp(), 1)
            r.choices[t], r.log_probs[t] = choices[:, 0], log_probs.gather(1, choices)[:, 0]

            obs, reward, terminated, truncated, _ = self.envs.step(ACTIONS[r.choices[t].numpy()])
            done = terminated | truncated
            r.rewards[t], r.dones[t] = torch.from_numpy(reward * self.s.reward_scale), torch.from_numpy(done)
            self.obs = torch.from_numpy(obs)  # where an episode ended, already that of the next one
            self.running += reward
            r.returns += self.running[done].tolist()
            self.running[done] = 0
        r.values[-1] = agent.critic(self.obs.float())[:, 0]
        return r


# ------------------------------------------------------------------------------------------------- advantages, update
def estimate_advantages(r: Rollout, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimation: (T, n).

    The agent sees the clock, so the horizon is a true end: nothing is earned after it, and no value is added.
    """
    advantages = torch.zeros_like(r.rewards)
    after = torch.zeros_like(r.rewards[0])
    for t in reversed(range(len(r.rewards))):
        goes_on = 1 - r.dones[t]
        error = r.rewards[t] + gamma * goes_on * r.values[t + 1] - r.values[t]
        advantages[t] = after = error + gamma * gae_lambda * goes_on * after
    return advantages


def minibatches(n: int, s: Settings) -> Iterator[Tensor]:
    """Row numbers: every epoch in a new random order, cut into parts of about the same size."""
    for _ in range(s.epochs):
        yield from torch.randperm(n).tensor_split(max(1, round(n / s.minibatch_size)))


def update(agent: Agent, optimizer: torch.optim.Optimizer, r: Rollout, s: Settings, entropy_weight: float) -> None:
    """Improve actor and critic by the clipped loss of PPO."""
    advantages = estimate_advantages(r, s.gamma, s.gae_lambda)
    targets = (advantages + r.values[:-1]).flatten()
    advantages = ((advantages - advantages.mean()) / (advantages.std() + 1e-8)).flatten()
    obs, choices, old_log_probs = r.obs.flatten(0, 1), r.choices.view(-1, 1), r.log_probs.flatten()
    for rows in minibatches(len(obs), s):
        inputs = obs[rows].float()
        log_probs = agent.actor(inputs).log_softmax(dim=1)
        ratio = (log_probs.gather(1, choices[rows])[:, 0] - old_log_probs[rows]).exp()
        gain = torch.min(ratio * advantages[rows], ratio.clamp(1 - s.clip, 1 + s.clip) * advantages[rows]).mean()
        value_loss = (agent.critic(inputs)[:, 0] - targets[rows]).square().mean()
        entropy = -(log_probs.exp() * log_probs).sum(dim=1).mean()

        optimizer.zero_grad()
        (s.value_weight * value_loss - gain - entropy_weight * entropy).backward()
        nn.utils.clip_grad_norm_(agent.parameters(), s.max_grad_norm)
        optimizer.step()


# ------------------------------------------------------------------------------------------------------------ the loop
def train(s: Settings) -> Agent:
    """Rollout and update in turns, until `total_steps` are played."""
    torch.manual_seed(s.seed)
    envs = stockade.make_vec(s.n_envs, red=s.red, horizon=s.horizon, obs=Agent.obs, autoreset_mode="same_step")
    agent = Agent(envs.single_observation_space.shape[0], s.hidden)
    optimizer = torch.optim.Adam(agent.parameters(), eps=1e-5, fused=True)
    collector, recent = Collector(envs, s), deque[float](maxlen=1000)
    n_updates, begin = max(1, s.total_steps // (s.n_envs * s.n_steps)), time.perf_counter()
    for k in range(n_updates):
        left = 1 - k / n_updates
        optimizer.param_groups[0]["lr"] = left * s.learning_rate
        rollout = collector.collect(agent)
        update(agent, optimizer, rollout, s, entropy_weight=left * s.entropy_weight)
        recent.extend(rollout.returns)
        if recent and ((k + 1) % max(1, n_updates // 10) == 0 or k + 1 == n_updates):
            steps = (k + 1) * s.n_envs * s.n_steps
            rate = steps / (time.perf_counter() - begin)
            print(f"{steps:>10,} steps  {rate:>8,.0f} steps/s  mean return {np.mean(recent):8.2f}", flush=True)
    envs.close()
    return agent


def mean_return(policy: Agent | None, s: Settings, episodes: int = 1000) -> float:
    """Of greedy episodes on seeds that training does not use; without a policy, of doing nothing."""
    with stockade.make_vec(episodes, red=s.red, horizon=s.horizon, obs=Agent.obs) as envs:
        obs, _ = envs.reset(seed=1_000_000_000)
        total = np.zeros(episodes)
        for _ in range(s.horizon):
            obs, reward, *_ = envs.step(np.zeros(episodes, np.int64) if policy is None else policy.act(obs))
            total += reward
    return float(total.mean())


def main(s: Settings) -> None:
    """Train, and say what came of it."""
    torch.set_num_threads(s.threads)
    agent = train(s)
    print(f"doing nothing {mean_return(None, s):.1f}")
    print(f"PPO {mean_return(agent, s):.1f}")
    if s.save is not None:
        torch.save(agent.state_dict(), s.save)  # agent.load_state_dict(torch.load(path)) takes them back
    if s.protocol:
        print(stockade.evaluate(agent, episodes=s.protocol))


if __name__ == "__main__":
    main(tyro.cli(Settings))
