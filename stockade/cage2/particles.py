"""The exact belief behind `obs="belief"`: all worlds that could be the true one, from blue's history alone.

(worlds with probabilities, blue's action, the 52 bits) -> worlds with probabilities -> what is probably the case

Few different worlds fit what blue has seen: 2 to 20 against the challenge's attackers. So all of them are kept, as
particles with a weight, no two the same. After each of blue's actions every particle takes the step in every way that
chance allows: a script answers the questions of chance.py, one answer after the other. What shows the bits that blue
saw stays; equal worlds are added up. If more are left than there is room for, the least likely go.

Nothing is drawn here: equal histories give equal beliefs.
"""

import numpy as np

from stockade.cage2 import chance, kernel
from stockade.cage2.actions import TRUE
from stockade.cage2.jit import KERNEL_SOURCES, cached, compiled
from stockade.cage2.observe import ACTIVITY_BYTES, BELIEF_BYTES, EXPLOIT_SEEN
from stockade.cage2.red import SHELL_FILE, add_session
from stockade.cage2.scenario import ENTERPRISE, FOOTHOLD, HOSTS, N_HOSTS, NO_EXPLOIT, NOBODY, OPERATIONAL, USERS
from stockade.cage2.state import BLINE, DETOUR, ROOT_ACCESS, WORLD, bit

MOST_QUESTIONS = 16  #: that chance answers in a step
#: A world behind its weight and a script of what chance says. (Behind: Numba would take a record that begins with a
#: world for one.)
PARTICLE = np.dtype(
    [
        ("weight", np.float64),  # 0: no world lives here
        ("answers", np.uint8, MOST_QUESTIONS),  # to each question, by its number among the possible ones
        ("options", np.uint8, MOST_QUESTIONS),  # how many there were
        ("asked", np.uint8),
        *((name, WORLD[name].base, WORLD[name].shape) for name in WORLD.names or ()),
    ],
    align=True,
)
FIRST_WORD = (PARTICLE.itemsize - WORLD.itemsize) // 8  #: of a particle's that is its world's
LEAST = 1e-4  #: weight of a particle that is kept, by that of the likeliest
#: Likelihood of what no particle explains.
UNEXPLAINED = 1e-5

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
def begin(worlds, words, initial, settings, share):
    """An episode begins: one particle for each plan of red; `share` is the weight of all."""
    for k in range(worlds.shape[1]):
        worlds[0, k].weight = 0.0
    for k in range(settings.plans):
        words[0, k, FIRST_WORD:] = initial[0]
        world = worlds[0, k]
        world.stream, world.plan, world.red = 0, k, settings.attacker[k, 0]
        world.weight = share / settings.plans


@compiled
def follow(worlds, words, action, seen, settings, no_red, digests):
    """Blue acted and saw: particles that show the words `seen` replace those before.

    Args:
        worlds: (2, room + 1) the particles, and room for those after the step; words: the same memory as uint64.
        digests: (room,) uint64, for use in here.
    """
    after, fewest = enumerate_chance(worlds, words, action, seen, settings, no_red, digests, 0)
    if after == 0:
        after, _ = enumerate_chance(worlds, words, action, seen, settings, no_red, digests, fewest)
    largest = 0.0
    for k in range(after):
        largest = max(largest, worlds[1, k].weight)
    kept = 0
    for k in range(after):
        if worlds[1, k].weight > LEAST * largest:
            words[0, kept] = words[1, k]
            kept += 1
    for k in range(kept, worlds.shape[1]):
        worlds[0, k].weight = 0.0


@compiled
def enumerate_chance(worlds, words, action, seen, settings, no_red, digests, allowed):
    """All particles take the step in every way that chance allows. Returns how many are kept, in worlds[1], and the
    fewest hosts of which one showed something else. `allowed` is how many that may be: 0, unless nothing explains it.
    """
    room, after, fewest = worlds.shape[1] - 1, 0, N_HOSTS
    answers = np.zeros(MOST_QUESTIONS, np.uint8)
    k = 0
    while k < room and worlds[0, k].weight > 0.0:
        answers[:] = 0
        question = 0
        while question >= 0:
            words[1, after] = words[0, k]
            world = worlds[1, after]
            world.answers[:] = answers
            world.asked = 0
            kernel.step(world, None, action, no_red, 0, settings)
            question = next_answers(world, seen, answers)
            wrong = differences(world, seen)
            fewest = min(fewest, wrong)
            if world.weight > 0.0 and wrong == 0 and allowed == 0:
                after = keep(worlds, words, after, room, digests)
            elif world.weight > 0.0 and 0 < wrong <= allowed:
                after = keep_anyway(worlds, words, after, room, digests, seen)
        k += 1
    return after, fewest


@compiled
def next_answers(world, seen, answers):
    """The next script after the one that led to this world; returns the question that it changes, -1 for none."""
    question = np.int64(world.asked) - 1
    green = world.green_target
    if green != NOBODY and green != world.fresh_decoy and not seen[green] & ACTIVITY_BYTES:
        # Green was not there, whatever else happened: the question of where it was comes first, or after whether.
        question = 0 if world.options[0] > 2 else 1
    while question >= 0 and answers[question] + 1 >= world.options[question]:
        answers[question] = 0
        question -= 1
    if question >= 0:
        answers[question] += 1
        answers[question + 1 :] = 0
    return question


@compiled
def keep(worlds, words, after, room, digests):
    """Add the world at the place `after` to those before it, or to its equal among them; returns how many there are.

    Where all places are taken, the least likely makes room.
    """
    world = worlds[1, after]
    # What the step leaves behind and nobody asks for again.
    world.exploit, world.detected = NO_EXPLOIT, -1
    world.red_connections = world.red_touched = world.green_connections = world.green_ports = 0
    digest = np.uint64(0)
    for word in words[1, after, FIRST_WORD:]:
        digest = chance.mixed(digest + word)
    for k in range(after):
        if digests[k] == digest:
            worlds[1, k].weight += world.weight
            return after
    place = after
    if after == room:
        place = 0
        for k in range(1, room):
            if worlds[1, k].weight < worlds[1, place].weight:
                place = k
        if worlds[1, place].weight >= world.weight:
            return after
        words[1, place] = words[1, after]
    digests[place] = digest
    return min(after + 1, room)


@compiled
def keep_anyway(worlds, words, after, room, digests, seen):
    """Keep a world that shows something else than was seen: what blue believes becomes what is seen.

    If an exploit is seen that it knows nothing of, half of its weight goes to a world in which that succeeded.
    """
    world = worlds[1, after]
    world.weight *= UNEXPLAINED
    suspicious = 0
    for h in range(N_HOSTS):
        if world.obs[h] != seen[h] and (seen[h] & ACTIVITY_BYTES) == EXPLOIT_SEEN:
            suspicious |= bit(h)
        world.obs[h] = seen[h] & BELIEF_BYTES  # activity that is not its own would never be cleared again
    if not suspicious or after >= room - 1:
        return keep(worlds, words, after, room, digests)
    world.weight /= 2
    words[1, room] = words[1, after]
    after = keep(worlds, words, after, room, digests)
    words[1, after] = words[1, room]
    for h in range(N_HOSTS):
        if suspicious & bit(h):
            worlds[1, after].files[h] |= SHELL_FILE
            add_session(worlds[1, after], h, False, True)
    return keep(worlds, words, after, room, digests)


@compiled
def differences(world, seen):
    """Of how many hosts it shows something else."""
    count = 0
    for host in range(N_HOSTS):
        count += world.obs[host] != seen[host]
    return count


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
def add_rest(world, settings, weight, out):
    """Add the weight of a particle to what is the case in it and belongs to no host."""
    if world.red == BLINE:
        out[world.bline_step] += weight
        if world.bline_entry >= 0:
            detours = settings.style[world.plan, world.phase] == DETOUR
            out[_ENTRY + (world.bline_entry % 4 if detours else world.bline_entry - FOOTHOLD - 1)] += weight
    out[_ATTACKER + world.red] += weight
    out[_KIND + world.red_type] += weight
    out[_SUCCESS] += weight * (world.red_success == TRUE)
    out[_SUCCESS + 1] += weight * (world.known_subnets >> ENTERPRISE & 1)
    out[_SUCCESS + 2] += weight * (world.known_subnets >> OPERATIONAL & 1)
    out[_SUCCESS + 3] += weight * world.service_down
    out[_SUCCESS + 4] += weight * (settings.green_rate[world.plan, world.phase] > 0)
    out[_SUCCESS + 5] += weight * settings.leaderboard


# ------------------------------------------------------------------------------------------------ what Python calls
_entry_point = cached(*KERNEL_SOURCES, "cage2/particles.py")


@_entry_point
def follow_batch(particles, words, initial, settings, actions, seen, times, no_red, success, first, end):
    """After a step of worlds [first, end), or without one if `actions` is None; at time 0 an episode has just begun.

    Args:
        particles: (n, rules, 2, room + 1); words: the same memory as uint64. initial: (1, words of a world).
        settings: (rules,). seen: (n, 13) int32. success: (n,) int8 written, whether blue's action succeeded.
    """
    rules, _, room = particles.shape[1:]
    digests = np.empty(room, np.uint64)
    for i in range(first, end):
        for r in range(rules):
            if times[i] == 0:
                begin(particles[i, r], words[i, r], initial, settings[r], 1.0 / rules)
            elif actions is not None:
                follow(particles[i, r], words[i, r], actions[i], seen[i], settings[r], no_red, digests)
        normalise(particles[i])
        success[i] = particles[i, 0, 0, 0].blue_success  # blue's decoys stand in all particles alike


@compiled
def normalise(particles):
    """The weights of all rule sets together become 1."""
    rules, _, room = particles.shape
    total = 0.0
    for r in range(rules):
        for k in range(room):
            total += particles[r, 0, k].weight
    for r in range(rules):
        for k in range(room):
            particles[r, 0, k].weight /= total


@_entry_point
def describe_batch(particles, settings, out, first, end):
    """Probabilities of worlds [first, end) into (n, N_FEATURES) float32."""
    rules, _, room = particles.shape[1:]
    masks = np.empty(len(HOST_FEATURES), np.int64)
    for i in range(first, end):
        out[i, :] = np.float32(0)
        for r in range(rules):
            k = 0
            while k < room and particles[i, r, 0, k].weight > 0.0:
                world = particles[i, r, 0, k]
                weight = np.float32(world.weight)
                write_masks(world, masks)
                for f in range(len(HOST_FEATURES)):
                    for h in range(N_HOSTS):
                        out[i, f * N_HOSTS + h] += weight * np.float32(masks[f] >> h & 1)
                add_rest(world, settings[r], weight, out[i, _N_HOST_FEATURES:])
                k += 1
