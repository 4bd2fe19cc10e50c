"""`stockade bench scaling`: steps per second over numbers of environments, workers and threads; who takes over when.

Efficiency is what was reached of the cores: time inside steps over the time of all cores, which is known because the
synthetic environment's steps have a known cost; for threads of the native backend, steps/s over threads x those of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from stockade.bench.backends import LOCAL_BACKENDS, PROCESS_BACKENDS, open_turn
from stockade.bench.command import BenchCommand, Notes
from stockade.bench.result import Figure, Tag, Tags
from stockade.bench.runner import Case, in_turns, rate_case
from stockade.bench.worlds import REFERENCE_STEP, WORLDS, fixed_cost
from stockade.cores import available_cores

PARTS = ("native", "n_envs", "workers", "takeover")
OF_THE_CORES = "of the cores"
_REFERENCE_US = 1e6 * REFERENCE_STEP
_WORKERS_N = 64


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

    def measure(self, notes: Notes) -> None:
        """Part by part."""
        ratios: dict[tuple[Tag, Tag], list[tuple[float, float]]] = {}
        for group in in_turns(list(self._groups()), self.rounds, notes):
            for one in group:
                tags, base = one.tags, group[0]
                if tags["part"] == "native" and one is not base:
                    share = one.over(base, 1).rounds
                    notes.figures.append(_reached(one, [ratio / int(tags["threads"]) for ratio in share]))
                elif tags.get("world") == "synthetic" or tags["part"] == "workers":
                    step = float(tags.get("step_us", _REFERENCE_US)) / 1e6
                    notes.figures.append(_reached(one, [rate * step / available_cores() for rate in one.rounds]))
                elif tags["part"] == "takeover" and one is not base:
                    notes.figures.append(one.over(base, "serial"))
                    place = tags["backend"], tags["n_envs"]
                    ratios.setdefault(place, []).append((float(tags["step_us"]), notes.figures[-1].value))
        notes.figures = [f for f in notes.figures if not f.has("steps/s", part="takeover")]  # only their ratios tell
        for (backend, n), points in ratios.items():
            self._crossing(notes, backend, n, points)

    def _groups(self) -> Iterator[list[Case]]:
        if "native" in self.parts:
            for n in self.native_n_envs:
                yield [self._case("native", {"backend": "native", "n_envs": n, "threads": threads}, copy=False,
                                  threads=threads) for threads in sorted({1, available_cores()})]  # fmt: skip
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
