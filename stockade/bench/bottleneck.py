"""`stockade bench bottleneck` and `stragglers`: where the time of a step goes, and what waiting for the slowest costs.

bottleneck: the time that is shared out, summing to 100 %, is that of the cores a backend uses: wall time of the calls x
min(workers, cores).
- environment, true states: CPU time inside the environments' own calls (`worlds.timed`);
- waiting for the slowest: cores without work because all their workers are done and others are not;
- messages: all other CPU time of workers and driver: encoding, copying, waking each other, bookkeeping;
- process management: what remains, while processes are woken and switched, or other programs had the cores.

stragglers: efficiency is the CPU time inside the environments over that of all cores; 1: no core ever waits.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from stockade.bench.backends import EACH, LOCAL, MANY_PROCESSES, MODES, PEERS, Opened, open_envs, open_turn, why_not
from stockade.bench.result import Figure, Result, ratios
from stockade.bench.runner import BenchCommand, Case, Sample, Words, frozen_heap, in_turns, option
from stockade.bench.throughput import OF_THE_CORES
from stockade.bench.worlds import BUILT_IN, END, OURS, STEP_CPU, TRUTH_CPU, WORLDS, Factory, fixed_cost, timed
from stockade.cores import available_cores
from stockade.errors import InputError

PARTS = ("environment", "true states", "messages", "waiting for the slowest", "process management")
BACKENDS = ("native", *LOCAL, f"pipes{EACH}")
STRAGGLERS = ("shared_memory", "async, batch n/2", "async, batch n/4", "Gymnasium AsyncVectorEnv")


@dataclass(frozen=True)
class BottleneckBench(BenchCommand, name="bottleneck"):
    """Where the time of a step goes."""

    worlds: Words = option(OURS, choices=OURS)  # Which: synthetic (the reference's costs), built-in.
    modes: Words = option(tuple(MODES)[:3], quick=tuple(MODES)[:2], choices=MODES)  # When true states are got.
    backends: Words = option(BACKENDS, quick=BACKENDS[:-1], choices=BACKENDS)  # Ours.
    n_envs: int = option(100, quick=10)  # Number of environments.
    peers: bool = option(True, quick=False)  # Measure other libraries that have a process for each environment too.
    seconds: float = option(0.3, quick=0.05)  # Length of a round.

    def check(self) -> None:
        super().check()
        if sys.platform != "linux":
            raise InputError("bench bottleneck reads the CPU clocks of other processes, which only Linux offers")

    def measure(self, result: Result) -> None:
        backends = (*self.backends, *(MANY_PROCESSES if self.peers else ()))
        in_turns([[Case({"world": world, "mode": mode, "backend": backend, "n_envs": self.n_envs},
                        partial(self._round, backend, WORLDS[world], mode), why_not(backend, WORLDS[world], mode),
                        foreign=backend in PEERS)
                   for backend in backends] for world, mode in product(self.worlds, self.modes)],
                 self.rounds, result)  # fmt: skip

    def _round(self, backend: str, factory: Factory, mode: str) -> Iterator[Sample]:
        with _open(backend, factory, self.n_envs, mode) as (opened, rows):
            # A turn of `async` is a batch, by default half of the environments; measured are steps of all.
            barrier = backend != "async"
            opened = opened if barrier else opened._replace(calls=opened.calls * 2)
            for _, call in opened.calls * (1 if barrier else 5):
                call()
            with frozen_heap():
                parts, wall, truth_share = _run(opened, rows, barrier, self.seconds)
        for part in PARTS:
            yield Sample("% of the time", 100 * parts[part] / sum(parts.values()), {"part": part})
        yield Sample("ms", 1000 * wall, {"part": "total"})
        if mode == "twice a step":
            yield Sample("% of the wall time", 100 * truth_share, {"part": "calls"})


def _run(opened: Opened, rows: np.ndarray, barrier: bool, seconds: float) -> tuple[dict[str, float], float, float]:
    """Core seconds of each part, wall seconds of a turn, and the share of calls for true states alone in the latter.
    `rows` are those of the timed environments, worker by worker; with a `barrier` every call waits for all workers."""
    _, calls, pids = opened
    workers = max(1, len(pids))
    starts, capacity = [len(rows) * k // workers for k in range(workers)], min(available_cores(), workers)
    before, cpu = rows.sum(axis=0), -sum(map(_cpu_seconds, pids))
    wall = truth_wall = waiting = 0.0
    turns, end = 0, time.perf_counter() + seconds
    while turns < 2 or time.perf_counter() < end:
        for for_truth, call in calls:
            cpu -= time.process_time()
            begin = time.perf_counter()
            call()
            taken = time.perf_counter() - begin
            cpu += time.process_time()
            wall += taken
            truth_wall += taken if for_truth else 0.0
            if barrier and workers > 1:
                ends = np.maximum.reduceat(rows[:, END], starts)
                waiting += idle_seconds(np.maximum(ends, begin), capacity)
        turns += 1
    cpu += sum(map(_cpu_seconds, pids))
    used = rows.sum(axis=0) - before
    parts = share_out(capacity * wall, used[STEP_CPU], used[TRUTH_CPU], waiting, cpu)
    return parts, wall / turns, truth_wall / wall


def _cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, to the nanosecond, without asking it (see `man clock_getcpuclockid`)."""
    return time.clock_gettime((~pid << 3) | 2)


def idle_seconds(ends: np.ndarray, cores: int) -> float:
    """Core time without work until the last worker was done: while as many as cores are not done, no core is idle."""
    ends = np.sort(ends)
    working = np.arange(len(ends) - 1, 0, -1)  # workers not yet done between two ends
    return float(np.sum(np.diff(ends) * np.maximum(0, cores - working)))


def share_out(total: float, environment: float, truth: float, waiting: float, cpu: float) -> dict[str, float]:
    """The core time of the calls by parts, which sum to it.

    `cpu` is all CPU time of driver and workers; that of workers that stay awake while they wait counts as waiting.
    """
    left = max(0.0, total - environment - truth)  # clocks of different processes differ by microseconds
    waiting = min(waiting, left)
    left -= waiting
    messages = min(left, max(0.0, cpu - environment - truth))
    return dict(zip(PARTS, (environment, truth, messages, waiting, left - messages), strict=True))


@contextmanager
def _open(backend: str, factory: Factory, n: int, mode: str) -> Iterator[tuple[Opened, np.ndarray]]:
    """An open vector environment, and where its environments note their times."""
    if backend == "native":
        with open_envs(backend, n, mode=mode) as opened:
            yield opened, _time_native(opened.envs)
        return
    options: dict[str, Any] = {}
    if factory is BUILT_IN and backend not in ("serial", *PEERS):
        options["preload"] = ("stockade.cage2.preload_fast",)  # as make_vec does for the built-in world
    with timed(factory, n) as (timed_factory, rows), open_envs(backend, n, timed_factory, mode, **options) as opened:
        yield opened, rows


def _time_native(envs: Any) -> np.ndarray:
    """No processes: the kernel's call is the environment, what is around it counts as messages."""
    rows = np.zeros((1, END + 1))

    def timed_call(call: Any, column: int, *arguments: Any) -> None:
        begin = time.perf_counter()
        call(*arguments)
        rows[0, column] += time.perf_counter() - begin

    envs._batch.step = partial(timed_call, envs._batch.step, STEP_CPU)
    envs.true_state = partial(timed_call, envs.true_state, TRUTH_CPU)
    return rows


# ---------------------------------------------------------------------------------------------------------- stragglers
@dataclass(frozen=True)
class StragglersBench(BenchCommand, name="stragglers"):
    """Waiting for the slowest, and not: steps of 2.2 ms on average, lognormal."""

    sigmas: tuple[float, ...] = option((0.0, 0.25, 0.5, 1.0, 1.5), quick=(0.0, 1.0), least=0.0)
    """Spreads: standard deviations of the logarithm of a step's time."""
    backends: Words = option(STRAGGLERS, quick=STRAGGLERS[:2], choices=STRAGGLERS)  # Which.
    n_envs: int = option(64, quick=16, least=4)  # Number of environments.
    step_ms: float = 2.2  # Mean time of a step, milliseconds; the default is that of the reference.
    seconds: float = option(0.8, quick=0.3)  # Length of a round.

    def measure(self, result: Result) -> None:
        groups = [[Case({"backend": backend, "sigma": sigma, "n_envs": self.n_envs},
                        partial(self._round, backend, sigma)) for backend in self.backends]
                  for sigma in self.sigmas]  # fmt: skip
        in_turns(groups, self.rounds, result)
        result.figures += ratios(result.figures, "shared_memory")
        for sigma in self.sigmas:
            for name, bound in bounds(sigma, self.n_envs, available_cores()).items():
                tags = {"kind": "bound", "backend": name, "sigma": sigma, "n_envs": self.n_envs}
                result.figures.append(Figure(tags, OF_THE_CORES, (bound,)))

    def _round(self, backend: str, sigma: float) -> list[Sample]:
        name, _, batch = backend.partition(", batch n/")
        options: dict[str, Any] = {"batch_size": self.n_envs // int(batch)} if batch else {}
        with (timed(fixed_cost(1000 * self.step_ms, sigma), self.n_envs) as (factory, rows),
              open_turn(name, self.n_envs, factory, **options) as turn):  # fmt: skip
            turn()
            begin, busy, turns = time.perf_counter(), rows[:, STEP_CPU].sum(), 0
            while turns < 2 or time.perf_counter() < begin + self.seconds:
                turn()
                turns += 1
            taken = time.perf_counter() - begin
            return [Sample(OF_THE_CORES, (rows[:, STEP_CPU].sum() - busy) / (available_cores() * taken))]


def bounds(sigma: float, n: int, cores: int) -> dict[str, float]:
    """The best efficiency that each way of waiting allows, by simulation of steps that are handed out at no cost."""
    costs = np.exp(sigma * np.random.default_rng(0).standard_normal((400, n)) - sigma**2 / 2)
    workers, total, slowest = min(cores, n), costs.sum(axis=1), costs.max(axis=1)
    shares = np.add.reduceat(costs, [n * k // workers for k in range(workers)], axis=1)
    makespans = {  # and how many cores are used
        "shared_memory": (shares.max(axis=1), workers),  # each has its share; a step ends with the last worker
        "a process each": (np.maximum(total / workers, slowest), workers),  # the cores share all environments
        "a core each": (slowest, n),
    }  # async: nobody waits
    return {way: float(total.sum() / (used * span.sum())) for way, (span, used) in makespans.items()} | {"async": 1.0}
