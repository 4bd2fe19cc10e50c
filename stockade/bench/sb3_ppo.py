"""PPO of Stable-Baselines3 on the native world with our settings, to be measured beside ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from stockade.integrations.sb3 import make_sb3
from stockade.learn.config import PPOConfig


def make_sb3_ppo(config: PPOConfig, n_envs: int, seed: int, window: int = 100, **world: Any) -> PPO:
    """Their PPO with the same network, batch, minibatches, epochs and weights of losses, at constant rates.

    `ep_info_buffer` has the returns, not scaled, of the last `window` episodes.
    """
    torch.set_num_threads(1)
    c, activation = config, torch.nn.ReLU if config.activation == "relu" else torch.nn.Tanh
    networks = {"net_arch": {"pi": list(c.hidden), "vf": list(c.hidden)}, "activation_fn": activation}
    envs = ScaledRewards(make_sb3(n_envs, **world), c.reward_scale)
    batch_size = min(c.minibatch_size, n_envs * c.update_steps)
    return PPO("MlpPolicy", envs, n_steps=c.update_steps, batch_size=batch_size, n_epochs=c.epochs,
               learning_rate=c.learning_rate, gamma=c.gamma, gae_lambda=c.gae_lambda, clip_range=c.clip,
               ent_coef=c.entropy_weight, vf_coef=c.value_weight, max_grad_norm=c.max_grad_norm,
               policy_kwargs=networks, stats_window_size=window, device="cpu", seed=seed)  # fmt: skip


class ScaledRewards(VecEnvWrapper):
    """Rewards times a number; episodes' returns, which are counted below, stay as they are."""

    def __init__(self, venv: VecEnv, scale: float) -> None:
        super().__init__(venv)
        self._scale = np.float32(scale)

    def reset(self) -> Any:
        """Begin episodes."""
        return self.venv.reset()

    def step_wait(self) -> Any:
        """Step."""
        obs, rewards, dones, infos = self.venv.step_wait()
        return obs, rewards * self._scale, dones, infos
