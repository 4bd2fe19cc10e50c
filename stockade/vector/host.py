"""The worker's side of every backend with workers: spec -> environments -> slice -> commands served by message.

Local processes (local/worker.py) and Ray's actors (ray/cluster.py) both hold a `SliceHost`. Nothing here imports Ray.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stockade.vector.local.channel import from_peer, to_parent
from stockade.vector.outcome import Description, Failure, Inheritance, Outcome, RunConfig, scatter_infos
from stockade.vector.slice import EnvSlice, build_environments
from stockade.vector.spaces import Buffers, rows_of

CHANGING = ("step", "reset", "restore", "step_some", "reset_some", "refresh_some")
"""Commands after which arrays have changed. Some are for some environments of the slice: (places, ...)."""


@dataclass(frozen=True)
class SliceSpec:
    """What a worker has to know.

    The factory makes one environment, or with a method `make_slice` a slice of them (see `NativeFactory`). It is
    pickled, so that one that cannot be unpickled is reported.
    """

    index: int  # the worker's number
    factory: bytes
    first: int  # id of its first environment
    stop: int  # and of the one after its last
    config: RunConfig
    inheritance: Inheritance | None = None  # given if this worker replaces one that died

    @cached_property
    def rows(self) -> slice:
        """Its rows of the arrays of all environments."""
        return slice(self.first, self.stop)

    @property
    def env_ids(self) -> tuple[int, ...]:
        return tuple(range(self.first, self.stop))

    @property
    def span(self) -> str:
        """Its environments, for messages."""
        return f"{self.first}" if self.stop == self.first + 1 else f"{self.first} to {self.stop - 1}"


class SliceHost:
    """Holds a slice of environments and serves commands, one after the other."""

    part: Any = None  # the slice, once `open` was called

    def __init__(self, spec: SliceSpec) -> None:
        self.spec = spec
        self._count = spec.stop - spec.first
        self._factory = from_peer(spec.factory)
        self._makes_slices = hasattr(self._factory, "make_slice")
        self._environments = build_environments(self._factory, 1 if self._makes_slices else self._count)
        self.description = Description.of(self._environments[0])

    def open(self, buffers: Buffers | None = None) -> None:
        """Make the slice, with rows of shared memory or with arrays of its own."""
        spec = self.spec
        if buffers is None:
            buffers = Buffers.allocate(self.description.layout, self._count)
        placed = spec.first, buffers, spec.config, spec.inheritance
        if self._makes_slices:
            self.part = self._factory.make_slice(self._count, *placed)
        else:
            self.part = EnvSlice(self._environments, *placed)

    def close(self) -> None:
        """Close the environments; what they raise then is of no interest to anybody."""
        for closing in self._environments if self.part is None else (self.part,):
            closing.close()

    def serve(self, kind: str, sequence: int, arguments: tuple[Any, ...]) -> bytes:
        """A command -> (sequence, outcome or None, arrays or None), the arrays as `Buffers.results` gives them."""
        outcome = self.handle(kind, arguments)
        arrays = None
        if kind in CHANGING:
            *others, truth = self.part.buffers.results()
            wanted = self.spec.config.true_states is not None or kind == "refresh_some"
            arrays = (*others, truth if wanted else None)
            if kind.endswith("_some"):
                arrays = rows_of(arrays, np.asarray(arguments[0]))
        return self.pickled((sequence, outcome or None, arrays), [outcome], kind)

    def handle(self, kind: str, arguments: tuple[Any, ...]) -> Outcome:
        outcome: Outcome = getattr(self.part, kind)(*arguments)
        if outcome.gathered:
            infos: list[dict[str, Any]] = [{} for _ in range(self._count)]
            scatter_infos(outcome.gathered, infos)
            outcome.infos += [(self.spec.first + i, info) for i, info in enumerate(infos) if info]
            outcome.gathered = {}
        return outcome

    def pickled(self, message: Any, outcomes: list[Outcome], during: str) -> bytes:
        """The message, which contains these outcomes; what cannot be pickled is replaced by failures that say so."""
        try:
            return to_parent(message)
        except Exception:  # whatever it was, the culprits are found one by one
            for outcome in outcomes:
                for pairs in (outcome.infos, outcome.truths):
                    pairs[:] = [pair for pair in pairs if self._can_travel(pair[0], pair[1], outcome, during)]
                values = enumerate(outcome.values, self.spec.first)
                outcome.values = [v if self._can_travel(i, v, outcome, during) else None for i, v in values]
            return to_parent(message)

    def _can_travel(self, env_id: int, value: Any, outcome: Outcome, during: str) -> bool:
        try:
            to_parent(value)
        except Exception as exception:
            note = TypeError(f"a value that an environment returned cannot be sent to the parent process: {exception}")
            outcome.failures.append(Failure.of(note, env_id, during, None, None, 0))
            return False
        return True
