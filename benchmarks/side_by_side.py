"""Is this checkout as fast as another one? Both run the same small programs in turns, on the same machine.

    python benchmarks/side_by_side.py --other PATH [--rounds 20] [--only kernel pipes]

For each case: one child process per checkout -> warmed up -> a few rounds in alternating order (this, other, other,
this, ...) -> new child processes, and so on -> one ratio of speeds per round -> the median of the ratios with its 95%
interval. Above 1 this checkout is faster. A busy minute slows both sides of a ratio. A process that has compiled the
kernels itself runs them up to 10% slower than one that loaded them from Numba's cache: hence several processes.
`--other` of this same checkout shows the noise that is left. Programs use the public interface only, so that they run
on older and newer checkouts alike.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

#: Defines `work()`, which returns how many steps or episodes it made. Formatted with the keys of a case.
STEPS = """
import numpy as np
envs = stockade.make_vec({n}, "{backend}", {options})
envs.reset(seed=0)
actions = np.random.default_rng(0).integers(0, 145, (100, {n}))
def work():
    for chosen in actions:
        envs.step(chosen)
    return 100 * {n}
"""
TRAIN = """
import pathlib, tempfile
from stockade import cli
memory = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None  # a busy disk is not what is compared
def work():
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        try:
            cli.main(["train", "--total-episodes", "2048", "--n-envs", "256", "--runs", folder, "--name", "timed"])
        except SystemExit as end:
            assert not end.code, f"exit code {{end.code}}"
    return 2048
"""
#: Reads a number of seconds per line and answers with the speed of a round that long.
CHILD = """
import os, sys, time
answers = os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # progress of what is measured is no answer
import stockade
{program}
print(stockade.__file__, file=answers, flush=True)
for line in sys.stdin:
    count, begin, taken = 0, time.perf_counter(), 0.0
    while not count or taken < float(line):
        count += work()
        taken = time.perf_counter() - begin
    print(count / taken, file=answers, flush=True)
"""
KERNELS = {"kernel, B_line": "", "kernel, Meander": "red='meander'", "kernel, B_line, cyborg": "chance='cyborg'"}
ROUNDS_OF_A_PROCESS = 5
CASES = {
    **{k: STEPS.format(n=1024, backend="native", options=f"threads=1, {o}") for k, o in KERNELS.items()},
    "train": TRAIN.format(),
    **{name: STEPS.format(n=64, backend=name, options="") for name in ("serial", "pipes", "shared_memory", "async")},
}


class Side:
    """A checkout's child process for one case."""

    def __init__(self, checkout: Path, program: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
        self._child = subprocess.Popen([sys.executable, "-c", CHILD.format(program=program)], env=environment,
                                       cwd=tempfile.gettempdir(), text=True, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        if not Path(imported := self._answer()).is_relative_to(checkout):
            raise SystemExit(f"error: {imported} was imported and not the package in {checkout}")

    def close(self) -> None:
        """End the child by closing its input."""
        self._child.communicate()

    def round(self, seconds: float) -> float:
        """Steps or episodes per second."""
        print(seconds, file=self._child.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            _, error = self._child.communicate()
            raise SystemExit(f"error: a child process ended with {self._child.returncode}\n{error}")
        return line.strip()


def measure(program: str, checkouts: Sequence[Path], rounds: int, seconds: float) -> list[tuple[float, float]]:
    """Speeds of (this, other), round by round; the first two rounds of processes warm up and do not count."""
    speeds: list[tuple[float, float]] = []
    while len(speeds) < rounds:
        with ExitStack() as stack:
            sides = [stack.enter_context(closing(Side(checkout, program))) for checkout in checkouts]
            count = 2 + min(ROUNDS_OF_A_PROCESS, rounds - len(speeds))
            orders = itertools.islice(itertools.cycle([(0, 1), (1, 0)]), count)
            found = [{k: sides[k].round(seconds) for k in order} for order in orders]
        speeds += [(each[0], each[1]) for each in found[2:]]
    return speeds


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Median and the narrowest pair of order statistics that holds the true median with at least 95%."""
    ordered, n = sorted(values), len(values)
    tails = itertools.accumulate(math.comb(n, k) * 0.5**n for k in range(n))
    rank = sum(tail <= 0.025 for tail in tails)
    return statistics.median(ordered), ordered[rank - 1], ordered[n - rank]


def main(arguments: list[str] | None = None) -> int:
    """Print one line per case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="folder of the checkout to compare with")
    parser.add_argument("--rounds", type=int, default=20, help="pairs of rounds, at least 6 (default 20)")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a round (default 0.5)")
    parser.add_argument("--only", nargs="+", default=[""], help=f"cases whose names begin so: {', '.join(CASES)}")
    parser.add_argument("--least", type=float, help="exit with code 1 if the median of a case is below this ratio")
    parser.add_argument("--json", type=Path, help="write all speeds to this file")
    given = parser.parse_args(arguments)
    checkouts = [Path(__file__).resolve().parents[1], given.other.resolve()]
    for checkout in checkouts:
        if not (checkout / "stockade" / "__init__.py").is_file():
            parser.error(f"{checkout} is no checkout: it has no stockade/__init__.py")
    chosen = {name: program for name, program in CASES.items() if name.startswith(tuple(given.only))}
    if given.rounds < 6 or not chosen:
        parser.error("--rounds must be at least 6, and --only the beginning of the name of a case")
    speeds, medians = {}, []
    print(f"{'ratio, this to other':<24}{'median':>8}  {'95% interval':<16}{'this, per s':>14}{'other, per s':>14}")
    for name, program in chosen.items():
        speeds[name] = measure(program, checkouts, given.rounds, given.seconds)
        median, low, high = median_interval([this / other for this, other in speeds[name]])
        medians.append(median)
        this, other = (statistics.median(column) for column in zip(*speeds[name], strict=True))
        print(f"{name:<24}{median:>8.3f}  {low:.3f} to {high:.3f}  {this:>14,.0f}{other:>14,.0f}", flush=True)
        if given.json:
            given.json.write_text(json.dumps(speeds, indent=1) + "\n")
    return int(given.least is not None and min(medians) < given.least)


if __name__ == "__main__":
    sys.exit(main())
