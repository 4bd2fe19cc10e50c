"""The way in: backend's name, factory, number of environments, options -> a vector environment."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, TypedDict, Unpack, get_args, overload

from gymnasium.vector import AutoresetMode

from stockade.cores import available_cores
from stockade.vector.asynchronous import AsyncVectorEnv
from stockade.vector.base import BaseVectorEnv
from stockade.vector.local.async_ import AsyncPoolVectorEnv
from stockade.vector.local.env import PipesVectorEnv, PoolConfig, SharedMemoryVectorEnv
from stockade.vector.local.machine import StartMethod
from stockade.vector.local.serial import SerialVectorEnv
from stockade.vector.outcome import Factory, RunConfig, TruthRule
from stockade.vector.ray.cluster import RayConfig
from stockade.vector.ray.env import RayVectorEnv

Backend = Literal["native", "cuda", "serial", "pipes", "shared_memory", "async", "ray"]
BACKENDS: tuple[Backend, ...] = ("native", "serial", "pipes", "shared_memory", "async", "ray")
"""All that need no GPU. `native` runs the built-in world only, and so does `cuda`."""
LOCAL_BACKENDS: tuple[Backend, ...] = ("serial", "pipes", "shared_memory", "async")
"""Those that run any environment on this machine, with nothing but this package."""

_PROCESSES = ("pipes", "shared_memory", "async")
_TAKEN_BY: dict[str, tuple[str, ...]] = {
    "threads": ("native",),
    **dict.fromkeys(("true_states", "check_finite"), BACKENDS[1:]),
    **dict.fromkeys(("workers", "timeout", "restart"), (*_PROCESSES, "ray")),
    **dict.fromkeys(("start_method", "daemon", "preload"), _PROCESSES),
    "batch_size": ("async", "ray"),
    **dict.fromkeys(("address", "start_timeout", "actor_options"), ("ray",)),
}
"""Options that only some backends can obey."""


class BackendOptions(TypedDict, total=False):
    """How environments are run. An option that a backend cannot obey is refused.

    Attributes:
        autoreset_mode: "next_step" (default), "same_step" or "disabled", or Gymnasium's `AutoresetMode`.
        copy: whether observations are copies (default); without, they are overwritten by the next call.
        threads: for `native`: threads over slices of the worlds; default chosen by the number of worlds.
        true_states: when the true states that `true_state()` returns are refreshed: "every_step", "episode_end", every
            N steps of an episode, or None (default): fetched when asked for. On `native` they are always present.
        check_finite: raise `NonFiniteError` on NaN or infinity in rewards and observations (default).
        workers: worker processes; default the cores that this process may use (for `ray` the CPUs that the cluster has
            free). `workers=n_envs` gives each environment a process of its own.
        timeout: seconds that a call may take before the workers that have not answered are killed and
            `WorkerTimeoutError` is raised (default 300); None waits for ever.
        restart: how many workers that died (or were killed for hanging) are replaced before it is an error (default 0).
            The episodes that were lost with them end as truncated, with `info["worker_restarted"]`.
        start_method: "forkserver" (default; safe beside threads, fast for many workers), "spawn", or "fork" (instant,
            but unsafe if this process has threads, as it has once Torch was used).
        daemon: pass False if the environments start processes of their own.
        preload: names of modules that are slow to import: the fork server imports them once, before the first worker
            of this process is started, instead of every worker.
        batch_size: environments that a `recv()` of `async` and `ray` returns; default half of them.
        address: of the Ray cluster; default the Ray that this process already uses, or one on this machine.
        start_timeout: seconds until the actors of `ray` must be there (default 300): they may have to wait for CPUs.
        actor_options: for `ray.remote`, such as `{"num_cpus": 0.5}`; docs/guides/cluster.md.
    """

    autoreset_mode: str | AutoresetMode
    copy: bool
    threads: int | None
    true_states: TruthRule
    check_finite: bool
    workers: int | None
    timeout: float | None
    restart: int
    start_method: StartMethod
    daemon: bool
    preload: Sequence[str]
    batch_size: int | None
    address: str | None
    start_timeout: float | None
    actor_options: dict[str, Any] | None


@overload
def make_vector(
    backend: Literal["async", "ray"], factory: Factory, n_envs: int, **options: Unpack[BackendOptions]
) -> AsyncVectorEnv: ...


@overload
def make_vector(backend: str, factory: Factory, n_envs: int, **options: Unpack[BackendOptions]) -> BaseVectorEnv: ...


def make_vector(backend: str, factory: Factory, n_envs: int, **options: Unpack[BackendOptions]) -> BaseVectorEnv:
    """Run `n_envs` environments behind one `step`.

    Args:
        backend: "serial", "pipes", "shared_memory", "async" or "ray"; docs/guides/backends.md says which to take when.
        factory: makes one environment; lambdas and classes of a notebook are fine.
        n_envs: how many environments.
        **options: see `BackendOptions`.

    Returns:
        A Gymnasium vector environment, and more, see `BaseVectorEnv`; for "async" and "ray" `AsyncVectorEnv`.
    """
    if backend not in BACKENDS[1:]:
        raise ValueError(f"backend={backend!r} is unknown; take one of {', '.join(map(repr, BACKENDS[1:]))}")
    check_options(backend, options)
    n_envs = _count("n_envs", n_envs)
    run = RunConfig(**_given(options, RunConfig))
    if backend == "serial":
        return SerialVectorEnv(factory, n_envs, run)
    workers = options.pop("workers", None)
    count = None if workers is None else _count("workers", workers)
    if backend == "ray":
        return RayVectorEnv(factory, n_envs, RayConfig(count, **_given(options, RayConfig)), run)
    if options.get("start_method", "fork") not in get_args(StartMethod):
        raise ValueError(f"start_method={options['start_method']!r} must be one of {', '.join(get_args(StartMethod))}")
    processes = min(n_envs, count or available_cores())
    pool = PoolConfig(processes, shared=backend != "pipes", **_given(options, PoolConfig))
    kinds = {"pipes": PipesVectorEnv, "shared_memory": SharedMemoryVectorEnv, "async": AsyncPoolVectorEnv}
    return kinds[backend](factory, n_envs, pool, run)


def check_options(backend: str, options: BackendOptions) -> None:
    """Refuse options that do not exist, and those that this backend cannot obey."""
    unknown = sorted(options.keys() - BackendOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"there are no options {', '.join(unknown)}; see stockade.vector.make.BackendOptions")
    for name, value in options.items():
        backends = _TAKEN_BY.get(name, (*BACKENDS, "cuda"))
        if backend not in backends:
            raise ValueError(f"{name}={value!r} is for backend={' or '.join(map(repr, backends))}, not {backend!r}")


def _given(options: BackendOptions, config: Any) -> dict[str, Any]:
    """The options that are fields of a dataclass."""
    names = {field.name for field in dataclasses.fields(config)}
    return {name: value for name, value in options.items() if name in names}


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
        raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
    return int(value)
