"""PPO on CAGE Challenge 2 in JAX, on the CPU: rollout, advantages and update are one compiled function.

    python examples/ppo_jax.py                                 # B_line, 30 steps
    python examples/ppo_jax.py --red meander --total-steps 5_000_000
    python examples/ppo_jax.py --help

Needs `pip install '.[jax]'`. The worlds run in the compiled kernel, which XLA calls; their state is an array like any
other. Read from top to bottom: settings, networks, rollout, advantages, update, the loop.
"""

import functools
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import stockade
from stockade.cage2 import ACTION_MASK
from stockade.integrations.jax import JaxWorlds

#: What the agent chooses from: 82 of the 145 actions. The others are decoys that their host can never run.
ACTIONS = jnp.flatnonzero(ACTION_MASK)


@dataclass(frozen=True)
class Settings:
    """Train a defender with PPO in JAX, then play it in episodes that it has not seen."""

    red: str = "bline"  # Who attacks: bline, meander, sleep, mix, or a variant of them.
    horizon: int = 30  # Steps per episode.
    total_steps: int = 1_000_000  # Steps to train for, over all environments.
    seed: int = 0  # Seed of everything.

    n_envs: int = 256  # Environments that run at once.
    n_steps: int = 50  # Steps of each environment between two updates.
    epochs: int = 4  # Passes of an update over its steps.
    n_minibatches: int = 10  # Gradients per pass.
    learning_rate: float = 2e-3  # Learning rate of Adam at the start; it falls to 0.
    entropy_weight: float = 0.01  # Weight of the entropy bonus at the start; it falls to 0.
    gamma: float = 0.99  # Discount per step.
    gae_lambda: float = 0.95  # Weight of longer advantage estimates (GAE).
    clip: float = 0.2  # Relative change of a probability beyond which it earns nothing more.
    value_weight: float = 0.5  # Weight of the value loss.
    max_grad_norm: float = 0.5  # Longer gradients are shortened to this.
    reward_scale: float = 0.1  # Rewards are multiplied by this before they are learned from.
    hidden: int = 64  # Units in each of the two hidden layers.


# ------------------------------------------------------------------------------------------------------------ networks
def network(key: Any, sizes: tuple[int, ...], last_gain: float) -> list[tuple[Any, Any]]:
    """Weights and biases: orthogonal, zero."""
    gains = [2**0.5] * (len(sizes) - 2) + [last_gain]
    keys = jax.random.split(key, len(gains))
    return [
        (jax.nn.initializers.orthogonal(gain)(each, (n_in, n_out)), jnp.zeros(n_out))
        for each, gain, n_in, n_out in zip(keys, gains, sizes[:-1], sizes[1:], strict=True)
    ]


def forward(layers: list[tuple[Any, Any]], obs: Any) -> Any:
    """(..., inputs) uint8 -> (..., outputs)."""
    x = obs.astype(jnp.float32)
    for weights, biases in layers[:-1]:
        x = jax.nn.relu(x @ weights + biases)
    return x @ layers[-1][0] + layers[-1][1]


class Adam(NamedTuple):
    """What the optimiser remembers: mean gradients, mean squares, number of updates."""

    mean: Any
    square: Any
    count: Any


def adam(agent: Any, moments: Adam, gradients: Any, rate: Any, max_norm: float) -> tuple[Any, Adam]:
    """One step of Adam with clipped gradients."""
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(gradients)))
    gradients = jax.tree.map(lambda g: g * jnp.minimum(1.0, max_norm / (norm + 1e-6)), gradients)
    count = moments.count + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments.mean, gradients)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g**2, moments.square, gradients)
    scale = rate * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    agent = jax.tree.map(lambda a, m, s: a - scale * m / (jnp.sqrt(s) + 1e-5), agent, mean, square)
    return agent, Adam(mean, square, count)


# ------------------------------------------------------------------------------------------------------------- rollout
class Rollout(NamedTuple):
    """What n environments did in T steps, (T, n) each; obs (T, n, 160)."""

    obs: Any
    choices: Any  # indices of ACTIONS
    log_probs: Any
    values: Any
    rewards: Any  # not scaled
    dones: Any


def collect(worlds: JaxWorlds, agent: Any, state: Any, obs: Any, key: Any, n_steps: int) -> tuple[Any, Any, Rollout]:
    """Play; actions are drawn by their probabilities."""

    def play(carry: tuple[Any, Any], key: Any) -> tuple[tuple[Any, Any], Rollout]:
        state, obs = carry
        log_probs = jax.nn.log_softmax(forward(agent["actor"], obs))
        choices = jax.random.categorical(key, log_probs)
        state, after, rewards, dones = worlds.step(state, ACTIONS[choices])
        chosen = jnp.take_along_axis(log_probs, choices[:, None], axis=1)[:, 0]
        return (state, after), Rollout(obs, choices, chosen, forward(agent["critic"], obs)[:, 0], rewards, dones)

    (state, obs), rollout = jax.lax.scan(play, (state, obs), jax.random.split(key, n_steps))
    return state, obs, rollout


# -------------------------------------------------------------------------------------------------- advantages, update
def estimate_advantages(r: Rollout, last_values: Any, s: Settings) -> Any:
    """Generalised advantage estimation. The agent sees the clock, so the horizon is a true end."""

    def back(carry: tuple[Any, Any], row: tuple[Any, ...]) -> tuple[tuple[Any, Any], Any]:
        after, next_value = carry
        reward, value, done = row
        goes_on = 1.0 - done
        error = reward * s.reward_scale + s.gamma * goes_on * next_value - value
        after = error + s.gamma * s.gae_lambda * goes_on * after
        return (after, value), after

    rows = r.rewards, r.values, r.dones.astype(jnp.float32)
    return jax.lax.scan(back, (jnp.zeros_like(last_values), last_values), rows, reverse=True)[1]


def loss(agent: Any, batch: tuple[Any, ...], entropy_weight: Any, s: Settings) -> Any:
    """The clipped loss of PPO."""
    obs, choices, old_log_probs, advantages, targets = batch
    log_probs = jax.nn.log_softmax(forward(agent["actor"], obs))
    ratio = jnp.exp(jnp.take_along_axis(log_probs, choices[:, None], axis=1)[:, 0] - old_log_probs)
    gain = jnp.minimum(ratio * advantages, jnp.clip(ratio, 1 - s.clip, 1 + s.clip) * advantages).mean()
    value_loss = jnp.square(forward(agent["critic"], obs)[:, 0] - targets).mean()
    entropy = -(jnp.exp(log_probs) * log_probs).sum(axis=1).mean()
    return s.value_weight * value_loss - gain - entropy_weight * entropy


@functools.partial(jax.jit, static_argnums=(0, 1))
def iterate(
    worlds: JaxWorlds, s: Settings, agent: Any, moments: Adam, state: Any, obs: Any, key: Any, left: Any
) -> Any:
    """One rollout and one update; `left` is the share of the training that is ahead."""
    play_key, update_key = jax.random.split(key)
    state, obs, r = collect(worlds, agent, state, obs, play_key, s.n_steps)
    advantages = estimate_advantages(r, forward(agent["critic"], obs)[:, 0], s)
    targets = advantages + r.values
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    rows = [x.reshape(-1, *x.shape[2:]) for x in (r.obs, r.choices, r.log_probs, advantages, targets)]

    def learn(carry: tuple[Any, Adam], chosen: Any) -> tuple[tuple[Any, Adam], None]:
        agent, moments = carry
        gradients = jax.grad(loss)(agent, tuple(x[chosen] for x in rows), left * s.entropy_weight, s)
        return adam(agent, moments, gradients, left * s.learning_rate, s.max_grad_norm), None

    orders = [jax.random.permutation(each, len(rows[0])) for each in jax.random.split(update_key, s.epochs)]
    minibatches = jnp.concatenate(orders).reshape(s.epochs * s.n_minibatches, -1)
    (agent, moments), _ = jax.lax.scan(learn, (agent, moments), minibatches)
    return agent, moments, state, obs, r.rewards.mean()


# ------------------------------------------------------------------------------------------------------------ the loop
def train(s: Settings) -> Any:
    """Rollout and update in turns, until `total_steps` are played."""
    worlds = JaxWorlds(s.n_envs, red=s.red, horizon=s.horizon, obs="memory")
    key, actor, critic, start = jax.random.split(jax.random.key(s.seed), 4)
    sizes = worlds.obs_size, s.hidden, s.hidden
    agent = {"actor": network(actor, (*sizes, len(ACTIONS)), 0.01), "critic": network(critic, (*sizes, 1), 1.0)}
    zeros = jax.tree.map(jnp.zeros_like, agent)
    moments = Adam(zeros, zeros, jnp.zeros((), jnp.int32))
    state, obs = worlds.reset(start)
    n_updates, begin = max(1, s.total_steps // (s.n_envs * s.n_steps)), time.perf_counter()
    for k in range(n_updates):
        key, now = jax.random.split(key)
        agent, moments, state, obs, mean = iterate(worlds, s, agent, moments, state, obs, now, 1 - k / n_updates)
        if (k + 1) % max(1, n_updates // 10) == 0:
            steps = (k + 1) * s.n_envs * s.n_steps
            rate = steps / (time.perf_counter() - begin)
            print(f"{steps:>10,} steps  {rate:>8,.0f} steps/s  reward per step {float(mean):6.2f}", flush=True)
    return agent


def mean_return(agent: Any, s: Settings, episodes: int = 1000) -> float:
    """Of greedy episodes on seeds that training does not use; without an agent, of doing nothing."""
    total = np.zeros(episodes)
    with stockade.make_vec(episodes, red=s.red, horizon=s.horizon, obs="memory") as envs:
        obs, _ = envs.reset(seed=1_000_000_000)
        for _ in range(s.horizon):
            choices = None if agent is None else ACTIONS[forward(agent["actor"], obs).argmax(axis=1)]
            obs, rewards, *_ = envs.step(np.zeros(episodes, int) if choices is None else np.asarray(choices))
            total += rewards
    return float(total.mean())


def main(s: Settings) -> None:
    """Train, and say what came of it."""
    agent = train(s)
    print(f"doing nothing {mean_return(None, s):.1f}")
    print(f"PPO {mean_return(agent, s):.1f}")


if __name__ == "__main__":
    main(tyro.cli(Settings))
