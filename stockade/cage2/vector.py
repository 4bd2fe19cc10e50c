"""Many worlds as one Gymnasium vector environment, stepped by the kernel: backend `native`.

actions (n,) -> checked -> kernel over slices of the batch -> obs (n, 52), reward (n,), truncated (n,)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv

from stockade.cage2.actions import ACTION_MASK, N_ACTIONS
from stockade.cage2.batch import Batch
from stockade.cage2.checks import check_actions, check_obs_dtype, check_render_mode
from stockade.cage2.config import CHALLENGE_REWARD, RewardWeights, WorldConfig
from stockade.cage2.info import worlds_info
from stockade.cage2.render import render_world
from stockade.cage2.seeds import SeedLike, read_seeds
from stockade.cage2.snapshot import Snapshot
from stockade.cage2.truth import TrueState

_MODES = {name: mode for mode in AutoresetMode for name in (mode, mode.value, mode.name.lower())}


def autoreset_mode_of(mode: AutoresetMode | str) -> AutoresetMode:
    """`next_step`, `same_step`, `disabled`, or Gymnasium's own names."""
    if not isinstance(mode, str | AutoresetMode) or mode not in _MODES:
        raise ValueError(f"autoreset_mode={mode!r} is unknown; take 'next_step', 'same_step' or 'disabled'")
    return _MODES[mode]


def check_reset_mask(mask: Any, n: int) -> np.ndarray:
    """`options["reset_mask"]`, with the errors that Gymnasium documents."""
    if not isinstance(mask, np.ndarray):
        raise TypeError(f"options['reset_mask'] must be a NumPy array, not {type(mask).__name__}")
    if mask.shape != (n,):
        raise ValueError(f"options['reset_mask'] must have shape ({n},), not {mask.shape}")
    if mask.dtype != np.bool_:
        raise TypeError(f"options['reset_mask'] must have dtype bool, not {mask.dtype}")
    if not mask.any():
        raise ValueError("options['reset_mask'] chooses no environment; at least one value must be True")
    return mask


def _only(info: dict[str, Any], chosen: np.ndarray) -> dict[str, Any]:
    """The info of the chosen environments; of the others None, zero or False."""
    kept = {key: value.copy() for key, value in info.items()}
    for value in kept.values():
        value[~chosen] = None if value.dtype == object else 0
    return kept


class NativeVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """`num_envs` worlds behind one step; observation, action and reward of each as in CAGE2Env.

    Args:
        num_envs: number of worlds; a million is fine.
        red, horizon, rules, chance, green, obs, reward: as in WorldConfig.
        autoreset_mode: `next_step` (the step after the last one resets and ignores the action), `same_step` (the last
            step returns the new episode's observation and `final_obs`, `final_info`), `disabled` (call
            `reset(options={"reset_mask": mask})`).
        obs_dtype: uint8 or float32.
        copy: give fresh arrays; with False the next step overwrites what this one gave.
        info: fill infos as CAGE2Env does; off by default because names for thousands of worlds cost more than a step.
        action_mask: give the static (n, 145) `action_mask` in infos.
        threads: Python threads over slices of the worlds; None chooses. Results do not depend on it.
        render_mode: None or `ansi`.
    """

    def __init__(
        self,
        num_envs: int,
        red: str = "bline",
        horizon: int = 100,
        rules: str = "current",
        chance: str = "fast",
        green: str = "sleep",
        *,
        obs: str = "bits",
        reward: RewardWeights = CHALLENGE_REWARD,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        obs_dtype: Any = np.uint8,
        copy: bool = True,
        info: bool = False,
        action_mask: bool = False,
        threads: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.config = WorldConfig(red, horizon, rules, chance, green, obs, reward)
        self.autoreset_mode = autoreset_mode_of(autoreset_mode)
        self.metadata = {"render_modes": ["ansi"], "render_fps": 4, "autoreset_mode": self.autoreset_mode}
        self.render_mode = check_render_mode(render_mode)
        self._dtype = check_obs_dtype(obs_dtype)
        self._batch = Batch(self.config, num_envs, threads)
        self.num_envs = self._batch.n
        self._obs_size = self._batch.obs_size
        self.single_observation_space = spaces.Box(0, 1, (self._obs_size,), self._dtype.type)
        self.single_action_space = spaces.Discrete(N_ACTIONS)
        self.observation_space = spaces.Box(0, 1, (self.num_envs, self._obs_size), self._dtype.type)
        self.action_space = spaces.MultiDiscrete(np.full(self.num_envs, N_ACTIONS))
        self._copy = copy
        self._with_info = info
        self._with_mask = action_mask
        self._buffers = self._new_buffers()
        # Kernels write bytes; other types are made of them.
        self._bytes = None if self._dtype == np.uint8 else np.empty((self.num_envs, self._obs_size), np.uint8)
        self._over = np.zeros(self.num_envs, np.bool_)
        self._is_reset = False

    def _new_buffers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Observations, rewards, terminated, truncated."""
        n = self.num_envs
        return np.empty((n, self._obs_size), self._dtype), np.empty(n), np.zeros(n, np.bool_), np.empty(n, np.bool_)

    def _as_bytes(self, obs: np.ndarray) -> np.ndarray:
        return obs if self._bytes is None else self._bytes

    def _finish(self, obs: np.ndarray) -> None:
        if self._bytes is not None:
            obs[...] = self._bytes

    # --------------------------------------------------------------------------------------------- the environment
    def reset(
        self, *, seed: SeedLike = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin episodes in all worlds, or in those of `options["reset_mask"]`.

        Args:
            seed: world i takes seed + i; a list gives one each; None lets the streams of chance go on.
            options: nothing but `reset_mask`.
        """
        self._check_open()
        seeds = read_seeds(seed, self.num_envs)
        chosen = self._reset_mask(options)
        if isinstance(seed, (int, np.integer)):
            super().reset(seed=int(seed))  # for `np_random`, which the worlds do not use
        if not self._is_reset:
            seeds = seeds.or_fresh()
        obs = self._new_buffers()[0] if self._copy else self._buffers[0]
        self._batch.reset(self._as_bytes(obs), seeds, chosen)
        self._finish(obs)
        self._over[... if chosen is None else chosen] = False
        self._is_reset = True
        return obs, self._mask_info(chosen)

    def _reset_mask(self, options: dict[str, Any] | None) -> np.ndarray | None:
        if not options:
            return None
        unknown = sorted(set(options) - {"reset_mask"})
        if unknown:
            raise ValueError(f"unknown options {unknown}; the only one is 'reset_mask'")
        mask = check_reset_mask(options["reset_mask"], self.num_envs)
        if not self._is_reset and not mask.all():
            raise ResetNeeded("the first reset must be of all environments, without a reset_mask")
        return mask

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all worlds; see `autoreset_mode` for those whose episode is over."""
        self._check_running()
        actions = check_actions(actions, self.num_envs)
        buffers = self._new_buffers() if self._copy else self._buffers
        obs, rewards, terminated, truncated = buffers
        next_step = self.autoreset_mode is AutoresetMode.NEXT_STEP
        if not next_step and self._over.any():  # in same_step only after restoring an ended episode
            raise ResetNeeded(
                f"the episode of environment {int(self._over.argmax())} is over; call "
                "reset(options={'reset_mask': mask}) for those that are"
            )
        self._batch.step(actions, self._as_bytes(obs), rewards, truncated, next_step)
        self._finish(obs)
        info = self._mask_info()
        if self._with_info:
            info.update(worlds_info(self._batch.worlds, ~self._over if next_step else np.ones_like(truncated)))
        self._over[:] = truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP and truncated.any():
            info = self._reset_in_same_step(obs, truncated, info)
        return obs, rewards, terminated, truncated, info

    def _reset_in_same_step(self, obs: np.ndarray, ended: np.ndarray, info: dict[str, Any]) -> dict[str, Any]:
        """Begin new episodes where one ended; what the last step gave moves to `final_obs` and `final_info`."""
        final_obs = np.full(self.num_envs, None, object)
        for i in np.flatnonzero(ended):
            final_obs[i] = obs[i].copy()
        final_info, going_on = _only(info, ended), _only(info, ~ended)
        self._batch.reset(self._as_bytes(obs), read_seeds(None, self.num_envs), ended)
        self._finish(obs)
        self._over[:] = False
        return {
            **going_on,
            **self._mask_info(),
            "final_obs": final_obs, "_final_obs": ended.copy(),
            "final_info": final_info, "_final_info": ended.copy(),
        }  # fmt: skip

    def _mask_info(self, chosen: np.ndarray | None = None) -> dict[str, Any]:
        """The action mask of the chosen worlds (default all)."""
        if not self._with_mask:
            return {}
        given = np.ones(self.num_envs, np.bool_) if chosen is None else chosen.copy()
        return {"action_mask": ACTION_MASK * given[:, None], "_action_mask": given}

    # ------------------------------------------------------------------------------------------- looking behind it
    def true_state(self) -> TrueState:
        """What is really the case now: live views of the worlds' memory, nothing is copied."""
        self._check_running()
        return self._batch.truth

    def snapshot(self, index: int | None = None) -> Snapshot:
        """This moment of all worlds, or of one, chance included."""
        self._check_running()
        return self._batch.snapshot(index)

    def restore(self, snapshot: Snapshot, index: int | None = None, seed: int | None = None) -> np.ndarray:
        """Put all worlds back, or one; returns what blue sees in all of them.

        A snapshot of one world may be put into all, for instance to try many actions from it. With a seed, world i
        goes on with new chance from seed + i.
        """
        self._check_open()
        if not self._is_reset and index is not None:
            raise ResetNeeded("call reset() before restoring a single world")
        self._batch.restore(snapshot, index, seed)
        obs = self._new_buffers()[0] if self._copy else self._buffers[0]
        self._batch.observe(self._as_bytes(obs))
        self._finish(obs)
        self._over[:] = self._batch.worlds["over"]
        self._is_reset = True
        return obs

    def random_peek(self) -> np.ndarray:
        """(n,) uint32, the next 32 bits of each reference stream, not drawn; only under `chance="cyborg"`."""
        self._check_running()
        return self._batch.peek()[0]

    def render(self) -> tuple[str, ...] | None:
        """With `render_mode="ansi"` the two tables of each world as text."""
        self._check_running()
        if self.render_mode is None:
            return None
        return tuple(render_world(self._batch.worlds, self._batch.ledgers, i) for i in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        self._batch.close()

    def __enter__(self) -> NativeVectorEnv:
        """For `with`."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close."""
        self.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError("the vector environment is closed; make a new one")

    def _check_running(self) -> None:
        self._check_open()
        if not self._is_reset:
            raise ResetNeeded("call reset() before anything else")
