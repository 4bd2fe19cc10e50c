"""Worlds as they were at one moment: bytes that can be kept, compared, pickled and put back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stockade.cage2.config import WorldConfig


def rows_of_bytes(records: np.ndarray) -> np.ndarray:
    """(n, itemsize) uint8 view of a structured array. Copies of it are quick, and equal to the last padding byte."""
    return records.view(np.uint8).reshape(len(records), records.dtype.itemsize)


def frozen_copy(rows: np.ndarray) -> np.ndarray:
    """A copy that nobody can change."""
    copy = rows.copy()
    copy.setflags(write=False)
    return copy


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Worlds at one moment, streams of chance included, for any worlds of the same configuration.

    Attributes:
        config: of the worlds.
        worlds: (n, bytes of a WORLD record) uint8.
        ledgers: (n, bytes of a ledger record) uint8 under `chance="cyborg"`, else None.
        memory: (n, bytes of a MEMORY record) uint8 with `obs="memory"`, else None.
    """

    config: WorldConfig
    worlds: np.ndarray
    ledgers: np.ndarray | None
    memory: np.ndarray | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies are frozen too."""
        return _frozen_snapshot, (self.config, *self.parts)

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Worlds, ledgers, memory."""
        return self.worlds, self.ledgers, self.memory

    def __len__(self) -> int:
        """Number of worlds."""
        return len(self.worlds)

    def __eq__(self, other: object) -> bool:
        """Bit equality."""
        if not isinstance(other, Snapshot):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        """Equal snapshots have equal hashes, so that a search can look states up."""
        return hash(self._key())

    def _key(self) -> tuple[WorldConfig, tuple[bytes | None, ...]]:
        return self.config, tuple(None if part is None else part.tobytes() for part in self.parts)


def _frozen_snapshot(config: WorldConfig, *parts: np.ndarray | None) -> Snapshot:
    for part in parts:
        if part is not None:
            part.setflags(write=False)
    return Snapshot(config, *parts)  # type: ignore[arg-type]
