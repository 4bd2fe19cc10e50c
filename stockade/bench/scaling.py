"""`stockade bench scaling` and `vector`: steps per second over environments, workers, threads; overhead, efficiency.

Efficiency is what was reached of the cores: time inside steps over the time of all cores, which is known because the
synthetic environment's steps have a known cost; for threads of the native backend, steps/s over threads x those of one.
Overhead is that of an environment that costs nothing, so that all time is the backend's. Steps burn CPU time, so that
more processes than cores gain nothing by it, and other programs on the machine lower the figures.
"""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np

from stockade.bench.backends import EACH, LOCAL_BACKENDS, PROCESS_BACKENDS, open_turn, why_not
from stockade.bench.command import BenchCommand, Notes
from stockade.bench.peers import MANY_PROCESSES, PEERS, interrupts_later
from stockade.bench.result import Figure, Tag, Tags, find
from stockade.bench.runner import Case, Opening, Turn, in_turns, rate_case
from stockade.bench.worlds import REFERENCE_STEP, WORLDS, Factory, FreeEnv, fixed_cost
from stockade.cores import available_cores
from stockade.errors import InputError

PARTS = ("native", "n_envs", "workers", "takeover")
OF_THE_CORES = "of the cores"
_REFERENCE_US = 1e6 * REFERENCE_STEP
_WORKERS_N = 64
VECTOR_PARTS = ("overhead", "efficiency")
_CEILING = "processes without a vector environment"
_EACH_UP_TO = 64
#: Who is compared with whom.
_PAIRS = (
    ("shared_memory", MANY_PROCESSES),
    (f"shared_memory{EACH}", MANY_PROCESSES),
    ("serial", ("Gymnasium SyncVectorEnv", "Stable-Baselines3 DummyVecEnv")),
)


@dataclass(frozen=True)
class ScalingBench(BenchCommand):
    """Steps per second as the number of environments, workers and threads grows."""

    parts: tuple[str, ...] = PARTS
    """native (worlds and threads), n_envs, workers, takeover (which step costs make each backend beat `serial`)."""
    native_n_envs: tuple[int, ...] = (1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
    """Numbers of native worlds."""
    n_envs: tuple[int, ...] = (1, 4, 16, 64, 200)
    """Numbers of environments."""
    workers: tuple[int, ...] = (1, 2, 4, 16, 64)
    """Numbers of workers, for 64 environments."""
    takeover_n_envs: tuple[int, ...] = (2, 8, 32, 128)
    """Numbers of environments of the part takeover."""
    step_us: tuple[float, ...] = (10, 30, 100, 300, 1000, 2200)
    """Costs of a step, microseconds, of the part takeover."""
    seconds: float = 0.2
    """Length of a round; half of it in the part takeover."""

    name: ClassVar[str] = "scaling"
    quick_settings: ClassVar[dict[str, object]] = {
        "rounds": 1, "native_n_envs": (1, 1000, 100_000), "n_envs": (2, 16), "workers": (1, 4),
        "takeover_n_envs": (8,), "step_us": (10, 100, 1000), "seconds": 0.03}  # fmt: skip
    choices: ClassVar[dict[str, Sequence[str]]] = {"parts": PARTS}
    least: ClassVar[dict[str, float]] = {"step_us": 0.1}

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        if max(self.workers) > _WORKERS_N:
            raise InputError(f"--workers {max(self.workers)}: there are {_WORKERS_N} environments to share out")

    def measure(self, notes: Notes) -> None:
        """Part by part."""
        ratios: dict[tuple[Tag, Tag], list[tuple[float, float]]] = {}
        for group in in_turns(list(self._groups()), self.rounds, notes):
            for one in group:
                tags, base = one.tags, group[0]
                if tags["part"] == "native" and one is not base and tags["threads"] != "default":
                    share = one.over(base, 1).rounds
                    notes.figures.append(_reached(one, [ratio / int(tags["threads"]) for ratio in share]))
                elif tags.get("world") == "synthetic" or tags["part"] == "workers":
                    step = float(tags.get("step_us", _REFERENCE_US)) / 1e6
                    notes.figures.append(_reached(one, [rate * step / available_cores() for rate in one.rounds]))
                elif tags["part"] == "takeover" and one is not base:
                    notes.figures.append(one.over(base, "serial"))
                    place = tags["backend"], tags["n_envs"]
                    ratios.setdefault(place, []).append((float(tags["step_us"]), notes.figures[-1].value))
        for rate in find(notes.figures, "steps/s", part="takeover"):  # only their ratios tell
            notes.figures.remove(rate)
        for (backend, n), points in ratios.items():
            self._crossing(notes, backend, n, points)

    def _groups(self) -> Iterator[list[Case]]:
        for n in self.native_n_envs if "native" in self.parts else ():
            yield [self._case("native", {"backend": "native", "n_envs": n, "threads": threads}, copy=False,
                              **({} if threads == "default" else {"threads": threads}))
                   for threads in (*sorted({1, available_cores()}), "default")]  # fmt: skip
        for world in ("synthetic", "built-in") if "n_envs" in self.parts else ():
            for n in self.n_envs:
                yield [self._case("n_envs", {"world": world, "backend": backend, "n_envs": n}, factory=WORLDS[world])
                       for backend in LOCAL_BACKENDS]  # fmt: skip
        for cost in (100, round(_REFERENCE_US)) if "workers" in self.parts else ():
            yield [self._case("workers", {"backend": backend, "workers": workers, "n_envs": _WORKERS_N,
                                          "step_us": cost}, factory=fixed_cost(cost), workers=workers)
                   for backend in PROCESS_BACKENDS for workers in self.workers]  # fmt: skip
        for n in self.takeover_n_envs if "takeover" in self.parts else ():
            for cost_us in self.step_us:
                yield [self._case("takeover", {"backend": backend, "n_envs": n, "step_us": cost_us},
                                  factory=fixed_cost(cost_us)) for backend in LOCAL_BACKENDS]  # fmt: skip

    def _case(self, part: str, tags: Tags, **options: Any) -> Case:
        opening = partial(open_turn, str(tags["backend"]), int(tags["n_envs"]), **options)
        return rate_case({"part": part, **tags}, opening, self.seconds / 2 if part == "takeover" else self.seconds)

    def _crossing(self, notes: Notes, backend: Tag, n: Tag, points: list[tuple[float, float]]) -> None:
        cost = crossing(points)
        if cost is None:
            notes.skip(f"step cost from which {backend} beats serial, n={n}", f"none up to {max(self.step_us):g} us")
            return
        kind = "at most" if cost == min(self.step_us) else "between measured costs"
        tags: Tags = {"part": "crossing", "backend": backend, "n_envs": n, "kind": kind}
        notes.figures.append(Figure(tags, "microseconds", (cost,)))


def crossing(points: Sequence[tuple[float, float]]) -> float | None:
    """The cost from which on the ratio stays at 1 or more, between two measured costs by the logarithms of both.

    Args:
        points: (cost, ratio).

    Returns:
        The smallest cost if the ratio is never below 1, None if it is so at the largest.
    """
    points = sorted(points)
    below = [place for place, (_, ratio) in enumerate(points) if ratio < 1]
    if not below:
        return points[0][0]
    last = below[-1]
    if last == len(points) - 1:
        return None
    (cost, ratio), (next_cost, next_ratio) = points[last], points[last + 1]
    part = -math.log(ratio) / (math.log(next_ratio) - math.log(ratio))
    return math.exp(math.log(cost) + part * (math.log(next_cost) - math.log(cost)))


def _reached(figure: Figure, shares: Sequence[float]) -> Figure:
    """Of the cores, counting steps only: what resets cost is not in it."""
    return Figure(figure.tags, OF_THE_CORES, tuple(shares))


# ------------------------------------------------------------------------------------------------------------- vector
@dataclass(frozen=True)
class VectorBench(BenchCommand):
    """Overhead and efficiency of backends, beside other libraries'."""

    parts: tuple[str, ...] = VECTOR_PARTS
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
    choices: ClassVar[dict[str, Sequence[str]]] = {"parts": VECTOR_PARTS}
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
                notes.figures.append(_reached(one, [rate / limit for rate in one.rounds]))

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
