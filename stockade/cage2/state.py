"""The state of one world as a record, what follows from it, and the ledger that only the reference's stream needs.

Worlds lie side by side in one structured array, so that a step touches five cache lines, a snapshot is a copy of
bytes, and `worlds["red_access"]` is a view of all worlds that costs nothing.

The ledger (`chance="cyborg"`) holds CPython's generator and what decides how often it is asked. Under `chance="fast"`
kernels get `None` in its place, and Numba compiles the branches on it away.
"""

import numpy as np

from stockade.cage2 import scenario
from stockade.cage2.actions import MONITOR, UNKNOWN
from stockade.cage2.jit import compiled
from stockade.cage2.scenario import FOOTHOLD, N_DECOYS, N_HOSTS, N_SUBNETS, NOBODY

OBS_SIZE = 4 * N_HOSTS
NO_ACCESS, USER_ACCESS, ROOT_ACCESS = 0, 1, 2
SLEEPING, BLINE, MEANDER, MIX, PLAYER, PLANNED = range(6)
#: How an attacker of a plan goes about it (variants.py): as in the reference, or not.
USUAL, DETOUR, AGGRESSIVE, STEALTHY = range(4)
MOST_PLANS, MOST_PHASES = 16, 4  #: plans of which one is drawn per episode, attackers that take turns in a plan

WORLD = np.dtype(
    [
        ("stream", np.uint64),  # the fast random stream
        # what blue sees: one word per host, see observe.py; the last one takes what is shown nowhere
        ("obs", np.int32, N_HOSTS + 1),
        # the hosts
        ("red_access", np.uint8, N_HOSTS),  # 0 none, 1 user, 2 root or SYSTEM
        ("decoys", np.uint8, N_HOSTS),  # bit d: decoy d is up
        ("files", np.uint8, N_HOSTS),  # 1 a shell's file, 2 an escalation's
        ("n_decoys", np.uint16, N_HOSTS),  # processes, since Vsftpd stacks
        ("red_sessions", np.uint16, N_HOSTS),
        ("red_root_sessions", np.uint16, N_HOSTS),
        ("red_removable", np.uint16, N_HOSTS),  # user-level sessions that Remove would end
        ("restored", np.int32),  # mask of hosts restored in this episode
        ("root_cost", np.int32),  # tenths that red's root sessions cost per step
        # the operational service
        ("service_down", np.uint8),
        ("service_active", np.uint8),
        ("service_has_process", np.uint8),  # lost for good with the first Restore of its host
        # what red knows: masks of hosts and subnets, ports of its last scan of each host
        ("known_addresses", np.int32),
        ("known_names", np.int32),
        ("known_subnets", np.int32),
        ("red_ports", np.int16, N_HOSTS),
        ("red_knows_service", np.uint8),
        # red's plan
        ("red", np.uint8),
        ("bline_step", np.int8),
        ("bline_entry", np.int8),
        ("bline_saw_server", np.uint8),
        ("plan", np.uint8),  # which of several plans (variants.py)
        ("meander_subnets", np.int32),
        ("meander_scanned", np.int32),
        ("meander_exploited", np.int32),
        ("meander_escalated", np.int32),
        ("meander_mapped", np.int32),
        ("meander_last_exploit", np.int8),
        ("meander_last_escalate", np.int8),
        # the last step: who did what, with what success
        ("blue_action", np.int16),
        ("blue_success", np.int8),
        ("fresh_decoy", np.int8),  # host on which blue placed a decoy in this step
        ("analysed", np.int8),  # host on which blue found files in this step
        ("green_target", np.int8),
        ("green_ports", np.int16),  # ports that green touched there
        ("green_connections", np.int16),
        ("red_type", np.int8),
        ("red_target", np.int8),
        ("red_success", np.int8),
        ("red_saw_ports", np.uint8),
        ("exploit", np.int8),
        ("detected", np.int8),  # 1 blue saw the shell's connection, 0 it did not, -1 no shell
        ("red_contact", np.int8),  # host that red made connections to, how many, to which ports
        ("held", np.uint8),  # while red's attacker pauses: HELD, how its last action went, 4 if it saw ports
        ("red_connections", np.int16),
        ("red_touched", np.int16),
        ("reward", np.int32),  # tenths, as the challenge pays it
        # the episode
        ("time", np.int32),
        ("over", np.uint8),
        ("phase", np.uint8),  # whose turn it is in red's plan, and the time at which it began
        ("phase_began", np.uint16),
    ],
    align=True,
)
HELD = 8  #: of `held`, so that it is not 0


def _initial_world() -> np.ndarray:
    world = np.zeros(1, WORLD)
    for field in ("bline_entry", "meander_last_exploit", "meander_last_escalate", "fresh_decoy", "analysed",
                  "green_target", "red_target", "red_contact", "detected"):  # fmt: skip
        world[field] = NOBODY
    world["red_access"][0, FOOTHOLD] = ROOT_ACCESS
    world["red_sessions"][0, FOOTHOLD] = world["red_root_sessions"][0, FOOTHOLD] = 1
    world["known_addresses"] = world["known_names"] = 1 << FOOTHOLD
    world["known_subnets"] = 1 << scenario.USER
    world["service_active"] = world["service_has_process"] = 1
    world["blue_action"], world["blue_success"], world["red_success"] = MONITOR, UNKNOWN, UNKNOWN
    return world


#: What every episode begins with; `reset` copies it and keeps `stream` and `red`.
INITIAL = _initial_world()


#: (256,) eight bits as the eight bytes of a word, lowest first.
SPREAD = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").view(np.uint64)[:, 0].copy()
SPREAD.setflags(write=False)


# ------------------------------------------------------------------------ what several phases of a step ask of a world
@compiled
def bit(index):
    """Mask with one bit set."""
    return np.int64(1) << np.int64(index)


@compiled
def count_bits(mask):
    """How many bits of a mask are set. A function, because on a GPU each use of a table is one more copy of it."""
    return scenario.BIT_COUNT[mask]


@compiled
def open_ports(world, host):
    """Mask of the ports that a host's services and decoys hold open."""
    return np.int64(scenario.OWN_PORTS[host] | scenario.DECOY_PORTS[world.decoys[host]])


@compiled
def listeners(world, host):
    """How many sockets a port scan finds; stacked decoys listen on the same port."""
    return np.int64(scenario.OWN_LISTENERS[host]) + np.int64(world.n_decoys[host])


@compiled
def update_access(world, host):
    """Set red's access to a host, and what it costs, from its sessions there."""
    had_root, has_root = world.red_access[host] == ROOT_ACCESS, world.red_root_sessions[host] > 0
    access = USER_ACCESS if world.red_sessions[host] > 0 else NO_ACCESS
    world.red_access[host] = ROOT_ACCESS if has_root else access
    world.root_cost += scenario.HOST_COST[host] * (np.int32(has_root) - np.int32(had_root))


# ---------------------------------------------------------------------------------------------------------- the ledger
MT_WORDS = 624
N_PORTS = 60000 - 49152  #: ephemeral ports
PORT_WORDS = -(-N_PORTS // 64)


def ledger_dtype(horizon: int) -> np.dtype:
    """Record of the ledger, with room for what `horizon` steps can add.

    A step adds at most one decoy, one shell and one suspicious process. Capacity grows in powers of two from 512
    because Numba compiles anew for each record type: horizons up to 512 share one.
    """
    steps = max(512, 1 << (horizon - 1).bit_length())
    return np.dtype(
        [
            # MT19937: its state, the tempered words of this block, the next word to hand out, blocks made so far
            ("mt", np.uint32, MT_WORDS),
            ("words", np.uint32, MT_WORDS),
            ("next", np.int32),
            ("blocks", np.int64),
            # lists that Meander shuffles
            ("addresses", np.int8, N_HOSTS),
            ("names", np.int8, N_HOSTS),
            # addresses
            ("subnet_number", np.int32, N_SUBNETS),
            ("host_number", np.int32, N_HOSTS),
            # processes beside a host's own: those of the starting sessions, and what came later (decoys, shells)
            ("session_pids", np.int32, (N_HOSTS, scenario.MOST_STARTING_SESSIONS)),
            ("n_processes", np.int32),
            ("process_host", np.int8, 2 * steps),
            ("process_kind", np.int8, 2 * steps),
            ("process_root", np.uint8, 2 * steps),
            ("process_pid", np.int32, 2 * steps),
            ("decoy_service_pid", np.int32, (N_HOSTS, N_DECOYS)),  # 0: no such service
            ("service_process", np.uint8),  # the operational service's process runs
            # process ids that blue suspects, until the episode ends
            ("n_suspicious", np.int32),
            ("suspicious_host", np.int8, steps),
            ("suspicious_pid", np.int32, steps),
            # ephemeral ports in use: one bit per port, and how many were taken
            ("ports", np.uint64, (N_HOSTS, PORT_WORDS)),
            ("n_ports", np.int32, N_HOSTS),
        ],
        align=True,
    )
