"""`stockade bench all`: every bench but `search`, which needs Ray; one after the other, each in its own process.

for each bench: `stockade bench NAME --json FOLDER/NAME.json` in a new session -> exit code, leftovers -> summary

A bench that fails or hangs does not stop the others, and nothing that it leaves behind disturbs them: processes of its
session that outlive it are named, ended and counted as a failure.
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

from stockade.bench.result import RESULTS
from stockade.errors import InputError
from stockade.text import Table

QUICK_RESULTS = Path("bench-quick")
"""Quick results must not take the place of those that the documentation is made of."""
GRACE = 20.0
"""Seconds that helpers of a bench, such as a fork server, have to notice that it ended."""
DYING = 5.0
"""Seconds that a killed process may need to be gone."""


@dataclass(frozen=True)
class Planned:
    """A bench of `bench all`: its name, the arguments of the full run, and whether a quick run has it too."""

    name: str
    arguments: tuple[str, ...] = ()
    quick: bool = True


#: The arguments make all together fit into half an hour on two cores.
PLAN = (
    Planned("kernel"),
    Planned("throughput", ("--seconds", "0.3")),
    Planned("scaling", ("--seconds", "0.2")),
    Planned("bottleneck"),
    Planned("stragglers"),
    Planned("true-state"),
    Planned("memory"),
    Planned("startup"),
    Planned("vector", ("--n-envs", "16", "200"), quick=False),
    Planned("train"),
    Planned("learn", ("--episodes", "15000"), quick=False),
)


@dataclass(frozen=True)
class Outcome:
    """What became of a bench. `problem` is None if all is well."""

    name: str
    seconds: float
    problem: str | None


@dataclass(frozen=True)
class AllBenches:
    """Run every bench but `search` and keep the results; under half an hour on 2 cores, about a minute with --quick."""

    quick: bool = False
    """Short rounds of the lighter benches: to see that all works, not for figures."""
    results: Path | None = None
    """Folder for the results, one JSON file per bench. Default: benchmarks/results, or bench-quick with --quick."""
    only: tuple[str, ...] = ()
    """Only these benches."""
    minutes: float = 12.0
    """A bench that takes longer than this is ended."""

    def run(self) -> int:
        """Run, and tell what failed at the end; exit code 1 if anything did."""
        plan = self._plan()
        folder = self.results or (QUICK_RESULTS if self.quick else RESULTS)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--results {folder}: cannot make this folder ({error.strerror})") from error
        outcomes = []
        with _ended_by_signals():
            for number, bench in enumerate(plan, start=1):
                command = self._command(bench, folder)
                print(f"\n[{number}/{len(plan)}] stockade {' '.join(command)}", flush=True)
                program = [sys.executable, "-m", "stockade.cli"]
                outcomes.append(run_bench(bench.name, [*program, *command], 60 * self.minutes))
        return _summary(outcomes, folder)

    def _plan(self) -> list[Planned]:
        names = [bench.name for bench in PLAN]
        for name in self.only:
            if name not in names:
                raise InputError(f"--only {name}: there is no such bench; there are {', '.join(names)}")
        if not self.minutes > 0:
            raise InputError(f"--minutes {self.minutes}: a bench needs more than that")
        chosen = [bench for bench in PLAN if not self.only or bench.name in self.only]
        left_out = [bench.name for bench in chosen if self.quick and not bench.quick]
        if left_out:
            print(f"left out, as --quick has no time for them: {', '.join(left_out)}")
        if len(left_out) == len(chosen):
            raise InputError("nothing to run: without --quick there would be")
        return [bench for bench in chosen if bench.name not in left_out]

    def _command(self, bench: Planned, folder: Path) -> list[str]:
        arguments = ("--quick",) if self.quick else bench.arguments
        return ["bench", bench.name, *arguments, "--json", str(folder / f"{bench.name}.json")]


def run_bench(name: str, command: list[str], limit: float) -> Outcome:
    """Run a command in a session of its own for at most `limit` seconds, and end whatever is left of it."""
    begin = time.monotonic()
    child = subprocess.Popen(command, start_new_session=True)
    problem = None
    try:
        code = child.wait(limit)
        if code != 0:
            problem = f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
    except subprocess.TimeoutExpired:
        problem = f"not done after {limit / 60:g} minutes, ended"
    finally:
        left = [] if child.poll() is None else _leftovers(child.pid)
        _end_session(child)
    if left and problem is None:
        problem = f"left processes behind, which were ended: {'; '.join(left)}"
    return Outcome(name, time.monotonic() - begin, problem)


def _leftovers(session: int) -> list[str]:
    """What still runs of a session whose first process has ended, after a time of grace."""
    deadline = time.monotonic() + GRACE
    while (left := list(_processes(session))) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def _processes(session: int) -> Iterator[str]:
    """Living processes of a session, as number and command. Where there is no /proc, those of its first group."""
    if not Path("/proc/self/stat").exists():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, 0)
            yield f"some of process group {session}"
        return
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
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
    for process in _processes(child.pid):
        number = process.split()[0]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if number.isdigit():
                os.kill(int(number), signal.SIGKILL)
            else:
                os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    deadline = time.monotonic() + DYING
    while any(_processes(child.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM end us as Ctrl-C does, after the bench in flight: its session does not get our signals."""

    def stop(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _summary(outcomes: list[Outcome], folder: Path) -> int:
    print()
    print(Table(["bench", "seconds", ""], [[one.name, one.seconds, one.problem or "done"] for one in outcomes]))
    failed = [outcome.name for outcome in outcomes if outcome.problem]
    total = sum(outcome.seconds for outcome in outcomes)
    print(f"{len(outcomes) - len(failed)} of {len(outcomes)} benches done in {total / 60:.1f} minutes; {folder}")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0
