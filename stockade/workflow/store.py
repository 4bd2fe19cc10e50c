"""What separate trainings must not forget: settings, each proposal before it is trained, each result with its policy.

runs/NAME/  config.json  state.json  policies/NNN-ORDER.json and its arrays  trainings/NNN.json and its arrays

A proposal is written down with everything that its training depends on, so that a training which a crash cut short can
be repeated exactly, and `trainings` has the last checkpoint of each training that is in flight or may be continued. A
result is in state.json only after its policy is safe.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

import stockade
from stockade.errors import InputError
from stockade.files import as_json, write_durably
from stockade.learn.checkpoint import Checkpoint, CheckpointError, load, remove, save
from stockade.learn.files import new_run_folder
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import Order, one_hot
from stockade.workflow.records import ARRAYS, Proposed, Saved, WorkflowResult
from stockade.workflow.units import TYPES, UNITS

FORMAT, VERSION = "stockade search", 3
_PREFIX = "policy."
_UNUSABLE = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class State:
    """What is known of a search: proposals as they were made, results as they came, without arrays; seconds it ran."""

    proposals: tuple[Proposed, ...] = ()
    results: tuple[WorkflowResult, ...] = ()
    seconds: float = 0.0


class SearchFolder:
    """The folder of a search."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, config: SearchConfig) -> SearchFolder:
        """A new one, with the settings in it."""
        folder = cls(new_run_folder(config.runs, config.name, f"search-{'-'.join(config.reds)}-seed{config.seed}"))
        folder.write_config(config)
        return folder

    @classmethod
    def find(cls, name: str, runs: Path) -> SearchFolder:
        """Of a search's name or path."""
        for folder in (runs / name, Path(name)):
            if (folder / "config.json").exists():
                return cls(folder)
        raise InputError(f"there is no search {name!r} in {runs}, nor such a folder with a config.json")

    def _write(self, name: str, content: dict[str, Any]) -> None:
        write_durably(self.path / name, (as_json(content) + "\n").encode())

    def write_config(self, config: SearchConfig) -> None:
        """The settings; again when a search is extended."""
        self._write("config.json", {"stockade": stockade.__version__, "command": "search", **config.to_json()})

    def read_config(self) -> SearchConfig:
        """The settings that it was begun with."""
        where = self.path / "config.json"
        try:
            content = json.loads(where.read_text())
            if content.pop("command", None) != "search":
                raise InputError(f"{self.path} is no search: see `stockade runs`, or `stockade train --resume`")
            del content["stockade"]
            return SearchConfig.from_json(content)
        except InputError:
            raise
        except _UNUSABLE as error:
            raise InputError(f"{where} cannot be used: {error}") from error

    # ------------------------------------------------------------------------------------------------------ progress
    def write_state(self, state: State) -> None:
        """Replace what was known, in one instant."""
        proposals, results = [asdict(p) for p in state.proposals], [r.to_json() for r in state.results]
        head = {"format": FORMAT, "version": VERSION, "seconds": state.seconds}
        self._write("state.json", {**head, "proposals": proposals, "results": results})

    def read_state(self) -> State:
        """What is known; nothing if nothing was proposed yet."""
        where = self.path / "state.json"
        if not where.exists():
            return State()
        try:
            content = json.loads(where.read_text())
            found = content["format"], content["version"]
            if found != (FORMAT, VERSION):
                raise ValueError(f"it is of another kind or version: {found} instead of {(FORMAT, VERSION)}")
            proposals = tuple(Proposed(**_typed(Proposed, p)) for p in content["proposals"])
            results = tuple(WorkflowResult(**_typed(WorkflowResult, r)) for r in content["results"])
            if not {r.number for r in results} <= {p.number for p in proposals}:
                raise ValueError("it has results that nobody proposed")
            return State(proposals, results, float(content["seconds"]))
        except _UNUSABLE as error:
            raise InputError(f"{where} cannot be used: {error}") from error

    # ------------------------------------------------------------------------------------------------------ policies
    def policy_path(self, number: int, order: Order) -> Path:
        """Of a training's policy, without its endings."""
        slug = "-".join(TYPES.names[u] for u in order) or "no-order" if len(order) <= len(TYPES.names) else "hosts"
        return self.path / "policies" / f"{number:03d}-{slug}"

    def save_policy(self, result: WorkflowResult, config: SearchConfig) -> None:
        """A checkpoint like those of `stockade train`, that can be played anywhere."""
        if config.constraint == "reward":
            context, kind = one_hot(result.order), {"alignment": asdict(config.protocol)}
        else:
            context = UNITS[config.units].context(result.order)
            kind = {"constraint": {"units": config.units, "judge": config.judge}}
        rest = {
            "architecture": result.architecture,
            "obs": config.obs,
            "order": list(result.order),
            "context": context.tolist(),  # what stands beside the observation, so that anyone can play it
            "value": result.value if math.isfinite(result.value) else None,
            "compliance": result.compliance if math.isfinite(result.compliance) else None,
            "feasible": result.feasible,
            "red_agent": config.red,
            "rules": config.rules,
            **kind,
        }
        arrays = {_PREFIX + name: weights for name, weights in result.weights.items()}
        save(self.policy_path(result.number, result.order), Checkpoint({**arrays, "returns": result.returns}, rest))

    def load_policy(self, number: int, order: Order) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Weights by name of a policy that was saved, and the returns that its value rests on."""
        arrays = load(self.policy_path(number, order)).arrays
        weights = {name.removeprefix(_PREFIX): a for name, a in arrays.items() if name.startswith(_PREFIX)}
        return weights, arrays["returns"]

    # ------------------------------------------------------------------------------------ trainings that can continue
    def _training_path(self, number: int) -> Path:
        return self.path / "trainings" / f"{number:03d}"

    def save_training(self, saved: Saved) -> None:
        """Keep the state of a training after an update; it takes the place of an earlier one."""
        state = saved.state
        save(self._training_path(saved.number), Checkpoint(state.arrays, {"update": saved.update, "state": state.rest}))

    def load_training(self, number: int) -> Saved | None:
        """The state that was kept last; None if there is none that can be used."""
        path = self._training_path(number)
        if not path.with_name(f"{path.name}.json").exists():
            return None
        try:
            found = load(path)
        except CheckpointError as error:
            warnings.warn(f"{error}; training {number} begins again", stacklevel=2)
            return None
        return Saved(number, int(found.rest["update"]), Checkpoint(found.arrays, found.rest["state"]))

    def forget_trainings(self, keep: Iterable[int]) -> None:
        """Remove the states of all other trainings."""
        kept = set(keep)
        for file in (self.path / "trainings").glob("*.json"):
            if int(file.stem) not in kept:
                remove(file.with_suffix(""))


def _typed(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    """Fields of a dataclass back from JSON, which has null for NaN and lists for tuples."""
    declared = {f.name: str(f.type) for f in fields(kind) if f.name not in ARRAYS}
    if set(declared) != set(content):
        raise ValueError(f"expected {sorted(declared)}, found {sorted(content)}")
    return {name: _value(declared[name], value) for name, value in content.items()}


def _value(declared: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value("float" if "float" in declared else "", element) for element in value)
    return math.nan if value is None and declared == "float" else value
