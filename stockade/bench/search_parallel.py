"""`stockade bench search`: workflows a minute of the search on Ray, two at a time against one at a time, a core each.

cores -> a Ray held to them -> a short search that wakes its workers -> the timed search -> the next number of cores

Every case trains the same workflows for the same number of episodes with the same results, which is checked. Ray and
its workers are started, and have imported Torch, before the clock runs: a search of hours does not notice it.
"""

from __future__ import annotations

import contextlib
import io
import json as jsonlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tqdm import tqdm

from stockade.bench.command import BenchCommand, Notes, announce, require_counts
from stockade.bench.figures import figure_of, ratios
from stockade.cores import available_cores
from stockade.errors import InputError
from stockade.vector.ray.cluster import Connection, RayConfig, load_ray
from stockade.workflow.config import SearchConfig

_START_SECONDS, _EPISODES_A_SECOND = 15.0, 250.0


@dataclass(frozen=True)
class SearchParallelBench(BenchCommand):
    """Searches on Ray, one core a workflow: --parallel 2 against --parallel 1 held to one core; without Ray's start."""

    parallel: int = 2
    """Workflows at once, and cores, of the case that is compared with one at a time."""
    workflows: int = 6
    """Trainings of a search; best a multiple of --parallel, or cores are idle at the end."""
    episodes: int = 3000
    """Of each training."""
    n_envs: int = 200
    """Environments of each training."""
    max_steps: int = 100
    """Steps of an episode."""

    name: ClassVar[str] = "search"
    quick_settings: ClassVar[dict[str, object]] = {"rounds": 1, "workflows": 2, "episodes": 400}

    def check(self) -> None:
        """Refuse what cannot be measured: options, too few cores, no Ray."""
        super().check()
        require_counts("--parallel", [self.parallel], least=2)
        require_counts("--workflows", [self.workflows], least=self.parallel)
        require_counts("--episodes", [self.episodes], least=self.n_envs)
        load_ray()
        if available_cores() < self.parallel:
            raise InputError(
                f"--parallel {self.parallel} needs as many cores; this process may use {available_cores()}"
            )

    def measure(self, notes: Notes) -> None:
        """Both cases in turns."""
        work = self.workflows * self.episodes * self.max_steps / 100 / _EPISODES_A_SECOND
        announce(self.name, self.rounds * (2 * _START_SECONDS + work * (1 + 1 / self.parallel)))
        cases = (1, self.parallel)
        rates: dict[int, list[float]] = {case: [] for case in cases}
        found: list[dict[int, Any]] = []
        with tqdm(total=self.rounds * len(cases), desc="bench search", unit="search", disable=None) as progress:
            for _ in range(self.rounds):
                for case in cases:
                    seconds, results = self._timed_search(case)
                    rates[case].append(60 * self.workflows / seconds)
                    found.append(results)
                    progress.update()
        if any(results != found[0] for results in found):
            raise RuntimeError("the searches found different values, so their times cannot be compared")
        for case in cases:
            what = f"{case} at a time, {case} core{'s' if case > 1 else ''}"
            notes.figures.append(figure_of(what, rates[case], "workflows/min", parallel=case))
        gain = figure_of(
            f"{self.parallel} at a time to 1",
            ratios(rates[self.parallel], rates[1]),
            "times",
            parallel=self.parallel,
            to=1,
        )
        notes.figures.append(gain)

    def _timed_search(self, parallel: int) -> tuple[float, dict[int, Any]]:
        """Seconds of a search, and the values that it found by number of the training."""
        with _ray_held_to(parallel), tempfile.TemporaryDirectory() as folder:
            self._search(Path(folder), "first", parallel, parallel, self.n_envs)
            begin = time.perf_counter()
            self._search(Path(folder), "timed", parallel, self.workflows, self.episodes)
            seconds = time.perf_counter() - begin
            summary = jsonlib.loads((Path(folder) / "timed" / "summary.json").read_bytes())
        return seconds, {one["number"]: (one["order"], one["value"]) for one in summary["workflows"]}

    def _search(self, runs: Path, name: str, parallel: int, workflows: int, episodes: int) -> None:
        config = SearchConfig(
            engine="ray",
            parallel=parallel,
            n_workflows=workflows,
            n_envs=self.n_envs,
            max_steps=self.max_steps,
            total_episodes=workflows * episodes,
            max_episodes=episodes,
            min_episodes=0,
            fixed_episodes=True,  # so that all searches do the same work, whatever they find
            search="round-robin",
            classes=False,
            name=name,
            runs=runs,
            plots=False,
        )
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = config.run()
        if code:
            raise InputError(f"the search was stopped (exit code {code})")


@contextlib.contextmanager
def _ray_held_to(cores: int) -> Iterator[None]:
    """A Ray of so many CPUs on this machine; where the system can do it, driver and workers share so many cores."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if allowed is not None:
        os.sched_setaffinity(0, sorted(allowed)[:cores])  # processes that are started from here inherit it
    try:
        connection = Connection(RayConfig(workers=cores, address="local"), cores)
        try:
            yield
        finally:
            connection.close()
    finally:
        if allowed is not None:
            os.sched_setaffinity(0, allowed)
