"""Shared memory without a name: parent allocates -> the descriptor travels over the worker's socket -> both map it.

The block is a memfd, so nothing can be left behind in /dev/shm: the kernel frees it when the last process that maps it
is gone, however that ends.
"""

from __future__ import annotations

import contextlib
import mmap
import os

from stockade.errors import SharedMemoryError
from stockade.vector.local.machine import available_memory


class SharedBlock:
    """A block of anonymous shared memory: `fd` for other processes, `size` in bytes, `view` of the memory."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self._map = mmap.mmap(fd, size)
        self.view = memoryview(self._map)

    @classmethod
    def allocate(cls, size: int) -> SharedBlock:
        """A new block, its pages reserved, so that the want of memory shows now and not as a SIGBUS later."""
        size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        free = available_memory()
        if free is not None and size > free:
            raise SharedMemoryError(_too_big(size, free))
        fd = os.memfd_create("stockade", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            os.posix_fallocate(fd, 0, size)
            return cls(fd, size)
        except OSError as error:
            os.close(fd)
            raise SharedMemoryError(_too_big(size, free)) from error

    def close_fd(self) -> None:
        """Close the descriptor; the mapping lives on."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def close(self) -> None:
        """Give the memory back, or let that happen when the user lets go of arrays on it (`copy=False`)."""
        self.close_fd()
        with contextlib.suppress(BufferError):
            self.view.release()
            self._map.close()


def _too_big(size: int, free: int | None) -> str:
    known = "" if free is None else f", {free / 2**20:,.0f} MiB are available"
    return (
        f"the environments' arrays need {size / 2**20:,.0f} MiB of shared memory{known}: "
        f"take fewer environments or smaller observations, or raise the memory limit"
    )
