"""What a red player may know, worked out from its own actions and their results alone.

    (action, success, ports seen, mask of what the reference accepts) -> RedObserver -> 264 bits

It is given nothing of the world's state, so whatever agrees with it holds no more than red can know. The results are
those of the reference's own observation of red, as recorded in the traces.
"""

from .network import ENTERPRISE_HOSTS, N_HOSTS, OPERATIONAL_HOSTS, PORTS, Host, Outcome, RedAction, Subnet
from .red import MOVES, Move

N_BITS = 264
_STEPS_LEFT = (2, 3, 5, 8, 12, 18, 25, 35, 50, 75)
_FIRST_SUBNET = MOVES.index((RedAction.DISCOVER_REMOTE_SYSTEMS, Subnet.ENTERPRISE))
_FIRST_ADDRESS = MOVES.index((RedAction.DISCOVER_NETWORK_SERVICES, Host.DEFENDER))
_FIRST_NAME = MOVES.index((RedAction.PRIVILEGE_ESCALATE, Host.DEFENDER))
_FOOTHOLD = 1 << Host.USER0
_GATEWAYS = sum(1 << host for host in ENTERPRISE_HOSTS)


class RedObserver:
    """Red's knowledge in one episode after another. Sets of hosts and subnets are bit masks.

    Args:
        rules: `current` or `leaderboard`; under the latter red adds new ports to those that it remembers.
        horizon: steps of an episode.
    """

    def __init__(self, rules: str, horizon: int) -> None:
        self._adds_ports, self._horizon = rules == "leaderboard", horizon

    def reset(self, mask: int) -> None:
        """An episode begins, with the foothold. `mask`: bit i, `MOVES[i]` is accepted now."""
        self._mask, self._time = mask, 0
        self._sessions = self._roots = _FOOTHOLD
        self._failed = self._discovered = 0
        self._ports = [0] * N_HOSTS
        self._service = self._impact = self._answered = False
        self._move: Move = MOVES[0]
        self._success = Outcome.UNKNOWN

    def see(self, action: int, success: int, saw_ports: int, mask: int) -> None:
        """Takes in one step: what red did, whether it succeeded, which ports it saw, what it may try next."""
        tried = bool(self._mask >> action & 1)
        self._move, self._success = MOVES[action], Outcome(success)
        self._mask, self._answered = mask, saw_ports > 0
        self._time += 1
        (kind, target), worked = self._move, success == Outcome.TRUE
        if kind is RedAction.DISCOVER_NETWORK_SERVICES:
            if self._answered:
                self._ports[target] = saw_ports | (self._ports[target] if self._adds_ports else 0)
            elif worked and target in OPERATIONAL_HOSTS:
                self._lose(_GATEWAYS)
        elif kind is RedAction.DISCOVER_REMOTE_SYSTEMS:
            if worked:
                self._discovered |= 1 << target - Subnet.ENTERPRISE
            elif tried:
                self._lose(_GATEWAYS)
        elif kind is RedAction.EXPLOIT_REMOTE_SERVICE:
            if worked:
                self._sessions |= 1 << target
                self._failed &= ~(1 << target)
            else:
                self._failed |= 1 << target
        elif kind is RedAction.PRIVILEGE_ESCALATE:
            if worked:
                self._sessions |= 1 << target
                self._roots |= 1 << target
                self._service |= target == Host.OP_SERVER0
            else:
                self._lose(1 << target)
        elif kind is RedAction.IMPACT:
            self._impact = worked
            if target == Host.OP_SERVER0 and self._service and not worked:
                self._lose(1 << target)

    def _lose(self, hosts: int) -> None:
        self._sessions &= ~hosts
        self._roots &= ~hosts

    def observation(self) -> int:
        """What a red player sees: bit i of the integer is entry i."""
        (kind, target), left = self._move, self._horizon - self._time
        hosts = (1 << N_HOSTS) - 1
        parts = [
            (self._mask >> _FIRST_ADDRESS & hosts, N_HOSTS),
            (self._mask >> _FIRST_NAME & hosts, N_HOSTS),
            (self._sessions, N_HOSTS),
            (self._roots, N_HOSTS),
            (self._failed, N_HOSTS),
            *((ports, len(PORTS)) for ports in self._ports),
            (self._mask >> _FIRST_SUBNET & 7, len(Subnet)),
            (self._discovered, len(Subnet)),
            (self._service, 1),
            (self._impact, 1),
            (1 << kind, len(RedAction)),
            (1 << target if target >= 0 else 0, N_HOSTS + len(Subnet)),
            (self._success is Outcome.TRUE, 1),
            (self._success is Outcome.FALSE, 1),
            (self._answered, 1),
            *((left >= steps, 1) for steps in _STEPS_LEFT),
        ]
        value = place = 0
        for bits, size in parts:
            value |= bits << place
            place += size
        assert place == N_BITS
        return value
