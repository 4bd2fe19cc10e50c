"""Worlds as they were at one moment: bytes that can be kept, compared, pickled and put back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stockade.cage2.config import WorldConfig


def rows_of_bytes(records: np.ndarray) -> np.ndarray:
    """(n, itemsize) uint8 view of a structured array. Copies of it are quick, and equal to the last padding byte."""
    return records.view(np.uint8).reshape(len(records), records.dtype.itemsize)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Worlds at one moment, streams of chance included, for any worlds of the same configuration.

    Its arrays are (n, bytes of a record) uint8 that nobody can change. Snapshots are equal if all their bytes are, and
    can be hashed, so that a search can look states up.
    """

    config: WorldConfig
    worlds: np.ndarray
    ledgers: np.ndarray | None  #: under `chance="cyborg"`
    memory: np.ndarray | None = None  #: with `obs="memory"`

    def __post_init__(self) -> None:
        for part in self.parts:
            if part is not None:
                part.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()  # pickles and copies are frozen too

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """Worlds, ledgers, memory."""
        return self.worlds, self.ledgers, self.memory

    def __len__(self) -> int:
        return len(self.worlds)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Snapshot) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[WorldConfig, tuple[bytes | None, ...]]:
        return self.config, tuple(None if part is None else part.tobytes() for part in self.parts)
