"""What an order puts in sequence: unit types or single hosts. From an order to places of hosts and to the policy's context.

order (a permutation of the units) -> places (13,) of the hosts: a fix is allowed where no host with a lower place is held
                                   -> context: one bit per ordered pair of units, "a stands before b"

Hosts of one unit have the same place. The free agent, who may repair anything at any time, is the order in which all
hosts have the same place: its context is all zeros.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from stockade.cage2.scenario import HOSTS, N_HOSTS
from stockade.errors import InputError
from stockade.workflow.orders import HOST_TYPES, UNIT_TYPES, Order, parse_order

UnitKind = Literal["types", "hosts"]
#: Stands for no order at all: everything may be repaired at any time.
FREE: Order = ()


@dataclass(frozen=True)
class Units:
    """The things that an order puts in sequence.

    Attributes:
        kind: `types` or `hosts`.
        names: of the units; an order is a permutation of their indices.
        of_host: (13,) unit of each host.
    """

    kind: UnitKind
    names: tuple[str, ...]
    of_host: tuple[int, ...]

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """All ordered pairs of units, in the sequence of the context's bits."""
        return tuple(itertools.permutations(range(len(self.names)), 2))

    def places(self, order: Sequence[int]) -> np.ndarray:
        """(13,) int8, place of each host in the order, 0 the first; all 0 for FREE."""
        if not len(order):
            return np.zeros(N_HOSTS, np.int8)
        rank = np.empty(len(self.names), np.int8)
        rank[list(order)] = np.arange(len(order))
        return rank[list(self.of_host)]

    def context(self, order: Sequence[int]) -> np.ndarray:
        """(pairs,) uint8, what the policy is told: for each ordered pair, whether the first stands before the second."""
        if not len(order):
            return np.zeros(len(self.pairs), np.uint8)
        rank = {unit: place for place, unit in enumerate(order)}
        return np.array([rank[a] < rank[b] for a, b in self.pairs], np.uint8)

    def matters(self, hosts: np.ndarray) -> np.ndarray:
        """(units,) bool: units of which red can hold a host, given (13,) bool of the hosts that it can hold."""
        found = np.zeros(len(self.names), np.bool_)
        found[[self.of_host[h] for h in np.flatnonzero(hosts)]] = True
        return found

    def describe(self, order: Sequence[int], matters: np.ndarray | None = None) -> str:
        """For people: `enterprise > op_server > user`; only the units that matter, if any do."""
        if not len(order):
            return "no order"
        kept = [u for u in order if matters is None or matters[u]] or list(order)
        return " > ".join(self.names[u] for u in kept)

    def parse(self, text: str) -> Order:
        """Back from `describe` of a whole order; for types also a canonical name or number."""
        if self.kind == "types":
            return parse_order(text)
        lowered = [name.lower() for name in self.names]
        parts = [part.strip().lower() for part in text.replace(">", ",").split(",")]
        if sorted(parts) != sorted(lowered):
            raise InputError(f"order {text!r}: name each of {', '.join(self.names)} once, separated by commas")
        return tuple(lowered.index(part) for part in parts)


TYPES = Units("types", UNIT_TYPES, tuple(int(t) for t in HOST_TYPES))
HOST_UNITS = Units("hosts", tuple(HOSTS), tuple(range(N_HOSTS)))
UNITS: dict[UnitKind, Units] = {"types": TYPES, "hosts": HOST_UNITS}
