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
    activation = torch.nn.ReLU if config.activation == "relu" else torch.nn.Tanh
    hidden = list(config.hidden)
    return PPO(
        "MlpPolicy",
        ScaledRewards(make_sb3(n_envs, **world), config.reward_scale),
        n_steps=config.update_steps,
        batch_size=min(config.minibatch_size, n_envs * config.update_steps),
        n_epochs=config.epochs,
        learning_rate=config.learning_rate,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip,
        ent_coef=config.entropy_weight,
        vf_coef=config.value_weight,
        max_grad_norm=config.max_grad_norm,
        policy_kwargs={"net_arch": {"pi": hidden, "vf": hidden}, "activation_fn": activation},
        stats_window_size=window,
        device="cpu",
        seed=seed,
    )


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
