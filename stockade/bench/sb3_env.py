"""The native world behind Stable-Baselines3's vector interface, as cheaply as that allows."""

from __future__ import annotations

from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from stockade.cage2.vector import NativeVectorEnv


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
