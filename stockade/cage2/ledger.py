"""The reference's bookkeeping that decides how often its random stream is asked: process ids and ephemeral ports.

Nothing here changes the game beyond two rarities that come from reused process ids: Remove may hit a process that was
never seen, and a decoy that shares an old suspicious id is started again (or, if it was stacked, lost).
All functions take a ledger record. Those that the phases of a step call do nothing without one (`chance="fast"`).
"""

import numpy as np

from stockade.cage2 import mt19937, scenario
from stockade.cage2.jit import compiled
from stockade.cage2.scenario import MOST_STARTING_SESSIONS, N_DECOYS, N_SUBNETS, SERVICE_HOST
from stockade.cage2.state import N_PORTS

#: Kinds of processes in the ledger: decoys 0..7, then a session of red, and what is left when Remove restarts one.
SHELL, LEFTOVER = N_DECOYS, N_DECOYS + 1
N_PIDS, _ADDRESSES_OF_A_SUBNET = 32768, 14


# ---------------------------------------------------------------------------------------------------------- an episode
@compiled
def begin_episode(ledger):
    """Draw addresses and the process ids of the starting sessions; forget the last episode."""
    if ledger is None:
        return
    draw_addresses(ledger)
    keep_processes(ledger, 0)
    for k in range(ledger.n_suspicious):
        ledger.suspicious_host[k] = ledger.suspicious_pid[k] = 0
    ledger.n_suspicious = 0
    ledger.service_process = 1
    for host in range(scenario.N_HOSTS):
        ledger.addresses[host] = ledger.names[host] = host
        ledger.session_pids[host, :] = 0
        forget_host(ledger, host)
    for host in scenario.STARTING_SESSION_HOSTS:
        free = 0
        while ledger.session_pids[host, free] != 0:
            free += 1
        ledger.session_pids[host, free] = draw_pid(ledger, host)


@compiled
def draw_addresses(ledger):
    """`sample` of three subnets out of 4096, then for each of them its hosts out of 14 addresses."""
    for n in range(N_SUBNETS):
        number = mt19937.randbelow(ledger, 4096, 13)
        while n > 0 and (number == ledger.subnet_number[0] or (n > 1 and number == ledger.subnet_number[1])):
            number = mt19937.randbelow(ledger, 4096, 13)
        ledger.subnet_number[n] = number
    first = 0
    for n in range(N_SUBNETS):
        mt19937.randbelow(ledger, 1, 1)  # choice of the one subnet with this name
        pool = np.arange(1, _ADDRESSES_OF_A_SUBNET + 1)
        for k in range(scenario.SUBNET_SIZES[n]):
            left = _ADDRESSES_OF_A_SUBNET - k
            pick = mt19937.randbelow(ledger, left, 4)  # 14 down to 10 all have four bits
            ledger.host_number[scenario.ADDRESS_ORDER[first + k]] = pool[pick]
            pool[pick] = pool[left - 1]
        first += scenario.SUBNET_SIZES[n]


@compiled
def restore_host(ledger, host):
    """The host is as at the start: what came later is gone, but blue's suspicions are not."""
    if ledger is None:
        return
    kept = 0
    for k in range(ledger.n_processes):
        if ledger.process_host[k] != host:
            copy_process(ledger, k, kept)
            kept += 1
    keep_processes(ledger, kept)
    forget_host(ledger, host)
    if host == SERVICE_HOST:
        ledger.service_process = 1


@compiled
def forget_host(ledger, host):
    ledger.decoy_service_pid[host, :] = 0
    ledger.ports[host, :] = np.uint64(0)
    ledger.n_ports[host] = 0


# ----------------------------------------------------------------------------------------------------------- processes
@compiled
def copy_process(ledger, source, target):
    ledger.process_host[target] = ledger.process_host[source]
    ledger.process_kind[target] = ledger.process_kind[source]
    ledger.process_root[target] = ledger.process_root[source]
    ledger.process_pid[target] = ledger.process_pid[source]


@compiled
def keep_processes(ledger, count):
    """Drop all but the first ones, and leave nothing of them: equal ledgers are equal bytes."""
    for k in range(count, ledger.n_processes):
        ledger.process_host[k] = ledger.process_kind[k] = ledger.process_root[k] = 0
        ledger.process_pid[k] = 0
    ledger.n_processes = count


@compiled
def pid_in_use(ledger, host, pid):
    for k in range(scenario.OWN_PROCESSES[host]):
        if scenario.OWN_PIDS[host, k] == pid:
            return True
    for k in range(MOST_STARTING_SESSIONS):
        if ledger.session_pids[host, k] == pid:
            return True
    if host == SERVICE_HOST and pid == scenario.OPERATIONAL_SERVICE_PID and ledger.service_process:
        return True
    return find_process(ledger, host, pid) >= 0


@compiled
def find_process(ledger, host, pid):
    """Position of a process that came after the start, or -1."""
    for k in range(ledger.n_processes):
        if ledger.process_pid[k] == pid and ledger.process_host[k] == host:
            return k
    return -1


@compiled
def draw_pid(ledger, host):
    pid = np.int64(0)
    while pid == 0 or pid_in_use(ledger, host, pid):
        pid = mt19937.randbelow(ledger, N_PIDS, 16)
    return pid


@compiled
def start_process(ledger, host, kind, root):
    """Append a process with a fresh id, which is returned."""
    pid = draw_pid(ledger, host)
    k = ledger.n_processes
    ledger.process_host[k], ledger.process_kind[k] = host, kind
    ledger.process_root[k], ledger.process_pid[k] = root, pid
    ledger.n_processes = k + 1
    return pid


@compiled
def start_decoy(ledger, host, decoy):
    """A decoy's process, and its entry among the host's services unless one of that name is there already."""
    if ledger is None:
        return
    mt19937.randbelow(ledger, 1, 1)  # choice of one element
    pid = start_process(ledger, host, decoy, scenario.DECOY_RUNS_AS_ROOT[decoy])
    if ledger.decoy_service_pid[host, decoy] == 0:
        ledger.decoy_service_pid[host, decoy] = pid


@compiled
def suspect(ledger, host, pid):
    ledger.suspicious_host[ledger.n_suspicious] = host
    ledger.suspicious_pid[ledger.n_suspicious] = pid
    ledger.n_suspicious += 1


@compiled
def is_suspicious(ledger, host, pid):
    for k in range(ledger.n_suspicious):
        if ledger.suspicious_pid[k] == pid and ledger.suspicious_host[k] == host:
            return True
    return False


@compiled
def escalate(ledger, host, pick):
    """The pick-th of red's sessions on a host becomes root. Returns whether Remove would have ended it until now."""
    for k in range(ledger.n_processes):
        if ledger.process_host[k] == host and ledger.process_kind[k] == SHELL:
            if pick == 0:
                ledger.process_root[k] = 1
                return is_suspicious(ledger, host, ledger.process_pid[k])
            pick -= 1
    return False


@compiled
def kill_suspicious(ledger, world, host):
    """Remove: end what runs under a suspicious id and not as root. Returns the number of red's sessions that ended.

    A process that is entered as a service is started again under a new id, though not as a session. A stacked decoy
    may be gone then, so decoys are counted again.
    """
    ended = 0
    for s in range(ledger.n_suspicious):
        if ledger.suspicious_host[s] != host:
            continue
        pid = ledger.suspicious_pid[s]
        k = find_process(ledger, host, pid)
        if k < 0 or ledger.process_root[k]:
            continue
        kind = ledger.process_kind[k]
        for later in range(k + 1, ledger.n_processes):
            copy_process(ledger, later, later - 1)
        keep_processes(ledger, ledger.n_processes - 1)
        ended += kind == SHELL
        if is_service(ledger, host, pid, world.service_has_process):
            start_process(ledger, host, kind if kind < N_DECOYS else LEFTOVER, False)
    mask, count = 0, 0
    for k in range(ledger.n_processes):
        if ledger.process_host[k] == host and ledger.process_kind[k] < N_DECOYS:
            mask |= 1 << np.int64(ledger.process_kind[k])
            count += 1
    world.decoys[host] = mask
    world.n_decoys[host] = count
    return ended


@compiled
def is_service(ledger, host, pid, service_has_process):
    for decoy in range(N_DECOYS):
        if ledger.decoy_service_pid[host, decoy] == pid:
            return True
    return host == SERVICE_HOST and service_has_process and pid == scenario.OPERATIONAL_SERVICE_PID


# --------------------------------------------------------------------------------------------------------------- ports
@compiled
def take_ports(ledger, host, count):
    """Each connection to a host takes an ephemeral port; one in use is drawn once more, and the second one is taken."""
    if ledger is None:
        return
    for _ in range(count):
        port = mt19937.randbelow(ledger, N_PORTS, 14)
        if (ledger.ports[host, port >> 6] >> np.uint64(port & 63)) & np.uint64(1) != np.uint64(0):
            port = mt19937.randbelow(ledger, N_PORTS, 14)
        ledger.ports[host, port >> 6] |= np.uint64(1) << np.uint64(port & 63)
        ledger.n_ports[host] += 1
