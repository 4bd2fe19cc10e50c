"""The native world behind the vector interface of Stable-Baselines3, and its PPO with our settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

from stockade.cage2.vector import NativeVectorEnv
from stockade.learn.config import PPOConfig


def make_sb3(env: VecEnv, config: PPOConfig, seed: int) -> PPO:
    """Their PPO with the same network, batch, minibatches, epochs and weights of losses, at constant rates."""
    torch.set_num_threads(1)
    activation = torch.nn.ReLU if config.activation == "relu" else torch.nn.Tanh
    hidden = list(config.hidden)
    batch = env.num_envs * config.update_steps
    return PPO(
        "MlpPolicy",
        env,
        n_steps=config.update_steps,
        batch_size=min(config.minibatch_size, batch),
        n_epochs=config.epochs,
        learning_rate=config.learning_rate,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip,
        ent_coef=config.entropy_weight,
        vf_coef=config.value_weight,
        max_grad_norm=config.max_grad_norm,
        policy_kwargs={"net_arch": {"pi": hidden, "vf": hidden}, "activation_fn": activation},
        device="cpu",
        seed=seed,
    )


class NativeSB3Env(VecEnv):
    """Resets in the same step, as Stable-Baselines3 wants it; infos are empty but for what ends an episode."""

    def __init__(self, num_envs: int, obs: str, reward_scale: float, red: str = "bline", horizon: int = 100) -> None:
        self.envs = NativeVectorEnv(num_envs, red, horizon, obs=obs, autoreset_mode="same_step")
        super().__init__(num_envs, self.envs.single_observation_space, self.envs.single_action_space)
        self._scale = reward_scale
        self._nothing: list[dict[str, Any]] = [{} for _ in range(num_envs)]
        self._actions = np.zeros(num_envs, np.int64)
        self._returns = np.zeros(num_envs)
        #: Returns, not scaled, of the episodes that ended.
        self.episode_returns: list[float] = []

    def reset(self) -> np.ndarray:
        """Begin episodes in all worlds."""
        self._returns[:] = 0
        return self.envs.reset(seed=self._seeds[0])[0]

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Step."""
        obs, rewards, _, truncated, info = self.envs.step(self._actions)
        self._returns += rewards
        infos = self._nothing
        if truncated.any():
            self.episode_returns += self._returns[truncated].tolist()
            self._returns[truncated] = 0
            infos = [
                {"terminal_observation": info["final_obs"][i], "TimeLimit.truncated": True} if over else {}
                for i, over in enumerate(truncated)
            ]
        return obs, (rewards * self._scale).astype(np.float32), truncated, infos

    def close(self) -> None:
        """Close the worlds."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Only what Stable-Baselines3 asks for by itself."""
        return [getattr(self.envs, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Not offered."""
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Not offered."""
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """None is."""
        return [False] * self.num_envs
