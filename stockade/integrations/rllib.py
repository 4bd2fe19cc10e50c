"""The built-in world in Ray's RLlib: `register()` -> `config.environment(ENV_NAME, env_config={...})` -> env runners.

RLlib asks the same function for one world (`gym_env_vectorize_mode` SYNC or ASYNC: Gymnasium steps several of them) and
for a vector environment of `num_envs_per_env_runner` worlds (VECTOR_ENTRY_POINT: the compiled kernel steps them).
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from stockade.errors import InputError
from stockade.make import ENV_ID, make, make_vec
from stockade.vector.make import BackendOptions

ENV_NAME = ENV_ID  #: what `register` registers the world as, by default


def make_env(config: Mapping[str, Any]) -> gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any]:
    """What RLlib calls with its `env_config`: options of `stockade.make`, but by default with `obs_dtype` float32 and
    without `info`, as RLlib's networks take floats and its episodes keep every info. With "num_envs", which RLlib adds,
    they are options of `stockade.make_vec`: `backend`, `env` or `threads` too."""
    defaults = {} if "env" in config else {"obs_dtype": np.float32, "info": False}  # which are of the built-in world
    options: dict[str, Any] = {**defaults, **config}
    if (n_envs := options.pop("num_envs", None)) is not None:
        return make_vec(n_envs, **options)
    if "env" not in options:
        return make(**options)
    if others := options.keys() - {"env", "backend"} - BackendOptions.__annotations__.keys():
        raise InputError(f"{sorted(others)} are options of the built-in world; with env set them in your function")
    return options["env"]()


def register(name: str = ENV_NAME) -> str:
    """Register the world with RLlib, in this process and in all that Ray starts for it; returns the name.

    Example:
        >>> from ray.rllib.algorithms.ppo import PPOConfig  # doctest: +SKIP
        >>> config = PPOConfig().environment(register(), env_config={"red": "bline"})  # doctest: +SKIP
    """
    try:
        from ray.tune.registry import register_env
    except ImportError:
        raise InputError("this needs RLlib, which is not installed: pip install 'stockade[ray]'") from None
    register_env(name, make_env)
    return name
