"""What a search must not forget: its settings, each proposal before it is trained, each result with its policy.

runs/NAME/  config.json  state.json  policies/NNN-ORDER.json and its arrays

A proposal is written down with everything that its training depends on, so that a training which a crash cut short can
be repeated exactly. A result is in state.json only after its policy is safe.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

import stockade
from stockade.cage2.config import WorldConfig
from stockade.errors import InputError
from stockade.learn.checkpoint import Checkpoint, load, save
from stockade.learn.files import new_run_folder, write_durably
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import UNIT_TYPES, Order, one_hot
from stockade.workflow.records import FixStatistics, WorkflowResult

FORMAT, VERSION = "stockade search", 1
_PREFIX = "policy."


@dataclass(frozen=True)
class Proposed:
    """A workflow that was chosen, and all that its training depends on.

    Attributes:
        number: of the training. order: chosen. seed, episodes: of the task.
        inherit: number of the training whose weights it begins with, or None.
        ucb, mean, sd, feasibility: what the model thought of it; NaN where nothing was asked.
        top: the candidates that it thought best, as text.
    """

    number: int
    order: Order
    seed: int
    episodes: int
    inherit: int | None
    ucb: float
    mean: float
    sd: float
    feasibility: float
    top: str


@dataclass(frozen=True)
class State:
    """What is known of a search.

    Attributes:
        proposals: in the order in which they were made. results: in the order in which they came, without weights.
        seconds: that the search has run.
    """

    proposals: tuple[Proposed, ...] = ()
    results: tuple[WorkflowResult, ...] = ()
    seconds: float = 0.0


class SearchFolder:
    """The folder of a search.

    Attributes:
        path: of it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, config: SearchConfig) -> SearchFolder:
        """A new one, with the settings in it."""
        red = WorldConfig(red=config.red_agent).red  # shortens the reference's names
        path = new_run_folder(config.runs, config.name, f"search-{red}-seed{config.seed}")
        content = {"stockade": stockade.__version__, "command": "search", **config.to_json()}
        write_durably(path / "config.json", _encoded(content))
        return cls(path)

    @classmethod
    def find(cls, name: str, runs: Path) -> SearchFolder:
        """Of a search's name or path."""
        for folder in (runs / name, Path(name)):
            if (folder / "config.json").exists():
                return cls(folder)
        raise InputError(f"there is no search {name!r} in {runs}, nor such a folder with a config.json")

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
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{where} cannot be used: {error}") from error

    # ------------------------------------------------------------------------------------------------------ progress
    def write_state(self, state: State) -> None:
        """Replace what was known, in one instant."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "seconds": state.seconds,
            "proposals": [_plain(asdict(p)) for p in state.proposals],
            "results": [_plain(asdict(_without_weights(r))) for r in state.results],
        }
        write_durably(self.path / "state.json", _encoded(content))

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
            results = tuple(_result(r) for r in content["results"])
            if not {r.number for r in results} <= {p.number for p in proposals}:
                raise ValueError("it has results that nobody proposed")
            return State(proposals, results, float(content["seconds"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{where} cannot be used: {error}") from error

    # ------------------------------------------------------------------------------------------------------ policies
    def policy_path(self, number: int, order: Order) -> Path:
        """Of a training's policy, without its endings."""
        return self.path / "policies" / f"{number:03d}-{'-'.join(UNIT_TYPES[unit] for unit in order)}"

    def save_policy(self, result: WorkflowResult, config: SearchConfig) -> None:
        """A checkpoint like those of `stockade train`, that can be played anywhere."""
        rest = {
            "architecture": result.architecture,
            "obs": config.obs,
            "order": list(result.order),
            "context": one_hot(result.order).tolist(),  # what stands beside the observation, so that anyone can play it
            "value": _finite(result.value),
            "compliance": _finite(result.compliance),
            "feasible": result.feasible,
            "red_agent": WorldConfig(red=config.red_agent).red,
            "rules": config.rules,
            "alignment": asdict(config.alignment),
        }
        arrays = {_PREFIX + name: weights for name, weights in result.weights.items()}
        save(self.policy_path(result.number, result.order), Checkpoint(arrays, rest))

    def load_weights(self, number: int, order: Order) -> dict[str, np.ndarray]:
        """Of a policy that was saved."""
        arrays = load(self.policy_path(number, order)).arrays
        return {name.removeprefix(_PREFIX): a for name, a in arrays.items() if name.startswith(_PREFIX)}


def _without_weights(result: WorkflowResult) -> WorkflowResult:
    return replace(result, weights={}, architecture={})


def _encoded(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def _plain(content: dict[str, Any]) -> dict[str, Any]:
    """NaN and infinity as words: JSON has no numbers for them."""
    return {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in content.items()}


def _typed(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    """Back from `_plain`: floats and tuples where the dataclass says so."""
    names = {f.name: str(f.type) for f in fields(kind)}
    if set(names) != set(content):
        raise ValueError(f"expected {sorted(names)}, found {sorted(content)}")
    turned: dict[str, Any] = dict(content)
    for name, declared in names.items():
        if declared == "float":
            turned[name] = float(content[name])
        elif declared == "Order" or declared.startswith("tuple"):
            turned[name] = tuple(content[name])
    return turned


def _result(content: dict[str, Any]) -> WorkflowResult:
    statistics = FixStatistics(**content["statistics"])
    return WorkflowResult(**{**_typed(WorkflowResult, content), "statistics": statistics})


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
