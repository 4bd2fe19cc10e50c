"""Ctrl-C while the command `stockade` starts: one line and exit code 130, at any moment.

An exception in the middle of an import can surface as another one, as a traceback, or as death by the signal. So until
the command does its work, and whenever it imports what is slow, Ctrl-C ends the process at once: there is nothing to
lose yet. `stockade/__init__.py` imports this first; in other programs it changes nothing.
"""

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

_script = next((argument for argument in sys.orig_argv[1:] if not argument.startswith("-")), "")
#: This process is the command: `stockade ...` or `python -m stockade.cli ...`, and none of its workers.
IS_COMMAND = os.path.basename(_script) in ("stockade", "stockade.exe", "stockade.cli")


def end(number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
    """Say that the command was interrupted, and end it."""
    with contextlib.suppress(OSError):
        os.write(2, b"stockade: interrupted\n")
    os._exit(130)


def end_after_cleaning_up() -> None:
    """The same once the command has begun to work. Python would instead die by the signal if the interrupt passed
    through code that was compiled from text, which cannot be known."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    atexit._run_exitfuncs()
    end()


def raise_once(number: int, frame: FrameType | None) -> None:
    """A KeyboardInterrupt; another Ctrl-C ends at once, or it could be lost in a destructor on the way out."""
    signal.signal(signal.SIGINT, end)
    raise KeyboardInterrupt


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """In the command, Ctrl-C inside ends the process at once."""
    before = signal.getsignal(signal.SIGINT)
    takes_over = IS_COMMAND and before in (signal.default_int_handler, raise_once)
    if takes_over:
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        if takes_over:
            signal.signal(signal.SIGINT, before)


def as_exceptions() -> None:
    """The command begins its work: from now on Ctrl-C is a KeyboardInterrupt."""
    if IS_COMMAND and signal.getsignal(signal.SIGINT) is end:
        signal.signal(signal.SIGINT, raise_once)


if IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end)
