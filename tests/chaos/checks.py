"""What every scenario of the chaos run uses: commands to disturb, what must hold when they end, what may not be left.

Everything is forked from one process that has loaded Torch and the kernels, so that a command costs a fraction of a
second. That process and each scenario are subreapers: whatever they started, and lost, comes back to them.
"""

import atexit
import contextlib
import ctypes
import errno
import gc
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import psutil

from tests.chaos.world import Violation
from tests.processes import gone
from tests.vector import leaks

SETTLE_SECONDS = 3.0  #: after the end of a command nothing of it may run any more
HANG_SECONDS = 60.0  #: no command here takes a tenth of it
_SUBREAPER, _NEW_MOUNTS, _PRIVATE = 36, 0x20000, 0x44000
#: What nobody should see, whatever happened.
_UGLY = re.compile(r"Traceback \(most recent|Exception ignored|Fatal Python|resource_tracker:|leaked|core dumped")
_libc = ctypes.CDLL(None, use_errno=True)


class Event:
    """One scenario at work: its number, its chances, its folder, and what it has done to the others."""

    def __init__(self, number: int, chance: random.Random, folder: Path, references: Path) -> None:
        self.number, self.chance, self.folder, self.references = number, chance, folder, references
        self.can_mount = own_shared_memory()
        folder.mkdir(parents=True)

    def count(self, fault: str) -> None:
        """A fault was injected."""
        with (self.folder / "faults.txt").open("a") as file:
            file.write(fault + "\n")
        self.note(fault)

    def note(self, text: str) -> None:
        """For whoever looks into the folder of a failure."""
        with (self.folder / "notes.txt").open("a") as file:
            file.write(f"{time.monotonic():.3f} {text}\n")


def subreaper() -> None:
    """Orphans among our descendants become our children, so that they can be found."""
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)


def own_shared_memory() -> bool:
    """Whether /dev/shm is ours alone, and small disks can be mounted: in a mount namespace of our own, if allowed."""
    return os.environ.get("CHAOS_NAMESPACE") == str(os.getuid())


def enter_namespace() -> None:
    """Try to get one. What is mounted in it goes with the last process in it."""
    if _libc.unshare(_NEW_MOUNTS) == 0 and _libc.mount(b"none", b"/", None, _PRIVATE, None) == 0:
        mount(Path("/dev/shm"), "1g")
        os.environ["CHAOS_NAMESPACE"] = str(os.getuid())


def mount(place: Path, size: str, again: bool = False) -> None:
    """A file system in memory, of a size; `again` changes the size of one."""
    place.mkdir(exist_ok=True)
    if _libc.mount(b"chaos", bytes(place), b"tmpfs", 0x20 if again else 0, f"size={size}".encode()):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(place))


def unmount(place: Path, keep: Path) -> None:
    """Its files are kept elsewhere."""
    shutil.copytree(place, keep, symlinks=True)
    _libc.umount2(bytes(place), 2)


# ------------------------------------------------------------------------------------------------------------ processes
def forked(function: Callable[[], Any], output: Path | None = None) -> int:
    """Run it in a child with a session and, if asked for, an output of its own; its process id.

    It ends as a program does: exit code of SystemExit, traceback of anything else, then threads and atexit.
    """
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        if pid := os.fork():
            return pid
        _be_a_program(function, output, signals)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)


def _be_a_program(function: Callable[[], Any], output: Path | None, blocked: set[signal.Signals]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if output is not None:
            for number, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(output.with_suffix(f".{name}"), os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        code = int(function() or 0)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except KeyboardInterrupt:
        code = 130  # it came before or after the command itself, where Python would say so
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def patience(seconds: float) -> float:
    """That long on an idle machine; longer where others compete for the cores."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def waited(pid: int, seconds: float) -> int | None:
    """Wait for a child; its exit code, or None if it still runs after so long."""
    deadline = time.monotonic() + seconds
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            return None
        time.sleep(0.003)
    return os.waitstatus_to_exitcode(ended[1])


class Command:
    """A command of ours at work: forked, or (cold) in a new interpreter, where the first seconds are different."""

    _count = 0

    def __init__(self, event: Event, *arguments: object, cold: bool = False, before: Callable[[], None] | None = None):
        Command._count += 1
        self.words, self._event = [str(word) for word in arguments], event
        self._output = event.folder / f"command-{Command._count:02d}"
        event.note(f"{self._output.name}: stockade {' '.join(self.words)}")
        self._begin = time.monotonic()
        self.pid = forked(lambda: self._cold() if cold else self._run(before), self._output)
        self.code: int | None = None
        while cold and "ready" not in self.read("out") and self.wait(0.01) is None:
            pass

    def _run(self, before: Callable[[], None] | None) -> None:
        import stockade.cli
        from stockade import startup

        startup.IS_COMMAND = True  # which cannot be seen in our arguments
        signal.signal(signal.SIGINT, startup.end)
        if before is not None:
            before()
        stockade.cli.main(self.words)

    def _cold(self) -> NoReturn:
        """Python itself does not guard its start, so signals come after it."""
        script = "import stockade.cli, sys; print('ready', flush=True); stockade.cli.main(sys.argv[1:])"
        os.execv(sys.executable, [sys.executable, "-c", script, *self.words])

    def read(self, name: str) -> str:
        """What it has said so far."""
        path = self._output.with_suffix(f".{name}")
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, seconds: float | None = None) -> int | None:
        """Until it has ended, or that long; its exit code."""
        if self.code is None:
            self.code = waited(self.pid, patience(HANG_SECONDS) if seconds is None else seconds)
        return self.code

    def signal(self, number: int, group: bool = False) -> None:
        """To it, or to its whole group as a terminal does."""
        self._event.note(f"{self._output.name}: {signal.Signals(number).name}{' to its group' if group else ''}")
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.pid, number)

    def end(self, *codes: int) -> int:
        """Wait for it; it must end with one of these codes, say nothing ugly, and leave no process."""
        if self.wait() is None:
            stacks = [f"{p.pid} {p.status()} {' '.join(p.cmdline())[:90]}" for p in descendants()]
            raise Violation(f"`{' '.join(self.words)}` hangs: {stacks}")
        code, said, errors = int(self.code or 0), self.read("out") + self.read("err"), self.read("err")
        self._event.note(f"{self._output.name}: ended with {code} after {time.monotonic() - self._begin:.2f} s")
        last = (errors.strip() or "nothing").splitlines()[-1]
        if ugly := _UGLY.search(said):
            raise Violation(f"`{' '.join(self.words)}` said {ugly[0]!r} (exit code {code}): {last}")
        if code not in codes:
            raise Violation(f"`{' '.join(self.words)}` ended with {code}, not {codes}: {last}")
        if code == 2 and errors.count("\nstockade: ") + errors.startswith("stockade: ") != 1:
            raise Violation(f"`{' '.join(self.words)}` ended with 2, but not with one line: {errors[-400:]!r}")
        nothing_left(self.words)
        return code


def descendants() -> list[psutil.Process]:
    """Processes below this one that still run; those that have ended are buried."""
    found: list[psutil.Process] = []
    for child in [*psutil.Process().children(recursive=True), *psutil.Process().children(recursive=True)]:
        # asked twice: one that forks and ends while the list is made would hide its child
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.status() != psutil.STATUS_ZOMBIE:
                found += [child] * (child not in found)
            elif child.ppid() == os.getpid():
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)
    return found


def nothing_left(of: Sequence[str], spare: Callable[[psutil.Process], bool] = lambda process: False) -> None:
    """No process and no shared memory, after a moment; processes that are left are killed."""
    deadline, left = time.monotonic() + patience(SETTLE_SECONDS), []
    while time.monotonic() < deadline:
        left = [process for process in descendants() if not spare(process)]
        if not left:
            break
        time.sleep(0.01)
    shown = []
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            shown.append(f"{process.pid} {' '.join(process.cmdline())[:100]}")
            process.kill()
    if shown:
        raise Violation(f"`{' '.join(of)}` left processes: {shown}")
    if entries := set(os.listdir("/dev/shm")) if own_shared_memory() else leaks._shared_memory():
        raise Violation(f"`{' '.join(of)}` left shared memory: {entries}")


@contextlib.contextmanager
def nothing_gained() -> Iterator[None]:
    """For work in this process: no descriptor, no shared memory, no process but multiprocessing's own helpers."""
    before = set(leaks._descriptors())
    yield
    gc.collect()
    if extra := leaks._new(before):
        raise Violation(f"descriptors left: {extra}")
    nothing_left(
        ["vector environment"], lambda p: any("resource_tracker" in w or "forkserver" in w for w in p.cmdline())
    )


def end_all() -> None:
    """Of the processes that we started."""
    while left := descendants():
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(0.02)
    assert gone(process.pid for process in left)


# --------------------------------------------------------------------------------------------------------------- faults
def full_disk_at_times(chance: random.Random, share: float) -> Callable[[], None]:
    """For `Command(before=)`: that share of all syncs of files fail, as on a disk without room."""
    sync, seed = os.fsync, chance.random()

    def patch() -> None:
        own = random.Random(seed)

        def fails(file: Any) -> None:
            if own.random() < share:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(file)

        os.fsync = fails

    return patch
