"""`stockade export`: the policy of a run as two small files that `stockade.learn.load` takes anywhere.

run -> its best checkpoint -> weights (safetensors) and card (JSON: what it sees, how it was trained)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from stockade.errors import InputError
from stockade.files import check_writable
from stockade.learn.files import find_run, kind_of
from stockade.text import plural


@dataclass(frozen=True)
class ExportConfig:
    """Write a run's policy to files of its own: weights, and a card that says how it was trained."""

    run_name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run's name or folder."""
    to: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """Writes FILE.json and its file of weights; `stockade evaluate FILE.json` plays it."""
    last: bool = False
    """Take the last checkpoint instead of the best."""
    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs")
    """Folder of all runs."""

    def run(self) -> int:
        """Write, and say where."""
        from stockade.learn.checkpoint import Checkpoint, CheckpointFolder, save

        to = self.to.with_suffix("") if self.to.suffix == ".json" else self.to
        check_writable(to.with_name(f"{to.name}.json"), "FILE")
        folder = find_run(self.run_name, self.runs, kind=None)
        if kind_of(folder) == "search":
            raise InputError(f"{folder} is a search, whose policies are files already, in {folder / 'policies'}; "
                             f"to play the best: stockade evaluate {folder}")  # fmt: skip
        checkpoints = CheckpointFolder(folder / "checkpoints")
        saved = checkpoints.load_last() if self.last else checkpoints.load_best()
        rest = saved.rest
        card = {
            "obs": rest["obs"],
            "context_rules": rest.get("context_rules", rest.get("told_rules", False)),
            "architecture": rest["architecture"],
            "trained": {
                "settings": json.loads((folder / "config.json").read_text()),
                **{name: rest[name] for name in ("episodes", "steps", "seconds")},
            },
            "score": rest["best"],
        }
        weights = {name: array for name, array in saved.arrays.items() if name.startswith("policy.")}
        save(to, Checkpoint(weights, card))
        print(f"{to}.json: the policy of {folder} after {plural(rest['episodes'], 'episode')}")
        return 0
