"""Facts about hosts that several phases ask for: open ports, listeners, red's access and what it costs."""

from __future__ import annotations

import numpy as np

from stockade.cage2.jit import compiled
from stockade.cage2.scenario import DECOY_PORTS, HOST_COST, OWN_LISTENERS, OWN_PORTS

NO_ACCESS, USER_ACCESS, ROOT_ACCESS = 0, 1, 2


@compiled
def bit(index):
    """Mask with one bit set."""
    return np.int64(1) << np.int64(index)


@compiled
def open_ports(world, host):
    """Mask of the ports that a host's services and decoys hold open."""
    return np.int64(OWN_PORTS[host] | DECOY_PORTS[world.decoys[host]])


@compiled
def listeners(world, host):
    """How many sockets a port scan finds; stacked decoys listen on the same port."""
    return np.int64(OWN_LISTENERS[host]) + np.int64(world.n_decoys[host])


@compiled
def update_access(world, host):
    """Set red's access to a host, and what it costs, from its sessions there."""
    had_root, has_root = world.red_access[host] == ROOT_ACCESS, world.red_root_sessions[host] > 0
    access = USER_ACCESS if world.red_sessions[host] > 0 else NO_ACCESS
    world.red_access[host] = ROOT_ACCESS if has_root else access
    world.root_cost += HOST_COST[host] * (np.int32(has_root) - np.int32(had_root))
