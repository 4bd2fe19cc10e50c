"""`stockade bench memory`: what environments weigh: native worlds, worker processes, and other libraries' processes.

for each case: a fresh process (`python -m stockade.bench.footprint BACKEND N`) -> what it and its workers weigh

Memory of processes is PSS, in which a page that several share counts a part for each, so that sums are right. A fresh
process per round, because one that has freed memory takes it again without growing.
"""

from __future__ import annotations

import ctypes
import gc
import json as jsonlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from stockade.bench.backends import EACH, open_envs, why_not, worker_pids
from stockade.bench.command import BenchCommand, Notes
from stockade.bench.peers import MANY_PROCESSES, PEERS
from stockade.bench.result import Figure
from stockade.bench.runner import Case, Sample, in_turns
from stockade.cage2.state import WORLD, ledger_dtype
from stockade.errors import InputError

_MIB = 2**20
OURS = ("native", "serial", "pipes", "shared_memory", f"pipes{EACH}", f"shared_memory{EACH}")


@dataclass(frozen=True)
class MemoryBench(BenchCommand):
    """Built-in worlds, reset and stepped once."""

    rounds: int = 2
    """Rounds of each case, each in a fresh process; memory hardly varies."""
    n_envs: tuple[int, ...] = (25, 50, 100, 200, 1000)
    """Numbers of environments."""
    processes: int = 200
    """With more environments than this, ways that have a process for each are left out."""
    native_worlds: int = 100_000
    """Worlds of the native backend, to measure what one takes."""
    peers: bool = True
    """Measure other libraries too."""

    name: ClassVar[str] = "memory"
    quick_settings: ClassVar[dict[str, object]] = {"rounds": 1, "n_envs": (10,), "peers": False}
    least: ClassVar[dict[str, float]] = {"processes": 0, "native_worlds": 1000}

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        if not Path("/proc/self/smaps_rollup").exists():
            raise InputError("bench memory reads /proc/PID/smaps_rollup, which only Linux has")

    def measure(self, notes: Notes) -> None:
        """Case by case, then what one native world takes: its record, and what a process really grows by."""
        backends = (*OURS, *(PEERS if self.peers else ()))
        worlds = Case({"backend": "native", "part": "a world", "chance": "fast", "n_envs": self.native_worlds},
                      self._world)  # fmt: skip
        in_turns([*([self._case(backend, n) for backend in backends] for n in self.n_envs), [worlds]],
                    self.rounds, notes)  # fmt: skip
        for chance, size in (("fast", WORLD.itemsize), ("cyborg", WORLD.itemsize + ledger_dtype(100).itemsize)):
            tags = {"backend": "native", "part": "a world", "chance": chance, "n_envs": 1}
            notes.figures.append(Figure(tags, "bytes", (float(size),)))

    def _case(self, backend: str, n: int) -> Case:
        why = why_not(backend)
        many = backend.endswith(EACH) or backend in MANY_PROCESSES
        if not why and many and n > self.processes:
            why = f"more than --processes {self.processes}"
        return Case({"backend": backend, "n_envs": n}, partial(self._round, backend, n), why, foreign=backend in PEERS)

    def _round(self, backend: str, n: int) -> Iterator[Sample]:
        workers, growth = weigh(backend, n)
        count = {"workers": len(workers)}
        if workers:
            yield Sample("MiB", sum(workers) / len(workers), {**count, "part": "a worker"})
            yield Sample("MiB", sum(workers), {**count, "part": "all workers"})
        yield Sample("MiB", growth, {**count, "part": "main process"})
        yield Sample("MiB", sum(workers) + growth, {**count, "part": "all"})

    def _world(self) -> list[Sample]:
        return [Sample("bytes", weigh("native", self.native_worlds)[1] * _MIB / self.native_worlds)]


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
        with open_envs(used, 2) as envs:
            envs.step(envs.action_space.sample() if hasattr(envs.action_space, "nvec") else [0] * 2)
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc; gives pages back that imports have freed
    if trim is not None:
        trim(0)
    before = _pss_mib(os.getpid())
    with open_envs(backend, n) as envs:
        kept = envs.step(envs.action_space.sample() if hasattr(envs.action_space, "nvec") else [0] * n)
        workers = [_pss_mib(pid) for pid in worker_pids(envs)]
        growth = _pss_mib(os.getpid()) - before
        del kept
    return workers, growth


def _pss_mib(pid: int) -> float:
    """Proportional set size of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    print(jsonlib.dumps(_weigh_here(sys.argv[1], int(sys.argv[2]))))
