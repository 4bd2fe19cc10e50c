"""What passes between the search and those who train its orders, and what of it is written down.

Proposed (chosen, written down) -> Task (with weights or state) -> UpdateRow, Saved ... -> WorkflowResult (with policy)

runs/NAME/  config.json  state.json  training_log.csv  gp_log.csv
            policies/NNN-ORDER.json and its arrays  trainings/NNN.json and its arrays

A proposal is written down with all that its training depends on, so that one which a crash cut short can be repeated
exactly; `trainings` has the last checkpoint of each training that is in flight or may be continued. A result is in
state.json only after its policy is safe. When trainings continue from a checkpoint (after a kill, or because a worker
died), later rows are first taken out of training_log.csv, so that each update of each training is there once.
"""

import contextlib
import csv
import hashlib
import io
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

import stockade
from stockade.errors import InputError, WorkError
from stockade.files import AppendedFile, as_json, json_ready, write_durably
from stockade.learn.checkpoint import Checkpoint, CheckpointError, load, remove, save
from stockade.learn.files import find_folder, new_run_folder
from stockade.text import plural
from stockade.workflow.aligned import Statistics
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import ORDERS, TYPES, UNITS, Order, Units, index_of, name_of, one_hot

FORMAT, VERSION = "stockade search", 4
WITHOUT_CHECKSUM = 3  #: version of state.json that had none
_PREFIX = "policy."
TRAINING_COLUMNS = (
    "number", "workflow", "order", "update", "episodes", "total_episodes", "env_reward", "alignment", "total",
    "compliance", "fixes", "no_fix", "collect_seconds", "update_seconds",
)  # fmt: skip
GP_COLUMNS = (
    "number", "workflow", "order", "name", "ucb", "mean", "sd", "feasibility", "top", "inherit", "seed",
    "allowed_episodes", "value", "gain", "value_error", "compliance", "fixes", "feasible", "episodes", "stopped",
    "seconds",
)  # fmt: skip
StopReason = Literal["compliant", "plateau", "max_episodes", "budget", "fixed"]
_ARRAYS = ("weights", "architecture", "returns", "state")  #: fields of a result that stand beside state.json


@dataclass(frozen=True)
class Proposed:
    """An order that was chosen, and all that its training depends on."""

    number: int  #: of the training in this search, from 0
    order: Order  #: FREE for none
    seed: int
    episodes: int  #: that it may use of the budget
    inherit: int | None = None  #: training whose weights (strict: whose whole state) it begins with
    ucb: float = math.nan  #: what the model thought of it, as `mean`, `sd`, `feasibility`; NaN where nothing was asked
    mean: float = math.nan
    sd: float = math.nan
    feasibility: float = math.nan
    top: str = ""  #: the candidates that it thought best


@dataclass(frozen=True)
class Task:
    """One order to train."""

    number: int
    order: Order
    config: SearchConfig
    seed: int
    episodes: int  #: a multiple of n_envs, unless update_steps is not whole episodes
    weights: dict[str, np.ndarray] | None = None  #: to begin with, by name; None for new ones
    state: Checkpoint | None = None  #: to continue from, of this training or of the one that it continues
    threads: int | None = None  #: None: as many as there are cores; results do not depend on it


@dataclass(frozen=True)
class UpdateRow:
    """One update of one training, of the episodes that ended in it; NaN where none did."""

    number: int
    update: int  #: from 1
    episodes: int  #: of this training so far
    env_reward: float  #: mean return of the environment alone
    alignment: float  #: mean of what was paid for alignment
    compliance: float  #: mean over episodes with a judged fix
    fixes: float  #: judged fixes per episode; strict: fixes that were carried out
    no_fix: float  #: share of episodes without one
    collect_seconds: float
    update_seconds: float  #: 0 for the last, after which nothing is learned


@dataclass(frozen=True)
class Saved:
    """The state of a training after an update: from here it can continue, bit for bit."""

    number: int
    update: int
    state: Checkpoint


@dataclass(frozen=True)
class WorkflowResult:
    """A trained order."""

    number: int
    order: Order
    value: float  #: mean environment reward; with several attackers their mean or the worst, as the goal says
    value_error: float  #: its standard error
    value_episodes: int  #: that it rests on
    by_attacker: tuple[float, ...]  #: value against each of `config.reds`
    gain: float  #: value minus that of the training which this one continues; NaN if it continues none
    compliance: float  #: of the policy that is kept; NaN if no episode had a judged fix
    fixes: float  #: judged fixes per episode
    no_fix: float  #: share of episodes without one
    feasible: bool  #: compliance reached the threshold with enough fixes; always with strict
    episodes: int
    updates: int
    stopped: StopReason
    held: tuple[bool, ...]  #: (5,) types that red held at some time, its foothold apart; False where nobody looked
    statistics: Statistics  #: of the episodes that the compliance rests on; empty with strict
    seconds: float
    weights: dict[str, np.ndarray] = field(default_factory=dict)  #: of the policy that is kept, by name
    architecture: dict[str, object] = field(default_factory=dict)
    returns: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  #: (attackers, episodes)
    state: Checkpoint | None = None  #: to continue from; None if it cannot be continued

    def to_json(self) -> dict[str, Any]:
        """What state.json has of it: all but the arrays."""
        return {name: value for name, value in vars(self).items() if name not in _ARRAYS}


# -------------------------------------------------------------------------------------------------------------- folder
@dataclass(frozen=True)
class State:
    """What is known of a search: proposals as they were made, results as they came, without arrays; seconds it ran."""

    proposals: tuple[Proposed, ...] = ()
    results: tuple[WorkflowResult, ...] = ()
    seconds: float = 0.0


class SearchFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._missing: list[str] = []

    @classmethod
    def create(cls, config: SearchConfig) -> Self:
        folder = cls(new_run_folder(config.runs, config.name, f"search-{'-'.join(config.reds)}-seed{config.seed}"))
        folder.write_config(config)
        return folder

    @classmethod
    def find(cls, name: str, runs: Path) -> Self:
        return cls(find_folder(name, runs, "search"))

    def _write(self, name: str, content: dict[str, Any]) -> None:
        write_durably(self.path / name, (as_json(content) + "\n").encode())

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[dict[str, Any]]:
        """Content of a JSON file, which may be damaged: an error inside becomes an InputError that names it."""
        try:
            yield json.loads((self.path / name).read_text())
        except CheckpointError:  # which names its own file
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            said = f"{type(error).__name__} {error}" if isinstance(error, LookupError) else error
            raise InputError(f"{self.path / name} cannot be used: {said}") from error

    @contextlib.contextmanager
    def ending(self, what: str) -> Iterator[None]:
        """Write a part of the end of a search; if the disk is full, `require_end` says so once all parts were tried."""
        try:
            yield
        except OSError as error:
            self._missing.append(f"{what} ({error})")

    def require_end(self) -> None:
        """WorkError if a part of the end is not on disk."""
        if self._missing:
            raise WorkError(f"not on disk: {', '.join(self._missing)}. Make room, then continue with: stockade search "
                            f"--resume {self.path}")  # fmt: skip

    def write_config(self, config: SearchConfig) -> None:
        """The settings; again when a search is extended."""
        self._write("config.json", {"stockade": stockade.__version__, "command": "search", **config.to_json()})

    def read_config(self) -> SearchConfig:
        with self.reading("config.json") as content:
            if content.pop("command", None) != "search":
                raise InputError("it is of no search: see `stockade runs`, or `stockade train --resume`")
            del content["stockade"]
            return SearchConfig.from_json(content)

    def extend(self, config: SearchConfig) -> None:
        """Take over the larger budget of a search that goes on; for whoever holds the folder."""
        if config.budget > (own := self.read_config()).budget:
            self.write_config(replace(own, total_episodes=config.total_episodes))

    def write_summary(self, summary: dict[str, Any]) -> None:
        """The result. Of an earlier one it keeps how that was certified, if it claims the same of the same orders."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            earlier = json.loads((self.path / "summary.json").read_text())["certified"]
            claim = "equal" if earlier["rival"] in summary["best"] else "better"
            judged = {entry["order"] for entry in summary["classes"]}
            if earlier["leader"] in summary["best"] and earlier["rival"] in judged and earlier["claim"] == claim:
                summary.setdefault("certified", earlier)
        self._write("summary.json", summary)

    # ------------------------------------------------------------------------------------------------------ progress
    def write_state(self, state: State, units: Units) -> None:
        """Replace what was known, in one instant; then the table of all proposals."""
        proposals, results = [asdict(p) for p in state.proposals], [r.to_json() for r in state.results]
        head = {"format": FORMAT, "version": VERSION, "seconds": state.seconds}
        content = json_ready({**head, "proposals": proposals, "results": results})
        self._write("state.json", {**content, "checksum": _checksum(content)})
        found = {r.number: vars(r) for r in state.results}
        rows: list[Iterable[object]] = [GP_COLUMNS]
        for p in state.proposals:  # the columns of its result are empty until there is one
            names = {"workflow": _number_of(p.order), "order": units.describe(p.order), "name": name_of(p.order)}
            values = {**vars(p), "episodes": None, **found.get(p.number, {}), **names, "allowed_episodes": p.episodes}
            rows.append([values.get(name) for name in GP_COLUMNS])
        write_durably(self.path / "gp_log.csv", _lines(rows).encode())

    def read_state(self) -> State:
        """What is known; nothing if nothing was proposed yet."""
        if not (self.path / "state.json").exists():
            return State()
        with self.reading("state.json") as content:
            checksum, found = content.pop("checksum", None), (content["format"], content["version"])
            if found not in ((FORMAT, VERSION), (FORMAT, WITHOUT_CHECKSUM)):
                raise ValueError(f"it is of another kind or version: {found} instead of {(FORMAT, VERSION)}")
            if found[1] == VERSION and checksum != _checksum(content):
                raise ValueError("it was altered: its checksum does not fit")
            proposals = tuple(Proposed(**{**_typed(p), "inherit": p["inherit"]}) for p in content["proposals"])
            results = tuple(WorkflowResult(**_typed(r)) for r in content["results"])
            if not {r.number for r in results} <= {p.number for p in proposals}:
                raise ValueError("it has results that nobody proposed")
            return State(proposals, results, float(content["seconds"]))

    # ------------------------------------------------------------------------------------------------------ policies
    def policy_path(self, number: int, order: Order) -> Path:
        """Of a training's policy, without its endings."""
        of_types = len(order) <= len(TYPES.names) and all(isinstance(unit, int) for unit in order)
        slug = "-".join(TYPES.names[u] for u in order) or "no-order" if of_types else "hosts"
        return self.path / "policies" / f"{number:03d}-{slug}"

    def save_policy(self, result: WorkflowResult, config: SearchConfig) -> None:
        """A checkpoint like those of `stockade train`, that can be played anywhere."""
        if config.constraint == "reward":
            context, kind = one_hot(result.order), {"alignment": asdict(config.protocol)}
        else:
            context = UNITS[config.units].context(result.order)
            kind = {"constraint": {"units": config.units, "judge": config.judge}}
        rest = {
            "architecture": result.architecture, "obs": config.obs, "order": result.order,
            "context": context,  # what stands beside the observation, so that anyone can play it
            "value": result.value, "compliance": result.compliance, "feasible": result.feasible,
            "red_agent": config.red, "rules": config.rules, **kind,
        }  # fmt: skip
        arrays = {_PREFIX + name: weights for name, weights in result.weights.items()}
        checkpoint = Checkpoint({**arrays, "returns": result.returns}, json_ready(rest))
        save(self.policy_path(result.number, result.order), checkpoint)

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

    def forget_trainings(self, keep: set[int]) -> None:
        """Remove the states of all other trainings."""
        for file in (self.path / "trainings").glob("*.json"):
            if int(file.stem) not in keep:
                remove(file.with_suffix(""))


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _typed(content: dict[str, Any]) -> dict[str, Any]:
    """Fields back from JSON, which has null for NaN and lists for tuples."""

    def typed(value: Any) -> Any:
        return tuple(map(typed, value)) if isinstance(value, list) else math.nan if value is None else value

    return {name: typed(value) for name, value in content.items()}


# -------------------------------------------------------------------------------------------------------------- tables
class TrainingLog:
    """training_log.csv of a search, a line per update; of earlier rows those stay that `keep(number, update)` wants."""

    def __init__(self, path: Path, keep: Callable[[int, int], bool]) -> None:
        self.path = path
        self._begin(path.read_bytes() if path.exists() else b"", keep)

    def keep(self, wanted: Callable[[int, int], bool]) -> None:
        """Take all other rows out."""
        self._begin(self._file.read(), wanted)

    def _begin(self, content: bytes, keep: Callable[[int, int], bool]) -> None:
        self._episodes: dict[int, int] = {}
        kept: list[Iterable[object]] = [TRAINING_COLUMNS]
        for row in _whole_rows(self.path, content):
            if keep(int(row["number"]), int(row["update"])):
                self._episodes[int(row["number"])] = int(row["episodes"])
                kept.append({**row, "total_episodes": self.total_episodes}.values())
        self._file = AppendedFile(self.path, _lines(kept).encode())

    @property
    def total_episodes(self) -> int:
        """Of all trainings in it."""
        return sum(self._episodes.values())

    def write(self, row: UpdateRow, order: Order, units: Units) -> None:
        """One line, at once."""
        self._episodes[row.number] = row.episodes
        values = {
            **vars(row), "workflow": _number_of(order), "order": units.describe(order),
            "total_episodes": self.total_episodes, "total": row.env_reward + row.alignment,
        }  # fmt: skip
        self._file.append(_lines([[values[name] for name in TRAINING_COLUMNS]]).encode())

    def sync(self) -> None:
        """All of it survives a power cut; OSError if a part could not be written."""
        if not self._file.append(b""):  # what had no room before
            raise OSError(f"{self.path} is not complete")
        with self.path.open("rb") as file:
            os.fsync(file.fileno())


def _whole_rows(path: Path, content: bytes) -> list[dict[str, Any]]:
    """Rows of a training_log.csv; one that was cut off by a crash is left out, so are damaged ones, with a warning."""
    rows, damaged = [], 0
    for line in content[: content.rfind(b"\n") + 1].decode(errors="replace").splitlines():
        row = dict(zip(TRAINING_COLUMNS, cells := next(csv.reader([line]), []), strict=False))
        if len(cells) == len(TRAINING_COLUMNS) and all(row[n].isdecimal() for n in ("number", "update", "episodes")):
            rows.append(row)
        else:
            damaged += tuple(cells) != TRAINING_COLUMNS
    if damaged:
        warnings.warn(f"{path}: {plural(damaged, 'line')} damaged and left out", stacklevel=3)
    return rows


def _number_of(order: Order) -> int | None:
    return index_of(order) if order in ORDERS else None


def _lines(rows: Iterable[Iterable[object]]) -> str:
    """As CSV; None and NaN are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow([("" if math.isnan(x) else f"{x:.6g}") if isinstance(x, float) else x for x in row])
    return text.getvalue()
