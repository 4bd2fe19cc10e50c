"""What the network is made of, as the oracle sees it: hosts, processes, decoys, exploits, and the codes of the traces.

Only data. The numbers of the enumerations are those of recorded traces, so a fact of the model and a recorded one
compare as integers.
"""

from enum import Enum, IntEnum
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np

_HostOrHosts = TypeVar("_HostOrHosts", int, np.ndarray)


class Host(IntEnum):
    """The 13 hosts in the order of observations and actions."""

    DEFENDER = 0
    ENTERPRISE0 = 1
    ENTERPRISE1 = 2
    ENTERPRISE2 = 3
    OP_HOST0 = 4
    OP_HOST1 = 5
    OP_HOST2 = 6
    OP_SERVER0 = 7
    USER0 = 8
    USER1 = 9
    USER2 = 10
    USER3 = 11
    USER4 = 12


N_HOSTS = len(Host)


class Subnet(IntEnum):
    """Subnets carry on the numbers of the hosts, as red's targets are recorded."""

    ENTERPRISE = 13
    OPERATIONAL = 14
    USER = 15


NO_TARGET = -1


class RedAction(IntEnum):
    """Kinds of red's actions."""

    SLEEP = 0
    DISCOVER_REMOTE_SYSTEMS = 1
    DISCOVER_NETWORK_SERVICES = 2
    EXPLOIT_REMOTE_SERVICE = 3
    PRIVILEGE_ESCALATE = 4
    IMPACT = 5


class Outcome(IntEnum):
    """What an action reports about itself."""

    FALSE = 0
    TRUE = 1
    UNKNOWN = 2


class SessionSeen(IntEnum):
    """A session in red's own observation. Of a new shell it does not see the user; an SSH session is never root."""

    NONE = 0
    SHELL = 1
    SSH = 2
    ROOT = 3


class BlueClass(IntEnum):
    """Blue's actions on a host; action number = 2 + 13 * class + host. Numbers 0 and 1 are Sleep and Monitor."""

    ANALYSE = 0
    REMOVE = 1
    DECOY_APACHE = 2
    DECOY_FEMITTER = 3
    DECOY_HARAKA = 4
    DECOY_SMSS = 5
    DECOY_SSHD = 6
    DECOY_SVCHOST = 7
    DECOY_TOMCAT = 8
    DECOY_VSFTPD = 9
    RESTORE = 10

    def on(self, host: _HostOrHosts) -> _HostOrHosts:
        """The number of this action on a host, or on each of several."""
        return 2 + N_HOSTS * self + host


SLEEP, MONITOR, N_ACTIONS = 0, 1, 2 + N_HOSTS * len(BlueClass)


def action_name(action: int) -> str:
    """Action number as a person reads it, e.g. `Restore(OP_SERVER0)`."""
    if action < 2:
        return ("Sleep", "Monitor")[action]
    blue_class, host = divmod(action - 2, N_HOSTS)
    return f"{BlueClass(blue_class).name.title().replace('_', '')}({Host(host).name})"


class Activity(IntEnum):
    """What blue saw happen on a host in this step."""

    NONE = 0
    SCAN = 1
    EXPLOIT = 2


class Compromised(IntEnum):
    """What blue believes about a host."""

    NO = 0
    UNKNOWN = 1
    USER = 2
    PRIVILEGED = 3


ACTIVITY_BITS = ((0, 0), (1, 0), (1, 1))
COMPROMISED_BITS = ((0, 0), (1, 0), (0, 1), (1, 1))

# Ports that any listener has, in the order of the bits of `red_ports`.
PORTS = (21, 22, 25, 53, 68, 80, 135, 139, 443, 445, 3389, 3390)
PORT_BIT = {port: 1 << i for i, port in enumerate(PORTS)}


class System(Enum):
    """Operating systems, as far as decoys care."""

    LINUX = "linux"
    WINDOWS = "windows"


class Service(Enum):
    """What a process is, as far as exploits care."""

    OTHER = "other"
    SSH = "ssh"
    WEB = "web"
    FTP = "femitter"
    MAIL = "smtp"
    SMB = "smb"
    DESKTOP = "rdp"
    DATABASE = "mysql"


class DecoyType(NamedTuple):
    """A decoy: what it pretends to be, the port it opens, and what must hold for it to start."""

    service: Service
    port: int
    port_that_must_be_free: int
    system: System | None
    root: bool = False


# In the order of BlueClass and of the bits of `decoys`. Vsftpd tests port 21 but opens port 80.
DECOYS = (
    DecoyType(Service.WEB, 80, 80, None),
    DecoyType(Service.FTP, 21, 21, System.WINDOWS, root=True),
    DecoyType(Service.MAIL, 25, 25, System.LINUX),
    DecoyType(Service.SMB, 139, 139, System.WINDOWS),
    DecoyType(Service.SSH, 22, 22, None),
    DecoyType(Service.DESKTOP, 3389, 3389, System.WINDOWS),
    DecoyType(Service.WEB, 443, 443, None),
    DecoyType(Service.WEB, 80, 21, System.LINUX),
)


class Exploit(IntEnum):
    """Concrete exploits that ExploitRemoteService chooses from."""

    NONE = 0
    ETERNAL_BLUE = 1
    BLUE_KEEP = 2
    HTTP_RFI = 3
    HTTPS_RFI = 4
    SSH_BRUTE_FORCE = 5
    SQL_INJECTION = 6
    HARAKA_RCE = 7
    FTP_DIRECTORY_TRAVERSAL = 8


class ExploitType(NamedTuple):
    """An exploit: the service it attacks, the port it needs, and how much red likes it."""

    exploit: Exploit
    service: Service
    port: int
    weight: float
    needs: int = 0  # mask of ports of which at least one must be open besides (0: none)


EXPLOITS = (
    ExploitType(Exploit.ETERNAL_BLUE, Service.SMB, 139, 2.0),
    ExploitType(Exploit.BLUE_KEEP, Service.DESKTOP, 3389, 1.0),
    ExploitType(Exploit.HTTP_RFI, Service.WEB, 80, 3.0),
    ExploitType(Exploit.HTTPS_RFI, Service.WEB, 443, 4.0),
    ExploitType(Exploit.SSH_BRUTE_FORCE, Service.SSH, 22, 0.1),
    ExploitType(Exploit.SQL_INJECTION, Service.DATABASE, 3390, 5.0, needs=PORT_BIT[80] | PORT_BIT[443]),
    ExploitType(Exploit.HARAKA_RCE, Service.MAIL, 25, 6.0),
    ExploitType(Exploit.FTP_DIRECTORY_TRAVERSAL, Service.FTP, 21, 7.0),
)


def exploit_options(known_ports: int) -> tuple[ExploitType, ...]:
    """The exploits red may try, given the mask of ports it knows of."""
    return tuple(x for x in EXPLOITS if known_ports & PORT_BIT[x.port] and (not x.needs or known_ports & x.needs))


@cache
def ranked_options(known_ports: int) -> tuple[ExploitType, ...]:
    """The exploits that red may try: its favourite first, the others in their usual order."""
    options = exploit_options(known_ports)
    best = max(options, key=lambda option: option.weight, default=None)
    return tuple(sorted(options, key=lambda option: option is not best))


class Start(NamedTuple):
    """A process that runs from the beginning."""

    pid: int
    service: Service
    ports: tuple[int, ...]
    root: bool


class HostType(NamedTuple):
    """A host as the scenario describes it."""

    system: System
    subnet: Subnet
    value: int  # tenths of reward lost in each step in which red holds root
    weak_password: bool  # SSH brute force can succeed
    processes: tuple[Start, ...]


OT_SERVICE_PID = 1043

_SSH_LINUX = Start(1091, Service.SSH, (22,), True)
_SSH_WINDOWS = Start(3368, Service.SSH, (22,), False)
_OT_SERVICE = Start(OT_SERVICE_PID, Service.OTHER, (), True)
_ENTERPRISE_SERVER = (
    _SSH_WINDOWS,
    Start(832, Service.OTHER, (135,), True),
    Start(4400, Service.DESKTOP, (3389,), True),
    Start(4, Service.OTHER, (445, 139), True),
    Start(3404, Service.WEB, (80, 443), False),
)
_DESKTOP = (_SSH_WINDOWS, Start(3344, Service.FTP, (21,), True))
_WEB_AND_MAIL = (
    Start(1100, Service.WEB, (443,), False),
    Start(1102, Service.MAIL, (25,), True),
)
# Of the Defender's processes without a listener only the ids matter: a new process must not take one of them.
_DEFENDER_IDS = (
    *(1, 389, 407, 409, 560, 790, 802, 803, 807, 824, 825, 827, 832, 844, 847, 852, 853, 863, 867, 875, 884),
    *(1370, 1432, 2288),
)
_DEFENDER = (
    *(Start(pid, Service.OTHER, (), True) for pid in _DEFENDER_IDS),
    Start(879, Service.SSH, (22,), True),
    Start(656, Service.OTHER, (53, 53), False),
    Start(634, Service.OTHER, (68,), False),
)
_USER2 = (
    Start(4, Service.SMB, (445, 139), True),
    Start(832, Service.OTHER, (135,), True),
    Start(4400, Service.DESKTOP, (3389,), False),
)
_USER3 = (
    Start(1100, Service.WEB, (80,), False),
    Start(1101, Service.DATABASE, (3389,), True),
    *_WEB_AND_MAIL,
)
_USER4 = (
    _SSH_LINUX,
    Start(1100, Service.WEB, (80,), False),
    Start(1101, Service.DATABASE, (3390,), True),
    *_WEB_AND_MAIL,
)

HOSTS = (
    HostType(System.LINUX, Subnet.ENTERPRISE, 1, False, _DEFENDER),
    HostType(System.LINUX, Subnet.ENTERPRISE, 10, True, (_SSH_LINUX,)),
    HostType(System.WINDOWS, Subnet.ENTERPRISE, 10, True, _ENTERPRISE_SERVER),
    HostType(System.WINDOWS, Subnet.ENTERPRISE, 10, True, _ENTERPRISE_SERVER),
    HostType(System.LINUX, Subnet.OPERATIONAL, 1, True, (_SSH_LINUX,)),
    HostType(System.LINUX, Subnet.OPERATIONAL, 1, True, (_SSH_LINUX,)),
    HostType(System.LINUX, Subnet.OPERATIONAL, 1, True, (_SSH_LINUX,)),
    HostType(System.LINUX, Subnet.OPERATIONAL, 10, True, (_SSH_LINUX, _OT_SERVICE)),
    HostType(System.WINDOWS, Subnet.USER, 0, True, _DESKTOP),
    HostType(System.WINDOWS, Subnet.USER, 1, True, _DESKTOP),
    HostType(System.WINDOWS, Subnet.USER, 1, True, _USER2),
    HostType(System.LINUX, Subnet.USER, 1, True, _USER3),
    HostType(System.LINUX, Subnet.USER, 1, True, _USER4),
)
ENTERPRISE_HOSTS = (Host.ENTERPRISE0, Host.ENTERPRISE1, Host.ENTERPRISE2)
OPERATIONAL_HOSTS = (Host.OP_HOST0, Host.OP_HOST1, Host.OP_HOST2, Host.OP_SERVER0)
USER_HOSTS = (Host.USER0, Host.USER1, Host.USER2, Host.USER3, Host.USER4)

# Escalating on a host shows red, besides the host's own address, the address of this one.
REVEALS: dict[int, int] = {
    Host.USER1: Host.ENTERPRISE1,
    Host.USER2: Host.ENTERPRISE1,
    Host.USER3: Host.ENTERPRISE0,
    Host.USER4: Host.ENTERPRISE0,
    Host.ENTERPRISE2: Host.OP_SERVER0,
}

# Addresses are drawn subnet by subnet, one for each host in this order (the order itself leaves no trace).
ADDRESSES_DRAWN = (len(ENTERPRISE_HOSTS) + 1, len(OPERATIONAL_HOSTS), len(USER_HOSTS))

# The processes of the sessions that exist from the beginning, in the order in which their ids are drawn:
# blue's server, blue's clients, green's, and red's foothold on User0.
_BLUE_SESSIONS = (
    *(Host.DEFENDER, *USER_HOSTS, *ENTERPRISE_HOSTS, Host.DEFENDER),
    *(Host.OP_SERVER0, Host.OP_HOST0, Host.OP_HOST1, Host.OP_HOST2),
)
_GREEN_SESSIONS = (*USER_HOSTS, Host.OP_HOST0, Host.OP_HOST1, Host.OP_HOST2)
FIRST_SESSIONS = (*_BLUE_SESSIONS, *_GREEN_SESSIONS, Host.USER0)
BLUE_SESSIONS_ON = tuple(_BLUE_SESSIONS.count(host) for host in Host)

GREEN_TARGETS = (*USER_HOSTS, *ENTERPRISE_HOSTS)
EPHEMERAL_PORTS = range(49152, 60000)
PROCESS_IDS = 32768
REVERSE_SHELL_PORT = 4444
P_BEST_EXPLOIT = 0.75
P_DETECTED = 0.95
