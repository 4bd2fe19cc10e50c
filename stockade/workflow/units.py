"""What an order puts in sequence: unit types or single hosts. From an order to places of hosts and to a context.

order (units in sequence) -> places (13,) of the hosts: a fix is allowed where no host with a lower place is held
                          -> context: one bit per ordered pair of units, "a stands before b"

Hosts of one unit have the same place. The free agent, who may repair anything at any time, is the order in which all
hosts have the same place: its context is all zeros.
"""

import itertools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from stockade.cage2.scenario import HOSTS, N_HOSTS
from stockade.workflow.orders import HOST_TYPES, UNIT_TYPES, Order

UnitKind = Literal["types", "hosts"]
#: Units in sequence; a tuple in the place of a unit is a group of units that stand side by side.
Ranking = tuple[int | tuple[int, ...], ...]
#: Single hosts in orders: the letter of their type, and their digit.
HOST_LETTERS = {"defender": "D", "enterprise": "E", "op_server": "S", "op_host": "O", "user": "U"}
_HOSTS_OF_TYPE: list[Any] = [tuple(h for h in range(N_HOSTS) if HOST_TYPES[h] == t) for t in range(len(UNIT_TYPES))]
#: Stands for no order at all: everything may be repaired at any time.
FREE: Order = ()


@dataclass(frozen=True)
class Units:
    """The things that an order, a permutation of their indices, puts in sequence."""

    kind: UnitKind
    names: tuple[str, ...]
    of_host: tuple[int, ...]  #: (13,) unit of each host

    def ranks(self, order: Ranking) -> np.ndarray:
        """(units,) int8, place of each unit, 0 the first; units of a group share theirs; all 0 for FREE."""
        ranks = np.zeros(len(self.names), np.int8)
        for place, element in enumerate(order):
            ranks[list(element) if isinstance(element, tuple) else element] = place
        return ranks

    def places(self, order: Ranking) -> np.ndarray:
        """(13,) int8, place of each host in the order, 0 the first."""
        return self.ranks(order)[list(self.of_host)]

    def context(self, order: Ranking) -> np.ndarray:
        """(pairs,) uint8, what the policy sees of it: for each ordered pair, whether the first stands before."""
        first, second = np.array(list(itertools.permutations(self.ranks(order), 2))).T
        return (first < second).astype(np.uint8)

    def matters(self, hosts: np.ndarray) -> np.ndarray:
        """(units,) bool: units of which red can hold a host, given (13,) bool of the hosts that it can hold."""
        return np.isin(np.arange(len(self.names)), np.array(self.of_host)[hosts])

    def describe(self, order: Ranking, matters: np.ndarray | None = None) -> str:
        """For people: `enterprise > op_server > user`; only the units that matter, if any do. Groups: `a = b > c`.

        Single hosts are `E0 > S0 > U1`, by HOST_LETTERS; all hosts of a type side by side are that type.
        """
        if not len(order):
            return "no order"
        kept = matters if matters is not None and matters.any() else np.ones(len(self.names), np.bool_)
        named = []
        for element in order:
            group = [u for u in (element if isinstance(element, tuple) else (element,)) if kept[u]]
            if group and element in _HOSTS_OF_TYPE:
                named.append(UNIT_TYPES[_HOSTS_OF_TYPE.index(element)])
            elif group:
                named.append(" = ".join(self._short(u) for u in group))
        return " > ".join(named)

    def _short(self, unit: int) -> str:
        name = self.names[unit]
        return name if self.kind == "types" else HOST_LETTERS[UNIT_TYPES[HOST_TYPES[unit]]] + name[-1]


def as_ranking(content: list[Any]) -> Ranking:
    """Back from JSON, which knows lists only."""
    return tuple(tuple(element) if isinstance(element, list) else element for element in content)


TYPES = Units("types", UNIT_TYPES, tuple(int(t) for t in HOST_TYPES))
HOST_UNITS = Units("hosts", tuple(HOSTS), tuple(range(N_HOSTS)))
UNITS: dict[UnitKind, Units] = {"types": TYPES, "hosts": HOST_UNITS}
