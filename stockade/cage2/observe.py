"""What blue sees: 4 bits per host, two for activity in this step, two for what blue believes of the host.

activity     00 none, 10 scan, 11 exploit
compromised  00 no, 10 unsure, 01 user, 11 privileged
In memory each bit is a byte and each host a little-endian word, so that 13 words are the 52 observations. Only hosts
with connections in a step can show activity, red's and green's, so the words are updated in place.
"""

import sys

import numpy as np

from stockade.cage2.jit import compiled
from stockade.cage2.scenario import N_HOSTS, NOBODY
from stockade.cage2.state import count_bits

assert sys.byteorder == "little", "observations are laid out for little-endian machines"

NONE, SCAN, EXPLOITED = 0, 1, 2
NO, UNSURE, USER_LEVEL, PRIVILEGED = 0, 1, 2, 3
ACTIVITY_BYTES, BELIEF_BYTES = 0x0000FFFF, 0x7FFF0000
_ACTIVITY_WORD = np.array([0x0000, 0x0001, 0x0101], np.int32)
EXPLOIT_SEEN = 0x0101  #: the activity of an exploit, in a word
_BELIEF_WORD = np.array([0x00000000, 0x00010000, 0x01000000, 0x01010000], np.int32)
PRIVILEGED_SEEN = 0x01010000  #: what Analyse leaves in a word where it finds something
#: Stands for a shell's own port in a mask of ports touched.
SHELL_PORT = 1 << 12


@compiled
def suspects(world, host):
    """Does blue believe anything but "no" of a host?"""
    return world.obs[host] & BELIEF_BYTES != 0


@compiled
def believe(world, host, level):
    world.obs[host] = (world.obs[host] & ACTIVITY_BYTES) | _BELIEF_WORD[level]


@compiled
def forget_activity(world):
    """Clear the activity of the step before. Where there was none, NOBODY is the index of the spare word."""
    world.obs[world.green_target] &= BELIEF_BYTES
    world.obs[world.red_contact] &= BELIEF_BYTES


@compiled
def monitor(world):
    """The automatic Monitor at the end of a step, then what Analyse found."""
    if world.green_target != NOBODY:
        notice(world, world.green_target)
    if world.red_contact != NOBODY:
        notice(world, world.red_contact)
    if world.analysed != NOBODY:
        believe(world, world.analysed, PRIVILEGED)


@compiled
def notice(world, host):
    activity = classify(world, host)
    world.obs[host] = (world.obs[host] & BELIEF_BYTES) | _ACTIVITY_WORD[activity]
    if activity == EXPLOITED:
        believe(world, host, USER_LEVEL)


@compiled
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
    if world.red_contact == host:
        items += world.red_connections
        touched |= world.red_touched
        shell_seen = world.detected == 1
    ports = count_bits(touched)
    if items >= 3 and ports >= 3:
        return SCAN
    if shell_seen or (items >= 3 and ports == 1):
        return EXPLOITED
    return NONE if own_decoy else SCAN


@compiled
def copy_observation(world, out):
    """Into a row of 13 words, which are 52 bytes to everybody else."""
    for host in range(N_HOSTS):
        out[host] = world.obs[host]
