"""Recorded traces for tests: where they lie, and short versions of them."""

from pathlib import Path

import numpy as np

TRACES = Path(__file__).parents[1] / "data" / "traces"
FILES = sorted(TRACES.glob("*.npz"))


def load(name: str) -> dict[str, np.ndarray]:
    """All arrays of a file."""
    with np.load(TRACES / name) as file:
        return {field: file[field] for field in file.files}


def shortened(arrays: dict[str, np.ndarray], episodes: int, steps: int) -> dict[str, np.ndarray]:
    """The first steps of the first episodes."""
    all_steps = arrays["blue_action"].shape[1]
    short = {}
    for field, array in arrays.items():
        part = array[:episodes] if array.ndim else array
        if part.ndim > 1 and part.shape[1] in (all_steps, all_steps + 1):
            part = part[:, : part.shape[1] - all_steps + steps]
        short[field] = part.copy()
    short["valid_steps"][:] = steps
    return short
