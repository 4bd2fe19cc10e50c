"""Red as the oracle plays it: what red knows, what it may try, and the agents of the challenge.

An agent sees only what red can see: its knowledge of the network and how its last action went. A player in its place
gives the number of one of `MOVES`.
"""

from dataclasses import dataclass, field
from typing import Protocol

from .network import (
    ENTERPRISE_HOSTS,
    N_HOSTS,
    NO_TARGET,
    OPERATIONAL_HOSTS,
    USER_HOSTS,
    Host,
    Outcome,
    RedAction,
    Subnet,
)
from .stream import Stream

Move = tuple[RedAction, int]

# A player's actions: Sleep, the discovery of each subnet, then these kinds on each host.
_ON_A_HOST = (
    RedAction.DISCOVER_NETWORK_SERVICES,
    RedAction.EXPLOIT_REMOTE_SERVICE,
    RedAction.PRIVILEGE_ESCALATE,
    RedAction.IMPACT,
)
MOVES: tuple[Move, ...] = (
    (RedAction.SLEEP, NO_TARGET),
    *((RedAction.DISCOVER_REMOTE_SYSTEMS, subnet) for subnet in Subnet),
    *((kind, host) for kind in _ON_A_HOST for host in Host),
)


@dataclass(slots=True)
class Knowledge:
    """What red has learned of the network since the episode began."""

    addresses: set[int] = field(default_factory=lambda: {Host.USER0})
    names: set[int] = field(default_factory=lambda: {Host.USER0})
    subnets: set[int] = field(default_factory=lambda: {Subnet.USER})
    ports: list[int] = field(default_factory=lambda: [0] * N_HOSTS)  # mask of ports by host; 0: never scanned
    ot_service: bool = False

    def allows(self, move: Move) -> bool:
        """Whether red can name the target: a subnet or an address that it was told, or the name of a host it entered.

        That is all the reference asks. A host need not be scanned, held, or within reach.
        """
        kind, target = move
        if kind is RedAction.DISCOVER_REMOTE_SYSTEMS:
            return target in self.subnets
        if kind in (RedAction.PRIVILEGE_ESCALATE, RedAction.IMPACT):
            return target in self.names
        return kind is RedAction.SLEEP or target in self.addresses

    @property
    def move_mask(self) -> int:
        """Bit i: `MOVES[i]` is allowed."""
        addresses, names = self.address_mask, self.name_mask
        by_kind = addresses | addresses << N_HOSTS | names << 2 * N_HOSTS | names << 3 * N_HOSTS
        return 1 | self.subnet_mask << 1 | by_kind << 1 + len(Subnet)

    @property
    def address_mask(self) -> int:
        return sum(1 << host for host in self.addresses)

    @property
    def name_mask(self) -> int:
        return sum(1 << host for host in self.names)

    @property
    def subnet_mask(self) -> int:
        return sum(1 << subnet - Subnet.ENTERPRISE for subnet in self.subnets)


class RedAgent(Protocol):
    """Chooses red's moves within one episode."""

    def choose(self, knowledge: Knowledge, last: Outcome, last_scan: int, stream: Stream) -> Move:
        """The next move.

        Args:
            knowledge: what red knows.
            last: how red's last action went; UNKNOWN before the first.
            last_scan: mask of the ports that the last action found.
            stream: where choices are drawn from.
        """
        ...


class Sleeper:
    """Does nothing."""

    def choose(self, knowledge: Knowledge, last: Outcome, last_scan: int, stream: Stream) -> Move:
        return RedAction.SLEEP, NO_TARGET


# The way of B_line: (action, target, step to go back to after a failure). ENTRY is the user host it draws, once an
# episode; BRIDGE the Enterprise host to which the entry leads.
_ENTRY, _BRIDGE = -2, -3
_BRIDGES = {
    Host.USER1: Host.ENTERPRISE1,
    Host.USER2: Host.ENTERPRISE1,
    Host.USER3: Host.ENTERPRISE0,
    Host.USER4: Host.ENTERPRISE0,
}
_WAY = (
    (RedAction.DISCOVER_REMOTE_SYSTEMS, Subnet.USER, 0),
    (RedAction.DISCOVER_NETWORK_SERVICES, _ENTRY, 1),
    (RedAction.EXPLOIT_REMOTE_SERVICE, _ENTRY, 2),
    (RedAction.PRIVILEGE_ESCALATE, _ENTRY, 2),
    (RedAction.DISCOVER_NETWORK_SERVICES, _BRIDGE, 2),
    (RedAction.EXPLOIT_REMOTE_SERVICE, _BRIDGE, 2),
    (RedAction.PRIVILEGE_ESCALATE, _BRIDGE, 5),
    (RedAction.DISCOVER_REMOTE_SYSTEMS, Subnet.ENTERPRISE, 5),
    (RedAction.DISCOVER_NETWORK_SERVICES, Host.ENTERPRISE2, 5),
    (RedAction.EXPLOIT_REMOTE_SERVICE, Host.ENTERPRISE2, 5),
    (RedAction.PRIVILEGE_ESCALATE, Host.ENTERPRISE2, 9),
    (RedAction.DISCOVER_NETWORK_SERVICES, Host.OP_SERVER0, 9),
    (RedAction.EXPLOIT_REMOTE_SERVICE, Host.OP_SERVER0, 9),
    (RedAction.PRIVILEGE_ESCALATE, Host.OP_SERVER0, 12),
    (RedAction.IMPACT, Host.OP_SERVER0, 13),
)
_LAST = len(_WAY) - 1
_NEEDS_A_SCAN = 12  # the first time here, red looks for ports in what the scan just before has found


class BLine:
    """Goes straight for Op_Server0, and back some steps after a failure."""

    def __init__(self) -> None:
        self.step = 0
        self.entry: int | None = None
        self._found_op_server = False

    def choose(self, knowledge: Knowledge, last: Outcome, last_scan: int, stream: Stream) -> Move:
        self.step = min(self.step + 1, _LAST) if last is Outcome.TRUE else _WAY[self.step][2]
        if self.step == _NEEDS_A_SCAN and not self._found_op_server:
            if last_scan:
                self._found_op_server = True
            else:  # a blocked scan "succeeds" with nothing in it: all over again, from the step after the first
                self.step = 1
        action, target, _ = _WAY[self.step]
        if target < 0:
            if self.entry is None:
                self.entry = USER_HOSTS[1 + stream.below(4)]
            target = self.entry if target == _ENTRY else _BRIDGES[Host(self.entry)]
        return action, target


class Meander:
    """Scans all it can reach, then takes and escalates host by host at random; impacts once it has Op_Server0."""

    def __init__(self) -> None:
        self.scanned_subnets: set[int] = set()
        self.scanned: set[int] = set()
        self.exploited: set[int] = set()
        self.escalated: set[int] = set()
        self._named: set[int] = set()  # hosts whose name it got by an exploit
        self._last_exploited: int | None = None
        self._last_escalated: int | None = None

    def choose(self, knowledge: Knowledge, last: Outcome, last_scan: int, stream: Stream) -> Move:
        self._learn_from(last)
        if Host.OP_SERVER0 in self.escalated:
            self._last_escalated = Host.OP_SERVER0
            return RedAction.IMPACT, Host.OP_SERVER0
        for subnet in Subnet:
            if subnet in knowledge.subnets and subnet not in self.scanned_subnets:
                self.scanned_subnets.add(subnet)
                return RedAction.DISCOVER_REMOTE_SYSTEMS, subnet
        addresses = stream.shuffled(N_HOSTS)
        for host in addresses:
            if host in knowledge.addresses and host not in self.scanned:
                self.scanned.add(host)
                return RedAction.DISCOVER_NETWORK_SERVICES, host
        for host in stream.shuffled(N_HOSTS):
            lost = host in self._named and host not in self.exploited
            if host in knowledge.names and host not in self.escalated and not lost:
                self.escalated.add(host)
                self._last_escalated = host
                return RedAction.PRIVILEGE_ESCALATE, host
        for host in addresses:
            if host in knowledge.addresses and host not in self.exploited:
                self.exploited.add(host)
                self._last_exploited = host
                return RedAction.EXPLOIT_REMOTE_SERVICE, host
        raise AssertionError("Meander has run out of options")

    def _learn_from(self, last: Outcome) -> None:
        """Takes back what the last action turned out not to have done."""
        host, self._last_exploited = self._last_exploited, None
        if host is not None and last is Outcome.TRUE:
            self._named.add(host)
        elif host is not None:
            self.exploited.remove(host)
            lost = self.escalated.intersection(OPERATIONAL_HOSTS) or self.escalated.intersection(ENTERPRISE_HOSTS)
            self.escalated -= lost
            self.exploited -= lost
        host, self._last_escalated = self._last_escalated, None
        if host is not None and last is Outcome.FALSE:
            self.escalated.discard(host)
            if host in self._named:
                self.exploited.discard(host)


RED_AGENTS: dict[str, type[Sleeper] | type[BLine] | type[Meander]] = {
    "bline": BLine,
    "meander": Meander,
    "sleep": Sleeper,
}
