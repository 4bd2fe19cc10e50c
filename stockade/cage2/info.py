"""The info of a step: red's and blue's last action by name and success, and the reward by cause."""

from __future__ import annotations

from typing import Any

import numpy as np

from stockade.cage2.actions import ACTION_KIND, BLUE_ACTION_NAMES, FALSE, RED_ACTION_NAMES, RESTORE
from stockade.cage2.scenario import RESTORE_COST, SERVICE_DOWN_COST

_IS_RESTORE = ACTION_KIND == RESTORE
_SERVICE, _RESTORE = -SERVICE_DOWN_COST / 10, -RESTORE_COST / 10


def world_info(world: np.void) -> dict[str, Any]:
    """Of one world. `*_success` is False only for an action that failed."""
    blue = world["blue_action"]
    return {
        "red_action": RED_ACTION_NAMES[world["red_type"], world["red_target"]],
        "red_success": bool(world["red_success"] != FALSE),
        "blue_action": BLUE_ACTION_NAMES[blue],
        "blue_success": bool(world["blue_success"] != FALSE),
        "reward_hosts": -int(world["root_cost"]) / 10,
        "reward_service": _SERVICE if world["service_down"] else 0.0,
        "reward_restore": _RESTORE if _IS_RESTORE[blue] else 0.0,
    }


def worlds_info(worlds: np.ndarray, stepped: np.ndarray) -> dict[str, Any]:
    """Of many, as arrays; `_key` masks are `stepped`, since a world that was just reset has no last step."""
    blue = worlds["blue_action"]
    values = {
        "red_action": np.where(stepped, RED_ACTION_NAMES[worlds["red_type"], worlds["red_target"]], None),
        "red_success": (worlds["red_success"] != FALSE) & stepped,
        "blue_action": np.where(stepped, BLUE_ACTION_NAMES[blue], None),
        "blue_success": (worlds["blue_success"] != FALSE) & stepped,
        "reward_hosts": np.where(stepped, worlds["root_cost"] / -10, 0.0) + 0.0,  # no minus zero
        "reward_service": _SERVICE * (worlds["service_down"] * stepped),
        "reward_restore": _RESTORE * (_IS_RESTORE[blue] * stepped),
    }
    return {k: v for name, value in values.items() for k, v in ((name, value), (f"_{name}", stepped.copy()))}
