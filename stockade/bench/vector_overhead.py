"""`stockade bench vector`: what running many environments costs in itself, for each backend and its peers.

Overhead: an environment that costs nothing, so that all time is the backend's. Efficiency: steps/s over (cores / time
of a step); 1 would mean that every core did nothing but step. Steps burn CPU time, so that more processes than cores
gain nothing by it, and other programs on the machine lower the figures.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import gymnasium
import numpy as np

from stockade.bench.command import BenchCommand, Notes, announce, require_counts, require_known, require_seconds
from stockade.bench.figures import Figure, Tag, figure_of
from stockade.bench.ours import open_ours
from stockade.bench.peers import MANY_PROCESSES, PEERS, interrupts_later, open_peer, why_no_peer
from stockade.bench.turns import Case, Measured, Turn, expected_seconds, in_turns
from stockade.bench.worlds import REFERENCE_STEP, Factory, FreeEnv
from stockade.vector import SyntheticEnv, available_cores

PARTS = ("overhead", "efficiency")
_OURS = ("serial", "pipes", "shared_memory", "async")
_CEILING = "processes without a vector environment"
_EACH_UP_TO = 64
#: Who is compared with whom.
_PAIRS = (
    ("shared_memory", MANY_PROCESSES),
    ("shared_memory, a worker each", MANY_PROCESSES),
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
        "rounds": 1,
        "n_envs": (8,),
        "efficiency_n_envs": 8,
        "seconds": 0.05,
    }

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        require_known("--parts", self.parts, PARTS)
        require_counts("--n-envs", self.n_envs)
        require_counts("--efficiency-n-envs", [self.efficiency_n_envs], least=available_cores())
        require_seconds("--seconds", self.seconds)

    def measure(self, notes: Notes) -> None:
        """Part by part."""
        overhead = [self._overhead(n, notes) for n in self.n_envs] if "overhead" in self.parts else []
        costs = (100e-6, REFERENCE_STEP) if "efficiency" in self.parts else ()
        efficiency = [self._efficiency(seconds, notes) for seconds in costs]
        announce(self.name, expected_seconds(overhead + efficiency, self.rounds, self.seconds))
        for group in in_turns(overhead, self.rounds, self.seconds, notes):
            notes.figures += [one.figure() for one in group]
            notes.figures += _comparisons(group)
        for group in in_turns(efficiency, self.rounds, self.seconds, notes):
            for one in group:
                limit = available_cores() * 1e6 / float(one.case.tags["step_us"])
                shares = [rate / limit for rate in one.rates]
                notes.figures.append(figure_of(one.case.what, shares, "of the cores", **one.case.tags))

    def _overhead(self, n: int, notes: Notes) -> list[Case]:
        """Steps a second of an environment that costs nothing: all time is overhead."""
        what = f"free steps, n={n}"
        tags: dict[str, Tag] = {"part": "overhead", "n_envs": n}
        cases = _all(what, tags, FreeEnv, n, notes)
        if n <= _EACH_UP_TO:
            for backend in ("pipes", "shared_memory"):
                name = f"{backend}, a worker each"
                opening = partial(open_ours, backend, FreeEnv, n, workers=n)
                cases.append(Case(f"{what}, {name}", opening, {**tags, "backend": name}, 0.03 * n))
        return cases

    def _efficiency(self, seconds: float, notes: Notes) -> list[Case]:
        """Steps of equal cost."""
        n = self.efficiency_n_envs
        factory = partial(SyntheticEnv, step_seconds=seconds, fixed_length=True)
        what = f"steps of {1e6 * seconds:.0f} us, n={n}"
        tags: dict[str, Tag] = {"part": "efficiency", "n_envs": n, "step_us": round(1e6 * seconds)}
        ceiling = Case(f"{what}, {_CEILING}", partial(_ceiling, factory, n), {**tags, "backend": _CEILING}, 0.2)
        return [ceiling, *_all(what, tags, factory, n, notes)]


def _all(what: str, tags: dict[str, Tag], factory: Factory, n: int, notes: Notes) -> list[Case]:
    """Ours and the peers."""
    cases = []
    for backend in _OURS:
        opening = partial(open_ours, backend, factory, n)
        cases.append(Case(f"{what}, {backend}", opening, {**tags, "backend": backend, "kind": "ours"}))
    for peer in PEERS:
        why = why_no_peer(peer)
        if why:
            notes.skip(f"{what}, {peer}", why)
            continue
        start = 0.02 * n if peer in MANY_PROCESSES else 0.1
        peer_tags: dict[str, Tag] = {**tags, "backend": peer, "kind": "peer"}
        cases.append(Case(f"{what}, {peer}", partial(open_peer, peer, factory, n), peer_tags, start, foreign=True))
    return cases


def _comparisons(group: list[Measured]) -> list[Figure]:
    by_name = {str(one.case.tags["backend"]): one for one in group}
    return [
        by_name[ours].ratio(by_name[other])
        for ours, others in _PAIRS
        for other in others
        if ours in by_name and other in by_name
    ]


@contextmanager
def _ceiling(factory: Factory, n: int) -> Iterator[Turn]:
    """No vector environment at all: a process a core steps its share a few times over, and only then reports."""
    cores, times = available_cores(), 20
    shares = [(factory, n // cores, times)] * cores
    with interrupts_later():
        processes = multiprocessing.get_context("fork").Pool(cores)
    with processes as pool:
        pool.starmap(_step_alone, shares, chunksize=1)
        yield lambda: sum(pool.starmap(_step_alone, shares, chunksize=1))


_alone: dict[Factory, gymnasium.Env] = {}
"""Of a process of `_ceiling`: its environment."""


def _step_alone(factory: Factory, n: int, times: int) -> int:
    if not _alone:
        _alone[factory] = factory()
    environment = next(iter(_alone.values()))
    environment.reset(seed=0)
    for _ in range(n * times):
        environment.step(np.int64(0))
    return n * times
