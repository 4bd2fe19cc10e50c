"""Environments whose rows say whose they are, and the model of what a vector environment of them must return.

An observation is a function of (seed, episode, step, action) alone, so every row can be judged on its own: a row of
another environment, of an earlier step or half of one is noticed at once. Actions from RAISE on are misbehaviour.
"""

import contextlib
import ctypes
import functools
import math
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from tests.vector.environments import next_number

_NOTICE = 0.3  #: seconds after which a kill has surely ended its process
SIZE = 150  #: numbers in an observation: enough that half a row is seen
GOOD_ACTIONS = 100
FAILS = ("raise", "NaN reward", "NaN observation", "wrong shape", "complex observation", "list as info")
TRAVELS_NOT = "info that cannot be pickled"  #: an error only where infos have to travel
ENDS = ("exit", "segfault", "killed", "hang")
BAD_ACTIONS = {kind: GOOD_ACTIONS + k for k, kind in enumerate((*FAILS, TRAVELS_NOT, *ENDS))}
TRUE_STATE = np.dtype([("seed", np.int64), ("episode", np.int64), ("step", np.int64)])


class Violation(AssertionError):
    """A promise that was not kept."""


def row(seed: int, episode: int, step: int, action: int) -> np.ndarray:
    """(SIZE,) float64: the four numbers, and a filling that follows from them."""
    filling = (31 * seed + 1009 * episode + 101 * step + 7 * action) % 1_000_003
    return np.concatenate([[seed, episode, step, action], np.arange(SIZE - 4) + filling])


def length(seed: int, episode: int) -> int:
    """Steps of an episode: odd ones end by termination, even ones by truncation."""
    return 3 + (7 * seed + 5 * episode) % 11


class TellTale(gymnasium.Env):
    """Reward: step + action / 128. A step costs `seconds`. Of all that are built, the numbers `doomed` misbehave."""

    def __init__(self, seconds: float = 0.0, counter: str = "", doomed: dict[int, str] | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (SIZE,), np.float64)
        self.action_space = gymnasium.spaces.Discrete(GOOD_ACTIONS + len(BAD_ACTIONS))
        self.true_state_dtype = TRUE_STATE
        self._seconds, self._place = seconds, (0, -1, 0)
        if counter and (kind := (doomed or {}).get(next_number(counter))):
            end(kind) if kind in ENDS else misbehave("raise", None)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        if kind := (options or {}).get("misbehave"):
            end(kind) if kind in ENDS else misbehave("raise", None)
        self._place = (self._place[0], self._place[1] + 1, 0) if seed is None else (seed, 0, 0)
        return row(*self._place, -1), {}

    def step(self, action: int) -> Any:
        if self._seconds:
            time.sleep(self._seconds)
        seed, episode, step = self._place = (*self._place[:2], self._place[2] + 1)
        over = step >= length(seed, episode)
        result = row(*self._place, action), step + action / 128, over and step % 2 == 1, over and step % 2 == 0, {}
        if action < GOOD_ACTIONS:
            return result
        kind = next(kind for kind, number in BAD_ACTIONS.items() if number == action)
        return end(kind) if kind in ENDS else misbehave(kind, result)

    def write_true_state(self, record: np.ndarray) -> None:
        record["seed"], record["episode"], record["step"] = self._place

    def true_state(self) -> np.ndarray:
        return np.array(self._place, TRUE_STATE)

    def snapshot(self) -> tuple[int, int, int]:
        return self._place

    def restore(self, state: tuple[int, int, int]) -> np.ndarray:
        self._place = state
        return row(*state, -1)


def end(kind: str) -> None:
    """Of the process, or of its answers."""
    {"exit": lambda: os._exit(3), "segfault": lambda: ctypes.string_at(0), "hang": lambda: threading.Event().wait(),
     "killed": lambda: os.kill(os.getpid(), signal.SIGKILL)}[kind]()  # fmt: skip


def misbehave(kind: str, result: Any) -> Any:
    """A step's result, spoiled."""
    if kind == "raise":
        raise LookupError("misbehaviour was asked for")
    seen, reward, *ends, _ = result
    spoiled = {
        "NaN reward": lambda: (seen, float("nan"), *ends, {}),
        "NaN observation": lambda: (np.where(np.arange(SIZE) == SIZE // 2, np.nan, seen), reward, *ends, {}),
        "wrong shape": lambda: (seen[None, :1], reward, *ends, {}),
        "complex observation": lambda: (seen + 1j, reward, *ends, {}),
        "list as info": lambda: (seen, reward, *ends, ["no", "dictionary"]),
        TRAVELS_NOT: lambda: (seen, reward, *ends, {"lock": threading.Lock()}),
    }
    return spoiled[kind]()


def factory(folder: Path, seconds: float, doomed: dict[int, str]) -> Any:
    """Makes TellTales; those numbers of all that are ever built, in whatever process, misbehave while being built."""
    return functools.partial(TellTale, seconds, str(folder / "built"), doomed) if doomed else functools.partial(
        TellTale, seconds)  # fmt: skip


class Model:
    """What n TellTales must return, environment by environment, under an autoreset mode.

    A loss that is announced (`suspect`) must show as a truncation with `worker_restarted`, or as a new start where a
    reset was due: at the latest in the second result after `_NOTICE` seconds. Any other deviation is a violation.
    """

    def __init__(self, n: int, mode: str) -> None:
        self.n, self.mode = n, mode
        self.place: list[tuple[int, int, int] | None] = [None] * n  # None: lost, begins with a new seed
        self.over, self.seen = [False] * n, np.zeros((n, SIZE))
        self.suspects: dict[int, float] = {}  # results until the loss must have shown
        self._since: dict[int, float] = {}  # when its worker was dead
        self._twice: set[int] = set()  # whose worker was killed again before the first loss has shown

    def suspect(self, env_ids: Any, results: float = 2, within: float = 0.0) -> None:
        """Their worker was killed, or dies within so many seconds."""
        self._twice |= self.suspects.keys() & set(env_ids)
        self.suspects |= dict.fromkeys(env_ids, results)
        self._since |= dict.fromkeys(env_ids, time.monotonic() + within)

    def copy_of(self, i: int) -> tuple[Any, ...]:
        return self.place[i], self.over[i], self.seen[i].copy()

    def put_back(self, i: int, saved: tuple[Any, ...]) -> None:
        self.place[i], self.over[i], self.seen[i] = saved[0], saved[1], saved[2]

    def is_due(self, i: int) -> bool:
        """The next result of it is a reset, whatever the action."""
        return self.over[i] and self.mode == "next_step"

    def is_last(self, i: int) -> bool:
        """The next step ends its episode, as far as is known."""
        place = self.place[i]
        return place is None or place[2] + 1 >= length(*place[:2])

    def begun(self, i: int, seen: np.ndarray, seed: int | None = None, asked: float = 0.0) -> None:
        """A reset has returned this row. A seeded one that was `asked` for after the worker's death replaced it."""
        before = self.place[i]
        if i in self.suspects:
            self.suspects[i] = math.inf  # a reset that a dead worker owed is given to the new one, without a mark
        if seed is not None:
            self.place[i] = (seed, 0, 0)
            if self._since.get(i, 0.0) < asked:
                self.suspects.pop(i, None)
        elif before is not None and (i not in self.suspects or seen[0] == before[0]):
            self.place[i] = (before[0], before[1] + 1, 0)
        else:  # a replaced environment: any seed but the old one, from the beginning
            self._require(seen[0] != (before or (-1,))[0], i, "a replaced environment repeats its seed", seen)
            self.place[i] = (int(seen[0]), 0, 0)
        self._same(i, seen, row(*self.place[i], -1), "the row of a reset")  # type: ignore[misc]
        self.over[i], self.seen[i] = False, seen

    def stepped(self, i: int, action: int, result: tuple[Any, ...], info: dict[str, Any]) -> None:
        """A step has returned these values: observation, reward, terminated, truncated."""
        seen, reward, terminated, truncated = result
        if info.get("worker_restarted"):
            self._require(i in self.suspects, i, "was restarted without a reason", seen)
            self._require(
                truncated and not terminated and reward == 0, i, "lost, but not marked as truncated", result[1:]
            )
            self._same(i, info["final_obs"] if self.mode == "same_step" else seen, self.seen[i], "the last whole row")
            self.place[i], self.over[i] = None, True
            if i in self._twice:  # the second loss may show too, or was the same
                self._twice.remove(i)
                self.suspects[i] = math.inf
            else:
                self.suspects.pop(i)
            if self.mode == "same_step":
                self.begun(i, seen)
            return
        if self.is_due(i) or self.place[i] is None:
            self._require(
                reward == 0 and not terminated and not truncated, i, "a reset with a reward or an end", result[1:]
            )
            self.begun(i, seen)
        else:
            seed, episode, step = self.place[i]  # type: ignore[misc]
            self.place[i] = (seed, episode, step + 1)
            over = step + 1 >= length(seed, episode)
            self._same(i, info["final_obs"] if over and self.mode == "same_step" else seen,
                       row(*self.place[i], action), "the row of a step")  # fmt: skip
            ends = over and step % 2 == 0, over and step % 2 == 1
            self._require((terminated, truncated) == ends, i, f"ends are not {ends}", (terminated, truncated))
            self._require(reward == step + 1 + action / 128, i, "a wrong reward", reward)
            self.over[i], self.seen[i] = over, seen
            if over and self.mode == "same_step":
                self.begun(i, seen)
        if i in self.suspects and time.monotonic() > self._since[i] + _NOTICE:
            self.suspects[i] -= 1
            self._require(self.suspects[i] > 0, i, "its worker is dead, but it has gone on for two results", seen)

    def truths(self, states: np.ndarray, age: np.ndarray) -> None:
        for i in range(self.n):
            if self.place[i] is not None and i not in self.suspects:
                self._require(age[i] == 0 and states[i].item() == self.place[i], i, "a stale true state", states[i])

    def _same(self, i: int, found: Any, expected: np.ndarray, what: str) -> None:
        with contextlib.suppress(ValueError):
            if np.array_equal(found, expected):
                return
        raise Violation(f"environment {i}: {what} is {np.asarray(found)[:6]}, not {expected[:6]}; "
                        f"{np.count_nonzero(np.asarray(found) != expected)} numbers differ")  # fmt: skip

    def _require(self, holds: Any, i: int, what: str, found: Any) -> None:
        if not holds:
            shown = found[:6] if isinstance(found, np.ndarray) and found.ndim else found
            raise Violation(f"environment {i} at {self.place[i]}: {what}: {shown}")
