"""The environments that benches run besides the built-in world: with the reference's costs, free, or with a clock."""

import mmap
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import stockade
from stockade.integrations.cyborg import CybORGEnv
from stockade.vector import SyntheticEnv

Factory = Callable[[], gymnasium.Env[Any, Any]]

#: Seconds that the reference simulator needs, measured on CybORG 2.1 against B_line.
REFERENCE_STEP, REFERENCE_RESET, REFERENCE_TRUTH = 0.0022, 0.0165, 0.0013
HORIZON = 100
_GOLDEN = 0.6180339887498949  # multiples of it, without their whole parts, are spread evenly however many there are
#: Columns of a row: seconds of CPU time in step and reset, and in true states; when the last call ended.
STEP_CPU, TRUTH_CPU, END = range(3)
_WIDTH = 4


class ReferenceCost(SyntheticEnv):
    """A synthetic environment whose calls take as many seconds of CPU time as the reference simulator's.

    Episodes have 100 steps, but the first one of environment i, seeded with i, is shorter, such that the resets of many
    are spread evenly: a short measurement has its share of them. A seeded reset, before the clock runs, costs nothing.
    `true_state()` gives a dictionary of dictionaries as the reference does, 13 kB when pickled.
    """

    def __init__(
        self, step: float = REFERENCE_STEP, reset: float = REFERENCE_RESET, truth: float = REFERENCE_TRUTH
    ) -> None:
        super().__init__(step_seconds=step, fixed_length=True, horizon=HORIZON)
        self._later_reset, self._truth_seconds = reset, truth
        self.true_state = self._describe

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._reset_seconds = self._later_reset if seed is None else 0.0
        results = super().reset(seed=seed, options=options)
        if seed is not None:
            self._length = 1 + int(HORIZON * ((0.5 + seed * _GOLDEN) % 1))
        return results

    def _describe(self) -> dict[str, Any]:
        """About what the reference says of its hosts: interface, users, and processes with their connections."""
        begin = time.thread_time()
        state = {f"Host{h}": {
            "Interface": [{"IP Address": f"10.0.{h}.1", "Subnet": f"10.0.{h}.0/28"}],
            "System info": {"Hostname": f"Host{h}", "OSType": "LINUX"},
            "Processes": [
                {"PID": 1000 * h + 17 * p + self._time, "Username": f"user{h}{p}", "Process Name": f"service{h}{p}.exe",
                 "Connections": [{"local_port": 1024 + p, "local_address": f"10.0.{h}.{p}"}]} for p in range(13)],
            "User Info": [{"Username": f"owner{h}", "Groups": [{"GID": h}]}],
            "Sessions": [],
        } for h in range(13)}  # fmt: skip
        self._wait_until(begin + self._truth_seconds)
        return state


class FreeEnv(gymnasium.Env[np.ndarray, np.int64]):
    """An environment that costs nothing: 52 floats that never change, episodes of 100 steps."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (52,), np.float32)
    action_space = gymnasium.spaces.Discrete(145)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._time, self._observation = 0, np.zeros(52, np.float32)
        return self._observation, {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._time += 1
        return self._observation, 0.0, False, self._time >= HORIZON, {}


def fixed_cost(step_us: float, sigma: float = 0.0) -> Factory:
    """Makes environments whose steps take so many microseconds of CPU time, all of them or on average (lognormal)."""
    return partial(SyntheticEnv, step_seconds=step_us / 1e6, sigma=sigma, fixed_length=True)


BUILT_IN: Factory = partial(stockade.make, info=False)  # One world; our backends get it from `make_vec`, as users do
CYBORG: Factory = partial(CybORGEnv, "bline", HORIZON)  # The reference simulator itself
WORLDS: dict[str, Factory] = {"synthetic": ReferenceCost, "built-in": BUILT_IN, "CybORG": CYBORG}
OURS = ("synthetic", "built-in")  # Of these, what needs no other package


def _timed_env(path: Path, factory: Factory) -> gymnasium.Env[Any, Any]:
    """An environment that notes how much CPU time its calls take, and when they ended, in the row of its seed of a file
    that every process maps: reading takes no message and does not disturb what is measured."""
    env: Any = factory()
    with path.open("r+b") as file:
        rows = memoryview(mmap.mmap(file.fileno(), 0)).cast("d")
    row, inner_reset = rows[:_WIDTH], env.reset

    def timed(column: int, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        begin = time.thread_time()
        value = call(*arguments, **options)
        row[column] += time.thread_time() - begin
        row[END] = time.perf_counter()
        return value

    def reset(*, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        nonlocal row
        if seed is not None:
            row = rows[seed * _WIDTH : (seed + 1) * _WIDTH]
        return timed(STEP_CPU, inner_reset, seed=seed, options=options)

    env.step, env.reset = partial(timed, STEP_CPU, env.step), reset
    for name in ("true_state", "write_true_state"):
        if hasattr(env, name):
            setattr(env, name, partial(timed, TRUTH_CPU, getattr(env, name)))
    return env


@contextmanager
def timed(factory: Factory, n: int) -> Iterator[tuple[Factory, np.ndarray]]:
    """A factory of timed environments, and their rows (n, 4) float64, live."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        path.write_bytes(bytes(8 * _WIDTH * n))
        yield partial(_timed_env, path, factory), np.memmap(path, np.float64, "r", shape=(n, _WIDTH))
