"""`stockade bench vector`: what running many environments costs in itself, for each backend and its peers.

Overhead: an environment that costs nothing, so that all time is the backend's. Efficiency: steps/s over (cores / time
of a step); 1 would mean that every core did nothing but step. Steps burn CPU time, so that more processes than cores
gain nothing by it, and other programs on the machine lower the figures.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import gymnasium
import numpy as np

from stockade.bench.backends import EACH, LOCAL_BACKENDS, open_turn, why_not
from stockade.bench.command import BenchCommand, Notes
from stockade.bench.peers import MANY_PROCESSES, PEERS, interrupts_later
from stockade.bench.result import Tags, find
from stockade.bench.runner import Case, Opening, Turn, in_turns, rate_case
from stockade.bench.scaling import OF_THE_CORES
from stockade.bench.worlds import REFERENCE_STEP, Factory, FreeEnv, fixed_cost
from stockade.cores import available_cores

PARTS = ("overhead", "efficiency")
_CEILING = "processes without a vector environment"
_EACH_UP_TO = 64
#: Who is compared with whom.
_PAIRS = (
    ("shared_memory", MANY_PROCESSES),
    (f"shared_memory{EACH}", MANY_PROCESSES),
    ("serial", ("Gymnasium SyncVectorEnv", "Stable-Baselines3 DummyVecEnv")),
)


@dataclass(frozen=True)
class VectorBench(BenchCommand):
    """Overhead and efficiency of backends, beside other libraries'."""

    parts: tuple[str, ...] = PARTS
    """overhead, efficiency."""
    n_envs: tuple[int, ...] = (16, 64, 200)
    """Numbers of environments of the part overhead."""
    efficiency_n_envs: int = 64
    """Number of environments of the part efficiency."""
    seconds: float = 0.3
    """Length of a round."""

    name: ClassVar[str] = "vector"
    quick_settings: ClassVar[dict[str, object]] = {
        "rounds": 1, "n_envs": (8,), "efficiency_n_envs": 8, "seconds": 0.05}  # fmt: skip
    choices: ClassVar[dict[str, Sequence[str]]] = {"parts": PARTS}
    least: ClassVar[dict[str, float]] = {"efficiency_n_envs": available_cores()}

    def measure(self, notes: Notes) -> None:
        """Part by part."""
        for group in in_turns(list(self._overhead()) if "overhead" in self.parts else [], self.rounds, notes):
            for ours, others in _PAIRS:
                for base in find(group, backend=others):
                    notes.figures += [one.over(base, base.tags["backend"]) for one in find(group, backend=ours)]
        efficiency = Notes(self.name, skipped=notes.skipped)
        for group in in_turns(list(self._efficiency()) if "efficiency" in self.parts else [], self.rounds, efficiency):
            for one in group:
                limit = available_cores() * 1e6 / float(one.tags["step_us"])
                reached = tuple(rate / limit for rate in one.rounds)
                notes.figures.append(replace(one, unit=OF_THE_CORES, rounds=reached))

    def _overhead(self) -> Iterator[list[Case]]:
        """Steps per second of an environment that costs nothing: all time is overhead."""
        for n in self.n_envs:
            each = (f"pipes{EACH}", f"shared_memory{EACH}") if n <= _EACH_UP_TO else ()
            tags: Tags = {"part": "overhead", "n_envs": n}
            yield [self._case(tags, backend, FreeEnv) for backend in (*LOCAL_BACKENDS, *PEERS, *each)]

    def _efficiency(self) -> Iterator[list[Case]]:
        """Steps of equal cost."""
        for cost in (100, round(1e6 * REFERENCE_STEP)):
            tags: Tags = {"part": "efficiency", "n_envs": self.efficiency_n_envs, "step_us": cost}
            ceiling = partial(_ceiling, fixed_cost(cost), self.efficiency_n_envs)
            yield [self._case(tags, _CEILING, fixed_cost(cost), ceiling),
                   *(self._case(tags, backend, fixed_cost(cost)) for backend in (*LOCAL_BACKENDS, *PEERS))]  # fmt: skip

    def _case(self, tags: Tags, backend: str, factory: Factory, opening: Opening | None = None) -> Case:
        opening = opening or partial(open_turn, backend, int(tags["n_envs"]), factory)
        foreign, why = backend in PEERS, why_not(backend, "")
        return rate_case({**tags, "backend": backend}, opening, self.seconds, why_not=why, foreign=foreign)


@contextmanager
def _ceiling(factory: Factory, n: int) -> Iterator[Turn]:
    """No vector environment at all: one process per core steps its share a few times over, and only then reports."""
    cores, times = available_cores(), 20
    shares = [(factory, n // cores, times)] * cores
    with interrupts_later():
        processes = multiprocessing.get_context("fork").Pool(cores)
    with processes as pool:
        pool.starmap(_step_alone, shares, chunksize=1)
        yield lambda: sum(pool.starmap(_step_alone, shares, chunksize=1))


_alone: list[gymnasium.Env] = []
"""Of a process of `_ceiling`: its environment."""


def _step_alone(factory: Factory, n: int, times: int) -> int:
    if not _alone:
        _alone.append(factory())
    _alone[0].reset(seed=0)
    for _ in range(n * times):
        _alone[0].step(np.int64(0))
    return n * times
