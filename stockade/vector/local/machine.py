"""What the machine offers (memory, open files), and processes on it: how they start, behave, die with their parent."""

import contextlib
import os
import select
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any, Literal

from stockade.errors import UnsupportedFeatureError
from stockade.startup import PARENT, die_with_starter

StartMethod = Literal["fork", "forkserver", "spawn"]

_LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
ONE_THREAD = {**{f"{name}_NUM_THREADS": "1" for name in _LIBRARIES}, "VECLIB_MAXIMUM_THREADS": "1"}
"""Environment variables that keep numerical libraries to one thread."""
_CGROUP = Path("/sys/fs/cgroup")
_start_lock = threading.Lock()
REAP_SECONDS = 0.1  #: until `multiprocessing` can know that the fork server is dead, and starts another one


def available_memory() -> int | None:
    """Bytes that can still be allocated: the machine's and the cgroup's limit respected. None if unknown."""
    found = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
        limit = (_CGROUP / "memory.max").read_text().strip()
        if limit != "max":
            found.append(int(limit) - int((_CGROUP / "memory.current").read_text()))
    except (OSError, ValueError, IndexError):
        pass  # not Linux, or no such cgroup: what was found counts
    return min(found) if found else None


def allow_open_files(count: int) -> None:
    """Raise the soft limit of open files if `count` more would not fit; fail with the remedy if that is not allowed."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/dev/fd")) if os.path.isdir("/dev/fd") else 64
    needed = in_use + count + 64
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise UnsupportedFeatureError(
            f"this many workers need {needed} open files, the limit is {hard}: take fewer (workers=), "
            f"or raise the limit with `ulimit -n {needed}`"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


@contextlib.contextmanager
def variables_set(values: dict[str, str]) -> Iterator[None]:
    """Environment variables for processes that are started inside, unless the user says otherwise."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextlib.contextmanager
def ready_to_start(start_method: StartMethod, modules: tuple[str, ...]) -> Iterator[None]:
    """Start processes that use one thread, do not import the user's script again, and find our modules loaded.

    Workers get what they run by value (cloudpickle) and do not need the script, so it is hidden from `multiprocessing`
    while they start: no `if __name__ == "__main__"` is needed, and 200 workers do not import Torch 200 times. The fork
    server imports `modules` once, for all, if it does not run yet: that is from the first process on.

    Ctrl-C is the parent's alone: what is started here has SIGINT blocked until it ignores it. See also
    `startup.unblock_interrupts`.
    """
    with _start_lock, variables_set(ONE_THREAD), contextlib.ExitStack() as stack:
        if start_method == "fork":
            stack.enter_context(interrupts_held())
            yield
            return
        resource_tracker.ensure_running()  # which would unblock SIGINT, if it were started later
        stack.enter_context(variables_set({PARENT: str(os.getpid()) if is_lasting() else ""}))
        script = sys.modules["__main__"]
        stack.callback(sys.modules.__setitem__, "__main__", script)
        sys.modules["__main__"] = types.ModuleType("__main__")
        if start_method == "forkserver":
            server: Any = forkserver
            known = getattr(server._forkserver, "_preload_modules", [])
            server.set_forkserver_preload(list(dict.fromkeys([*known, *modules])))
            with interrupts_held():  # not longer: it may take a while until it serves
                try:
                    server.ensure_running()
                except ChildProcessError:  # it is dead, and somebody else has waited for it
                    os.close(server._forkserver._forkserver_alive_fd)
                    server._forkserver._forkserver_pid = None
                    server.ensure_running()
        else:
            stack.enter_context(interrupts_held())
        yield


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """A Ctrl-C comes after this, and never to processes that are started inside.

    To block it in this thread is not enough: a library's thread may receive it, and Python then raises it here.
    """
    held: list[int] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handler = signal.getsignal(signal.SIGINT) if is_lasting() else None
    try:
        if handler is not None:
            signal.signal(signal.SIGINT, lambda number, frame: held.append(number))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
        if held:
            signal.raise_signal(signal.SIGINT)


def is_lasting() -> bool:
    """Whether this thread lives as long as the process."""
    return threading.current_thread() is threading.main_thread()


def ignore_interrupts() -> None:
    """In a worker: Ctrl-C is the parent's, which ends us by SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def use_one_thread() -> None:
    """In a worker: one thread for what is already loaded (a forked child inherits loaded libraries)."""
    for name, one in ONE_THREAD.items():
        os.environ.setdefault(name, one)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    if "threadpoolctl" in sys.modules:
        sys.modules["threadpoolctl"].threadpool_limits(1)


def die_with(parent: int, parent_is_lasting: bool) -> None:
    """In a worker: end when the process `parent` does, even in the middle of a step.

    A thread sleeps on the parent's pidfd, which nothing else can keep alive. `PR_SET_PDEATHSIG` helps where the
    interpreter is stuck in native code; it fires when the *thread* that forked us ends, so it is only used if that one
    lasts (`parent_is_lasting`): the fork server, or the main thread.
    """
    if parent_is_lasting:
        die_with_starter()
    threading.Thread(target=_wait_and_die, args=(parent,), name="stockade-parent-watch", daemon=True).start()


def _wait_and_die(parent: int) -> None:
    try:
        waiter = select.poll()
        waiter.register(os.pidfd_open(parent), select.POLLIN)
        waiter.poll()
    except ProcessLookupError:
        pass  # it has ended already
    except (OSError, AttributeError):  # no pidfd here: ask twice a second
        with contextlib.suppress(OSError):
            while True:
                os.kill(parent, 0)
                time.sleep(0.5)
    os._exit(1)


def describe_exit(code: int | None) -> str:
    if code is None:
        return "ended, nobody knows how"
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hints = {"SIGKILL": "somebody's kill -9, or the kernel was out of memory", "SIGSEGV": "a fault in native code",
             "SIGBUS": "a fault in native code, or out of memory"}  # fmt: skip
    return f"was ended by {name} ({hints[name]})" if name in hints else f"was ended by {name}"
