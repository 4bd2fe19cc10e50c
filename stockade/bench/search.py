"""`stockade bench search`: workflows per minute of the search on Ray, two at a time against one, one core each.

cores -> a Ray held to them -> a short search that wakes its workers -> the timed search -> the next number of cores

Every case trains the same workflows for the same number of episodes with the same results, which is checked. Ray and
its workers are started, and have imported Torch, before the clock runs: a search of hours does not notice it.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from stockade.bench.command import BenchCommand, Notes
from stockade.bench.runner import Case, Sample, in_turns
from stockade.cores import available_cores
from stockade.errors import InputError
from stockade.vector.ray.cluster import Connection, RayConfig, load_ray
from stockade.workflow.config import RewardProtocol, SearchConfig


@dataclass(frozen=True)
class SearchParallelBench(BenchCommand):
    """Workflows per minute on Ray, two at a time to one, a core each; without Ray's start."""

    parallel: int = 2  # Workflows at once, and cores, of the case that is compared with one at a time.
    workflows: int = 6  # Trainings of a search; best a multiple of --parallel, or cores are idle at the end.
    episodes: int = 3000  # Of each training.
    n_envs: int = 200  # Environments of each training.
    max_steps: int = 100  # Steps of an episode.

    name = "search"
    quick_settings: ClassVar = {"rounds": 1, "workflows": 2, "episodes": 400}
    least: ClassVar = {"parallel": 2}

    def check(self) -> None:
        """Refuse what cannot be measured: options, too few cores, no Ray."""
        super().check()
        if self.workflows < self.parallel or self.episodes < self.n_envs:
            raise InputError(f"--workflows must be at least --parallel {self.parallel}, and --episodes at least "
                             f"--n-envs {self.n_envs}")  # fmt: skip
        load_ray()
        cores = available_cores()
        if cores < self.parallel:
            raise InputError(f"--parallel {self.parallel} needs as many cores; this process may use {cores}")

    def measure(self, notes: Notes) -> None:
        found: list[dict[int, Any]] = []
        cases = [Case({"parallel": k}, partial(self._round, k, found)) for k in (1, self.parallel)]
        for one, several in in_turns([cases], self.rounds, notes):
            notes.figures.append(several.over(one, 1))
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
            first_version=RewardProtocol(min_episodes=0, fixed_episodes=True), classes=False, name=name, runs=runs,
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
