"""The command `stockade bench`: one subcommand per measurement, and `all` of them.

`bench all` runs all but `search`, which needs Ray, and `search-quality` and `time-to-score`, which take an hour:
each in a session of its own, so that one that fails or hangs does not stop the others. Processes that outlive it are
ended.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union

import tyro

from stockade.bench.bottleneck import BottleneckBench, StragglersBench
from stockade.bench.footprint import KernelBench, MemoryBench, StartupBench
from stockade.bench.result import QUICK_RESULTS, RESULTS
from stockade.bench.score import TimeToScoreBench
from stockade.bench.search import SearchParallelBench, SearchQualityBench
from stockade.bench.throughput import ScalingBench, ThroughputBench, TrueStateBench, VectorBench
from stockade.bench.train import LearnBench, TrainBench
from stockade.errors import InputError
from stockade.text import Table

BENCHES = (ThroughputBench, ScalingBench, BottleneckBench, StragglersBench, TrueStateBench, MemoryBench, StartupBench,
           KernelBench, VectorBench, TrainBench, LearnBench, TimeToScoreBench, SearchParallelBench,
           SearchQualityBench)  # fmt: skip
#: Benches with the arguments that make all together fit into half an hour on two cores.
PLAN: dict[str, tuple[str, ...]] = {
    "kernel": (), "throughput": ("--seconds", "0.3"), "scaling": (), "bottleneck": (), "stragglers": (),
    "true-state": (), "memory": (), "startup": (), "vector": ("--n-envs", "16", "200"), "train": (),
    "learn": ("--episodes", "15000"),
}  # fmt: skip
GRACE = 20.0  # Seconds that a bench has to end its workers when it is told to stop


@dataclass(frozen=True)
class AllBenches:
    """All but time-to-score and the search's, into a folder: half an hour on 2 cores, two minutes with --quick."""

    quick: bool = False  # A few cases and short rounds: to see that all works, not for figures.
    results: Path | None = None  # Folder for the results; default: benchmarks/results, or bench-quick with --quick.
    only: tuple[str, ...] = ()  # Only these benches.
    minutes: float = 12.0  # A bench that takes longer than this is ended.

    def run(self) -> int:
        """Run, and say at the end what failed; exit code 1 if anything did."""
        for name in set(self.only) - set(PLAN):
            raise InputError(f"--only {name}: there is no such bench; there are {', '.join(PLAN)}")
        if not self.minutes > 0:
            raise InputError(f"--minutes {self.minutes}: a bench needs more than that")
        names = [name for name in PLAN if not self.only or name in self.only]
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


def run_bench(command: list[str], limit: float) -> str:
    """Run a command in a session of its own for at most `limit` seconds, end what is left of it; what went wrong."""
    child = subprocess.Popen(command, start_new_session=True)
    try:
        code = child.wait(limit)
        return "" if code == 0 else f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
    except subprocess.TimeoutExpired:
        return f"not done after {limit / 60:g} minutes, ended"
    finally:
        if child.poll() is None:  # first ask the bench itself, so that it can end its workers
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


_COMMANDS = {"all": AllBenches, **{bench.name: bench for bench in BENCHES}}
_ANY: Any = Union[tuple(Annotated[command, tyro.conf.subcommand(name)] for name, command in _COMMANDS.items())]  # noqa: UP007


@dataclass(frozen=True)
class Bench:
    """Measure speed, memory and start."""

    what: Annotated[_ANY, tyro.conf.arg(name="", help="What to measure.")]

    def run(self) -> int:
        return int(self.what.run())
