"""What a process does before anything slow is imported: end with its parent, not hang where memory is scarce, and as
the command `stockade` end well on Ctrl-C: with one line and exit code 130, at any moment.

An exception in the middle of an import can surface as another one, as a traceback, or as death by the signal. So until
the command does its work, and whenever it imports what is slow, Ctrl-C ends the process at once: there is nothing to
lose yet. `stockade/__init__.py` imports this first, so it needs nothing but the standard library.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

PARENT = "STOCKADE_PARENT"
"""Environment variable of a process that we start: the process id of its parent, or nothing if it must not die with the
thread that starts it."""
WORKER = "stockade-worker-"
"""How the names of worker processes begin."""
_PR_SET_PDEATHSIG = 1
_SCARCE, _NEEDED = 1 << 30, 370 << 20
_script = next((argument for argument in sys.orig_argv[1:] if not argument.startswith("-")), "")
#: This process is the command: `stockade ...` or `python -m stockade.cli ...`, and none of its workers.
IS_COMMAND = os.path.basename(_script) in ("stockade", "stockade.exe", "stockade.cli")


# --------------------------------------------------------------------------------------------------------------- Ctrl-C
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


def _raise_once(number: int, frame: FrameType | None) -> None:
    """A KeyboardInterrupt; another Ctrl-C ends at once, or it could be lost in a destructor on the way out."""
    signal.signal(signal.SIGINT, end)
    raise KeyboardInterrupt


def _raise_again(lost: Any) -> None:
    """A KeyboardInterrupt inside a callback of compiled code, or a destructor, goes no further: it comes once more."""
    if lost.exc_type is not KeyboardInterrupt:
        return sys.__unraisablehook__(lost)
    signal.signal(signal.SIGINT, _raise_once)
    later = threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    later.daemon = True
    later.start()


def interrupts_as_exceptions() -> None:
    """The command begins its work: from now on Ctrl-C is a KeyboardInterrupt."""
    if IS_COMMAND and signal.getsignal(signal.SIGINT) is end:
        signal.signal(signal.SIGINT, _raise_once)
        sys.unraisablehook = _raise_again


@contextlib.contextmanager
def interrupts_at_once() -> Iterator[None]:
    """In the command, Ctrl-C inside ends the process at once."""
    before = signal.getsignal(signal.SIGINT)
    takes_over = IS_COMMAND and before in (signal.default_int_handler, _raise_once)
    if takes_over:
        signal.signal(signal.SIGINT, end)
    yield
    if takes_over:
        signal.signal(signal.SIGINT, before)


# ---------------------------------------------------------------------------------------------------- parent and memory
def die_with_starter(parent: int | None = None) -> None:
    """Let the kernel kill this process when the thread that started it ends; at once if it is no child of `parent`."""
    import ctypes

    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)  # it has ended before we asked


def unblock_interrupts(_: object) -> None:
    """Let Ctrl-C reach a process that our fork server, in which it is blocked, starts for somebody else."""
    if not sys.modules["multiprocessing"].current_process().name.startswith(WORKER):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def require_memory() -> None:
    """Under a small limit of memory (`ulimit -v`): one thread for OpenBLAS, and an error if even that will not do.

    While it is loaded, OpenBLAS asks for memory again and again until it gets some, which would look like a hang.
    """
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        with open("/proc/self/statm") as file:
            free = limit - int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):  # no such limits here
        return
    if not 0 <= limit < _SCARCE or "numba" in sys.modules:
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if free < _NEEDED:
        raise MemoryError(
            f"{free >> 20} MiB of memory are free under the limit of this process, Stockade and its libraries need "
            f"{_NEEDED >> 20} MiB: raise the limit (ulimit -v)"
        )


if IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end)
    # The first registered is the last called: a Ctrl-C while Python takes itself apart changes no exit code.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
_parent = os.environ.pop(PARENT, None)
if _parent is not None and "multiprocessing.spawn" in sys.modules:
    from multiprocessing.util import register_after_fork

    register_after_fork(unblock_interrupts, unblock_interrupts)
    if _parent:
        die_with_starter(int(_parent))
require_memory()
