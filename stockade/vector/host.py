"""The worker's side of every backend with workers: spec -> environments -> slice -> commands served by message.

Local processes (local/worker.py) and Ray's actors (ray/actor.py) both hold a `SliceHost`. Nothing here imports Ray.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stockade.vector.infos import scatter_infos
from stockade.vector.local.channel import from_peer, to_parent
from stockade.vector.outcome import Description, Failure, Inheritance, Outcome, RunConfig, build_environments
from stockade.vector.slice import EnvSlice
from stockade.vector.spaces import Buffers, tree_map

CHANGING = ("step", "reset", "restore", "refresh_truths", "step_some", "reset_some")
"""Commands after which arrays have changed. The last two are for some environments of the slice: (places, ...)."""


@dataclass(frozen=True)
class SliceSpec:
    """What a worker has to know.

    Attributes:
        factory: makes one environment, or with a method `make_slice` a slice of them (see `NativeFactory`); pickled, so
            that a factory that cannot be unpickled is reported.
        first: id of its first environment.
        count: how many it has.
        config: how to step them.
        inheritance: given if this worker replaces one that died.
    """

    factory: bytes
    first: int
    count: int
    config: RunConfig
    inheritance: Inheritance | None = None

    @property
    def stop(self) -> int:
        """One past its last environment."""
        return self.first + self.count


class SliceHost:
    """Holds a slice of environments and serves commands, one after the other.

    Attributes:
        spec: what it was made of.
        description: of its environments.
        part: the slice, once `open` was called.
    """

    part: Any

    def __init__(self, spec: SliceSpec) -> None:
        """Build the environments."""
        self.spec = spec
        self._factory = from_peer(spec.factory)
        makes_slices = hasattr(self._factory, "make_slice")
        self._environments = build_environments(self._factory, 1 if makes_slices else spec.count)
        self.description = Description.of(self._environments[0])

    def open(self, buffers: Buffers | None = None) -> None:
        """Make the slice, with rows of shared memory or with arrays of its own."""
        spec = self.spec
        if buffers is None:
            buffers = Buffers.allocate(self.description.layout, spec.count)
        placed = spec.first, buffers, spec.config, spec.inheritance
        if hasattr(self._factory, "make_slice"):
            self.part = self._factory.make_slice(spec.count, *placed)
        else:
            self.part = EnvSlice(self._environments, *placed)

    def close(self) -> None:
        """Close the environments; what they raise then is of no interest to anybody."""
        part = getattr(self, "part", None)
        for closing in self._environments if part is None else (part,):
            closing.close()

    def serve(self, kind: str, sequence: int, arguments: tuple[Any, ...]) -> bytes:
        """A command -> (sequence, outcome or None, arrays or None), the arrays as `Buffers.results` gives them."""
        outcome = self.handle(kind, arguments)
        arrays = None
        if kind in CHANGING:
            *arrays, truth = self.part.buffers.results()
            arrays.append(truth if self.spec.config.true_states is not None or kind == "refresh_truths" else None)
            if kind.endswith("_some"):
                rows = np.asarray(arguments[0])
                arrays = [tree_map(lambda array: array[rows], part) for part in arrays]
            arrays = tuple(arrays)
        return self.pickled((sequence, outcome or None, arrays), [outcome], kind)

    def handle(self, kind: str, arguments: tuple[Any, ...]) -> Outcome:
        """Call the slice's method of this name."""
        outcome: Outcome = getattr(self.part, kind)(*arguments)
        if outcome.gathered:
            infos: list[dict[str, Any]] = [{} for _ in range(self.spec.count)]
            scatter_infos(outcome.gathered, infos)
            outcome.infos += [(self.spec.first + i, info) for i, info in enumerate(infos) if info]
            outcome.gathered = {}
        return outcome

    def pickled(self, message: Any, outcomes: list[Outcome], during: str) -> bytes:
        """The message, which contains these outcomes; what cannot be pickled is replaced by failures that say so."""
        try:
            return to_parent(message)
        except Exception:  # whatever it was, the culprits are found below, one by one
            for outcome in outcomes:
                self._purge(outcome, during)
            return to_parent(message)

    def _purge(self, outcome: Outcome, during: str) -> None:
        for pairs in (outcome.infos, outcome.truths):
            for pair in list(pairs):
                if not self._can_travel(pair[0], pair[1], outcome, during):
                    pairs.remove(pair)
        for i, value in enumerate(outcome.values):
            if not self._can_travel(self.spec.first + i, value, outcome, during):
                outcome.values[i] = None

    def _can_travel(self, env_id: int, value: Any, outcome: Outcome, during: str) -> bool:
        try:
            to_parent(value)
        except Exception as exception:
            note = TypeError(f"a value that an environment returned cannot be sent to the parent process: {exception}")
            outcome.failures.append(Failure.of(note, env_id, during, None, None, 0))
            return False
        return True
