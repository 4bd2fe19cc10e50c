"""Plays a policy in the challenge's own evaluation script and here, and compares every action and every return.

    python benchmarks/submission.py runs/NAME --current CHECKOUT --leaderboard CHECKOUT --out FILE

checkout of cage-challenge-2 -> its Evaluation/evaluation.py with another agent -> the file that it writes \\
the same agent, `stockade.evaluate(official_order=True)`                                                    -> compared
the policy itself, in worlds that show it `obs="belief"`                                                   /

Two lines of the script are changed: how many episodes it plays, and which agent. Python needs to find what CybORG
imports, docs/guides/cyborg.md; the script itself imports Stable-Baselines3 too.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from champion_evaluate import RESULTS, write_json
from common import run_script

import stockade
from stockade.bench.result import machine_stamp
from stockade.cage2.actions import ACTION_NAMES
from stockade.errors import InputError
from stockade.files import check_writable
from stockade.integrations.cage2_submission import ChallengeAgent
from stockade.integrations.cyborg import COMMITS, RED_AGENTS
from stockade.learn.evaluate import EvaluateConfig, evaluate

SCRIPT = Path("CybORG", "CybORG", "Evaluation", "evaluation.py")  #: in a checkout
EPISODES_LINE, AGENT_LINE = "MAX_EPS = 100\n", "agent = BlueLoadAgent()\n"
OUR_AGENT_LINE = (
    "import random; from stockade.integrations.cage2_submission import ChallengeAgent; "
    "agent = ChallengeAgent({policy!r}, {rules!r}); random.seed({seed})\n"
)
#: Runs the script as `python evaluation.py` does, if it plays by the rules that it should.
DRIVER = """
import runpy, sys
from stockade.integrations.cyborg import CybORGEnv
CybORGEnv(rules=sys.argv[2])
runpy.run_path(sys.argv[1], run_name="__main__")
"""
_CELL = re.compile(r"steps: (\d+), adversary: (\w+), ")
_EPISODE = re.compile(r"actions: (\[.*\]), total reward: (\S+)")
_SAVED = re.compile(r"^Saving evaluation results to (.*)$", re.MULTILINE)


class Episode(NamedTuple):
    """One episode of the script."""

    red: str
    horizon: int
    actions: list[str]  #: blue's
    total: float


def play_script(checkout: Path, policy: str, rules: str, episodes: int, seed: int) -> list[Episode]:
    """What the challenge's script reports of a policy, episode after episode."""
    try:
        text = (checkout / SCRIPT).read_text()
    except OSError as error:
        raise InputError(f"{checkout} is no checkout of cage-challenge-2: {error}") from error
    changes = {
        EPISODES_LINE: f"MAX_EPS = {episodes}\n",
        AGENT_LINE: OUR_AGENT_LINE.format(policy=policy, rules=rules, seed=seed),
    }
    for line, new in changes.items():
        if text.count(line) != 1:
            raise InputError(f"{checkout / SCRIPT} should have one line {line.strip()!r}; it has {text.count(line)}")
        text = text.replace(line, new)
    ours = Path(stockade.__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(checkout / SCRIPT.parts[0]), str(ours), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, SCRIPT.name)
        script.write_text(text)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", DRIVER, str(script), rules], cwd=checkout, text=True,
            env={**os.environ, "PYTHONPATH": path}, input="author\nteam\ntechnique\n", capture_output=True, check=False,
        )  # fmt: skip
    report = ""
    if saved := _SAVED.search(done.stdout):
        written = Path(saved[1])
        report = written.read_text()
        written.unlink()  # the checkout stays as it was, also if the script failed
    if done.returncode or not report:
        raise InputError(f"the script of {checkout} failed: {done.stderr[-2000:]}")
    return read_report(report)


def read_report(text: str) -> list[Episode]:
    """The episodes in a file that the script wrote."""
    short = {name: red for red, name in RED_AGENTS.items()}
    found, cell = [], ("", 0)
    for line in text.splitlines():
        if match := _CELL.match(line):
            cell = short[match[2]], int(match[1])
        elif match := _EPISODE.match(line):
            found.append(Episode(*cell, [blue for blue, _ in ast.literal_eval(match[1])], float(match[2])))
    return found


class Recorded(ChallengeAgent):
    """Writes down what it chose in each episode, and how long a decision took."""

    def __init__(self, policy: str, rules: str) -> None:
        super().__init__(policy, rules)
        self.episodes: list[list[str]] = []
        self.seconds: list[float] = []

    def get_action(self, observation: Any, action_space: Any) -> int:
        if self._last is None:
            self.episodes.append([])
        begin = time.perf_counter()
        action = super().get_action(observation, action_space)
        self.seconds.append(time.perf_counter() - begin)
        self.episodes[-1].append(ACTION_NAMES[action])
        return action


def compare(theirs: list[Episode], agent: Recorded, config: EvaluateConfig) -> list[dict[str, Any]]:
    """Cell by cell: how many episodes have the same return, and the same actions, here as in the script."""
    by_agent, by_policy = (evaluate(config, player, progress=False) for player in (agent, agent.policy))
    if len(theirs) != len(agent.episodes):
        raise InputError(f"the script played {len(theirs)} episodes, not {len(agent.episodes)}")
    cells = []
    for ours, worlds in zip(by_agent.cells, by_policy.cells, strict=True):
        at = [i for i, episode in enumerate(theirs) if (episode.red, episode.horizon) == (ours.red, ours.horizon)]
        returns = tenths([theirs[i].total for i in at])
        cells.append({
            "red": ours.red, "horizon": ours.horizon, "episodes": len(at), "mean": round(float(returns.mean()) / 10, 4),
            "equal_returns": int((returns == tenths(ours.returns)).sum()),
            "equal_actions": sum(theirs[i].actions == agent.episodes[i] for i in at),
            "equal_returns_of_worlds": int((returns == tenths(worlds.returns)).sum()),
        })  # fmt: skip
    return cells


def tenths(returns: Any) -> np.ndarray:
    """Rewards are whole tenths; their sum depends on the order of summation in the last digits."""
    return np.round(10 * np.asarray(returns)).astype(int)


@dataclass(frozen=True)
class Submission:
    """Compare the challenge's own script with `stockade.evaluate`, seed for seed."""

    policy: tyro.conf.Positional[str]  # As for `stockade.load`; it may see bits or a belief.
    current: Path | None = None  # Checkout of cage-challenge-2 that plays by the rules `current`.
    leaderboard: Path | None = None  # Checkout that plays by the rules `leaderboard`.
    episodes: int = 100  # Of each of the nine cells, at least 2; the script has 100.
    seed: int = 153  # Of the one random stream that all cells are played on.
    out: Path = RESULTS / "submission.json"  # Where the comparison goes.

    def run(self) -> int:
        checkouts = {r: path for r in COMMITS if (path := getattr(self, r)) is not None}
        if not checkouts:
            raise InputError("name at least one checkout: --current PATH or --leaderboard PATH")
        if self.episodes < 2:
            raise InputError("--episodes needs to be at least 2: the script computes a standard deviation")
        check_writable(self.out, "--out")
        policy = str(Path(self.policy).resolve()) if Path(self.policy).exists() else self.policy
        results = [self._compare(rules, checkout.resolve(), policy) for rules, checkout in checkouts.items()]
        write_json(self.out, {
            "stamp": machine_stamp(), "policy": Path(policy).name, "seed": self.seed, "episodes": self.episodes,
            "results": results,
        })  # fmt: skip
        cells = [cell for result in results for cell in result["cells"]]
        equal = {cell[name] for cell in cells for name in cell if name.startswith("equal")}
        if len(results) == len(COMMITS) and len({str(result["cells"]) for result in results}) == 1:
            print("Both checkouts gave the same means: these episodes do not tell the rule sets apart.")
        return 0 if equal == {self.episodes} else 1

    def _compare(self, rules: str, checkout: Path, policy: str) -> dict[str, Any]:
        """All cells under one rule set."""
        agent = Recorded(policy, rules)  # first: it refuses policies that the challenge tells too little
        theirs = play_script(checkout, policy, rules, self.episodes, self.seed)
        config = EvaluateConfig(policy, self.episodes, rules, chance="cyborg", seed=self.seed, official_order=True)  # type: ignore[arg-type]
        cells = compare(theirs, agent, config)
        for cell in cells:
            same = f"{cell['equal_returns']} have the same return, {cell['equal_actions']} the same actions"
            print(f"{rules}, {cell['red']} {cell['horizon']}: of {cell['episodes']} episodes {same}")
        median, q99 = (np.quantile(agent.seconds, [0.5, 0.99]) * 1e6).round().tolist()
        print(f"{rules}: a decision took {median:.0f} microseconds, the slowest in 100 {q99:.0f}", flush=True)
        return {
            "rules": rules, "obs": agent.policy.obs, "hidden": agent.policy.card.get("architecture", {}).get("hidden"),
            "different_actions": len({action for episode in agent.episodes for action in episode}),
            "decision_microseconds": {"median": median, "q99": q99}, "cells": cells,
        }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0 if everything is equal, 1 if not, 2 for what cannot be done."""
    return run_script(Submission, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
