"""Compiles the kernels, or loads them from Numba's cache: once per process, and compiling in one process at a time.

Without the lock, workers that start together would all compile the same code; and two processes that compile for
different kinds of ledger at once could write each other's code into Numba's cache. Lock and marks lie in the folder of
that cache. Where code is marked as compiled, nobody waits for anybody.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stockade.cage2 import kernel
from stockade.cage2.history import MEMORY, MEMORY_SIZE, recall_batch, remember_batch
from stockade.cage2.jit import JIT_DISABLED, as_records
from stockade.cage2.observe import observation_words
from stockade.cage2.state import INITIAL, OBS_SIZE, WORLD

try:
    import fcntl
except ImportError:  # not on this system: then without the lock
    fcntl = None  # type: ignore[assignment]

_PATIENCE = 180.0  #: longest wait for another process that compiles; then this one does so itself
_ANNOUNCE = "STOCKADE_ANNOUNCE_COMPILING"  #: environment variable, so that worker processes know it too


def announce_compiling() -> None:
    """For the command line: say what takes so long even where standard error is no terminal, in child processes too."""
    os.environ[_ANNOUNCE] = "1"


@functools.cache
def prepare(ledger: np.dtype | None) -> None:
    """Make the kernels ready for worlds with this kind of ledger (None under `chance="fast"`)."""
    if JIT_DISABLED:
        return
    records = np.zeros(1, WORLD), None if ledger is None else np.zeros(1, ledger)
    constants = INITIAL, np.ones(1, kernel.SETTINGS)
    everyone, obs = np.ones(1, np.bool_), observation_words(np.zeros((1, OBS_SIZE), np.uint8))
    actions = np.zeros(1, np.int64)
    kind, seconds = (0, 10) if ledger is None else (ledger.itemsize, 30)
    with _alone(kernel.step_batch, f"ledger{kind}", seconds):
        kernel.seed_batch(*records, np.zeros(1, np.uint64), everyone, 0, 1)
        kernel.reset_batch(*records, *constants, everyone, obs, 0, 1)
        kernel.step_batch(*records, *constants, actions, obs, np.zeros(1), everyone, False, 0, 1)
        kernel.first_invalid(actions)
        if ledger is not None:
            kernel.peek_batch(records[1], np.zeros(1, ledger), np.zeros(1, np.uint32), np.zeros(1, np.int64))


@functools.cache
def prepare_memory() -> None:
    """Make the kernels of `obs="memory"` ready."""
    if JIT_DISABLED:
        return
    memory, worlds, actions = as_records(np.zeros(1, MEMORY)), np.zeros(1, WORLD), np.zeros(1, np.int64)
    bits, out = np.zeros((1, OBS_SIZE), np.uint8), np.zeros((1, MEMORY_SIZE), np.uint8)
    with _alone(remember_batch, "memory", 1):
        remember_batch(memory, actions, worlds["blue_success"], worlds["time"], 1, bits, out, 0, 1)
        recall_batch(memory, worlds["time"], 1, bits, out, 0, 1)


@contextlib.contextmanager
def _alone(entry_point: Any, what: str, seconds: int) -> Iterator[None]:
    """If the code is not marked as compiled: wait until no other process compiles, and mark it afterwards.

    The mark carries the entry point's qualified name, and with it the digest of its sources, Numba and the CPU.
    `seconds` is what compiling takes, for the user to read.
    """
    folder = Path(entry_point.stats.cache_path or "")
    mark = folder / f"stockade-{what}-{entry_point.py_func.__qualname__}.compiled"
    if mark.exists():
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # where nothing can be written, nothing is shared either
            folder.mkdir(parents=True, exist_ok=True)
            _lock(stack.enter_context((folder / "stockade-compile.lock").open("a")).fileno())
        announced = os.environ.get(_ANNOUNCE) or getattr(sys.stderr, "isatty", bool)()  # there may be no stderr
        if announced and seconds > 1 and not mark.exists():  # by the process that had the lock before
            print(f"compiling the simulator, once per machine (about {seconds} s) ...", file=sys.stderr, flush=True)
        yield
        with contextlib.suppress(OSError):
            mark.touch()


def _lock(file: int) -> None:
    """Wait for the lock, but not for ever: its holder may hang."""
    deadline = time.monotonic() + _PATIENCE
    while fcntl is not None and time.monotonic() < deadline:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.1)
        else:
            return
