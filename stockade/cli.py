"""The command `stockade`: one subcommand a job, its flags made of a dataclass."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from stockade.bench.cli import Bench
from stockade.cage2.verify import find_traces, verify_file
from stockade.errors import InputError
from stockade.learn.config import TrainConfig
from stockade.learn.export import ExportConfig
from stockade.learn.presets import preset_of
from stockade.learn.runs import RunsConfig
from stockade.report import draw_search
from stockade.workflow.config import SearchConfig
from stockade.workflow.engine import WorkflowError
from stockade.workflow.evaluation import Evaluate


def _check_writable(path: Path | None) -> None:
    """Before any work is done for it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise InputError(f"--json {path}: there is no folder {path.parent}")


def _write_json(path: Path | None, content: object) -> None:
    if path is not None:
        path.write_text(jsonlib.dumps(content, indent=1) + "\n")


@dataclass(frozen=True)
class Verify:
    """Replay recorded traces of the reference and compare everything after every step."""

    paths: tyro.conf.Positional[tuple[Path, ...]]
    """Trace files (.npz), or folders with such files."""
    json: Path | None = None
    """Write the result to this file too."""

    def run(self) -> int:
        """Print a line a file; exit code 1 if anything differs."""
        _check_writable(self.json)
        files = find_traces(self.paths)
        width = max(len(path.name) for path in files)
        reports = []
        for path in files:
            report = verify_file(path)
            reports.append(report)
            verdict = "equal" if not report.mismatches else f"{report.mismatches} mismatches"
            print(f"{report.file:<{width}}  {report.steps:>6} steps  {verdict}", flush=True)
        steps, mismatches = (sum(getattr(r, what) for r in reports) for what in ("steps", "mismatches"))
        first = next((report.first for report in reports if report.first), None)
        if first:
            print(first)
        _write_json(self.json, {"steps": steps, "mismatches": mismatches, "files": [asdict(r) for r in reports]})
        print(f"{steps} steps, {len(files)} files, {mismatches} mismatches")
        return 1 if mismatches else 0


def _commands(arguments: list[str]) -> Any:
    """All subcommands; a preset's settings are the defaults of `train`."""
    training = preset_of(arguments) if arguments[:1] == ["train"] else TrainConfig()
    return (
        Annotated[Verify, tyro.conf.subcommand("verify")]
        | Annotated[TrainConfig, tyro.conf.subcommand("train", default=training)]
        | Annotated[SearchConfig, tyro.conf.subcommand("search")]
        | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
        | Annotated[RunsConfig, tyro.conf.subcommand("runs")]
        | Annotated[ExportConfig, tyro.conf.subcommand("export")]
        | Annotated[Bench, tyro.conf.subcommand("bench")]
    )


def main(arguments: list[str] | None = None) -> None:
    """Entry point. Exit codes: 0 fine, 1 the answer is no, 2 the input cannot be used, 130 interrupted."""
    try:
        given = sys.argv[1:] if arguments is None else arguments
        command = tyro.cli(_commands(given), args=given, prog="stockade", description=__doc__)
        code = command.run(draw_search) if isinstance(command, SearchConfig) else command.run()
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except (InputError, OSError) as error:
        print(f"stockade: {error}", file=sys.stderr)
        code = 2
    except WorkflowError as error:
        print("\n".join([f"stockade: {error}", *getattr(error, "__notes__", [])]), file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        print("stockade: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
