"""`stockade bench startup`: seconds to start and to close many workers, by start method, beside other libraries."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import gymnasium
from tqdm import tqdm

from stockade.bench.command import BenchCommand, Notes, announce, require_counts, require_known
from stockade.bench.figures import Tag, figure_of
from stockade.bench.peers import interrupts_later, no_child_left
from stockade.bench.turns import installed
from stockade.vector import SyntheticEnv, available_cores, make_vector
from stockade.vector.local.process import StartMethod

METHODS: tuple[StartMethod, ...] = ("fork", "forkserver", "spawn")
_SPAWN_SECONDS = 0.6

Start = Callable[[], Any]
"""Makes a vector environment, ready for its reset."""


@dataclass(frozen=True)
class StartupBench(BenchCommand):
    """A cheap environment in each worker, so that only processes cost time."""

    methods: tuple[str, ...] = METHODS
    """Start methods of `multiprocessing`."""
    workers: tuple[int, ...] = (2, 20, 200)
    """Numbers of worker processes; each has one environment."""
    spawn_up_to: int = 20
    """With more workers than this, `spawn` is left out: every worker imports all anew."""
    peers: bool = True
    """Measure other libraries too."""

    name: ClassVar[str] = "startup"
    quick_settings: ClassVar[dict[str, object]] = {"rounds": 1, "workers": (2,), "spawn_up_to": 2}

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        require_known("--methods", self.methods, METHODS)
        require_counts("--workers", self.workers)
        require_counts("--spawn-up-to", [self.spawn_up_to], least=0)

    def measure(self, notes: Notes) -> None:
        """Number by number, the ways in turns."""
        groups = [self._group(n, notes) for n in self.workers]
        announce(self.name, self.rounds * sum(_guess(method, n) for group in groups for _, method, n, _ in group))
        total = self.rounds * sum(map(len, groups))
        with tqdm(total=total, desc="bench startup", unit="case", disable=None) as progress, no_child_left():
            for *_, start in self._group(1, Notes(self.name)):  # a fork server and libraries are loaded once
                _start_and_close(start)
            for group in groups:
                found: list[list[tuple[float, float]]] = [[] for _ in group]
                for _ in range(self.rounds):
                    for place, (backend, method, n, start) in enumerate(group):
                        progress.set_postfix_str(f"{backend}, {method}, {n}")
                        found[place].append(_start_and_close(start))
                        progress.update()
                for (backend, method, n, _), times in zip(group, found, strict=True):
                    self._note(notes, backend, method, n, times)

    def _group(self, n: int, notes: Notes) -> list[tuple[str, str, int, Start]]:
        group: list[tuple[str, str, int, Start]] = []
        for method in METHODS:
            if method not in self.methods:
                continue
            if method == "spawn" and n > self.spawn_up_to:
                notes.skip(f"spawn, {n} workers", f"more than --spawn-up-to {self.spawn_up_to}")
                continue
            for backend in ("pipes", "shared_memory"):
                start = partial(make_vector, backend, SyntheticEnv, n, workers=n, start_method=method)
                group.append((backend, method, n, start))
        if not self.peers:
            return group
        group.append(("Gymnasium AsyncVectorEnv", "fork", n, partial(_gymnasium, n)))
        if installed("stable_baselines3"):
            group.append(("Stable-Baselines3 SubprocVecEnv", "fork", n, partial(_stable_baselines, n)))
        else:
            notes.skip("Stable-Baselines3", "it is not installed: pip install 'stockade[sb3]'")
        return group

    def _note(self, notes: Notes, backend: str, method: str, n: int, times: list[tuple[float, float]]) -> None:
        tags: dict[str, Tag] = {"backend": backend, "start_method": method, "workers": n, "n_envs": n}
        for place, part in enumerate(("start", "close")):
            values = [both[place] for both in times]
            notes.figures.append(figure_of(f"{backend}, {method}, {n} workers: {part}", values, "s", part=part, **tags))


def _start_and_close(start: Start) -> tuple[float, float]:
    begin = time.perf_counter()
    with interrupts_later():
        envs = start()
    started = time.perf_counter()
    envs.close()
    return started - begin, time.perf_counter() - started


def _gymnasium(n: int) -> Any:
    return gymnasium.vector.AsyncVectorEnv([SyntheticEnv] * n, context="fork")


def _stable_baselines(n: int) -> Any:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    return SubprocVecEnv([SyntheticEnv] * n, start_method="fork")


def _guess(method: str, n: int) -> float:
    return n * _SPAWN_SECONDS / available_cores() if method == "spawn" else 0.1 + 0.02 * n
