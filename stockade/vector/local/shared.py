"""Shared memory without a name, and the two rings per worker in it that carry commands and replies.

The block is a memfd: parent allocates -> the descriptor travels over the worker's socket -> both map it. Nothing can be
left behind in /dev/shm: the kernel frees it when the last process that maps it is gone, however that ends.

One side pushes entries and announces k of them -> eventfd -> the other's wait() gives k, and it pops k entries. Nobody
reads an index that the other side writes: what is new is known from the eventfd alone, whose kernel lock also orders
the memory. An eventfd costs half of what a pipe or a socket does.
"""

import contextlib
import mmap
import os
import select
import time
from typing import Self

from stockade.errors import SharedMemoryError
from stockade.vector.local.machine import available_memory

STEP_ALL = 1 << 30
"""Code of an entry: step all environments of the worker. Codes below it step one environment, given by its place."""
MESSAGE = STEP_ALL + 1
"""Code of an entry: there is a message on the channel."""
PAYLOAD = 1 << 31
"""Flag of a reply: its outcome follows on the channel (one message for all replies that are announced together)."""

_CODE_BITS = 32
_SPARE = 8


class Ring:
    """One side's view of a ring: the producer pushes and announces, the consumer waits and pops.

    `slots` is the ring's part of shared memory, `fd` its eventfd.
    """

    def __init__(self, slots: memoryview, fd: int) -> None:
        self._slots = slots.cast("q")
        self._size = len(self._slots)
        self._next = 0
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self.fd = fd
        self.release = self._slots.release

    def push(self, sequence: int, code: int) -> None:
        """Write an entry; it is not known to the other side before `announce`."""
        self._slots[self._next] = sequence << _CODE_BITS | code
        self._next = (self._next + 1) % self._size

    def announce(self, count: int) -> None:
        """Tell the other side that there are `count` more entries."""
        os.eventfd_write(self.fd, count)

    def post(self, sequence: int, code: int) -> None:
        self.push(sequence, code)
        os.eventfd_write(self.fd, 1)

    def wait(self, awake: float = 0.0) -> int:
        """Number of new entries; blocks if there are none and the eventfd is a blocking one.

        For `awake` seconds the core is kept from sleeping, because waking it can take 0.1 ms on a virtual machine. It
        is offered to others all the time, so that the parent gets it at once if it needs it.
        """
        if awake:
            end = time.perf_counter() + awake
            while not self._poll.poll(0) and time.perf_counter() < end:
                os.sched_yield()
        return os.eventfd_read(self.fd)

    def pop(self) -> tuple[int, int]:
        """The next entry: (sequence, code)."""
        entry = self._slots[self._next]
        self._next = (self._next + 1) % self._size
        return entry >> _CODE_BITS, entry & ((1 << _CODE_BITS) - 1)


def ring_bytes(environments: int) -> int:
    """Size of a ring for a worker with so many environments: one entry each, and a few for messages."""
    return 64 * -(-(environments + _SPARE) // 8)


class SharedBlock:
    """A block of anonymous shared memory: `fd` for other processes, `size` in bytes, `view` of the memory."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd = fd
        self.size = size
        self._map = mmap.mmap(fd, size)
        self.view = memoryview(self._map)

    @classmethod
    def allocate(cls, size: int) -> Self:
        """A new block, its pages reserved, so that a lack of memory shows now and not as a SIGBUS later."""
        size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        free = available_memory()
        known = "" if free is None else f", {free / 2**20:,.0f} MiB are available"
        too_big = SharedMemoryError(
            f"the environments' arrays need {size / 2**20:,.0f} MiB of shared memory{known}: "
            f"take fewer environments or smaller observations, or raise the memory limit"
        )
        if free is not None and size > free:
            raise too_big
        fd = os.memfd_create("stockade", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            os.posix_fallocate(fd, 0, size)
            return cls(fd, size)
        except OSError as error:
            os.close(fd)
            raise too_big from error

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
