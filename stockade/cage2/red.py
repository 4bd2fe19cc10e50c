"""Red's turn: the action that it chose (attackers.py) happens."""

import numpy as np

from stockade.cage2 import actions, chance, scenario
from stockade.cage2.actions import FALSE, FIRST_SUBNET, TRUE
from stockade.cage2.jit import compiled
from stockade.cage2.ledger import take_ports
from stockade.cage2.observe import SHELL_PORT
from stockade.cage2.scenario import NOBODY, SERVICE_HOST
from stockade.cage2.state import bit, listeners, open_ports, update_access

SHELL_FILE, ESCALATION_FILE = 1, 2


@compiled
def red_acts(world, ledger, given, leaderboard):
    """Carry out what red chose. The reference's attackers (`given` is None) try only what they can."""
    kind, target = world.red_type, world.red_target
    world.exploit = scenario.NO_EXPLOIT
    world.detected = -1
    world.red_saw_ports = 0
    world.red_contact = NOBODY
    if given is not None and not can_try(world, kind, target):
        success = FALSE
    elif kind == actions.EXPLOIT:
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
def can_try(world, kind, target):
    """Does red know the subnet, address or host name that the action needs? The reference refuses it otherwise."""
    if kind == actions.RED_SLEEP:
        return True
    if kind == actions.DISCOVER_SYSTEMS:
        return world.known_subnets & bit(target - FIRST_SUBNET) != 0
    known = world.known_names if kind >= actions.ESCALATE else world.known_addresses
    return known & bit(target) != 0


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
    """Stop the operational service, for which any session on its host will do.

    After the host was restored there is no process left to stop.
    """
    if world.red_sessions[host] == 0:
        return FALSE
    if world.red_root_sessions[host] == 0:
        chance.pick_session(world, ledger, host)
    if not world.red_knows_service or host != SERVICE_HOST:
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
