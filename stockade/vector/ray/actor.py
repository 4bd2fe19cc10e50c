"""The actor of backend `ray`, as it runs somewhere in the cluster: message -> slice of environments -> message.

Nothing here imports Ray: the driver makes an actor of the class. Messages are pickled here and not by Ray, which is
faster for several small arrays, and tells a value that cannot be pickled from a bug. Small ones travel with the call
and its reply, large ones through Ray's object store.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from stockade.vector.host import SliceHost
from stockade.vector.local.channel import from_peer, to_parent
from stockade.vector.local.machine import use_one_thread
from stockade.vector.outcome import Description, Failure


@dataclass(frozen=True)
class Greeting:
    """What an actor sends when its environments are there: what they are, and where."""

    description: Description
    pid: int
    host: str


class SliceActor:
    """Holds a slice of environments and serves commands, one after the other."""

    _host: SliceHost

    def build(self, pickled: bytes) -> bytes:
        """Make the environments of a `SliceSpec`; a `Greeting`, or the `Failure` that stopped it."""
        try:
            use_one_thread()
            self._host = SliceHost(from_peer(pickled))
            self._host.open()
        except Exception as exception:
            return to_parent(Failure.of(exception, -1, "construction", None, None, 0))
        return to_parent(Greeting(self._host.description, os.getpid(), socket.gethostname()))

    def serve(self, pickled: bytes) -> bytes:
        """(command, arguments) -> (sequence, outcome or None, arrays or None), as `SliceHost.serve`."""
        kind, arguments = from_peer(pickled)
        return self._host.serve(kind, 0, arguments)

    def close(self) -> None:
        """Close the environments."""
        self._host.close()
