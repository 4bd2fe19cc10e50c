"""`champion.py behaviour`: what a policy does, counted over thousands of episodes.

policy x rules x attacker -> episodes step by step -> Record (actions, successes, red's access) -> counts and shares
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from champion_evaluate import BEHAVIOUR_SEED, RESULTS, RULE_SETS, rounded, write_json

import stockade
from stockade.baselines import Defender
from stockade.bench.result import machine_stamp
from stockade.cage2 import actions as blue
from stockade.cage2.actions import ACTION_HOST, ACTION_NAMES, N_ACTIONS
from stockade.cage2.scenario import HOST_COST, HOSTS, N_HOSTS, RESTORE_COST, SERVICE_DOWN_COST
from stockade.errors import InputError
from stockade.files import check_writable
from stockade.learn.agents import load
from stockade.learn.evaluate import REDS, SEEDS_PER_CELL

FIRST_STEPS = 12
#: Kinds of actions that are told apart, by name.
KINDS = {"Analyse": (blue.ANALYSE, blue.ANALYSE), "Remove": (blue.REMOVE, blue.REMOVE),
         "decoy": (blue.FIRST_DECOY, blue.RESTORE - 1), "Restore": (blue.RESTORE, blue.RESTORE)}  # fmt: skip
_ROOT = 2


class Record(NamedTuple):
    """Episodes of one attacker under one rule set, step by step; red's access is 0 none, 1 user, 2 root."""

    actions: np.ndarray  # (steps, n) int16, blue's
    failed: np.ndarray  # (steps, n) bool
    before: np.ndarray  # (steps, n, 13) uint8, red's access as blue acted
    after: np.ndarray  # (steps, n, 13) uint8, when the step was over
    down: np.ndarray  # (steps, n) bool, the operational service is stopped
    rewards: np.ndarray  # (steps, n)


def watch(policy: Defender, red: str, rules: str, episodes: int, horizon: int, seed: int) -> Record:
    """Play episodes with seeds seed, seed + 1, ... and keep what happened."""
    shape = horizon, episodes
    before, after = np.empty((2, *shape, N_HOSTS), np.uint8)
    failed, down = np.empty((2, *shape), bool)
    record = Record(np.empty(shape, np.int16), failed, before, after, down, np.empty(shape))
    generator = np.random.default_rng([seed, 1])
    made: Any = stockade.make_vec(episodes, red=red, horizon=horizon, rules=rules, obs=policy.obs, copy=False,
                                  autoreset_mode="disabled")  # fmt: skip
    with made as envs:
        obs, _ = envs.reset(seed=seed)
        truth = envs.true_state()
        for t in range(horizon):
            record.before[t] = truth.red_access
            actions = policy.act(obs, generator)
            obs, rewards, _, _, _ = envs.step(actions)
            record.actions[t], record.failed[t] = actions, truth.blue_success == blue.FALSE
            record.after[t], record.down[t], record.rewards[t] = truth.red_access, truth.service_down, rewards
    return record


def summarise(record: Record) -> dict[str, Any]:
    """Everything that the page says of these episodes, as JSON."""
    n = record.actions.shape[1]
    return {
        "mean": rounded(record.rewards.sum(axis=0).mean()),
        "first_steps": [_top(actions, n) for actions in record.actions[:FIRST_STEPS]],
        "kinds": {name: rounded(_of_kind(record.actions, name).sum() / n) for name in KINDS}
        | {"Sleep or Monitor": rounded((record.actions < 2).sum() / n)},
        "decoys": _decoys(record),
        **{f"{name.lower()}_hosts": _by_host(record, name) for name in ("Analyse", "Remove", "Restore")},
        "aim": {name: _aim(record, name) for name in ("Remove", "Restore")},
        "red_holds": {host: {name: rounded((record.after[:, :, h] >= least).mean())
                             for name, least in (("any", 1), ("root", _ROOT))} for h, host in enumerate(HOSTS)},
        "costs": costs(record),
    }  # fmt: skip


def costs(record: Record) -> dict[str, float]:
    """What a mean episode loses by each cause; they add up to its return."""
    n = record.actions.shape[1]
    root = (record.after == _ROOT).sum(axis=(0, 1)) / n
    found = {f"root on {host}": -float(HOST_COST[h]) / 10 * root[h] for h, host in enumerate(HOSTS) if HOST_COST[h]}
    found["Restore"] = -RESTORE_COST / 10 * _of_kind(record.actions, "Restore").sum() / n
    found["service down"] = -SERVICE_DOWN_COST / 10 * record.down.sum() / n
    return {cause: rounded(value) for cause, value in found.items()}


def _of_kind(actions: np.ndarray, name: str) -> np.ndarray:
    first, last = KINDS[name]
    return (blue.ACTION_KIND[actions] >= first) & (blue.ACTION_KIND[actions] <= last)


def _top(actions: np.ndarray, n: int, most: int = 4) -> list[list[Any]]:
    """The commonest actions of a step with their shares."""
    counts = np.bincount(actions, minlength=N_ACTIONS)
    return [[ACTION_NAMES[a], rounded(counts[a] / n)] for a in np.argsort(-counts, kind="stable")[:most] if counts[a]]


def _decoys(record: Record) -> list[dict[str, Any]]:
    """Of every decoy that it ever placed with success: in how many episodes, how often, when first."""
    n = record.actions.shape[1]
    placed = _of_kind(record.actions, "decoy") & ~record.failed
    found = []
    for action in np.unique(record.actions[placed]):
        here = placed & (record.actions == action)
        ever = here.any(axis=0)
        found.append({
            "action": ACTION_NAMES[action], "host": HOSTS[ACTION_HOST[action]], "episodes": rounded(ever.mean()),
            "an_episode": rounded(here.sum() / n), "first_step": rounded(np.median(here.argmax(axis=0)[ever]) + 1),
        })  # fmt: skip
    return sorted(found, key=lambda entry: (-entry["episodes"], entry["first_step"], entry["action"]))


def _by_host(record: Record, name: str) -> dict[str, float]:
    """Actions of a kind per episode, on each host where there were any."""
    chosen = record.actions[_of_kind(record.actions, name)]
    counts = np.bincount(ACTION_HOST[chosen], minlength=N_HOSTS) / record.actions.shape[1]
    return {host: rounded(counts[h]) for h, host in enumerate(HOSTS) if counts[h]}


def _aim(record: Record, name: str) -> dict[str, float] | None:
    """Of the actions of a kind, the shares that met red with root, with a user's rights, or not at all."""
    t, i = np.nonzero(_of_kind(record.actions, name))
    if not len(t):
        return None
    access = record.before[t, i, ACTION_HOST[record.actions[t, i]]]
    return {who: rounded((access == level).mean()) for level, who in enumerate(("nobody", "user", "root"))}


def parting(one: Record, other: Record) -> dict[str, Any]:
    """How far apart what it does against two attackers is, at each step: total variation of the actions, 0 to 1;
    `noise` is the same between two halves of the first attacker's episodes: so much is chance alone."""

    def variation(a: np.ndarray, b: np.ndarray) -> float:
        shares = [np.bincount(x, minlength=N_ACTIONS) / len(x) for x in (a, b)]
        return float(np.abs(shares[0] - shares[1]).sum() / 2)

    apart = [variation(a, b) for a, b in zip(one.actions, other.actions, strict=True)]
    half = one.actions.shape[1] // 2
    noise = [variation(row[:half], row[half:]) for row in one.actions]
    first = {f"first_beyond_{least}": next((t + 1 for t, value in enumerate(apart) if value > least), None)
             for least in (0.1, 0.5)}  # fmt: skip
    return {"distance": list(map(rounded, apart)), "noise": list(map(rounded, noise)), **first}


@dataclass(frozen=True)
class Behaviour:
    """Play against each attacker under both rule sets, and count what the policy does."""

    policy: tyro.conf.Positional[str] = "champion"
    """The shipped policy, a run, or anything else that `stockade evaluate` takes."""
    episodes: int = 2000  # Against each attacker.
    horizon: int = 100  # Steps of an episode.
    seed: int = BEHAVIOUR_SEED  # First seed; each attacker under each rule set has its own.
    out: Path = RESULTS / "champion-behaviour.json"  # Where the counts go.

    def run(self) -> int:
        check_writable(self.out, "--out")
        if self.episodes < 2 or self.horizon < 1:
            raise InputError("--episodes must be at least 2, and --horizon 1 or more")
        policies = {rules: load(self.policy, greedy=True, rules=rules) for rules in RULE_SETS}
        worlds, partings = [], []
        for k, rules in enumerate(RULE_SETS):
            records = {}
            for j, red in enumerate(REDS):
                print(f"{self.policy}: {self.episodes} episodes against {red}, rules {rules}", flush=True)
                seed = self.seed + (k * len(REDS) + j) * SEEDS_PER_CELL
                records[red] = watch(policies[rules], red, rules, self.episodes, self.horizon, seed)
                worlds.append({"rules": rules, "red": red, **summarise(records[red])})
            partings.append({"rules": rules, **parting(records["bline"], records["meander"])})
        write_json(self.out, {"stamp": machine_stamp(), "policy": Path(self.policy).name, "episodes": self.episodes,
                              "horizon": self.horizon, "seed": self.seed, "worlds": worlds,
                              "parting": partings})  # fmt: skip
        return 0
