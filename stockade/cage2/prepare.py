"""Compiles the kernels, or loads them from Numba's cache: once a process, and in one process at a time.

Without the lock, workers that start together would all compile the same code; and two processes that compile for
different kinds of ledger at once could write each other's code into Numba's cache.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stockade.cage2 import kernel
from stockade.cage2.jit import JIT_DISABLED, as_records
from stockade.cage2.observe import observation_words
from stockade.cage2.state import INITIAL, OBS_SIZE, WORLD

try:
    import fcntl
except ImportError:  # not on this system: then without the lock
    fcntl = None  # type: ignore[assignment]


@functools.cache
def prepare(ledger: np.dtype | None) -> None:
    """Make the entry points ready for worlds with this kind of ledger (None under `chance="fast"`)."""
    if JIT_DISABLED:
        return
    worlds = np.zeros(1, WORLD)
    ledgers = None if ledger is None else np.zeros(1, ledger)
    records, constants = (worlds, ledgers), (INITIAL, as_records(np.ones(1, kernel.SETTINGS)))
    everyone, obs = np.ones(1, np.bool_), observation_words(np.zeros((1, OBS_SIZE), np.uint8))
    actions = np.zeros(1, np.int64)
    with _alone():
        kernel.seed_batch(*records, np.zeros(1, np.uint64), everyone, 0, 1)
        kernel.reset_batch(*records, *constants, everyone, obs, 0, 1)
        kernel.step_batch(*records, *constants, actions, obs, np.zeros(1), everyone, 0, 1, False)
        kernel.first_invalid(actions)
        if ledgers is not None:
            kernel.peek_batch(ledgers, np.zeros(1, np.uint32), np.zeros(1, np.int64))


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other process of this user is compiling."""
    if fcntl is None:
        yield
        return
    path = Path(tempfile.gettempdir()) / f"stockade-compile-{os.getuid()}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
