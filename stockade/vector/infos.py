"""Infos of many environments: one dictionary each <-> Gymnasium's one dictionary of arrays with `_key` masks."""

from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv


def gather_infos(infos: list[tuple[int, dict[str, Any]]], size: int) -> dict[str, Any]:
    """Infos by place -> one dictionary of arrays of that size with masks, as the installed Gymnasium makes them."""
    gathered: dict[str, Any] = {}
    shaper: VectorEnv[Any, Any, Any] = VectorEnv()
    shaper.num_envs = size
    shaper.closed = True
    for place, info in infos:
        gathered = shaper._add_info(gathered, info, place)
    return gathered


def scatter_infos(info: dict[str, Any], infos: list[dict[str, Any]]) -> None:
    """The other way: put arrays with masks into the dictionaries of each."""
    for key, value in info.items():
        if key.startswith("_") and key[1:] in info:
            continue
        mask = info.get(f"_{key}")
        places = range(len(infos)) if mask is None else np.flatnonzero(mask).tolist()
        if isinstance(value, dict):
            parts: list[dict[str, Any]] = [{} for _ in infos]
            scatter_infos(value, parts)
            for i in places:
                infos[i][key] = parts[i]
        elif np.ndim(value) > 1:
            for i in places:
                infos[i][key] = value[i].copy()  # a view would keep the arrays of all alive
        else:
            values = np.asarray(value).tolist()  # Python's own numbers, as an environment gives them
            for i in places:
                infos[i][key] = values[i]
