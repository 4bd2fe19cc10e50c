"""The worker process: build environments -> tell the parent their spaces -> serve commands -> close them.

Two ways to serve, one `EnvSlice`: commands and arrays as messages (`pipes`), or entries in rings and arrays in shared
memory, with messages only for what is rare or has no fixed size (`shared_memory`, `async`).
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium

from stockade.vector.channel import Channel, from_peer, to_parent
from stockade.vector.description import Description, Inheritance, SliceConfig, build_environments, layout_of
from stockade.vector.layout import Buffers
from stockade.vector.machine import die_with, use_one_thread
from stockade.vector.memory import SharedBlock
from stockade.vector.outcome import Failure, Outcome
from stockade.vector.rings import PAYLOAD, STEP_ALL, Ring
from stockade.vector.slice import EnvSlice

_COALESCE = 0.0005
"""Seconds: results of quick environments are announced together, at most this long after the previous announcement."""


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker has to know.

    Attributes:
        factory: makes one environment; pickled, so that a factory that cannot be unpickled is reported.
        first: id of its first environment.
        count: how many it has.
        config: how to step them.
        parent: process id of the parent.
        parent_is_lasting: see `machine.die_with`.
        inheritance: given if this worker replaces one that died.
    """

    factory: bytes
    first: int
    count: int
    config: SliceConfig
    parent: int
    parent_is_lasting: bool
    inheritance: Inheritance | None = None


@dataclass(frozen=True)
class Placement:
    """Where a worker finds its part of the shared block.

    Attributes:
        size: of the block, in bytes.
        environments: rows of all arrays in it.
        commands: offset of its ring of commands.
        replies: offset of its ring of replies.
        ring: size of each ring.
        awake: seconds to wait for a command before the core may sleep.
    """

    size: int
    environments: int
    commands: int
    replies: int
    ring: int
    awake: float


def handle(part: EnvSlice, kind: str, data: Any) -> Outcome:
    """Serve one command that came, or could have come, as a message."""
    if kind == "step":
        return part.step(part.action_reader.all(data))
    if kind == "reset":
        return part.reset(*data)
    if kind == "call":
        return part.call(*data)
    if kind == "set_attr":
        return part.set_attr(*data)
    if kind == "apply":
        return part.apply(*data)
    if kind == "truth":
        return part.refresh_truths()
    if kind == "snapshot":
        return part.snapshot()
    if kind == "restore":
        return part.restore(data)
    raise ValueError(f"unknown command {kind!r}")


def data_for(kind: str, parts: Sequence[Any] | None, common: Any) -> Any:
    """What `handle` takes: the parts of a slice's own environments and what is common to all."""
    if kind == "reset":
        seeds, mask = zip(*(parts or ()), strict=True)
        return seeds, common, mask
    if kind in ("set_attr", "apply"):
        return common, parts
    return common if parts is None else parts


def run_worker(end: socket.socket, pickled: bytes, inherited: tuple[int, ...]) -> None:
    """The process's main function.

    Args:
        end: its end of the channel.
        pickled: its `WorkerSpec`.
        inherited: descriptors of the parent that a forked child has and must not keep.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for fd in inherited:
        os.close(fd)
    channel = Channel(end, patient=True)
    try:
        spec: WorkerSpec = from_peer(pickled)
        die_with(spec.parent, spec.parent_is_lasting)
        use_one_thread()
        environments = build_environments(from_peer(spec.factory), spec.count)
    except Exception as exception:
        channel.send(to_parent(Failure.of(exception, -1, "construction", None, None, 0)))
        return
    description = Description.of(environments[0])
    try:
        channel.send(to_parent(description))
        placement = from_peer(channel.receive())
        if placement is None:
            _serve_messages(channel, spec, environments)
        else:
            _serve_rings(channel, spec, environments, placement)
    except EOFError:
        for environment in environments:  # the parent is gone, or gave us up
            environment.close()


def _serve_messages(channel: Channel, spec: WorkerSpec, environments: list[gymnasium.Env[Any, Any]]) -> None:
    """Everything by message: (kind, sequence, data) in, (sequence, outcome, arrays) out."""
    buffers = Buffers.allocate(layout_of(environments[0]), spec.count)
    buffers.age[:] = -1
    if spec.inheritance is not None and spec.inheritance.results is not None:
        buffers.put_results(0, spec.count, spec.inheritance.results)
    part = EnvSlice(environments, spec.first, buffers, spec.config, spec.inheritance)
    while True:
        kind, sequence, data = from_peer(channel.receive())
        if kind == "close":
            part.close()
            return
        outcome = handle(part, kind, data)
        results = buffers.results() if kind in ("step", "reset", "truth") else None
        channel.send(_safely_pickled((sequence, outcome, results), spec, kind))


def _serve_rings(
    channel: Channel, spec: WorkerSpec, environments: list[gymnasium.Env[Any, Any]], placement: Placement
) -> None:
    """Commands from one ring, replies to the other, arrays in shared memory."""
    block_fd, command_fd, reply_fd = channel.receive_fds()
    block = SharedBlock(block_fd, placement.size)
    block.close_fd()
    commands = Ring(block.view[placement.commands : placement.commands + placement.ring], command_fd)
    replies = _Replies(
        Ring(block.view[placement.replies : placement.replies + placement.ring], reply_fd), channel, spec
    )
    everything = Buffers.allocate(layout_of(environments[0]), placement.environments, block.view)
    buffers = everything.part(spec.first, spec.first + spec.count)
    part = EnvSlice(environments, spec.first, buffers, spec.config, spec.inheritance)
    read, actions = part.action_reader, buffers.actions
    known = 0
    while True:
        if not known:
            replies.flush()
            known = commands.wait(placement.awake)
        known -= 1
        sequence, code = commands.pop()
        if code < STEP_ALL:
            replies.add(sequence, code, part.step_one(code, read.one(actions, code)))
        elif code == STEP_ALL:
            replies.add(sequence, code, part.step(read.all(actions)))
        else:
            kind, data = from_peer(channel.receive())
            if kind == "close":
                part.close()
                return
            if kind == "reset_one":
                i, seed, options = data
                replies.add(sequence, i, part.reset_one(i, seed, options))
            else:
                replies.add(sequence, code, handle(part, kind, data))


class _Replies:
    """Replies on their way to the parent, announced together where that saves waking it."""

    def __init__(self, ring: Ring, channel: Channel, spec: WorkerSpec) -> None:
        self._ring = ring
        self._channel = channel
        self._spec = spec
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
            self._channel.send(_safely_pickled(self._outcomes, self._spec, "reply"))
        self._waiting, self._outcomes = [], []
        self._last = time.perf_counter()


def _safely_pickled(message: Any, spec: WorkerSpec, during: str) -> bytes:
    """The message, or if it cannot be pickled, a failure of the same form that says so."""
    try:
        return to_parent(message)
    except Exception as exception:
        note = TypeError(f"a value that an environment returned cannot be sent to the parent process: {exception}")
        failed = Outcome(failures=[Failure.of(note, spec.first, during, None, None, 0)])
        if isinstance(message, tuple):
            return to_parent((message[0], failed, message[2]))
        return to_parent([failed] * len(message))
