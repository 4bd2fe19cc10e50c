"""`stockade bench bottleneck`: where the time of a step goes, measured inside the workers, summing to 100 %.

The time that is shared out is that of the cores a backend uses: wall time of the calls x min(workers, cores).
- environment, true states: CPU time inside the environments' own calls (clocks in the environments, `timed.py`);
- waiting for the slowest: cores without work because all their workers are done and others are not (from the moments
  at which each worker's last environment was done);
- messages: all other CPU time of workers and driver: encoding, copying, waking each other, bookkeeping;
- process management: what remains: cores that nobody used although there was work, while processes are woken and
  switched, or other programs had them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from stockade.bench.backends import EACH, LOCAL_BACKENDS, MODES, Calls, calls_of, open_envs, why_not, worker_pids
from stockade.bench.command import BenchCommand, Notes
from stockade.bench.peers import MANY_PROCESSES, PEERS
from stockade.bench.runner import Case, Sample, frozen_heap, in_turns
from stockade.bench.timed import END, STEP_CPU, TRUTH_CPU, cpu_seconds, timed
from stockade.bench.worlds import BUILT_IN, HORIZON, WORLDS, Factory
from stockade.cores import available_cores
from stockade.errors import InputError

PARTS = ("environment", "true states", "messages", "waiting for the slowest", "process management")
BACKENDS = ("native", *LOCAL_BACKENDS, f"pipes{EACH}")
SHARE = "% of the time"


@dataclass
class Running:
    """An open vector environment, to be measured.

    Attributes:
        calls: of one turn.
        bounds: first environment of each worker, and n.
        pids: of its workers; none if it runs in this process.
        rows: of its timed environments.
        barrier: whether every call waits for all workers.
    """

    calls: Calls
    bounds: Sequence[int]
    pids: Sequence[int]
    rows: np.ndarray
    barrier: bool = True


@dataclass
class Times:
    """Seconds of one round."""

    parts: dict[str, float] = field(default_factory=dict)
    wall: float = 0.0
    truth_wall: float = 0.0
    turns: int = 0


@dataclass(frozen=True)
class BottleneckBench(BenchCommand):
    """Shares of the time of a step, for each backend."""

    worlds: tuple[str, ...] = ("synthetic", "built-in")
    """Which: built-in, synthetic (the reference's costs)."""
    modes: tuple[str, ...] = ("steps only", "twice a step", "every step")
    """When true states are got."""
    backends: tuple[str, ...] = BACKENDS
    """Ours."""
    n_envs: int = 100
    """Number of environments."""
    peers: bool = True
    """Measure other libraries' vector environments with a process for each environment too."""
    seconds: float = 0.3
    """Length of a round."""

    name: ClassVar[str] = "bottleneck"
    quick_settings: ClassVar[dict[str, object]] = {
        "rounds": 1, "modes": ("steps only", "twice a step"), "backends": BACKENDS[:-1], "n_envs": 10, "peers": False,
        "seconds": 0.05}  # fmt: skip
    choices: ClassVar[dict[str, Sequence[str]]] = {
        "worlds": tuple(WORLDS), "modes": tuple(MODES), "backends": BACKENDS}  # fmt: skip

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        if not os.path.exists("/proc/self/schedstat") and not hasattr(os, "eventfd"):
            raise InputError("bench bottleneck reads the CPU clocks of other processes, which only Linux offers")

    def measure(self, notes: Notes) -> None:
        """In turns: every backend of a world and mode, then again."""
        backends = (*self.backends, *(MANY_PROCESSES if self.peers else ()))
        in_turns([[Case({"world": world, "mode": mode, "backend": backend, "n_envs": self.n_envs},
                           partial(self._round, backend, WORLDS[world], mode), why_not(backend, world, mode))
                      for backend in backends] for world in self.worlds for mode in self.modes],
                    self.rounds, notes)  # fmt: skip

    def _round(self, backend: str, factory: Factory, mode: str) -> Iterator[Sample]:
        begin = time.perf_counter()
        with _open(backend, factory, self.n_envs, mode) as running:
            managing = time.perf_counter() - begin
            for _ in range(1 if running.barrier else 5):
                for _, call in running.calls:
                    call()
            with frozen_heap():
                times = _run(running, self.seconds)
            begin = time.perf_counter()
        managing += time.perf_counter() - begin
        for part in PARTS:
            yield Sample(SHARE, 100 * times.parts[part] / sum(times.parts.values()), {"part": part})
        yield Sample("ms", 1000 * times.wall / times.turns, {"part": "total"})
        if mode == "twice a step":
            yield Sample("% of the wall time", 100 * times.truth_wall / times.wall, {"part": "calls"})
        episode = managing + HORIZON * times.wall / times.turns  # if one is played between start and close
        yield Sample("% of an episode", 100 * managing / episode, {"part": "start and close"})


def _run(running: Running, seconds: float) -> Times:
    times = Times()
    capacity = min(available_cores(), max(1, len(running.pids)))
    before = running.rows.sum(axis=0)
    cpu = -sum(cpu_seconds(pid) for pid in running.pids)
    waiting, end = 0.0, time.perf_counter() + seconds
    while times.turns < 2 or time.perf_counter() < end:
        for for_truth, call in running.calls:
            cpu -= time.process_time()
            begin = time.perf_counter()
            call()
            taken = time.perf_counter() - begin
            cpu += time.process_time()
            times.wall += taken
            times.truth_wall += taken if for_truth else 0.0
            if running.barrier and len(running.bounds) > 2:
                ends = np.maximum.reduceat(running.rows[:, END], running.bounds[:-1])
                waiting += idle_seconds(np.maximum(ends, begin), capacity)
        times.turns += 1
    cpu += sum(cpu_seconds(pid) for pid in running.pids)
    used = running.rows.sum(axis=0) - before
    times.parts = share_out(capacity * times.wall, used[STEP_CPU], used[TRUTH_CPU], waiting, cpu)
    return times


def idle_seconds(ends: np.ndarray, cores: int) -> float:
    """Core time without work until the last worker was done.

    Args:
        ends: when each worker was done.
        cores: that they share; while at least so many are not done, no core is idle.
    """
    ends = np.sort(ends)
    working = np.arange(len(ends) - 1, 0, -1)  # workers not yet done between two ends
    return float(np.sum(np.diff(ends) * np.maximum(0, cores - working)))


def share_out(total: float, environment: float, truth: float, waiting: float, cpu: float) -> dict[str, float]:
    """The time of the cores by parts, which sum to it.

    Args:
        total: core time of the calls.
        environment, truth: CPU time inside environments.
        waiting: cores without work until the slowest was done.
        cpu: all CPU time of driver and workers; that of a worker that stays awake while it waits counts as waiting.
    """
    left = max(0.0, total - environment - truth)  # clocks of different processes differ by microseconds
    waiting = min(waiting, left)
    left -= waiting
    messages = min(left, max(0.0, cpu - environment - truth))
    return dict(zip(PARTS, (environment, truth, messages, waiting, left - messages), strict=True))


@contextmanager
def _open(backend: str, factory: Factory, n: int, mode: str) -> Iterator[Running]:
    if backend == "native":
        with open_envs(backend, n) as envs:
            yield _native(envs, n, mode)
        return
    options: dict[str, Any] = {}
    if factory is BUILT_IN and backend not in ("serial", *PEERS):
        options["preload"] = ("stockade.cage2.preload_fast",)  # as make_vec does for the built-in world
    with timed(factory, n) as (timed_factory, rows), open_envs(backend, n, timed_factory, mode, **options) as envs:
        pids, calls = worker_pids(envs), calls_of(envs, backend, n, mode)
        bounds = [n * k // max(1, len(pids)) for k in range(max(1, len(pids)) + 1)]
        # A turn of `async` is a batch, by default half of the environments; measured are steps of all.
        yield Running(calls * 2 if backend == "async" else calls, bounds, pids, rows, barrier=backend != "async")


def _native(envs: Any, n: int, mode: str) -> Running:
    """No processes: the kernel's call is the environment, what is around it counts as messages."""
    rows = np.zeros((1, END + 1))
    step, truth = envs._batch.step, envs.true_state

    def timed_call(call: Any, column: int, *arguments: Any) -> None:
        begin = time.perf_counter()
        call(*arguments)
        rows[0, column] += time.perf_counter() - begin

    envs._batch.step = partial(timed_call, step, STEP_CPU)
    envs.true_state = partial(timed_call, truth, TRUTH_CPU)
    return Running(calls_of(envs, "native", n, mode), (0, n), (), rows)
