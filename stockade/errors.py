"""All error types: every message names what is wrong and how to fix it.

Where Gymnasium documents an error for the same mistake, ours is a subclass of it, so existing `except` clauses work.
`gymnasium.error.ClosedEnvironmentError`, `AlreadyPendingCallError` and `NoAsyncCallError` are used as they are.
"""

import difflib
import importlib.util
import multiprocessing
from collections.abc import Iterable
from typing import Any

from gymnasium import error as gymnasium_error

#: Settings whose flag is not their name: the flags that users of the first version know.
FLAGS = {"red": "--red-agent", "horizon": "--max-steps"}
#: Which extra installs a package that is imported only when it is needed.
_EXTRAS = {"torch": "train", "safetensors": "train", "tensorboard": "train", "ray": "ray", "matplotlib": "plots",
           "bokeh": "plots", "stable_baselines3": "sb3", "sb3_contrib": "sb3", "pettingzoo": "pettingzoo",
           "numba_cuda": "cuda", "jax": "jax", "sbx": "peers", "sbx_rl": "peers", "rejax": "peers",
           "gymnax": "peers"}  # fmt: skip


class InputError(ValueError):
    """An option, file or value that cannot be used. The message names it, and what to give instead."""


class SettingError(InputError):
    """A setting that cannot be used: `horizon=0 must be at least 1` in Python, `--max-steps 0 ...` as a command."""

    def __init__(self, name: str, value: object, problem: str) -> None:
        super().__init__(name, value, problem)
        self.name, self.value, self.problem = name, value, problem

    def __str__(self) -> str:
        return f"{self.name}={self.value!r} {self.problem}"

    def as_command(self) -> str:
        """With the flag in place of the keyword."""
        return f"{flag_of(self.name)} {self.value} {self.problem}"


class WorkError(RuntimeError):
    """Work that failed although the input was fine; commands show the message and its notes, and end with code 1."""


def flag_of(name: str) -> str:
    """The flag of a setting: `n_envs` is `--n-envs`, `horizon` is `--max-steps`."""
    return FLAGS.get(name) or "--" + name.replace("_", "-")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'train'?` if a known word is near, else nothing: to be appended to an error message."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def missing_package(error: ModuleNotFoundError) -> InputError:
    """What to say when an optional package is not installed."""
    name = (error.name or "").partition(".")[0]
    package = f"stockade[{_EXTRAS[name]}]" if name in _EXTRAS else name
    return InputError(f"this needs {name}, which is not installed: pip install '{package}'")


def require_packages(*names: str) -> None:
    """InputError that says what to install, if one of them is missing; nothing is imported."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise missing_package(ModuleNotFoundError(name=name))


# ------------------------------------------------------------------------------------------------------ environments
class VectorError(Exception):
    """Anything that a Stockade environment, single or vector, raises on its own account."""


class WorkerError(VectorError, RuntimeError):
    """Something happened to a worker process: its number is `worker`, the environments that live in it are `env_ids`;
    after a death `exitcode` is that of `multiprocessing.Process`, so minus the signal's number after a signal."""

    def __init__(self, message: str, worker: int, env_ids: tuple[int, ...], exitcode: int | None = None) -> None:
        super().__init__(message)
        self.worker, self.env_ids, self.exitcode = worker, env_ids, exitcode


class WorkerDiedError(WorkerError):
    """A worker process ended without being asked to."""


class WorkerTimeoutError(WorkerError, multiprocessing.TimeoutError, TimeoutError):
    """A worker did not answer before the deadline (`timeout=`); it has been killed."""


class WorkerStartError(WorkerError):
    """A worker could not build its environments. No process is left behind."""


class EnvironmentFailure(VectorError):
    """What is known about an exception inside one environment; the `__cause__` of the exception that the user sees.

    Attributes:
        during: "step", "reset", or the name of the method called. step: how many its episode has made.
        action: the last that it was given, or None (not in a step). seed: of its last seeded reset, or None.
        remote_traceback: the traceback as text, as it looked where it happened.
        results: the five values of the interrupted step, valid for all other environments (None for other calls).
        others: failures of further environments in the same call.
    """

    def __init__(
        self, env_id: int, during: str, action: Any, seed: int | None, step: int, remote_traceback: str
    ) -> None:
        self.env_id, self.during, self.action = env_id, during, action
        self.seed, self.step, self.remote_traceback = seed, step, remote_traceback
        self.results: tuple[Any, ...] | None = None
        self.others: tuple[EnvironmentFailure, ...] = ()
        super().__init__(
            f"environment {env_id} failed in {during} (step {step} of its episode, action {action!r}, seed {seed!r}). "
            f"The other environments are fine: reset this one with options={{'reset_mask': mask}} and continue.\n"
            f"--- traceback where it happened ---\n{remote_traceback.rstrip()}"
        )


class NonFiniteError(VectorError, ValueError):
    """A reward or an observation (`what`) of environment `env_id` was NaN or infinite, in `step` of its episode."""

    def __init__(self, env_id: int, step: int, what: str) -> None:
        fix = "Fix the environment, or pass check_finite=False if such values are intended."
        super().__init__(f"environment {env_id} gave a NaN or infinite {what} at step {step} of its episode. {fix}")
        self.env_id, self.step, self.what = env_id, step, what

    def __reduce__(self) -> tuple[Any, ...]:
        return NonFiniteError, (self.env_id, self.step, self.what)  # the message follows from them


class InvalidActionError(VectorError, gymnasium_error.InvalidAction, ValueError):
    """An action does not fit the action space, and no environment has been touched. `index` is the first offending
    environment, or None if the whole batch has the wrong form (or there is only one)."""

    def __init__(self, message: str, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class PolicyError(VectorError, RuntimeError):
    """The policy inside an environment that plays the other side, `side`, raised an error, which is the `__cause__`. No
    environment has been touched."""

    def __init__(self, message: str, side: str) -> None:
        super().__init__(message)
        self.side = side

    def __reduce__(self) -> tuple[Any, ...]:
        return PolicyError, (str(self), self.side)


class ResetNeededError(VectorError, gymnasium_error.ResetNeeded, AssertionError):
    """A step was asked for where a reset is due."""


class UnsupportedSpaceError(VectorError, gymnasium_error.CustomSpaceError, TypeError):
    """A space that cannot be laid out in arrays."""


class SharedMemoryError(VectorError, MemoryError):
    """There is not enough memory for the shared arrays."""


class UnsupportedFeatureError(VectorError, NotImplementedError):
    """The environments, or this machine, cannot do what was asked."""


class ContractViolation(VectorError, AssertionError):
    """`check_vector_env` found a broken promise, the rule of the name `rule`."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"[{rule}] {message}")
        self.rule = rule
