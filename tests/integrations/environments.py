"""Environments for tests of the bridges, in a module that worker processes import without anything heavy."""

import sys

import gymnasium
import numpy as np
from gymnasium import spaces


class CornerEnv(gymnasium.Env):
    """Dictionaries as observations, nested infos of many types, ends of both kinds, pictures, and a counter."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 9}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.observation_space = spaces.Dict({"box": spaces.Box(-9, 9, (2, 3), np.float32), "one": spaces.Discrete(9)})
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)
        self.render_mode = render_mode
        self.touched = 0

    def _observe(self):
        return {"box": self.np_random.random((2, 3), np.float32), "one": self.np_random.integers(9)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, 6))
        return self._observe(), {"begin": self._left, "options": dict(options or {})}

    def step(self, action):
        self._left -= 1
        over = self._left == 0
        cut_off = over and self.np_random.random() < 0.5
        info = {"left": self._left, "force": float(action.sum()), "name": f"step {self._left}", "deep": {"flag": over}}
        if self._left % 2:
            info["sometimes"] = np.full(3, self._left)
        return self._observe(), float(action[0]), over and not cut_off, cut_off, info

    def touch(self, times, *, more=0):
        self.touched += times + more
        return self.touched

    def action_masks(self):
        return np.array([self.touched > 0, True])

    def modules(self):
        return sorted(name for name in ("torch", "stable_baselines3") if name in sys.modules)

    def render(self):
        return np.full((2, 2, 3), self.touched, np.uint8)


class TurnsEnv(gymnasium.Env):
    """Allows one of four actions, another one in every step, and says which by its mask."""

    def __init__(self):
        self.observation_space = spaces.Box(0, 9, (1,), np.float32)
        self.action_space = spaces.Discrete(4)
        self._time = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = int(self.np_random.integers(4))
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if action != self._time % 4:
            raise LookupError(f"not my turn: {action}")
        self._time += 1
        return np.zeros(1, np.float32), 1.0, self._time > 9, False, {}

    def action_masks(self):
        return np.arange(4) == self._time % 4


class Plain(gymnasium.Wrapper):
    """A wrapper, to be found."""
