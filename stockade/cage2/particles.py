"""The particle filter behind `obs="belief"`: worlds that could be the true one, from blue's history alone.

(particles, blue's action, the 52 bits) -> particles -> probabilities

After each of blue's actions all particles take that step, each with chance of its own. Those that show other bits than
blue saw are wrong. Where few agree, the wrong ones try the step again from any of the particles before it. Copies of
those that agree then replace the rest. Which rules are played is a weight, not part of a particle, so that it cannot be
lost by chance.

Particles begin every episode with the same streams of chance: equal histories give equal beliefs.
"""

import numpy as np

from stockade.cage2 import chance, kernel
from stockade.cage2.actions import TRUE
from stockade.cage2.jit import KERNEL_SOURCES, cached, compiled
from stockade.cage2.observe import ACTIVITY_BYTES, BELIEF_BYTES, EXPLOIT_SEEN
from stockade.cage2.red import SHELL_FILE, add_session
from stockade.cage2.scenario import ENTERPRISE, FOOTHOLD, HOSTS, N_HOSTS, OPERATIONAL, USERS
from stockade.cage2.state import BLINE, DETOUR, ROOT_ACCESS, SPREAD, WORLD, bit

ROUNDS = 8  #: a step is tried so often at most
ENOUGH = 8  #: until one particle in so many agrees
#: Likelihood of what no particle explains, by that of one particle in all tries.
UNEXPLAINED = 1e-2
LEAST_WEIGHT = 1e-6  #: of a rule set: nothing is ruled out for good

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
def begin(particles, first, count, initial, settings):
    """An episode begins: the particles share the plans of red out among themselves."""
    for k in range(count):
        particles[first + k] = initial[0]
        world = particles[first + k]
        chance.seed(world, None, np.uint64(k))
        world.plan = k % settings.plans
        world.red = settings.attacker[world.plan, 0]


@compiled
def differences(world, words):
    """Of how many hosts it shows something else."""
    count = 0
    for host in range(N_HOSTS):
        count += world.obs[host] != words[host]
    return count


@compiled
def copy(particles, k, source, j):
    """Particle k becomes a copy of another, with chance of its own."""
    stream = particles[k].stream
    particles[k] = source[j]
    particles[k].stream = stream


@compiled
def follow(particles, first, count, action, words, settings, no_red, before, wrong):
    """Step `count` particles from the `first` so that they show the words; returns the words' likelihood.

    `before` is room for as many worlds, `wrong` for as many numbers.
    """
    for k in range(count):
        before[k] = particles[first + k]
        wrong[k] = 1
    tried, agreed, attempt = 0, 0, 0
    while attempt < ROUNDS and agreed * ENOUGH < count:
        for k in range(count):
            if wrong[k]:
                if attempt > 0:
                    copy(particles, first + k, before, chance.one_of(particles[first + k], count))
                world = particles[first + k]
                kernel.step(world, None, action, no_red, 0, settings)
                tried += 1
                wrong[k] = differences(world, words)
                agreed += wrong[k] == 0
        attempt += 1
    if agreed == 0:
        agreed = accept_nearest(particles, first, count, words, wrong)
        likelihood = UNEXPLAINED / tried
    else:
        likelihood = agreed / tried
    deal_out(particles, first, count, agreed, wrong)
    return likelihood


@compiled
def accept_nearest(particles, first, count, words, wrong):
    """No particle explains the words: those that come nearest have to do; returns how many.

    Blue's beliefs become those that are seen. Where an exploit is seen that a particle knows nothing of, half of them
    assume that it succeeded.
    """
    fewest = wrong[0]
    for k in range(count):
        fewest = min(fewest, wrong[k])
    agreed = 0
    for k in range(count):
        if wrong[k] != fewest:
            continue
        wrong[k] = 0
        agreed += 1
        world = particles[first + k]
        for host in range(N_HOSTS):
            seen = words[host]
            if world.obs[host] != seen and (seen & ACTIVITY_BYTES) == EXPLOIT_SEEN and agreed % 2:
                world.files[host] |= SHELL_FILE
                add_session(world, host, False, True)
            # Activity that is not the particle's own would never be cleared again.
            world.obs[host] = seen & BELIEF_BYTES
    return agreed


@compiled
def deal_out(particles, first, count, agreed, wrong):
    """Copies of those that agree replace the others, as evenly as can be: a rare guess is not lost by chance."""
    replaced, source, place = 0, 0, 0
    while source < count and wrong[source]:
        source += 1
    for k in range(count):
        if wrong[k]:
            while place < replaced * agreed // (count - agreed):
                source += 1
                place += wrong[source] == 0
            copy(particles, first + k, particles, first + source)
            replaced += 1


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
def count_rest(world, settings, counts):
    """Add what is the case in a particle and belongs to no host."""
    if world.red == BLINE:
        counts[world.bline_step] += 1
        if world.bline_entry >= 0:
            detours = settings.style[world.plan, world.phase] == DETOUR
            entry = world.bline_entry % 4 if detours else world.bline_entry - FOOTHOLD - 1
            counts[_ENTRY + entry] += 1
    counts[_ATTACKER + world.red] += 1
    counts[_KIND + world.red_type] += 1
    counts[_SUCCESS] += world.red_success == TRUE
    counts[_SUCCESS + 1] += world.known_subnets >> ENTERPRISE & 1
    counts[_SUCCESS + 2] += world.known_subnets >> OPERATIONAL & 1
    counts[_SUCCESS + 3] += world.service_down
    counts[_SUCCESS + 4] += settings.green_rate[world.plan, world.phase] > 0
    counts[_SUCCESS + 5] += settings.leaderboard


# ------------------------------------------------------------------------------------------------ what Python calls
_entry_point = cached(*KERNEL_SOURCES, "cage2/particles.py")


@_entry_point
def follow_batch(particles, weights, initial, settings, actions, words, times, no_red, success, begin_, end):
    """After a step of worlds [begin_, end), or without one if `actions` is None; at time 0 an episode has just begun.

    Args:
        particles: (n, rules, count) worlds. weights: (n, rules) float64. settings: (rules,). words: (n, 13) int32.
        success: (n,) int8 written, whether blue's action succeeded.
    """
    rules, count = particles.shape[1:]
    before, wrong = np.empty(count, WORLD), np.empty(count, np.int64)
    for i in range(begin_, end):
        total = 0.0
        for r in range(rules):
            if times[i] == 0:
                begin(particles[i, r], 0, count, initial, settings[r])
                weights[i, r] = 1 / rules
            elif actions is not None:
                weights[i, r] *= follow(
                    particles[i, r], 0, count, actions[i], words[i], settings[r], no_red, before, wrong
                )
            total += weights[i, r]
        for r in range(rules):
            weights[i, r] = max(weights[i, r] / total, LEAST_WEIGHT)
        success[i] = particles[i, 0, 0].blue_success  # blue's decoys stand in all particles alike


@_entry_point
def describe_batch(particles, weights, settings, out, begin_, end):
    """Probabilities of worlds [begin_, end) into (n, N_FEATURES) float32.

    Hosts are counted eight at a time, one in each byte of a word, and so up to 255 particles at a time.
    """
    rules, count = particles.shape[1:]
    masks, words = np.empty(len(HOST_FEATURES), np.int64), np.empty((len(HOST_FEATURES), 2), np.uint64)
    rest = np.empty(N_FEATURES - _N_HOST_FEATURES, np.int32)
    for i in range(begin_, end):
        out[i, :] = np.float32(0)
        for r in range(rules):
            rest[:] = 0
            one = np.float32(weights[i, r] / count)
            for first in range(0, count, 255):
                words[:] = 0
                for k in range(first, min(first + 255, count)):
                    write_masks(particles[i, r, k], masks)
                    for f in range(len(HOST_FEATURES)):
                        words[f, 0] += SPREAD[masks[f] & 255]
                        words[f, 1] += SPREAD[masks[f] >> 8 & 255]
                    count_rest(particles[i, r, k], settings[r], rest)
                for f in range(len(HOST_FEATURES)):
                    for h in range(N_HOSTS):
                        found = words[f, h >> 3] >> np.uint64(8 * (h & 7)) & np.uint64(255)
                        out[i, f * N_HOSTS + h] += one * np.float32(found)
            for f in range(len(rest)):
                out[i, _N_HOST_FEATURES + f] += one * np.float32(rest[f])
