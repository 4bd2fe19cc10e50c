"""Tools of the checker: make and close vector environments, run them, compare what they gave."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from stockade.errors import ContractViolation


class NotApplicable(Exception):
    """A rule does not apply to this vector environment."""


@dataclass
class Trial:
    """One rule being tried.

    Attributes:
        rule: its name.
        make, single, strict, steps, seed: as in `check_vector_env`.
        spare: vector environments that are open and not in use.
    """

    rule: str
    make: Callable[[], VectorEnv[Any, Any, Any]]
    single: Callable[[], gymnasium.Env[Any, Any]] | None
    strict: bool
    steps: int
    seed: int
    spare: list[VectorEnv[Any, Any, Any]]
    _opened: list[VectorEnv[Any, Any, Any]] = field(default_factory=list)

    def open(self) -> VectorEnv[Any, Any, Any]:
        """A vector environment to be reset: one that another rule has used, if there is such."""
        envs = self.spare.pop() if self.spare else self.make()
        self._opened.append(envs)
        return envs

    def open_new(self) -> VectorEnv[Any, Any, Any]:
        """A vector environment that has not been used."""
        envs = self.make()
        self._opened.append(envs)
        return envs

    def finish(self) -> None:
        """Leave what the rule opened to the next ones."""
        self.spare += [envs for envs in self._opened if not envs.closed]
        self._opened.clear()

    def require(self, holds: Any, message: str) -> None:
        """The rule is broken unless this holds."""
        if not holds:
            raise ContractViolation(self.rule, message)

    @contextmanager
    def expect(self, errors: tuple[type[BaseException], ...], deed: str, naming: str = "") -> Iterator[None]:
        """The rule is broken unless this raises one of these errors, with `naming` in its message."""
        names = " or ".join(error.__name__ for error in errors)
        try:
            yield
        except errors as error:
            self.require(naming in str(error), f"the error for {deed} does not name {naming!r}: {error}")
        except Exception as error:
            raise ContractViolation(
                self.rule, f"{deed} must raise {names}, not {type(error).__name__}: {error}"
            ) from error
        else:
            raise ContractViolation(self.rule, f"{deed} must raise {names}")

    def only_strict(self, why: str) -> None:
        """The rest of the rule is beyond Gymnasium's contract."""
        if not self.strict:
            raise NotApplicable(f"{why}; checked with strict=True")


def mode_of(envs: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """The autoreset mode that the metadata name."""
    mode = envs.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise ContractViolation("metadata", f"metadata['autoreset_mode'] must be an AutoresetMode, got {mode!r}")
    return mode


def actions_for(envs: VectorEnv[Any, Any, Any], steps: int, seed: int) -> list[Any]:
    """Batches of random actions."""
    envs.action_space.seed(seed)
    return [envs.action_space.sample() for _ in range(steps)]


def plain(value: Any) -> Any:
    """Something that compares equal exactly if every bit, dtype and shape is equal."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, np.ndarray):
        return [plain(part) for part in value]
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, np.generic):
        return value.dtype.str, (), value.tobytes()
    return value


def rollout(envs: VectorEnv[Any, Any, Any], seed: Any, actions: list[Any], infos: bool = True) -> list[Any]:
    """Everything that a run gives, comparable. In mode `disabled`, finished environments are reset after each step."""
    observations, info = envs.reset(seed=seed)
    record = [plain(observations), plain(info) if infos else None]
    for action in actions:
        observations, rewards, terminated, truncated, info = envs.step(action)
        record += [plain(observations), plain(rewards), plain(terminated), plain(truncated)]
        record.append(plain(info) if infos else None)
        over = terminated | truncated
        if mode_of(envs) is AutoresetMode.DISABLED and over.any():
            observations, info = envs.reset(options={"reset_mask": over})
            record += [plain(observations), plain(info) if infos else None]
    return record


class Reference(VectorEnv[Any, Any, Any]):
    """The contract as code, as simple as can be: single environments, one after the other."""

    def __init__(self, single: Callable[[], gymnasium.Env[Any, Any]], like: VectorEnv[Any, Any, Any]) -> None:
        self.num_envs = like.num_envs
        self.metadata = {"autoreset_mode": mode_of(like)}
        self.single_observation_space = like.single_observation_space
        self.action_space = like.action_space
        self._envs = [single() for _ in range(like.num_envs)]
        self._latest: list[Any] = [None] * like.num_envs
        self._over = np.zeros(like.num_envs, np.bool_)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = np.ones(self.num_envs, np.bool_) if options is None else options["reset_mask"]
        rest: dict[str, Any] | None = None if options is None else {}
        infos: dict[str, Any] = {}
        for i in np.flatnonzero(mask):
            self._latest[i], info = self._envs[i].reset(seed=None if seed is None else seed + int(i), options=rest)
            self._over[i] = False
            infos = self._add_info(infos, info, int(i))
        return self._batch(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), np.bool_)
        infos: dict[str, Any] = {}
        for i, action in enumerate(iterate(self.action_space, actions)):
            env = self._envs[i]
            if self._over[i]:
                self._latest[i], info = env.reset()
            else:
                self._latest[i], rewards[i], terminated[i], truncated[i], info = env.step(action)
            if (terminated[i] or truncated[i]) and mode_of(self) is AutoresetMode.SAME_STEP:
                final = np.copy(self._latest[i]) if isinstance(self._latest[i], np.ndarray) else self._latest[i]
                infos = self._add_info(infos, {"final_obs": final, "final_info": info}, i)
                self._latest[i], info = env.reset()
            infos = self._add_info(infos, info, i)
        if mode_of(self) is AutoresetMode.NEXT_STEP:
            self._over = terminated | truncated
        return self._batch(), rewards, terminated, truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        for env in self._envs:
            env.close()

    def _batch(self) -> Any:
        empty: Any = create_empty_array(self.single_observation_space, self.num_envs)
        return concatenate(self.single_observation_space, self._latest, empty)


def left_behind() -> tuple[int, int]:
    """Child processes and open descriptors of this process."""
    gc.collect()
    descriptors = len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 0
    return len(multiprocessing.active_children()), descriptors
