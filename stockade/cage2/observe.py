"""What blue sees: 4 bits a host, two for activity in this step, two for what blue believes of the host.

activity     00 none, 10 scan, 11 exploit
compromised  00 no, 10 unsure, 01 user, 11 privileged
Only hosts with connections in a step can show activity, at most red's target and green's, so the bits are updated in
place.
"""

from __future__ import annotations

import numpy as np

from stockade.cage2.jit import kernel
from stockade.cage2.scenario import BIT_COUNT, NOBODY

NONE, SCAN, EXPLOITED = 0, 1, 2
NO, UNSURE, USER_LEVEL, PRIVILEGED = 0, 1, 2, 3
#: Stands for a shell's own port in a mask of ports touched.
SHELL_PORT = 1 << 12


@kernel
def belief(world, host):
    return np.int64(world.obs[4 * host + 2]) + 2 * np.int64(world.obs[4 * host + 3])


@kernel
def believe(world, host, level):
    world.obs[4 * host + 2] = level & 1
    world.obs[4 * host + 3] = level >> 1


@kernel
def show_activity(world, host, activity):
    world.obs[4 * host] = activity != NONE
    world.obs[4 * host + 1] = activity == EXPLOITED


@kernel
def forget_activity(world):
    """Clear the activity bits of the step before."""
    if world.green_target != NOBODY:
        show_activity(world, world.green_target, NONE)
        world.green_target = NOBODY
    if world.red_connections > 0:
        show_activity(world, world.red_target, NONE)
        world.red_connections = 0


@kernel
def monitor(world):
    """The automatic Monitor at the end of a step, then what Analyse found."""
    if world.green_target != NOBODY:
        notice(world, world.green_target)
    if world.red_connections > 0:
        notice(world, world.red_target)
    if world.analysed != NOBODY:
        believe(world, world.analysed, PRIVILEGED)


@kernel
def notice(world, host):
    activity = classify(world, host)
    show_activity(world, host, activity)
    if activity == EXPLOITED:
        believe(world, host, USER_LEVEL)


@kernel
def classify(world, host):
    """What the connections to a host look like.

    Many to three or more ports are a scan. A shell's connection that was seen, or many to one port, are an exploit.
    Anything less is a scan too; but blue's own decoy, placed on the host in this step, counts as one item more and
    hides what is less.
    """
    own_decoy = world.fresh_decoy == host
    items, touched, shell_seen = np.int64(own_decoy), np.int64(0), False
    if world.green_target == host:
        items += world.green_connections
        touched |= world.green_ports
    if world.red_connections > 0 and world.red_target == host:
        items += world.red_connections
        touched |= world.red_touched
        shell_seen = world.detected == 1
    ports = BIT_COUNT[touched]
    if items >= 3 and ports >= 3:
        return SCAN
    if shell_seen or (items >= 3 and ports == 1):
        return EXPLOITED
    return NONE if own_decoy else SCAN
