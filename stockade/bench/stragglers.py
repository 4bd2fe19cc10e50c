"""`stockade bench stragglers`: what waiting for the slowest costs as step times spread, beside the best possible.

Efficiency is the CPU time inside the environments over that of all cores: 1 would mean that no core ever waits. The
bounds are simulated: steps drawn from the same distribution, handed out without any overhead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from tqdm import tqdm

from stockade.bench.command import BenchCommand, Notes, announce, require_counts, require_known, require_seconds
from stockade.bench.figures import Tag, figure_of, ratios
from stockade.bench.ours import open_ours
from stockade.bench.peers import open_peer
from stockade.bench.timed import STEP_CPU, timed
from stockade.bench.turns import Turn
from stockade.bench.worlds import REFERENCE_STEP
from stockade.cores import available_cores
from stockade.errors import InputError
from stockade.vector import SyntheticEnv

BACKENDS = ("shared_memory", "async, batch n/2", "async, batch n/4", "Gymnasium AsyncVectorEnv")
UNIT = "of the cores"
_DRAWS = 400


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
        "rounds": 1,
        "sigmas": (0.0, 1.0),
        "backends": BACKENDS[:2],
        "n_envs": 16,
        "seconds": 0.3,
    }

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        require_known("--backends", self.backends, BACKENDS)
        require_counts("--n-envs", [self.n_envs], least=4)
        require_seconds("--seconds", self.seconds)
        require_seconds("--step-ms", self.step_ms)
        if not self.sigmas or min(self.sigmas) < 0:
            raise InputError("--sigmas needs spreads of at least 0")

    def measure(self, notes: Notes) -> None:
        """Spread by spread, the backends in turns."""
        announce(self.name, self.rounds * len(self.sigmas) * len(self.backends) * (1.2 * self.seconds + 0.5))
        total = self.rounds * len(self.sigmas) * len(self.backends)
        with tqdm(total=total, desc="bench stragglers", unit="case", disable=None) as progress:
            for sigma in self.sigmas:
                found: dict[str, list[float]] = {backend: [] for backend in self.backends}
                for _ in range(self.rounds):
                    for backend in self.backends:
                        found[backend].append(self._efficiency(backend, sigma))
                        progress.update()
                self._note(notes, sigma, found)

    def _efficiency(self, backend: str, sigma: float) -> float:
        with self._open(backend, sigma) as (turn, rows):
            turn()
            begin, busy = time.perf_counter(), rows[:, STEP_CPU].sum()
            end, turns = begin + self.seconds, 0
            while turns < 2 or time.perf_counter() < end:
                turn()
                turns += 1
            taken = time.perf_counter() - begin
            return float(rows[:, STEP_CPU].sum() - busy) / (available_cores() * taken)

    @contextmanager
    def _open(self, backend: str, sigma: float) -> Iterator[tuple[Turn, np.ndarray]]:
        factory = partial(SyntheticEnv, step_seconds=self.step_ms / 1000, sigma=sigma, fixed_length=True)
        with timed(factory, self.n_envs) as (timed_factory, rows):
            if backend.startswith("Gymnasium"):
                opening = open_peer(backend, timed_factory, self.n_envs)
            elif backend.startswith("async"):
                size = self.n_envs // int(backend[-1])
                opening = open_ours("async", timed_factory, self.n_envs, batch_size=size)
            else:
                opening = open_ours(backend, timed_factory, self.n_envs)
            with opening as turn:
                yield turn, rows

    def _note(self, notes: Notes, sigma: float, found: dict[str, list[float]]) -> None:
        for backend, rounds in found.items():
            tags: dict[str, Tag] = {"backend": backend, "sigma": sigma, "n_envs": self.n_envs}
            notes.figures.append(figure_of(f"sigma {sigma}, {backend}", rounds, UNIT, **tags))
            base = found.get("shared_memory")
            if base and backend != "shared_memory":
                gain = figure_of(
                    f"sigma {sigma}, {backend} to shared_memory",
                    ratios(rounds, base),
                    "times",
                    to="shared_memory",
                    **tags,
                )
                notes.figures.append(gain)
        for name, bound in bounds(sigma, self.n_envs, available_cores()).items():
            figure = figure_of(
                f"sigma {sigma}, bound: {name}",
                [bound],
                UNIT,
                kind="bound",
                backend=name,
                sigma=sigma,
                n_envs=self.n_envs,
            )
            notes.figures.append(figure)


def bounds(sigma: float, n: int, cores: int) -> dict[str, float]:
    """The best efficiency that each way of waiting allows, by simulation without any overhead.

    `shared_memory`: a worker a core with its own share of the environments; a step ends with the last worker.
    `a process each`: the cores share all environments; a step cannot end before the slowest one.
    `a core each`: as many cores as environments, each waiting for the slowest: what the notes reckon with.
    `async`: nobody waits.
    """
    costs = np.exp(sigma * np.random.default_rng(0).standard_normal((_DRAWS, n)) - sigma**2 / 2)
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
