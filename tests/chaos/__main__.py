"""`make chaos MINUTES=10 [SEED=...] [ONLY=...]`: random scenarios, random faults, and after each what must hold.

A scenario draws from the seed and its number, so `ONLY=train:17` repeats number 17 with the same choices (its moments
are the machine's); `ONLY=train,search` runs two kinds. A violation prints one line that repeats it, keeps its folder,
and the run goes on; the exit code at the end is then 1.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.chaos import commands, planted, vectors
from tests.chaos.checks import (
    HANG_SECONDS,
    Event,
    Violation,
    end_all,
    enter_namespace,
    forked,
    nothing_left,
    patience,
    subreaper,
    waited,
)

#: Scenario, and how often it is drawn: so that each kind gets about as much time as it deserves.
SCENARIOS: dict[Callable[[Event], None], int] = {
    vectors.vector: 40, vectors.vector_construction: 12, vectors.vector_parent: 15, commands.train: 20,
    commands.search: 8, commands.full_disk: 12, commands.damaged_file: 25, commands.evaluate: 6,
    commands.two_at_once: 4, vectors.vector_on_ray: 1,
}  # fmt: skip


class Chaos:
    """A run: its seed, its folder, and the counts so far."""

    def __init__(self, seed: str, scenarios: dict[Callable[[Event], None], int]) -> None:
        self.seed, self.scenarios = seed, scenarios
        self.root = Path(tempfile.mkdtemp(prefix="stockade-chaos-"))
        self.events, self.violations = Counter[str](), Counter[str]()
        self.faults: dict[str, Counter[str]] = {function.__name__: Counter() for function in self.scenarios}
        self._begin = time.monotonic()

    def run(self, minutes: float, only: str = "") -> int:
        """Until the time is over; the exit code."""
        names, _, chosen = only.partition(":")
        number, deadline = int(chosen or 0), time.monotonic() + 60 * minutes
        while time.monotonic() < deadline:
            self.one(number, names)
            number += not chosen
        return min(1, self.violations.total())

    def one(self, number: int, only: str = "") -> None:
        """One scenario in a process of its own, and what is left of it."""
        chance, which = random.Random(f"{self.seed}/{number}"), random.Random(f"{self.seed}/{number}/which")
        functions = [f for f in self.scenarios if not only or f.__name__ in only.split(",")]
        scenario = which.choices(functions, [self.scenarios[function] for function in functions])[0]
        name, folder = scenario.__name__, self.root / f"{number}-{sum(self.events.values())}"

        def work() -> None:
            subreaper()
            scenario(Event(number, chance, folder, self.root / "references"))

        failure = ""
        pid = forked(work, self.root / "scenario")
        try:
            code = waited(pid, patience(3 * HANG_SECONDS))  # it has several commands
            said = (self.root / "scenario.err").read_text().strip()
            if code is None:
                failure = "the scenario hangs"
            elif code or said:
                failure = said or f"the scenario ended with {code}"
            nothing_left([name])
        except Violation as violation:
            failure = failure or str(violation)
        finally:
            end_all()
        self.events[name] += 1
        if (folder / "faults.txt").exists():
            self.faults[name].update((folder / "faults.txt").read_text().splitlines())
        for output in self.root.glob("scenario.*"):
            shutil.move(output, folder / output.name) if failure else output.unlink()
        if failure:
            self.violations[name] += 1
            line = failure.splitlines()[-1].removeprefix("tests.chaos.world.Violation: ")
            again = f"make chaos MINUTES=1 SEED={self.seed} ONLY={name}:{number}"
            print(f"VIOLATION in {name}: {line[:600]}\n  again: {again}\n  kept: {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)

    def table(self) -> str:
        """Counts as Markdown, as docs/about/reliability.md has them."""
        minutes = (time.monotonic() - self._begin) / 60
        total = sum(counter.total() for counter in self.faults.values())
        lines = [
            f"{sum(self.events.values()):,} scenarios with {total:,} faults in {minutes:.1f} minutes, "
            f"{self.violations.total()} violations (seed {self.seed}).", "",
            "| scenario | times | violations | faults |", "|---|---|---|---|",
        ]  # fmt: skip
        for name, faults in self.faults.items():
            told = ", ".join(f"{fault} {count}" for fault, count in sorted(faults.items()))
            lines.append(f"| `{name}` | {self.events[name]} | {self.violations[name]} | {told} |")
        return "\n".join(lines)


def load_everything() -> None:
    """Modules, kernels and compiled loops that commands load when they need them: once for all that are forked."""
    import stockade.cli

    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        for kind in ("train native", "search separate", "search together"):
            words = [*commands.KINDS[kind], "--runs", folder, "--name", kind.replace(" ", "-")]
            with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                if stockade.cli.run(words):
                    raise RuntimeError(f"an undisturbed {kind} has failed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", default="")
    parser.add_argument("--only", default="", help="kinds of scenarios, with commas; or one with its number, train:17")
    parser.add_argument("--planted", action="store_true", help="violations made on purpose, each once: are they found?")
    options = parser.parse_args()
    scenarios = dict.fromkeys(planted.SCENARIOS, 1) if options.planted else SCENARIOS
    chaos = Chaos(options.seed or str(random.SystemRandom().randrange(10**6)), scenarios)
    print(f"chaos for {options.minutes:g} minutes, SEED={chaos.seed}, in {chaos.root}", flush=True)
    subreaper()
    enter_namespace()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code = 130
    try:
        if options.planted:
            for function in planted.SCENARIOS:
                chaos.one(0, function.__name__)
        else:
            load_everything()
        code = chaos.run(0 if options.planted else options.minutes, options.only)
    except KeyboardInterrupt:
        print("interrupted")
    finally:
        end_all()
        print(chaos.table())
        if not chaos.violations.total():
            shutil.rmtree(chaos.root, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
