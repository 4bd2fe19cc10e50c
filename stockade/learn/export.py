"""`stockade export`: the policy of a run as two small files that `stockade.learn.load` takes anywhere.

run -> its best checkpoint -> weights (safetensors) and card (JSON: what it sees, how it plays, how it was trained)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import tyro

from stockade.errors import InputError
from stockade.learn.config import needs_training_packages


@dataclass(frozen=True)
class ExportConfig:
    """Write a run's policy as files of their own: weights, and a card that says how it was trained."""

    run_name: tyro.conf.Positional[str]
    """A run's name or folder."""
    to: tyro.conf.Positional[Path]
    """Where to: TO.json and its file of weights; `stockade evaluate TO.json` plays it."""
    greedy: bool = True
    """It plays its likeliest action unless told otherwise; without, it draws one."""
    last: bool = False
    """Take the last checkpoint instead of the best."""
    runs: Path = Path("runs")
    """Folder of all runs."""

    def run(self) -> int:
        """Write and say where."""
        try:
            from stockade.learn.checkpoint import Checkpoint, CheckpointFolder, save
        except ModuleNotFoundError as error:
            raise needs_training_packages(error) from error
        from stockade.learn.train import find_run

        if not self.to.absolute().parent.is_dir():
            raise InputError(f"{self.to}: there is no folder {self.to.parent}")
        folder = find_run(self.run_name, self.runs)
        checkpoints = CheckpointFolder(folder / "checkpoints")
        saved = checkpoints.load_last() if self.last else checkpoints.load_best()
        rest = saved.rest
        card = {
            "obs": rest["obs"],
            "context_rules": rest.get("context_rules", rest.get("told_rules", False)),
            "architecture": rest["architecture"],
            "greedy": self.greedy,
            "trained": {
                "settings": json.loads((folder / "config.json").read_text()),
                **{name: rest[name] for name in ("episodes", "steps", "seconds")},
            },
            "score": rest["best"],
        }
        weights = {name: array for name, array in saved.arrays.items() if name.startswith("policy.")}
        to = self.to.with_suffix("") if self.to.suffix == ".json" else self.to
        save(to, Checkpoint(weights, card))
        print(f"{to}.json: the policy of {folder} after {rest['episodes']} episodes")
        return 0
