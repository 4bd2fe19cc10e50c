"""`stockade bench kernel`, `memory` and `startup`: how fast the world is, what it and workers weigh, how they start.

kernel: random actions from a prepared array, 100-step episodes with resets, by `make_vec`. memory: PSS, in which a page
that several processes share counts a part for each, so that sums are right, of a fresh process per round and its
workers (`python -m stockade.bench.footprint BACKEND N`), because one that has freed memory takes it again without
growing.
"""

import contextlib
import ctypes
import gc
import importlib
import json as jsonlib
import os
import runpy
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import stockade
from stockade.bench.backends import EACH, MANY_PROCESSES, PEERS, no_child_left, open_envs, why_not
from stockade.bench.result import Figure, Result, find
from stockade.bench.runner import BenchCommand, Case, Numbers, Sample, Words, in_turns, option
from stockade.bench.worlds import HORIZON
from stockade.cage2.actions import N_ACTIONS
from stockade.cage2.state import WORLD, ledger_dtype
from stockade.cage2.variants import RED_ALIASES
from stockade.errors import InputError
from stockade.vector import SyntheticEnv
from stockade.vector.local.machine import interrupts_held

OURS = ("native", "serial", "pipes", "shared_memory", f"pipes{EACH}", f"shared_memory{EACH}")
_REDS, _THREADS = ("bline", "meander"), {"fast, 1 thread": 1, "fast, 2 threads": 2}
_METHODS = ("fork", "forkserver", "spawn")
WORLD_BYTES = {"fast": WORLD.itemsize, "cyborg": WORLD.itemsize + ledger_dtype(100).itemsize}
"""The record of a world, and the ledger that the reference's chance needs besides."""
_START = """
import time; begin = time.perf_counter()
import stockade
envs = stockade.make_vec(8); envs.reset(seed=0); envs.step(envs.action_space.sample())
print(time.perf_counter() - begin)
"""


@dataclass(frozen=True)
class KernelBench(BenchCommand, name="kernel"):
    """The world's speed, memory and start."""

    rounds: int = option(7, quick=2)  # Rounds of each case; quick also leaves out the first start, which compiles.
    n_envs: int = 1024  # Worlds of a batch.
    model: Path | None = None
    """Compare with this slow model: a Python file with `Env(red)`, `reset(seed)`, `step(action)`, where red is the
    reference's class name. Default: the one in tests/oracle of a checkout."""

    def check(self) -> None:
        super().check()
        if self.model is not None and not self.model.is_file():
            raise InputError(f"--model {self.model}: no such Python file")

    def measure(self, result: Result) -> None:
        scaling = [[self._scaling(10**k)] for k in range(3, 6 if self.quick else 7)]
        start = [_case("start with compiled code cached", "seconds", _start_seconds)]
        group, *_ = in_turns([[*self._worlds()], [*self._calls()], *scaling, start], self.rounds, result)
        for red in _REDS:
            (one,), (two,), model = (find(group, case=f"{red}, {how}") for how in (*_THREADS, "slow model"))
            result.figures.append(two.over(one, case=f"{red}, 2 threads to 1"))
            result.figures += [one.over(slow, case=f"{red}, fast to slow model") for slow in model]
        result.figures += [Figure({"case": f"memory of a world, {chance}"}, "bytes", (float(size),))
                           for chance, size in WORLD_BYTES.items()]  # fmt: skip
        if not self.quick:
            with tempfile.TemporaryDirectory() as empty:
                call = partial(_start_seconds, NUMBA_CACHE_DIR=empty)
                in_turns([[_case("first start, compiling", "seconds", call)]], 1, result)

    def _worlds(self) -> Iterator[Case]:
        """Batches, and a readable Python model of the same rules."""
        steps, unit = 100 if self.quick else 1000, "million steps/s"
        for red in _REDS:
            for name, threads in _THREADS.items():
                rate = world_rate(self.n_envs, steps, red=red, chance="fast", threads=threads)
                yield _case(f"{red}, {name}", unit, rate, 1e-6)
            rate = world_rate(self.n_envs, steps // 5, red=red, chance="cyborg", threads=1)
            yield _case(f"{red}, cyborg, 1 thread", unit, rate, 1e-6)
            if (model := _slow_model(red, self.model)) is None:
                yield Case({"case": "slow model"}, list, "it is in tests/oracle: run this in a checkout to see it")
            else:
                yield _case(f"{red}, slow model", unit, partial(_rate, model, model.reset, 20), 1e-6)

    def _calls(self) -> Iterator[Case]:
        """What a user's loop gets: one environment, the vector environment with true states, snapshots."""
        for name, info in (("one environment (Gymnasium Env)", True), ("one environment, info=False", False)):
            yield _case(name, "thousand steps/s", partial(_env_rate, info, 5 if self.quick else 100), 1e-3)
        envs: Any = stockade.make_vec(self.n_envs, threads=1)
        envs.reset(seed=0)
        actions = envs.action_space.sample()
        step = partial(_microseconds, lambda: envs.step(actions))
        truth = partial(_microseconds, lambda: envs.true_state().red_access)
        yield _case(f"vector environment, n={self.n_envs}", "million steps/s", lambda: self.n_envs / step())
        yield _case("true_state() each step adds", "%", lambda: 100 * truth() / step())
        for chance in ("fast", "cyborg"):
            few: Any = stockade.make_vec(16, chance=chance)
            few.reset(seed=0)
            for name, call in (("snapshot", few.snapshot), ("restore", partial(few.restore, few.snapshot(3)))):
                yield _case(f"{name} of one world, {chance}", "microseconds", partial(_microseconds, partial(call, 3)))

    def _scaling(self, n: int) -> Case:
        rate = world_rate(n, max(5, 1_000_000 // n), threads=1)
        return _case(f"a step of a world, n={n:,}", "nanoseconds", lambda: 1e9 / rate())


def _case(name: str, unit: str, call: Callable[[], float], factor: float = 1.0) -> Case:
    return Case({"case": name}, lambda: [Sample(unit, factor * call())])


def world_rate(n: int, steps: int, **options: Any) -> Callable[[], float]:
    """A call that plays so many steps of `n` worlds, with resets, and gives steps per second."""
    envs = stockade.make_vec(n, copy=False, **options)
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, N_ACTIONS, (steps, n))

    def rate() -> float:
        begin = time.perf_counter()
        for chosen in actions:
            envs.step(chosen)
        return n * steps / (time.perf_counter() - begin)

    rate()  # so that nothing is compiled while the clock runs
    return rate


def _slow_model(red: str, path: Path | None) -> Any:
    """The readable model of `--model`, or that of a checkout; None if there is none."""
    if path is not None:
        return runpy.run_path(str(path))["Env"](next(alias for alias, name in RED_ALIASES.items() if name == red))
    try:
        return importlib.import_module("tests.oracle.model").ReferenceModel(red)
    except ImportError:
        return None


def _env_rate(info: bool, episodes: int) -> float:
    env = stockade.make("bline", HORIZON, info=info)
    env.reset(seed=0)
    return _rate(env, lambda _: env.reset(), episodes)


def _rate(env: Any, reset: Callable[[int], Any], episodes: int) -> float:
    """Steps per second of one environment, resets included."""
    actions = np.random.default_rng(0).integers(0, N_ACTIONS, HORIZON).tolist()
    begin = time.perf_counter()
    for episode in range(episodes):
        reset(episode)
        for action in actions:
            env.step(action)
    return episodes * HORIZON / (time.perf_counter() - begin)


def _microseconds(call: Callable[[], Any], times: int = 2000) -> float:
    return timeit.timeit(call, "gc.enable()", number=times) / times * 1e6  # with garbage collection, as users have it


def _start_seconds(**environment: str) -> float:
    command, variables = [sys.executable, "-c", _START], {**os.environ, **environment}
    return float(subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout)


@dataclass(frozen=True)
class MemoryBench(BenchCommand, name="memory"):
    """What worlds and workers weigh: built-in worlds, reset and stepped once."""

    rounds: int = option(2, quick=1)  # Rounds of each case, each in a fresh process; memory hardly varies.
    n_envs: Numbers = option((25, 50, 100, 200, 1000), quick=(10,))  # Numbers of environments.
    processes: int = option(200, least=0)  # With more environments, ways that have a process for each are left out.
    native_worlds: int = option(100_000, least=1000)  # Worlds of the native backend, to measure what one takes.
    peers: bool = option(True, quick=False)  # Measure other libraries too.

    def check(self) -> None:
        super().check()
        if not Path("/proc/self/smaps_rollup").exists():
            raise InputError("bench memory reads /proc/PID/smaps_rollup, which only Linux has")

    def measure(self, result: Result) -> None:
        """Case by case, then what one native world takes: its record, and what a process really grows by."""
        backends, of_world = (*OURS, *(PEERS if self.peers else ())), {"backend": "native", "part": "a world"}
        n = self.native_worlds
        world = Case({**of_world, "chance": "fast", "n_envs": n},
                     lambda: [Sample("bytes", weigh("native", n)[1] * 2**20 / n)])  # fmt: skip
        groups = [[self._case(backend, n) for backend in backends] for n in self.n_envs]
        in_turns([*groups, [world]], self.rounds, result)
        result.figures += [Figure({**of_world, "chance": chance, "n_envs": 1}, "bytes", (float(size),))
                           for chance, size in WORLD_BYTES.items()]  # fmt: skip

    def _case(self, backend: str, n: int) -> Case:
        many = n > self.processes and (backend.endswith(EACH) or backend in MANY_PROCESSES)
        why = why_not(backend) or f"more than --processes {self.processes}" * many
        return Case({"backend": backend, "n_envs": n}, partial(self._round, backend, n), why, foreign=backend in PEERS)

    def _round(self, backend: str, n: int) -> Iterator[Sample]:
        workers, growth = weigh(backend, n)
        parts = {"a worker": sum(workers) / len(workers), "all workers": sum(workers)} if workers else {}
        for part, weight in {**parts, "main process": growth, "all": sum(workers) + growth}.items():
            yield Sample("MiB", weight, {"workers": len(workers), "part": part})


def weigh(backend: str, n: int) -> tuple[list[float], float]:
    """PSS of each worker, and what a fresh process grew by that opened `n` environments, in MiB."""
    command = [sys.executable, "-m", "stockade.bench.footprint", backend, str(n)]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        raise RuntimeError(f"{backend}, n={n}: exit code {answer.returncode}: {answer.stderr.strip()[-500:]}")
    workers, growth = jsonlib.loads(answer.stdout.splitlines()[-1])
    return workers, growth


def _weigh_here(backend: str, n: int) -> tuple[list[float], float]:
    """In this process, after a first use, for what that loads is not the environments' weight; first a world in this
    process, so that forked workers share the compiled code, whoever forks them."""
    for used in dict.fromkeys(("serial", backend)):
        with open_envs(used, 2) as opened:
            opened.step()
    gc.collect()
    with contextlib.suppress(AttributeError):  # only glibc has it; gives pages back that imports have freed
        ctypes.CDLL(None).malloc_trim(0)
    before = _pss_mib(os.getpid())
    with open_envs(backend, n) as opened:
        kept = opened.step()
        workers = [_pss_mib(pid) for pid in opened.pids]
        growth = _pss_mib(os.getpid()) - before
        del kept  # until now: what a step returned counts too
    return workers, growth


def _pss_mib(pid: int) -> float:
    """Proportional set size of a process."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("\nPss:")[2].split()[0]) / 1024


@dataclass(frozen=True)
class StartupBench(BenchCommand, name="startup"):
    """Seconds to start and close workers, each with a cheap environment."""

    methods: Words = option(_METHODS, choices=_METHODS)  # Start methods of `multiprocessing`.
    workers: Numbers = option((2, 20, 200), quick=(2,))  # Numbers of worker processes, an environment each.
    spawn_up_to: int = option(20, quick=2, least=0)  # With more workers `spawn`, which imports all anew, is left out.
    peers: bool = True  # Measure other libraries too.

    def measure(self, result: Result) -> None:
        with no_child_left():
            in_turns([list(self._group(1))], 1, Result())  # a fork server and libraries are loaded once
            in_turns([list(self._group(n)) for n in self.workers], self.rounds, result)

    def _group(self, n: int) -> Iterator[Case]:
        for method, backend in product(dict.fromkeys(self.methods), ("pipes", "shared_memory")):
            start = partial(stockade.make_vec, n, backend, env=SyntheticEnv, workers=n, start_method=method)
            many = method == "spawn" and n > self.spawn_up_to
            tags = {"backend": backend, "start_method": method, "workers": n, "n_envs": n}
            yield Case(tags, partial(_start_and_close, start), f"more than --spawn-up-to {self.spawn_up_to}" * many)
        for peer in MANY_PROCESSES if self.peers else ():
            start, tags = partial(PEERS[peer], SyntheticEnv, n), {**tags, "backend": peer, "start_method": "fork"}
            yield Case(tags, partial(_start_and_close, start), why_not(peer), foreign=True)


def _start_and_close(start: Callable[[], Any]) -> Iterator[Sample]:
    begin = time.perf_counter()
    with interrupts_held():
        envs = start()
    started = time.perf_counter()
    envs.close()
    yield Sample("s", started - begin, {"part": "start"})
    yield Sample("s", time.perf_counter() - started, {"part": "close"})


if __name__ == "__main__":
    print(jsonlib.dumps(_weigh_here(sys.argv[1], int(sys.argv[2]))))
