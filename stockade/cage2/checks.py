"""Input checks shared by the environments; all happen before any state changes."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.error import InvalidAction

from stockade.cage2 import kernel
from stockade.cage2.actions import N_ACTIONS

OBS_DTYPES = (np.uint8, np.float32)


class InvalidActionError(InvalidAction, ValueError):
    """An action that is out of range, or of the wrong shape or type."""


def check_action(action: Any) -> int:
    """One action as an int."""
    if type(action) is int and 0 <= action < N_ACTIONS:  # the common case, quickly
        return action
    if isinstance(action, np.ndarray) and action.shape == ():
        action = action[()]
    if isinstance(action, bool) or not isinstance(action, (int, np.integer)):
        raise InvalidActionError(
            f"action {action!r} of type {type(action).__name__} is no whole number; take 0 to {N_ACTIONS - 1}"
        )
    if not 0 <= action < N_ACTIONS:
        raise InvalidActionError(f"action {action} is out of range; take 0 to {N_ACTIONS - 1}")
    return int(action)


def check_actions(actions: Any, n: int) -> np.ndarray:
    """Actions of n environments as (n,) int64."""
    try:
        array = np.asarray(actions)
    except ValueError as error:  # rows of different lengths
        raise InvalidActionError(f"actions have no one shape; {n} environments take shape ({n},)") from error
    if array.shape != (n,):
        raise InvalidActionError(f"actions have shape {array.shape}; {n} environments take shape ({n},)")
    if array.dtype.kind not in "iu":
        raise InvalidActionError(f"actions have dtype {array.dtype}; take whole numbers, such as int64")
    if array.dtype == np.uint64 and array.max(initial=0) >= N_ACTIONS:
        array = np.minimum(array, N_ACTIONS)  # would turn negative below
    array = np.ascontiguousarray(array, np.int64)
    bad = kernel.first_invalid(array)
    if bad >= 0:
        raise InvalidActionError(
            f"action {np.asarray(actions)[bad]} of environment {bad} is out of range; take 0 to {N_ACTIONS - 1}"
        )
    return array


def check_obs_dtype(dtype: Any) -> np.dtype:
    """The dtype of observations: uint8 or float32."""
    try:
        checked = np.dtype(dtype)
    except TypeError:
        checked = None
    if checked not in OBS_DTYPES:
        raise ValueError(f"obs_dtype={dtype!r} is not possible; take numpy.uint8 or numpy.float32")
    return checked


def check_render_mode(mode: Any) -> str | None:
    """None or ansi."""
    if mode not in (None, "ansi"):
        raise ValueError(f"render_mode={mode!r} is unknown; take None or 'ansi'")
    return mode
