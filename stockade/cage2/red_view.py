"""What a red player sees, from the results of its own actions only: 264 bits, and a mask of the actions it can try.

(red's memory, the last action and how it went) -> memory; (memory, what red has found out, steps left) -> 264 bits

| bits | 1 means |
|---|---|
| 0-12 | red knows the address of host 0-12 |
| 13-25 | red knows the name of the host: it has been there |
| 26-38 | red believes that it has a session there |
| 39-51 | red believes that it has root there |
| 52-64 | red's last exploit of the host failed |
| 65-220 | red remembers port p of host h as open: bit 65 + 12 h + p, ports in the order of `scenario.PORTS` |
| 221-223 | red knows the subnet: Enterprise, Operational, User |
| 224-226 | red has discovered the systems of the subnet |
| 227 | red knows the operational service, so that Impact can stop it |
| 228 | red's last Impact succeeded |
| 229-234 | kind of red's last action, in the order of `actions.RED_TYPES` (Sleep before the first) |
| 235-250 | its target: host 0-12, subnet Enterprise, Operational, User |
| 251, 252 | it succeeded; it failed (neither: Sleep) |
| 253 | it was a scan or an exploit, and a service (or decoy) answered; a blocked scan succeeds with no answer |
| 254-263 | at least 2, 3, 5, 8, 12, 18, 25, 35, 50, 75 steps are left |

Beliefs follow from results: an exploit that succeeds gives a session, an escalation root. An escalation that fails
shows that no session is left on the host, and so does an Impact on the service's host once red knows the service.
A blocked scan of the Operational subnet shows that no session is left on Enterprise0-2. Until then red goes on
believing, whatever blue has done.
"""

import numpy as np

from stockade.cage2 import actions, scenario
from stockade.cage2.actions import FALSE, FIRST_SUBNET, N_RED_ACTIONS, RED_TARGETS, RED_TYPES, TRUE
from stockade.cage2.history import CLOCK
from stockade.cage2.jit import KERNEL_SOURCES, cached, compiled
from stockade.cage2.red import can_try
from stockade.cage2.scenario import FOOTHOLD, HOSTS, N_HOSTS, NOBODY, PORTS, SERVICE_HOST, SUBNETS
from stockade.cage2.state import SPREAD, bit

#: What red remembers of an episode beside what is in its world's record: masks of hosts.
RED_MEMORY = np.dtype(
    [
        ("sessions", np.int32),  # red believes that it has a session there
        ("roots", np.int32),  # and root
        ("failed", np.int32),  # the last exploit failed there
        ("discovered", np.uint8),  # mask of subnets whose systems red has discovered
        ("impact", np.uint8),  # the last Impact succeeded
    ],
    align=True,
)

#: What each of the 264 bits says.
RED_FEATURE_NAMES: tuple[str, ...] = (
    *(f"{what} {host}" for what in ("knows address of", "knows name of", "session on", "root on", "exploit failed on")
      for host in HOSTS),
    *(f"{host} has port {port}" for host in HOSTS for port in PORTS),
    *(f"{what} subnet {subnet}" for what in ("knows", "discovered") for subnet in SUBNETS),
    "knows the service", "last Impact succeeded",
    *(f"last action {kind}" for kind in RED_TYPES),
    *(f"last action on {target}" for target in RED_TARGETS),
    "last action succeeded", "last action failed", "last action was answered",
    *(f"{steps} steps left or more" for steps in CLOCK),
)  # fmt: skip
RED_OBS_SIZE = len(RED_FEATURE_NAMES)
#: Of each of the 56 actions the bit of the observation that says that red can try it; -1 for Sleep: it always can.
RED_GATES: tuple[int, ...] = (
    -1, *(RED_FEATURE_NAMES.index(f"knows subnet {subnet}") for subnet in SUBNETS),
    *(*range(N_HOSTS),) * 2, *(*range(N_HOSTS, 2 * N_HOSTS),) * 2,
)  # fmt: skip

#: The clock's bits by steps left, up to its last threshold.
_CLOCK_BITS = np.array([sum(1 << k for k, least in enumerate(CLOCK) if left >= least) for left in range(CLOCK[-1] + 1)])
_CLOCK_BITS.setflags(write=False)


@compiled
def _forget(memory):
    """An episode begins with the foothold."""
    memory.sessions = memory.roots = 1 << FOOTHOLD
    memory.failed = 0
    memory.discovered = memory.impact = 0


@compiled
def _remember(memory, world):
    """Take in how red's last action went. Without branches, because the processor cannot predict a player's actions."""
    kind, target = world.red_type, max(np.int64(world.red_target), 0)
    exploits, escalates = np.int64(kind == actions.EXPLOIT), np.int64(kind == actions.ESCALATE)
    impacts, scans = np.int64(kind == actions.IMPACT), np.int64(kind == actions.DISCOVER_SERVICES)
    discovers = np.int64(kind == actions.DISCOVER_SYSTEMS)
    success, mark = np.int64(world.red_success == TRUE), bit(target)
    failure, no_answer = 1 - success, 1 - np.int64(world.red_saw_ports)
    # Only the Operational subnet can be blocked, and only while red has no session on an Enterprise host.
    tried = np.int64(world.known_subnets) << FIRST_SUBNET >> target & 1
    blocked = scans * success * no_answer + discovers * failure * tried
    could_stop = impacts * np.int64(target == SERVICE_HOST) * np.int64(world.red_knows_service)
    lost = mark * failure * (escalates + could_stop) | scenario.ENTERPRISE_HOSTS_MASK * blocked
    memory.sessions = (memory.sessions | mark * success * (exploits + escalates)) & ~lost
    memory.roots = (memory.roots | mark * success * escalates) & ~lost
    memory.failed = (memory.failed & ~(mark * exploits)) | mark * exploits * failure
    memory.discovered |= discovers * success * (mark >> FIRST_SUBNET)
    memory.impact = impacts * success + (1 - impacts) * memory.impact


@compiled
def _write(memory, world, steps_left, out):
    """The 264 bits into 33 words of 8 bytes: 64 bits at a time, at the places that the table above names."""
    ports, failed = world.red_ports, np.int64(memory.failed)
    hosts = np.int64(world.known_addresses) | np.int64(world.known_names) << 13
    _spread(out, 0, hosts | np.int64(memory.sessions) << 26 | np.int64(memory.roots) << 39 | failed << 52)

    bits = failed >> 12
    for host in range(6):
        bits |= np.int64(ports[host]) << (65 - 64 + 12 * host)
    _spread(out, 8, bits)
    bits = np.int64(ports[5]) >> 3
    for host in range(6, 11):
        bits |= np.int64(ports[host]) << (65 - 128 + 12 * host)
    _spread(out, 16, bits)
    bits = np.int64(ports[10]) >> 7 | np.int64(ports[11]) << 5 | np.int64(ports[12]) << 17

    bits |= np.int64(world.known_subnets) << 221 - 192 | np.int64(memory.discovered) << 224 - 192
    bits |= np.int64(world.red_knows_service) << 227 - 192 | np.int64(memory.impact) << 228 - 192
    target = np.int64(world.red_target)
    bits |= np.int64(1) << 229 - 192 + np.int64(world.red_type)
    bits |= np.int64(target != NOBODY) << 235 - 192 + max(target, 0)
    succeeded, was_failure = np.int64(world.red_success == TRUE), np.int64(world.red_success == FALSE)
    bits |= succeeded << 251 - 192 | was_failure << 252 - 192 | np.int64(world.red_contact != NOBODY) << 253 - 192
    clock = _CLOCK_BITS[min(steps_left, len(_CLOCK_BITS) - 1)]
    _spread(out, 24, bits | clock << 254 - 192)
    out[32] = SPREAD[clock >> 2]


@compiled
def _spread(out, place, bits):
    """Write 64 bits as 8 words from `place`."""
    bits = np.uint64(bits)
    for k in range(8):
        out[place + k] = SPREAD[(bits >> np.uint64(8 * k)) & np.uint64(255)]


entry_point = cached(*KERNEL_SOURCES, "cage2/history.py", "cage2/red_view.py")


@entry_point
def observe_red_batch(memory, worlds, horizon, stepped, out, begin, end):
    """What red sees in worlds [begin, end), (n, 33) uint64; if they were `stepped`, it takes in its last result."""
    for i in range(begin, end):
        if worlds[i].time == 0:
            _forget(memory[i])
        elif stepped:
            _remember(memory[i], worlds[i])
        _write(memory[i], worlds[i], horizon - worlds[i].time, out[i])


@entry_point
def red_mask_batch(worlds, out, begin, end):
    """The actions that red can try, (n, 56) int8: those whose subnet, address or host name it knows, and Sleep."""
    for i in range(begin, end):
        for a in range(N_RED_ACTIONS):
            out[i, a] = can_try(worlds[i], actions.RED_ACTION_KIND[a], actions.RED_ACTION_TARGET[a])
