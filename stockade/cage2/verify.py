"""Replays recorded episodes of the reference under `chance="cyborg"` and compares everything after every step.

Red is one of the challenge's agents, or plays the actions that the file holds.

trace file -> all its episodes as one batch -> step by step: expected arrays of the file against the batch's own
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from stockade.cage2.actions import ACTION_NAMES, N_ACTIONS, N_RED_ACTIONS, RED_ACTION_NAMES
from stockade.cage2.batch import Batch
from stockade.cage2.config import WorldConfig
from stockade.cage2.scenario import HOSTS, N_HOSTS
from stockade.cage2.seeds import LARGEST_SEED, read_seeds
from stockade.cage2.state import OBS_SIZE, WORLD
from stockade.errors import InputError
from stockade.files import JsonFile, json_output

Arrays = dict[str, np.ndarray]  #: of a trace, by name
GREEN_AGENTS = {"SleepAgent": "sleep", "GreenAgent": "active"}
#: Arrays of the trace that are known after the reset and after each step: (episodes, steps + 1, ...).
STATE_FIELDS = ("obs", "red_priv", "red_sessions", "decoys", "files", "ot", "rng_peek")
#: Arrays of what happened in a step: (episodes, steps).
STEP_FIELDS = ("reward", "red_type", "red_target", "red_success", "exploit", "detect", "blue_success")
#: Compared where the file has them.
OPTIONAL_STATE_FIELDS = (
    "red_root_sessions", "red_removable", "n_decoys", "red_ports", "red_subnets", "n_eph_ports", "rng_words",
    "red_mask",
)  # fmt: skip
OPTIONAL_STEP_FIELDS = ("green_target",)
#: Of the state, what is not an array with an entry per host.
SHAPES = {"obs": (OBS_SIZE,), "ot": (), "rng_peek": (), "red_subnets": (), "rng_words": (), "red_mask": ()}
#: Bits of `ot`, from the lowest.
SERVICE = ("service_down", "service_active", "service_has_process", "red_knows_service")
INPUT_FIELDS = ("seed", "blue_action", "valid_steps", "meta")
PLAYED_FIELDS = ("red_action", "red_mask")  #: of a trace whose red is played
_MASK_BITS = np.uint64(1) << np.arange(N_RED_ACTIONS, dtype=np.uint64)


class TraceError(InputError):
    """A file that is not a trace, is damaged, or lacks a field."""


@dataclass(frozen=True)
class Mismatch:
    """Where the simulator and the record differ first. `step` is -1 for the state after the reset."""

    file: str
    episode: int
    seed: int
    step: int
    field: str
    expected: Any
    got: Any
    action: str

    def __str__(self) -> str:
        when = "after the reset" if self.step < 0 else f"in step {self.step} (blue: {self.action})"
        return (
            f"first mismatch: {self.file}, episode {self.episode} (seed {self.seed}), {when}: {self.field}\n"
            f"  expected {self.expected}\n  got      {self.got}"
        )


@dataclass(frozen=True)
class FileReport:
    """What came out for one file. A mismatch is one field of one step of one episode."""

    file: str
    steps: int
    mismatches: int
    first: Mismatch | None


# ------------------------------------------------------------------------------------------------------ reading traces
def find_traces(paths: Iterable[str | Path]) -> list[Path]:
    """Files as they are, and all .npz files below folders."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise TraceError(f"{path}: no such file or folder")
        files = sorted(path.rglob("*.npz")) if path.is_dir() else [path]
        if not files:
            raise TraceError(f"{path}: there is no .npz file in this folder")
        found += files
    if not found:
        raise TraceError("name at least one trace file (.npz) or a folder with such files")
    return found


def load_trace(path: Path) -> tuple[WorldConfig, Arrays]:
    """Read and check a trace file."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # a damaged file makes NumPy, zipfile and tokenize raise all kinds of errors
        raise TraceError(f"{path}: cannot be read as a trace, it may be truncated or not .npz ({error})") from error
    _check_fields(path, arrays, (*INPUT_FIELDS, *STATE_FIELDS, *STEP_FIELDS))
    _check_shapes(path, arrays)
    config = _config_of(path, arrays)
    _check_fields(path, arrays, PLAYED_FIELDS if config.red == "player" else ())
    return config, arrays


def _check_fields(path: Path, arrays: Arrays, names: Iterable[str]) -> None:
    missing = [name for name in names if name not in arrays]
    if missing:
        raise TraceError(f"{path}: lacks the field{'s' * (len(missing) > 1)} {', '.join(missing)}")


def _check_shapes(path: Path, arrays: Arrays) -> None:
    actions = arrays["blue_action"]
    if actions.ndim != 2 or not actions.size:
        raise TraceError(f"{path}: blue_action has shape {actions.shape}; expected (episodes, steps)")
    episodes, steps = actions.shape
    expected: dict[str, tuple[int, ...]] = {"seed": (episodes,), "valid_steps": (episodes,)}
    for name in STATE_FIELDS + OPTIONAL_STATE_FIELDS:
        expected[name] = (episodes, steps + 1, *SHAPES.get(name, (N_HOSTS,)))
    expected |= dict.fromkeys((*STEP_FIELDS, *OPTIONAL_STEP_FIELDS, "red_action"), (episodes, steps))
    for name, shape in expected.items():
        if name in arrays and arrays[name].shape != shape:
            raise TraceError(f"{path}: {name} has shape {arrays[name].shape}; expected {shape}")
    limits = {"blue_action": N_ACTIONS - 1, "red_action": N_RED_ACTIONS - 1, "valid_steps": steps, "seed": LARGEST_SEED}
    for name, largest in limits.items():
        values = arrays.get(name, np.zeros(1, np.int64))
        if values.dtype.kind not in "iu" or values.min() < 0 or int(values.max()) > largest:
            raise TraceError(f"{path}: {name} holds values that are not whole numbers from 0 to {largest}")


def _config_of(path: Path, arrays: Arrays) -> WorldConfig:
    try:
        meta = json.loads(str(arrays["meta"]))
        red, green, rules = meta["red"], meta.get("green", "SleepAgent"), meta.get("rules", "current")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(f"{path}: meta is not JSON that names the red agent ({error!r})") from error
    if not isinstance(green, str) or green not in GREEN_AGENTS:
        raise TraceError(f"{path}: meta names the green agent {green!r}; known are {', '.join(GREEN_AGENTS)}")
    try:
        return WorldConfig(red, arrays["blue_action"].shape[1], rules, "cyborg", GREEN_AGENTS[green])
    except ValueError as error:
        raise TraceError(f"{path}: meta is not usable: {error}") from error


# ----------------------------------------------------------------------------------------------------------- comparing
def verify_file(path: Path) -> FileReport:
    """Replay one trace file."""
    config, arrays = load_trace(path)
    mismatches, first = 0, None
    for step, field, expected, got in _replay(config, arrays):
        live = arrays["valid_steps"] > step
        differ = (expected != got) & live.reshape(-1, *(1,) * (expected.ndim - 1))
        episodes = np.flatnonzero(differ.reshape(len(live), -1).any(axis=1))
        mismatches += len(episodes)
        if first is None and len(episodes):
            episode = int(episodes[0])
            difference = _first_difference(field, expected[episode], got[episode])
            action = "" if step < 0 else ACTION_NAMES[arrays["blue_action"][episode, step]]
            if step >= 0 and config.red == "player":
                action += f", red: {RED_ACTION_NAMES[arrays['red_action'][episode, step]]}"
            first = Mismatch(path.name, episode, int(arrays["seed"][episode]), step, *difference, action)
    return FileReport(path.name, int(arrays["valid_steps"].sum()), mismatches, first)


def _replay(config: WorldConfig, arrays: Arrays) -> Iterator[tuple[int, str, np.ndarray, np.ndarray]]:
    """Yield (step, field, expected, got) for all episodes at once; step -1 is the reset."""
    episodes = len(arrays["seed"])
    batch = Batch(config, episodes, threads=1)
    worlds = batch.worlds
    assert batch.ledgers is not None  # chance is cyborg
    obs, reward, over = np.zeros((episodes, OBS_SIZE), np.uint8), np.zeros(episodes), np.zeros(episodes, np.bool_)
    # Rows, so that no kernel is compiled for columns.
    actions = np.ascontiguousarray(arrays["blue_action"].T, np.int64)
    played = np.ascontiguousarray(arrays["red_action"].T, np.int64) if config.red == "player" else None
    batch.reset(obs, read_seeds(arrays["seed"], episodes))
    drawn_before = np.zeros(episodes, np.int64)
    for step in range(-1, config.horizon):
        if step >= 0:
            batch.step(actions[step], obs, reward, over, False, red_actions=None if played is None else played[step])
        peeks, drawn = batch.peek()
        got = {name: worlds[name] for name in WORLD.names or ()}  # most names of the trace are ours too
        got |= {"red_priv": got["red_access"], "red_subnets": got["known_subnets"], "detect": got["detected"]}
        got |= {"ot": np.bitwise_or.reduce([worlds[name] << bit for bit, name in enumerate(SERVICE)])}
        got |= {"n_eph_ports": batch.ledgers["n_ports"], "rng_peek": peeks, "rng_words": drawn - drawn_before}
        got |= {"obs": obs, "reward": reward}
        if played is not None:
            got["red_mask"] = batch.red_mask().astype(np.uint64) @ _MASK_BITS
        drawn_before = drawn
        for field in STEP_FIELDS + OPTIONAL_STEP_FIELDS if step >= 0 else ():
            if field in arrays:
                yield step, field, arrays[field][:, step], got[field]
        for field in STATE_FIELDS + OPTIONAL_STATE_FIELDS:
            if field in arrays:
                yield step, field, arrays[field][:, step + 1], got[field]


def _first_difference(field: str, want: np.ndarray, have: np.ndarray) -> tuple[str, Any, Any]:
    """Field, expected and got; of an array, its first place that differs."""
    if want.ndim == 1:
        place = int(np.flatnonzero(want != have)[0])
        want, have = want[place], have[place]
        field = f"{field}[{place}] ({HOSTS[place // 4 if field == 'obs' else place]})"
    return field, want.item(), have.item()


@dataclass(frozen=True)
class Verify:
    """Compare the simulator with recorded episodes of CybORG: everything, after every step."""

    paths: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PATH [PATH ...]", help_behavior_hint="")
    ]
    """Trace files (.npz), or folders with such files."""
    json: JsonFile = None
    """Write the result to this file too; - is standard output."""

    def run(self) -> int:
        """Print one line per file; exit code 1 if anything differs."""
        with json_output(self.json) as write:
            files = find_traces(self.paths)
            width = max(len(path.name) for path in files)
            reports = []
            for path in files:
                report = verify_file(path)
                reports.append(report)
                verdict = f"{report.mismatches} mismatches" if report.mismatches else "equal"
                print(f"{report.file:<{width}}  {report.steps:>6} steps  {verdict}", flush=True)
            steps, mismatches = sum(r.steps for r in reports), sum(r.mismatches for r in reports)
            first = next((report.first for report in reports if report.first), None)
            if first:
                print(first)
            write({"steps": steps, "mismatches": mismatches, "files": [asdict(r) for r in reports]})
            print(f"{steps} steps, {len(files)} files, {mismatches} mismatches")
        return 1 if mismatches else 0
