"""After each test: no child process, no descriptor, nothing in /dev/shm, that was not there before."""

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

_SHM = Path("/dev/shm")


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fails the test that leaves something behind. Helpers of multiprocessing live as long as we do and may stay."""
    before_fds, before_shm = set(_descriptors()), _shared_memory()
    yield
    deadline = time.monotonic() + 60  # on a busy machine it takes a while to end
    while (children := workers()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not children, f"processes left behind: {children}"
    if _new(before_fds):
        gc.collect()  # takes a sixth of a second once Torch is loaded, so not after every test
    extra = _new(before_fds)
    assert not extra, f"descriptors left behind: {extra}"
    while (entries := _shared_memory() - before_shm) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not entries, f"entries of shared memory left behind: {entries}"


def workers() -> list[psutil.Process]:
    """Child processes of ours that are no helpers of multiprocessing."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            helper = any("resource_tracker" in part or "forkserver" in part for part in child.cmdline())
            if not (helper and child.ppid() == os.getpid()) and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def _descriptors() -> dict[str, str]:
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
    return found


def _new(before: set[str]) -> dict[str, str]:
    """Descriptors of the kinds that vector environments use. The fork server keeps a pipe of its own once it runs."""
    kinds = ("socket:", "anon_inode:[eventfd]", "anon_inode:[eventpoll]", "/memfd:", "anon_inode:[pidfd]")
    return {fd: target for fd, target in _descriptors().items() if fd not in before and target.startswith(kinds)}


def _shared_memory() -> set[str]:
    """Entries that could be ours; those of other programs come and go beside us."""
    if not _SHM.exists():
        return set()
    marks = ("stockade", f"-{os.getpid()}-", f"_{os.getpid()}_")
    return {entry.name for entry in _SHM.iterdir() if any(mark in entry.name for mark in marks)}
