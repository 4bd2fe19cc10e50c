"""PPO of other libraries with our networks and batches: Stable-Baselines3, SBX and rejax, all of them optional.

settings -> a model on our native worlds (`make_sb3_ppo`, `make_sbx_ppo`), or for rejax a compiled training on a world
that costs nothing. What runs on JAX is measured in a process of its own (`OwnProcess`): its threads and its memory
would stand beside those of whatever is compared with it.
"""

import multiprocessing
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from typing import Any, Self

from stockade.cage2.actions import N_ACTIONS
from stockade.cage2.config import RewardWeights
from stockade.cage2.views import read_view
from stockade.learn.config import PPOConfig
from stockade.startup import die_with_starter

SB3, SBX, REJAX = "Stable-Baselines3", "SBX", "rejax"
STEPS = 100  # Of an episode of rejax's world


def make_sb3_ppo(config: PPOConfig, n_envs: int, seed: int, window: int = 100, **world: Any) -> Any:
    """Stable-Baselines3's PPO with our network, batch, minibatches, epochs and weights of losses, at constant rates;
    `ep_info_buffer` has the returns, scaled, of the last `window` episodes."""
    return sb3_ppo_on(_worlds(config, n_envs, world), config, seed, stats_window_size=window)


def make_sbx_ppo(config: PPOConfig, n_envs: int, seed: int, **world: Any) -> Any:
    """The same of SBX, which has Stable-Baselines3's loop and compiles the gradient by JAX."""
    return sbx_ppo_on(_worlds(config, n_envs, world), config, seed)


def sb3_ppo_on(envs: Any, config: PPOConfig, seed: int, **options: Any) -> Any:
    """Stable-Baselines3's PPO on any `VecEnv`; `options` replace those that our settings give."""
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    activation = torch.nn.ReLU if config.activation == "relu" else torch.nn.Tanh
    return _ppo(PPO, activation, envs, config, seed, options)


def sbx_ppo_on(envs: Any, config: PPOConfig, seed: int, **options: Any) -> Any:
    """SBX's PPO on any `VecEnv`."""
    import flax.linen
    from sbx import PPO

    return _ppo(PPO, getattr(flax.linen, config.activation), envs, config, seed, options)


def _ppo(kind: Any, activation: Any, envs: Any, c: PPOConfig, seed: int, options: dict[str, Any]) -> Any:
    networks = {"net_arch": {"pi": list(c.hidden), "vf": list(c.hidden)}, "activation_fn": activation}
    rows = envs.num_envs * c.update_steps
    given = {
        "n_steps": c.update_steps, "batch_size": min(c.minibatch_size, rows), "n_epochs": c.epochs, "gamma": c.gamma,
        "learning_rate": c.learning_rate, "gae_lambda": c.gae_lambda, "clip_range": c.clip, "vf_coef": c.value_weight,
        "ent_coef": c.entropy_weight, "max_grad_norm": c.max_grad_norm, "policy_kwargs": networks, "device": "cpu",
    }  # fmt: skip
    with warnings.catch_warnings(action="ignore"):  # of a last minibatch that is smaller than the others
        return kind("MlpPolicy", envs, seed=seed, **given | options)


def _worlds(config: PPOConfig, n_envs: int, world: dict[str, Any]) -> Any:
    from stockade.integrations.sb3 import make_sb3

    return make_sb3(n_envs, reward=RewardWeights(*3 * [config.reward_scale]), **world)


# ------------------------------------------------------------------------------------------------ speed, for JAX
class OwnProcess:
    """A process for calls whose results are waited for, until the end of `with`; an exception there kills it."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # JAX has threads, which a fork does not survive
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_serve, args=(theirs,))
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pipe.close()  # which ends it, unless it is in the middle of a call
        if kind is None:
            self._process.join(10.0)
        self._process.kill()
        self._process.join()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function returns there; RuntimeError if it raises, or if the process dies."""
        try:
            self._pipe.send((function, arguments))
            value, problem = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join()
            raise RuntimeError(f"its process ended with exit code {self._process.exitcode}") from error
        if problem:
            raise RuntimeError(problem)
        return value


def _serve(pipe: Connection) -> None:
    """In the process: call after call."""
    die_with_starter()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, who started it ends it
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = function(*arguments), ""
        except Exception as error:
            traceback.print_exc()
            answer = None, f"{type(error).__name__}: {error}"
        pipe.send(answer)


def episodes_per_second(peer: str, config: PPOConfig, n_envs: int, obs: str, iterations: int) -> float:
    """Of one round; the first in a process compiles before."""
    steps, learn = _learner(peer, config, n_envs, obs, iterations)
    begin = time.perf_counter()
    learn()
    return steps / STEPS / (time.perf_counter() - begin)


@cache
def _learner(peer: str, config: PPOConfig, n_envs: int, obs: str, iterations: int) -> tuple[int, Callable[[], object]]:
    """Steps of a round, and a call that makes it; everything is compiled."""
    steps = n_envs * config.update_steps * iterations
    if peer == REJAX:
        learn = _rejax(config, n_envs, read_view(obs).size, steps)
    else:
        model = make_sbx_ppo(config, n_envs, seed=0, obs=obs)

        def learn() -> object:
            return model.learn(steps, reset_num_timesteps=True)

    learn()
    return steps, learn


def _rejax(c: PPOConfig, n_envs: int, n_inputs: int, steps: int) -> Callable[[], object]:
    """Its whole training is one compiled call: environments, policy, gradients."""
    import jax
    from rejax import PPO

    minibatches = max(1, round(n_envs * c.update_steps / c.minibatch_size))
    while n_envs * c.update_steps % minibatches:  # it wants equal ones
        minibatches -= 1
    networks = {"hidden_layer_sizes": c.hidden, "activation": c.activation}
    algorithm = PPO.create(
        env=_free_world(n_inputs), num_envs=n_envs, num_steps=c.update_steps, num_epochs=c.epochs,
        num_minibatches=minibatches, total_timesteps=steps, eval_freq=steps, skip_initial_evaluation=True,
        agent_kwargs=networks, gamma=c.gamma, gae_lambda=c.gae_lambda, clip_eps=c.clip, vf_coef=c.value_weight,
        learning_rate=c.learning_rate, ent_coef=c.entropy_weight, max_grad_norm=c.max_grad_norm)  # fmt: skip
    train = jax.jit(algorithm.replace(eval_callback=lambda *_: ()).train)  # the others play no evaluation either
    return lambda: jax.block_until_ready(train(jax.random.PRNGKey(0)))


def _free_world(n_inputs: int) -> Any:
    """For rejax, a world of our sizes that costs nothing: it counts steps, and an action's number is its cost."""
    import jax.numpy as jnp
    from gymnax.environments import environment, spaces

    class FreeWorld(environment.Environment):
        num_actions = N_ACTIONS

        @property
        def default_params(self) -> Any:
            return environment.EnvParams(max_steps_in_episode=STEPS)

        def step_env(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, ...]:
            state = environment.EnvState(time=state.time + 1)
            done = state.time >= params.max_steps_in_episode
            return self.get_obs(state), state, -action.astype(jnp.float32) / N_ACTIONS, done, {}

        def reset_env(self, key: Any, params: Any) -> tuple[Any, Any]:
            state = environment.EnvState(time=0)
            return self.get_obs(state), state

        def get_obs(self, state: Any, params: Any = None, key: Any = None) -> Any:
            return jnp.full((n_inputs,), state.time / STEPS, jnp.float32)

        def action_space(self, params: Any = None) -> Any:
            return spaces.Discrete(N_ACTIONS)

        def observation_space(self, params: Any) -> Any:
            return spaces.Box(0, 1, (n_inputs,), jnp.float32)

    return FreeWorld()
