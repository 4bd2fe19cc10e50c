"""How red chooses its action: as a player from outside says, as the reference's attackers do (B_line, Meander, Sleep),
or by a plan in which such attackers, and variants of them, take turns, pause and err (variants.py)."""

import numpy as np

from stockade.cage2 import actions, chance, scenario
from stockade.cage2.actions import FIRST_SUBNET, TRUE, UNKNOWN
from stockade.cage2.jit import compiled
from stockade.cage2.scenario import NOBODY, SERVICE_HOST, host_index
from stockade.cage2.state import (
    AGGRESSIVE,
    BLINE,
    DETOUR,
    HELD,
    MEANDER,
    PLANNED,
    STEALTHY,
    bit,
    count_bits,
)


@compiled
def red_chooses(world, ledger, given, i, settings):
    """Set red_type and red_target; how the last action went is still in red_success.

    `given` is None where one of the reference's attackers chooses: code that is compiled for them alone is faster.
    Else a plan chooses, or red players do, of whose actions `given` the i-th counts.
    """
    if given is None:
        attacker_chooses(world, ledger)
    elif settings.red == PLANNED:
        plan_chooses(world, ledger, settings)
    else:
        action = given[i]
        do(world, actions.RED_ACTION_KIND[action], actions.RED_ACTION_TARGET[action])


@compiled
def attacker_chooses(world, ledger):
    """One of the reference's attackers."""
    if world.red == BLINE:
        bline_chooses(world, ledger)
    elif world.red == MEANDER:
        meander_chooses(world, ledger)
    else:
        do(world, actions.RED_SLEEP, NOBODY)


@compiled
def do(world, kind, target):
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
    step = bline_goes_on(world, BLINE_NEXT, BLINE_ATTACKS_SERVER)
    if step == BLINE_ENTERS and world.bline_entry == NOBODY:
        world.bline_entry = chance.entry_host(world, ledger)
    do(world, BLINE_TYPES[step], BLINE_TARGETS[world.bline_entry, step])


@compiled
def bline_goes_on(world, next_steps, attacks_server):
    """The step that follows; `attacks_server` is the first that needs the server's open ports."""
    step = np.int64(next_steps[world.red_success, world.bline_step])
    if step == attacks_server and not world.bline_saw_server:
        if world.red_saw_ports:
            world.bline_saw_server = 1
        else:  # the scan was blocked and came back empty: start over
            step = BLINE_ENTERS
    world.bline_step = step
    return step


@compiled
def meander_chooses(world, ledger):
    """Impact if it can; else the first of: scan a subnet, scan a host, escalate on a host, exploit a host."""
    meander_learns(world)
    if meander_impacts_or_looks(world):
        return None
    addresses = chance.shuffled_addresses(ledger)
    unscanned = world.known_addresses & ~world.meander_scanned
    if unscanned:
        host = chance.pick_host(world, addresses, unscanned)
        world.meander_scanned |= bit(host)
        return do(world, actions.DISCOVER_SERVICES, host)

    names = chance.shuffled_names(ledger)
    lost = world.meander_mapped & ~world.meander_exploited
    unescalated = world.known_names & ~world.meander_escalated & ~lost
    if unescalated:
        host = chance.pick_host(world, names, unescalated)
        world.meander_escalated |= bit(host)
        world.meander_last_escalate = host
        return do(world, actions.ESCALATE, host)

    unexploited = world.known_addresses & ~world.meander_exploited
    if unexploited:
        host = chance.pick_host(world, addresses, unexploited)
        world.meander_exploited |= bit(host)
        world.meander_last_exploit = host
        return do(world, actions.EXPLOIT, host)
    # The reference raises an error here. No play has ever led to it: the Defender never stays exploited.
    return do(world, actions.RED_SLEEP, NOBODY)


@compiled
def meander_impacts_or_looks(world):
    """Impact if red got as far as the server, else scan a subnet that it has not scanned; False if neither."""
    if world.meander_escalated & bit(SERVICE_HOST):
        world.meander_last_escalate = SERVICE_HOST
        do(world, actions.IMPACT, SERVICE_HOST)
        return True
    for subnet in range(scenario.N_SUBNETS):
        if world.known_subnets & ~world.meander_subnets & bit(subnet):
            world.meander_subnets |= bit(subnet)
            do(world, actions.DISCOVER_SYSTEMS, FIRST_SUBNET + subnet)
            return True
    return False


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


# ----------------------------------------------------------------------------------------------- variants of the two
#: B_line that takes a user host before the one through which it goes on: three steps more, the same ways back.
DETOUR_TYPES = np.array([BLINE_TYPES[0], *_TAKE_HOST, *BLINE_TYPES[1:]], np.int8)
_DETOUR_AFTER_FAILURE = [0, 1, 2, 2, *(step + 3 for step in _AFTER_FAILURE[1:])]
DETOUR_NEXT = np.array([_DETOUR_AFTER_FAILURE, [*range(1, 18), 17], _DETOUR_AFTER_FAILURE], np.int8)
DETOUR_ATTACKS_SERVER = BLINE_ATTACKS_SERVER + 3
#: (4, 18) its targets by the host it enters through, from User1 on; the first host is any of the three others.
DETOUR_TARGETS = np.array(
    [[row[0], NOBODY, NOBODY, NOBODY, *row[1:]] for row in BLINE_TARGETS[scenario.FOOTHOLD + 1 :].tolist()], np.int8
)
#: Hosts from the inside out: the Operational subnet, the Enterprise subnet, the users.
INSIDE_OUT = np.array([scenario.SUBNET_MASK[net] for net in (scenario.OPERATIONAL, scenario.ENTERPRISE, scenario.USER)])
#: A stealthy Meander notes the hosts that it leaves alone above the hosts that it scanned.
LEFT_ALONE = 16


@compiled
def bline_detours(world):
    """B_line with a detour. `bline_entry` is 4 times the first host's place among the users plus the second's."""
    step = bline_goes_on(world, DETOUR_NEXT, DETOUR_ATTACKS_SERVER)
    if step == BLINE_ENTERS and world.bline_entry == NOBODY:
        second = chance.one_of(world, 4)
        world.bline_entry = 4 * ((second + 1 + chance.one_of(world, 3)) % 4) + second
    first, second = np.int64(world.bline_entry) // 4, np.int64(world.bline_entry) % 4
    target = DETOUR_TARGETS[second, step]
    do(world, DETOUR_TYPES[step], scenario.FOOTHOLD + 1 + first if target == NOBODY else target)


@compiled
def meander_hurries(world, careful):
    """Meander that goes for the inside: it escalates, else exploits what it has scanned, else scans, inner hosts first.

    After a failed exploit it scans the host again. If it is `careful`, it leaves that host alone as long as there are
    others, and attacks nothing outside the innermost subnet that it knows of.
    """
    failed_host = world.meander_last_exploit if world.red_success != TRUE else NOBODY
    meander_learns(world)
    if failed_host != NOBODY:
        world.meander_scanned &= ~bit(failed_host)
        if careful:
            world.meander_scanned |= bit(failed_host + LEFT_ALONE)
    if meander_impacts_or_looks(world):
        return None
    lost = world.meander_mapped & ~world.meander_exploited
    unescalated = world.known_names & ~world.meander_escalated & ~lost & ~bit(scenario.FOOTHOLD)
    if unescalated:
        host = inner_host(world, unescalated)
        world.meander_escalated |= bit(host)
        world.meander_last_escalate = host
        return do(world, actions.ESCALATE, host)

    targets = np.int64(world.known_addresses) & ~np.int64(world.meander_exploited) & ~bit(scenario.FOOTHOLD)
    if careful:
        inner = innermost(np.int64(world.known_addresses) & ~bit(scenario.FOOTHOLD))
        targets = targets & inner if targets & inner else targets
        others = targets & ~(np.int64(world.meander_scanned) >> LEFT_ALONE)
        targets = others if others else targets
    scanned = targets & world.meander_scanned
    if scanned:
        host = inner_host(world, scanned)
        world.meander_exploited |= bit(host)
        world.meander_last_exploit = host
        return do(world, actions.EXPLOIT, host)
    if targets:
        host = inner_host(world, targets)
        world.meander_scanned |= bit(host)
        return do(world, actions.DISCOVER_SERVICES, host)
    return do(world, actions.RED_SLEEP, NOBODY)


@compiled
def innermost(hosts):
    """The hosts of a mask that are in its innermost subnet."""
    for net in INSIDE_OUT:
        if hosts & net:
            return hosts & net
    return hosts


@compiled
def inner_host(world, hosts):
    return chance.any_host(world, innermost(np.int64(hosts)))


# ------------------------------------------------------------------------------------------------------ whole plans
@compiled
def draw_plan(world, settings):
    """An episode begins: one of the plans, with its first attacker."""
    world.plan = chance.one_of(world, settings.plans)
    world.red = settings.attacker[world.plan, 0]


@compiled
def plan_chooses(world, ledger, settings):
    """The attacker whose turn it is chooses, unless it pauses or errs; then it resumes with the result it had."""
    if turn_ends(world, settings):
        begin_turn(world, settings)
    plan, phase = world.plan, world.phase
    age = np.int64(world.time) - np.int64(world.phase_began)
    rests = settings.style[plan, phase] == STEALTHY and age % 2 == 1
    pauses = age < settings.delay[plan, phase] or rests or chance.happens(world, settings.idle[plan, phase])
    errs = not pauses and chance.happens(world, settings.noise[plan, phase])
    if pauses or errs:
        if not world.held:
            world.held = HELD | world.red_success | world.red_saw_ports << 2
        if errs:
            return err(world)
        return do(world, actions.RED_SLEEP, NOBODY)
    if world.held:
        world.red_success, world.red_saw_ports = world.held & 3, world.held >> 2 & 1
        world.held = 0
    attack(world, ledger, settings.style[plan, phase])


@compiled
def attack(world, ledger, style):
    if style == DETOUR:
        bline_detours(world)
    elif style in (AGGRESSIVE, STEALTHY):
        meander_hurries(world, style == STEALTHY)
    else:
        attacker_chooses(world, ledger)


@compiled
def turn_ends(world, settings):
    """Is it the next attacker's turn? It begins at any time from `first` to `last`, all equally likely."""
    plan, phase = world.plan, np.int64(world.phase) + 1
    if phase >= settings.phases[plan] or world.time < settings.first[plan, phase]:
        return False
    return chance.is_first_of(world, max(settings.last[plan, phase] - world.time, 0) + 1)


@compiled
def begin_turn(world, settings):
    """The next attacker begins as at the start of an episode, but red keeps what it knows and holds."""
    world.phase += 1
    world.phase_began = world.time
    world.red = settings.attacker[world.plan, world.phase]
    world.held = 0
    world.red_success, world.red_saw_ports = UNKNOWN, 0
    world.bline_step = world.bline_saw_server = 0
    world.bline_entry = world.meander_last_exploit = world.meander_last_escalate = NOBODY
    world.meander_subnets = world.meander_scanned = world.meander_exploited = 0
    world.meander_escalated = world.meander_mapped = 0


@compiled
def err(world):
    """Do anything that red can try, but Sleep: every such action is equally likely."""
    subnets, addresses, names = world.known_subnets, world.known_addresses, world.known_names
    n_subnets, n_addresses = count_bits(subnets), count_bits(addresses)
    pick = chance.one_of(world, n_subnets + 2 * n_addresses + 2 * count_bits(names))
    if pick < n_subnets:
        return do(world, actions.DISCOVER_SYSTEMS, FIRST_SUBNET + chance.any_host(world, subnets))
    if pick < n_subnets + 2 * n_addresses:
        kind = actions.DISCOVER_SERVICES if (pick - n_subnets) % 2 else actions.EXPLOIT
        return do(world, kind, chance.any_host(world, addresses))
    return do(world, actions.ESCALATE if pick % 2 else actions.IMPACT, chance.any_host(world, names))
