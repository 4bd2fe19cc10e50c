"""What running many environments costs, for each backend and its peers: overhead, efficiency, stragglers, start.

python -m stockade.bench.vector_overhead [--quick] [--json FILE]

All that is compared runs in turns in one process, on the same synthetic environment, with actions chosen beforehand;
tables show the median of the rounds and their range. Efficiency is steps/s over (cores / time of a step): 1 would mean
that every core did nothing but step. Steps burn CPU time, so that more processes than cores gain nothing by it, and
other programs on the machine lower the figures.
"""

from __future__ import annotations

import importlib.util
import json as jsonlib
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import stockade
from stockade.bench.stamp import describe, machine_stamp
from stockade.vector import AsyncPoolVectorEnv, SyntheticEnv, available_cores, make_vector

Factory = Callable[[], gymnasium.Env[Any, Any]]
Turn = Callable[[], int]
"""One call: some environment steps; returns how many."""
Case = Callable[[], AbstractContextManager[Turn]]
"""Opens one way to run environments."""

REFERENCE_STEP = 0.0022
"""Seconds: what a step of the reference simulator takes."""


@dataclass(frozen=True)
class Figure:
    """One line of a result: median and range of the rounds."""

    part: str
    what: str
    value: float
    unit: str
    low: float
    high: float

    def __str__(self) -> str:
        """For the table."""
        form = ",.0f" if self.value >= 1000 else ".3g"
        return f"{self.what:<44} {self.value:>12{form}} {self.unit:<14} ({self.low:{form}} to {self.high:{form}})"


class FreeEnv(gymnasium.Env[np.ndarray, np.int64]):
    """An environment that costs nothing: 52 floats that never change, episodes of 100 steps."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (52,), np.float32)
    action_space = gymnasium.spaces.Discrete(145)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        self._time = 0
        self._observation = np.zeros(52, np.float32)
        return self._observation, {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Count."""
        self._time += 1
        return self._observation, 0.0, False, self._time >= 100, {}


# Ways to run environments: each opens, and yields what one turn is


@contextmanager
def _ours(backend: str, factory: Factory, n: int, **options: Any) -> Iterator[Turn]:
    with make_vector(backend, factory, n, **options) as envs:
        actions = envs.action_space.sample()
        if isinstance(envs, AsyncPoolVectorEnv):
            envs.async_reset(seed=0)
            yield partial(_receive_and_send, envs, actions)
        else:
            envs.reset(seed=0)
            yield partial(_step, envs, actions, n)


@contextmanager
def _gymnasium(kind: str, factory: Factory, n: int) -> Iterator[Turn]:
    envs: Any = SyncVectorEnv([factory] * n) if kind == "sync" else AsyncVectorEnv([factory] * n, context="fork")
    envs.reset(seed=0)
    try:
        yield partial(_step, envs, envs.action_space.sample(), n)
    finally:
        envs.close()


@contextmanager
def _stable_baselines(kind: str, factory: Factory, n: int) -> Iterator[Turn]:
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    envs = DummyVecEnv([factory] * n) if kind == "dummy" else SubprocVecEnv([factory] * n, start_method="fork")
    envs.seed(0)
    envs.reset()
    try:
        yield partial(_step, envs, np.zeros(n, np.int64), n)
    finally:
        envs.close()


@contextmanager
def _ceiling(factory: Factory, n: int) -> Iterator[Turn]:
    """No vector environment at all: a process a core steps its share a few times over, and only then reports."""
    cores, times = available_cores(), 20
    shares = [(factory, n // cores, times)] * cores
    with multiprocessing.get_context("fork").Pool(cores) as pool:
        pool.starmap(_step_alone, shares, chunksize=1)
        yield lambda: sum(pool.starmap(_step_alone, shares, chunksize=1))


_alone: dict[Factory, gymnasium.Env[Any, Any]] = {}
"""Of a process of `_ceiling`: its environment."""


def _step_alone(factory: Factory, n: int, times: int) -> int:
    if not _alone:
        _alone[factory] = factory()
    environment = next(iter(_alone.values()))
    environment.reset(seed=0)
    for _ in range(n * times):
        environment.step(np.int64(0))
    return n * times


def _step(envs: Any, actions: Any, n: int) -> int:
    envs.step(actions)
    return n


def _receive_and_send(envs: AsyncPoolVectorEnv, actions: Any) -> int:
    *_, infos = envs.recv()
    env_id = infos["env_id"]
    envs.send(actions[env_id], env_id)
    return len(env_id)


def _peers(factory: Factory, n: int, processes: bool) -> dict[str, Case]:
    """Gymnasium's and Stable-Baselines3's vector environments."""
    found: dict[str, Case] = {"Gymnasium SyncVectorEnv": partial(_gymnasium, "sync", factory, n)}
    if processes:
        found["Gymnasium AsyncVectorEnv"] = partial(_gymnasium, "async", factory, n)
    if importlib.util.find_spec("stable_baselines3") is not None:
        found["Stable-Baselines3 DummyVecEnv"] = partial(_stable_baselines, "dummy", factory, n)
        if processes:
            found["Stable-Baselines3 SubprocVecEnv"] = partial(_stable_baselines, "subproc", factory, n)
    return found


@dataclass(frozen=True)
class VectorBench:
    """What running many environments costs, for each backend and its peers."""

    rounds: int = 5
    """Rounds of each case."""
    seconds: float = 1.0
    """Length of a round."""
    quick: bool = False
    """Short rounds, and no runs with 200 environments."""
    only: tuple[str, ...] = ()
    """Only these parts: overhead, efficiency, stragglers, true_states, start."""
    json: Path | None = None
    """Write the figures to this file too."""

    def run(self) -> int:
        """Measure, print, write."""
        stamp = machine_stamp()
        print(describe(stamp))
        if importlib.util.find_spec("stable_baselines3") is None:
            print("Stable-Baselines3 is not installed and left out: pip install stable-baselines3")
        figures: list[Figure] = []
        parts = (self._overhead, self._efficiency, self._stragglers, self._true_states, self._start)
        for part in parts:
            if self.only and part.__name__.strip("_") not in self.only:
                continue
            for figure in part():
                if not figures or figures[-1].part != figure.part:
                    print(f"\n{figure.part}")
                figures.append(figure)
                print(figure, flush=True)
        if self.json is not None:
            content = {"bench": "vector_overhead", "stamp": stamp, "figures": [asdict(f) for f in figures]}
            self.json.write_text(jsonlib.dumps(content, indent=1) + "\n")
        return 0

    def _overhead(self) -> Iterator[Figure]:
        """Steps a second of an environment that costs nothing: all time is overhead."""
        factory = FreeEnv
        for n in (16, 64) if self.quick else (16, 64, 200):
            cases: dict[str, Case] = {
                **_peers(factory, n, processes=True),
                "serial": partial(_ours, "serial", factory, n),
                "pipes": partial(_ours, "pipes", factory, n),
                "shared_memory": partial(_ours, "shared_memory", factory, n),
                "async, batch n/2": partial(_ours, "async", factory, n),
            }
            if n <= 64:
                cases["pipes, workers=n"] = partial(_ours, "pipes", factory, n, workers=n)
                cases["shared_memory, workers=n"] = partial(_ours, "shared_memory", factory, n, workers=n)
            part = f"Overhead: an environment that costs nothing, n={n}"
            rates = self._in_turns(cases)
            yield from (_figure(part, name, rounds, "steps/s") for name, rounds in rates.items())
            yield from self._ratios(part, rates)

    def _ratios(self, part: str, rates: dict[str, list[float]]) -> Iterator[Figure]:
        slow = ("Gymnasium AsyncVectorEnv", "Stable-Baselines3 SubprocVecEnv")
        local = ("Gymnasium SyncVectorEnv", "Stable-Baselines3 DummyVecEnv")
        pairs = [("shared_memory", slow), ("shared_memory, workers=n", slow), ("serial", local)]
        for ours, others in pairs:
            for other in others:
                if ours in rates and other in rates:
                    times = [a / b for a, b in zip(rates[ours], rates[other], strict=True)]
                    yield _figure(part, f"{ours} / {other.split()[-1]}", times, "times")

    def _efficiency(self) -> Iterator[Figure]:
        """Steps of equal cost."""
        n = 64
        for seconds, name in ((100e-6, "100 microseconds"), (REFERENCE_STEP, "2.2 ms")):
            factory = partial(SyntheticEnv, step_seconds=seconds, fixed_length=True)
            cases: dict[str, Case] = {
                "processes without a vector environment": partial(_ceiling, factory, n),
                **_peers(factory, n, processes=True),
                "serial": partial(_ours, "serial", factory, n),
                "pipes": partial(_ours, "pipes", factory, n),
                "shared_memory": partial(_ours, "shared_memory", factory, n),
                "async, batch n/2": partial(_ours, "async", factory, n),
            }
            yield from self._efficiencies(f"Efficiency: steps of {name}, n={n}", cases, seconds)

    def _stragglers(self) -> Iterator[Figure]:
        """Steps whose cost varies: everybody but `async` waits for the slowest."""
        n = 64
        factory = partial(SyntheticEnv, step_seconds=REFERENCE_STEP, sigma=1.0, fixed_length=True)
        cases: dict[str, Case] = {
            **_peers(factory, n, processes=True),
            "shared_memory": partial(_ours, "shared_memory", factory, n),
            "async, batch n/2": partial(_ours, "async", factory, n, batch_size=n // 2),
            "async, batch n/4": partial(_ours, "async", factory, n, batch_size=n // 4),
        }
        part = "Efficiency: lognormal steps, mean 2.2 ms, sigma 1, n=64"
        # In a second the mean of the steps drawn is still 4 % off, in five 2 %.
        yield from self._efficiencies(part, cases, REFERENCE_STEP, longer=5)

    def _efficiencies(self, part: str, cases: dict[str, Case], seconds: float, longer: int = 1) -> Iterator[Figure]:
        limit = available_cores() / seconds
        for name, rounds in self._in_turns(cases, longer).items():
            yield _figure(part, name, [rate / limit for rate in rounds], "of the cores")

    def _true_states(self) -> Iterator[Figure]:
        """What true states every step cost the built-in world."""
        world = partial(stockade.make, info=False)
        plain, looking = "shared_memory", "shared_memory, true states every step"
        rates = self._in_turns(
            {
                plain: partial(_ours, "shared_memory", world, 64),
                looking: partial(_ours, "shared_memory", world, 64, true_states="every_step"),
            },
            more=4,
        )
        part = "True states: the built-in world, n=64"
        yield from (_figure(part, name, rounds, "steps/s") for name, rounds in rates.items())
        costs = [100 * (1 - b / a) for a, b in zip(rates[plain], rates[looking], strict=True)]
        yield _figure(part, "cost of true states", costs, "%")

    def _start(self) -> Iterator[Figure]:
        """Seconds to start and to close many workers."""
        n = 40 if self.quick else 200
        starts, closes = [], []
        for _ in range(3):
            begin = time.perf_counter()
            envs = make_vector("shared_memory", SyntheticEnv, n, workers=n)
            starts.append(time.perf_counter() - begin)
            envs.reset(seed=0)
            begin = time.perf_counter()
            envs.close()
            closes.append(time.perf_counter() - begin)
        yield _figure(f"{n} workers, forkserver", "start", starts, "s")
        yield _figure(f"{n} workers, forkserver", "close", closes, "s")

    def _in_turns(self, cases: dict[str, Case], longer: int = 1, more: int = 1) -> dict[str, list[float]]:
        """Steps a second of each case in each round: in turns, so that a busy minute hits all alike.

        Only one is open at a time: a hundred idle processes of the others cost a few percent of every core.
        """
        seconds = longer * (self.seconds / 5 if self.quick else self.seconds)
        rates: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range((3 if self.quick else self.rounds) * more):
            for name, open_case in cases.items():
                with open_case() as turn:
                    _rate(turn, seconds / 5)
                    rates[name].append(_rate(turn, seconds))
        return rates


def _rate(turn: Turn, seconds: float) -> float:
    """Steps a second, after a few turns that use up what `async` has ready from before."""
    for _ in range(6):
        turn()
    begin = time.perf_counter()
    steps, calls = 0, 0
    while calls < 3 or time.perf_counter() - begin < seconds:
        steps += turn()
        calls += 1
    return steps / (time.perf_counter() - begin)


def _figure(part: str, what: str, rounds: Iterable[float], unit: str) -> Figure:
    values = list(rounds)
    return Figure(part, what, statistics.median(values), unit, min(values), max(values))


if __name__ == "__main__":
    raise SystemExit(tyro.cli(VectorBench).run())
