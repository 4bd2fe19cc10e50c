"""Questions about processes that may end at any moment, and the one bound of all tests that wait for something."""

import textwrap
import time
from collections.abc import Callable, Iterable

import psutil

PATIENCE = 300.0
"""Seconds until what a test waits for counts as hanging: far more than anything takes on a slow and busy machine."""


def wait_until(condition: Callable[[], object], otherwise: str) -> None:
    """Wait until the condition holds; what hangs fails the test with `otherwise`."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)


def wait_until_gone(pids: Iterable[int], otherwise: str = "workers have outlived their parent") -> None:
    """Wait until these processes have ended."""
    pids = list(pids)
    wait_until(lambda: gone(pids), otherwise)


def after_calls(module: str, method: str, calls: int, then: str) -> str:
    """Code for the beginning of a script that does something, such as to kill itself, once a method of a class has been
    called so many times: so no clock decides when."""
    return textwrap.dedent(f"""
        import os
        from {module} import {method.split(".")[0]}
        def counted(*arguments, real={method}, calls=[], **options):
            result = real(*arguments, **options)
            calls.append(None)
            if len(calls) == {calls}:
                {then}
            return result
        {method} = counted
    """)


def gone(pids: Iterable[int]) -> bool:
    """Whether these processes have ended."""
    return not any(map(_runs, pids))


def _runs(pid: int) -> bool:
    """It may end between any two questions."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
