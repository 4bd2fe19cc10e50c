"""`stockade bench kernel`: how fast the world is, alone and against the slow model, what it weighs, how it starts.

Random actions from a prepared array, 100-step episodes with resets.
"""

import importlib
import os
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np

import stockade
from stockade.bench.footprint import WORLD_BYTES
from stockade.bench.result import Figure, Result, find
from stockade.bench.runner import BenchCommand, Case, Sample, in_turns, option
from stockade.bench.worlds import HORIZON
from stockade.cage2 import kernel
from stockade.cage2.actions import N_ACTIONS
from stockade.cage2.batch import Batch
from stockade.cage2.config import RED_ALIASES, WorldConfig
from stockade.cage2.seeds import read_seeds
from stockade.cage2.state import OBS_SIZE
from stockade.errors import InputError

_START = """
import time; begin = time.perf_counter()
import stockade
envs = stockade.make_vec(8); envs.reset(seed=0); envs.step(envs.action_space.sample())
print(time.perf_counter() - begin)
"""


@dataclass(frozen=True)
class KernelBench(BenchCommand):
    """The world's speed, memory and start."""

    rounds: int = option(7, quick=2)  # Rounds of each case; quick also leaves out the first start, which compiles.
    n_envs: int = 1024  # Worlds of a batch.
    model: Path | None = None
    """Compare with this slow model: a Python file with `Env(red)`, `reset(seed)`, `step(action)`, where red is the
    reference's class name. Default: the one in tests/oracle of a checkout."""

    name = "kernel"

    def check(self) -> None:
        super().check()
        if self.model is not None and not self.model.is_file():
            raise InputError(f"--model {self.model}: no such Python file")

    def measure(self, result: Result) -> None:
        (group,) = in_turns([list(self._throughput(result))], self.rounds, result)
        for red in ("bline", "meander"):
            (one,), (two,) = (find(group, case=f"{red}, fast, {k}") for k in ("1 thread", "2 threads"))
            slow = find(group, case=f"{red}, slow model")
            result.figures.append(two.over(one, case=f"{red}, 2 threads to 1"))
            result.figures += [one.over(model, case=f"{red}, fast to slow model") for model in slow]
        in_turns([self._environments(), list(self._snapshots())], self.rounds, result)
        for chance, size in WORLD_BYTES.items():
            result.figures.append(Figure({"case": f"memory of a world, {chance}"}, "bytes", (float(size),)))
        in_turns([[self._scaling(10**k)] for k in range(3, 6 if self.quick else 7)], 3, result)
        start = _case("start with compiled code cached", "seconds", _start_seconds)
        in_turns([[start]], 1 if self.quick else 3, result)
        if not self.quick:
            with tempfile.TemporaryDirectory() as empty:
                start = _case("first start, compiling", "seconds", partial(_start_seconds, NUMBA_CACHE_DIR=empty))
                in_turns([[start]], 1, result)

    def _throughput(self, result: Result) -> Iterator[Case]:
        steps = 100 if self.quick else 1000
        for red in ("bline", "meander"):
            for chance, threads, length in (("fast", 1, steps), ("fast", 2, steps), ("cyborg", 1, steps // 5)):
                config = WorldConfig(red, HORIZON, chance=chance)
                name = f"{red}, {chance}, {threads} thread{'s' * (threads > 1)}"
                yield _case(name, "million steps/s", batch_rate(config, self.n_envs, threads, length), 1e-6)
            if (model := slow_model(red, self.model)) is not None:
                yield _case(f"{red}, slow model", "million steps/s", model, 1e-6)
            else:
                result.skip("slow model", "it is in tests/oracle: run this in a checkout to compare with it")

    def _environments(self) -> list[Case]:
        """What a user's loop gets: one environment, and the vector environment with true states."""
        envs: Any = stockade.make_vec(self.n_envs, threads=1)
        envs.reset(seed=0)
        actions, episodes = envs.action_space.sample(), 5 if self.quick else 100
        step = partial(_microseconds, lambda: envs.step(actions))
        truth = partial(_microseconds, lambda: envs.true_state().red_access)
        return [
            _case("one environment (Gymnasium Env)", "thousand steps/s", partial(_env_rate, True, episodes), 1e-3),
            _case("one environment, info=False", "thousand steps/s", partial(_env_rate, False, episodes), 1e-3),
            _case(f"vector environment, n={self.n_envs}", "million steps/s", lambda: self.n_envs / step()),
            _case("true_state() each step adds", "%", lambda: 100 * truth() / step()),
        ]

    def _snapshots(self) -> Iterator[Case]:
        for chance in ("fast", "cyborg"):
            envs: Any = stockade.make_vec(16, chance=chance)
            envs.reset(seed=0)
            calls = {"snapshot": partial(envs.snapshot, 3), "restore": partial(envs.restore, envs.snapshot(3), 3)}
            for name, call in calls.items():
                yield _case(f"{name} of one world, {chance}", "microseconds", partial(_microseconds, call))

    def _scaling(self, n: int) -> Case:
        rate = batch_rate(WorldConfig("bline", HORIZON), n, 1, max(5, 1_000_000 // n))
        return _case(f"a step of a world, n={n:,}", "nanoseconds", lambda: 1e9 / rate())


def _case(name: str, unit: str, call: Callable[[], float], factor: float = 1.0) -> Case:
    return Case({"case": name}, lambda: [Sample(unit, factor * call())])


def batch_rate(config: WorldConfig, n: int, threads: int, steps: int) -> Callable[[], float]:
    """A call that plays so many steps of `n` worlds, with resets, and gives steps per second over all threads."""
    actions = np.random.default_rng(0).integers(0, N_ACTIONS, (steps, n))
    batch = Batch(config, n, threads=1)
    obs, rewards, over = np.zeros((n, OBS_SIZE), np.uint8), np.zeros(n), np.zeros(n, np.bool_)
    batch.reset(obs, read_seeds(0, n))

    def play(part: int, parts: int, steps: int = steps) -> None:
        records, words = (*batch.records, *batch.constants), obs.view(np.int32)
        _play(*records, actions[:steps], words, rewards, over, n * part // parts, n * (part + 1) // parts)

    def rate() -> float:
        begin = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            others = pool.map(play, range(1, threads), [threads] * threads)
            play(0, threads)
            list(others)
        return n * steps / (time.perf_counter() - begin)

    play(0, 1, steps=1)  # nothing is compiled while the clock runs
    return rate


@numba.njit(nogil=True)
def _play(worlds, ledgers, initial, settings, actions, obs, rewards, over, begin, end):  # type: ignore[no-untyped-def]
    """All steps in one call: threads that came back to Python after each step would wait for its lock."""
    for t in range(len(actions)):
        kernel.step_batch(worlds, ledgers, initial, settings, actions[t], obs, rewards, over, True, begin, end)


def slow_model(red: str, path: Path | None) -> Callable[[], float] | None:
    """Steps per second of a readable Python model of the same rules, if there is one."""
    if path is not None:
        alias = next(alias for alias, name in RED_ALIASES.items() if name == red)
        model: Any = runpy.run_path(str(path))["Env"](alias)
    else:
        try:
            model = importlib.import_module("tests.oracle.model").ReferenceModel(red)
        except ImportError:
            return None
    return partial(_rate, model, model.reset, 20)


def _env_rate(info: bool, episodes: int) -> float:
    env = stockade.make("bline", HORIZON, info=info)
    env.reset(seed=0)
    return _rate(env, lambda _: env.reset(), episodes)


def _rate(env: Any, reset: Callable[[int], Any], episodes: int) -> float:
    """Steps per second of one environment, resets included."""
    actions = np.random.default_rng(0).integers(0, N_ACTIONS, HORIZON).tolist()
    begin = time.perf_counter()
    for episode in range(episodes):
        reset(episode)
        for action in actions:
            env.step(action)
    return episodes * HORIZON / (time.perf_counter() - begin)


def _microseconds(call: Callable[[], Any], times: int = 2000) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - begin) / times * 1e6


def _start_seconds(**environment: str) -> float:
    command, variables = [sys.executable, "-c", _START], {**os.environ, **environment}
    return float(subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout)
