"""The other side's policy inside an environment: its observations (n, size) -> its actions (n,), checked.

A policy is an object with `act(observations)` or `predict(observations)`, as those of the package and of
Stable-Baselines3 have, or a function of the observations. A parameter `generator` gets a `numpy.random.Generator`, a
parameter `action_mask` (or `action_masks`) what the side can try. It must depend on nothing else: it is asked in every
step, and not told where an episode begins.
"""

import inspect
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from stockade.cage2.actions import ACTION_MASK, N_ACTIONS, N_RED_ACTIONS
from stockade.errors import InvalidActionError, PolicyError, SettingError

_COUNTS = {"blue": N_ACTIONS, "red": N_RED_ACTIONS}
_METHODS = ("act", "predict", "__call__")


class Opponent:
    """A policy of `side`, ready to play."""

    def __init__(self, side: str, policy: Any) -> None:
        """`policy`: an object of one of these forms, or its class."""
        if isinstance(policy, type):
            try:
                policy = policy()
            except Exception as error:
                problem = f"cannot be called without arguments: {type(error).__name__}: {error}"
                raise SettingError(side, policy, problem) from error
        if getattr(policy, "side", side) in {*_COUNTS} - {side}:
            does, wanted = ("attacks", "defends") if side == "blue" else ("defends", "attacks")
            raise SettingError(side, policy, f"{does}; take a policy that {wanted}")
        method = next((name for name in _METHODS if callable(getattr(policy, name, None))), None)
        if method is None:
            known = "an object with act(observations) or predict(observations), or a function of observations"
            name = ", or the name of an attacker, such as 'bline'" if side == "red" else ""
            raise SettingError(side, policy, f"is no policy; take {known}{name}")
        self.side, self.policy, self.method, self.count = side, policy, method, _COUNTS[side]
        self.name = str(getattr(policy, "name", None) or getattr(policy, "__name__", type(policy).__name__))
        self.obs = getattr(policy, "obs", None)  #: observation that a policy of blue expects, if it says so
        try:
            names = inspect.signature(self._ask).parameters.keys()
        except (TypeError, ValueError):  # nothing can be found out about it
            names = {}.keys()
        self._generator = "generator" if "generator" in names else None
        self._mask = next((name for name in ("action_mask", "action_masks") if name in names), None)

    @property
    def _ask(self) -> Callable[..., Any]:
        return self.policy if self.method == "__call__" else getattr(self.policy, self.method)

    def __repr__(self) -> str:
        return f"{self.side}'s policy {self.name}"

    def act(
        self,
        observations: np.ndarray,
        rows: np.ndarray | None,
        mask: Callable[[], np.ndarray],
        generator: Callable[[], np.random.Generator],
    ) -> np.ndarray:
        """(n,) int64 for (n, size) uint8, of all environments or of these `rows` (the other actions are 0)."""
        seen = observations.copy() if rows is None else observations[rows]  # a copy: it may keep or change it
        more: dict[str, Any] = {}
        if self._generator is not None:
            more[self._generator] = generator()
        if self._mask is not None:
            allowed = mask() if self.side == "red" else np.broadcast_to(ACTION_MASK, (len(observations), self.count))
            more[self._mask] = allowed if rows is None else allowed[rows]
        try:
            given = self._ask(seen, **more)
            given = np.asarray(given[0] if self.method == "predict" else given)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise PolicyError(
                f"{self} failed in {_environments(len(seen), rows)}: {type(error).__name__}: {error} "
                f"({where.filename}, line {where.lineno}). No environment has been touched.", self.side,
            ) from error  # fmt: skip
        checked = self._checked(given, len(seen), rows)
        if rows is None:
            return checked
        actions = np.zeros(len(observations), np.int64)
        actions[rows] = checked
        return actions

    def _checked(self, given: np.ndarray, n: int, rows: np.ndarray | None) -> np.ndarray:
        if given.shape != (n,):
            where = _environments(n, rows)
            raise InvalidActionError(f"{self} gave actions of shape {given.shape} in {where}; they take shape ({n},)")
        whole = given.dtype.kind in "iu"
        if not whole:
            with np.errstate(invalid="ignore"):
                bad = given != given if given.dtype.kind == "f" else np.ones(n, np.bool_)
        else:
            bad = (given < 0) | (given >= self.count)
        if whole and not bad.any():
            return given.astype(np.int64, copy=False)
        place = int(np.argmax(bad))
        index = place if rows is None else int(rows[place])
        raise InvalidActionError(
            f"{self} chose action {given[place]!s} ({given.dtype}) in environment {index}; "
            f"take whole numbers from 0 to {self.count - 1}", index,
        )  # fmt: skip


def _environments(n: int, rows: np.ndarray | None) -> str:
    first, last = (0, n - 1) if rows is None else (int(rows.min()), int(rows.max()))
    return f"environment {first}" if n == 1 else f"environments {first} to {last}"
