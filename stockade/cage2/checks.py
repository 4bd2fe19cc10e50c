"""Input checks of the built-in world; all happen before any state changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from stockade.cage2.actions import N_ACTIONS
from stockade.errors import InvalidActionError

OBS_DTYPES = (np.uint8, np.float32)


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
