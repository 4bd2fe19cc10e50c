"""Compares the kernel with the reference model over millions of steps: `python -m tests.oracle.differential_run`.

    batches (configuration x policies x horizon) -> worker processes -> compare_batch -> counts, first mismatch

The last line says `N steps compared, M mismatches`; M counts worlds, since a world that went astray stays so. Exit
code 1 if M > 0, after the first mismatch, made small, with the command that replays it.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass
from itertools import count, islice, product
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import tyro
from tqdm import tqdm

from .differential import (
    BLUE_POLICIES,
    CONFIGS,
    PLAYED,
    Batch,
    Case,
    Mismatch,
    Result,
    compare_batch,
    first_mismatch,
    minimise,
)
from .policies import POLICIES
from .red_policies import RED_POLICIES

_HORIZONS = (100, 30, 500, 50)
_STEPS_A_BATCH = 12_000
_EPISODES = 2
# The sleeping red agent has little to get wrong: half as often as the others.
_SCHEDULE = tuple(c for c in CONFIGS if c.red != "sleep") + CONFIGS


@dataclass(frozen=True)
class Arguments:
    """Compare the kernel under chance="cyborg" with the reference model."""

    steps: int = 10_000_000
    """how many steps to compare, at least"""
    processes: int = os.cpu_count() or 1
    """worker processes"""
    red: Literal["scripted", "player"] = "scripted"
    """red agents of the challenge, or a red that is played by the policies of red_policies.py"""
    seed: int = 0
    """another seed compares other episodes"""
    json: Path | None = None
    """where to write the counts"""
    replay: str | None = None
    """play one case, given as JSON text, and explain its first mismatch"""


def batches(seed: int, played: bool) -> Iterator[Batch]:
    """All combinations of configuration and policy, over and over, with changing horizons and seeds."""
    policies = tuple(BLUE_POLICIES if played else POLICIES)
    schedule = tuple(product(PLAYED, RED_POLICIES)) if played else tuple((config, "") for config in _SCHEDULE)
    for i in count():
        turn, place = divmod(i, len(schedule))
        config, red_policy = schedule[place]
        policy = policies[(turn + place) % len(policies)]
        horizon = _HORIZONS[(turn + turn // 20) % len(_HORIZONS)]  # the shift lets every policy meet every horizon
        worlds = _STEPS_A_BATCH // (_EPISODES * horizon)
        yield Batch(config, policy, horizon, worlds, _EPISODES, seed * 1_000_003 + i, red_policy)


def run(arguments: Arguments) -> Iterator[Result]:
    """Results in the order in which workers finish."""
    todo = batches(arguments.seed, arguments.red == "player")
    left = arguments.steps
    waiting: set[Future[Result]] = set()
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        while left > 0 or waiting:
            for batch in islice(todo, max(0, 2 * arguments.processes - len(waiting)) if left > 0 else 0):
                waiting.add(pool.submit(compare_batch, batch))
                left -= batch.steps
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def replay(text: str) -> int:
    """Plays one case; exit code 1 if kernel and model differ."""
    mismatch = first_mismatch(Case.from_json(text))
    print(mismatch or "no mismatch")
    return int(mismatch is not None)


def main(arguments: Arguments) -> int:
    """Runs the comparison and prints what came out. Returns the exit code."""
    if arguments.replay is not None:
        return replay(arguments.replay)
    steps: Counter[str] = Counter()
    by_policy: Counter[str] = Counter()
    mismatches: list[Mismatch] = []
    restarted = 0
    with tqdm(total=arguments.steps, unit="step", unit_scale=True, smoothing=0.05) as progress:
        for result in run(arguments):
            config = result.batch.config
            steps[f"red={config.red} rules={config.rules} green={config.green}"] += result.batch.steps
            by_policy[result.batch.policy] += result.batch.steps
            if result.batch.red_policy:
                by_policy[f"{result.batch.red_policy} (red)"] += result.batch.steps
            mismatches += result.mismatches
            restarted += result.restarted_services
            progress.update(result.batch.steps)
            progress.set_postfix(mismatches=len(mismatches))
        seconds = progress.format_dict["elapsed"]
    for name, number in (*sorted(steps.items()), *sorted((f"policy={k}", v) for k, v in by_policy.items())):
        print(f"{name:<48}{number:>14,} steps")
    print(f"Remove hit a decoy with the process id of a dead shell {restarted} times")
    print(f"{steps.total() / seconds:,.0f} steps/s, processes: {arguments.processes}, seed: {arguments.seed}")
    if arguments.json is not None:
        _write(arguments, steps, by_policy, mismatches, restarted, seconds)
    if mismatches:
        print("\nThe first mismatch, made small:", minimise(mismatches[0]), sep="\n")
    print(f"{steps.total()} steps compared, {len(mismatches)} mismatches")
    return int(bool(mismatches))


def _write(
    arguments: Arguments,
    steps: Counter[str],
    by_policy: Counter[str],
    mismatches: list[Mismatch],
    restarted: int,
    seconds: float,
) -> None:
    report = {
        "steps": steps.total(),
        "mismatches": len(mismatches),
        "seed": arguments.seed,
        "processes": arguments.processes,
        "seconds": round(seconds, 1),
        "restarted_services": restarted,
        "steps_by_configuration": dict(sorted(steps.items())),
        "steps_by_policy": dict(sorted(by_policy.items())),
        "first_mismatches": [asdict(mismatch) for mismatch in mismatches[:10]],
    }
    assert arguments.json is not None
    arguments.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments)))
