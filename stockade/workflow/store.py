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
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

import stockade
from stockade.errors import InputError
from stockade.files import write_durably
from stockade.learn.checkpoint import Checkpoint, CheckpointError, load, remove, save
from stockade.learn.files import new_run_folder
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import Order, one_hot
from stockade.workflow.records import FixStatistics, WorkflowResult
from stockade.workflow.units import UNITS, as_ranking

FORMAT, VERSION = "stockade search", 2
_PREFIX = "policy."
_ARRAYS = {"weights": {}, "architecture": {}, "returns": np.zeros((0, 0)), "state": None}
"""Fields of a result that stand beside state.json, and what stands for them there."""


@dataclass(frozen=True)
class Proposed:
    """An order that was chosen, and all that its training depends on.

    Attributes:
        number: of the training. order: chosen. seed, episodes: of the task.
        inherit: number of the training whose weights (strict: whose whole state) it begins with, or None.
        ucb, mean, sd, feasibility: what the model thought of it; NaN where nothing was asked.
        top: the candidates that it thought best, as text.
    """

    number: int
    order: Order
    seed: int
    episodes: int
    inherit: int | None = None
    ucb: float = math.nan
    mean: float = math.nan
    sd: float = math.nan
    feasibility: float = math.nan
    top: str = ""


@dataclass(frozen=True)
class State:
    """What is known of a search.

    Attributes:
        proposals: in the order in which they were made. results: in the order in which they came, without arrays.
        seconds: that the search has run.
    """

    proposals: tuple[Proposed, ...] = ()
    results: tuple[WorkflowResult, ...] = ()
    seconds: float = 0.0


def without_arrays(result: WorkflowResult) -> WorkflowResult:
    """What state.json has of a result."""
    return replace(result, **_ARRAYS)  # type: ignore[arg-type]


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
        path = new_run_folder(config.runs, config.name, f"search-{'-'.join(config.reds)}-seed{config.seed}")
        folder = cls(path)
        folder.write_config(config)
        return folder

    def write_config(self, config: SearchConfig) -> None:
        """The settings; again when a search is extended."""
        content = {"stockade": stockade.__version__, "command": "search", **config.to_json()}
        write_durably(self.path / "config.json", _encoded(content))

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
        results = [asdict(without_arrays(result)) for result in state.results]
        for content in results:
            for name in _ARRAYS:
                del content[name]
        content = {
            "format": FORMAT,
            "version": VERSION,
            "seconds": state.seconds,
            "proposals": [_plain(asdict(p)) for p in state.proposals],
            "results": [_plain(r) for r in results],
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
        names = UNITS["types"].names if len(order) <= len(UNITS["types"].names) else None
        slug = "" if names is None else "-" + ("-".join(names[u] for u in order) or "no-order")
        return self.path / "policies" / f"{number:03d}{slug}"

    def save_policy(self, result: WorkflowResult, config: SearchConfig) -> None:
        """A checkpoint like those of `stockade train`, that can be played anywhere."""
        if config.constraint == "reward":
            context = one_hot(result.order)
            kind: dict[str, Any] = {"alignment": asdict(config.protocol)}
        else:
            context = UNITS[config.units].context(result.order)
            kind = {"constraint": {"units": config.units, "judge": config.judge}}
        rest = {
            "architecture": result.architecture,
            "obs": config.obs,
            "order": list(result.order),
            "context": context.tolist(),  # what stands beside the observation, so that anyone can play it
            "value": _finite(result.value),
            "compliance": _finite(result.compliance),
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

    def save_training(self, number: int, update: int, state: Checkpoint) -> None:
        """Keep the state of a training after an update; it takes the place of an earlier one."""
        save(self._training_path(number), Checkpoint(state.arrays, {"update": update, "state": state.rest}))

    def load_training(self, number: int) -> tuple[int, Checkpoint] | None:
        """The last update that was kept and the state after it; None if there is none that can be used."""
        path = self._training_path(number)
        if not path.with_name(f"{path.name}.json").exists():
            return None
        try:
            found = load(path)
        except CheckpointError as error:
            warnings.warn(f"{error}; training {number} begins again", stacklevel=2)
            return None
        return int(found.rest["update"]), Checkpoint(found.arrays, found.rest["state"])

    def forget_trainings(self, keep: Iterable[int]) -> None:
        """Remove the states of all other trainings."""
        kept = set(keep)
        for file in (self.path / "trainings").glob("*.json"):
            if int(file.stem) not in kept:
                remove(file.with_suffix(""))


def _encoded(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()


def _plain(content: Any) -> Any:
    """NaN and infinity as words: JSON has no numbers for them."""
    if isinstance(content, dict):
        return {k: _plain(v) for k, v in content.items()}
    if isinstance(content, tuple | list):
        return [_plain(v) for v in content]
    return str(content) if isinstance(content, float) and not math.isfinite(content) else content


def _typed(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    """Back from `_plain`: floats and tuples where the dataclass says so."""
    names = {f.name: str(f.type) for f in fields(kind) if f.name not in _ARRAYS}
    if set(names) != set(content):
        raise ValueError(f"expected {sorted(names)}, found {sorted(content)}")
    turned: dict[str, Any] = dict(content)
    for name, declared in names.items():
        if declared == "float":
            turned[name] = float(content[name])
        elif declared == "Order":
            turned[name] = as_ranking(content[name])
        elif declared.startswith("tuple[float"):
            turned[name] = tuple(map(float, content[name]))
        elif declared.startswith("tuple"):
            turned[name] = tuple(content[name])
    return turned


def _result(content: dict[str, Any]) -> WorkflowResult:
    statistics = FixStatistics(**content["statistics"])
    return WorkflowResult(**{**_typed(WorkflowResult, content), **_ARRAYS, "statistics": statistics})


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
