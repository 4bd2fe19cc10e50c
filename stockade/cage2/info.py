"""The info of a step: red's and blue's last action by name and success, and the reward by cause."""

from __future__ import annotations

from typing import Any

import numpy as np

from stockade.cage2.actions import ACTION_KIND, ACTION_NAMES, BLUE_ACTION_NAMES, FALSE, RED_ACTION_NAMES, RESTORE
from stockade.cage2.scenario import RESTORE_COST, SERVICE_DOWN_COST

_ARE_RESTORES = ACTION_KIND == RESTORE
_IS_RESTORE = _ARE_RESTORES.tolist()  # lists are quicker for one world, arrays for many
_RED_NAMES = RED_ACTION_NAMES.tolist()
_SERVICE, _RESTORE = -SERVICE_DOWN_COST / 10, -RESTORE_COST / 10


class WorldInfo:
    """Reads the info of a single world in a microsecond or two, through views of its fields made once."""

    def __init__(self, worlds: np.ndarray) -> None:
        """`worlds` has one row."""
        names = ("red_type", "red_target", "red_success", "blue_action", "blue_success", "root_cost", "service_down")
        self._readers = tuple(worlds[name].item for name in names)

    def read(self) -> dict[str, Any]:
        """Of the last step. `*_success` is False only for an action that failed."""
        red_type, red_target, red_success, blue, blue_success, root_cost, down = [read() for read in self._readers]
        return {
            "red_action": _RED_NAMES[red_type][red_target],
            "red_success": red_success != FALSE,
            "blue_action": ACTION_NAMES[blue],
            "blue_success": blue_success != FALSE,
            "reward_hosts": root_cost / -10 if root_cost else 0.0,
            "reward_service": _SERVICE if down else 0.0,
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
        "reward_service": _SERVICE * (worlds["service_down"] * stepped) + 0.0,
        "reward_restore": _RESTORE * (_ARE_RESTORES[blue] * stepped) + 0.0,
    }
    return {k: v for name, value in values.items() for k, v in ((name, value), (f"_{name}", stepped.copy()))}
