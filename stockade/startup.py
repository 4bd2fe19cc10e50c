"""What a process does before anything slow is imported: end with its parent, and not hang where memory is scarce.

`stockade/__init__.py` imports this first, so it needs nothing but the standard library.
"""

import contextlib
import multiprocessing.util
import os
import signal
import sys
from pathlib import Path

PARENT = "STOCKADE_PARENT"
"""Environment variable of a process that we start: the process id of its parent, or nothing if it must not die with the
thread that starts it."""
WORKER = "stockade-worker-"
"""How the names of worker processes begin."""
_PR_SET_PDEATHSIG = 1
_SCARCE, _NEEDED = 1 << 30, 370 << 20


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
    if not multiprocessing.current_process().name.startswith(WORKER):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def require_memory() -> None:
    """Under a small limit of memory (`ulimit -v`): one thread for OpenBLAS, and an error if even that will not do.

    While it is loaded, OpenBLAS asks for memory again and again until it gets some, which would look like a hang.
    """
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        free = limit - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
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


_parent = os.environ.pop(PARENT, None)
if _parent is not None and "multiprocessing.spawn" in sys.modules:
    multiprocessing.util.register_after_fork(unblock_interrupts, unblock_interrupts)
    if _parent:
        die_with_starter(int(_parent))
require_memory()
