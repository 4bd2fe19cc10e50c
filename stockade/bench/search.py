"""`stockade bench search` and `search-quality`: how fast the search is on Ray, and how good its answer is.

search: cores -> a Ray held to them -> a short search that wakes its workers, whose start a search of hours does not
notice -> the timed search. Every case trains the same workflows with the same results, which is checked.

search-quality: attacker x method x budget x seed -> search -> its policy on the seeds of the truth (which
benchmarks/search_truth.py finds by brute force) -> regret (true value of the best order minus that of the delivered
policy, which may not carry out what its order forbids), RMSE of the reported values, seconds of CPU time, which do not
depend on what else the machine does. Searches are kept in --runs, so that a bench that was killed continues. Trainings
of the first version do not depend on the budget: its search is extended from budget to budget. The default is run anew.
"""

import contextlib
import io
import itertools
import json as jsonlib
import math
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
import tyro
from tqdm import tqdm

from stockade.baselines import Defender
from stockade.bench.result import QUICK_RESULTS, RESULTS, Result, find, read_result
from stockade.bench.runner import BenchCommand, Case, Numbers, Sample, Words, in_turns, option
from stockade.cage2.config import WorldConfig
from stockade.cores import available_cores
from stockade.errors import InputError
from stockade.files import as_json, write_durably
from stockade.text import duration, fixed
from stockade.vector.native import NativeVectorEnv
from stockade.vector.ray.cluster import Connection, RayConfig, load_ray
from stockade.workflow.config import RewardFlags, RewardProtocol, SearchConfig
from stockade.workflow.orders import ORDERS, TYPES, Order, Ranking, representative, types_red_can_hold

#: The default, and ways to choose the next order under the first version's protocol, `--constraint reward`.
Method = Literal["strict", "gp-ucb", "random", "round-robin"]
SEED = 1_900_000_000  # First of the episodes that policies are judged by; neither trainings nor searches play these


@dataclass(frozen=True)
class SearchParallelBench(BenchCommand, name="search"):
    """Workflows per minute on Ray, two at a time to one, a core each; without Ray's start."""

    parallel: int = option(2, least=2)  # Workflows at once, and cores, of the case that is compared with one.
    workflows: int = option(6, quick=2)  # Trainings of a search; best a multiple of --parallel, or cores are idle.
    episodes: int = option(3000, quick=400)  # Of each training.
    n_envs: int = 200  # Environments of each training.
    max_steps: int = 100  # Steps of an episode.

    def check(self) -> None:
        super().check()
        if self.workflows < self.parallel or self.episodes < self.n_envs:
            raise InputError(f"--workflows must be at least --parallel {self.parallel}, and --episodes at least "
                             f"--n-envs {self.n_envs}")  # fmt: skip
        load_ray()
        if (cores := available_cores()) < self.parallel:
            raise InputError(f"--parallel {self.parallel} needs as many cores; this process may use {cores}")

    def measure(self, result: Result) -> None:
        found: list[dict[int, Any]] = []
        cases = [Case({"parallel": k}, partial(self._round, k, found)) for k in (1, self.parallel)]
        for one, several in in_turns([cases], self.rounds, result):
            result.figures.append(several.over(one, to=1))
        if any(results != found[0] for results in found):
            raise RuntimeError("the searches found different values, so their times cannot be compared")

    def _round(self, parallel: int, found: list[dict[int, Any]]) -> list[Sample]:
        """One timed search; the values that it found, by number of the training, are added to `found`."""
        with _ray_held_to(parallel), tempfile.TemporaryDirectory() as folder:
            self._search(Path(folder), "first", parallel, parallel, self.n_envs)
            begin = time.perf_counter()
            summary = self._search(Path(folder), "timed", parallel, self.workflows, self.episodes)
            seconds = time.perf_counter() - begin
        found.append({one["number"]: (one["order"], one["value"]) for one in summary["trainings"]})
        return [Sample("workflows/min", 60 * self.workflows / seconds)]

    def _search(self, runs: Path, name: str, parallel: int, workflows: int, episodes: int) -> dict[str, Any]:
        return quiet_search(SearchConfig(
            engine="ray", parallel=parallel, n_workflows=workflows, n_envs=self.n_envs, horizon=self.max_steps,
            total_episodes=workflows * episodes, max_episodes=episodes, search="round-robin",
            constraint="reward",  # a fixed number of episodes each: all searches do the same work, whatever they find
            first_version=RewardFlags(min_episodes=0, fixed_episodes=True), classes=False, name=name, runs=runs,
            plots=False))  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- quality
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


@dataclass(frozen=True)
class SearchQualityBench(BenchCommand, name="search-quality"):
    """Regret and errors of searches over their budgets: the default beside the first version's protocol."""

    rounds: Annotated[int, tyro.conf.arg(aliases=["--seeds"])] = option(3, quick=1)
    """Searches of each case, with the seeds 0, 1, ..."""
    red_agent: Words = option(("bline", "meander"), quick=("bline",))  # Who attacks; one after the other.
    max_steps: int = option(30, quick=6)  # Steps of an episode.
    methods: tuple[Method, ...] = get_args(Method)  # strict is the default; the others are of the first version.
    budgets: Numbers = option((50_000, 100_000, 200_000), quick=(800, 1600))  # Training episodes of a search.
    max_episodes: int = option(12_000, quick=400)  # Episodes of one training under the first version's protocol.
    n_envs: int = option(200, quick=20)  # Environments of each training.
    n_eval_episodes: int = option(4_000, quick=100)  # Greedy episodes that a policy is judged by.
    runs: Path = option(Path("runs/search-quality"), quick=QUICK_RESULTS / "searches")
    """Folder of the searches; those that are finished are not repeated."""

    def check(self) -> None:
        """Refuse options that cannot be used, and an attacker whose truth is not known."""
        super().check()
        for red, method, budget in itertools.product(self._reds(), self.methods, self.budgets):
            self.config(red, method, budget, 0)
        for red in self._reds():
            self.known_truth(red)

    def _reds(self) -> list[str]:
        return list(dict.fromkeys(WorldConfig(red).red for red in self.red_agent))

    def known_truth(self, red: str) -> dict[str, float]:
        """Value of every class of orders, the best of its trainings; InputError if one has none yet."""
        path, labels = truth_path(red, self.max_steps), classes(red, self.max_steps)[1]
        table = find(read_result(path).figures, judged=self.n_eval_episodes) if path.exists() else []
        missing = [label for label in labels if not find(table, order=label)]
        if missing:
            raise InputError(f"{path} lacks {len(missing)} of the {len(labels)} orders' true values, of "
                             f"{self.n_eval_episodes} episodes each; in a checkout, make them with: python "
                             f"benchmarks/search_truth.py --red-agent {red} --max-steps {self.max_steps} "
                             f"--n-eval-episodes {self.n_eval_episodes}")  # fmt: skip
        return {label: max(figure.value for figure in find(table, order=label)) for label in labels}

    def measure(self, result: Result) -> None:
        """Attacker by attacker and seed by seed; small budgets first, so that searches can be extended."""
        for red in self._reds():
            cases = [Case({"red": red, "method": method, "budget": budget},
                          partial(next, self._searches(red, method, budget)))
                     for method, budget in itertools.product(self.methods, sorted(set(self.budgets)))]  # fmt: skip
            in_turns([cases], self.rounds, result)

    def _searches(self, red: str, method: Method, budget: int) -> Iterator[list[Sample]]:
        """The figures of one search after the other, seed by seed."""
        truth = self.known_truth(red)
        for seed in itertools.count():
            delivered = self.deliver(self.config(red, method, budget, seed))
            regret, rmse = delivered.regret(truth), delivered.rmse(truth)
            tqdm.write(f"{red}, {method}, {budget:,} episodes, seed {seed}: {delivered.order}; regret {fixed(regret)}, "
                       f"RMSE {fixed(rmse)}, {duration(delivered.seconds)}")  # fmt: skip
            found = {"regret": ("points", regret), "RMSE": ("points", rmse), "time": ("s", delivered.seconds),
                     "reported": ("orders", len(delivered.reported))}  # fmt: skip
            yield [Sample(unit, value, {"part": part}) for part, (unit, value) in found.items()]

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
        begun, begin = (folder / "config.json").exists(), time.process_time()
        before = [jsonlib.loads(path.read_text())["seconds"] for path in folder.glob("delivered-*.json")]
        summary = quiet_search(replace(config, resume=config.name) if begun else config)
        seconds = max(before, default=0.0) + time.process_time() - begin
        matters, _ = classes(config.red, self.max_steps)
        reported = [(TYPES.describe(entry["ranking"], matters), entry["value"]) for entry in summary["classes"]]
        best = next(entry["ranking"] for entry in summary["classes"] if entry["order"] == summary["best"][0])
        agent = load_search(folder, order=summary["best"][0])  # even if nothing complied with its order
        returns = strict_returns(agent, best, config.red, self.max_steps, self.n_eval_episodes)
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
    from stockade.workflow.strict import allowed_actions

    places, returns = TYPES.places(order), np.zeros(episodes)
    with NativeVectorEnv(episodes, red, horizon, obs=agent.obs, autoreset_mode="disabled", copy=False) as envs:
        obs, _ = envs.reset(seed=SEED)
        for _ in range(horizon):
            actions = allowed_actions(envs.true_state().red_access, agent.act(obs), places)
            obs, rewards, _, _, _ = envs.step(actions)
            returns += rewards
    return returns


def quiet_search(config: SearchConfig) -> dict[str, Any]:
    """Search without the output of a search; its summary. A signal that stops it ends the bench."""
    from stockade.workflow.search import search

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        result = search(config)
    if result.stopped is not None:
        print("the search was stopped", file=sys.stderr)
        raise SystemExit(result.exit_code)
    return result.to_dict()


@contextlib.contextmanager
def _ray_held_to(cores: int) -> Iterator[None]:
    """A Ray of so many CPUs on this machine; where the system can do it, driver and workers share so many cores."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if allowed is not None:
        os.sched_setaffinity(0, sorted(allowed)[:cores])  # processes that are started from here inherit it
    try:
        with contextlib.closing(Connection(RayConfig(workers=cores, address="local"), cores)):
            yield
    finally:
        if allowed is not None:
            os.sched_setaffinity(0, allowed)
