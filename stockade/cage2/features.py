"""What is the case in a world, as features: who holds which host, what red knows, how far it is.

a world, its weight -> added to each feature that is the case in it; over all particles of a belief: probabilities
"""

import numpy as np

from stockade.cage2.actions import TRUE
from stockade.cage2.jit import compiled
from stockade.cage2.scenario import ENTERPRISE, FOOTHOLD, HOSTS, N_HOSTS, OPERATIONAL, USERS
from stockade.cage2.state import BLINE, DETOUR, ROOT_ACCESS, bit

#: What is probable of each host.
HOST_FEATURES = (
    "red has access to", "red is root on", "Remove would end a session on", "Remove would leave a session on",
    "a shell's file on", "an escalation's file on", "red has scanned ports of", "red knows the address of",
    "red knows the name of", "Meander has scanned", "Meander takes for exploited", "Meander takes for escalated",
    "red's last target is",
)  # fmt: skip
_BLINE_STEPS = 18  #: those of the detour; B_line itself has 15
_KINDS = ("Sleep", "DiscoverRemoteSystems", "DiscoverNetworkServices", "Exploit", "PrivilegeEscalate", "Impact")
FEATURE_NAMES: tuple[str, ...] = (
    *(f"{what} {host}" for what in HOST_FEATURES for host in HOSTS),
    *(f"B_line is at step {step}" for step in range(_BLINE_STEPS)),
    *(f"B_line enters through {host}" for host in USERS[1:]),
    *(f"red is {who}" for who in ("asleep", "B_line", "Meander")),
    *(f"red's last action is {kind}" for kind in _KINDS),
    *("red's last action succeeded", "red knows the Enterprise subnet", "red knows the Operational subnet"),
    *("the service is down", "green is active", "the rules are leaderboard"),
)  # fmt: skip
N_FEATURES = len(FEATURE_NAMES)
_N_HOST_FEATURES = len(HOST_FEATURES) * N_HOSTS
_ENTRY = _BLINE_STEPS
_ATTACKER = _ENTRY + len(USERS) - 1
_KIND = _ATTACKER + 3
_SUCCESS = _KIND + len(_KINDS)


@compiled
def write_masks(world, masks):
    """What is the case on which hosts: a mask for each of HOST_FEATURES."""
    access = root = removable = lasting = shell = escalation = ports = np.int64(0)
    for h in range(N_HOSTS):
        access |= np.int64(world.red_access[h] > 0) << h
        root |= np.int64(world.red_access[h] == ROOT_ACCESS) << h
        removable |= np.int64(world.red_removable[h] > 0) << h
        lasting |= np.int64(world.red_sessions[h] > world.red_removable[h]) << h
        shell |= np.int64(world.files[h] & 1) << h
        escalation |= np.int64(world.files[h] >> 1) << h
        ports |= np.int64(world.red_ports[h] != 0) << h
    masks[0], masks[1], masks[2], masks[3] = access, root, removable, lasting
    masks[4], masks[5], masks[6] = shell, escalation, ports
    masks[7], masks[8] = world.known_addresses, world.known_names
    masks[9], masks[10], masks[11] = world.meander_scanned, world.meander_exploited, world.meander_escalated
    masks[12] = bit(world.red_target) if 0 <= world.red_target < N_HOSTS else 0


@compiled
def add_rest(world, settings, weight, sure, out):
    """Add the weight of a world to what is the case in it and belongs to no host; of red's plan only `sure`."""
    if world.red == BLINE:
        out[world.bline_step] += sure
        if world.bline_entry >= 0:
            detours = settings.style[world.plan, world.phase] == DETOUR
            out[_ENTRY + (world.bline_entry % 4 if detours else world.bline_entry - FOOTHOLD - 1)] += sure
    out[_ATTACKER + world.red] += sure
    out[_KIND + world.red_type] += weight
    out[_SUCCESS] += weight * (world.red_success == TRUE)
    out[_SUCCESS + 1] += weight * (world.known_subnets >> ENTERPRISE & 1)
    out[_SUCCESS + 2] += weight * (world.known_subnets >> OPERATIONAL & 1)
    out[_SUCCESS + 3] += weight * world.service_down
    out[_SUCCESS + 4] += weight * (settings.green_rate[world.plan, world.phase] > 0)
    out[_SUCCESS + 5] += weight * settings.leaderboard


@compiled
def add_world(world, settings, weight, sure, masks, out):
    """Add the weight of a world to all that is the case in it.

    Args:
        sure: the part of the weight for who red is and how far along: less than all where red was seen to do what none
            of the possible attackers does, so that these probabilities no longer add up to 1.
        masks: (13,) int64, for use in here.
    """
    write_masks(world, masks)
    for f in range(len(HOST_FEATURES)):
        for h in range(N_HOSTS):
            if masks[f] >> h & 1:
                out[f * N_HOSTS + h] += weight
    add_rest(world, settings, weight, sure, out[_N_HOST_FEATURES:])
