"""What all parts of the champion's page share: seeds and who may use them, files, one evaluation.

seeds: validation and development | ablations | behaviour | test: no result is played on seeds that chose anything
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from stockade.errors import InputError
from stockade.files import as_json, check_writable, write_durably
from stockade.learn.evaluate import SEEDS_PER_CELL, EvaluateConfig, evaluate
from stockade.learn.leaderboard import CELLS
from stockade.learn.results import CellResult, total_interval
from stockade.learn.train import VALIDATION_SEED

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "champion"
RULE_SETS = ("leaderboard", "current")
RED_NAMES = {"bline": "B_line", "meander": "Meander", "sleep": "Sleep"}

#: First seed of each use; cell k of an evaluation has those from SEED + k * SEEDS_PER_CELL on.
DEVELOPMENT_SEED, TEST_SEED, BEHAVIOUR_SEED, ABLATION_SEED = 300_000_000, 600_000_000, 700_000_000, 900_000_000
#: The test seeds of an earlier recipe, whose result made us look for a better one.
EARLIER_TEST_SEED = 500_000_000
_CELLS_LONG = len(CELLS) * SEEDS_PER_CELL
#: Seeds that are not for tests, [begin, end) and by whom they are used. `stockade evaluate` begins at 153 by default,
#: so whoever tunes has seen those that follow.
RESERVED = (
    (-math.inf, EvaluateConfig("sleep").seed + _CELLS_LONG, "development, by `stockade evaluate`,"),
    (DEVELOPMENT_SEED, DEVELOPMENT_SEED + _CELLS_LONG, "development, by `stockade evaluate --seed`,"),
    (EARLIER_TEST_SEED, EARLIER_TEST_SEED + _CELLS_LONG, "the test of an earlier recipe"),
    (BEHAVIOUR_SEED, BEHAVIOUR_SEED + _CELLS_LONG, "the count of behaviour"),
    (ABLATION_SEED, ABLATION_SEED + _CELLS_LONG, "the evaluation of ablations"),
    (VALIDATION_SEED, math.inf, "validation, which chooses checkpoints,"),
)


def check_test_seeds(first: int, episodes: int) -> None:
    """Refuse seeds that anything was chosen by.

    Raises:
        InputError: says which use they belong to.
    """
    if not 1 <= episodes <= SEEDS_PER_CELL:
        raise InputError(f"--episodes {episodes}: take 1 to {SEEDS_PER_CELL}, for cells are so many seeds apart")
    last = first + (len(CELLS) - 1) * SEEDS_PER_CELL + episodes - 1
    for begin, end, use in RESERVED:
        if first < end and last >= begin:
            raise InputError(f"--seed {first}: {use} has the seeds from {max(0, begin)} on; take {TEST_SEED}")


def evaluate_cells(policy: Any, name: str, rules: str, episodes: int, seed: int) -> dict[str, Any]:
    """The nine cells as JSON: figures of each, and their total with its interval."""
    config = EvaluateConfig(name, episodes=episodes, rules=rules, seed=seed)  # type: ignore[arg-type]
    cells = evaluate(config, policy).cells
    return {
        "cells": [_figures(cell) for cell in cells],
        "total": round(sum(cell.mean for cell in cells), 4),
        "total_interval": round(total_interval(cells), 4),
    }


def _figures(cell: CellResult) -> dict[str, Any]:
    names = "mean", "interval", "median", "q05"
    figures = {name: round(getattr(cell, name), 4) + 0.0 for name in names}  # no minus zero
    return {"red": cell.red, "horizon": cell.horizon, **figures}


def check_out(path: Path) -> None:
    """Refuse a file that cannot be written, before any work is done for it."""
    check_writable(path, "--out")


def read_json(path: Path) -> Any:
    """Content of a result, or None if there is none yet.

    Raises:
        InputError: it is there, but cannot be read.
    """
    try:
        return json.loads(path.read_text()) if path.exists() else None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}; measure it again") from error


def write_json(path: Path, content: Any) -> None:
    """The whole file or none of it."""
    write_durably(path.absolute(), (as_json(content) + "\n").encode())
    print(f"wrote {path}", flush=True)
