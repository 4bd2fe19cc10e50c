"""The way in: backend's name, factory, number of environments, options -> a vector environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode

from stockade.cores import available_cores
from stockade.vector.async_pool import AsyncPoolVectorEnv
from stockade.vector.base import BaseVectorEnv
from stockade.vector.description import SliceConfig, TruthRule
from stockade.vector.pipes import PipesVectorEnv
from stockade.vector.process import PoolConfig, StartMethod
from stockade.vector.ray_cluster import RayConfig
from stockade.vector.ray_pool import RayVectorEnv
from stockade.vector.serial import SerialVectorEnv
from stockade.vector.shared_memory import SharedMemoryVectorEnv

BACKENDS = ("serial", "pipes", "shared_memory", "async")
"""Those that need nothing but this package. There is also `ray`, which needs Ray."""
_MODES = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}
_START_METHODS = ("fork", "forkserver", "spawn")


def make_vector(
    backend: str,
    factory: Callable[[], gymnasium.Env[Any, Any]],
    n_envs: int,
    *,
    workers: int | None = None,
    timeout: float | None = 300.0,
    restart: int = 0,
    start_method: StartMethod = "forkserver",
    daemon: bool = True,
    preload: Sequence[str] = (),
    autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    true_states: TruthRule = None,
    check_finite: bool = True,
    copy: bool = True,
    batch_size: int | None = None,
    address: str | None = None,
    start_timeout: float | None = 300.0,
    actor_options: dict[str, Any] | None = None,
) -> BaseVectorEnv:
    """Run `n_envs` environments behind one `step`.

    Args:
        backend: "serial", "pipes", "shared_memory", "async" or "ray"; docs/backends.md says which to take when.
        factory: makes one environment; lambdas and classes of a notebook are fine.
        n_envs: how many environments.
        workers: worker processes; default the cores that this process may use (for `ray` the CPUs that the cluster has
            free). `workers=n_envs` gives each environment a process of its own. Not for `serial`.
        timeout: seconds that a call may take before the workers that have not answered are killed and
            `WorkerTimeoutError` is raised; None waits for ever.
        restart: how many workers that died (or were killed for hanging) are replaced before it is an error. The
            episodes that went down with them end as truncated, with `info["worker_restarted"]`.
        start_method: "forkserver" (safe beside threads, fast for many workers), "spawn", or "fork" (instant, but unsafe
            if this process has threads, as it has once Torch was used).
        daemon: pass False if the environments start processes of their own.
        preload: names of modules that are slow to import: the fork server imports them once, before the first worker
            of this process is started, instead of every worker.
        autoreset_mode: "next_step", "same_step" or "disabled", or Gymnasium's `AutoresetMode`.
        true_states: when the true states that `true_state()` returns are refreshed: "every_step", "episode_end", every
            N steps of an episode, or None: fetched when asked for.
        check_finite: raise `NonFiniteError` on NaN or infinity in rewards and observations.
        copy: whether observations are copies; without, they are overwritten by the next call.
        batch_size: environments a `recv()` of `async` and `ray` returns; default half of them.
        address: of the Ray cluster, for `ray`; default the Ray that this process already uses, or one on this machine.
        start_timeout: seconds until the actors of `ray` must be there: they may have to wait for CPUs.
        actor_options: for `ray.remote`, such as `{"num_cpus": 0.5}`; docs/cluster.md.

    Returns:
        A Gymnasium vector environment, and more: see `BaseVectorEnv`.
    """
    n_envs = _count("n_envs", n_envs)
    config = SliceConfig(_mode(autoreset_mode), check_finite, _truth_rule(true_states))
    if batch_size is not None and backend not in ("async", "ray"):
        raise ValueError(f"batch_size= is for backend='async' and 'ray', not {backend!r}")
    if backend == "ray":
        _refuse_local_options(start_method, daemon, preload)
        count_or_none = None if workers is None else _count("workers", workers)
        cluster = RayConfig(count_or_none, timeout, start_timeout, address, actor_options or {})
        return RayVectorEnv(factory, n_envs, cluster, config, copy, restart, batch_size)
    if address is not None or actor_options is not None:
        raise ValueError(f"address= and actor_options= are for backend='ray', not {backend!r}")
    if backend == "serial":
        if workers not in (None, 1):
            raise ValueError(f"backend='serial' runs in this process: workers={workers} is for the other backends")
        return SerialVectorEnv(factory, n_envs, config, copy)
    if start_method not in _START_METHODS:
        raise ValueError(f"start_method={start_method!r} must be one of {', '.join(_START_METHODS)}")
    count = min(n_envs, available_cores() if workers is None else _count("workers", workers))
    pool = PoolConfig(count, timeout, start_method, daemon, backend != "pipes", tuple(preload))
    if backend == "pipes":
        return PipesVectorEnv(factory, n_envs, pool, config, copy, restart)
    if backend == "shared_memory":
        return SharedMemoryVectorEnv(factory, n_envs, pool, config, copy, restart)
    if backend == "async":
        return AsyncPoolVectorEnv(factory, n_envs, pool, config, copy, restart, batch_size)
    raise ValueError(f"backend={backend!r} must be one of {', '.join(BACKENDS)}, ray")


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
        raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
    return int(value)


def _refuse_local_options(start_method: str, daemon: bool, preload: Sequence[str]) -> None:
    """Ray starts its processes in its own way."""
    if start_method != "forkserver" or not daemon or preload:
        raise ValueError("start_method=, daemon= and preload= are for processes on this machine, not for backend='ray'")


def _mode(mode: str | AutoresetMode) -> AutoresetMode:
    if isinstance(mode, AutoresetMode):
        return mode
    if mode in _MODES:
        return _MODES[mode]
    try:
        return AutoresetMode(mode)  # "NextStep", as Gymnasium writes it
    except ValueError:
        raise ValueError(f"autoreset_mode={mode!r} must be one of {', '.join(_MODES)}") from None


def _truth_rule(rule: TruthRule) -> TruthRule:
    if rule is None or rule in ("every_step", "episode_end"):
        return rule
    if isinstance(rule, int) and not isinstance(rule, bool) and rule >= 1:
        return rule
    raise ValueError(f"true_states={rule!r} must be 'every_step', 'episode_end', a number of steps, or None")
