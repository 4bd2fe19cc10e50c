"""Questions about processes that may end at any moment."""

from collections.abc import Iterable

import psutil


def gone(pids: Iterable[int]) -> bool:
    """Whether these processes have ended."""
    return not any(map(_runs, pids))


def _runs(pid: int) -> bool:
    """It may end between any two questions."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
