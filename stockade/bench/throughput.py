"""`stockade bench throughput`: steps a second of every backend, beside what people use today.

On the built-in world and on a synthetic environment with the reference's costs; steps only, with true states before and
after each step as the first version did, and with true states that come along with the step.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

from stockade.bench.command import BenchCommand, Notes, announce, require_counts, require_known, require_seconds
from stockade.bench.figures import Tag
from stockade.bench.ours import BACKENDS, MODES, open_ours, ray_kept, why_not
from stockade.bench.peers import (
    MANY_PROCESSES,
    PEERS,
    cyborg_factory,
    open_envpool,
    open_minicage,
    open_peer,
    why_no_peer,
)
from stockade.bench.turns import Case, Measured, Turn, UnavailableError, expected_seconds, in_turns
from stockade.bench.worlds import BUILT_IN, WORLDS, Factory

_WORLDS = (*WORLDS, "CybORG", "MiniCAGE", "CartPole")
_CYBORG_LIMIT = 20


@dataclass(frozen=True)
class ThroughputBench(BenchCommand):
    """Steps a second; each case runs for a moment, with its share of resets."""

    worlds: tuple[str, ...] = _WORLDS
    """Which: built-in, synthetic (the reference's costs); if installed CybORG, MiniCAGE, and CartPole of EnvPool."""
    modes: tuple[str, ...] = ("steps only", "twice a step", "every step")
    """When true states are got."""
    backends: tuple[str, ...] = BACKENDS
    """Ours."""
    n_envs: tuple[int, ...] = (20, 50, 100, 200)
    """Numbers of environments."""
    native_n_envs: tuple[int, ...] = (1000,)
    """And of the native backend besides."""
    peers: bool = True
    """Measure other libraries too, at the smallest and the largest number of environments."""
    seconds: float = 0.25
    """Length of a round."""

    name: ClassVar[str] = "throughput"
    quick_settings: ClassVar[dict[str, object]] = {"rounds": 1, "n_envs": (10,), "seconds": 0.03}

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        require_known("--worlds", self.worlds, _WORLDS)
        require_known("--modes", self.modes, tuple(MODES))
        require_known("--backends", self.backends, BACKENDS)
        require_counts("--n-envs", self.n_envs)
        if self.native_n_envs:
            require_counts("--native-n-envs", self.native_n_envs)
        require_seconds("--seconds", self.seconds)

    def measure(self, notes: Notes) -> None:
        """Group by group; within one all have the same world, mode and number of environments."""
        groups = self._groups(notes)
        with_ray = self._ray_groups(notes) if "ray" in self.backends else []
        announce(self.name, expected_seconds([*groups, *with_ray], self.rounds, self.seconds))
        pipes: dict[tuple[Tag, ...], Measured] = {}
        for group in in_turns(groups, self.rounds, self.seconds, notes):
            notes.figures += [one.figure() for one in group]
            base = next((one for one in group if one.case.tags["backend"] == "pipes"), None)
            if base is not None:
                pipes[_place(base)] = base
                notes.figures += [one.ratio(base) for one in group if one is not base]
        if with_ray:
            self._with_ray(with_ray, pipes, notes)

    def _with_ray(self, groups: list[list[Case]], pipes: dict[tuple[Tag, ...], Measured], notes: Notes) -> None:
        """Apart from the others, which Ray's own processes would slow down."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(ray_kept())
            except Exception as error:  # what was measured so far must not be lost
                for case in (case for group in groups for case in group):
                    notes.skip(case.what, f"Ray could not be started: {error}")
                return
            for group in in_turns(groups, self.rounds, self.seconds, notes):
                for one in group:
                    notes.figures.append(one.figure())
                    if _place(one) in pipes:
                        notes.figures.append(one.ratio(pipes[_place(one)]))

    def _groups(self, notes: Notes) -> list[list[Case]]:
        groups = []
        for world in self.worlds:
            if world == "CartPole":
                groups += [[_other("EnvPool", world, n, open_envpool)] for n in self._ends()]
            elif world == "MiniCAGE":
                numbers = (*self._ends(), *self.native_n_envs)
                groups += [[_other("MiniCAGE", world, n, open_minicage)] for n in numbers]
            elif world == "CybORG":
                groups += self._cyborg(notes)
            else:
                groups += self._with_peers(world, WORLDS[world], notes)
        return [group for group in groups if group]

    def _with_peers(self, world: str, factory: Factory, notes: Notes) -> list[list[Case]]:
        groups = []
        for mode in self.modes:
            for n in self.n_envs:
                backends = tuple(backend for backend in self.backends if backend != "ray")
                group = self._ours(world, factory, mode, n, backends, notes)
                if self.peers and n in self._ends():
                    group += self._peers(world, factory, mode, n, notes)
                groups.append(group)
            if factory is BUILT_IN and "native" in self.backends:
                groups += [self._ours(world, factory, mode, n, ("native",), notes) for n in self.native_n_envs]
        return groups

    def _ray_groups(self, notes: Notes) -> list[list[Case]]:
        """Where Ray is installed: in the worlds that are ours, at the smallest and the largest number."""
        places = [(world, mode) for world in self.worlds if world in WORLDS for mode in self.modes]
        groups = [
            self._ours(world, WORLDS[world], mode, n, ("ray",), notes) for world, mode in places for n in self._ends()
        ]
        return [group for group in groups if group]

    def _ours(
        self, world: str, factory: Factory, mode: str, n: int, backends: tuple[str, ...], notes: Notes
    ) -> list[Case]:
        cases = []
        for backend in backends:
            why = why_not(backend, world, mode)
            if why:
                notes.skip(f"{world}, {mode}, {backend}", why)
                continue
            opening = functools.partial(open_ours, backend, factory, n, mode)
            start = 2.0 if backend == "ray" else 0.0 if backend in ("native", "serial") else 0.2
            what, tags = f"{world}, {mode}, {backend}, n={n}", _tags(world, mode, backend, n)
            cases.append(Case(what, opening, tags, start, foreign=backend == "ray"))
        return cases

    def _peers(self, world: str, factory: Factory, mode: str, n: int, notes: Notes) -> list[Case]:
        cases = []
        for peer in PEERS:
            why = why_no_peer(peer, mode)
            if why:
                notes.skip(f"{world}, {mode}, {peer}", why)
                continue
            opening = functools.partial(open_peer, peer, factory, n, mode)
            tags = _tags(world, mode, peer, n, "peer")
            start = 0.02 * n if peer in MANY_PROCESSES else 0.1
            cases.append(Case(f"{world}, {mode}, {peer}, n={n}", opening, tags, start, foreign=True))
        return cases

    def _cyborg(self, notes: Notes) -> list[list[Case]]:
        """The reference itself, in few environments: it takes a while to build them."""
        try:
            factory = cyborg_factory()
        except UnavailableError as error:
            notes.skip("CybORG", str(error))
            return []
        modes, n = [mode for mode in self.modes if mode != "every step"], min(_CYBORG_LIMIT, *self.n_envs)
        backends = tuple(backend for backend in self.backends if backend not in ("native", "ray"))
        return [self._ours("CybORG", factory, mode, n, backends, notes) for mode in modes]

    def _ends(self) -> tuple[int, ...]:
        return tuple(sorted({min(self.n_envs), max(self.n_envs)}))


def _other(name: str, world: str, n: int, opening: Callable[[int], AbstractContextManager[Turn]]) -> Case:
    """A simulator of its own, without a choice of backends."""
    tags = _tags(world, "steps only", name, n, "peer")
    return Case(f"{world}, {name}, n={n}", functools.partial(opening, n), tags, foreign=True)


def _place(one: Measured) -> tuple[Tag, ...]:
    """World, mode and number of environments: where cases can be compared."""
    return tuple(one.case.tags[name] for name in ("world", "mode", "n_envs"))


def _tags(world: str, mode: str, backend: str, n: int, kind: str = "ours") -> dict[str, Tag]:
    return {"world": world, "mode": mode, "backend": backend, "n_envs": n, "kind": kind}
