"""`stockade bench memory`: what environments weigh: native worlds, worker processes, and other libraries' processes.

Memory of processes is PSS, in which a page that several share counts a part for each, so that sums are right; what the
main process grows by is part of the sum.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tqdm import tqdm

from stockade.bench.command import BenchCommand, Notes, announce, require_counts
from stockade.bench.figures import Tag, figure_of
from stockade.bench.ours import make_ours
from stockade.bench.peers import PEERS, why_no_peer
from stockade.bench.worlds import BUILT_IN
from stockade.cage2.state import WORLD, ledger_dtype
from stockade.errors import InputError

_MIB = 2**20
_EACH = ", a worker each"
OURS = ("native", "serial", "pipes", "shared_memory", f"pipes{_EACH}", f"shared_memory{_EACH}")


@dataclass(frozen=True)
class MemoryBench(BenchCommand):
    """Built-in worlds, reset and stepped once."""

    rounds: int = 2
    """Rounds of each case; memory hardly varies."""
    n_envs: tuple[int, ...] = (25, 50, 100, 200, 1000)
    """Numbers of environments."""
    processes: int = 200
    """With more environments than this, ways that have a process for each are left out."""
    native_worlds: int = 100_000
    """Worlds of the native backend, to measure what one takes."""
    peers: bool = True
    """Measure other libraries too."""

    name: ClassVar[str] = "memory"
    quick_settings: ClassVar[dict[str, object]] = {"rounds": 1, "n_envs": (10,)}

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        require_counts("--n-envs", self.n_envs)
        require_counts("--processes", [self.processes], least=0)
        require_counts("--native-worlds", [self.native_worlds], least=1000)
        if not Path("/proc/self/smaps_rollup").exists():
            raise InputError("bench memory reads /proc/PID/smaps_rollup, which only Linux has")

    def measure(self, notes: Notes) -> None:
        """Case by case."""
        cases = [(backend, n) for n in self.n_envs for backend in self._backends(n, notes)]
        announce(self.name, self.rounds * sum(0.3 + (0.02 * n if _is_many(backend) else 0) for backend, n in cases))
        for backend in dict.fromkeys(backend for backend, _ in cases):
            _weigh(backend, 2)  # what a first use loads, or shares with a fork server, is not the environments' weight
        for backend, n in tqdm(cases, desc="bench memory", unit="case", disable=None):
            found = [_weigh(backend, n) for _ in range(self.rounds)]
            self._note(notes, backend, n, found)
        self._worlds(notes)

    def _backends(self, n: int, notes: Notes) -> Iterator[str]:
        for backend in (*OURS, *(PEERS if self.peers else ())):
            why = why_no_peer(backend) if backend in PEERS else ""
            if not why and _is_many(backend) and n > self.processes:
                why = f"more than --processes {self.processes}"
            if why:
                notes.skip(f"{backend}, n={n}", why)
            else:
                yield backend

    def _note(self, notes: Notes, backend: str, n: int, found: list[tuple[list[float], float]]) -> None:
        workers = len(found[0][0])
        tags: dict[str, Tag] = {"backend": backend, "n_envs": n, "workers": workers}
        parts = {"main process": [growth for _, growth in found], "all": [sum(w) + growth for w, growth in found]}
        if workers:
            parts = {
                "a worker": [sum(w) / workers for w, _ in found],
                "all workers": [sum(w) for w, _ in found],
                **parts,
            }
        for part, values in parts.items():
            notes.figures.append(figure_of(f"{backend}, n={n}: {part}", values, "MiB", part=part, **tags))

    def _worlds(self, notes: Notes) -> None:
        """Native worlds: their records, and what a process really grows by."""
        for chance, size in (("fast", WORLD.itemsize), ("cyborg", WORLD.itemsize + ledger_dtype(100).itemsize)):
            tags: dict[str, Tag] = {"backend": "native", "part": "a world", "chance": chance, "n_envs": 1}
            notes.figures.append(figure_of(f"record of a native world, {chance}", [float(size)], "bytes", **tags))
        grown = [_weigh("native", self.native_worlds)[1] * _MIB / self.native_worlds for _ in range(self.rounds)]
        tags = {"backend": "native", "part": "a world", "chance": "fast", "n_envs": self.native_worlds}
        what = f"native, n={self.native_worlds}: a world, with observations and results"
        notes.figures.append(figure_of(what, grown, "bytes", **tags))


def pss_mib(pid: int) -> float:
    """Proportional set size of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"/proc/{pid}/smaps_rollup has no Pss")


def _is_many(backend: str) -> bool:
    return backend.endswith(_EACH) or backend in ("Gymnasium AsyncVectorEnv", "Stable-Baselines3 SubprocVecEnv")


def _weigh(backend: str, n: int) -> tuple[list[float], float]:
    """PSS of each worker, and what this process grew by, in MiB."""
    gc.collect()
    before = pss_mib(os.getpid())
    with _open(backend, n) as (envs, pids):
        kept = envs.step(envs.action_space.sample() if hasattr(envs.action_space, "nvec") else [0] * n)
        workers = [pss_mib(pid) for pid in pids]
        growth = pss_mib(os.getpid()) - before
        del kept
    return workers, growth


@contextmanager
def _open(backend: str, n: int) -> Iterator[tuple[Any, list[int]]]:
    if backend in PEERS:
        with PEERS[backend](BUILT_IN, n) as envs:
            yield envs, [process.pid for process in getattr(envs, "processes", ())]
        return
    options: dict[str, Any] = {"workers": n} if backend.endswith(_EACH) else {}
    with make_ours(backend.removesuffix(_EACH), BUILT_IN, n, **options) as envs:
        envs.reset(seed=0)
        yield envs, list(getattr(envs, "worker_pids", ()))
