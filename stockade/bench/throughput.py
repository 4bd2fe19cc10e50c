"""Steps per second: `stockade bench throughput`, `true-state`, `scaling` and `vector`.

Efficiency is what was reached of the cores: time inside steps, whose cost is known, over the time of all cores; for
threads of the native backend, steps/s over threads x those of one. Overhead is that of an environment that is free.
Steps burn CPU time: more processes than cores gain nothing by it, and other programs on the machine lower the figures.
"""

import contextlib
import math
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import stockade
from stockade.bench.backends import EACH, LOCAL, MANY_PROCESSES, MODES, OTHERS, PEERS, env_case
from stockade.bench.result import Figure, Result, Tags, find, ratios
from stockade.bench.runner import BenchCommand, Case, Numbers, Turn, Words, in_turns, option, rate_case
from stockade.bench.worlds import BUILT_IN, CYBORG, REFERENCE_STEP, WORLDS, Factory, FreeEnv, fixed_cost
from stockade.cores import available_cores
from stockade.errors import InputError
from stockade.vector import BACKENDS
from stockade.vector.local.machine import interrupts_held

_WORLDS: dict[str, Factory] = {"built-in": BUILT_IN, **WORLDS, "CybORG": CYBORG}
_PARTS = ("native", "n_envs", "workers", "takeover")
OF_THE_CORES = "of the cores"
_REFERENCE_US = 1e6 * REFERENCE_STEP
_WORKERS_N = 64
#: Who is compared with whom.
_PAIRS = (*product(("shared_memory", f"shared_memory{EACH}"), MANY_PROCESSES),
          *product(("serial",), ("Gymnasium SyncVectorEnv", "Stable-Baselines3 DummyVecEnv")))  # fmt: skip


def _tags(world: str, mode: str, backend: str, n: int) -> Tags:
    return {"world": world, "mode": mode, "backend": backend, "n_envs": n}


@dataclass(frozen=True)
class ThroughputBench(BenchCommand, name="throughput"):
    """Steps per second of every backend and of other libraries."""

    worlds: Words = option((*_WORLDS, *OTHERS), choices=(*_WORLDS, *OTHERS))
    """Which: built-in, synthetic (the reference's costs); if installed CybORG, MiniCAGE, and CartPole of EnvPool."""
    modes: Words = option(tuple(MODES)[:3], choices=MODES)  # When true states are got.
    backends: Words = option(BACKENDS, choices=BACKENDS)  # Ours.
    n_envs: Numbers = option((20, 50, 100, 200), quick=(10,))  # Numbers of environments.
    native_n_envs: tuple[int, ...] = (1000,)  # And of the native backend besides.
    peers: bool = True  # Measure other libraries too, at the smallest and the largest number of environments.
    seconds: float = option(0.25, quick=0.03)  # Length of a round.

    def measure(self, result: Result) -> None:
        """Ray comes last, apart from the others, which its own processes would slow down."""
        in_turns(list(self._groups()), self.rounds, result)
        places = product([w for w in self.worlds if w in WORLDS and "ray" in self.backends], self.modes, self._ends())
        groups = [[self._case(world, mode, "ray", n)] for world, mode, n in places]
        with contextlib.ExitStack() as stack:
            if any(not case.why_not for (case,) in groups):  # an idle environment keeps Ray: it is started once
                with contextlib.suppress(Exception):  # else each case says what went wrong
                    stack.enter_context(contextlib.closing(stockade.make_vec(1, "ray", env=FreeEnv)))
            in_turns(groups, self.rounds, result)
        result.figures += ratios(result.figures, "pipes")

    def _groups(self) -> Iterator[list[Case]]:
        """Within a group all have the same world, mode and number of environments."""
        ours, ends = [backend for backend in self.backends if backend != "ray"], self._ends()
        for world in self.worlds:
            if world in OTHERS:
                for n in (*ends, *(self.native_n_envs if world == "MiniCAGE" else ())):
                    yield [env_case(_tags(world, "steps only", OTHERS[world], n), self.seconds)]
            elif world == "CybORG":
                n = min(20, *self.n_envs)  # it takes a while to build them
                for mode in (mode for mode in self.modes if mode != "every step"):
                    yield [self._case(world, mode, backend, n) for backend in ours if backend != "native"]
            else:
                for mode in self.modes:
                    for n in self.n_envs:
                        peers = PEERS if self.peers and n in ends else ()
                        yield [self._case(world, mode, backend, n) for backend in (*ours, *peers)]
                    if world == "built-in" and "native" in ours:
                        yield from ([self._case(world, mode, "native", n)] for n in self.native_n_envs)

    def _case(self, world: str, mode: str, backend: str, n: int) -> Case:
        return env_case(_tags(world, mode, backend, n), self.seconds, _WORLDS[world])

    def _ends(self) -> list[int]:
        return sorted({min(self.n_envs), max(self.n_envs)})


@dataclass(frozen=True)
class TrueStateBench(BenchCommand, name="true-state"):
    """What true states cost: steps per second with them, and what they take of those without."""

    worlds: Words = option(tuple(WORLDS), choices=WORLDS)  # Which: synthetic (the reference's costs), built-in.
    modes: Words = option(tuple(MODES), choices=MODES)  # When true states are got.
    backends: Words = option(("native", *LOCAL), quick=("native", "shared_memory"), choices=("native", *LOCAL))  # Ours.
    n_envs: int = option(100, quick=10)  # Number of environments.
    seconds: float = option(0.3, quick=0.03)  # Length of a round.

    def measure(self, result: Result) -> None:
        groups = [[self._case(world, mode, backend) for mode in self.modes]
                  for world, backend in product(self.worlds, self.backends)]  # fmt: skip
        in_turns(groups, self.rounds, result)
        result.figures += [ratio.turned_into("%", lambda kept: 100 * (1 - kept))
                           for ratio in ratios(result.figures, "steps only", "mode")]  # fmt: skip

    def _case(self, world: str, mode: str, backend: str) -> Case:
        period = MODES[mode] if isinstance(MODES[mode], int) else 1  # a round without a true state would tell nothing
        return env_case(_tags(world, mode, backend, self.n_envs), self.seconds, WORLDS[world], period * self.n_envs)


# ------------------------------------------------------------------------------------------------------------ scaling
@dataclass(frozen=True)
class ScalingBench(BenchCommand, name="scaling"):
    """Steps per second over environments, workers, threads."""

    parts: Words = option(_PARTS, choices=_PARTS)
    """native (worlds and threads), n_envs, workers, takeover (which step costs make each backend beat `serial`)."""
    native_n_envs: Numbers = option(tuple(10**k for k in range(7)), quick=(1, 1000, 100_000))  # Of native worlds.
    n_envs: Numbers = option((1, 4, 16, 64, 200), quick=(2, 16))  # Numbers of environments.
    workers: Numbers = option((1, 2, 4, 16, 64), quick=(1, 4))  # Numbers of workers, for 64 environments.
    takeover_n_envs: Numbers = option((2, 8, 32, 128), quick=(8,))  # Numbers of environments of the part takeover.
    step_us: tuple[float, ...] = option((10, 30, 100, 300, 1000, 2200), quick=(10, 100, 1000), least=0.1)
    """Costs of a step, microseconds, of the part takeover."""
    seconds: float = option(0.2, quick=0.03)  # Length of a round; half of it in the part takeover.

    def check(self) -> None:
        super().check()
        if max(self.workers) > _WORKERS_N:
            raise InputError(f"--workers {max(self.workers)}: there are {_WORKERS_N} environments to share out")

    def measure(self, result: Result) -> None:
        rates = Result(self.name, skipped=result.skipped)
        in_turns(list(self._groups()), self.rounds, rates)
        native, n_envs, workers, takeover = (find(rates.figures, part=part) for part in _PARTS)
        result.figures += native + n_envs + workers
        for base in find(native, threads=1):
            several = find(native, n_envs=base.tags["n_envs"], threads=tuple(range(2, available_cores() + 1)))
            result.figures += [one.over(base, OF_THE_CORES, 1 / one.tags["threads"]) for one in several]
        result.figures += map(_of_the_cores, find(n_envs, world="synthetic") + workers)
        takeover = ratios(takeover, "serial")  # only ratios tell
        result.figures += takeover
        for backend, n in dict.fromkeys((one.tags["backend"], one.tags["n_envs"]) for one in takeover):
            cost = crossing([(one.tags["step_us"], one.value) for one in find(takeover, backend=backend, n_envs=n)])
            if cost is None:
                why = f"none up to {max(self.step_us):g} us"
                result.skip(f"step cost from which {backend} beats serial, n={n}", why)
            else:
                kind = "at most" if cost == min(self.step_us) else "between measured costs"
                found: Tags = {"part": "crossing", "backend": backend, "n_envs": n, "kind": kind}
                result.figures.append(Figure(found, "microseconds", (cost,)))

    def _groups(self) -> Iterator[list[Case]]:
        for n in self.native_n_envs if "native" in self.parts else ():
            yield [self._case("native", BUILT_IN, {"backend": "native", "n_envs": n, "threads": threads}, copy=False,
                              **({} if threads == "default" else {"threads": threads}))
                   for threads in (*sorted({1, available_cores()}), "default")]  # fmt: skip
        for world, n in product(("synthetic", "built-in"), self.n_envs) if "n_envs" in self.parts else ():
            yield [self._case("n_envs", WORLDS[world], {"world": world, "backend": backend, "n_envs": n})
                   for backend in LOCAL]  # fmt: skip
        for cost in (100, round(_REFERENCE_US)) if "workers" in self.parts else ():
            tags = {"n_envs": _WORKERS_N, "step_us": cost}
            yield [self._case("workers", fixed_cost(cost), {"backend": backend, "workers": w, **tags}, workers=w)
                   for backend, w in product(LOCAL[1:], self.workers)]  # fmt: skip
        for n, cost_us in product(self.takeover_n_envs, self.step_us) if "takeover" in self.parts else ():
            yield [self._case("takeover", fixed_cost(cost_us), {"backend": backend, "n_envs": n, "step_us": cost_us})
                   for backend in LOCAL]  # fmt: skip

    def _case(self, part: str, factory: Factory, tags: Tags, **options: Any) -> Case:
        seconds = self.seconds / 2 if part == "takeover" else self.seconds
        return env_case({"part": part, **tags}, seconds, factory, **options)


def crossing(points: Sequence[tuple[float, float]]) -> float | None:
    """The cost from which on the ratio stays at 1 or more, between two measured (cost, ratio) by their logarithms; the
    smallest cost if the ratio is never below 1, None if it is so at the largest."""
    points = sorted(points)
    first = max((place + 1 for place, (_, ratio) in enumerate(points) if ratio < 1), default=0)
    if first in (0, len(points)):
        return None if first else points[0][0]
    (cost, ratio), (next_cost, next_ratio) = points[first - 1 : first + 1]
    return cost * (next_cost / cost) ** (-math.log(ratio) / math.log(next_ratio / ratio))


def _of_the_cores(rate: Figure) -> Figure:
    """Counting steps only: what resets cost is not in it."""
    step_us = rate.tags.get("step_us", _REFERENCE_US)
    return rate.turned_into(OF_THE_CORES, lambda steps: steps * step_us / 1e6 / available_cores())


# ------------------------------------------------------------------------------------------------------------- vector
@dataclass(frozen=True)
class VectorBench(BenchCommand, name="vector"):
    """Overhead and efficiency of backends, beside other libraries'."""

    parts: Words = option(("overhead", "efficiency"), choices=("overhead", "efficiency"))  # Which.
    n_envs: Numbers = option((16, 64, 200), quick=(8,))  # Numbers of environments of the part overhead.
    efficiency_n_envs: int = option(64, quick=8, least=available_cores())  # Environments of the part efficiency.
    seconds: float = option(0.3, quick=0.05)  # Length of a round.

    def measure(self, result: Result) -> None:
        rates = Result(self.name, skipped=result.skipped)
        in_turns(list(self._groups()), self.rounds, rates)
        result.figures += (overhead := find(rates.figures, part="overhead"))
        for ours, other in _PAIRS:
            result.figures += ratios(find(overhead, backend=(ours, other)), other)
        result.figures += map(_of_the_cores, find(rates.figures, part="efficiency"))

    def _groups(self) -> Iterator[list[Case]]:
        """Steps of an environment that costs nothing, so that all time is overhead; steps of equal cost."""
        for n in self.n_envs if "overhead" in self.parts else ():
            each = (f"pipes{EACH}", f"shared_memory{EACH}") if n <= 64 else ()
            yield [env_case({"part": "overhead", "n_envs": n, "backend": backend}, self.seconds, FreeEnv)
                   for backend in (*LOCAL, *PEERS, *each)]  # fmt: skip
        for cost in (100, round(_REFERENCE_US)) if "efficiency" in self.parts else ():
            n, factory = self.efficiency_n_envs, fixed_cost(cost)
            tags: Tags = {"part": "efficiency", "n_envs": n, "step_us": cost}
            yield [rate_case({**tags, "backend": "processes without a vector environment"},
                             partial(_ceiling, factory, n), self.seconds),
                   *(env_case({**tags, "backend": backend}, self.seconds, factory)
                     for backend in (*LOCAL, *PEERS))]  # fmt: skip


@contextlib.contextmanager
def _ceiling(factory: Factory, n: int) -> Iterator[Turn]:
    """No vector environment at all: one process per core steps its share a few times over, and only then reports."""
    cores, times = available_cores(), 20
    shares = [(factory, n // cores * times)] * cores
    with interrupts_held():
        processes = multiprocessing.get_context("fork").Pool(cores)
    with processes as pool:
        pool.starmap(_step_alone, shares, chunksize=1)
        yield lambda: sum(pool.starmap(_step_alone, shares, chunksize=1))


def _step_alone(factory: Factory, steps: int) -> int:
    env = factory()
    env.reset(seed=0)
    for _ in range(steps):
        env.step(np.int64(0))
    return steps
