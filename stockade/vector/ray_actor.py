"""The actor of backend `ray`, as it runs somewhere in the cluster: message -> slice of environments -> message.

It is what worker.py is to the backends of one machine. Nothing here imports Ray: the driver makes an actor of the
class. Messages are pickled here and not by Ray, which is quicker for several small arrays, and lets a value that cannot
be pickled be told from a bug. Small ones travel with the call and its reply, large ones through Ray's object store.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

import numpy as np

from stockade.vector.channel import from_peer, quickly_pickled, to_parent
from stockade.vector.description import Description, Inheritance, SliceConfig, build_environments
from stockade.vector.layout import Buffers, tree_map
from stockade.vector.machine import use_one_thread
from stockade.vector.outcome import Failure, Outcome
from stockade.vector.slice import EnvSlice
from stockade.vector.worker import handle

#: Commands after which arrays have changed. The last two are for some environments of the slice: (places, ...).
CHANGING = ("step", "reset", "truth", "step_some", "reset_some")


@dataclass(frozen=True)
class ActorSpec:
    """What an actor has to know.

    Attributes:
        factory: makes one environment, or with a method `make_slice` a slice of them (see `NativeFactory`); pickled.
        first: id of its first environment.
        count: how many it has.
        config: how to step them.
        inheritance: given if this actor replaces one that was lost.
    """

    factory: bytes
    first: int
    count: int
    config: SliceConfig
    inheritance: Inheritance | None = None


@dataclass(frozen=True)
class Greeting:
    """What an actor says when its environments are there: what they are, and where."""

    description: Description
    pid: int
    host: str


class SliceActor:
    """Holds a slice of environments and serves commands, one after the other."""

    def build(self, pickled: bytes) -> bytes:
        """Make the environments; a `Greeting`, or the `Failure` that came in its way."""
        try:
            self._spec: ActorSpec = from_peer(pickled)
            use_one_thread()
            description = self._build(from_peer(self._spec.factory))
        except Exception as exception:
            return to_parent(Failure.of(exception, -1, "construction", None, None, 0))
        return to_parent(Greeting(description, os.getpid(), socket.gethostname()))

    def _build(self, factory: Any) -> Description:
        spec = self._spec
        makes_slices = hasattr(factory, "make_slice")
        environments = build_environments(factory, 1 if makes_slices else spec.count)
        description = Description.of(environments[0])
        self._buffers = Buffers.allocate(description.layout, spec.count)
        self._buffers.age[:] = -1
        if spec.inheritance is not None and spec.inheritance.results is not None:
            self._buffers.put_results(0, spec.count, spec.inheritance.results)
        placed = spec.first, self._buffers, spec.config, spec.inheritance
        self._part: Any = factory.make_slice(spec.count, *placed) if makes_slices else EnvSlice(environments, *placed)
        return description

    def serve(self, pickled: bytes) -> bytes:
        """(command, data) -> (outcome or None, arrays or None), the arrays as `Buffers.results` gives them."""
        kind, data = from_peer(pickled)
        outcome = self._handle(kind, data)
        arrays = None
        if kind in CHANGING:
            *arrays, truth = self._buffers.results()
            arrays.append(truth if self._spec.config.true_states is not None or kind == "truth" else None)
            if kind.endswith("_some"):
                rows = np.asarray(data[0])
                arrays = [None if part is None else tree_map(lambda array: array[rows], part) for part in arrays]
        return self._pickled(outcome or None, arrays, kind)

    def _handle(self, kind: str, data: Any) -> Outcome:
        if kind == "step_some":
            return self._step_some(*data)
        if kind == "reset_some":
            return self._reset_some(*data)
        if kind == "close":
            outcome: Outcome = self._part.close()
            return outcome
        return handle(self._part, kind, data)

    def _step_some(self, places: list[int], actions: Any) -> Outcome:
        """One action for each of the places, in this order."""
        part = self._part
        if hasattr(part, "step_some"):
            some: Outcome = part.step_some(places, actions)
            return some
        outcome = Outcome()
        for k, place in enumerate(places):
            outcome.extend(part.step_one(place, part.action_reader.one(actions, k)))
        return outcome

    def _reset_some(self, places: list[int], seeds: list[int | None], options: dict[str, Any] | None) -> Outcome:
        """Begin new episodes in these places alone."""
        seed_of = dict(zip(places, seeds, strict=True))
        everyone = range(self._spec.count)
        outcome: Outcome = self._part.reset(
            [seed_of.get(i) for i in everyone], options, [i in seed_of for i in everyone]
        )
        return outcome

    def _pickled(self, outcome: Outcome | None, arrays: Any, kind: str) -> bytes:
        """The reply, or if it cannot be pickled, a failure that says so."""
        if outcome is None:
            return quickly_pickled((None, arrays))
        try:
            return to_parent((outcome, arrays))
        except Exception as exception:
            note = TypeError(f"a value that an environment returned cannot be sent to the parent process: {exception}")
            failed = Outcome(failures=[Failure.of(note, self._spec.first, kind, None, None, 0)])
            return to_parent((failed, arrays))
