"""`champion.py evaluate` and `cyborg`: trained runs by the official protocol, on test seeds.

runs -> both rule sets x nine cells -> benchmarks/results/champion/champion.json
the reference's results -> the same seeds here -> benchmarks/results/champion/champion-cyborg-replayed.json
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from champion_protocol import (
    RESULTS,
    RULE_SETS,
    TEST_SEED,
    check_out,
    check_test_seeds,
    evaluate_cells,
    read_json,
    write_json,  # fmt: skip
)

from stockade.baselines import BluePolicy
from stockade.bench.stamp import machine_stamp
from stockade.errors import InputError
from stockade.learn.agents import Agent, load
from stockade.learn.evaluate import SEEDS_PER_CELL, play
from stockade.learn.files import SHIPPED
from stockade.learn.leaderboard import CELLS
from stockade.learn.metrics import read_metrics
from stockade.learn.train import find_run, read_config


@dataclass(frozen=True)
class Evaluate:
    """Play the official nine cells under both rule sets, on test seeds."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Folders of runs, or `champion`, the shipped policies. `{rules}` in a name stands for the rule set, for runs that
    were trained under one each: runs/champion-{rules}-seed0. All of them go into one file: name them together."""
    seed: int = TEST_SEED
    """First test seed."""
    episodes: int = 1000
    """Of each cell."""
    out: Path = RESULTS / "champion.json"
    """Where the result goes."""
    trained_on: str = ""
    """Machine that the runs were trained on, if it was not this one."""

    def run(self) -> int:
        """Play, print, write."""
        check_test_seeds(self.seed, self.episodes)
        check_out(self.out)
        if not self.runs:
            raise InputError("name at least one run, or champion")
        found = [(name, {rules: _load(name.replace("{rules}", rules), rules) for rules in RULE_SETS})
                 for name in self.runs]  # fmt: skip
        entries = []
        for name, policies in found:
            entry: dict[str, Any] = {"name": _short(name), "shipped": name == "champion", "rules": {}}
            for rules, (policy, training) in policies.items():
                result = evaluate_cells(policy, name, rules, self.episodes, self.seed)
                entry["rules"][rules] = result | training
                print(f"{name}, {rules}: {result['total']:.2f} ± {result['total_interval']:.2f}", flush=True)
            entries.append(entry)
        stamp = machine_stamp()
        write_json(self.out, {
            "stamp": stamp, "trained_on": self.trained_on or f"{stamp['cores']} cores of {stamp['cpu']}",
            "seed": self.seed, "seeds_per_cell": SEEDS_PER_CELL, "episodes": self.episodes, "greedy": True,
            "runs": entries,
        })  # fmt: skip
        return 0


# -------------------------------------------------------------------------------------------------- where it comes from
def _short(name: str) -> str:
    return name if name == "champion" else Path(name).resolve().name


def _load(name: str, rules: str) -> tuple[BluePolicy, dict[str, Any]]:
    """The policy of a run, and how it came about."""
    if name != "champion":
        find_run(name, Path("runs"))
    elif not (SHIPPED / f"champion-{rules}.json").exists():
        raise InputError("no champion ships yet: train one and "
                         f"`stockade export RUN stockade/learn/weights/champion-{rules}`")  # fmt: skip
    policy = load(name, greedy=True, rules=rules)
    assert isinstance(policy, Agent)
    return policy, _training(name, policy.card)


def _training(name: str, card: dict[str, Any]) -> dict[str, Any]:
    """Settings and cost: of the whole run, or, all that a shipped policy tells, up to its checkpoint."""
    if name == "champion":
        trained = card["trained"]
        settings = {key: value for key, value in trained["settings"].items() if key != "stockade"}
        chosen, spent = trained["episodes"], trained
    else:
        folder = find_run(name, Path("runs"))
        rows = read_metrics(folder / "metrics.csv")
        if not rows:
            raise InputError(f"{folder / 'metrics.csv'} has no line that can be read, so there is no cost to report")
        settings, chosen, spent = read_config(folder).to_json(), card["episodes"], rows[-1]
        if rows[-1]["episodes"] < settings["total_episodes"]:
            print(
                f"note: {folder} is not finished: {rows[-1]['episodes']:.0f} of {settings['total_episodes']} episodes"
            )
    cost = {
        "episodes": int(spent["episodes"]),
        "steps": int(spent["steps"]),
        "minutes": round(spent["seconds"] / 60, 2),
    }
    return {"seed": settings["seed"], "settings": settings, "chosen_after": int(chosen), "cost": cost}


# ------------------------------------------------------------------------------------------------ the reference's seeds
@dataclass(frozen=True)
class Cyborg:
    """Play the seeds of `stockade evaluate champion --simulator cyborg --json FILE` here too, and compare returns."""

    files: tyro.conf.Positional[tuple[Path, ...]] = tuple(
        RESULTS / f"champion-cyborg-{rules}.json" for rules in RULE_SETS
    )
    """Results of that command."""
    out: Annotated[Path, tyro.conf.arg()] = RESULTS / "champion-cyborg-replayed.json"
    """Where the comparison goes."""

    def run(self) -> int:
        """Play, print, write."""
        check_out(self.out)
        references = [(path, check_reference(path, read_json(path))) for path in self.files]
        entries = []
        for path, reference in references:
            how = {name: reference[name] for name in ("greedy", "last", "rules")}
            policy = load(reference["policy"], **how)
            if not (isinstance(policy, Agent) and policy.greedy):
                raise InputError(f"{path}: {reference['policy']} draws its actions, so its returns cannot be the same")
            equal, count = 0, 0
            for cell in reference["cells"]:
                seed = reference["seed"] + SEEDS_PER_CELL * CELLS.index((cell["red"], cell["horizon"]))
                ours = play(policy, cell["red"], cell["horizon"], cell["episodes"], seed, reference["rules"], "cyborg")
                equal += int((np.round(10 * ours) == np.round(10 * np.array(cell["returns"]))).sum())
                count += len(ours)
            print(f"{path}: {equal} of {count} returns are the same here", flush=True)
            entries.append({"rules": reference["rules"], "seed": reference["seed"], "episodes": count, "equal": equal})
        write_json(self.out, {"stamp": machine_stamp(), "results": entries})
        return 0


def check_reference(path: Path, content: Any) -> dict[str, Any]:
    """A result of `stockade evaluate --simulator cyborg`, whole.

    Raises:
        InputError: it is something else.
    """
    if content is None:
        rules = next((rules for rules in RULE_SETS if rules in path.name), "current")
        raise InputError(f"{path} is not there: run `stockade evaluate champion --simulator cyborg --episodes 100 "
                         f"--rules {rules} --json {path}`")  # fmt: skip
    try:
        cells = [(cell["red"], cell["horizon"]) for cell in content["cells"]]
        whole = tuple(cells) == CELLS and all(math.isfinite(cell["mean"]) for cell in content["cells"])
        if not whole or content["simulator"] != "cyborg" or content["rules"] not in RULE_SETS:
            raise InputError(f"{path} is no whole result of --simulator cyborg")
    except (KeyError, TypeError) as error:
        raise InputError(f"{path} is no result of `stockade evaluate`: {error!r} is missing") from error
    return dict(content)
