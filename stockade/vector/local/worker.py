"""The worker process: build environments -> send their spaces to the parent -> serve commands -> close them.

Two ways to serve, one `SliceHost`: commands and arrays as messages (`pipes`), or entries in rings and arrays in shared
memory, with messages only for what is rare or has no fixed size (`shared_memory`, `async`).
"""

import contextlib
import os
import socket
import time
from dataclasses import dataclass

from stockade.vector.host import SliceHost
from stockade.vector.local.channel import Channel, from_peer, to_parent
from stockade.vector.local.machine import die_with, ignore_interrupts, use_one_thread
from stockade.vector.local.shared import PAYLOAD, STEP_ALL, Ring, SharedBlock
from stockade.vector.outcome import Failure, Outcome
from stockade.vector.spaces import Buffers, rows_of

_COALESCE = 0.0005
"""Seconds: results of quick environments are announced together, at most this long after the previous announcement."""


@dataclass(frozen=True)
class Placement:
    """Where a worker finds its part of the shared block."""

    size: int  # of the block, in bytes
    environments: int  # rows of all arrays in it
    rings: int  # offset of its rings, commands first, then replies
    ring: int  # size of each ring
    awake: float  # seconds to wait for a command before the core may sleep

    def open_rings(self, view: memoryview, command_fd: int, reply_fd: int) -> tuple[Ring, Ring]:
        middle, end = self.rings + self.ring, self.rings + 2 * self.ring
        return Ring(view[self.rings : middle], command_fd), Ring(view[middle:end], reply_fd)


def run_worker(end: socket.socket, pickled: bytes, parent: int, lasting: bool, inherited: tuple[int, ...]) -> None:
    """The process's main function: its end of the channel, its `SliceSpec`, and the process id of its parent.

    `lasting`: whether the thread that forked us lasts, see `machine.die_with`. `inherited`: descriptors of the parent
    that a forked child has and must not keep.
    """
    ignore_interrupts()
    for fd in inherited:
        os.close(fd)
    channel = Channel(end)
    with contextlib.suppress(EOFError):  # the parent is gone, or gave us up
        try:
            die_with(parent, lasting)
            use_one_thread()
            host = SliceHost(from_peer(pickled))
        except Exception as exception:
            channel.send(to_parent(Failure.of(exception, -1, "construction", None, None, 0)))
            return
        try:
            channel.send(to_parent(host.description))
            placement = from_peer(channel.receive())
            if placement is None:
                host.open()
                _serve_messages(channel, host)
            else:
                _serve_rings(channel, host, placement)
        finally:
            host.close()


def _serve_messages(channel: Channel, host: SliceHost) -> None:
    """Everything by message: (kind, sequence, arguments) in, (sequence, outcome, arrays) out."""
    while True:
        kind, sequence, arguments = from_peer(channel.receive())
        if kind == "close":
            return
        channel.send(host.serve(kind, sequence, arguments))


def _serve_rings(channel: Channel, host: SliceHost, placement: Placement) -> None:
    """Commands from one ring, replies to the other, arrays in shared memory."""
    block_fd, *signals = channel.receive_fds()
    block = SharedBlock(block_fd, placement.size)
    block.close_fd()
    commands, ring = placement.open_rings(block.view, *signals)
    replies = _Replies(ring, channel, host)
    everything = Buffers.allocate(host.description.layout, placement.environments, block.view)
    buffers = everything.part(host.spec.first, host.spec.stop)
    host.open(buffers)
    part, actions = host.part, buffers.actions
    known = 0
    while True:
        if not known:
            replies.flush()
            known = commands.wait(placement.awake)
        known -= 1
        sequence, code = commands.pop()
        if code < STEP_ALL:
            replies.add(sequence, code, part.step_some((code,), rows_of(actions, slice(code, code + 1))))
        elif code == STEP_ALL:
            replies.add(sequence, code, part.step(actions))
        else:
            kind, arguments = from_peer(channel.receive())
            if kind == "close":
                return
            replies.add(sequence, code, host.handle(kind, arguments))


class _Replies:
    """Replies on their way to the parent, announced together where that saves waking it."""

    def __init__(self, ring: Ring, channel: Channel, host: SliceHost) -> None:
        self._ring = ring
        self._channel = channel
        self._host = host
        self._waiting: list[tuple[int, int]] = []
        self._outcomes: list[Outcome] = []
        self._last = 0.0

    def add(self, sequence: int, code: int, outcome: Outcome) -> None:
        """Take a reply; it goes out now if the parent has not heard of us for a while."""
        if outcome:
            code |= PAYLOAD
            self._outcomes.append(outcome)
        elif code == STEP_ALL:  # mostly; and nothing else can be waiting
            self._ring.post(sequence, code)
            return
        self._waiting.append((sequence, code))
        if time.perf_counter() - self._last > _COALESCE:
            self.flush()

    def flush(self) -> None:
        """Send what waits. The signal goes first: the parent must be reading before a long message can pass."""
        if not self._waiting:
            return
        for sequence, code in self._waiting:
            self._ring.push(sequence, code)
        self._ring.announce(len(self._waiting))
        if self._outcomes:
            self._channel.send(to_parent([self._host.pickled(each, [each], "reply") for each in self._outcomes]))
        self._waiting, self._outcomes = [], []
        self._last = time.perf_counter()
