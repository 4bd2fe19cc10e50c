"""How red chooses its action: as a player from outside says, or by a plan of its own (B_line, Meander, Sleep)."""

import numpy as np

from stockade.cage2 import actions, chance, scenario
from stockade.cage2.actions import FIRST_SUBNET, TRUE
from stockade.cage2.jit import compiled
from stockade.cage2.scenario import NOBODY, SERVICE_HOST, host_index
from stockade.cage2.state import BLINE, MEANDER, bit


@compiled
def red_chooses(world, ledger, given, i):
    """Set red_type and red_target; how the last action went is still in red_success.

    `given` are the actions of red players, of which the i-th counts, or None where the world's own attacker chooses.
    """
    if given is not None:
        action = given[i]
        plan(world, actions.RED_ACTION_KIND[action], actions.RED_ACTION_TARGET[action])
    elif world.red == BLINE:
        bline_chooses(world, ledger)
    elif world.red == MEANDER:
        meander_chooses(world, ledger)
    else:
        plan(world, actions.RED_SLEEP, NOBODY)


@compiled
def plan(world, kind, target):
    world.red_type = kind
    world.red_target = target


#: B_line's fifteen steps: what it does, and which step follows a success and a failure.
_TAKE_HOST = [actions.DISCOVER_SERVICES, actions.EXPLOIT, actions.ESCALATE]
_ENTER_SUBNET = [actions.DISCOVER_SYSTEMS, *_TAKE_HOST, *_TAKE_HOST]
BLINE_TYPES = np.array([*_ENTER_SUBNET, *_ENTER_SUBNET, actions.IMPACT], np.int8)
_AFTER_SUCCESS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 14]
_AFTER_FAILURE = [0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 13]
#: (3, 15) by the success of the last action: FALSE, TRUE, UNKNOWN.
BLINE_NEXT = np.array([_AFTER_FAILURE, _AFTER_SUCCESS, _AFTER_FAILURE], np.int8)
BLINE_ENTERS, BLINE_ATTACKS_SERVER = 1, 12


def _bline_targets() -> np.ndarray:
    """(13, 15) B_line's targets by the host it enters through: that host, what it reveals, Enterprise2, the server."""
    table = np.full((scenario.N_HOSTS, 15), NOBODY, np.int8)
    for name in scenario.USERS[1:]:
        entry = host_index(name)
        table[entry, 1:4] = entry
        table[entry, 4:7] = host_index(scenario.REVEALED_BY_ESCALATION[name])
    table[:, 0] = FIRST_SUBNET + scenario.USER
    table[:, 7] = FIRST_SUBNET + scenario.ENTERPRISE
    table[:, 8:11] = host_index("Enterprise2")
    table[:, 11:15] = SERVICE_HOST
    return table


BLINE_TARGETS = _bline_targets()


@compiled
def bline_chooses(world, ledger):
    """One step on after a success, back after a failure. Targets stay the same for the whole episode."""
    step = np.int64(BLINE_NEXT[world.red_success, world.bline_step])
    if step == BLINE_ATTACKS_SERVER and not world.bline_saw_server:
        if world.red_saw_ports:
            world.bline_saw_server = 1
        else:  # the scan was blocked and came back empty: start over
            step = BLINE_ENTERS
    if step == BLINE_ENTERS and world.bline_entry == NOBODY:
        world.bline_entry = chance.entry_host(world, ledger)
    world.bline_step = step
    plan(world, BLINE_TYPES[step], BLINE_TARGETS[world.bline_entry, step])


@compiled
def meander_chooses(world, ledger):
    """Impact if it can; else the first of: scan a subnet, scan a host, escalate on a host, exploit a host."""
    meander_learns(world)
    if world.meander_escalated & bit(SERVICE_HOST):
        world.meander_last_escalate = SERVICE_HOST
        return plan(world, actions.IMPACT, SERVICE_HOST)

    for subnet in range(scenario.N_SUBNETS):
        if world.known_subnets & ~world.meander_subnets & bit(subnet):
            world.meander_subnets |= bit(subnet)
            return plan(world, actions.DISCOVER_SYSTEMS, FIRST_SUBNET + subnet)

    addresses = chance.shuffled_addresses(ledger)
    unscanned = world.known_addresses & ~world.meander_scanned
    if unscanned:
        host = chance.pick_host(world, addresses, unscanned)
        world.meander_scanned |= bit(host)
        return plan(world, actions.DISCOVER_SERVICES, host)

    names = chance.shuffled_names(ledger)
    lost = world.meander_mapped & ~world.meander_exploited
    unescalated = world.known_names & ~world.meander_escalated & ~lost
    if unescalated:
        host = chance.pick_host(world, names, unescalated)
        world.meander_escalated |= bit(host)
        world.meander_last_escalate = host
        return plan(world, actions.ESCALATE, host)

    unexploited = world.known_addresses & ~world.meander_exploited
    if unexploited:
        host = chance.pick_host(world, addresses, unexploited)
        world.meander_exploited |= bit(host)
        world.meander_last_exploit = host
        return plan(world, actions.EXPLOIT, host)
    # The reference raises an error here. No play has ever led to it: the Defender never stays exploited.
    return plan(world, actions.RED_SLEEP, NOBODY)


@compiled
def meander_learns(world):
    """Take in how the last exploit or escalation went."""
    failed = world.red_success != TRUE
    exploited, escalated = world.meander_last_exploit, world.meander_last_escalate
    if exploited != NOBODY:
        if failed:
            world.meander_exploited &= ~bit(exploited)
            # Red blames its way in: it forgets all Op hosts that it escalated on, or else all Enterprise hosts.
            blamed = world.meander_escalated & scenario.OP_HOSTS_MASK
            if not blamed:
                blamed = world.meander_escalated & scenario.ENTERPRISE_HOSTS_MASK
            world.meander_escalated &= ~blamed
            world.meander_exploited &= ~blamed
        else:
            world.meander_mapped |= bit(exploited)
        world.meander_last_exploit = NOBODY
    if escalated != NOBODY:
        if failed:
            world.meander_escalated &= ~bit(escalated)
            world.meander_exploited &= ~(world.meander_mapped & bit(escalated))
        world.meander_last_escalate = NOBODY
