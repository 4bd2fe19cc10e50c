"""Blue's turn: Sleep, Monitor, Analyse, Remove, eight decoys, Restore."""

import numpy as np

from stockade.cage2 import actions, chance
from stockade.cage2.jit import compiled
from stockade.cage2.ledger import restore_host, start_decoy
from stockade.cage2.observe import NO, UNSURE, believe, suspects
from stockade.cage2.scenario import DECOY_FITS_OS, DECOY_NEEDS_FREE, FOOTHOLD, NOBODY, SERVICE_HOST
from stockade.cage2.state import bit, open_ports, update_access


@compiled
def blue_acts(world, ledger, action):
    """Carry out one of the 145 actions."""
    world.blue_action = action
    world.blue_success = actions.UNKNOWN if action == actions.SLEEP else actions.TRUE
    world.fresh_decoy = world.analysed = NOBODY
    kind, host = actions.ACTION_KIND[action], actions.ACTION_HOST[action]
    if kind == actions.NO_KIND:
        return
    chance.blue_picks_session(ledger, host)
    if kind == actions.ANALYSE:
        analyse(world, host)
    elif kind == actions.REMOVE:
        remove(world, ledger, host)
    elif kind == actions.RESTORE:
        restore(world, ledger, host)
    else:
        place_decoy(world, ledger, host, kind - actions.FIRST_DECOY)


@compiled
def analyse(world, host):
    """Find the files that shells and escalations leave, whether or not red is still there."""
    if world.files[host]:
        world.analysed = host


@compiled
def remove(world, ledger, host):
    """End user-level shells whose connection blue saw. What blue believed compromised is now unsure."""
    ended = chance.remove_sessions(world, ledger, host)
    if ended:
        world.red_sessions[host] -= ended
        update_access(world, host)
    world.red_removable[host] = 0
    if suspects(world, host):
        believe(world, host, UNSURE)


@compiled
def restore(world, ledger, host):
    """Put a host back to its start: sessions, files and decoys are gone. Red's foothold survives."""
    restore_host(ledger, host)
    surviving = 1 if host == FOOTHOLD else 0
    world.red_sessions[host] = world.red_root_sessions[host] = surviving
    world.red_removable[host] = 0
    update_access(world, host)
    world.files[host] = world.decoys[host] = world.n_decoys[host] = 0
    world.restored |= bit(host)
    if host == SERVICE_HOST:
        # The service runs again, but under no process that Impact could still stop.
        world.service_down = world.service_has_process = 0
        world.service_active = 1
    believe(world, host, NO)


@compiled
def place_decoy(world, ledger, host, decoy):
    """Start a decoy if the system suits it and the port that it tests is free."""
    port_is_free = (open_ports(world, host) & DECOY_NEEDS_FREE[decoy]) == 0
    starts = DECOY_FITS_OS[decoy, host] & port_is_free
    if starts:
        start_decoy(ledger, host, decoy)
    # Without branches, because the processor cannot predict whether a random decoy starts.
    world.decoys[host] |= np.int64(starts) << np.int64(decoy)
    world.n_decoys[host] += starts
    world.blue_success = actions.TRUE if starts else actions.FALSE
    world.fresh_decoy = host if starts else NOBODY
