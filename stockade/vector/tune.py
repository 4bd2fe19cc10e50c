"""Which backend is fastest here: factory -> a few (backend, workers, batch_size) measured -> a table."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium

from stockade.cores import available_cores
from stockade.vector.asynchronous import AsyncVectorEnv
from stockade.vector.make import LOCAL_BACKENDS, make_vector


@dataclass(frozen=True)
class Trial:
    """One way to run the environments, and the steps per second of all of them together."""

    backend: str
    workers: int | None
    batch_size: int | None
    steps_per_second: float

    @property
    def options(self) -> dict[str, Any]:
        """For `make_vector(backend, factory, n_envs, **options)`."""
        given = {"workers": self.workers, "batch_size": self.batch_size}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class Tuning:
    """What `autotune` measured, fastest first."""

    n_envs: int
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        return self.trials[0]

    def __str__(self) -> str:
        lines = [f"{'backend':<14} {'workers':>7} {'batch':>6} {'steps/s':>12}   ({self.n_envs} environments)"]
        for trial in self.trials:
            workers, batch = trial.workers or "-", trial.batch_size or "-"
            lines.append(f"{trial.backend:<14} {workers:>7} {batch:>6} {trial.steps_per_second:>12,.0f}")
        return "\n".join(lines)


def autotune(
    factory: Callable[[], gymnasium.Env[Any, Any]],
    n_envs: int = 64,
    *,
    backends: Sequence[str] = LOCAL_BACKENDS,
    workers: Sequence[int] | None = None,
    seconds: float = 1.0,
    **options: Any,
) -> Tuning:
    """Measure a few ways to run environments on this machine.

    `async` is measured with recv and send, the others with step; all with random actions chosen beforehand, so the time
    of a policy is not in it. If yours takes long, `async` gains more than the table says.

    Args:
        factory, n_envs, **options: as of `make_vector`.
        backends: which to try.
        workers: which numbers of workers to try; default half the cores, the cores, and twice the cores.
        seconds: how long to measure each.

    Returns:
        The measurements, fastest first; `print` them, and pass `tuning.best.options` on.
    """
    cores = available_cores()
    counts = sorted({min(count, n_envs) for count in workers or (max(1, cores // 2), cores, 2 * cores)})
    batches = sorted({max(1, n_envs // 4), max(1, n_envs // 2), n_envs})
    trials = []
    for backend in backends:
        sizes = batches if backend == "async" else (None,)
        for count, size in itertools.product((None,) if backend == "serial" else counts, sizes):
            trial = Trial(backend, count, size, 0.0)
            with make_vector(backend, factory, n_envs, **options, **trial.options) as envs:
                trials.append(replace(trial, steps_per_second=steps_per_second(envs, seconds)))
    return Tuning(n_envs, tuple(sorted(trials, key=lambda trial: -trial.steps_per_second)))


def steps_per_second(envs: Any, seconds: float) -> float:
    """Environment steps a second, with recv and send where there are such, after a warm-up of a tenth of the time."""
    actions, everybody = envs.action_space.sample(), range(envs.num_envs)
    is_async = isinstance(envs, AsyncVectorEnv)
    (envs.async_reset if is_async else envs.reset)(seed=0)
    rate = 0.0
    for duration in (seconds / 10, seconds):
        start, turns, steps = time.perf_counter(), 0, 0
        while turns < 3 or time.perf_counter() - start < duration:
            ids = envs.recv()[-1]["env_id"] if is_async else everybody
            if is_async:
                envs.send(actions[ids], ids)
            else:
                envs.step(actions)
            steps += len(ids)
            turns += 1
        rate = steps / (time.perf_counter() - start)
    return rate
