"""`stockade bench search-quality`: how good the answer of a search is, measured against the brute-force truth.

--truth    every order trained alone, and all together for long -> strict returns on common seeds -> search-truth-*.json
otherwise  attacker x method x budget x seed -> search -> its policy on the same seeds -> regret, RMSE, seconds

Regret is the true value of the best order minus the value of the policy that the search delivers for the order that it
names; fixes that this order forbids are not carried out (judge: the truth). RMSE is the error of the values that the
search reports. Searches are kept in --runs, so that a bench that was killed continues. The first version's trainings do
not depend on the budget: its search is extended from budget to budget. The default is run anew for each.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json as jsonlib
import math
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import tyro
from tqdm import tqdm

from stockade.bench.command import BenchCommand, Notes
from stockade.bench.result import RESULTS, Figure, Result, find, print_result, read_result, write_result
from stockade.bench.runner import Case, Sample, in_turns
from stockade.bench.stamp import machine_stamp
from stockade.cage2.config import WorldConfig
from stockade.errors import InputError
from stockade.files import as_json, write_durably
from stockade.text import duration, fixed
from stockade.vector.native import NativeVectorEnv
from stockade.workflow.config import RewardFlags, RewardProtocol, SearchConfig
from stockade.workflow.orders import ORDERS, Order, representative, types_red_can_hold
from stockade.workflow.units import TYPES, Ranking

if TYPE_CHECKING:
    from stockade.learn.agents import Agent

DEFAULT = "strict"
METHODS = (DEFAULT, "gp-ucb", "random", "round-robin")
"""All but the default are the first version's protocol, `--constraint reward`, with a way to choose the next order."""
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
    methods: tuple[str, ...] = METHODS
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
    """Of the one training of all orders together, whose values count too."""
    truth_folder: Path = RESULTS
    """Folder of the truth tables."""

    name: ClassVar[str] = "search-quality"
    quick_settings: ClassVar[dict[str, object]] = {
        "rounds": 1, "red_agent": ("bline",), "max_steps": 6, "budgets": (800, 1600), "max_episodes": 400, "n_envs": 20,
        "n_eval_episodes": 100, "truth_seeds": 1, "truth_episodes": 400, "truth_together": 1200,
        "runs": Path("bench-quick/searches"), "truth_folder": Path("bench-quick"),
    }  # fmt: skip
    choices: ClassVar[dict[str, tuple[str, ...]]] = {"methods": METHODS}

    # ------------------------------------------------------------------------------------------------------- checks
    def check(self) -> None:
        """Refuse options that cannot be used, and without --truth an attacker whose truth is not known."""
        super().check()
        for red, method, budget in itertools.product(self._reds(), self.methods, self.budgets):
            self.config(red, method, budget, 0)
        if self.truth and self.json is not None:
            raise InputError(f"--json is not for --truth, which writes its tables to {self.truth_folder}")
        if not self.truth:
            for red in self._reds():
                self.known_truth(red)

    def _reds(self) -> list[str]:
        """The attackers by their short names."""
        try:
            return list(dict.fromkeys(WorldConfig(red).red for red in self.red_agent))
        except ValueError as error:
            raise InputError(f"--red-agent {' '.join(self.red_agent)}: {error}") from error

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
        return self.truth_folder / f"search-truth-{red}-{self.max_steps}.json"

    def make_truth(self, red: str) -> Result:
        """Train what the table lacks; it is written after every training."""
        path, begin = self.truth_path(red), time.perf_counter()
        path.parent.mkdir(parents=True, exist_ok=True)
        known = read_result(path) if path.exists() else None
        settings = {"red_agent": red, "max_steps": self.max_steps, "n_eval_episodes": self.n_eval_episodes}
        if known is not None and known.settings != settings:
            raise InputError(f"{path} was made with {known.settings}, not {settings}: move it away first")
        before, found = (0.0, []) if known is None else (known.seconds, list(known.figures))
        result = Result(path.stem, self.command(), machine_stamp(), settings, before, tuple(found))
        for tags, train in self._trainings(red):
            if not find(found, **tags):
                new = [Figure({"order": order, **tags}, "return", (value,)) for order, value in train().items()]
                found += new
                result = replace(result, seconds=before + time.perf_counter() - begin, figures=tuple(found))
                write_result(path, result)
                print("\n".join(f"{red}: {figure.name}: {fixed(figure.value)}" for figure in new), flush=True)
        return result

    def _trainings(self, red: str) -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, float]]]]:
        """Tags of each training, and what gives its values by order; all orders have one before one has two."""
        tags = {"training": "together", "seed": TRUTH_SEED, "episodes": self.truth_together}
        yield tags, partial(self._values_together, red)
        for seed in range(TRUTH_SEED, TRUTH_SEED + self.truth_seeds):
            tags = {"training": "alone", "seed": seed, "episodes": self.truth_episodes}
            for label, order in classes(red, self.max_steps)[1].items():
                yield {"order": label, **tags}, partial(self._value_alone, red, label, order, seed)

    def known_truth(self, red: str) -> dict[str, float]:
        """Value of every class of orders: the best of its trainings.

        Raises:
            InputError: a class was not trained alone yet.
        """
        path, labels = self.truth_path(red), classes(red, self.max_steps)[1]
        table = read_result(path).figures if path.exists() else ()
        missing = [label for label in labels if not find(table, order=label, training="alone")]
        if missing:
            make = replace(self, red_agent=(red,), truth=True, json=None).command()
            raise InputError(f"the true value of {len(missing)} orders against {red} is not in {path} (the first: "
                             f"{missing[0]}); make it with: {make}")  # fmt: skip
        return {label: max(figure.value for figure in find(table, order=label)) for label in labels}

    def _values_together(self, red: str) -> dict[str, float]:
        from stockade.workflow.policies import load_search

        folder, summary = searched(self.config(red, DEFAULT, self.truth_together, TRUTH_SEED))
        orders = {entry["order"]: entry["ranking"] for entry in summary["classes"]}
        return {label: self._judged(load_search(folder, order=label), orders[label], red) for label in orders}

    def _value_alone(self, red: str, label: str, order: Order, seed: int) -> dict[str, float]:
        from stockade.workflow.conditioned import ConditionedTraining
        from stockade.workflow.training import episodes_of_update

        config = self.config(red, DEFAULT, self.truth_episodes, seed)
        training = ConditionedTraining(config, TYPES, [order], seed)
        try:
            while training.episodes + episodes_of_update(config) <= self.truth_episodes:
                training.advance(self.truth_episodes)
            return {label: float(training.returns(self.n_eval_episodes, SEED).mean())}
        finally:
            training.close()

    def _judged(self, agent: Agent, order: Ranking, red: str) -> float:
        return float(strict_returns(agent, order, red, self.max_steps, self.n_eval_episodes).mean())

    # ------------------------------------------------------------------------------------------------------ searches
    def measure(self, notes: Notes) -> None:
        """Attacker by attacker and seed by seed; small budgets first, so that searches can be extended."""
        cases = list(itertools.product(self.methods, sorted(set(self.budgets))))
        for red in self._reds():
            tags = [{"red": red, "method": method, "budget": budget} for method, budget in cases]
            in_turns([[Case(tag, partial(next, self._searches(**tag))) for tag in tags]], self.rounds, notes)

    def _searches(self, red: str, method: str, budget: int) -> Iterator[list[Sample]]:
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

    def config(self, red: str, method: str, budget: int, seed: int) -> SearchConfig:
        """The settings of a search; its name depends on all of them, but for the budget of one that is extended."""
        config = SearchConfig(red, self.max_steps, budget, n_envs=self.n_envs, seed=seed, runs=self.runs, plots=False)
        if method == DEFAULT:
            config = replace(config, n_eval_episodes=self.n_eval_episodes)
        else:
            least = min(self.max_episodes, RewardProtocol().min_episodes)
            config = replace(config, constraint="reward", search=method, max_episodes=self.max_episodes,
                             first_version=RewardFlags(min_episodes=least))  # fmt: skip
        decides = config if method == DEFAULT else replace(config, total_episodes=None)
        digest = zlib.crc32(as_json(decides.to_json()).encode())
        return replace(config, name=f"{red}-{self.max_steps}-{method}-seed{seed}-{digest:08x}")

    def deliver(self, config: SearchConfig) -> Delivered:
        """Search, unless that is done already, and judge the policy that comes out."""
        from stockade.workflow.policies import load_search

        kept = config.runs / str(config.name) / f"delivered-{config.budget}-{self.n_eval_episodes}.json"
        if kept.exists():
            return Delivered(**jsonlib.loads(kept.read_text()))
        folder, summary = searched(config)
        matters, _ = classes(config.red, self.max_steps)
        rankings = {entry["order"]: entry["ranking"] for entry in summary["classes"]}
        reported = [(TYPES.describe(entry["ranking"], matters), entry["value"]) for entry in summary["classes"]]
        best = rankings[summary["best"][0]]
        value = self._judged(load_search(folder), best, config.red)
        delivered = Delivered(TYPES.describe(best, matters), value, reported, summary["seconds"])
        write_durably(kept.absolute(), as_json(asdict(delivered)).encode())
        return delivered


@cache
def classes(red: str, steps: int) -> tuple[np.ndarray, dict[str, Order]]:
    """(5,) bool, types that red can hold; one order of each class of orders that are equal in effect, by its label."""
    matters = types_red_can_hold(red, horizon=steps)
    orders = dict.fromkeys(representative(order, matters) for order in ORDERS)
    return matters, {TYPES.describe(order, matters): order for order in orders}


def searched(config: SearchConfig) -> tuple[Path, dict[str, Any]]:
    """Run a search without its output, or continue it where it stands; its folder and summary."""
    from stockade.workflow.search import search

    begun, printed = (config.runs / str(config.name) / "config.json").exists(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        result = search(replace(config, resume=config.name) if begun else config)
    if result.answer is None:
        print("stopped; the same command continues from here", file=sys.stderr)
        raise SystemExit(result.exit_code)
    return result.folder, result.to_dict()


def strict_returns(agent: Agent, order: Ranking, red: str, horizon: int, episodes: int) -> np.ndarray:
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
