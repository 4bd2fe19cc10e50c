"""Measures backend `cuda` on a machine with a GPU, after it has shown that it computes what the CPU computes.

    python benchmarks/gpu.py

the same seeds and actions on `native` and `cuda` -> equal bits, or an error -> steps/s for 1 thousand to 4 million
worlds, then of training -> gpu.json in benchmarks/results, in the format of all results.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from common import run_script, write_result
from numba import cuda

import stockade
from stockade.bench.result import RESULTS, Figure, Result, machine_stamp
from stockade.cage2 import N_ACTIONS
from stockade.cage2.cuda import SIMULATED
from stockade.errors import InputError, UnsupportedFeatureError
from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.train import make_learner

REDS = ("bline", "meander", "mix", "meander>bline@20|bline-detour+noise:0.1|meander-stealthy")
ROUNDS_OF_ACTIONS = 16  # Arrays of random actions, which steps take in turn


@dataclass(frozen=True)
class Gpu:
    """Check that a GPU gives the same bits as the CPU, then measure steps per second."""

    n_envs: tuple[int, ...] = tuple(2**k for k in range(10, 23, 2))  # Worlds at once: 1,024 to 4,194,304.
    obs: tuple[str, ...] = ("bits", "memory")  # What blue sees.
    train_envs: tuple[int, ...] = (1024, 4096, 16384, 65536)  # Worlds at once in `stockade train --device cuda`.
    train_steps: int = 100  # Steps of each of them between two updates.
    seconds: float = 1.0  # Per case and round.
    rounds: int = 5  # Rounds, of which the median counts.
    check_envs: int = 4096  # Worlds that are compared with the CPU's, in each of 16 settings.
    check_steps: int = 120  # Steps that are compared.
    name: str = "gpu"  # Of the result: NAME.json.

    def run(self) -> int:
        """The check, then the table."""
        try:
            for red, rules, obs in itertools.product(REDS, ("current", "leaderboard"), ("bits", "memory")):
                self.check(red=red, rules=rules, obs=obs, green="active", horizon=50)
        except UnsupportedFeatureError as error:
            raise InputError(str(error)) from error
        compared = self.check_envs * self.check_steps
        print(f"equal bits on CPU and GPU: {compared:,} steps in each of {4 * len(REDS)} settings", flush=True)
        begin, stamp = time.perf_counter(), {**machine_stamp(), "gpu": _device()}
        command = shlex.join(["python", "benchmarks/gpu.py", *sys.argv[1:]])
        result = Result(self.name, command, stamp, asdict(self))
        cases = {"results on the GPU": self.rate_there, "on the host": self.rate_here}
        for n, obs, (case, rate) in itertools.product(self.n_envs, self.obs, cases.items()):
            with stockade.make_vec(n, "cuda", obs=obs, red="mix", copy=False) as envs:
                self.note(result, {"case": case, "obs": obs, "n_envs": n}, lambda: rate(envs))  # noqa: B023
        for n in self.train_envs:
            learner = self.learner(n)
            with contextlib.closing(learner):
                self.note(result, {"case": "training", "obs": "memory", "n_envs": n}, lambda: self.learned(learner))  # noqa: B023
        result.seconds = time.perf_counter() - begin
        RESULTS.mkdir(parents=True, exist_ok=True)
        write_result(result, RESULTS / f"{self.name}.json")
        return 0

    def check(self, **world: Any) -> None:
        """Play the same on both; an error names the first step that differs."""
        rng = np.random.default_rng(1)
        with (
            stockade.make_vec(self.check_envs, "native", **world) as native,
            stockade.make_vec(self.check_envs, "cuda", **world) as device,
        ):
            if not np.array_equal(native.reset(seed=3)[0], device.reset(seed=3)[0]):
                raise InputError(f"the GPU's first observations are not the CPU's: {world}")
            for step in range(self.check_steps):
                actions = rng.integers(N_ACTIONS, size=self.check_envs)
                expected, given = native.step(actions)[:4], device.step_device(actions)
                if not all(np.array_equal(e, g.copy_to_host()) for e, g in zip(expected, given, strict=True)):
                    raise InputError(f"step {step} of the GPU is not the CPU's: {world}")
            if native.snapshot() != device.snapshot():
                raise InputError(f"the worlds on the GPU are not the CPU's after {self.check_steps} steps: {world}")

    def note(self, result: Result, tags: dict[str, Any], rate: Callable[[], float]) -> None:
        """Measure a few rounds."""
        rate()  # the first one warms up
        figure = Figure(tags, "steps/s", tuple(rate() for _ in range(self.rounds)))
        print(f"{figure.name}: {figure.text} {figure.unit}", flush=True)
        result.figures.append(figure)

    def rate_there(self, envs: Any) -> float:
        """Steps per second with actions and results that stay on the device."""
        return self.rate(envs, envs.step_device, [cuda.to_device(row) for row in _actions(envs.num_envs)])

    def rate_here(self, envs: Any) -> float:
        """Steps per second with actions of the host, to which results are copied."""
        return self.rate(envs, envs.step, list(_actions(envs.num_envs)))

    def rate(self, envs: Any, step: Callable[[Any], Any], actions: list[Any]) -> float:
        """Steps per second."""
        envs.reset(seed=0)
        steps, begin, taken = 0, time.perf_counter(), 0.0
        while taken < self.seconds:
            for row in actions:
                step(row)
            cuda.synchronize()
            steps, taken = steps + len(actions) * envs.num_envs, time.perf_counter() - begin
        return steps / taken

    def learner(self, n: int) -> Any:
        """With ten minibatches an update, as by default."""
        ppo = PPOConfig(update_steps=self.train_steps, minibatch_size=max(2, n * self.train_steps // 10))
        return make_learner(TrainConfig(red="mix", n_envs=n, device="cuda", ppo=ppo))

    def learned(self, learner: Any) -> float:
        """Steps per second of rollouts and updates."""
        steps, begin, taken = learner.steps, time.perf_counter(), 0.0
        while taken < self.seconds:
            learner.iterate(0.0)  # ends with statistics on the host, so it has waited for the device
            taken = time.perf_counter() - begin
        return (learner.steps - steps) / taken


def _actions(n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(N_ACTIONS, size=(ROUNDS_OF_ACTIONS, n))


def _device() -> str:
    if SIMULATED:
        return "none, Numba's simulator"
    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


if __name__ == "__main__":
    sys.exit(run_script(Gpu, __doc__))
