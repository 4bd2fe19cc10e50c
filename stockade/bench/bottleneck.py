"""`stockade bench bottleneck`: where the time of a step goes, measured inside the workers, summing to 100 %.

The time that is shared out is that of the cores a backend uses: wall time of the calls x min(workers, cores).
- environment, true states: CPU time inside the environments' own calls (clocks in the environments, `timed.py`);
- waiting for the slowest: cores without work because all their workers are done and others are not (from the moments
  at which each worker's last environment was done);
- messages: all other CPU time of workers and driver: encoding, copying, waking each other, bookkeeping;
- process management: what is left: cores that nobody used although there was work, while processes are woken and
  switched, or other programs had them.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from tqdm import tqdm

from stockade.bench.command import BenchCommand, Notes, announce, require_counts, require_known, require_seconds
from stockade.bench.figures import Tag, figure_of
from stockade.bench.ours import MODES, make_ours, why_not
from stockade.bench.peers import MANY_PROCESSES, PEERS, why_no_peer
from stockade.bench.timed import END, STEP_CPU, TRUTH_CPU, cpu_seconds, timed
from stockade.bench.turns import frozen_heap
from stockade.bench.worlds import BUILT_IN, HORIZON, WORLDS, Factory
from stockade.cores import available_cores
from stockade.errors import InputError
from stockade.vector import AsyncPoolVectorEnv

PARTS = ("environment", "true states", "messages", "waiting for the slowest", "process management")
BACKENDS = ("native", "serial", "pipes", "shared_memory", "async", "pipes, a worker each")
SHARE = "% of the time"


@dataclass
class Running:
    """An open vector environment, to be measured.

    Attributes:
        calls: of one turn: (whether it is for true states alone, the call).
        bounds: first environment of each worker, and n.
        pids: of its workers; none if it runs in this process.
        rows: of its timed environments.
        barrier: whether every call waits for all workers.
    """

    calls: list[tuple[bool, Callable[[], object]]]
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
    start: float = 0.0
    close: float = 0.0


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
        "rounds": 1,
        "modes": ("steps only", "twice a step"),
        "backends": BACKENDS[:-1],
        "n_envs": 10,
        "peers": False,
        "seconds": 0.05,
    }

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        require_known("--worlds", self.worlds, tuple(WORLDS))
        require_known("--modes", self.modes, tuple(MODES))
        require_known("--backends", self.backends, BACKENDS)
        require_counts("--n-envs", [self.n_envs])
        require_seconds("--seconds", self.seconds)
        if not os.path.exists("/proc/self/schedstat") and not hasattr(os, "eventfd"):
            raise InputError("bench bottleneck reads the CPU clocks of other processes, which only Linux offers")

    def measure(self, notes: Notes) -> None:
        """In turns: every backend of a world and mode, then again."""
        cases = list(self._cases(notes))
        announce(self.name, self.rounds * sum(2 * self.seconds + start for *_, start in cases))
        with tqdm(total=self.rounds * len(cases), desc="bench bottleneck", unit="case", disable=None) as progress:
            for world in self.worlds:
                for mode in self.modes:
                    group = [case for case in cases if case[:2] == (world, mode)]
                    found: dict[str, list[Times]] = {case[2]: [] for case in group}
                    for _ in range(self.rounds):
                        for _, _, backend, _ in group:
                            progress.set_postfix_str(f"{world}, {mode}, {backend}"[:40])
                            found[backend].append(_measure(backend, WORLDS[world], self.n_envs, mode, self.seconds))
                            progress.update()
                    for backend, rounds in found.items():
                        self._note(notes, world, mode, backend, rounds)

    def _cases(self, notes: Notes) -> Iterator[tuple[str, str, str, float]]:
        """World, mode, backend, and about how many seconds its start takes."""
        each = 0.025 * self.n_envs
        for world in self.worlds:
            for mode in self.modes:
                peers = MANY_PROCESSES if self.peers else ()
                for backend in (*self.backends, *peers):
                    why = why_no_peer(backend, mode) if backend in PEERS else why_not(backend, world, mode)
                    if why:
                        notes.skip(f"{world}, {mode}, {backend}", why)
                    else:
                        yield world, mode, backend, each if backend in peers or "each" in backend else 0.2

    def _note(self, notes: Notes, world: str, mode: str, backend: str, rounds: list[Times]) -> None:
        what = f"{world}, {mode}, {backend}"
        tags: dict[str, Tag] = {"world": world, "mode": mode, "backend": backend, "n_envs": self.n_envs}
        for part in PARTS:
            shares = [100 * times.parts[part] / sum(times.parts.values()) for times in rounds]
            notes.figures.append(figure_of(f"{what}: {part}", shares, SHARE, part=part, **tags))
        turns = [1000 * times.wall / times.turns for times in rounds]
        notes.figures.append(figure_of(f"{what}: a step of all", turns, "ms", part="total", **tags))
        if mode == "twice a step":
            asked = [100 * times.truth_wall / times.wall for times in rounds]
            figure = figure_of(f"{what}: calls for true states", asked, "% of the wall time", part="calls", **tags)
            notes.figures.append(figure)
        episodes = [_start_share(times) for times in rounds]
        notes.figures.append(
            figure_of(f"{what}: start and close", episodes, "% of an episode", part="start and close", **tags)
        )


def _start_share(times: Times) -> float:
    """Start and close, if one episode is played between them."""
    managing = times.start + times.close
    return 100 * managing / (managing + HORIZON * times.wall / times.turns)


def _measure(backend: str, factory: Factory, n: int, mode: str, seconds: float) -> Times:
    times = Times()
    begin = time.perf_counter()
    with _open(backend, factory, n, mode) as running:
        times.start = time.perf_counter() - begin
        for _ in range(5 if not running.barrier else 1):
            for _, call in running.calls:
                call()
        with frozen_heap():
            _run(running, seconds, times)
        begin = time.perf_counter()
    times.close = time.perf_counter() - begin
    return times


def _run(running: Running, seconds: float, times: Times) -> None:
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


# ------------------------------------------------------------------------------------------------------------- opening
@contextmanager
def _open(backend: str, factory: Factory, n: int, mode: str) -> Iterator[Running]:
    if backend == "native":
        with make_ours("native", factory, n) as envs:
            yield _native(envs, n, mode)
        return
    with timed(factory, n) as (timed_factory, rows):
        if backend in PEERS:
            with PEERS[backend](timed_factory, n) as envs:
                pids = [process.pid for process in envs.processes]
                ask = getattr(envs, "env_method", None) or envs.call
                calls = _calls(mode, functools.partial(envs.step, np.zeros(n, np.int64)), lambda: ask("true_state"))
                yield Running(calls, range(n + 1), pids, rows)
            return
        options: dict[str, Any] = {"workers": n} if backend.endswith("a worker each") else {}
        if factory is BUILT_IN and backend != "serial":
            options["preload"] = ("stockade.cage2.preload_fast",)
        with make_ours(backend.split(",")[0], timed_factory, n, mode, **options) as envs:
            yield _ours(envs, n, mode, rows)


def _ours(envs: Any, n: int, mode: str, rows: np.ndarray) -> Running:
    pids = getattr(envs, "worker_pids", ())
    workers = max(1, len(pids))
    bounds = [n * k // workers for k in range(workers + 1)]
    actions = envs.action_space.sample()
    if not isinstance(envs, AsyncPoolVectorEnv):
        envs.reset(seed=0)
        return Running(_calls(mode, lambda: envs.step(actions), envs.true_state), bounds, pids, rows)

    def receive_and_send() -> None:
        for _ in range(2):  # the default batch is half of the environments
            *_, infos = envs.recv()
            if mode != "steps only":
                envs.true_state()
            envs.send(actions[infos["env_id"]], infos["env_id"])

    envs.async_reset(seed=0)
    return Running([(False, receive_and_send)], bounds, pids, rows, barrier=False)


def _native(envs: Any, n: int, mode: str) -> Running:
    """No processes: the kernel's call is the environment, what is around it counts as messages."""
    rows = np.zeros((1, END + 1))
    batch, actions = envs._batch, envs.action_space.sample()
    step = batch.step

    def timed_step(*arguments: Any) -> None:
        begin = time.perf_counter()
        step(*arguments)
        rows[0, STEP_CPU] += time.perf_counter() - begin

    def timed_truth() -> None:
        begin = time.perf_counter()
        envs.true_state()
        rows[0, TRUTH_CPU] += time.perf_counter() - begin

    batch.step = timed_step
    envs.reset(seed=0)
    return Running(_calls(mode, lambda: envs.step(actions), timed_truth), (0, n), (), rows)


def _calls(mode: str, step: Callable[[], object], ask: Callable[[], object]) -> list[tuple[bool, Callable[[], object]]]:
    if mode == "steps only":
        return [(False, step)]
    if mode == "twice a step":
        return [(True, ask), (False, step), (True, ask)]
    return [(False, step), (True, ask)]
