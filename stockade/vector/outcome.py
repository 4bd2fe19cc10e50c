"""What a call to environments yields besides arrays: slice -> infos, failures, true states, values -> the user.

A failure crosses the process border as plain data and becomes, on the user's side, the original exception again.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import Any, NoReturn

import cloudpickle

from stockade.vector.errors import EnvironmentFailure


@dataclass
class Failure:
    """An exception inside one environment, ready to cross a process border."""

    env_id: int
    during: str
    action: Any
    seed: int | None
    step: int
    text: str
    pickled: bytes | None

    @classmethod
    def of(cls, exception: Exception, env_id: int, during: str, action: Any, seed: int | None, step: int) -> Failure:
        """Describe an exception that is being handled."""
        try:
            pickled = cloudpickle.dumps(exception)
        except Exception:  # an exception may hold anything; its text still goes out
            pickled = None
        text = "".join(traceback.format_exception(exception))
        return cls(env_id, during, action, seed, step, text, pickled)

    def error(self) -> EnvironmentFailure:
        """What is known of the failure, as an exception."""
        return EnvironmentFailure(self.env_id, self.during, self.action, self.seed, self.step, self.text)

    def original(self) -> Exception | None:
        """The exception itself, if it survived the journey."""
        if self.pickled is None:
            return None
        try:
            exception = cloudpickle.loads(self.pickled)
        except Exception:  # constructors with arguments of their own do not unpickle; the text is still there
            return None
        return exception if isinstance(exception, Exception) else None


@dataclass
class Outcome:
    """What a call to a slice yields besides the arrays. Environments are named by their global id."""

    infos: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    truths: list[tuple[int, Any]] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.infos or self.failures or self.truths or self.values)

    def extend(self, other: Outcome) -> None:
        """Add what another slice had to tell."""
        self.infos += other.infos
        self.failures += other.failures
        self.truths += other.truths
        self.values += other.values


def raise_failure(failures: list[Failure], results: tuple[Any, ...] | None = None) -> NoReturn:
    """Raise the first failure as its original exception, caused by an `EnvironmentFailure` that tells the rest."""
    cause = failures[0].error()
    cause.results = results
    cause.others = tuple(failure.error() for failure in failures[1:])
    original = failures[0].original()
    if original is None:
        raise cause
    original.add_note(str(cause))
    raise original from cause
