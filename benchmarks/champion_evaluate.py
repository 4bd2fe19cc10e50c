"""`champion.py evaluate` and `cyborg`: trained runs by the official protocol, on test seeds.

runs -> both rule sets x nine cells -> benchmarks/results/champion/champion.json
the reference's results -> the same seeds here -> benchmarks/results/champion/champion-cyborg-replayed.json
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import champion_protocol as protocol
import numpy as np
import tyro
from champion_protocol import RESULTS, RULE_SETS, check_out, write_json

from stockade.bench.stamp import machine_stamp
from stockade.errors import InputError
from stockade.learn.agents import Agent, load
from stockade.learn.evaluate import SEEDS_PER_CELL, play
from stockade.learn.leaderboard import CELLS
from stockade.learn.metrics import read_metrics
from stockade.learn.train import find_run, read_config


@dataclass(frozen=True)
class Evaluate:
    """Play the official nine cells under both rule sets, on test seeds."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Folders of runs, or `champion`, the shipped policies. `{rules}` in a name stands for the rule set, for runs that
    were trained under one each: runs/champion-{rules}-seed0. All of them go into one file: name them together."""
    seed: int = protocol.TEST_SEED
    """First test seed."""
    episodes: int = 1000
    """Of each cell."""
    out: Path = RESULTS / "champion.json"
    """Where the result goes."""
    trained_on: str = ""
    """Machine that the runs were trained on, if it was not this one."""

    def run(self) -> int:
        """Play, print, write."""
        protocol.check_test_seeds(self.seed, self.episodes)
        check_out(self.out)
        if not self.runs:
            raise InputError("name at least one run, or champion")
        found = [(name, {rules: _load(name.replace("{rules}", rules), rules) for rules in RULE_SETS})
                 for name in self.runs]  # fmt: skip
        entries = []
        for name, policies in found:
            short = name if name == "champion" else Path(name).resolve().name
            entry: dict[str, Any] = {"name": short, "shipped": name == "champion", "rules": {}}
            for rules, (policy, training) in policies.items():
                result = protocol.evaluate_cells(policy, name, rules, self.episodes, self.seed)
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


def _load(name: str, rules: str) -> tuple[Agent, dict[str, Any]]:
    """The policy of a run; its settings and cost: of the whole run, or of a shipped policy up to its checkpoint."""
    folder = None if name == "champion" else find_run(name, Path("runs"))
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
    cost = {"episodes": int(spent["episodes"]), "steps": int(spent["steps"]),
            "minutes": round(spent["seconds"] / 60, 2)}  # fmt: skip
    return policy, {"seed": settings["seed"], "settings": settings, "chosen_after": int(chosen), "cost": cost}


@dataclass(frozen=True)
class Cyborg:
    """Play the seeds of `stockade evaluate champion --simulator cyborg --json FILE` here too, and compare returns."""

    files: tyro.conf.Positional[tuple[Path, ...]] = tuple(
        RESULTS / f"champion-cyborg-{rules}.json" for rules in RULE_SETS
    )
    """Results of that command."""
    out: Path = RESULTS / "champion-cyborg-replayed.json"
    """Where the comparison goes."""

    def run(self) -> int:
        """Play, print, write."""
        check_out(self.out)
        references = [(path, check_reference(path)) for path in self.files]
        entries = []
        for path, reference in references:
            policy = load(reference["policy"], **{name: reference[name] for name in ("greedy", "last", "rules")})
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


def check_reference(path: Path) -> dict[str, Any]:
    """A whole result of greedy play by `stockade evaluate --simulator cyborg`; anything else is refused."""
    content = protocol.read_json(path)
    try:
        cells = tuple((cell["red"], cell["horizon"]) for cell in content["cells"])
        if cells == CELLS and content["simulator"] == "cyborg" and content["greedy"]:
            return dict(content)
    except (KeyError, TypeError):
        pass
    raise InputError(f"{path} is no whole result of greedy play on the reference: run `stockade evaluate champion "
                     f"--simulator cyborg --episodes 100 --rules RULES --json {path}`")  # fmt: skip
