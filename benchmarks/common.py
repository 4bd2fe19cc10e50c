"""What the scripts of this folder share: results of a folder, and how a script is run."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tyro

from stockade.bench.result import Figure, Result, Skipped, Tag, find
from stockade.cli import explain
from stockade.errors import InputError
from stockade.files import as_json, write_durably

Results = dict[str, Result]  # By name of the bench


def read_result(path: Path) -> Result:
    """Read a result that `--json FILE` wrote; InputError if it is missing or something else."""
    try:
        content = json.loads(path.read_bytes())
        figures = [_figure_of(entry) for entry in content["figures"]]
        skipped = [Skipped(str(entry["what"]), str(entry["why"])) for entry in content["skipped"]]
        bench, command, seconds = str(content["bench"]), str(content["command"]), float(content["seconds"])
        return Result(bench, command, {**content["stamp"]}, {**content["settings"]}, seconds, figures, skipped)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        kinds = {KeyError: "it has no ", json.JSONDecodeError: "it is no JSON: "}
        raise InputError(f"{path} is no result of a bench: {kinds.get(type(error), '')}{error}; "
                         "make one with `stockade bench NAME --json FILE`") from error  # fmt: skip


def _figure_of(entry: dict[str, Any]) -> Figure:
    tags, rounds = dict(entry["tags"]), tuple(float(value) for value in entry["rounds"])
    if not rounds or not all(map(math.isfinite, rounds)):
        raise ValueError(f"figure {tags} has numbers that are not finite, or none")
    return Figure(tags, str(entry["unit"]), rounds)


def write_result(result: Result, path: Path) -> None:
    """As `--json FILE` does: after a crash there is the old file or the new one."""
    write_durably(path.absolute(), as_json(result.content()).encode() + b"\n")


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
