"""Measures backend `cuda` on a machine with a GPU, after it has shown that it computes what the CPU computes.

    python benchmarks/gpu.py

the same seeds and actions on `native` and `cuda` -> equal bits, or an error -> steps/s for 1 thousand to 4 million
worlds -> gpu.json in benchmarks/results, in the format of all results.
"""

from __future__ import annotations

import itertools
import shlex
import sys
import time
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

REDS = ("bline", "meander", "mix", "meander>bline@20|bline-detour+noise:0.1|meander-stealthy")
ROUNDS_OF_ACTIONS = 16  # Arrays of random actions, which steps take in turn


@dataclass(frozen=True)
class Gpu:
    """Check that a GPU gives the same bits as the CPU, then measure steps per second."""

    n_envs: tuple[int, ...] = tuple(2**k for k in range(10, 23, 2))  # Worlds at once: 1,024 to 4,194,304.
    obs: tuple[str, ...] = ("bits", "memory")  # What blue sees.
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
        for n, obs in itertools.product(self.n_envs, self.obs):
            for where in ("device", "host"):
                rounds = tuple(self.rate(n, obs, where) for _ in range(self.rounds))
                figure = Figure({"results": where, "obs": obs, "n_envs": n}, "steps/s", rounds)
                print(f"{figure.name}: {figure.text} {figure.unit}", flush=True)
                result.figures.append(figure)
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

    def rate(self, n: int, obs: str, where: str) -> float:
        """Steps per second of n worlds, with results that stay on the device or come to the host."""
        actions = np.random.default_rng(0).integers(N_ACTIONS, size=(ROUNDS_OF_ACTIONS, n))
        with stockade.make_vec(n, "cuda", obs=obs, red="mix", copy=False) as envs:
            envs.reset(seed=0)
            on_device = where == "device"
            given = [cuda.to_device(row) for row in actions] if on_device else list(actions)
            step = envs.step_device if on_device else envs.step
            for row in given[:2]:  # compiles
                step(row)
            cuda.synchronize()
            steps, begin = 0, time.perf_counter()
            while (taken := time.perf_counter() - begin) < self.seconds:
                for row in given:
                    step(row)
                cuda.synchronize()
                steps += len(given) * n
        return steps / taken


def _device() -> str:
    if SIMULATED:
        return "none, Numba's simulator"
    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


if __name__ == "__main__":
    sys.exit(run_script(Gpu, __doc__))
