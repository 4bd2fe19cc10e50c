"""Messages between parent and worker: object -> pickle -> length and bytes over a socket pair -> object.

The parent never waits for longer than its deadline, whatever the worker does; the worker has none.
"""

import contextlib
import gc
import pickle
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import cloudpickle

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 20
_MAX_FDS = 8
_LARGE = 1 << 16
_GONE = "the other side is gone"
#: Seconds. A Ctrl-C that comes between Python's last look for signals and its falling asleep does not wake it.
LONGEST_SLEEP = 1.0


class Channel:
    """One end of a connection.

    Everything raises EOFError if the other side is gone, and TimeoutError if the deadline has passed; without one, it
    blocks.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self.close = end.close

    @property
    def fd(self) -> int:
        return self._socket.fileno()

    def send(self, payload: bytes, deadline: float | None = None) -> None:
        length = _LENGTH.pack(len(payload))
        self._socket.settimeout(_seconds_until(deadline))
        try:
            for part in (length + payload,) if len(payload) <= _CHUNK else (length, payload):
                self._socket.sendall(part)
        except ConnectionError as error:
            raise EOFError(_GONE) from error

    def receive(self, deadline: float | None = None) -> bytes:
        (length,) = _LENGTH.unpack(self._receive_exactly(_LENGTH.size, deadline))
        return self._receive_exactly(length, deadline)

    def send_fds(self, fds: list[int]) -> None:
        try:
            socket.send_fds(self._socket, [b"f"], fds)
        except ConnectionError as error:
            raise EOFError(_GONE) from error

    def receive_fds(self) -> list[int]:
        data, fds, _, _ = socket.recv_fds(self._socket, 1, _MAX_FDS)
        if not data:
            raise EOFError(_GONE)
        return list(fds)

    def _receive_exactly(self, length: int, deadline: float | None) -> bytes:
        parts, missing = [], length
        while missing:
            self._socket.settimeout(_seconds_until(deadline))
            try:
                part = self._socket.recv(min(missing, _CHUNK))
            except ConnectionError as error:
                raise EOFError(_GONE) from error
            if not part:
                raise EOFError(_GONE)
            parts.append(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _seconds_until(deadline: float | None) -> float | None:
    """For sockets: None waits for ever; never zero, which would mean not to wait for anything."""
    return None if deadline is None else max(0.001, deadline - time.monotonic())


def seconds_to_sleep(seconds: float | None) -> float:
    """At most `LONGEST_SLEEP` of them; None is for ever."""
    return LONGEST_SLEEP if seconds is None else min(seconds, LONGEST_SLEEP)


def milliseconds_until(deadline: float | None) -> int:
    """For `poll`: as `seconds_to_sleep`, None is for ever; never a zero before the deadline has passed."""
    left = seconds_to_sleep(None if deadline is None else deadline - time.monotonic())
    return max(0, int(left * 1000) + 1)


def to_worker(message: Any) -> bytes:
    """Pickle what users hand in: by value where it comes from their script or notebook, which no worker imports."""
    pickled: bytes = cloudpickle.dumps(message)
    return pickled


def quickly_pickled(message: Any) -> bytes:
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


def to_parent(message: Any) -> bytes:
    """Pickle what an environment gave: quickly if possible, by value otherwise."""
    try:
        return quickly_pickled(message)
    except Exception:  # classes of a script, lambdas: whatever pickle says of them, cloudpickle has the last word
        return to_worker(message)


def from_peer(payload: bytes) -> Any:
    """The message again.

    While a large one is built, garbage collection pauses: it would search the growing objects again and again, which
    takes two thirds of the time of unpickling the reference simulator's true states.
    """
    if len(payload) < _LARGE:
        return pickle.loads(payload)
    with collection_paused():
        return pickle.loads(payload)


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """No garbage collection inside, if there was any before."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
