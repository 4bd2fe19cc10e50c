"""`stockade bench scaling`: steps a second over numbers of environments, workers and threads, and who takes over when.

Efficiency is what was reached of the cores: time inside steps over the time of all cores, which is known because the
synthetic environment's steps have a known cost; for threads of the native backend, steps/s over threads x those of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from stockade.bench.command import BenchCommand, Notes, announce, require_counts, require_known, require_seconds
from stockade.bench.figures import Figure, Tag, figure_of, ratios
from stockade.bench.ours import open_ours
from stockade.bench.turns import Case, Measured, expected_seconds, in_turns
from stockade.bench.worlds import BUILT_IN, REFERENCE_STEP, ReferenceCost
from stockade.cores import available_cores
from stockade.errors import InputError
from stockade.vector import SyntheticEnv

PARTS = ("native", "n_envs", "workers", "takeover")
_BACKENDS = ("serial", "pipes", "shared_memory", "async")
_EFFICIENCY = "of the cores"
_WORKERS_N = 64


@dataclass(frozen=True)
class ScalingBench(BenchCommand):
    """Steps a second as the number of environments, workers and threads grows."""

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
        "rounds": 1,
        "native_n_envs": (1, 1000, 100_000),
        "n_envs": (2, 16),
        "workers": (1, 4),
        "takeover_n_envs": (8,),
        "step_us": (10, 100, 1000),
        "seconds": 0.03,
    }

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        require_known("--parts", self.parts, PARTS)
        for option in ("native_n_envs", "n_envs", "workers", "takeover_n_envs"):
            require_counts(f"--{option.replace('_', '-')}", getattr(self, option))
        if max(self.workers) > _WORKERS_N:
            raise InputError(f"--workers {max(self.workers)}: there are {_WORKERS_N} environments to share out")
        for cost in self.step_us:
            require_seconds("--step-us", cost)
        require_seconds("--seconds", self.seconds)

    def measure(self, notes: Notes) -> None:
        """Part by part."""
        groups = {part: getattr(self, f"_{part}_groups")() for part in PARTS if part in self.parts}
        lengths = {part: self.seconds / 2 if part == "takeover" else self.seconds for part in groups}
        total = sum(expected_seconds(cases, self.rounds, lengths[part]) for part, cases in groups.items())
        announce(self.name, total)
        for part, cases in groups.items():
            getattr(self, f"_{part}")(in_turns(cases, self.rounds, lengths[part], notes), notes)

    def _native_groups(self) -> list[list[Case]]:
        threads = sorted({1, available_cores()})
        groups = []
        for n in self.native_n_envs:
            group = []
            for count in threads:
                tags: dict[str, Tag] = {"part": "native", "backend": "native", "n_envs": n, "threads": count}
                opening = partial(open_ours, "native", BUILT_IN, n, threads=count, copy=False)
                group.append(Case(f"native, {count} thread(s), n={n:,}", opening, tags, 1e-6 * n))
            groups.append(group)
        return groups

    def _native(self, found: Iterator[list[Measured]], notes: Notes) -> None:
        for measured in found:
            alone = measured[0]
            for one in measured:
                notes.figures.append(one.figure())
                if one is not alone:
                    count = int(one.case.tags["threads"])
                    shares = [ratio / count for ratio in ratios(one.rates, alone.rates)]
                    notes.figures.append(_efficiency(one.case, shares))

    def _n_envs_groups(self) -> list[list[Case]]:
        groups = []
        for world, factory in (("synthetic", ReferenceCost), ("built-in", BUILT_IN)):
            for n in self.n_envs:
                group = []
                for backend in _BACKENDS:
                    tags: dict[str, Tag] = {"part": "n_envs", "world": world, "backend": backend, "n_envs": n}
                    opening = partial(open_ours, backend, factory, n)
                    group.append(Case(f"{world}, {backend}, n={n}", opening, tags, _start(backend)))
                groups.append(group)
        return groups

    def _n_envs(self, found: Iterator[list[Measured]], notes: Notes) -> None:
        for measured in found:
            for one in measured:
                notes.figures.append(one.figure())
                if one.case.tags["world"] == "synthetic":
                    notes.figures.append(_reached(one, REFERENCE_STEP))

    def _workers_groups(self) -> list[list[Case]]:
        groups = []
        for seconds in (100e-6, REFERENCE_STEP):
            factory = partial(SyntheticEnv, step_seconds=seconds, fixed_length=True)
            group = []
            for backend in ("pipes", "shared_memory", "async"):
                for workers in self.workers:
                    tags: dict[str, Tag] = {"part": "workers", "backend": backend, "workers": workers}
                    tags |= {"n_envs": _WORKERS_N, "step_us": round(seconds * 1e6)}
                    opening = partial(open_ours, backend, factory, _WORKERS_N, workers=workers)
                    what = f"steps of {1e6 * seconds:.0f} us, {backend}, {workers} worker(s), n={_WORKERS_N}"
                    group.append(Case(what, opening, tags, 0.1 + 0.03 * workers))
            groups.append(group)
        return groups

    def _workers(self, found: Iterator[list[Measured]], notes: Notes) -> None:
        for measured in found:
            for one in measured:
                notes.figures += [one.figure(), _reached(one, float(one.case.tags["step_us"]) / 1e6)]

    def _takeover_groups(self) -> list[list[Case]]:
        groups = []
        for n in self.takeover_n_envs:
            for cost in self.step_us:
                factory = partial(SyntheticEnv, step_seconds=cost / 1e6, fixed_length=True)
                group = []
                for backend in _BACKENDS:
                    tags: dict[str, Tag] = {"part": "takeover", "backend": backend, "n_envs": n, "step_us": cost}
                    opening = partial(open_ours, backend, factory, n)
                    group.append(Case(f"steps of {cost:g} us, {backend}, n={n}", opening, tags, _start(backend)))
                groups.append(group)
        return groups

    def _takeover(self, found: Iterator[list[Measured]], notes: Notes) -> None:
        ratios_of: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for measured in found:
            serial = measured[0]
            for one in measured[1:]:
                figure = one.ratio(serial)
                notes.figures.append(figure)
                key = str(one.case.tags["backend"]), int(one.case.tags["n_envs"])
                ratios_of.setdefault(key, []).append((float(one.case.tags["step_us"]), figure.value))
        for (backend, n), points in ratios_of.items():
            self._crossing(notes, backend, n, points)

    def _crossing(self, notes: Notes, backend: str, n: int, points: list[tuple[float, float]]) -> None:
        what = f"{backend} beats serial, n={n}: from steps of"
        cost = crossing(points)
        if cost is None:
            notes.skip(what, f"it does not up to {max(self.step_us):g} us")
            return
        kind = "at most" if cost == min(self.step_us) else "between measured costs"
        tags: dict[str, Tag] = {"part": "crossing", "backend": backend, "n_envs": n, "kind": kind}
        notes.figures.append(figure_of(what, [cost], "microseconds", **tags))


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


def _reached(one: Measured, step: float) -> Figure:
    """Of the cores, counting steps only: what resets cost is not in it."""
    return _efficiency(one.case, [rate * step / available_cores() for rate in one.rates])


def _efficiency(case: Case, shares: list[float]) -> Figure:
    return figure_of(f"{case.what}: efficiency", shares, _EFFICIENCY, **case.tags)


def _start(backend: str) -> float:
    return 0.02 if backend == "serial" else 0.2
