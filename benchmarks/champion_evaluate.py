"""`champion.py evaluate`, `robustness`, `cyborg` and `curves`: policies by the official protocol, and how they learned.

runs -> both rule sets x nine cells, on test seeds -> benchmarks/results/champion/champion.json
a policy -> both rule sets x robustness suite, on test seeds -> champion-robustness.json
the reference's results -> the same seeds here -> benchmarks/results/champion/champion-cyborg-replayed.json
metrics.csv of each run -> champion-curves.json, thinned -> picture

Seeds: validation and development | ablations | behaviour | test: no result is played on seeds that chose anything.
"""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from pictures import champion_curves, save

from stockade.bench.result import machine_stamp
from stockade.errors import InputError
from stockade.files import as_json, check_writable, write_durably
from stockade.learn.agents import Agent, load
from stockade.learn.evaluate import CELLS, SEEDS_PER_CELL, EvaluateConfig, evaluate, play, total_interval
from stockade.learn.files import WINDOW, read_metrics, shipped_names
from stockade.learn.robustness import SUITE
from stockade.learn.train import VALIDATION_SEED, find_run, read_config

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "champion"
RULE_SETS = ("leaderboard", "current")
RED_NAMES = {"bline": "B_line", "meander": "Meander", "sleep": "Sleep"}

#: First seed of each use; cell k of an evaluation has those from SEED + k * SEEDS_PER_CELL on.
DEVELOPMENT_SEED, TEST_SEED, BEHAVIOUR_SEED, ABLATION_SEED = 300_000_000, 600_000_000, 700_000_000, 900_000_000
#: The test seeds of an earlier recipe, whose result made us look for a better one.
EARLIER_TEST_SEED = 500_000_000
_CELLS_LONG = len(CELLS) * SEEDS_PER_CELL
#: Seeds that are not for tests, [begin, end) and by whom they are used. `stockade evaluate` begins at 153 by default,
#: so whoever tunes has seen those that follow.
RESERVED = (
    (-math.inf, EvaluateConfig("sleep").seed + _CELLS_LONG, "development, by `stockade evaluate`,"),
    (DEVELOPMENT_SEED, DEVELOPMENT_SEED + _CELLS_LONG, "development, by `stockade evaluate --seed`,"),
    (EARLIER_TEST_SEED, EARLIER_TEST_SEED + _CELLS_LONG, "the test of an earlier recipe"),
    (BEHAVIOUR_SEED, BEHAVIOUR_SEED + _CELLS_LONG, "the count of behaviour"),
    (ABLATION_SEED, ABLATION_SEED + _CELLS_LONG, "the evaluation of ablations"),
    (VALIDATION_SEED, math.inf, "validation, which chooses checkpoints,"),
)
#: Points of a curve that are kept; more cannot be told apart in the picture.
MAX_POINTS = 300


def check_test_seeds(first: int, episodes: int, cells: int = len(CELLS)) -> None:
    """Refuse seeds that anything was chosen by, with the use that they belong to."""
    if not 1 <= episodes <= SEEDS_PER_CELL:
        raise InputError(f"--episodes {episodes}: take 1 to {SEEDS_PER_CELL}, for cells are so many seeds apart")
    last = first + (cells - 1) * SEEDS_PER_CELL + episodes - 1
    for begin, end, use in RESERVED:
        if first < end and last >= begin:
            raise InputError(f"--seed {first}: {use} has the seeds from {max(0, begin)} on; take {TEST_SEED}")


def evaluate_cells(policy: Any, name: str, rules: str, episodes: int, seed: int) -> dict[str, Any]:
    """The nine cells as JSON: figures of each, and their total with its interval."""
    config = EvaluateConfig(name, episodes=episodes, rules=rules, seed=seed)  # type: ignore[arg-type]
    cells = evaluate(config, policy).cells
    names = "mean", "interval", "median", "q05"
    figures = [{"red": cell.red, "horizon": cell.horizon, **{name: rounded(getattr(cell, name)) for name in names},
                "worst": min(cell.returns), "worst_seed": seed + SEEDS_PER_CELL * k + int(np.argmin(cell.returns))}
               for k, cell in enumerate(cells)]  # fmt: skip
    total, half = rounded(sum(cell.mean for cell in cells)), rounded(total_interval(cells))
    return {"cells": figures, "total": total, "total_interval": half}


def rounded(value: Any) -> float:
    """Four decimals, and no minus zero."""
    return round(float(value), 4) + 0.0


def read_json(path: Path) -> Any:
    """Content of a result, or None if there is none yet; InputError if it cannot be read."""
    try:
        return json.loads(path.read_text()) if path.exists() else None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}; measure it again") from error


def write_json(path: Path, content: Any) -> None:
    """The whole file or none of it."""
    write_durably(path.absolute(), (as_json(content) + "\n").encode())
    print(f"wrote {path}", flush=True)


@dataclass(frozen=True)
class Evaluate:
    """Play the official nine cells under both rule sets, on test seeds."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Shipped policies, files of policies, folders of runs. `{rules}` in a name stands for the rule set, for runs that
    were trained under one each: runs/champion-{rules}-seed0. All of them go into one file: name them together."""
    seed: int = TEST_SEED  # First test seed.
    episodes: int = 1000  # Of each cell.
    out: Path = RESULTS / "champion.json"  # Where the result goes.
    trained_on: str = ""  # Machine that the runs were trained on, if it was not this one.

    def run(self) -> int:
        check_test_seeds(self.seed, self.episodes)
        check_writable(self.out, "--out")
        if not self.runs:
            raise InputError("name at least one run or policy")
        entries, found = [], [{r: _load(name.replace("{rules}", r), r) for r in RULE_SETS} for name in self.runs]
        for name, policies in zip(self.runs, found, strict=True):
            shipped = name in shipped_names()
            short = name if shipped else Path(name).resolve().name.removesuffix(".json")
            entry: dict[str, Any] = {"name": short, "shipped": shipped, "rules": {}}
            for rules, (policy, training) in policies.items():
                result = evaluate_cells(policy, name, rules, self.episodes, self.seed)
                entry["rules"][rules] = result | training
                print(f"{name}, {rules}: {result['total']:.2f} ± {result['total_interval']:.2f}", flush=True)
            entries.append(entry)
        stamp = machine_stamp()
        trained_on = self.trained_on or f"{stamp['cores']} cores of {stamp['cpu']}"
        write_json(self.out, {"stamp": stamp, "trained_on": trained_on, "seed": self.seed, "episodes": self.episodes,
                              "seeds_per_cell": SEEDS_PER_CELL, "greedy": True, "runs": entries})  # fmt: skip
        return 0


@dataclass(frozen=True)
class Robustness:
    """Play the robustness suite under both rule sets, on test seeds."""

    policy: tyro.conf.Positional[str] = "champion"  # As for `stockade evaluate`.
    seed: int = TEST_SEED  # First test seed.
    episodes: int = 4000  # Of each cell.
    out: Path = RESULTS / "champion-robustness.json"  # Where the result goes.

    def run(self) -> int:
        check_test_seeds(self.seed, self.episodes, len(SUITE))
        check_writable(self.out, "--out")
        results: dict[str, Any] = {}
        for rules in RULE_SETS:
            config = EvaluateConfig(self.policy, self.episodes, rules, seed=self.seed, suite="robustness")  # type: ignore[arg-type]
            suite = evaluate(config).robustness
            assert suite is not None
            print(f"{rules}: {suite.summary}", flush=True)
            content = suite.to_dict()
            kept = [cell for cell in content["cells"] if cell.pop("returns")]
            figures = [{k: rounded(v) if isinstance(v, float) else v for k, v in cell.items()} for cell in kept]
            results[rules] = content | {"cells": figures}
        write_json(self.out, {"stamp": machine_stamp(), "policy": self.policy, "seed": self.seed,
                              "episodes": self.episodes, "rules": results})  # fmt: skip
        return 0


def _load(name: str, rules: str) -> tuple[Agent, dict[str, Any]]:
    """The policy of a run; its settings and cost: of the whole run, or of a shipped policy up to its checkpoint."""
    has_card = name in shipped_names() or name.endswith(".json")
    folder = None if has_card else find_run(name, Path("runs"))
    policy = load(name, greedy=True, rules=rules)
    assert isinstance(policy, Agent)
    if folder is None:
        trained = policy.card["trained"]
        settings = {key: value for key, value in trained["settings"].items() if key != "stockade"}
        chosen, spent = trained["episodes"], trained
    else:
        rows = read_metrics(folder / "metrics.csv")
        if not rows:
            raise InputError(f"{folder / 'metrics.csv'} has no line that can be read, so there is no cost to report")
        settings, chosen, spent = read_config(folder).to_json(), policy.card["episodes"], rows[-1]
    cost = {name: int(spent[name]) for name in ("episodes", "steps")} | {"minutes": round(spent["seconds"] / 60, 2)}
    return policy, {"seed": settings["seed"], "settings": settings, "chosen_after": int(chosen), "cost": cost}


@dataclass(frozen=True)
class Cyborg:
    """Play the seeds of `stockade evaluate champion --simulator cyborg --json FILE` here too, and compare returns."""

    files: tyro.conf.Positional[tuple[Path, ...]] = tuple(RESULTS / f"champion-cyborg-{r}.json" for r in RULE_SETS)
    """Results of that command."""
    out: Path = RESULTS / "champion-cyborg-replayed.json"  # Where the comparison goes.

    def run(self) -> int:
        check_writable(self.out, "--out")
        references = [(path, check_reference(path)) for path in self.files]
        entries = []
        for path, reference in references:
            policy = load(reference["policy"], **{name: reference[name] for name in ("greedy", "last", "rules")})
            same: list[bool] = []
            for k, cell in enumerate(reference["cells"]):
                seed = reference["seed"] + SEEDS_PER_CELL * k
                ours = play(policy, cell["red"], cell["horizon"], cell["episodes"], seed, reference["rules"], "cyborg")
                same += (np.round(10 * ours) == np.round(10 * np.array(cell["returns"]))).tolist()
            equal, count = sum(same), len(same)
            print(f"{path}: {equal} of {count} returns are the same here", flush=True)
            entries.append({"rules": reference["rules"], "seed": reference["seed"], "episodes": count, "equal": equal})
        write_json(self.out, {"stamp": machine_stamp(), "results": entries})
        return 0


def check_reference(path: Path) -> dict[str, Any]:
    """A whole result of greedy play by `stockade evaluate --simulator cyborg`; anything else is refused."""
    content = read_json(path)
    with contextlib.suppress(KeyError, TypeError):
        cells = tuple((cell["red"], cell["horizon"]) for cell in content["cells"])
        if cells == CELLS and content["simulator"] == "cyborg" and content["greedy"]:
            return dict(content)
    raise InputError(f"{path} is no whole result of greedy play on the reference: run `stockade evaluate champion "
                     f"--simulator cyborg --episodes 100 --rules RULES --json {path}`")  # fmt: skip


@dataclass(frozen=True)
class Curves:
    """Draw the learning curves of runs: mean and range over the seeds of each rule set."""

    runs: tyro.conf.Positional[tuple[str, ...]]  # Folders of runs.
    out: Path = RESULTS / "champion-curves.json"  # Where the figures of the picture go.
    picture: Path = ROOT / "docs" / "images" / "champion-curves.svg"  # Where the picture goes.

    def run(self) -> int:
        check_writable(self.out, "--out")
        if not self.runs:
            raise InputError("name at least one run")
        curves = [read_curve(find_run(name, Path("runs"))) for name in self.runs]
        picture = champion_curves(curves, WINDOW)
        write_json(self.out, {"stamp": machine_stamp(), "window": WINDOW, "runs": curves})
        save(picture, self.picture)
        print(f"wrote {self.picture}")
        return 0


def read_curve(folder: Path) -> dict[str, Any]:
    """Returns of training and, where they were measured, validation scores: (episodes, minutes, value) each."""
    rows, config = read_metrics(folder / "metrics.csv"), read_config(folder)
    full = [row for row in rows if row["episodes"] >= WINDOW and not math.isnan(row["return_window"])]
    if not full:
        raise InputError(f"{folder / 'metrics.csv'} has no line after {WINDOW} episodes, so there is no curve to draw")
    thinned = [*full[: -1 : -(-len(full) // MAX_POINTS)], full[-1]]
    validated = [row for row in rows if not math.isnan(row.get("validation", math.nan))]
    return {"name": folder.resolve().name, "seed": config.seed, "rules": config.rules,
            **{what: [[int(row["episodes"]), round(row["seconds"] / 60, 3), round(row[column], 3)] for row in chosen]
               for what, column, chosen in (("training", "return_window", thinned),
                                            ("validation", "validation", validated))}}  # fmt: skip
