"""Where chance comes in, asked by meaning: who is picked, does blue notice, which exploit.

Each question is answered by one of two streams. Under `fast` (`ledger is None`) a SplitMix64 stream in the world's own
record answers directly. Under `cyborg` CPython's generator is asked in the reference's order and with the reference's
detours (shuffles of which the first fitting element is taken, process ids, ports). Numba compiles each function once
per kind of ledger and drops the other branch, so neither pays for the other.
"""

import numpy as np
from numba.extending import overload

from stockade.cage2 import ledger as bookkeeping
from stockade.cage2 import mt19937, scenario
from stockade.cage2.jit import compiled
from stockade.cage2.scenario import BEST_OPTION, FOOTHOLD, GREEN_TARGETS, NOBODY
from stockade.cage2.state import BLINE, MEANDER, MIX, SLEEPING, count_bits

_GOLDEN, _MIX1, _MIX2 = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_S11, _S27, _S30, _S31, _S32 = (np.uint64(s) for s in (11, 27, 30, 31, 32))


# ------------------------------------------------------------------------------------------------------ the fast stream
@compiled
def mixed(z):
    z = (z ^ (z >> _S30)) * _MIX1
    z = (z ^ (z >> _S27)) * _MIX2
    return z ^ (z >> _S31)


@compiled
def absorbed(digest, word):
    """The digest of words, and of one more. Half the work of `mixed`: the words that follow stir on."""
    digest = (digest ^ word) * _MIX1
    return digest ^ (digest >> _S31)


@compiled
def _next(world):
    world.stream += _GOLDEN
    return mixed(world.stream)


@compiled
def _drawn_below(world, n):
    """A number below n < 2**31; the bias of the multiplication is below 2**-28."""
    return np.int64(((_next(world) >> _S32) * np.uint64(n)) >> _S32)


@compiled
def _drawn_yes(world, probability):
    return np.float64(_next(world) >> _S11) * (1.0 / 9007199254740992.0) < probability


# --------------------------------------------------------------------------------------------------------- or a script
# A particle (particles.py) has one: it says what chance answers, and its weight becomes as likely as these answers.
@compiled
def _scripted(world, options):
    """The script's answer to the next question."""
    question = world.asked
    world.asked += 1
    world.options[question] = options
    return np.int64(world.answers[question])


@compiled
def _scripted_below(world, n):
    world.weight /= n
    return _scripted(world, n)


@compiled
def _scripted_yes(world, probability):
    yes = _scripted(world, 2) == 0
    world.weight *= probability if yes else 1.0 - probability
    return yes


def _has_script(names):
    return "answers" in names


def _below(world, n):
    """A number below n."""
    return _scripted_below(world, n) if _has_script(world.dtype.names) else _drawn_below(world, n)


def _happens(world, probability):
    """Does what has this probability happen?"""
    return _scripted_yes(world, probability) if _has_script(world.dtype.names) else _drawn_yes(world, probability)


# Compiled code knows by the type of the record which of the two it needs.
@overload(_below)
def _compiled_below(world, n):
    return (
        (lambda world, n: _scripted_below(world, n))
        if _has_script(world.fields)
        else (lambda world, n: _drawn_below(world, n))
    )


@overload(_happens)
def _compiled_happens(world, probability):
    return (
        (lambda world, probability: _scripted_yes(world, probability))
        if _has_script(world.fields)
        else (lambda world, probability: _drawn_yes(world, probability))
    )


# -------------------------------------------------------------------------------------------------------- an episode
@compiled
def seed(world, ledger, value):
    """Begin the streams anew from a uint64."""
    world.stream = mixed(value + _GOLDEN)
    if ledger is not None:
        mt19937.seed(ledger, value)


@compiled
def red_of_episode(world, red):
    """Which agent attacks. The draw for `mix` is ours, so it never touches the reference's stream."""
    if red != MIX:
        return red
    pick = _below(world, 3)
    return BLINE if pick == 0 else MEANDER if pick == 1 else SLEEPING


# ------------------------------------------------------------------------------------------------------ blue and green
@compiled
def blue_picks_session(ledger, host):
    """Blue acts through one of its sessions on the host: any will do, but the reference draws."""
    if ledger is not None:
        sessions = 2 if host == scenario.DEFENDER else 1
        mt19937.randbelow(ledger, sessions, sessions)  # 1 has one bit, 2 has two


@compiled
def remove_sessions(world, ledger, host):
    """End the sessions that Remove finds; returns how many."""
    if ledger is None:
        return np.int64(world.red_removable[host])
    return np.int64(bookkeeping.kill_suspicious(ledger, world, host))


GREEN_RATE = 0.5  #: share of the steps in which the reference's green scans a host


@compiled
def green_target(world, ledger, rate):
    """The host that the active green agent scans in this step, or nobody. The draw for a rate of its own is ours."""
    if rate != GREEN_RATE:
        if not _happens(world, rate):
            return NOBODY
        return GREEN_TARGETS[_below(world, 8) if ledger is None else mt19937.randbelow(ledger, 8, 4)]
    if ledger is None:
        pick = _below(world, 2 * len(GREEN_TARGETS))
        return GREEN_TARGETS[pick] if pick < len(GREEN_TARGETS) else NOBODY
    if mt19937.randbelow(ledger, 2, 2) == 0:
        return NOBODY
    return GREEN_TARGETS[mt19937.randbelow(ledger, 8, 4)]


# ---------------------------------------------------------------------------------------------------------- red's plan
@compiled
def entry_host(world, ledger):
    """B_line's way in: one of the four user hosts behind the foothold."""
    if ledger is None:
        return FOOTHOLD + 1 + _below(world, 4)
    return FOOTHOLD + 1 + mt19937.randbelow(ledger, 4, 3)


@compiled
def shuffled_addresses(ledger):
    """The hosts in the order from which `pick_host` takes the first that fits; None where it draws one itself."""
    return None if ledger is None else mt19937.shuffle(ledger, ledger.addresses)


@compiled
def shuffled_names(ledger):
    return None if ledger is None else mt19937.shuffle(ledger, ledger.names)


@compiled
def pick_host(world, order, mask):
    """A host of a non-empty mask: in the reference the first in shuffled order, which is any of them."""
    if order is None:
        for _ in range(_below(world, count_bits(mask))):
            mask &= mask - 1
        return count_bits((mask & -mask) - 1)
    for k in range(scenario.N_HOSTS):
        if (mask >> order[k]) & 1:
            return np.int64(order[k])
    return np.int64(NOBODY)


# ------------------------------------------------------------------------- plans that the reference does not have
# Their draws are ours and come from the fast stream, whatever `chance` is: the reference's stream serves what
# attackers and actions of the reference draw.
@compiled
def happens(world, probability):
    """Does what has this probability happen? 0 draws nothing."""
    return probability > 0.0 and _happens(world, probability)


@compiled
def one_of(world, n):
    """A number below n; of 1 nothing is drawn."""
    return _below(world, n) if n > 1 else 0


def is_first_of(world, n):
    """Is a number below n the first of all?"""
    return _happens(world, 1 / n) if _has_script(world.dtype.names) else one_of(world, n) == 0


@overload(is_first_of)
def _compiled_is_first_of(world, n):
    return (
        (lambda world, n: _happens(world, 1 / n))
        if _has_script(world.fields)
        else (lambda world, n: one_of(world, n) == 0)
    )


@compiled
def any_host(world, mask):
    """A host of a non-empty mask."""
    return pick_host(world, None, mask)


# ------------------------------------------------------------------------------------------------------- red's actions
@compiled
def choose_exploit(world, ledger, options):
    """The best of several options three times in four, else one of the others."""
    others = scenario.OPTION_COUNT[options] - 1
    if others == 0:
        return BEST_OPTION[options]
    if ledger is None:
        if _happens(world, scenario.BEST_EXPLOIT_PROBABILITY):
            return BEST_OPTION[options]
        return scenario.OTHER_OPTIONS[options, _below(world, others)]
    other = scenario.OTHER_OPTIONS[options, np.int64(mt19937.random(ledger) * others)]
    return BEST_OPTION[options] if mt19937.random(ledger) < scenario.BEST_EXPLOIT_PROBABILITY else other


@compiled
def ssh_session_starts(ledger, host):
    """Returns whether Remove could end the session (only if it got the id of a process that blue suspects)."""
    if ledger is None:
        return False
    pid = bookkeeping.start_process(ledger, host, bookkeeping.SHELL, False)
    bookkeeping.take_ports(ledger, host, 1)
    return bookkeeping.is_suspicious(ledger, host, pid)


@compiled
def shell_starts(world, ledger, host, root):
    """A reverse shell opens. Returns (blue notices its connection, Remove could end it)."""
    if ledger is None:
        noticed = _happens(world, scenario.DETECTION_PROBABILITY)
        return noticed, noticed and not root
    bookkeeping.take_ports(ledger, host, 1)
    pid = bookkeeping.start_process(ledger, host, bookkeeping.SHELL, root)
    noticed = mt19937.random(ledger) < scenario.DETECTION_PROBABILITY
    if noticed:
        bookkeeping.suspect(ledger, host, pid)
    return noticed, not root and bookkeeping.is_suspicious(ledger, host, pid)


@compiled
def pick_session(world, ledger, host):
    """One of red's sessions on a host; the shipped agents only ask where they have just one."""
    count = np.int64(world.red_sessions[host])
    if ledger is None:
        return _below(world, count) if count > 1 else 0
    bits = 1
    while count >> bits:
        bits += 1
    return mt19937.randbelow(ledger, count, bits)


@compiled
def session_escalates(world, ledger, host, session):
    """The session is root from now on. Returns whether Remove could have ended it until now."""
    if ledger is None:
        return session < world.red_removable[host]  # sessions are interchangeable: the first ones are removable
    return bookkeeping.escalate(ledger, host, session)
