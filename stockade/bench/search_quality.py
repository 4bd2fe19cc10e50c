"""`stockade bench search-quality`: how good the answer of a search is, measured against the brute-force truth.

--truth    every order trained alone, and all together for long -> strict returns on common seeds -> search-truth-*.json
otherwise  attacker x method x budget x seed -> search -> its policy on the same seeds -> regret, RMSE, seconds

Regret is the true value of the best order minus the value of the policy that the search delivers for the order that it
names; fixes that this order forbids are not carried out (judge: the truth). RMSE is the error of the values that the
search reports. Searches are kept in --runs, so that a bench that was killed continues. The first version's trainings do
not depend on the budget: its search is extended from budget to budget. The default is run anew for each.
"""

from __future__ import annotations

import itertools
import json as jsonlib
import math
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
import tyro
from tqdm import tqdm

from stockade.baselines import Defender
from stockade.bench.all_benches import QUICK_RESULTS
from stockade.bench.command import BenchCommand, Notes
from stockade.bench.result import RESULTS, Figure, Result, find, print_result, read_result, write_result
from stockade.bench.runner import Case, Sample, in_turns
from stockade.bench.search import quiet_search
from stockade.bench.stamp import machine_stamp
from stockade.cage2.config import WorldConfig
from stockade.errors import InputError
from stockade.files import as_json, write_durably
from stockade.text import duration, fixed
from stockade.vector.native import NativeVectorEnv
from stockade.workflow.config import RewardFlags, RewardProtocol, SearchConfig
from stockade.workflow.orders import ORDERS, Order, representative, types_red_can_hold
from stockade.workflow.units import TYPES, Ranking

Method = Literal["strict", "gp-ucb", "random", "round-robin"]
"""The default, and ways to choose the next order under the first version's protocol, `--constraint reward`."""
SEED = 1_900_000_000
"""First seed of the episodes that policies are judged by; neither trainings nor searches play these."""
TRUTH_SEED = 1_000
"""First seed of the trainings of the truth; no search that is measured has it."""


@dataclass(frozen=True)
class Delivered:
    """What a search delivers.

    Attributes:
        order: that it names best. value: of its policy for that order, forbidden fixes not carried out.
        reported: order and value of everything in its table.
        seconds: that the search took.
    """

    order: str
    value: float
    reported: list[tuple[str, float]]
    seconds: float

    def regret(self, truth: Mapping[str, float]) -> float:
        """Points lost against the best order; negative if the policy is better than all that the truth knows."""
        return max(truth.values()) - self.value

    def rmse(self, truth: Mapping[str, float]) -> float:
        """Root mean squared error of the reported values, in points."""
        return math.sqrt(np.mean([(value - truth[order]) ** 2 for order, value in self.reported]))


@dataclass(frozen=True)
class SearchQualityBench(BenchCommand):
    """Regret and errors of searches over their budgets: the default beside the first version's protocol."""

    rounds: Annotated[int, tyro.conf.arg(aliases=["--seeds"])] = 3
    """Searches of each case, with the seeds 0, 1, ..."""
    red_agent: tuple[str, ...] = ("bline", "meander")
    """Who attacks; one after the other."""
    max_steps: int = 30
    """Steps of an episode."""
    methods: tuple[Method, ...] = get_args(Method)
    """The default (strict), and ways to choose the next order under the first version's protocol."""
    budgets: tuple[int, ...] = (50_000, 100_000, 200_000)
    """Training episodes of a search."""
    max_episodes: int = 12_000
    """Episodes of one training under the first version's protocol."""
    n_envs: int = 200
    """Environments of each training."""
    n_eval_episodes: int = 4_000
    """Greedy episodes that a policy is judged by."""
    runs: Path = Path("runs/search-quality")
    """Folder of the searches; those that are finished are not repeated."""
    truth: bool = False
    """Make the truth tables instead; what is in them already is not repeated."""
    truth_seeds: int = 3
    """Trainings of every order alone."""
    truth_episodes: int = 60_000
    """Of each training alone."""
    truth_together: int = 400_000
    """Of the one training of all orders together, which counts as one more seed of each."""

    name: ClassVar[str] = "search-quality"
    quick_settings: ClassVar[dict[str, object]] = {
        "rounds": 1, "red_agent": ("bline",), "max_steps": 6, "budgets": (800, 1600), "max_episodes": 400, "n_envs": 20,
        "n_eval_episodes": 100, "truth_seeds": 1, "truth_episodes": 400, "truth_together": 1200,
        "runs": QUICK_RESULTS / "searches",
    }  # fmt: skip

    def check(self) -> None:
        """Refuse options that cannot be used, and without --truth an attacker whose truth is not known."""
        super().check()
        for red, method, budget in itertools.product(self._reds(), self.methods, self.budgets):
            self.config(red, method, budget, 0)
        if self.truth and self.json is not None:
            raise InputError(f"--json is not for --truth, which writes {self.truth_path(red)}")
        for red in [] if self.truth else self._reds():
            self.known_truth(red)

    def _reds(self) -> list[str]:
        """The attackers by their short names."""
        return list(dict.fromkeys(WorldConfig(red).red for red in self.red_agent))

    # --------------------------------------------------------------------------------------------------------- truth
    def run(self) -> int:
        """Measure, print, write; or make the truth tables."""
        if not self.truth:
            return super().run()
        sized = self.sized()
        sized.check()
        for red in sized._reds():
            print_result(sized.make_truth(red))
        return 0

    def truth_path(self, red: str) -> Path:
        """File of an attacker's truth."""
        return (QUICK_RESULTS if self.quick else RESULTS) / f"search-truth-{red}-{self.max_steps}.json"

    def make_truth(self, red: str) -> Result:
        """Train what the table lacks; it is written after every training."""
        path, begin = self.truth_path(red), time.perf_counter()
        path.parent.mkdir(parents=True, exist_ok=True)
        settings = {"red_agent": red, "max_steps": self.max_steps}
        result = Result(path.stem, self.command(), machine_stamp(), settings, 0.0, ())
        if path.exists():
            known = read_result(path)
            result = replace(result, seconds=known.seconds, figures=known.figures)
        before = result.seconds
        for tags, orders in self._trainings(red):
            if all(find(result.figures, order=label, **tags) for label in orders):
                continue
            values = self._values(red, orders, tags["episodes"], tags["seed"])
            new = [Figure({"order": label, **tags}, "return", (value,)) for label, value in values.items()]
            seconds = before + time.perf_counter() - begin
            result = replace(result, seconds=seconds, figures=(*result.figures, *new))
            write_result(path, result)
            print("\n".join(f"{red}: {figure.name}: {fixed(figure.value)}" for figure in new), flush=True)
        return result

    def _trainings(self, red: str) -> Iterator[tuple[dict[str, Any], dict[str, Order]]]:
        """Tags and orders of each training; all orders have one before any has two."""
        orders = classes(red, self.max_steps)[1]
        together = {"training": "together", "episodes": self.truth_together, "judged": self.n_eval_episodes}
        alone = {**together, "training": "alone", "episodes": self.truth_episodes}
        yield {**together, "seed": TRUTH_SEED}, orders
        for seed, label in itertools.product(range(TRUTH_SEED, TRUTH_SEED + self.truth_seeds), orders):
            yield {**alone, "seed": seed}, {label: orders[label]}

    def known_truth(self, red: str) -> dict[str, float]:
        """Value of every class of orders: the best of its trainings.

        Raises:
            InputError: a class was not trained alone yet.
        """
        path, labels = self.truth_path(red), classes(red, self.max_steps)[1]
        table = find(read_result(path).figures, judged=self.n_eval_episodes) if path.exists() else []
        missing = [label for label in labels if not find(table, order=label, training="alone")]
        if missing:
            make = replace(self, red_agent=(red,), truth=True, json=None).command()
            raise InputError(f"{path} lacks {len(missing)} of the {len(labels)} orders' true values, of "
                             f"{self.n_eval_episodes} episodes each; make them with: {make}")  # fmt: skip
        return {label: max(figure.value for figure in find(table, order=label)) for label in labels}

    def _values(self, red: str, orders: Mapping[str, Order], episodes: int, seed: int) -> dict[str, float]:
        """Train one policy for these orders, and judge it for each."""
        from stockade.workflow.conditioned import ConditionedTraining
        from stockade.workflow.training import episodes_of_update

        config = self.config(red, "strict", episodes, seed)
        training = ConditionedTraining(config, TYPES, list(orders.values()), seed)
        try:
            while training.episodes + episodes_of_update(config) <= episodes:
                training.advance(episodes)
            means = training.returns(self.n_eval_episodes, SEED).mean(axis=(0, 2))
        finally:
            training.close()
        return dict(zip(orders, means.tolist(), strict=True))

    # ------------------------------------------------------------------------------------------------------ searches
    def measure(self, notes: Notes) -> None:
        """Attacker by attacker and seed by seed; small budgets first, so that searches can be extended."""
        for red in self._reds():
            cases = [Case({"red": red, "method": method, "budget": budget},
                          partial(next, self._searches(red, method, budget)))
                     for method, budget in itertools.product(self.methods, sorted(set(self.budgets)))]  # fmt: skip
            in_turns([cases], self.rounds, notes)

    def _searches(self, red: str, method: Method, budget: int) -> Iterator[list[Sample]]:
        """The figures of one search after the other, seed by seed."""
        truth = self.known_truth(red)
        for seed in itertools.count():
            delivered = self.deliver(self.config(red, method, budget, seed))
            regret, rmse = delivered.regret(truth), delivered.rmse(truth)
            tqdm.write(f"{red}, {method}, {budget:,} episodes, seed {seed}: {delivered.order}; regret {fixed(regret)}, "
                       f"RMSE {fixed(rmse)}, {duration(delivered.seconds)}")  # fmt: skip
            yield [
                Sample("points", regret, {"part": "regret"}), Sample("points", rmse, {"part": "RMSE"}),
                Sample("s", delivered.seconds, {"part": "time"}),
                Sample("orders", len(delivered.reported), {"part": "reported"}),
            ]  # fmt: skip

    def config(self, red: str, method: Method, budget: int, seed: int) -> SearchConfig:
        """The settings of a search; its name depends on all of them, but for the budget of one that is extended."""
        config = SearchConfig(red, self.max_steps, budget, n_envs=self.n_envs, seed=seed, runs=self.runs, plots=False)
        if method == "strict":
            config = decides = replace(config, n_eval_episodes=self.n_eval_episodes)
        else:
            least = min(self.max_episodes, RewardProtocol().min_episodes)
            config = replace(config, constraint="reward", search=method, max_episodes=self.max_episodes,
                             first_version=RewardFlags(min_episodes=least))  # fmt: skip
            decides = replace(config, total_episodes=None)
        digest = zlib.crc32(as_json(decides.to_json()).encode())
        return replace(config, name=f"{red}-{self.max_steps}-{method}-seed{seed}-{digest:08x}")

    def deliver(self, config: SearchConfig) -> Delivered:
        """Search, unless that is done already, and judge the policy that comes out."""
        from stockade.workflow.policies import load_search

        folder = config.runs / str(config.name)
        kept = folder / f"delivered-{config.budget}-{self.n_eval_episodes}.json"
        if kept.exists():
            return Delivered(**jsonlib.loads(kept.read_text()))
        begun = (folder / "config.json").exists()
        summary = quiet_search(replace(config, resume=config.name) if begun else config)
        matters, _ = classes(config.red, self.max_steps)
        reported = [(TYPES.describe(entry["ranking"], matters), entry["value"]) for entry in summary["classes"]]
        best = next(entry["ranking"] for entry in summary["classes"] if entry["order"] == summary["best"][0])
        agent = load_search(folder, order=summary["best"][0])  # even if nothing complied with its order
        returns = strict_returns(agent, best, config.red, self.max_steps, self.n_eval_episodes)
        delivered = Delivered(TYPES.describe(best, matters), returns.mean(), reported, summary["seconds"])
        write_durably(kept.absolute(), as_json(asdict(delivered)).encode())
        return delivered


@cache
def classes(red: str, steps: int) -> tuple[np.ndarray, dict[str, Order]]:
    """(5,) bool, types that red can hold; one order of each class of orders that are equal in effect, by its label."""
    matters = types_red_can_hold(red, horizon=steps)
    orders = dict.fromkeys(representative(order, matters) for order in ORDERS)
    return matters, {TYPES.describe(order, matters): order for order in orders}


def strict_returns(agent: Defender, order: Ranking, red: str, horizon: int, episodes: int) -> np.ndarray:
    """(episodes,) returns of a policy on the seeds of the truth; fixes that the order forbids are not carried out.

    A policy that was trained for compliance is free to violate its order; here it is bound like the others.
    """
    from stockade.workflow.strict import allowed_actions

    places, returns = TYPES.places(order), np.zeros(episodes)
    with NativeVectorEnv(episodes, red, horizon, obs=agent.obs, autoreset_mode="disabled", copy=False) as envs:
        obs, _ = envs.reset(seed=SEED)
        for _ in range(horizon):
            actions = allowed_actions(envs.true_state().red_access, agent.act(obs), places)
            obs, rewards, _, _, _ = envs.step(actions)
            returns += rewards
    return returns
