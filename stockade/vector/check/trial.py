"""Tools of the checker: make and close vector environments, run them, compare what they gave."""

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

from stockade.errors import ContractViolation


class NotApplicable(Exception):
    """A rule does not apply to this vector environment."""


@dataclass
class Trial:
    """One rule being tried, on what `check_vector_env` was given; `spare` are environments open and not in use."""

    rule: str
    make: Callable[[], VectorEnv[Any, Any, Any]]
    single: Callable[[], gymnasium.Env[Any, Any]] | None
    strict: bool
    steps: int
    seed: int
    spare: list[VectorEnv[Any, Any, Any]]
    _opened: list[VectorEnv[Any, Any, Any]] = field(default_factory=list)

    def open(self, unused: bool = False) -> Any:
        """A vector environment to be reset: one that another rule has used, if there is such."""
        self._opened.append(self.spare.pop() if self.spare and not unused else self.make())
        return self._opened[-1]

    def open_two(self, method: str) -> tuple[Any, Any]:
        """Two vector environments that have this method."""
        envs = self.open()
        if not hasattr(envs, method):
            raise NotApplicable(f"no {method}()")
        return envs, self.open()

    def finish(self) -> None:
        """Leave what the rule opened to the next ones."""
        self.spare += [envs for envs in self._opened if not envs.closed]
        self._opened.clear()

    def actions(self, envs: Any, most: int | None = None) -> list[Any]:
        """Random actions, for as many steps as the trial has, or fewer."""
        return actions_for(envs, self.steps if most is None else min(self.steps, most), self.seed)

    def require(self, holds: Any, message: str) -> None:
        """The rule is broken unless this holds."""
        if not holds:
            raise ContractViolation(self.rule, message)

    @contextmanager
    def expect(self, errors: tuple[type[BaseException], ...], deed: str, naming: str = "") -> Iterator[None]:
        """The rule is broken unless this raises one of these errors, with `naming` in its message."""
        wanted = f"{deed} must raise {' or '.join(error.__name__ for error in errors)}"
        try:
            yield
        except errors as error:
            self.require(naming in str(error), f"the error for {deed} does not name {naming!r}: {error}")
        except Exception as error:
            raise ContractViolation(self.rule, f"{wanted}, not {type(error).__name__}: {error}") from error
        else:
            raise ContractViolation(self.rule, wanted)

    def only_strict(self, why: str) -> None:
        """The rest of the rule is beyond Gymnasium's contract."""
        if not self.strict:
            raise NotApplicable(f"{why}; checked with strict=True")


def mode_of(envs: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    mode = envs.metadata.get("autoreset_mode")
    if not isinstance(mode, AutoresetMode):
        raise ContractViolation("metadata", f"metadata['autoreset_mode'] must be an AutoresetMode, got {mode!r}")
    return mode


def actions_for(envs: VectorEnv[Any, Any, Any], steps: int, seed: int) -> list[Any]:
    envs.action_space.seed(seed)
    return [envs.action_space.sample() for _ in range(steps)]


def plain(value: Any) -> Any:
    """Something that compares equal exactly if every bit, dtype and shape is equal."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [plain(part) for part in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def play(envs: VectorEnv[Any, Any, Any], run: list[Any]) -> Iterator[tuple[Any, ...]]:
    """What each step gives, and each reset in between: in mode `disabled`, finished environments are reset."""
    for actions in run:
        values = envs.step(actions)
        yield values
        over = values[2] | values[3]
        if mode_of(envs) is AutoresetMode.DISABLED and over.any():
            yield envs.reset(options={"reset_mask": over})


def episodes(envs: VectorEnv[Any, Any, Any], seed: Any, run: list[Any]) -> Iterator[tuple[Any, ...]]:
    """What a reset with this seed gives, then `play`."""
    yield envs.reset(seed=seed)
    yield from play(envs, run)


def rollout(envs: VectorEnv[Any, Any, Any], seed: Any, actions: list[Any], infos: bool = True) -> list[Any]:
    """Everything that a run gives, comparable."""
    return [plain(values if infos else values[:-1]) for values in episodes(envs, seed, actions)]


def left_behind() -> tuple[int, int]:
    """Child processes and open descriptors of this process."""
    gc.collect()
    descriptors = len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 0
    return len(multiprocessing.active_children()), descriptors
