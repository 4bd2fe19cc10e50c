"""`stockade bench search` and `search-quality`: how fast a search is on Ray, and how good its answer is.

search: cores -> a Ray held to them -> a short search that wakes its workers, whose start a search of hours does not
notice -> the timed search. Every case trains the same workflows with the same results, which is checked.

search-quality compares with tables of the truth, which only a checkout has: benchmarks/search_quality.py measures.
"""

import contextlib
import importlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from stockade.bench.result import QUICK_RESULTS, Result
from stockade.bench.runner import BenchCommand, Case, Numbers, Sample, Words, in_turns, option
from stockade.cores import available_cores
from stockade.errors import InputError
from stockade.vector.ray.cluster import Connection, RayConfig, load_ray
from stockade.workflow.config import RewardFlags, SearchConfig

#: The default, and ways to choose the next order under the first version's protocol, `--constraint reward`.
Method = Literal["strict", "gp-ucb", "random", "round-robin"]


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
        super().check()
        _search_quality().check(self)

    def measure(self, result: Result) -> None:
        _search_quality().measure(self, result)


def _search_quality() -> Any:
    """benchmarks/search_quality.py of the checkout that this package is in, or that we are in."""
    for folder in (Path(__file__).parents[2] / "benchmarks", Path("benchmarks").absolute()):
        if (folder / "search_quality.py").is_file():
            sys.path.insert(0, str(folder))
            return importlib.import_module("search_quality")
    raise InputError("bench search-quality compares with tables of the truth, which only a checkout has: run it there")
