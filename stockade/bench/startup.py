"""`stockade bench startup`: seconds to start and to close many workers, by start method, beside other libraries."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import stockade
from stockade.bench.command import BenchCommand, Notes
from stockade.bench.peers import MANY_PROCESSES, PEERS, interrupts_later, no_child_left, why_no_peer
from stockade.bench.runner import Case, Sample, in_turns
from stockade.vector import SyntheticEnv

METHODS = ("fork", "forkserver", "spawn")


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
    choices: ClassVar[dict[str, Sequence[str]]] = {"methods": METHODS}
    least: ClassVar[dict[str, float]] = {"spawn_up_to": 0}

    def measure(self, notes: Notes) -> None:
        """Number by number, the ways in turns."""
        with no_child_left():
            in_turns([self._group(1)], 1, Notes())  # a fork server and libraries are loaded once
            in_turns([self._group(n) for n in self.workers], self.rounds, notes)

    def _group(self, n: int) -> list[Case]:
        group = []
        for method in (method for method in METHODS if method in self.methods):
            many = method == "spawn" and n > self.spawn_up_to
            for backend in ("pipes", "shared_memory"):
                start = partial(stockade.make_vec, n, backend, env=SyntheticEnv, workers=n, start_method=method)
                group.append(_case(backend, method, n, start, f"more than --spawn-up-to {self.spawn_up_to}" * many))
        for peer in MANY_PROCESSES if self.peers else ():
            group.append(_case(peer, "fork", n, partial(PEERS[peer], SyntheticEnv, n), why_no_peer(peer)))
        return group


def _case(backend: str, method: str, n: int, start: Callable[[], Any], why: str) -> Case:
    tags = {"backend": backend, "start_method": method, "workers": n, "n_envs": n}
    return Case(tags, partial(_start_and_close, start), why)


def _start_and_close(start: Callable[[], Any]) -> list[Sample]:
    begin = time.perf_counter()
    with interrupts_later():
        envs = start()
    started = time.perf_counter()
    envs.close()
    closed = time.perf_counter()
    return [Sample("s", started - begin, {"part": "start"}), Sample("s", closed - started, {"part": "close"})]
