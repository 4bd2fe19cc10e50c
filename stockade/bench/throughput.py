"""`stockade bench throughput` and `true-state`: steps per second of every backend, beside what people use today.

On the built-in world and on a synthetic environment with the reference's costs; steps only, with true states before and
after each step as the first version did, and with true states that come along with the step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from stockade.bench.backends import LOCAL_BACKENDS, MODES, open_turn, ray_kept, why_not
from stockade.bench.command import BenchCommand, Notes
from stockade.bench.peers import PEERS, cyborg_factory, open_envpool, open_minicage
from stockade.bench.result import Tags, find
from stockade.bench.runner import Case, UnavailableError, in_turns, rate_case
from stockade.bench.worlds import WORLDS, Factory
from stockade.vector import BACKENDS

_OTHERS = {"MiniCAGE": ("MiniCAGE", open_minicage), "CartPole": ("EnvPool", open_envpool)}
"""Simulators of their own, without a choice of backends."""
_WORLDS = (*WORLDS, "CybORG", *_OTHERS)
_TRUTH_BACKENDS = ("native", *LOCAL_BACKENDS)
_CYBORG_LIMIT = 20


@dataclass(frozen=True)
class ThroughputBench(BenchCommand):
    """Steps per second; each case runs for a moment, with its share of resets."""

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
    choices: ClassVar[dict[str, Sequence[str]]] = {"worlds": _WORLDS, "modes": tuple(MODES), "backends": BACKENDS}

    def measure(self, notes: Notes) -> None:
        """Group by group; within one all have the same world, mode and number of environments.

        Ray comes last, apart from the others, which its own processes would slow down.
        """
        self._compared_with_pipes(list(self._groups(notes)), notes)
        groups = list(self._ray_groups())
        with contextlib.ExitStack() as stack:
            try:
                if any(not case.why_not for group in groups for case in group):
                    stack.enter_context(ray_kept())
            except Exception as error:  # what was measured so far must not be lost
                notes.skip("ray", f"Ray could not be started: {error}")
                return
            self._compared_with_pipes(groups, notes)

    def _compared_with_pipes(self, groups: list[list[Case]], notes: Notes) -> None:
        for group in in_turns(groups, self.rounds, notes):
            place = {name: group[0].tags[name] for name in ("world", "mode", "n_envs")} if group else {}
            base = find(notes.figures, "steps/s", backend="pipes", **place)[:1] if group else []
            notes.figures += [one.over(base[0], "pipes") for one in group if base and one is not base[0]]

    def _groups(self, notes: Notes) -> Iterator[list[Case]]:
        ours = tuple(backend for backend in self.backends if backend != "ray")
        for world in self.worlds:
            if world in _OTHERS:
                name, opening = _OTHERS[world]
                for n in (*self._ends(), *(self.native_n_envs if world == "MiniCAGE" else ())):
                    tags = _tags(world, "steps only", name, n)
                    yield [rate_case(tags, partial(opening, n), self.seconds, foreign=True)]
            elif world == "CybORG":
                yield from self._cyborg(tuple(backend for backend in ours if backend != "native"), notes)
            else:
                for mode in self.modes:
                    for n in self.n_envs:
                        peers = tuple(PEERS) if self.peers and n in self._ends() else ()
                        yield [self._case(world, mode, backend, n) for backend in (*ours, *peers)]
                    if world == "built-in" and "native" in ours:
                        yield from ([self._case(world, mode, "native", n)] for n in self.native_n_envs)

    def _cyborg(self, backends: tuple[str, ...], notes: Notes) -> Iterator[list[Case]]:
        """The reference itself, in few environments: it takes a while to build them."""
        try:
            factory = cyborg_factory()
        except UnavailableError as error:
            notes.skip("CybORG", str(error))
            return
        n = min(_CYBORG_LIMIT, *self.n_envs)
        for mode in (mode for mode in self.modes if mode != "every step"):
            yield [self._case("CybORG", mode, backend, n, factory) for backend in backends]

    def _ray_groups(self) -> Iterator[list[Case]]:
        for world in (world for world in self.worlds if world in WORLDS and "ray" in self.backends):
            for mode in self.modes:
                yield from ([self._case(world, mode, "ray", n)] for n in self._ends())

    def _case(self, world: str, mode: str, backend: str, n: int, factory: Factory | None = None) -> Case:
        opening = partial(open_turn, backend, n, factory or WORLDS[world], mode)
        foreign = backend in PEERS or backend == "ray"
        why = why_not(backend, world, mode)
        return rate_case(_tags(world, mode, backend, n), opening, self.seconds, why_not=why, foreign=foreign)

    def _ends(self) -> tuple[int, ...]:
        return tuple(sorted({min(self.n_envs), max(self.n_envs)}))


@dataclass(frozen=True)
class TrueStateBench(BenchCommand):
    """Steps per second with true states, and what they take of those without."""

    worlds: tuple[str, ...] = ("synthetic", "built-in")
    """Which: built-in, synthetic (the reference's costs)."""
    modes: tuple[str, ...] = tuple(MODES)
    """When true states are got."""
    backends: tuple[str, ...] = _TRUTH_BACKENDS
    """Ours."""
    n_envs: int = 100
    """Number of environments."""
    seconds: float = 0.3
    """Length of a round."""

    name: ClassVar[str] = "true-state"
    quick_settings: ClassVar[dict[str, object]] = {
        "rounds": 1, "backends": ("native", "shared_memory"), "n_envs": 10, "seconds": 0.03}  # fmt: skip
    choices: ClassVar[dict[str, Sequence[str]]] = {
        "worlds": tuple(WORLDS), "modes": tuple(MODES), "backends": _TRUTH_BACKENDS}  # fmt: skip

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
        period = MODES[mode] if isinstance(MODES[mode], int) else 1  # a round without a true state would tell nothing
        opening = partial(open_turn, backend, self.n_envs, WORLDS[world], mode)
        tags, why = _tags(world, mode, backend, self.n_envs), why_not(backend, world, mode)
        return rate_case(tags, opening, self.seconds, period * self.n_envs, why)


def _tags(world: str, mode: str, backend: str, n: int) -> Tags:
    return {"world": world, "mode": mode, "backend": backend, "n_envs": n}
