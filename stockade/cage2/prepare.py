"""Compiles the kernels, or loads them from Numba's cache: once per process, and compiling in one process at a time.

Without the lock, workers that start together would all compile the same code; and two processes that compile for
different kinds of ledger at once could write each other's code into Numba's cache. Lock and marks lie in the folder of
that cache. Where code is marked as compiled, nobody waits for anybody.

A first compilation takes seconds, so it is announced on standard error: by the process that the user has started, never
by its workers. Whoever starts workers calls `batch.compile_ahead` before.
"""

import contextlib
import functools
import multiprocessing
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stockade.cage2 import kernel
from stockade.cage2.actions import N_ACTIONS, N_RED_ACTIONS
from stockade.cage2.features import N_FEATURES
from stockade.cage2.history import MEMORY, MEMORY_SIZE, remember_batch
from stockade.cage2.jit import JIT_DISABLED
from stockade.cage2.particles import PARTICLE, describe_batch, describe_truth_batch, follow_batch
from stockade.cage2.red_view import RED_MEMORY, RED_OBS_SIZE, observe_red_batch, red_mask_batch
from stockade.cage2.state import INITIAL, OBS_SIZE, WORLD

try:
    import fcntl
except ImportError:  # not on this system: then without the lock
    fcntl = None  # type: ignore[assignment]

_PATIENCE = 180.0  #: longest wait for another process that compiles; then this one does so itself
#: How commands begin that start a worker of `multiprocessing` or its fork server, and how Ray's workers are called.
_WORKERS = ("from multiprocessing.", "default_worker.py")


def is_compiled(ledger: np.dtype | None, free_red: bool = False) -> bool:
    """The kernels for this kind of ledger and of red are in the cache, or need no compilation."""
    return JIT_DISABLED or _mark(kernel.step_batch, _kind(ledger, free_red)).exists()


@functools.cache
def prepare(ledger: np.dtype | None, view: str = "bits", free_red: bool = False) -> None:
    """Make the kernels ready for this kind of ledger (None under `chance="fast"`), for what blue sees (`memory`,
    `belief`), for other reds than the reference's."""
    if JIT_DISABLED:
        return
    worlds, ledgers = np.zeros(1, WORLD), None if ledger is None else np.zeros(1, ledger)
    constants = INITIAL, np.ones(1, kernel.SETTINGS)
    everyone, actions, bits = np.ones(1, np.bool_), np.zeros(1, np.int64), np.zeros((1, OBS_SIZE), np.uint8)
    with alone(kernel.step_batch, _kind(ledger, free_red), 10 if ledger is None else 30):
        obs, given = bits.view(np.int32), (actions, actions if free_red else None)
        kernel.seed_batch(worlds, ledgers, np.zeros(1, np.uint64), everyone, 0, 1)
        kernel.reset_batch(worlds, ledgers, *constants, everyone, obs, 0, 1)
        kernel.step_batch(worlds, ledgers, *constants, *given, obs, np.zeros(1), everyone, False, 0, 1)
        kernel.are_valid(actions, N_ACTIONS)
        if ledger is not None:
            kernel.peek_batch(ledgers, np.zeros(1, ledger), np.zeros(1, np.uint32), np.zeros(1, np.int64))
        if free_red:
            seen = np.zeros((1, RED_OBS_SIZE), np.uint8).view(np.uint64)
            observe_red_batch(np.zeros(1, RED_MEMORY), worlds, 1, True, seen, 0, 1)
            red_mask_batch(worlds, np.zeros((1, N_RED_ACTIONS), np.int8), 0, 1)
    success, times = np.zeros(1, np.int8), np.zeros(1, np.int32)
    if view == "memory":
        out = np.zeros((1, MEMORY_SIZE), np.uint8)
        with alone(remember_batch, "memory", 1):
            for acted in (actions, None):
                remember_batch(np.zeros(1, MEMORY), acted, success, times, 1, bits, out, 0, 1)
    elif view == "truth":
        out = np.zeros((1, MEMORY_SIZE + N_FEATURES), np.float32)
        with alone(describe_truth_batch, "truth", 1):
            for acted in (actions, None):
                remember_batch(np.zeros(1, MEMORY), acted, success, times, 1, bits, out, 0, 1)
            describe_truth_batch(worlds, constants[1], out[:, MEMORY_SIZE:], 0, 1)
    elif view == "belief":
        out = np.zeros((1, MEMORY_SIZE + N_FEATURES), np.float32)
        guesses, start = np.zeros((1, 1, 2, 2), PARTICLE), INITIAL.view(np.uint64).reshape(1, -1)
        words = guesses.view(np.uint64).reshape(1, 1, 2, 2, -1)
        with alone(follow_batch, "belief", 20):
            for acted in (actions, None):
                lived = acted, bits.view(np.int32), times, actions, success
                follow_batch(guesses, words, start, np.ones(1, kernel.SETTINGS), *lived, 0, 1)
                remember_batch(np.zeros(1, MEMORY), acted, success, times, 1, bits, out, 0, 1)
            describe_batch(guesses, np.ones(1, kernel.SETTINGS), out[:, MEMORY_SIZE:], 0, 1)


def _kind(ledger: np.dtype | None, free_red: bool) -> str:
    """What is compiled, as marks call it: a ledger of another size is another type."""
    return f"{'free' if free_red else ''}ledger{0 if ledger is None else ledger.itemsize}"


def _mark(entry_point: Any, what: str) -> Path:
    """The file that says that the code is in the cache. Its name has the entry point's qualified name, and with it the
    digest of its sources, Numba and the CPU."""
    return Path(entry_point.stats.cache_path or "") / f"stockade-{what}-{entry_point.py_func.__qualname__}.compiled"


def _is_worker() -> bool:
    """This process was started by another one that has announced what there is to wait for, or by Ray."""
    started = any(part.startswith(_WORKERS[0]) or part.endswith(_WORKERS[1]) for part in sys.orig_argv)
    return started or multiprocessing.parent_process() is not None


@contextlib.contextmanager
def alone(entry_point: Any, what: str, seconds: int) -> Iterator[None]:
    """If the code is not marked as compiled, in about `seconds`: wait until no other process compiles, then mark it."""
    mark = _mark(entry_point, what)
    if mark.exists():
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # where nothing can be written, nothing is shared either
            mark.parent.mkdir(parents=True, exist_ok=True)
            _lock(stack.enter_context((mark.parent / "stockade-compile.lock").open("a")).fileno())
        # The process that had the lock before may have compiled it. There may be no standard error.
        if seconds > 1 and sys.stderr is not None and not mark.exists() and not _is_worker():
            print(f"compiling the simulator, once per machine (about {seconds} s) ...", file=sys.stderr, flush=True)
        yield
        with contextlib.suppress(OSError):
            mark.touch()


def _lock(file: int) -> None:
    """Wait for the lock, but not for ever: its holder may hang."""
    deadline = time.monotonic() + _PATIENCE
    while fcntl is not None and time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.1)
