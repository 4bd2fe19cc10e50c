"""A made-up environment whose costs and faults are set at will, for tests and benchmarks of vector environments."""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np

FaultKind = Literal["exit", "kill", "segfault", "hang", "exception", "nan_reward", "nan_observation", "grow"]
_ENDS: dict[str, Callable[[], object]] = {
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
    "hang": lambda: threading.Event().wait(),
}
_TRUE_STATE_SIZE = 64


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong: the process ends itself (exit), is killed, or reads a null pointer (segfault).

    Or the step never returns (hang), raises, gives a NaN; the process grows by `megabytes` a step from then on (grow).
    """

    kind: FaultKind
    step: int = 1  # in the life of the environment; 0 for the first reset
    seed: int | None = None  # only in the environment that was last seeded with this; None for all
    megabytes: int = 64


class SyntheticEnv(gymnasium.Env[np.ndarray, np.int64]):
    """An environment without a subject.

    Observation: Box (observation_size,) float32: step of the episode, last action, a number drawn at reset, zeros.
    Action: Discrete(145).
    Reward: step of the episode times the number drawn at reset, minus a thousandth of the action.
    End: after a number of steps drawn at reset from [horizon / 2, horizon]; by termination or truncation, as drawn.
        With `fixed_length` always after `horizon` steps and by truncation.
    Info: empty, or at every step "payload", a uint8 array of `info_size`; at the end of an episode always "length".
    True state: with `true_state="typed"` a structured array for shared memory, with "object" an object to be pickled.

    Args:
        step_seconds, reset_seconds: what a step (the mean, if it varies) and a reset cost, from first line to last.
        sigma: 0 for steps of equal cost, otherwise that of a lognormal distribution: a few steps are very slow.
        work: "cpu" burns that much time of a core, however long others keep it waiting; "spin" holds a core until so
            much time has passed on the clock; "sleep" leaves the core to others.
        observation_size: number of observed floats, at least 3.
        info_size: bytes of info at every step.
        true_state: see above, None for none.
        faults: what goes wrong, and when.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        *,
        step_seconds: float = 0.0,
        sigma: float = 0.0,
        work: Literal["cpu", "spin", "sleep"] = "cpu",
        reset_seconds: float = 0.0,
        observation_size: int = 52,
        info_size: int = 0,
        true_state: Literal["typed", "object"] | None = None,
        horizon: int = 100,
        fixed_length: bool = False,
        faults: tuple[Fault, ...] = (),
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observation_size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(145)
        self.render_mode = render_mode
        self._step_seconds, self._sigma, self._reset_seconds = step_seconds, sigma, reset_seconds
        self._clock: Callable[[], float] = time.thread_time if work == "cpu" else time.perf_counter
        self._sleeps = work == "sleep"
        self._info_size = info_size
        self._horizon, self._fixed_length = horizon, fixed_length
        self._faults = {fault.step: fault for fault in faults}
        self._growing = 0
        self._ballast: list[bytearray] = []
        self._seed: int | None = None
        self._life, self._time, self._length = 0, 0, horizon
        self._terminates, self._factor = False, 0.0
        self._observation = np.zeros(observation_size, np.float32)
        if true_state == "typed":
            self.true_state_dtype = np.dtype([("time", np.int64), ("values", np.float32, (_TRUE_STATE_SIZE,))])
            self.write_true_state = self._write_true_state
            self.true_state: Callable[[], Any] = self._true_record
        elif true_state == "object":
            self.true_state = lambda: SyntheticState(self._time, np.full(_TRUE_STATE_SIZE, self._factor, np.float32))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        begin = self._clock()
        super().reset(seed=seed)
        if seed is not None:
            self._seed = seed
        if self._life == 0 and 0 in self._faults:
            self._suffer(self._faults[0])
        self._time = 0
        self._length, self._terminates = self._horizon, False
        if not self._fixed_length:
            self._length = int(self.np_random.integers(self._horizon // 2, self._horizon + 1))
            self._terminates = bool(self.np_random.integers(2))
        self._factor = float(self.np_random.random())
        self._observation[:3] = 0.0, -1.0, self._factor
        if self._reset_seconds:
            self._wait_until(begin + self._reset_seconds)
        return self._observation.copy(), {} if not options else {"options": sorted(options)}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Spend the time that a step costs; suffer the fault that is due."""
        begin = self._clock()
        self._life += 1
        self._time += 1
        self._observation[0] = self._time
        self._observation[1] = action
        reward = self._time * self._factor - 0.001 * int(action)
        if self._life in self._faults:
            reward = self._suffer(self._faults[self._life], reward)
        if self._growing:
            self._ballast.append(bytearray(b"x") * (self._growing << 20))
        info: dict[str, Any] = {}
        if self._info_size:
            info["payload"] = np.full(self._info_size, self._time % 256, np.uint8)
        over = self._time >= self._length
        if over:
            info["length"] = self._time
        observation = self._observation.copy()
        if self._step_seconds:
            self._wait_until(begin + self._cost())
        return observation, reward, over and self._terminates, over and not self._terminates, info

    def render(self) -> str | None:
        return f"step {self._time}" if self.render_mode == "ansi" else None

    def snapshot(self) -> dict[str, Any]:
        """Everything that the future depends on."""
        return {
            "numbers": (self._life, self._time, self._length, self._terminates, self._factor, self._seed),
            "observation": self._observation.copy(),
            "random": self.np_random.bit_generator.state,
        }

    def restore(self, state: dict[str, Any], seed: int | None = None) -> np.ndarray:
        """Go back to a snapshot, with a new stream of chance if a seed is given; returns the observation."""
        self._life, self._time, self._length, self._terminates, self._factor, self._seed = state["numbers"]
        self._observation[:] = state["observation"]
        if seed is None:
            self.np_random.bit_generator.state = state["random"]
        else:
            super().reset(seed=seed)
        return self._observation.copy()

    def _write_true_state(self, record: np.ndarray) -> None:
        record["time"], record["values"] = self._time, self._factor

    def _true_record(self) -> np.ndarray:
        record = np.zeros((), self.true_state_dtype)
        self._write_true_state(record)
        return record

    def _wait_until(self, end: float) -> None:
        """Let the rest of a step's or reset's time pass; what it did itself has been part of it."""
        if self._sleeps:
            time.sleep(max(0.0, end - self._clock()))
        while self._clock() < end:
            pass

    def _cost(self) -> float:
        if not self._sigma:
            return self._step_seconds
        # Drawn from the episode's factor and time, so that the stream of the environment does not depend on its cost.
        draw = np.random.default_rng(int(self._factor * 2**32) + self._time).standard_normal()
        return self._step_seconds * float(np.exp(self._sigma * draw - self._sigma**2 / 2))

    def _suffer(self, fault: Fault, reward: float = 0.0) -> float:
        if fault.seed is not None and fault.seed != self._seed:
            return reward
        if fault.kind in _ENDS:
            _ENDS[fault.kind]()
        if fault.kind == "exception":
            raise SyntheticFault(f"a fault was ordered for step {fault.step}")
        if fault.kind == "nan_observation":
            self._observation[2] = np.nan
        if fault.kind == "grow":
            self._growing = fault.megabytes
        return float("nan") if fault.kind == "nan_reward" else reward


@dataclass(frozen=True)
class SyntheticState:
    time: int
    values: np.ndarray


class SyntheticFault(ArithmeticError):
    """What the fault "exception" raises."""
