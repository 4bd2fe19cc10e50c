"""The scenario as data: hosts, services, decoys, exploits, and the lookup tables the kernel reads.

scenario2.toml, the facts of CAGE Challenge 2's Scenario2 in words -> small integer tables derived from them. Behaviour
lives elsewhere (blue.py, green.py, red.py, observe.py); nothing there knows a name. Numba freezes module-level arrays
into the compiled code, so all tables are read-only.
"""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Process(NamedTuple):
    """A process that runs when an episode begins. `kind` is what an exploit looks for."""

    pid: int
    kind: str
    ports: tuple[int, ...]
    user: str


class HostFacts(NamedTuple):
    """`os` is W(indows) or L(inux); `brute_force` the account that guessing passwords opens, if any."""

    os: str
    brute_force: str | None
    processes: tuple[Process, ...]


class Decoy(NamedTuple):
    """`port` is opened, `needs_free` is tested."""

    name: str
    port: int
    kind: str
    needs_free: int
    os: str | None = None
    runs_as_root: bool = False


class Exploit(NamedTuple):
    """Red may choose it when it knows `port` to be open; it prefers the highest `weight`."""

    name: str
    weight: float
    port: int
    kind: str


_FACTS = tomllib.loads(Path(__file__).with_name("scenario2.toml").read_text())
HOSTS = tuple(_FACTS["hosts"])
SUBNET_HOSTS: dict[str, list[str]] = _FACTS["subnets"]
PORTS = tuple(_FACTS["ports"])  #: bit i of a port mask
ROOT_USERS = tuple(_FACTS["root_users"])
_PROCESSES = {
    name: [Process(pid, kind, tuple(ports), user) for pid, kind, ports, user in group]
    for name, group in _FACTS["processes"].items()
}
FACTS = {
    host: HostFacts(own["os"], own.get("brute_force"), tuple(p for name in own["runs"] for p in _PROCESSES[name]))
    for host, own in _FACTS["facts"].items()
}
STARTING_SESSIONS = tuple(host for hosts in _FACTS["starting_sessions"].values() for host in hosts)
REVEALED_BY_ESCALATION: dict[str, str] = _FACTS["revealed_by_escalation"]
DECOYS = tuple(Decoy(name, **own) for name, own in _FACTS["decoys"].items())
EXPLOITS = tuple(Exploit(name, **own) for name, own in _FACTS["exploits"].items())

SUBNETS, USERS = tuple(SUBNET_HOSTS), SUBNET_HOSTS["User"]
N_HOSTS, N_SUBNETS, N_DECOYS, N_EXPLOITS = len(HOSTS), len(SUBNETS), len(DECOYS), len(EXPLOITS)
ENTERPRISE, OPERATIONAL, USER = range(3)
host_index = HOSTS.index  #: position of a host in observations and actions
FOOTHOLD = host_index("User0")  #: where red's first session lives; nothing removes it
SERVICE_HOST = host_index("Op_Server0")  #: runs the operational service that Impact stops
OPERATIONAL_SERVICE_PID = 1043  #: process of that service until Impact stops it
DEFENDER = host_index("Defender")  #: blue has two sessions here, one elsewhere
NOBODY = -1  #: in place of a host where there is none
SERVICE_DOWN_COST = 100  #: tenths of a reward point
RESTORE_COST = 10
NO_EXPLOIT, SSH_BRUTE_FORCE, SQL_INJECTION, HARAKA_RCE = 0, 5, 6, 7
BEST_EXPLOIT_PROBABILITY = 0.75
DETECTION_PROBABILITY = 0.95
EXPLOIT_CONNECTIONS = 1  #: connections that an ordinary exploit makes to its target
SSH_CONNECTIONS = 10  #: and the guessing of passwords


# -------------------------------------------------------------------------------- tables: everything below is derived
def _frozen(values: object, dtype: type) -> np.ndarray:
    table: np.ndarray = np.array(values, dtype)
    table.setflags(write=False)
    return table


def _port_mask(ports: Iterable[int]) -> int:
    return sum(1 << PORTS.index(port) for port in set(ports))


def _mask_of_hosts(names: Iterable[str]) -> int:
    return sum(1 << host_index(name) for name in names)


#: (13,) what one step of red root/SYSTEM on a host costs, in tenths of a reward point.
HOST_COST = _frozen(_FACTS["host_cost"], np.int32)
#: (8,) the active green agent scans one of these.
GREEN_TARGETS = _frozen([host_index(h) for h in (*USERS, "Enterprise0", "Enterprise1", "Enterprise2")], np.int8)
SUBNET_OF = _frozen([next(s for s, net in enumerate(SUBNETS) if h in SUBNET_HOSTS[net]) for h in HOSTS], np.int8)
SUBNET_MASK = _frozen([_mask_of_hosts(SUBNET_HOSTS[net]) for net in SUBNETS], np.int32)
#: Hosts from which the Operational subnet can be reached; the Defender shares their subnet but is none of them.
GATEWAYS = _frozen([host_index(h) for h in HOSTS if h.startswith("Enterprise")], np.int8)
OP_HOSTS_MASK = _mask_of_hosts(SUBNET_HOSTS["Operational"])
ENTERPRISE_HOSTS_MASK = _mask_of_hosts(h for h in HOSTS if h.startswith("Enterprise"))
REVEALS_MASK = _frozen(
    [1 << host_index(REVEALED_BY_ESCALATION[h]) if h in REVEALED_BY_ESCALATION else 0 for h in HOSTS], np.int32
)

#: (13,) ports that a host's own services hold open, and how many listeners they are.
OWN_PORTS = _frozen([_port_mask(p for x in FACTS[h].processes for p in x.ports) for h in HOSTS], np.int16)
OWN_LISTENERS = _frozen([sum(len(x.ports) for x in FACTS[h].processes) for h in HOSTS], np.int8)
#: (256,) ports that a set of decoys holds open.
DECOY_PORTS = _frozen(
    [_port_mask(d.port for i, d in enumerate(DECOYS) if mask >> i & 1) for mask in range(1 << N_DECOYS)], np.int16
)
DECOY_NEEDS_FREE = _frozen([_port_mask((d.needs_free,)) for d in DECOYS], np.int16)
DECOY_RUNS_AS_ROOT = _frozen([d.runs_as_root for d in DECOYS], np.bool_)
#: (8, 13) does the decoy run on the host's operating system, and could it ever start beside the host's own services?
DECOY_FITS_OS = _frozen([[d.os in (None, FACTS[h].os) for h in HOSTS] for d in DECOYS], np.bool_)
DECOY_CAN_START = _frozen(DECOY_FITS_OS & (DECOY_NEEDS_FREE[:, None] & OWN_PORTS == 0), np.bool_)

#: What a host's own service does when exploited.
NO_ANSWER, USER_SHELL, ROOT_SHELL, SSH_SESSION, SSH_REFUSED = range(5)


def _own_answer(host: str, exploit: Exploit) -> int:
    facts = FACTS[host]
    target = next((p for p in facts.processes if p.kind == exploit.kind and exploit.port in p.ports), None)
    if target is None:
        return NO_ANSWER
    if exploit.kind == "SSH":
        return SSH_SESSION if facts.brute_force else SSH_REFUSED
    return ROOT_SHELL if target.user in ROOT_USERS else USER_SHELL


#: (13, 9) the answer of a host's own service to each exploit; it always answers before any decoy.
OWN_ANSWER = _frozen([[_own_answer(h, e) for e in EXPLOITS] for h in HOSTS], np.int8)
#: (9,) decoys that pretend to fall for an exploit.
DECOYS_FOOLING = _frozen(
    [sum(1 << i for i, d in enumerate(DECOYS) if (d.kind, d.port) == (e.kind, e.port)) for e in EXPLOITS], np.int16
)
#: (9,) the port an exploit connects to, as a port mask.
EXPLOIT_PORT = _frozen([0] + [_port_mask((e.port,)) for e in EXPLOITS[1:]], np.int16)


def _exploit_options(ports: int) -> int:
    known = [port for bit, port in enumerate(PORTS) if ports >> bit & 1]
    options = [e for e, exploit in enumerate(EXPLOITS) if exploit.port in known]
    return sum(1 << e for e in options if e != SQL_INJECTION or 80 in known or 443 in known)


#: (4096,) exploits that red considers, bit e for exploit e, by the ports it remembers.
EXPLOIT_OPTIONS = _frozen([_exploit_options(ports) for ports in range(1 << len(PORTS))], np.int16)
_option_lists = [[e for e in range(1, N_EXPLOITS) if mask >> e & 1] for mask in range(1 << N_EXPLOITS)]
#: (512,) how many options there are, which is best, and (512, 8) the others in the reference's order.
OPTION_COUNT = _frozen([len(options) for options in _option_lists], np.int8)
BEST_OPTION = _frozen([max(o, key=lambda e: EXPLOITS[e].weight, default=0) for o in _option_lists], np.int8)
OTHER_OPTIONS = _frozen(
    [([e for e in o if e != best] + [0] * 8)[:8] for o, best in zip(_option_lists, BEST_OPTION, strict=True)], np.int8
)

#: (8192,) number of bits in a mask of hosts or ports.
BIT_COUNT = _frozen([mask.bit_count() for mask in range(1 << 13)], np.int8)

# ------------------------------------------------------------------------------ tables that only the ledger reads
_own_pids = [[p.pid for p in FACTS[h].processes] for h in HOSTS]
OWN_PIDS = _frozen([pids + [0] * (max(map(len, _own_pids)) - len(pids)) for pids in _own_pids], np.int32)
OWN_PROCESSES = _frozen([len(pids) for pids in _own_pids], np.int8)
STARTING_SESSION_HOSTS = _frozen([host_index(h) for h in STARTING_SESSIONS], np.int8)
MOST_STARTING_SESSIONS = max(STARTING_SESSIONS.count(h) for h in HOSTS)
ADDRESS_ORDER = _frozen([host_index(h) for net in SUBNETS for h in SUBNET_HOSTS[net]], np.int8)
SUBNET_SIZES = _frozen([len(SUBNET_HOSTS[net]) for net in SUBNETS], np.int8)
