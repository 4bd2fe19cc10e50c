"""The environments that benches run besides the built-in world: one with the reference's costs, one that is free."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import stockade
from stockade.vector import SyntheticEnv

Factory = Callable[[], gymnasium.Env[Any, Any]]

#: Seconds that the reference simulator needs, measured on CybORG 2.1 against B_line.
REFERENCE_STEP, REFERENCE_RESET, REFERENCE_TRUTH = 0.0022, 0.0165, 0.0013
HORIZON = 100
_GOLDEN = 0.6180339887498949  # multiples of it, without their whole parts, are spread evenly however many there are
_HOSTS = _PROCESSES = 13


class ReferenceCost(SyntheticEnv):
    """A synthetic environment that costs what the reference simulator does, true state included.

    Episodes have 100 steps, but the first one of environment i, which is seeded with i, has a length between 1 and 100
    such that the resets of many environments are spread evenly over the steps: a short measurement has its share of
    them. A seeded reset costs nothing, for it is done before the clock runs.

    Args:
        step: seconds of CPU time that a step takes.
        reset: of a reset without a seed.
        truth: of `true_state()`, which gives a dictionary of dictionaries as the reference does, 13 kB when pickled.
    """

    def __init__(
        self, step: float = REFERENCE_STEP, reset: float = REFERENCE_RESET, truth: float = REFERENCE_TRUTH
    ) -> None:
        super().__init__(step_seconds=step, fixed_length=True, horizon=HORIZON)
        self._later_reset = reset
        self._truth_seconds = truth
        self.true_state = self._describe

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        self._reset_seconds = self._later_reset if seed is None else 0.0
        results = super().reset(seed=seed, options=options)
        if seed is not None:
            self._length = 1 + int(HORIZON * ((0.5 + seed * _GOLDEN) % 1))
        return results

    def _describe(self) -> dict[str, Any]:
        begin = time.thread_time()
        state = {f"Host{h}": _describe_host(h, self._time) for h in range(_HOSTS)}
        self._wait_until(begin + self._truth_seconds)
        return state


def _describe_host(h: int, now: int) -> dict[str, Any]:
    """About what the reference says of a host: its interface, users, and processes with their connections."""
    processes = [
        {"PID": 1000 * h + 17 * p + now, "Username": f"user{h}{p}", "Process Name": f"service{h}{p}.exe",
         "Connections": [{"local_port": 1024 + p, "local_address": f"10.0.{h}.{p}"}]}
        for p in range(_PROCESSES)
    ]  # fmt: skip
    return {
        "Interface": [{"IP Address": f"10.0.{h}.1", "Subnet": f"10.0.{h}.0/28"}],
        "System info": {"Hostname": f"Host{h}", "OSType": "LINUX"},
        "Processes": processes,
        "User Info": [{"Username": f"owner{h}", "Groups": [{"GID": h}]}],
        "Sessions": [],
    }


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
        return self._observation, 0.0, False, self._time >= HORIZON, {}


def fixed_cost(step_us: float, sigma: float = 0.0) -> Factory:
    """Makes environments whose steps take so many microseconds of CPU time, all of them or on average (lognormal)."""
    return functools.partial(SyntheticEnv, step_seconds=step_us / 1e6, sigma=sigma, fixed_length=True)


BUILT_IN: Factory = functools.partial(stockade.make, info=False)
"""One built-in world; our backends get it from `make_vec`, as users do."""
WORLDS: dict[str, Factory] = {"built-in": BUILT_IN, "synthetic": ReferenceCost}
"""By name on the command line."""
