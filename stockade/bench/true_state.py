"""`stockade bench true-state`: what it costs to know the true states: never, now and then, every step, twice a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from stockade.bench.backends import LOCAL_BACKENDS, MODES, open_turn, why_not
from stockade.bench.command import BenchCommand, Notes
from stockade.bench.result import Tags, find
from stockade.bench.runner import Case, in_turns, rate_case
from stockade.bench.worlds import WORLDS

_BACKENDS = ("native", *LOCAL_BACKENDS)


@dataclass(frozen=True)
class TrueStateBench(BenchCommand):
    """Steps per second with true states, and what they take of those without."""

    worlds: tuple[str, ...] = ("synthetic", "built-in")
    """Which: built-in, synthetic (the reference's costs)."""
    modes: tuple[str, ...] = tuple(MODES)
    """When true states are got."""
    backends: tuple[str, ...] = _BACKENDS
    """Ours."""
    n_envs: int = 100
    """Number of environments."""
    seconds: float = 0.3
    """Length of a round."""

    name: ClassVar[str] = "true-state"
    quick_settings: ClassVar[dict[str, object]] = {
        "rounds": 1, "backends": ("native", "shared_memory"), "n_envs": 10, "seconds": 0.03}  # fmt: skip
    choices: ClassVar[dict[str, Sequence[str]]] = {
        "worlds": tuple(WORLDS), "modes": tuple(MODES), "backends": _BACKENDS}  # fmt: skip

    def measure(self, notes: Notes) -> None:
        """All modes of a backend in turns."""
        groups = [[self._case(world, mode, backend) for mode in self.modes]
                  for world in self.worlds for backend in self.backends]  # fmt: skip
        for group in in_turns(groups, self.rounds, notes):
            for base in find(group, mode="steps only"):
                ratios = [one.over(base, "steps only") for one in group if one is not base]
                lost = [
                    replace(one, unit="%", rounds=tuple(100 * (1 - ratio) for ratio in one.rounds)) for one in ratios
                ]
                notes.figures += lost

    def _case(self, world: str, mode: str, backend: str) -> Case:
        tags: Tags = {"world": world, "mode": mode, "backend": backend, "n_envs": self.n_envs}
        period = MODES[mode] if isinstance(MODES[mode], int) else 1  # a round without a true state would tell nothing
        opening = partial(open_turn, backend, self.n_envs, WORLDS[world], mode)
        return rate_case(tags, opening, self.seconds, period * self.n_envs, why_not(backend, world, mode))
