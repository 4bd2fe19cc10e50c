"""`make` and `make_vec`: the one way to environments, whatever runs them; and their registration with Gymnasium."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import gymnasium

from stockade.cage2.config import WorldConfig
from stockade.cage2.env import CAGE2Env
from stockade.cage2.vector import NativeVectorEnv

BACKENDS = ("native", "serial", "pipes", "shared_memory", "async", "ray")
ENV_ID = "stockade/CAGE2-v0"
#: Options of the built-in world; what make_vec gets beside them goes to the backend.
_WORLD_OPTIONS = (
    "red", "horizon", "rules", "chance", "green", "obs", "reward", "obs_dtype", "info", "action_mask", "render_mode",
)  # fmt: skip
_CONFIG_OPTIONS = tuple(field.name for field in dataclasses.fields(WorldConfig))


def make(
    red: str = "bline",
    horizon: int = 100,
    rules: str = "current",
    chance: str = "fast",
    green: str = "sleep",
    **options: Any,
) -> CAGE2Env:
    """One world as a Gymnasium environment; `options` as in CAGE2Env."""
    return CAGE2Env(red, horizon, rules, chance, green, **options)


def make_vec(
    n_envs: int,
    backend: str = "native",
    *,
    env: Callable[[], gymnasium.Env[Any, Any]] | None = None,
    **options: Any,
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Many environments behind one step.

    Args:
        n_envs: how many.
        backend: `native` (the built-in world, compiled), or for any environment `serial`, `pipes`, `shared_memory`,
            `async`, `ray`. Actors of `ray` hold the built-in world as compiled batches too.
        env: a function that makes a Gymnasium environment, for every backend but `native`; default the built-in world.
        options: of the built-in world (red, horizon, rules, chance, green, obs, reward, obs_dtype, info, action_mask,
            render_mode) and of the backend (autoreset_mode, copy, and for native threads; see docs/backends.md).
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r} is unknown; take one of {', '.join(map(repr, BACKENDS))}")
    if backend == "native":
        if env is not None:
            raise ValueError("backend='native' runs the built-in world only; take another backend for env=")
        return NativeVectorEnv(n_envs, **options)
    world = {name: options.pop(name) for name in _WORLD_OPTIONS if name in options}
    if env is not None and world:
        raise ValueError(f"{sorted(world)} are options of the built-in world; with env= set them in your own function")
    from stockade.vector import make_vector  # not before it is needed: brings multiprocessing along

    if env is not None:
        return make_vector(backend, env, n_envs, **options)
    WorldConfig(**{name: world[name] for name in world if name in _CONFIG_OPTIONS})  # a bad value is refused here
    world = {"info": False, **world}
    if backend == "ray":
        from stockade.vector.native_slice import NativeFactory

        return make_vector(backend, NativeFactory(world), n_envs, **options)
    if backend != "serial":  # else every worker would load the compiled kernels anew
        options.setdefault("preload", (f"stockade.cage2.preload_{world.get('chance', 'fast')}",))
    return make_vector(backend, functools.partial(make, **world), n_envs, **options)


def register() -> None:
    """Tell Gymnasium of the world, single and vectorised; importing stockade does so."""
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(
            ENV_ID,
            entry_point="stockade.cage2.env:CAGE2Env",
            vector_entry_point="stockade.cage2.vector:NativeVectorEnv",
        )
