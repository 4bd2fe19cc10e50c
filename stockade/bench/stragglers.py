"""`stockade bench stragglers`: what waiting for the slowest costs as step times spread, beside the best possible.

Efficiency is the CPU time inside the environments over that of all cores: 1 would mean that no core ever waits. The
bounds are simulated: steps sampled from the same distribution, handed out without any overhead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from stockade.bench.backends import open_turn
from stockade.bench.command import BenchCommand, Notes
from stockade.bench.result import Figure, find
from stockade.bench.runner import Case, Sample, in_turns
from stockade.bench.scaling import OF_THE_CORES
from stockade.bench.timed import STEP_CPU, timed
from stockade.bench.worlds import REFERENCE_STEP, fixed_cost
from stockade.cores import available_cores

BACKENDS = ("shared_memory", "async, batch n/2", "async, batch n/4", "Gymnasium AsyncVectorEnv")
_SAMPLES = 400


@dataclass(frozen=True)
class StragglersBench(BenchCommand):
    """Steps of 2.2 ms on average, lognormal: synchronous against asynchronous."""

    sigmas: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0, 1.5)
    """Spreads: standard deviations of the logarithm of a step's time."""
    backends: tuple[str, ...] = BACKENDS
    """Which."""
    n_envs: int = 64
    """Number of environments."""
    step_ms: float = 1000 * REFERENCE_STEP
    """Mean time of a step, milliseconds."""
    seconds: float = 0.8
    """Length of a round."""

    name: ClassVar[str] = "stragglers"
    quick_settings: ClassVar[dict[str, object]] = {
        "rounds": 1, "sigmas": (0.0, 1.0), "backends": BACKENDS[:2], "n_envs": 16, "seconds": 0.3}  # fmt: skip
    choices: ClassVar[dict[str, Sequence[str]]] = {"backends": BACKENDS}
    least: ClassVar[dict[str, float]] = {"n_envs": 4, "sigmas": 0.0}

    def measure(self, notes: Notes) -> None:
        """Spread by spread, the backends in turns."""
        groups = [[Case({"backend": backend, "sigma": sigma, "n_envs": self.n_envs},
                        partial(self._round, backend, sigma)) for backend in self.backends]
                  for sigma in self.sigmas]  # fmt: skip
        for group in in_turns(groups, self.rounds, notes):
            for base in find(group, backend="shared_memory"):
                notes.figures += [one.over(base, "shared_memory") for one in group if one is not base]
        for sigma in self.sigmas:
            for name, bound in bounds(sigma, self.n_envs, available_cores()).items():
                tags = {"kind": "bound", "backend": name, "sigma": sigma, "n_envs": self.n_envs}
                notes.figures.append(Figure(tags, OF_THE_CORES, (bound,)))

    def _round(self, backend: str, sigma: float) -> list[Sample]:
        name, _, batch = backend.partition(", batch n/")
        options: dict[str, Any] = {"batch_size": self.n_envs // int(batch)} if batch else {}
        with (timed(fixed_cost(1000 * self.step_ms, sigma), self.n_envs) as (factory, rows),
              open_turn(name, self.n_envs, factory, **options) as turn):  # fmt: skip
            turn()
            begin, busy = time.perf_counter(), rows[:, STEP_CPU].sum()
            end, turns = begin + self.seconds, 0
            while turns < 2 or time.perf_counter() < end:
                turn()
                turns += 1
            taken = time.perf_counter() - begin
            return [Sample(OF_THE_CORES, (rows[:, STEP_CPU].sum() - busy) / (available_cores() * taken))]


def bounds(sigma: float, n: int, cores: int) -> dict[str, float]:
    """The best efficiency that each way of waiting allows, by simulation without any overhead.

    `shared_memory`: one worker per core with its own share of the environments; a step ends with the last worker.
    `a process each`: the cores share all environments; a step cannot end before the slowest one.
    `a core each`: as many cores as environments, each waiting for the slowest.
    `async`: nobody waits.
    """
    costs = np.exp(sigma * np.random.default_rng(0).standard_normal((_SAMPLES, n)) - sigma**2 / 2)
    workers = min(cores, n)
    starts = [n * k // workers for k in range(workers)]
    total = costs.sum(axis=1)

    def efficiency(makespan: np.ndarray, used: int) -> float:
        return float(total.sum() / (used * makespan.sum()))

    slowest: Callable[[np.ndarray], np.ndarray] = partial(np.max, axis=1)
    return {
        "shared_memory": efficiency(slowest(np.add.reduceat(costs, starts, axis=1)), workers),
        "a process each": efficiency(np.maximum(total / workers, slowest(costs)), workers),
        "a core each": efficiency(slowest(costs), n),
        "async": 1.0,
    }
