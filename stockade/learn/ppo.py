"""PPO: rollout, advantages, clipped update.

iterate():  collect   lanes, one thread each: policy -> actions -> environments -> rows of the rollout
            advantages  generalised advantage estimation, normalised
            update    epochs x minibatches: shards, one thread each: loss, gradient; then their sum, clipping, Adam

A lane is one vector environment with its columns of the rollout. The native world is cut into as many lanes as there
are shards; any other vector environment is one lane. Sums are always taken in the same order and every lane has its own
stream of chance, so results depend on the seed and the settings only, not on threads or timing.
"""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from stockade.cage2.batch import LAYOUT, READABLE_LAYOUTS
from stockade.cores import available_cores
from stockade.errors import InputError
from stockade.learn import kernels
from stockade.learn.config import PPOConfig
from stockade.learn.kernels import RUNNING, STATS, TERMINATED, TRUNCATED
from stockade.learn.mixture import restore_worlds, save_worlds, with_prefix
from stockade.learn.policy import Architecture, Policy, Workspace

AnyVectorEnv = VectorEnv[Any, Any, Any]
_COUNTS = "iteration", "episodes", "steps"
SAVED = "obs", "dead", "returns", "lengths"  #: of a lane, beside its worlds


class Rollout:
    """What n environments did in T steps; arrays (T, n) unless said otherwise."""

    def __init__(self, steps: int, n: int, n_inputs: int, obs_dtype: Any) -> None:
        shape = steps, n
        self.obs = np.zeros((*shape, n_inputs), obs_dtype)
        self.actions = np.zeros(shape, np.int64)  # columns of the policy
        # rewards are scaled; returns are what values should have been
        self.log_probs, self.rewards, self.advantages, self.returns = (np.zeros(shape, np.float32) for _ in range(4))
        self.values = np.zeros((steps + 1, n), np.float32)
        self.ended = np.zeros(shape, np.uint8)  # how the step ended: RUNNING, TRUNCATED, TERMINATED
        # the row only began a new episode: next_step autoreset ignores its action, and nothing is learned of it
        self.dead = np.zeros(shape, np.bool_)


@dataclass
class Iteration:
    """What one iteration did; `stats` are means over the update's rows."""

    returns: np.ndarray  #: of the episodes that ended, in a fixed order
    lengths: np.ndarray  #: their steps
    stats: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  #: by phase; of threads side by side, their mean


@dataclass
class Shaping:
    """Potential-based shaping: what a step adds to the potential is paid beside the reward. Returns leave it out."""

    potential: Callable[[np.ndarray], np.ndarray]  #: of observations (n, inputs) -> (n,)
    weight: float = 0.0  #: points for a potential of 1; whoever trains changes it on the way


class Lane:
    """One vector environment, and its columns of the rollout."""

    def __init__(
        self, envs: AnyVectorEnv, columns: slice, policy: Policy, rollout: Rollout, seed: int,
        shaping: Shaping | None = None,
    ) -> None:  # fmt: skip
        self.envs, self.columns, self.policy, self.rollout, self.shaping = envs, columns, policy, rollout, shaping
        self.chance = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, columns.start])))
        arch = policy.architecture
        self._shape, self._gates = arch.kernel_shape, np.array(arch.gates, np.int64)
        self._layers = np.empty((2, len(arch.hidden), envs.num_envs, max(arch.hidden)), np.float32)
        self._logits = np.empty((envs.num_envs, arch.n_logits), np.float32)
        self.begin(seed)

    def begin(self, *entropy: int) -> None:
        """New episodes in all environments; other lanes get other seeds of the same numbers."""
        n, seed = self.envs.num_envs, int(np.random.SeedSequence(entropy).generate_state(1)[0]) + self.columns.start
        self.obs = self.envs.reset(seed=seed)[0].reshape(n, -1)
        self.dead, self.returns, self.lengths = np.zeros(n, np.bool_), np.zeros(n), np.zeros(n, np.int64)

    def collect(self, reward_scale: float) -> tuple[np.ndarray, np.ndarray, float, float]:
        """Fill the columns; returns and lengths of episodes that ended, seconds of the world and of the policy."""
        r, columns = self.rollout, self.columns
        steps, n_actions = len(r.actions), len(self.policy.actions)
        uniforms = self.chance.random((steps, self.envs.num_envs), np.float32)
        returns, lengths, world, policy = [], [], 0.0, 0.0
        clock = time.perf_counter()
        for t in range(steps):
            r.obs[t, columns] = self.obs
            self._forward(r.values[t, columns])
            actions = r.actions[t, columns]
            kernels.sample(self._logits, n_actions, uniforms[t], actions, r.log_probs[t, columns])
            clock, before = time.perf_counter(), clock
            policy += clock - before
            obs, reward, terminated, truncated, _ = self.envs.step(self.policy.actions[actions])
            self.obs = obs.reshape(len(obs), -1)
            r.rewards[t, columns] = reward * reward_scale
            if self.shaping is not None and self.shaping.weight:
                gained = self.shaping.potential(self.obs) - self.shaping.potential(r.obs[t, columns])
                r.rewards[t, columns] += gained * (self.shaping.weight * reward_scale)
            r.ended[t, columns] = np.where(terminated, TERMINATED, np.where(truncated, TRUNCATED, RUNNING))
            r.dead[t, columns] = self.dead
            self.returns += reward
            self.lengths += ~self.dead
            self.dead = terminated | truncated
            if self.dead.any():
                returns += self.returns[self.dead].tolist()
                lengths += self.lengths[self.dead].tolist()
                self.returns[self.dead] = self.lengths[self.dead] = 0
            clock, before = time.perf_counter(), clock
            world += clock - before
        self._forward(r.values[steps, columns])
        return np.array(returns), np.array(lengths, np.int64), world, policy + time.perf_counter() - clock

    def state(self) -> tuple[dict[str, np.ndarray], Any]:
        """What continues: arrays by name, and the stream of chance as JSON."""
        parts = {name: getattr(self, name) for name in SAVED} | save_worlds(self.envs)
        arrays = {name: np.ascontiguousarray(array).copy() for name, array in parts.items()}
        return arrays, self.chance.bit_generator.state

    def restore(self, arrays: dict[str, np.ndarray], chance: Any) -> bool:
        """Continue where `state` was taken; False if the environments cannot be put back."""
        self.chance.bit_generator.state = chance
        if not restore_worlds(self.envs, arrays):
            return False
        for name in SAVED:
            setattr(self, name, arrays[name].copy())
        return True

    def _forward(self, values: np.ndarray) -> None:
        """Logits and values of the present observations."""
        kernels.forward(self.obs, self.policy.flat.numpy(), *self._shape, self._layers, self._logits, values[:, None])
        if len(self._gates):
            kernels.close_gates(self.obs, self._gates, self._logits)


class PPO:
    """The learner.

    Args:
        envs: one or more vector environments with discrete actions and next_step autoreset; each is a lane.
        seed: of everything: weights, environments, actions, order of rows.
        actions: the environment's actions to choose from; default all.
        horizon_is_end: nothing is earned after a truncation, see `PPOConfig.time_limit`.
        gates: which actions are possible shows in the observation: see `Architecture`.
        n_hidden_inputs: so many of the last values of an observation only the critic sees.
        shaping: what is paid beside the reward.
    """

    def __init__(
        self, envs: Sequence[AnyVectorEnv], config: PPOConfig, seed: int, actions: Sequence[int] | None = None,
        horizon_is_end: bool = False, gates: tuple[int, ...] = (), n_hidden_inputs: int = 0,
        shaping: Shaping | None = None,
    ) -> None:  # fmt: skip
        for one in envs:
            if not isinstance(one.single_action_space, gymnasium.spaces.Discrete) or one.single_action_space.start != 0:
                raise ValueError(f"PPO here is for Discrete actions from 0 on, not {one.single_action_space}")
            if not isinstance(one.single_observation_space, gymnasium.spaces.Box):
                raise ValueError(f"PPO here is for Box observations, not {one.single_observation_space}")
            if one.metadata.get("autoreset_mode") is not AutoresetMode.NEXT_STEP:
                raise ValueError("make the vector environment with autoreset_mode next_step")
        torch.set_num_threads(1)  # before the first weights: they too would depend on the number of threads
        self.config, self.horizon_is_end, self._seed, self.shaping = config, horizon_is_end, seed, shaping
        n_inputs = math.prod(envs[0].single_observation_space.shape or ()) - n_hidden_inputs
        chosen = tuple(range(gymnasium.spaces.flatdim(envs[0].single_action_space)) if actions is None else actions)
        network = config.hidden, config.activation, config.shared
        architecture = Architecture(n_inputs, chosen, *network, gates, n_hidden_inputs)
        self.policy = Policy.create(architecture, seed)
        self._order = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 2**32 - 1])))
        self._set_up(envs)
        self._adam = torch.optim.Adam([self._flat], lr=config.learning_rate, eps=1e-5, fused=True)
        first, second, step = torch.zeros_like(self._flat), torch.zeros_like(self._flat), self._flat.new_zeros(())
        self._adam.state[self._flat] = {"step": step, "exp_avg": first, "exp_avg_sq": second}
        self.iteration = self.episodes = self.steps = 0

    def _set_up(self, envs: Sequence[AnyVectorEnv]) -> None:
        """The memory that is learned in: weights, lanes with their rollout, shards; and the threads."""
        config, seed, n_inputs = self.config, self._seed, self.policy.architecture.n_all_inputs
        self._flat = self.policy.flat
        ends = np.cumsum([0, *(one.num_envs for one in envs)]).tolist()
        self.rollout = Rollout(config.update_steps, ends[-1], n_inputs, envs[0].single_observation_space.dtype)
        columns = itertools.starmap(slice, itertools.pairwise(ends))
        shared = self.policy, self.rollout, seed, self.shaping
        self.lanes = [Lane(one, part, *shared) for one, part in zip(envs, columns, strict=True)]
        rows = -(-self.rollout.actions.size // config.shards)
        self._shards = [Workspace(self.policy, rows) for _ in range(config.shards)]
        self._gathered = [torch.from_numpy(np.zeros((w.rows, n_inputs), self.rollout.obs.dtype)) for w in self._shards]
        threads = config.threads or min(config.shards, available_cores())
        self._pool = ThreadPoolExecutor(threads - 1, "learner", torch.set_num_threads, (1,)) if threads > 1 else None

    # ------------------------------------------------------------------------------------------------ one iteration
    def iterate(self, progress: float) -> Iteration:
        """Collect, estimate, update. `progress` from 0 to 1 is how far along the schedules are."""
        result = self.collect()
        self.improve(result, progress)
        return result

    def collect(self) -> Iteration:
        """Play `update_steps` steps in every environment by the policy as it is."""
        done = self._in_parallel([partial(lane.collect, self.config.reward_scale) for lane in self.lanes])
        returns, lengths, world, policy = zip(*done, strict=True)
        at_once = 1 if self._pool is None else len(done)
        result = Iteration(np.concatenate(returns), np.concatenate(lengths))
        result.seconds |= {"world": sum(world) / at_once, "policy": sum(policy) / at_once}
        self.episodes += len(result.returns)
        self.steps += int((~self.rollout.dead).sum())
        return result

    def improve(self, result: Iteration, progress: float) -> None:
        """Learn from what was collected; adds to its `stats` and `seconds`."""
        c = self.config
        gamma = _between(c.gamma, c.gamma if c.final_gamma is None else c.final_gamma, progress)
        learning_rate = _between(c.learning_rate, c.final_learning_rate, progress)
        entropy_weight = _between(c.entropy_weight, c.final_entropy_weight, progress)
        begin = time.perf_counter()
        explained = self._estimate(gamma)
        middle = time.perf_counter()
        result.stats = self._update(learning_rate, entropy_weight)
        result.seconds |= {"advantage": middle - begin, "update": time.perf_counter() - middle}
        rates = {"learning_rate": learning_rate, "entropy_weight": entropy_weight}
        result.stats |= {"explained_variance": explained, **rates}
        self.iteration += 1

    def _estimate(self, gamma: float) -> float:
        """Advantages and returns; how much of the returns' variance the values explained."""
        r, c = self.rollout, self.config
        discounts = np.float32(gamma), np.float32(c.gae_lambda)
        kernels.estimate_advantages(r.rewards, r.values, r.ended, *discounts, self.horizon_is_end, r.advantages)
        np.add(r.advantages, r.values[:-1], out=r.returns)
        alive = ~r.dead
        if not alive.any():
            return math.nan
        advantages = r.advantages[alive]
        explained = 1.0 - float(advantages.var()) / (float(r.returns[alive].var()) + 1e-12)
        if c.normalise_advantages:
            r.advantages -= advantages.mean()
            r.advantages /= advantages.std() + np.float32(1e-8)
        return explained

    def _update(self, learning_rate: float, entropy_weight: float) -> dict[str, float]:
        c, r = self.config, self.rollout
        rows = np.flatnonzero(~r.dead)
        if not len(rows):  # short rollouts may hold nothing but beginnings of episodes
            return dict.fromkeys(STATS, math.nan) | {"grad_norm": 0.0}
        n_minibatches = max(1, round(len(rows) / c.minibatch_size))
        coefficients = tuple(np.float32(x) for x in (c.clip, c.value_clip, c.value_weight, entropy_weight))
        for group in self._adam.param_groups:
            group["lr"] = learning_rate
        totals, norms, seen = np.zeros(len(STATS)), [], 0
        epochs = (np.array_split(self._order.permutation(rows), n_minibatches) for _ in range(c.epochs))
        for minibatch in itertools.chain.from_iterable(epochs):  # an epoch is shuffled when the one before is over
            scale = np.float32(1 / len(minibatch))
            parts = np.array_split(minibatch, c.shards)
            calls = [partial(self._gradient, k, part, scale, coefficients) for k, part in enumerate(parts)]
            stats = np.sum(self._in_parallel(calls), axis=0)
            norms.append(self._step())
            totals += stats
            seen += len(minibatch)
            if c.target_kl > 0 and stats[STATS.index("kl")] / len(minibatch) > 1.5 * c.target_kl:
                break
        means = dict(zip(STATS, (totals / seen).tolist(), strict=True))
        return means | {"grad_norm": sum(norms) / len(norms)}

    def _gradient(self, shard: int, rows: np.ndarray, scale: np.float32, coefficients: tuple[Any, ...]) -> np.ndarray:
        """Of some rows, into the shard's workspace; sums for statistics."""
        r, work, b = self.rollout, self._shards[shard], len(rows)
        inputs = self._gathered[shard][:b]
        torch.index_select(torch.from_numpy(r.obs).view(-1, inputs.shape[1]), 0, torch.from_numpy(rows), out=inputs)
        logits, values = work.forward(inputs)
        data = tuple(x.reshape(-1) for x in (r.actions, r.log_probs, r.values[:-1], r.advantages, r.returns))
        stats, n_actions = np.zeros(len(STATS)), len(self.policy.actions)
        kernels.loss_head(logits.numpy(), values.numpy(), n_actions, rows, data, scale, coefficients, stats)
        work.backward(b)
        return stats

    def _step(self) -> float:
        """Add up the shards' gradients in order, clip, and let Adam move the weights; the gradient's length."""
        gradient = self._shards[0].gradient
        for other in self._shards[1:]:
            gradient += other.gradient
        norm = float(torch.linalg.vector_norm(gradient))
        if norm > self.config.max_grad_norm:
            gradient *= self.config.max_grad_norm / norm
        self.policy.flat.grad = gradient
        self._adam.step()
        return norm

    def _in_parallel(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        if self._pool is None:
            return [call() for call in calls]
        waiting = [self._pool.submit(call) for call in calls[1:]]
        return [calls[0](), *(future.result() for future in waiting)]

    def change_worlds(self, envs: Sequence[AnyVectorEnv]) -> None:
        """Go on in other environments, as many in each lane; new episodes begin."""
        for lane, one in zip(self.lanes, envs, strict=True):
            lane.envs.close()
            lane.envs = one
            lane.begin(self._seed, self.iteration)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        for lane in self.lanes:
            lane.envs.close()

    # --------------------------------------------------------------------------------------------- state, for resume
    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Everything that continues: arrays by name, and the rest as JSON. `restore` takes both back, bit for bit."""
        adam = self._adam.state[self._flat]
        arrays = {f"policy.{name}": weight for name, weight in self.policy.save_weights().items()}
        arrays |= {f"adam.{name}": adam[name].cpu().numpy().copy() for name in ("exp_avg", "exp_avg_sq", "step")}
        streams = [self._order.bit_generator.state]
        for k, lane in enumerate(self.lanes):
            parts, chance = lane.state()
            arrays |= {f"lane{k}.{name}": array for name, array in parts.items()}
            streams.append(chance)
        rest = {name: getattr(self, name) for name in _COUNTS} | {"streams": streams, "layout": LAYOUT}
        return arrays, rest | {"architecture": self.policy.architecture.to_json()}

    def restore(self, arrays: dict[str, np.ndarray], rest: dict[str, Any]) -> None:
        """Continue where `state` was taken. Environments that cannot be put back begin new episodes."""
        if Architecture.from_json(rest["architecture"]) != self.policy.architecture:
            raise InputError("the checkpoint is of another network; use the settings that it was trained with")
        if rest.get("layout", LAYOUT) not in READABLE_LAYOUTS:  # version 0.1.0 says nothing; its layout is ours
            raise InputError("the worlds in the checkpoint are of another version of stockade, which must continue it; "
                             "its policy can be loaded and evaluated")  # fmt: skip
        self.policy.load_weights(arrays, prefix="policy.")
        for name, tensor in self._adam.state[self._flat].items():
            tensor.copy_(torch.from_numpy(arrays[f"adam.{name}"]).view(tensor.shape))
        for name in _COUNTS:
            setattr(self, name, rest[name])
        self._order.bit_generator.state = rest["streams"][0]
        for k, lane in enumerate(self.lanes):
            if not lane.restore(with_prefix(f"lane{k}.", arrays), rest["streams"][k + 1]):
                lane.begin(self._seed, self.iteration)


def _between(first: float, last: float, progress: float) -> float:
    return first + progress * (last - first)
