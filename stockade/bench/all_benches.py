"""`stockade bench all`: every bench but those of the search, one after the other, each in its own process.

`search` needs Ray and `search-quality` hours; they are run by themselves.

for each bench: `stockade bench NAME --json FOLDER/NAME.json` in a new session -> exit code, leftovers -> summary

A bench that fails or hangs does not stop the others, and nothing that it leaves behind disturbs them: processes of its
session that outlive it are named, ended and counted as a failure (where there is no /proc, they are not seen).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stockade.bench.result import RESULTS
from stockade.errors import InputError
from stockade.text import Table

QUICK_RESULTS = Path("bench-quick")  # Quick results must not take the place of those that the documentation is made of
GRACE = 20.0  # Seconds that helpers of a bench, such as a fork server, have to notice that it ended
DYING = 5.0  # Seconds that a killed process may need to be gone
#: Benches with the arguments that make all together fit into half an hour on two cores.
PLAN: dict[str, tuple[str, ...]] = {
    "kernel": (), "throughput": ("--seconds", "0.3"), "scaling": (), "bottleneck": (), "stragglers": (),
    "true-state": (), "memory": (), "startup": (), "vector": ("--n-envs", "16", "200"), "train": (),
    "learn": ("--episodes", "15000"),
}  # fmt: skip
NOT_QUICK = ("vector", "learn")


class Outcome(NamedTuple):
    """What became of a bench. `problem` is None if all is well."""

    name: str
    seconds: float
    problem: str | None


@dataclass(frozen=True)
class AllBenches:
    """Every bench below but the search's, into a folder of results: half an hour on 2 cores, a minute with --quick."""

    quick: bool = False  # Short rounds of the lighter benches: to see that all works, not for figures.
    results: Path | None = None
    """Folder for the results, one JSON file per bench. Default: benchmarks/results, or bench-quick with --quick."""
    only: tuple[str, ...] = ()  # Only these benches.
    minutes: float = 12.0  # A bench that takes longer than this is ended.

    def run(self) -> int:
        """Run, and tell what failed at the end; exit code 1 if anything did."""
        names = self._names()
        folder = self.results or (QUICK_RESULTS if self.quick else RESULTS)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--results {folder}: cannot make this folder ({error.strerror})") from error
        outcomes = []
        # SIGTERM ends us as Ctrl-C does, after the bench in flight: its session does not get our signals.
        before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            for number, name in enumerate(names, start=1):
                arguments = ("--quick",) if self.quick else PLAN[name]
                command = ["bench", name, *arguments, "--json", str(folder / f"{name}.json")]
                print(f"\n[{number}/{len(names)}] stockade {' '.join(command)}", flush=True)
                outcomes.append(run_bench(name, [sys.executable, "-m", "stockade.cli", *command], 60 * self.minutes))
        finally:
            signal.signal(signal.SIGTERM, before)
        failed = [name for name, _, problem in outcomes if problem]
        rows = [[name, seconds, problem or "done"] for name, seconds, problem in outcomes]
        print(f"\n{Table(['bench', 'seconds', ''], rows)}\n{folder}")
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


def run_bench(name: str, command: list[str], limit: float) -> Outcome:
    """Run a command in a session of its own for at most `limit` seconds, and end whatever is left of it."""
    begin = time.monotonic()
    child = subprocess.Popen(command, start_new_session=True)
    problem, left = None, []
    try:
        if code := child.wait(limit):
            problem = f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
        left = _wait_for_none(child.pid, GRACE)
    except subprocess.TimeoutExpired:
        problem = f"not done after {limit / 60:g} minutes, ended"
    finally:
        _end_session(child)
    if left and problem is None:
        problem = f"left processes behind, which were ended: {'; '.join(left)}"
    return Outcome(name, time.monotonic() - begin, problem)


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


def _end_session(child: subprocess.Popen[bytes]) -> None:
    """First ask the bench itself, so that it can end its workers, then end all that is left."""
    if child.poll() is None:
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
