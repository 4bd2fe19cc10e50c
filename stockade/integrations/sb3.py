"""Our vector environments behind the interface of Stable-Baselines3: actions -> backend -> obs, rewards, dones, infos.

Stable-Baselines3 wants a new episode to begin in the step that ends the old one, the last observation in the infos, and
a list with one info each. Whatever the backend and its autoreset mode, that is what it gets here.
"""

import operator
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from stockade.errors import InputError
from stockade.make import make_vec
from stockade.vector.base import BaseVectorEnv
from stockade.vector.native import NativeVectorEnv
from stockade.vector.outcome import Factory, scatter_infos
from stockade.vector.spaces import value_of

try:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv
    from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn
except ModuleNotFoundError as error:
    needs = f"stockade.integrations.sb3 needs Stable-Baselines3 ({error}); install it with: pip install 'stockade[sb3]'"
    raise ModuleNotFoundError(needs, name=error.name) from error

_FINAL = ("final_obs", "_final_obs", "final_info", "_final_info")


class StockadeVecEnv(VecEnv):
    """A vector environment of `stockade.make_vec` as a `VecEnv`.

    Rewards are float32. `infos[i]` is a new dictionary in every step, the environment's own info of it; at the end of
    an episode with `terminal_observation` and `TimeLimit.truncated` added. Action masks for MaskablePPO come from the
    environments' method `action_masks()`, which the built-in world has.

    Args:
        envs: of any backend and autoreset mode, also within Gymnasium's vector wrappers.
        monitor: put `episode` into the last info of an episode, as a `Monitor` around each environment would: r the
            return, l the length, t the seconds since the start. Where the environments have put it there, theirs stays.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], *, monitor: bool = True) -> None:
        core = envs.unwrapped if isinstance(envs, VectorEnv) else envs
        if not isinstance(core, BaseVectorEnv):
            how = "for any Gymnasium environment: stockade.make_vec(n, 'serial', env=function_that_makes_one)"
            found = type(core).__name__
            raise InputError(f"StockadeVecEnv takes a vector environment of stockade.make_vec, not {found}; {how}")
        if not core.copy:
            raise InputError(
                "copy=False cannot be used: Stable-Baselines3 keeps an observation while asking for the next"
            )
        self.vector = envs  #: the vector environment, for what Stable-Baselines3 does not know: `vector.true_state()`
        self._core, self._monitor = core, monitor
        self._is_same_step = core.autoreset_mode is AutoresetMode.SAME_STEP
        self._actions: np.ndarray | None = None
        self._returns, self._lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, np.int64)
        self._start = time.time()
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self.metadata = {key: value for key, value in envs.metadata.items() if key != "autoreset_mode"}

    def reset(self) -> VecEnvObs:
        """Begin episodes in all environments, with the seeds and options that were set for this reset."""
        seeds: Any = None if all(seed is None for seed in self._seeds) else list(self._seeds)
        self.reset_infos = [{} for _ in range(self.num_envs)]
        groups: dict[int, tuple[dict[str, Any] | None, list[int]]] = {}
        for i, given in enumerate(self._options):  # `set_options` with one dictionary puts the same object everywhere
            groups.setdefault(id(given) if given else 0, (given or None, []))[1].append(i)
        for options, places in groups.values():
            if len(places) < self.num_envs:
                mask = np.zeros(self.num_envs, np.bool_)
                mask[places] = True
                options = {**(options or {}), "reset_mask": mask}
            obs, info = self.vector.reset(seed=seeds, options=options)
            scatter_infos(info, self.reset_infos)
        self._reset_seeds()
        self._reset_options()
        self._returns[:] = self._lengths[:] = 0
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step all environments; those whose episode ends begin the next one at once."""
        obs, rewards, terminated, truncated, info = self.vector.step(self._actions)
        dones = terminated | truncated
        self._returns += rewards
        self._lengths += 1
        # New ones in every step: callers keep and change them. It is half of what Stable-Baselines3 takes to read them.
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if dones.any():
            obs = self._begin_anew(obs, dones, truncated & ~terminated, info, infos)
        elif info:
            scatter_infos(info, infos)
        return obs, rewards.astype(np.float32), dones, infos

    def _begin_anew(
        self, obs: Any, dones: np.ndarray, cut_off: np.ndarray, info: dict[str, Any], infos: list[dict[str, Any]]
    ) -> Any:
        """Fill the infos of a step that ended episodes; returns the observations, with the first of new episodes."""
        ended = np.flatnonzero(dones).tolist()
        for i in ended:
            self.reset_infos[i] = {}
        if self._is_same_step:
            last_obs = [info["final_obs"][i] for i in ended]
            scatter_infos(info.get("final_info", {}), infos)
            rest = {key: value for key, value in info.items() if key not in _FINAL}
            scatter_infos(rest, [self.reset_infos[i] if done else infos[i] for i, done in enumerate(dones.tolist())])
        else:
            last_obs = [value_of(obs, i) for i in ended]
            scatter_infos(info, infos)
            obs, info = self.vector.reset(options={"reset_mask": dones.copy()})
            scatter_infos(info, self.reset_infos)
        seconds = round(time.time() - self._start, 6)
        for i, last in zip(ended, last_obs, strict=True):
            infos[i]["terminal_observation"] = last
            infos[i]["TimeLimit.truncated"] = bool(cut_off[i])
            if self._monitor:
                episode = {"r": round(float(self._returns[i]), 6), "l": int(self._lengths[i]), "t": seconds}
                infos[i].setdefault("episode", episode)
        self._returns[dones] = self._lengths[dones] = 0
        return obs

    def close(self) -> None:
        self.vector.close()

    # ----------------------------------------------------------------------------------------- single environments
    def has_attr(self, attr_name: str) -> bool:
        """Whether all environments have the attribute; its value goes nowhere, so it may be anything."""
        return all(self._core.apply(operator.methodcaller("has_wrapper_attr", attr_name)))

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return self._apply(operator.methodcaller("get_wrapper_attr", attr_name), indices)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        self._apply(operator.methodcaller("set_wrapper_attr", attr_name, value), indices)

    def env_method(self, method_name: str, *args: Any, indices: VecEnvIndices = None, **kwargs: Any) -> list[Any]:
        """Call a method of the chosen environments, or of their wrappers; the others do not notice."""
        if method_name in ("reset", "step", "close"):
            raise InputError(f"call {method_name}() of the VecEnv itself, not env_method({method_name!r})")
        if method_name == "action_masks" and isinstance(self._core, NativeVectorEnv):
            masks = self._core.action_masks()  # learners ask in every step
            return [masks[i] for i in self._get_indices(indices)]
        return self._apply(lambda env: env.get_wrapper_attr(method_name)(*args, **kwargs), indices)

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        """Whether a wrapper of the class is around each; as for `Monitor`, with `monitor=True` this class is one."""
        known = self._monitor and wrapper_class is Monitor
        wanted = wrapper_class.__module__, wrapper_class.__qualname__

        def is_wrapped(env: Any) -> bool:
            """By name, so that no worker has to import the class."""
            while isinstance(env, gymnasium.Wrapper):
                if wanted in [(parent.__module__, parent.__qualname__) for parent in type(env).__mro__]:
                    return True
                env = env.env
            return False

        return [known or found for found in self._apply(is_wrapped, indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        if self.render_mode != "rgb_array":
            warnings.warn(f"render_mode is {self.render_mode!r}; only 'rgb_array' gives images", stacklevel=2)
            return [None] * self.num_envs
        return self.env_method("render")

    def _apply(self, function: Callable[[Any], Any], indices: VecEnvIndices) -> list[Any]:
        """Functions defined in a method are sent by value: a worker that runs them does not import this module."""
        return self._core.apply(function, None if indices is None else self._get_indices(indices))


def make_sb3(
    n_envs: int, backend: str = "native", *, env: Factory | None = None, monitor: bool = True, **options: Any
) -> StockadeVecEnv:
    """Many environments for an algorithm of Stable-Baselines3: the arguments of `stockade.make_vec`, and `monitor`.

    Example:
        >>> from stable_baselines3 import PPO
        >>> from stockade.integrations.sb3 import make_sb3
        >>> model = PPO("MlpPolicy", make_sb3(16, red="bline", horizon=30), n_steps=30, batch_size=480, seed=0)
        >>> model.learn(960).num_timesteps
        960
    """
    options.setdefault("autoreset_mode", "same_step")
    envs = make_vec(n_envs, backend, env=env, **options)
    try:
        return StockadeVecEnv(envs, monitor=monitor)
    except BaseException:
        envs.close()
        raise
