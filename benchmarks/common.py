"""What the scripts of this folder share: results of a folder, and how a script is run."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tyro

from stockade.bench.result import Figure, Result, Tag, find, read_result
from stockade.cli import explain
from stockade.errors import InputError

Results = dict[str, Result]  # By name of the bench


def read_results(path: Path) -> Results:
    """All results of a folder, or the one of a file; InputError also if two are of the same bench."""
    results: Results = {}
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        result = read_result(file)
        if result.bench in results:
            raise InputError(f"{file} is a second result of bench {result.bench} in {path}: delete one of them")
        results[result.bench] = result
    return results


def figures(results: Results, bench: str, unit: str | None = None, **tags: Any) -> list[Figure]:
    """Those of a bench with this unit and these tags; none if it was not run."""
    return find(results[bench].figures, unit, **tags) if bench in results else []


def in_order(values: Iterable[Tag]) -> list[Tag]:
    """Each once: numbers by size, words as they come."""
    unique = list(dict.fromkeys(values))
    return sorted(unique, key=float) if all(isinstance(value, int | float) for value in unique) else unique


def run_script(commands: Any, description: str | None, arguments: list[str] | None = None) -> int:
    """Parse the command line and run what it says. Exit code 2, with the reason, for what cannot be done."""
    command = tyro.cli(commands, args=arguments, description=description)
    try:
        return int(command.run())
    except (InputError, OSError) as error:
        print(f"error: {explain(error)}", file=sys.stderr)
        return 2
