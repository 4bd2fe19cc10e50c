"""The results that reports and comparisons are made of: a folder of JSON files, or one -> results by bench."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path

from stockade.bench.result import Result, read_result
from stockade.errors import InputError

RESULTS = Path("benchmarks/results")
"""Where results are kept: in a checkout, those of the machine that the documentation tells of."""


def read_results(path: Path) -> tuple[dict[str, Result], list[str]]:
    """All results of a folder, or the one of a file.

    Returns:
        The results by name of the bench, and a line for each file that an older version has written.

    Raises:
        InputError: there is nothing, a file is something else, or two are of the same bench.
    """
    if not path.is_dir():
        result = read_result(path)
        return {result.bench: result}, []
    results: dict[str, Result] = {}
    origin: dict[str, Path] = {}
    older = []
    for file in sorted(path.glob("*.json")):
        if _is_older(file):
            older.append(f"{file} is of an older format and left out: measure again, or delete it")
            continue
        result = read_result(file)
        if result.bench in results:
            raise InputError(
                f"{origin[result.bench]} and {file} are both results of bench {result.bench}: delete one of them"
            )
        results[result.bench], origin[result.bench] = result, file
    return results, older


def _is_older(file: Path) -> bool:
    """Results had no `command` at first."""
    try:
        content = jsonlib.loads(file.read_bytes())
    except (OSError, ValueError):
        return False  # whoever reads it next says what is wrong
    return isinstance(content, dict) and {"bench", "stamp"} <= content.keys() and "command" not in content
