"""The command `stockade bench`: one subcommand per measurement, `all` of them, and those that make use of the results.

`bench all` runs all but those of the search (`search` needs Ray, `search-quality` hours), each in a session of its own:
one that fails or hangs does not stop the others, and processes of its session that outlive it are named, ended and
counted as a failure (without /proc, they are not seen).
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union

import tyro

from stockade.bench.bottleneck import BottleneckBench, StragglersBench
from stockade.bench.footprint import KernelBench, MemoryBench, StartupBench
from stockade.bench.result import QUICK_RESULTS, RESULTS
from stockade.bench.search import SearchParallelBench, SearchQualityBench
from stockade.bench.throughput import ScalingBench, ThroughputBench, TrueStateBench, VectorBench
from stockade.bench.train import LearnBench, TrainBench
from stockade.errors import InputError
from stockade.text import Table

BENCHES = (ThroughputBench, ScalingBench, BottleneckBench, StragglersBench, TrueStateBench, MemoryBench, StartupBench,
           KernelBench, VectorBench, TrainBench, LearnBench, SearchParallelBench, SearchQualityBench)  # fmt: skip
#: Benches with the arguments that make all together fit into half an hour on two cores.
PLAN: dict[str, tuple[str, ...]] = {
    "kernel": (), "throughput": ("--seconds", "0.3"), "scaling": (), "bottleneck": (), "stragglers": (),
    "true-state": (), "memory": (), "startup": (), "vector": ("--n-envs", "16", "200"), "train": (),
    "learn": ("--episodes", "15000"),
}  # fmt: skip
NOT_QUICK = ("vector", "learn")
GRACE = 20.0  # Seconds that helpers of a bench, such as a fork server, have to notice that it ended
DYING = 5.0  # Seconds that a killed process may need to be gone


@dataclass(frozen=True)
class AllBenches:
    """Every bench below but the search's, into a folder of results: half an hour on 2 cores, a minute with --quick."""

    quick: bool = False  # Short rounds of the lighter benches: to see that all works, not for figures.
    results: Path | None = None  # Folder for the results; default: benchmarks/results, or bench-quick with --quick.
    only: tuple[str, ...] = ()  # Only these benches.
    minutes: float = 12.0  # A bench that takes longer than this is ended.

    def run(self) -> int:
        """Run, and say at the end what failed; exit code 1 if anything did."""
        names = self._names()
        folder = self.results or (QUICK_RESULTS if self.quick else RESULTS)
        folder.mkdir(parents=True, exist_ok=True)
        rows: list[tuple[str, float, str]] = []
        # SIGTERM ends us as Ctrl-C does, after the bench in flight: its session does not get our signals.
        before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            for number, name in enumerate(names, start=1):
                arguments = ("--quick",) if self.quick else PLAN[name]
                command = ["bench", name, *arguments, "--json", str(folder / f"{name}.json")]
                print(f"\n[{number}/{len(names)}] stockade {' '.join(command)}", flush=True)
                begin = time.monotonic()
                problem = run_bench([sys.executable, "-m", "stockade.cli", *command], 60 * self.minutes)
                rows.append((name, time.monotonic() - begin, problem or "done"))
        finally:
            signal.signal(signal.SIGTERM, before)
        print(f"\n{Table(['bench', 'seconds', ''], rows)}\n{folder}")
        failed = [name for name, _, outcome in rows if outcome != "done"]
        if failed:
            print(f"failed: {', '.join(failed)}")
        return 1 if failed else 0

    def _names(self) -> list[str]:
        for name in set(self.only) - set(PLAN):
            raise InputError(f"--only {name}: there is no such bench; there are {', '.join(PLAN)}")
        if not self.minutes > 0:
            raise InputError(f"--minutes {self.minutes}: a bench needs more than that")
        chosen = [name for name in PLAN if not self.only or name in self.only]
        left_out = [name for name in chosen if self.quick and name in NOT_QUICK]
        if left_out == chosen:
            raise InputError("nothing to run: without --quick there would be")
        if left_out:
            print(f"left out, as --quick has no time for them: {', '.join(left_out)}")
        return [name for name in chosen if name not in left_out]


def run_bench(command: list[str], limit: float) -> str:
    """Run a command in a session of its own for at most `limit` seconds, end what is left of it; what went wrong."""
    child = subprocess.Popen(command, start_new_session=True)
    try:
        if code := child.wait(limit):
            return f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
        left = _wait_for_none(child.pid, GRACE)
        return f"left processes behind, which were ended: {'; '.join(left)}" if left else ""
    except subprocess.TimeoutExpired:
        return f"not done after {limit / 60:g} minutes, ended"
    finally:
        if child.poll() is None:  # first ask the bench itself, so that it can end its workers
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
        if child.poll() is None:
            child.kill()
        for process in _processes(child.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(process.split()[0]), signal.SIGKILL)
        child.wait()
        _wait_for_none(child.pid, DYING)


def _wait_for_none(session: int, seconds: float) -> list[str]:
    """What still runs of a session after so many seconds."""
    deadline = time.monotonic() + seconds
    while (left := list(_processes(session))) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _processes(session: int) -> Iterator[str]:
    """Living processes of a session, as number and command."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended while we looked
            state, _, _, of_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(of_session) == session and state != "Z":
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield f"{entry.name} {words.strip()[:80]}"


_COMMANDS = {"all": AllBenches, **{bench.name: bench for bench in BENCHES}}
_ANY: Any = Union[tuple(Annotated[command, tyro.conf.subcommand(name)] for name, command in _COMMANDS.items())]  # noqa: UP007


@dataclass(frozen=True)
class Bench:
    """Measure speed, memory and start, and compare results."""

    what: Annotated[_ANY, tyro.conf.arg(name="", help="What to measure, or to make of results.")]

    def run(self) -> int:
        return int(self.what.run())
