"""`stockade bench memory` and `startup`: what environments and worker processes weigh, and how long they take to start.

memory: a fresh process for each case (`python -m stockade.bench.footprint BACKEND N`) -> what it and its workers weigh.
Memory of processes is PSS, in which a page that several share counts a part for each, so that sums are right. A fresh
process per round, because one that has freed memory takes it again without growing.
"""

import contextlib
import ctypes
import gc
import json as jsonlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import stockade
from stockade.bench.backends import EACH, MANY_PROCESSES, PEERS, interrupts_later, no_child_left, open_envs, why_not
from stockade.bench.result import Figure, Result
from stockade.bench.runner import BenchCommand, Case, Sample, in_turns, option
from stockade.cage2.state import WORLD, ledger_dtype
from stockade.errors import InputError
from stockade.vector import SyntheticEnv

OURS = ("native", "serial", "pipes", "shared_memory", f"pipes{EACH}", f"shared_memory{EACH}")
_METHODS = ("fork", "forkserver", "spawn")
WORLD_BYTES = {"fast": WORLD.itemsize, "cyborg": WORLD.itemsize + ledger_dtype(100).itemsize}
"""The record of a world, and the ledger that the reference's chance needs besides."""


@dataclass(frozen=True)
class MemoryBench(BenchCommand):
    """What worlds and workers weigh: built-in worlds, reset and stepped once."""

    rounds: int = option(2, quick=1)  # Rounds of each case, each in a fresh process; memory hardly varies.
    n_envs: tuple[int, ...] = option((25, 50, 100, 200, 1000), quick=(10,))  # Numbers of environments.
    processes: int = option(200, least=0)
    """With more environments than this, ways that have a process for each are left out."""
    native_worlds: int = option(100_000, least=1000)  # Worlds of the native backend, to measure what one takes.
    peers: bool = option(True, quick=False)  # Measure other libraries too.

    name = "memory"

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
    """In this process, after a first use: what that loads is not the environments' weight.

    A world in this process comes first, so that forked workers share the compiled code, whoever forks them.
    """
    for used in dict.fromkeys(("serial", backend)):
        with open_envs(used, 2) as opened:
            _step(opened.envs, 2)
    gc.collect()
    with contextlib.suppress(AttributeError):  # only glibc has it; gives pages back that imports have freed
        ctypes.CDLL(None).malloc_trim(0)
    before = _pss_mib(os.getpid())
    with open_envs(backend, n) as opened:
        kept = _step(opened.envs, n)
        workers = [_pss_mib(pid) for pid in opened.pids]
        growth = _pss_mib(os.getpid()) - before
        del kept  # until now: what a step returned counts too
    return workers, growth


def _step(envs: Any, n: int) -> Any:
    return envs.step(envs.action_space.sample() if hasattr(envs.action_space, "nvec") else [0] * n)


def _pss_mib(pid: int) -> float:
    """Proportional set size of a process."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(rollup.partition("\nPss:")[2].split()[0]) / 1024


# ------------------------------------------------------------------------------------------------------------- startup
@dataclass(frozen=True)
class StartupBench(BenchCommand):
    """Seconds to start and close workers, each with a cheap environment."""

    methods: tuple[str, ...] = option(_METHODS, choices=_METHODS)  # Start methods of `multiprocessing`.
    workers: tuple[int, ...] = option((2, 20, 200), quick=(2,))  # Numbers of worker processes, an environment each.
    spawn_up_to: int = option(20, quick=2, least=0)
    """With more workers than this, `spawn` is left out: every worker imports all anew."""
    peers: bool = True  # Measure other libraries too.

    name = "startup"

    def measure(self, result: Result) -> None:
        with no_child_left():
            in_turns([list(self._group(1))], 1, Result())  # a fork server and libraries are loaded once
            in_turns([list(self._group(n)) for n in self.workers], self.rounds, result)

    def _group(self, n: int) -> Iterator[Case]:
        for method, backend in product(dict.fromkeys(self.methods), ("pipes", "shared_memory")):
            start = partial(stockade.make_vec, n, backend, env=SyntheticEnv, workers=n, start_method=method)
            many = method == "spawn" and n > self.spawn_up_to
            yield _start_case(backend, method, n, start, f"more than --spawn-up-to {self.spawn_up_to}" * many)
        for peer in MANY_PROCESSES if self.peers else ():
            yield _start_case(peer, "fork", n, partial(PEERS[peer], SyntheticEnv, n), why_not(peer))


def _start_case(backend: str, method: str, n: int, start: Callable[[], Any], why: str) -> Case:
    def round_() -> list[Sample]:
        begin = time.perf_counter()
        with interrupts_later():
            envs = start()
        started = time.perf_counter()
        envs.close()
        closed = time.perf_counter()
        return [Sample("s", started - begin, {"part": "start"}), Sample("s", closed - started, {"part": "close"})]

    return Case({"backend": backend, "start_method": method, "workers": n, "n_envs": n}, round_, why)


if __name__ == "__main__":
    print(jsonlib.dumps(_weigh_here(sys.argv[1], int(sys.argv[2]))))
