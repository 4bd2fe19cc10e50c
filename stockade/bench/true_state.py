"""`stockade bench true-state`: what it costs to know the true states: never, now and then, every step, twice a step."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

from stockade.bench.command import BenchCommand, Notes, announce, require_counts, require_known, require_seconds
from stockade.bench.figures import Tag, figure_of, ratios
from stockade.bench.ours import MODES, open_ours, why_not
from stockade.bench.turns import Case, expected_seconds, in_turns
from stockade.bench.worlds import WORLDS

BACKENDS = ("native", "serial", "pipes", "shared_memory", "async")


@dataclass(frozen=True)
class TrueStateBench(BenchCommand):
    """Steps a second with true states, and what they take of those without."""

    worlds: tuple[str, ...] = ("synthetic", "built-in")
    """Which: built-in, synthetic (the reference's costs)."""
    modes: tuple[str, ...] = tuple(MODES)
    """When true states are got."""
    backends: tuple[str, ...] = BACKENDS
    """Ours."""
    n_envs: int = 100
    """Number of environments."""
    seconds: float = 0.3
    """Length of a round."""

    name: ClassVar[str] = "true-state"
    quick_settings: ClassVar[dict[str, object]] = {
        "rounds": 1,
        "backends": ("native", "shared_memory"),
        "n_envs": 10,
        "seconds": 0.03,
    }

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        require_known("--worlds", self.worlds, tuple(WORLDS))
        require_known("--modes", self.modes, tuple(MODES))
        require_known("--backends", self.backends, BACKENDS)
        require_counts("--n-envs", [self.n_envs])
        require_seconds("--seconds", self.seconds)

    def measure(self, notes: Notes) -> None:
        """All modes of a backend in turns."""
        groups = [self._group(world, backend, notes) for world in self.worlds for backend in self.backends]
        announce(self.name, expected_seconds(groups, self.rounds, self.seconds))
        for group in in_turns([group for group in groups if group], self.rounds, self.seconds, notes):
            base = next((one for one in group if one.case.tags["mode"] == "steps only"), None)
            for one in group:
                notes.figures.append(one.figure())
                if base is not None and one is not base:
                    costs = [100 * (1 - ratio) for ratio in ratios(one.rates, base.rates)]
                    tags: dict[str, Tag] = {**one.case.tags, "to": "steps only"}
                    notes.figures.append(figure_of(f"{one.case.what}: cost", costs, "%", **tags))

    def _group(self, world: str, backend: str, notes: Notes) -> list[Case]:
        cases = []
        for mode in self.modes:
            what = f"{world}, {backend}, {mode}"
            why = why_not(backend, world, mode)
            if why:
                notes.skip(what, why)
                continue
            tags: dict[str, Tag] = {"world": world, "mode": mode, "backend": backend, "n_envs": self.n_envs}
            opening = functools.partial(open_ours, backend, WORLDS[world], self.n_envs, mode)
            rule = MODES[mode]
            period = rule if isinstance(rule, int) else 1  # a round that ends before the first state tells nothing
            cases.append(Case(what, opening, tags, least=period * self.n_envs))
        return cases
