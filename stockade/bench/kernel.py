"""`stockade bench kernel`: how fast the world is, alone and against the slow model, what it weighs, how it starts.

Cases that are compared run in turns, round by round, so that a busy machine hits all alike; the table shows the median
of the rounds and their range.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numba
import numpy as np
from tqdm import tqdm

from stockade.bench.command import BenchCommand, Notes, announce, require_counts
from stockade.bench.figures import Figure, figure_of, ratios
from stockade.cage2 import kernel
from stockade.cage2.actions import N_ACTIONS
from stockade.cage2.batch import Batch
from stockade.cage2.config import RED_ALIASES, WorldConfig
from stockade.cage2.env import CAGE2Env
from stockade.cage2.observe import observation_words
from stockade.cage2.seeds import read_seeds
from stockade.cage2.state import OBS_SIZE, WORLD, ledger_dtype
from stockade.errors import InputError
from stockade.vector.native import NativeVectorEnv

HORIZON = 100
_START = """
import time; begin = time.perf_counter()
import stockade
envs = stockade.make_vec(8); envs.reset(seed=0); envs.step(envs.action_space.sample())
print(time.perf_counter() - begin)
"""


class Runner:
    """Steps a batch with actions out of a prepared array; one call is one round of `steps` steps."""

    def __init__(self, config: WorldConfig, n: int, threads: int, steps: int) -> None:
        """Make the batch and run every entry point once, so that nothing is compiled while the clock runs."""
        self.n, self.steps = n, steps
        self.actions = np.random.default_rng(0).integers(0, N_ACTIONS, (steps, n))
        self.slices = [(n * k // threads, n * (k + 1) // threads) for k in range(threads)]
        self.batch = Batch(config, n, threads=1)
        self.out = np.zeros((n, OBS_SIZE), np.uint8), np.zeros(n), np.zeros(n, np.bool_)
        self.batch.reset(self.out[0], read_seeds(0, n))
        self._run(0, n, 1)

    def _run(self, begin: int, end: int, steps: int) -> None:
        """Episodes with resets over worlds [begin, end)."""
        obs, *out = self.out
        records, constants = self.batch.records, self.batch.constants
        _play(*records, *constants, self.actions[:steps], observation_words(obs), *out, begin, end)

    def round(self) -> float:
        """Steps a second over all threads."""
        threads = [threading.Thread(target=self._run, args=(*part, self.steps)) for part in self.slices[1:]]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        self._run(*self.slices[0], self.steps)
        for thread in threads:
            thread.join()
        return self.n * self.steps / (time.perf_counter() - begin)


@dataclass(frozen=True)
class KernelBench(BenchCommand):
    """Random actions from a prepared array, 100-step episodes with resets."""

    rounds: int = 7
    """Rounds of each case."""
    n_envs: int = 1024
    """Worlds of a batch."""
    model: Path | None = None
    """Compare with this slow model: a Python file with `Env(red)`, `reset(seed)`, `step(action)`, where red is the
    reference's class name. Default: the one in tests/oracle of a checkout."""

    name: ClassVar[str] = "kernel"
    #: Besides, `quick` leaves out the first start, which compiles for about half a minute.
    quick_settings: ClassVar[dict[str, object]] = {"rounds": 2}

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        require_counts("--n-envs", [self.n_envs])
        if self.model is not None and not self.model.is_file():
            raise InputError(f"--model {self.model}: no such Python file")

    def measure(self, notes: Notes) -> None:
        """Part by part."""
        announce(self.name, 12 if self.quick else 60 + 6 * self.rounds)
        parts = [self._throughput, self._single, self._true_state, self._snapshot, self._scaling, self._start]
        for part in tqdm(parts, desc="bench kernel", unit="part", disable=None):
            notes.figures += part()
        if not any("slow model" in figure.what for figure in notes.figures):
            notes.skip("slow model", "it is in tests/oracle: run this in a checkout to compare with it")

    def _in_turns(self, cases: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
        measured: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(self.rounds):
            for name, case in cases.items():
                measured[name].append(case())
        return measured

    def _throughput(self) -> list[Figure]:
        cases: dict[str, Callable[[], float]] = {}
        steps = 100 if self.quick else 1000
        for red in ("bline", "meander"):
            fast = WorldConfig(red, HORIZON)
            cases[f"{red}, fast, 1 thread"] = Runner(fast, self.n_envs, 1, steps).round
            cases[f"{red}, fast, 2 threads"] = Runner(fast, self.n_envs, 2, steps).round
            reference = WorldConfig(red, HORIZON, chance="cyborg")
            cases[f"{red}, cyborg, 1 thread"] = Runner(reference, self.n_envs, 1, steps // 5).round
            model = slow_model(red, self.model)
            if model is not None:
                cases[f"{red}, slow model"] = model
        measured = self._in_turns(cases)
        figures = [
            figure_of(name, [r / 1e6 for r in rounds], "million steps/s", part="steps", case=name)
            for name, rounds in measured.items()
        ]
        for red in ("bline", "meander"):
            one, two = measured[f"{red}, fast, 1 thread"], measured[f"{red}, fast, 2 threads"]
            figures.append(figure_of(f"{red}, 2 threads to 1", ratios(two, one), "times"))
            if f"{red}, slow model" in measured:
                figures.append(
                    figure_of(f"{red}, fast to slow model", ratios(one, measured[f"{red}, slow model"]), "times")
                )
        return figures

    def _single(self) -> list[Figure]:
        measured = self._in_turns(
            {
                "one environment (Gymnasium Env)": lambda: _env_rate(info=True, episodes=self._few(100)),
                "one environment, info=False": lambda: _env_rate(info=False, episodes=self._few(100)),
            }
        )
        return [figure_of(name, [r / 1e3 for r in rounds], "thousand steps/s") for name, rounds in measured.items()]

    def _few(self, count: int) -> int:
        return count // 20 if self.quick else count

    def _true_state(self) -> list[Figure]:
        envs = NativeVectorEnv(self.n_envs, horizon=HORIZON, threads=1)
        envs.reset(seed=0)
        actions = np.random.default_rng(0).integers(0, N_ACTIONS, self.n_envs)
        measured = self._in_turns(
            {
                "step": lambda: _microseconds(lambda: envs.step(actions)),
                "look": lambda: _microseconds(lambda: envs.true_state().red_access),
            }
        )
        rates = [self.n_envs / microseconds for microseconds in measured["step"]]
        extra = [100 * ratio for ratio in ratios(measured["look"], measured["step"])]
        return [
            figure_of(f"vector environment, n={self.n_envs}", rates, "million steps/s"),
            figure_of("true_state() each step adds", extra, "%"),
        ]

    def _snapshot(self) -> list[Figure]:
        figures = []
        for chance in ("fast", "cyborg"):
            envs = NativeVectorEnv(16, chance=chance)
            envs.reset(seed=0)
            saved = envs.snapshot(3)
            batch = envs._batch
            rounds = self._in_turns(
                {
                    "take": functools.partial(_microseconds, functools.partial(envs.snapshot, 3)),
                    "put": functools.partial(_microseconds, functools.partial(batch.restore, saved, 3)),
                }
            )
            figures.append(
                figure_of(f"snapshot of one world, {chance}", rounds["take"], "microseconds", part="snapshot")
            )
            figures.append(figure_of(f"restore of one world, {chance}", rounds["put"], "microseconds", part="snapshot"))
        for chance, size in (("fast", WORLD.itemsize), ("cyborg", WORLD.itemsize + ledger_dtype(HORIZON).itemsize)):
            figures.append(
                figure_of(f"memory of a world, {chance}", [float(size)], "bytes", part="memory", chance=chance)
            )
        return figures

    def _scaling(self) -> list[Figure]:
        figures = []
        for n in (1_000, 10_000, 100_000) if self.quick else (1_000, 10_000, 100_000, 1_000_000):
            runner = Runner(WorldConfig("bline", HORIZON), n, 1, max(5, 1_000_000 // n))
            rounds = [1e9 / runner.round() for _ in range(3)]
            figures.append(figure_of(f"a step of a world, n={n:,}", rounds, "nanoseconds", part="scaling", n_envs=n))
        return figures

    def _start(self) -> list[Figure]:
        figures = [
            figure_of(
                "start with compiled code cached",
                [_start_seconds(None) for _ in range(1 if self.quick else 3)],
                "seconds",
                part="start",
            )
        ]
        if not self.quick:
            with tempfile.TemporaryDirectory() as empty:
                figures.append(figure_of("first start, compiling", [_start_seconds(empty)], "seconds", part="start"))
        return figures


@numba.njit(nogil=True)
def _play(worlds, ledgers, initial, settings, actions, obs, rewards, over, begin, end):  # type: ignore[no-untyped-def]
    """All steps in one call: threads that came back to Python after each step would wait for its lock."""
    for t in range(len(actions)):
        kernel.step_batch(worlds, ledgers, initial, settings, actions[t], obs, rewards, over, begin, end, True)


def slow_model(red: str, path: Path | None) -> Callable[[], float] | None:
    """Rate of a readable Python model of the same rules, if there is one."""
    if path is not None:
        spec = importlib.util.spec_from_file_location("slow_model", path)
        if spec is None or spec.loader is None:
            raise InputError(f"--model {path}: this is no Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        model: Any = module.Env(next(alias for alias, name in RED_ALIASES.items() if name == red))
    else:
        try:
            model = importlib.import_module("tests.oracle.model").ReferenceModel(red)
        except ImportError:
            return None
    actions = np.random.default_rng(0).integers(0, N_ACTIONS, HORIZON).tolist()

    def rate() -> float:
        begin = time.perf_counter()
        for episode in range(20):
            model.reset(episode)
            for action in actions:
                model.step(action)
        return 20 * HORIZON / (time.perf_counter() - begin)

    return rate


def _env_rate(info: bool, episodes: int) -> float:
    env = CAGE2Env("bline", HORIZON, info=info)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, N_ACTIONS, HORIZON).tolist()
    begin = time.perf_counter()
    for _ in range(episodes):
        env.reset()
        for action in actions:
            env.step(action)
    return episodes * HORIZON / (time.perf_counter() - begin)


def _microseconds(call: Callable[[], Any], times: int = 2000) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times * 1e6


def _start_seconds(cache: str | None) -> float:
    environment = dict(os.environ)
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    answer = subprocess.run([sys.executable, "-c", _START], env=environment, capture_output=True, text=True, check=True)
    return float(answer.stdout)
