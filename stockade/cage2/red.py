"""Red's turn: the agent chooses (B_line, Meander, Sleep), then its action happens."""

import numpy as np

from stockade.cage2 import actions, chance, scenario
from stockade.cage2.actions import FALSE, FIRST_SUBNET, TRUE
from stockade.cage2.jit import compiled
from stockade.cage2.ledger import take_ports
from stockade.cage2.observe import SHELL_PORT
from stockade.cage2.scenario import NOBODY, SERVICE_HOST, host_index
from stockade.cage2.state import BLINE, MEANDER, bit, listeners, open_ports, update_access

SHELL_FILE, ESCALATION_FILE = 1, 2


# ------------------------------------------------------------------------------------------------------ choosing
@compiled
def red_chooses(world, ledger):
    """Set red_type and red_target; how the last action went is still in red_success."""
    if world.red == BLINE:
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


# -------------------------------------------------------------------------------------------------------- acting
@compiled
def red_acts(world, ledger, leaderboard):
    """Carry out what red chose."""
    kind, target = world.red_type, world.red_target
    world.exploit = scenario.NO_EXPLOIT
    world.detected = -1
    world.red_saw_ports = 0
    world.red_contact = NOBODY
    if kind == actions.EXPLOIT:
        success = exploit(world, ledger, target, leaderboard)
    elif kind == actions.DISCOVER_SERVICES:
        success = discover_services(world, ledger, target, leaderboard)
    elif kind == actions.ESCALATE:
        success = escalate(world, ledger, target)
    elif kind == actions.IMPACT:
        success = impact(world, ledger, target)
    elif kind == actions.DISCOVER_SYSTEMS:
        success = discover_systems(world, target - FIRST_SUBNET)
    else:
        success = actions.UNKNOWN
    world.red_success = success


@compiled
def can_reach(world, subnet):
    """The Operational subnet is behind the Enterprise hosts: red needs a session on one of them."""
    if subnet != scenario.OPERATIONAL:
        return True
    for host in scenario.GATEWAYS:
        if world.red_sessions[host] > 0:
            return True
    return False


@compiled
def discover_systems(world, subnet):
    """Learn the addresses of a subnet."""
    if not can_reach(world, subnet):
        return FALSE
    world.known_addresses |= scenario.SUBNET_MASK[subnet]
    world.known_subnets |= bit(subnet)
    return TRUE


@compiled
def discover_services(world, ledger, host, leaderboard):
    """Scan a host's ports and remember them: instead of the last scan's, or under `leaderboard` beside them.

    A blocked scan succeeds too, with nothing in it.
    """
    if not can_reach(world, scenario.SUBNET_OF[host]):
        return TRUE
    ports, sockets = open_ports(world, host), listeners(world, host)
    take_ports(ledger, host, sockets)
    world.red_contact = host
    world.red_connections = sockets
    world.red_touched = ports
    world.red_ports[host] = world.red_ports[host] | ports if leaderboard else ports
    world.red_saw_ports = 1
    return TRUE


@compiled
def escalate(world, ledger, host):
    """Make a session root, and look around: own address and subnet, and perhaps the next host's address."""
    if world.red_sessions[host] == 0:
        return FALSE
    if world.red_root_sessions[host] == 0:
        session = chance.pick_session(world, ledger, host)
        if chance.session_escalates(world, ledger, host, session):
            world.red_removable[host] -= 1
        world.red_root_sessions[host] = 1
        update_access(world, host)
        world.files[host] |= ESCALATION_FILE
    world.known_addresses |= bit(host) | scenario.REVEALS_MASK[host]
    world.known_subnets |= bit(scenario.SUBNET_OF[host])
    if host == SERVICE_HOST:
        world.red_knows_service = 1
    return TRUE


@compiled
def impact(world, ledger, host):
    """Stop the operational service. After its host was restored there is no process left to stop."""
    if world.red_sessions[host] == 0:
        return FALSE
    if world.red_root_sessions[host] == 0:
        chance.pick_session(world, ledger, host)
    if not world.red_knows_service:
        return FALSE
    if world.service_active:
        world.service_active = 0
        if world.service_has_process:
            world.service_down = 1
            if ledger is not None:
                ledger.service_process = 0
    return TRUE


@compiled
def exploit(world, ledger, host, leaderboard):
    """Attack a port that red remembers. The host's own service answers before any decoy.

    Under `leaderboard` the mail server of a restored host no longer falls for HarakaRCE.
    """
    options = scenario.EXPLOIT_OPTIONS[world.red_ports[host]]
    if not options:
        return FALSE
    choice = np.int64(chance.choose_exploit(world, ledger, options))
    world.exploit = choice
    if not can_reach(world, scenario.SUBNET_OF[host]):
        return FALSE
    answer = scenario.OWN_ANSWER[host, choice]
    fooled = answer == scenario.NO_ANSWER and world.decoys[host] & scenario.DECOYS_FOOLING[choice]
    if answer == scenario.NO_ANSWER and not fooled:
        return FALSE
    world.red_contact = host
    world.red_touched = scenario.EXPLOIT_PORT[choice]
    if choice == scenario.SSH_BRUTE_FORCE:
        return guess_passwords(world, ledger, host, answer)
    world.red_connections = scenario.EXPLOIT_CONNECTIONS
    take_ports(ledger, host, scenario.EXPLOIT_CONNECTIONS)
    if fooled:
        world.red_connections += 1  # the decoy raises the alarm
        return FALSE
    if leaderboard and choice == scenario.HARAKA_RCE and world.restored & bit(host):
        return FALSE
    return open_shell(world, ledger, host, answer == scenario.ROOT_SHELL)


@compiled
def guess_passwords(world, ledger, host, answer):
    """SSH: loud even where it fails, and a session that Remove does not find."""
    world.red_connections = scenario.SSH_CONNECTIONS
    take_ports(ledger, scenario.FOOTHOLD, scenario.SSH_CONNECTIONS)  # of the foothold, whichever host is attacked
    if answer != scenario.SSH_SESSION:
        return FALSE
    world.red_connections += 1
    add_session(world, host, False, chance.ssh_session_starts(ledger, host))
    return TRUE


@compiled
def open_shell(world, ledger, host, root):
    """A reverse shell: leaves a file, and a connection that blue sees nearly always."""
    world.files[host] |= SHELL_FILE
    noticed, removable = chance.shell_starts(world, ledger, host, root)
    world.detected = noticed
    if noticed:
        world.red_connections += 1
        world.red_touched |= SHELL_PORT
    add_session(world, host, root, removable)
    return TRUE


@compiled
def add_session(world, host, root, removable):
    world.red_sessions[host] += 1
    world.red_root_sessions[host] += root
    world.red_removable[host] += removable
    update_access(world, host)
    world.known_names |= bit(host)
