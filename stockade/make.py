"""`make` and `make_vec`: the one way to environments, whatever runs them; and their registration with Gymnasium."""

import functools
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import gymnasium
import numpy.typing as npt

from stockade.cage2.batch import compile_ahead
from stockade.cage2.config import RewardWeights, WorldConfig
from stockade.cage2.env import CAGE2Env
from stockade.cage2.sides import DEFAULT_RED, seats
from stockade.vector.asynchronous import AsyncVectorEnv
from stockade.vector.base import BaseVectorEnv
from stockade.vector.make import BACKENDS, BackendOptions, check_options, make_vector
from stockade.vector.native import NativeVectorEnv
from stockade.vector.native_slice import NativeFactory
from stockade.vector.outcome import Factory

if TYPE_CHECKING:
    from stockade.vector.cuda import CudaVectorEnv  # loads Numba's CUDA target

ENV_ID = "stockade/CAGE2-v0"


class VecOptions(BackendOptions, total=False):
    """Options of the built-in world, as in CAGE2Env (`info` is off by default), and of the backend."""

    red: Any
    horizon: int
    rules: str
    chance: str
    green: str | float
    obs: str
    reward: RewardWeights
    obs_dtype: npt.DTypeLike
    info: bool
    action_mask: bool
    render_mode: str | None
    side: str
    blue: Any


_WORLD_OPTIONS = VecOptions.__annotations__.keys() - BackendOptions.__annotations__.keys()

make = CAGE2Env
"""One world as a Gymnasium environment: `make(red, horizon, rules, chance, green, ...)`."""


@overload
def make_vec(
    n_envs: int, backend: Literal["async", "ray"], *, env: Factory | None = None, **options: Unpack[VecOptions]
) -> AsyncVectorEnv: ...


@overload
def make_vec(n_envs: int, backend: Literal["cuda"], **options: Unpack[VecOptions]) -> "CudaVectorEnv": ...


@overload
def make_vec(
    n_envs: int, backend: str = "native", *, env: Factory | None = None, **options: Unpack[VecOptions]
) -> BaseVectorEnv: ...


def make_vec(
    n_envs: int, backend: str = "native", *, env: Factory | None = None, **options: Unpack[VecOptions]
) -> BaseVectorEnv:
    """Many environments behind one step.

    Args:
        n_envs: how many.
        backend: `native` (the built-in world, compiled), `cuda` (the same on a GPU), or for any environment `serial`,
            `pipes`, `shared_memory`, `async`, `ray`. Actors of `ray` hold the built-in world as compiled batches too.
        env: a function that makes a Gymnasium environment, for every backend but `native` and `cuda`; default the
            built-in world.
        **options: of the built-in world (`red`, `horizon`, `rules`, `chance`, `green`, `obs`, `reward`, `obs_dtype`,
            `info`, `action_mask`, `render_mode`, `side`, `blue`: see CAGE2Env) and of the backend (`autoreset_mode`,
            `copy`, ...: see `stockade.vector.BackendOptions`).

    Returns:
        A Gymnasium vector environment with `true_state()`, `snapshot()`, `restore()` and more, see `BaseVectorEnv`.
        Those of `async` and `ray` also have `async_reset()`, `recv()` and `send()`.
    """
    known = (*BACKENDS, "cuda")
    if backend not in known:
        raise ValueError(f"backend={backend!r} is unknown; take one of {', '.join(map(repr, known))}")
    world: dict[str, Any] = {name: value for name, value in options.items() if name in _WORLD_OPTIONS}
    rest: Any = {name: value for name, value in options.items() if name not in world}
    check_options(backend, rest)
    if backend in ("native", "cuda"):
        if env is not None:
            raise ValueError(f"backend={backend!r} runs the built-in world only; take another backend for env=")
        if backend == "native":
            return NativeVectorEnv(n_envs, **world, **rest)
        from stockade.vector.cuda import CudaVectorEnv

        return CudaVectorEnv(n_envs, **world, **rest)
    if env is not None:
        if world:
            raise ValueError(f"{sorted(world)} are options of the built-in world; with env= set them in your function")
        return make_vector(backend, env, n_envs, **rest)
    red, rules = world.get("red", DEFAULT_RED), world.get("rules", "current")
    attacker, _ = seats(world.get("side", "blue"), red, world.get("blue"), rules)
    settings = {name: world[name] for name in WorldConfig.__dataclass_fields__ if name in world}
    config = WorldConfig(**{**settings, "red": attacker})  # checks
    world = {"info": False, **world}
    if backend == "ray":
        return make_vector(backend, NativeFactory(world), n_envs, **rest)
    if backend != "serial":  # else every worker would load the compiled kernels anew
        compile_ahead(config)
        rest.setdefault("preload", (f"stockade.cage2.preload_{world.get('chance', 'fast')}",))
    return make_vector(backend, functools.partial(make, **world), n_envs, **rest)


def register() -> None:
    """Register the world with Gymnasium, single and vectorised; importing stockade does so."""
    if ENV_ID not in gymnasium.registry:
        vectorised = "stockade.vector.native:NativeVectorEnv"
        gymnasium.register(ENV_ID, "stockade.cage2.env:CAGE2Env", vector_entry_point=vectorised)
