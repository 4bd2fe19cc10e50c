"""Measures how good the answers of searches are: what `stockade bench search-quality` runs.

attacker x method x budget x seed -> search -> its policy on the seeds of the truth (which search_truth.py finds by
brute force) -> regret (true value of the best order minus that of the delivered policy, which may not carry out what
its order forbids), RMSE of the reported values, seconds of CPU time, which do not depend on other programs.

Searches are kept in --runs, so that a bench that was killed continues. Trainings of the first version do not depend on
the budget: its search is extended from budget to budget. The default is run anew.
"""

import itertools
import json
import math
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from common import read_result
from tqdm import tqdm

from stockade.baselines import Defender
from stockade.bench.result import RESULTS, Result, find
from stockade.bench.runner import Case, Sample, in_turns
from stockade.bench.search import Method, SearchQualityBench, quiet_search
from stockade.cage2.config import WorldConfig
from stockade.errors import InputError
from stockade.files import as_json, write_durably
from stockade.text import duration, fixed
from stockade.vector.native import NativeVectorEnv
from stockade.workflow.config import RewardFlags, RewardProtocol, SearchConfig
from stockade.workflow.orders import ORDERS, TYPES, Order, Ranking, representative, types_red_can_hold
from stockade.workflow.policies import load_search
from stockade.workflow.strict import allowed_actions

SEED = 1_900_000_000  # First of the episodes that policies are judged by; neither trainings nor searches play these


@dataclass(frozen=True)
class Delivered:
    """What a search delivers."""

    order: str  # that it names best
    value: float  # of its policy for that order, forbidden fixes not carried out
    reported: list[tuple[str, float]]  # order and value of everything in its table
    seconds: float  # CPU time of the search, with that of the smaller budgets which it extends

    def regret(self, truth: Mapping[str, float]) -> float:
        """Points lost against the best order; negative if the policy is better than all that the truth knows."""
        return max(truth.values()) - self.value

    def rmse(self, truth: Mapping[str, float]) -> float:
        """Root mean squared error of the reported values, in points."""
        return math.sqrt(np.mean([(value - truth[order]) ** 2 for order, value in self.reported]))


def check(bench: SearchQualityBench) -> None:
    """Refuse options that cannot be used, and an attacker whose truth is not known."""
    for red, method, budget in itertools.product(_reds(bench), bench.methods, bench.budgets):
        search_config(bench, red, method, budget, 0)
    for red in _reds(bench):
        known_truth(bench, red)


def _reds(bench: SearchQualityBench) -> list[str]:
    return list(dict.fromkeys(WorldConfig(red).red for red in bench.red_agent))


def known_truth(bench: SearchQualityBench, red: str) -> dict[str, float]:
    """Value of every class of orders, the best of its trainings; InputError if one has none yet."""
    path, labels = truth_path(red, bench.max_steps), classes(red, bench.max_steps)[1]
    table = find(read_result(path).figures, judged=bench.n_eval_episodes) if path.exists() else []
    missing = [label for label in labels if not find(table, order=label)]
    if missing:
        raise InputError(f"{path} lacks {len(missing)} of the {len(labels)} orders' true values, of "
                         f"{bench.n_eval_episodes} episodes each; in a checkout, make them with: python "
                         f"benchmarks/search_truth.py --red-agent {red} --max-steps {bench.max_steps} "
                         f"--n-eval-episodes {bench.n_eval_episodes}")  # fmt: skip
    return {label: max(figure.value for figure in find(table, order=label)) for label in labels}


def measure(bench: SearchQualityBench, result: Result) -> None:
    """Attacker by attacker and seed by seed; small budgets first, so that searches can be extended."""
    for red in _reds(bench):
        cases = [Case({"red": red, "method": method, "budget": budget},
                      partial(next, _searches(bench, red, method, budget)))
                 for method, budget in itertools.product(bench.methods, sorted(set(bench.budgets)))]  # fmt: skip
        in_turns([cases], bench.rounds, result)


def _searches(bench: SearchQualityBench, red: str, method: Method, budget: int) -> Iterator[list[Sample]]:
    """The figures of one search after the other, seed by seed."""
    truth = known_truth(bench, red)
    for seed in itertools.count():
        delivered = deliver(bench, search_config(bench, red, method, budget, seed))
        regret, rmse = delivered.regret(truth), delivered.rmse(truth)
        tqdm.write(f"{red}, {method}, {budget:,} episodes, seed {seed}: {delivered.order}; regret {fixed(regret)}, "
                   f"RMSE {fixed(rmse)}, {duration(delivered.seconds)}")  # fmt: skip
        found = {"regret": ("points", regret), "RMSE": ("points", rmse), "time": ("s", delivered.seconds),
                 "reported": ("orders", len(delivered.reported))}  # fmt: skip
        yield [Sample(unit, value, {"part": part}) for part, (unit, value) in found.items()]


def search_config(bench: SearchQualityBench, red: str, method: Method, budget: int, seed: int) -> SearchConfig:
    """The settings of a search; its name depends on all of them, but for the budget of one that is extended."""
    config = SearchConfig(red, bench.max_steps, budget, n_envs=bench.n_envs, seed=seed, runs=bench.runs, plots=False)
    if method == "strict":
        config = decides = replace(config, n_eval_episodes=bench.n_eval_episodes)
    else:
        least = min(bench.max_episodes, RewardProtocol().min_episodes)
        config = replace(config, constraint="reward", search=method, max_episodes=bench.max_episodes,
                         first_version=RewardFlags(min_episodes=least))  # fmt: skip
        decides = replace(config, total_episodes=None)
    digest = zlib.crc32(as_json(decides.to_json()).encode())
    return replace(config, name=f"{red}-{bench.max_steps}-{method}-seed{seed}-{digest:08x}")


def deliver(bench: SearchQualityBench, config: SearchConfig) -> Delivered:
    """Search, unless that is done already, and judge the policy that comes out."""
    folder = config.runs / str(config.name)
    kept = folder / f"delivered-{config.budget}-{bench.n_eval_episodes}.json"
    if kept.exists():
        return Delivered(**json.loads(kept.read_text()))
    begun, begin = (folder / "config.json").exists(), time.process_time()
    before = [json.loads(path.read_text())["seconds"] for path in folder.glob("delivered-*.json")]
    summary = quiet_search(replace(config, resume=config.name) if begun else config)
    seconds = max(before, default=0.0) + time.process_time() - begin
    matters, _ = classes(config.red, bench.max_steps)
    reported = [(TYPES.describe(entry["ranking"], matters), entry["value"]) for entry in summary["classes"]]
    best = next(entry["ranking"] for entry in summary["classes"] if entry["order"] == summary["best"][0])
    agent = load_search(folder, order=summary["best"][0])  # even if nothing complied with its order
    returns = strict_returns(agent, best, config.red, bench.max_steps, bench.n_eval_episodes)
    delivered = Delivered(TYPES.describe(best, matters), returns.mean(), reported, seconds)
    write_durably(kept.absolute(), as_json(asdict(delivered)).encode())
    return delivered


def truth_path(red: str, steps: int) -> Path:
    return RESULTS / f"search-truth-{red}-{steps}.json"


@cache
def classes(red: str, steps: int) -> tuple[np.ndarray, dict[str, Order]]:
    """(5,) bool, types that red can hold; one order of each class of orders that are equal in effect, by its label."""
    matters = types_red_can_hold(red, horizon=steps)
    orders = dict.fromkeys(representative(order, matters) for order in ORDERS)
    return matters, {TYPES.describe(order, matters): order for order in orders}


def strict_returns(agent: Defender, order: Ranking, red: str, horizon: int, episodes: int) -> np.ndarray:
    """(episodes,) returns of a policy on the seeds of the truth; fixes that the order forbids are not carried out, also
    of a policy that was trained for compliance and is free to violate its order."""
    places, returns = TYPES.places(order), np.zeros(episodes)
    with NativeVectorEnv(episodes, red, horizon, obs=agent.obs, autoreset_mode="disabled", copy=False) as envs:
        obs, _ = envs.reset(seed=SEED)
        for _ in range(horizon):
            actions = allowed_actions(envs.true_state().red_access, agent.act(obs), places)
            obs, rewards, _, _, _ = envs.step(actions)
            returns += rewards
    return returns
