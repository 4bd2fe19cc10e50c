"""What all parts of the champion's page share: seeds and who may use them, bars, files, one evaluation.

seeds: validation and development | ablations | behaviour | test: no result is played on seeds that chose anything
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stockade.baselines import BluePolicy
from stockade.errors import InputError
from stockade.learn.evaluate import SEEDS_PER_CELL, EvaluateConfig, evaluate
from stockade.learn.files import write_durably
from stockade.learn.leaderboard import CELLS, PUBLISHED, Row
from stockade.learn.results import CellResult, total_interval
from stockade.learn.train import VALIDATION_SEED

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "champion"
RULE_SETS = ("leaderboard", "current")

#: First seed of each use; cell k of an evaluation has those from SEED + k * SEEDS_PER_CELL on.
DEVELOPMENT_SEED, TEST_SEED, BEHAVIOUR_SEED, ABLATION_SEED = 300_000_000, 600_000_000, 700_000_000, 900_000_000
#: The test seeds of an earlier recipe, whose result made us look for a better one.
EARLIER_TEST_SEED = 500_000_000
_CELLS_LONG = len(CELLS) * SEEDS_PER_CELL
#: Seeds that are not for tests, [begin, end) and by whom they are used. `stockade evaluate` begins at 153 unless told
#: otherwise, so whoever tunes has seen those that follow.
RESERVED = (
    (-math.inf, EvaluateConfig("sleep").seed + _CELLS_LONG, "development, by `stockade evaluate`,"),
    (DEVELOPMENT_SEED, DEVELOPMENT_SEED + _CELLS_LONG, "development, by `stockade evaluate --seed`,"),
    (EARLIER_TEST_SEED, EARLIER_TEST_SEED + _CELLS_LONG, "the test of an earlier recipe"),
    (BEHAVIOUR_SEED, BEHAVIOUR_SEED + _CELLS_LONG, "the count of behaviour"),
    (ABLATION_SEED, ABLATION_SEED + _CELLS_LONG, "the evaluation of ablations"),
    (VALIDATION_SEED, math.inf, "validation, which chooses checkpoints,"),
)


@dataclass(frozen=True)
class Bar:
    """What the total of the six cells with an active attacker must be better than, and what it should be."""

    must: float
    aim: float


#: The winner replayed by us, and the best of every column of the leader board; for `current` set when we began.
BARS = {"leaderboard": Bar(-53.6, -51.6), "current": Bar(-60.0, -55.0)}
#: Minutes of training on two cores.
TIME_BAR = Bar(60.0, 15.0)
ACTIVE = tuple(k for k, (red, _) in enumerate(CELLS) if red != "sleep")


def winner(rules: str) -> Row:
    """The winner of the challenge, replayed."""
    return next(row for row in PUBLISHED if row.name == "CardiffUni, replayed" and row.rules == rules)


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


def evaluate_cells(policy: BluePolicy, name: str, rules: str, episodes: int, seed: int) -> dict[str, Any]:
    """The nine cells as JSON: figures of each, total of all and of the active ones with their intervals."""
    config = EvaluateConfig(name, episodes=episodes, rules=rules, seed=seed)  # type: ignore[arg-type]
    cells = evaluate(config, policy).cells
    active = [cells[k] for k in ACTIVE]
    return {
        "cells": [_figures(cell) for cell in cells],
        "total": round(sum(cell.mean for cell in cells), 4),
        "total_interval": round(total_interval(cells), 4),
        "active": round(sum(cell.mean for cell in active), 4),
        "active_interval": round(total_interval(active), 4),
    }


def _figures(cell: CellResult) -> dict[str, Any]:
    names = "mean", "interval", "median", "q05"
    figures = {name: round(getattr(cell, name), 4) + 0.0 for name in names}  # no minus zero
    return {"red": cell.red, "horizon": cell.horizon, **figures}


# ---------------------------------------------------------------------------------------------------------------- files
def check_out(path: Path) -> None:
    """Before any work is done for it.

    Raises:
        InputError: its folder does not exist.
    """
    if not path.absolute().parent.is_dir():
        raise InputError(f"--out {path}: there is no folder {path.parent}")


def read_json(path: Path) -> Any:
    """Content of a result, or None if there is none yet.

    Raises:
        InputError: it is there, but cannot be read.
    """
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}; measure it again") from error


def write_json(path: Path, content: Any) -> None:
    """The whole file or none of it."""
    write_durably(path.absolute(), (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
    print(f"wrote {path}", flush=True)
