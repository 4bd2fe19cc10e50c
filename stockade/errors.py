"""Errors for what a user gave and cannot be used; commands show their message and end with exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Settings whose flag is not their name: the flags that users of the first version know.
FLAGS = {"red": "--red-agent", "horizon": "--max-steps"}
#: Which extra installs a package that is imported only when it is needed.
_EXTRAS = {"torch": "train", "safetensors": "train", "tensorboard": "train", "ray": "ray", "matplotlib": "plots",
           "stable_baselines3": "sb3", "sb3_contrib": "sb3"}  # fmt: skip


class InputError(ValueError):
    """An option, file or value that cannot be used. The message names it, and what to give instead."""


class SettingError(InputError):
    """A setting that cannot be used: `horizon=0 must be at least 1` in Python, `--max-steps 0 ...` as a command.

    Attributes:
        name: of the keyword. value: as given. problem: what is wrong, and what to give instead.
    """

    def __init__(self, name: str, value: object, problem: str) -> None:
        super().__init__(name, value, problem)
        self.name, self.value, self.problem = name, value, problem

    def __str__(self) -> str:
        """With the keyword."""
        return f"{self.name}={self.value!r} {self.problem}"

    def as_command(self) -> str:
        """With the flag."""
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
