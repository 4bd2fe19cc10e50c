"""Results of benches made up for tests."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stockade.bench.result import Figure, Result

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common import write_result

STAMP = {
    "cpu": "Abacus 3000",
    "cores": 2,
    "memory_gib": 24,
    "system": "Linux-6.1",
    "python": "3.11.7",
    "packages": {"stockade": "0.1.0", "numpy": "2.4.6"},
    "commit": "abc1234",
    "date": "2026-01-02T03:04:05+00:00",
    "load": 0.1,
}


def figure(rounds: Iterable[float], unit: str = "steps/s", **tags: Any) -> Figure:
    """One of a bench."""
    return Figure(tags, unit, tuple(rounds))


def result(bench: str, figures: Iterable[Figure], **settings: Any) -> Result:
    """A result on a machine that does not exist."""
    return Result(bench, f"stockade bench {bench}", STAMP, settings, 1.5, list(figures))


def one(rounds: Iterable[float], unit: str = "steps/s", bench: str = "throughput") -> dict[str, Result]:
    """Results of one figure."""
    return {bench: result(bench, [figure(rounds, unit, backend="pipes")])}


def write(folder: Path, *results: Result) -> Path:
    """A folder with these results."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in results:
        write_result(each, folder / f"{each.bench}.json")
    return folder


def search_quality() -> Result:
    """Two attackers, two methods, two budgets, three seeds; one search without regret."""
    parts = {"regret": ("points", [0.5, -0.1, 2.0]), "RMSE": ("points", [1.0, 2.0, 3.0]), "time": ("s", [9.0] * 3),
             "reported": ("orders", [6.0] * 3)}  # fmt: skip
    return result("search-quality", [
        figure(rounds, unit, red=red, method=method, budget=budget, part=part)
        for red in ("bline", "meander") for method in ("strict", "gp-ucb") for budget in (50_000, 100_000)
        for part, (unit, rounds) in parts.items()
    ])  # fmt: skip
