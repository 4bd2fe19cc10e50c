"""Steps per second: `stockade bench throughput`, `true-state`, `scaling` and `vector`.

Efficiency is what was reached of the cores: time inside steps, whose cost is known, over the time of all cores; for
threads of the native backend, steps/s over threads x those of one. Overhead is that of an environment that is free.
Steps burn CPU time: more processes than cores gain nothing by it, and other programs on the machine lower the figures.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import stockade
from stockade.bench.backends import ALONE, EACH, LOCAL, MANY_PROCESSES, MODES, OTHERS, PEERS, env_cases
from stockade.bench.result import Figure, Result, Tags, find, ratios
from stockade.bench.runner import BenchCommand, Case, Numbers, Words, in_turns, option
from stockade.bench.worlds import OURS, REFERENCE_STEP, FreeEnv
from stockade.cores import available_cores
from stockade.errors import InputError
from stockade.vector import BACKENDS

_WORLDS = ("built-in", "synthetic", "CybORG", *OTHERS)
_PARTS = ("native", "n_envs", "workers", "takeover")
OF_THE_CORES = "of the cores"
_REFERENCE_US = 1e6 * REFERENCE_STEP
_COSTS = (100, round(_REFERENCE_US))  # Of a step, microseconds
_WORKERS_N = 64
#: Who is compared with whom.
_PAIRS = (*product(("shared_memory", f"shared_memory{EACH}"), MANY_PROCESSES),
          *product(("serial",), ("Gymnasium SyncVectorEnv", "Stable-Baselines3 DummyVecEnv")))  # fmt: skip


@dataclass(frozen=True)
class ThroughputBench(BenchCommand, name="throughput"):
    """Steps per second of every backend and of other libraries."""

    worlds: Words = option(_WORLDS, choices=_WORLDS)
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
        places = product([w for w in self.worlds if w in OURS and "ray" in self.backends], self.modes, self._ends())
        groups = [self._cases(world, mode, "ray", n) for world, mode, n in places]
        with contextlib.ExitStack() as stack:
            if any(not case.why_not for (case,) in groups):  # an idle environment keeps Ray: it is started once
                with contextlib.suppress(Exception):  # else each case says what went wrong
                    stack.enter_context(contextlib.closing(stockade.make_vec(1, "ray", env=FreeEnv)))
            in_turns(groups, self.rounds, result)
        result.figures += ratios(result.figures, "pipes")

    def _groups(self) -> Iterator[list[Case]]:
        """Within a group all have the same world, mode and number of environments."""
        ours, ends = tuple(backend for backend in self.backends if backend != "ray"), self._ends()
        for world in self.worlds:
            if world in OTHERS:
                for n in (*ends, *(self.native_n_envs if world == "MiniCAGE" else ())):
                    yield self._cases(world, "steps only", OTHERS[world], n)
            elif world == "CybORG":
                n, backends = min(20, *self.n_envs), tuple(backend for backend in ours if backend != "native")
                for mode in (mode for mode in self.modes if mode != "every step"):  # it takes a while to build them
                    yield self._cases(world, mode, backends, n)
            else:
                for mode, n in product(self.modes, self.n_envs):
                    yield self._cases(world, mode, (*ours, *(PEERS if self.peers and n in ends else ())), n)
                if world == "built-in" and "native" in ours:
                    for mode, n in product(self.modes, self.native_n_envs):
                        yield self._cases(world, mode, "native", n)

    def _cases(self, world: str, mode: str, backend: str | tuple[str, ...], n: int) -> list[Case]:
        return env_cases(self.seconds, world=world, mode=mode, backend=backend, n_envs=n)

    def _ends(self) -> list[int]:
        return sorted({min(self.n_envs), max(self.n_envs)})


@dataclass(frozen=True)
class TrueStateBench(BenchCommand, name="true-state"):
    """What true states cost: steps per second with them, and what they take of those without."""

    worlds: Words = option(OURS, choices=OURS)  # Which: synthetic (the reference's costs), built-in.
    modes: Words = option(tuple(MODES), choices=MODES)  # When true states are got.
    backends: Words = option(("native", *LOCAL), quick=("native", "shared_memory"), choices=("native", *LOCAL))  # Ours.
    n_envs: int = option(100, quick=10)  # Number of environments.
    seconds: float = option(0.3, quick=0.03)  # Length of a round.

    def measure(self, result: Result) -> None:
        groups = [env_cases(self.seconds, world=world, mode=self.modes, backend=backend, n_envs=self.n_envs)
                  for world, backend in product(self.worlds, self.backends)]  # fmt: skip
        in_turns(groups, self.rounds, result)
        result.figures += [ratio.turned_into("%", lambda kept: 100 * (1 - kept))
                           for ratio in ratios(result.figures, "steps only", "mode")]  # fmt: skip


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
        threads = (*sorted({1, available_cores()}), "default")
        for n in self.native_n_envs if "native" in self.parts else ():
            yield env_cases(self.seconds, copy=False, part="native", backend="native", n_envs=n, threads=threads)
        for world, n in product(OURS, self.n_envs) if "n_envs" in self.parts else ():
            yield env_cases(self.seconds, part="n_envs", world=world, backend=LOCAL, n_envs=n)
        for cost in _COSTS if "workers" in self.parts else ():
            yield env_cases(self.seconds, part="workers", backend=LOCAL[1:], workers=self.workers, n_envs=_WORKERS_N,
                            step_us=cost)  # fmt: skip
        for n, step_us in product(self.takeover_n_envs, self.step_us) if "takeover" in self.parts else ():
            yield env_cases(self.seconds / 2, part="takeover", backend=LOCAL, n_envs=n, step_us=step_us)


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
            backends = (*LOCAL, *PEERS, *((f"pipes{EACH}", f"shared_memory{EACH}") if n <= 64 else ()))
            yield env_cases(self.seconds, FreeEnv, part="overhead", n_envs=n, backend=backends)
        for cost in _COSTS if "efficiency" in self.parts else ():
            yield env_cases(self.seconds, part="efficiency", n_envs=self.efficiency_n_envs, step_us=cost,
                            backend=(ALONE, *LOCAL, *PEERS))  # fmt: skip
