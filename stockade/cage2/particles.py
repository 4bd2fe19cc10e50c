"""The exact belief behind `obs="belief"`: all worlds that could be the true one, from blue's history alone.

(worlds with probabilities, blue's action, the 52 bits) -> worlds with probabilities -> what is probably the case

Few different worlds fit what blue has seen: 2 to 20 against the challenge's attackers. So all of them are kept, as
particles with a weight, no two the same. After each of blue's actions every particle takes the step in every way that
chance allows: a script answers the questions of chance.py, one answer after the other. What shows the bits that blue
saw stays; equal worlds are added up. If more are left than there is room for, the least likely go.

Nothing is drawn here: equal histories give equal beliefs.
"""

import numpy as np

from stockade.cage2 import chance, scenario
from stockade.cage2.actions import DISCOVER_SERVICES, EXPLOIT, TRUE
from stockade.cage2.attackers import meander_learns, red_chooses
from stockade.cage2.blue import blue_acts
from stockade.cage2.features import HOST_FEATURES, add_world
from stockade.cage2.green import GREEN_SLEEPS, green_acts
from stockade.cage2.jit import KERNEL_SOURCES, cached, compiled
from stockade.cage2.observe import (
    ACTIVITY_BYTES,
    BELIEF_BYTES,
    EXPLOIT_SEEN,
    PRIVILEGED_SEEN,
    forget_activity,
    monitor,
)  # fmt: skip
from stockade.cage2.red import SHELL_FILE, add_session, can_reach, red_acts
from stockade.cage2.scenario import N_HOSTS, NO_EXPLOIT, NOBODY
from stockade.cage2.state import MEANDER, USUAL, WORLD, bit

MOST_QUESTIONS = 16  #: that chance answers in a step
#: A world behind its weight and a script of what chance says. (Behind: Numba would take a record that begins with a
#: world for one.)
PARTICLE = np.dtype(
    [
        ("weight", np.float64),  # 0: no world lives here
        ("answers", np.uint8, MOST_QUESTIONS),  # to each question, by its number among the possible ones
        ("options", np.uint8, MOST_QUESTIONS),  # how many there were
        ("asked", np.uint8),
        (
            "lost",
            np.float32,
        ),  # from 1, right after a step that nothing explained, down to 0 with each that is explained
        *((name, WORLD[name].base, WORLD[name].shape) for name in WORLD.names or ()),
    ],
    align=True,
)
FIRST_WORD = (PARTICLE.itemsize - WORLD.itemsize) // 8  #: of a particle's that is its world's
LEAST = 1e-4  #: weight of a particle that is kept, by that of the likeliest with the same plan of red
#: Weight of a plan's likeliest particle, by that of the likeliest of all, below which it does not fall as long as it
#: explains what blue sees: green that was not there for long, or an attacker that goes on, may change.
RARE = 1e-4
#: Likelihood of what no particle explains.
UNEXPLAINED = 1e-5
STILL_LOST = 0.95  #: what remains of `lost` after a step that is explained


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
        world.lost = 0.0


@compiled
def follow(worlds, words, action, seen, settings, no_red, digests):
    """Blue acted and saw: particles that show the words `seen` replace those before. Returns how many there are; if
    none explains it, those before stay, after blue's part of the step.

    Args:
        worlds: (2, room + 1) the particles, and room for those after the step; words: the same memory as uint64.
        digests: (room,) uint64, for use in here.
    """
    k = 0
    while worlds[0, k].weight > 0.0:  # the last place is never taken
        forget_activity(worlds[0, k])
        blue_acts(worlds[0, k], None, action)
        worlds[0, k].lost *= np.float32(STILL_LOST)
        k += 1
    after, _ = enumerate_chance(worlds, words, seen, settings, no_red, digests, 0)
    return replace(worlds, words, after, settings.plans) if after else 0


@compiled
def follow_anyway(worlds, words, seen, settings, no_red, digests):
    """After `follow`, where nothing explains what blue saw: what comes nearest replaces the particles before."""
    _, fewest = enumerate_chance(worlds, words, seen, settings, no_red, digests, -1)
    after, _ = enumerate_chance(worlds, words, seen, settings, no_red, digests, fewest)
    replace(worlds, words, after, settings.plans)


@compiled
def replace(worlds, words, after, plans):
    """Those of the new particles that are not too unlikely become the present ones; returns how many."""
    largest = np.zeros(plans)
    for k in range(after):
        plan = worlds[1, k].plan
        largest[plan] = max(largest[plan], worlds[1, k].weight)
    rare = RARE * largest.max()
    kept = 0
    for k in range(after):
        plan = worlds[1, k].plan
        if worlds[1, k].weight > LEAST * largest[plan]:
            worlds[0, kept] = worlds[1, k]
            worlds[0, kept].weight *= max(1.0, rare / largest[plan])
            kept += 1
    for k in range(kept, worlds.shape[1]):
        worlds[0, k].weight = 0.0
    return kept


@compiled
def enumerate_chance(worlds, words, seen, settings, no_red, digests, allowed):
    """All particles end the step in every way that chance allows. Returns how many are kept, in worlds[1], and the
    fewest hosts of which one showed something else. `allowed` is how many that may be: 0, unless nothing explains it;
    -1 keeps nothing and only counts.
    """
    room, after, fewest = worlds.shape[1] - 1, 0, N_HOSTS
    active = active_hosts(seen) if allowed == 0 else -1
    answers = np.zeros(MOST_QUESTIONS, np.uint8)
    k = 0
    while worlds[0, k].weight > 0.0:
        answers[:] = 0
        question = 0
        while question >= 0:
            worlds[1, after] = worlds[0, k]
            world = worlds[1, after]
            for q in range(MOST_QUESTIONS):
                world.answers[q] = answers[q]
            world.asked = 0
            if settings.green != GREEN_SLEEPS:
                green_acts(world, None, settings)
            red_chooses(world, None, no_red, 0, settings)
            possible = active == -1 or may_show(world, active)
            if possible:
                red_acts(world, None, no_red, settings.leaderboard)
                monitor(world)
                world.time += 1
            question = next_answers(world, active, answers)
            if not possible or world.weight == 0.0:
                continue
            wrong = differences(world, seen)
            fewest = min(fewest, wrong)
            if wrong == 0 and allowed == 0:
                after = keep(worlds, words, after, room, digests, settings)
            elif 0 < wrong <= allowed:
                after = keep_anyway(worlds, words, after, room, digests, settings, seen)
        k += 1
    return after, fewest


@compiled
def may_show(world, active):
    """Before red acts: can what it chose show the `active` hosts, and no others? A scan always shows."""
    kind, target, explained = world.red_type, world.red_target, np.int64(0)
    if kind in (DISCOVER_SERVICES, EXPLOIT):
        explained = bit(target)
    if kind == DISCOVER_SERVICES and not active & explained and target != world.fresh_decoy:
        return not can_reach(world, scenario.SUBNET_OF[target])
    if world.green_target != NOBODY:
        explained |= bit(world.green_target)
    return not active & ~explained


@compiled
def active_hosts(seen):
    """Mask of the hosts on which blue saw a scan or an exploit."""
    active = np.int64(0)
    for host in range(N_HOSTS):
        active |= np.int64(seen[host] & ACTIVITY_BYTES != 0) << host
    return active


@compiled
def next_answers(world, active, answers):
    """The next script after the one that led to this world; returns the question that it changes, -1 for none.

    Scripts that differ from it only in questions that came too late to explain the `active` hosts are left out, unless
    these are -1.
    """
    question = np.int64(world.asked) - 1
    green = world.green_target
    if active != -1 and green != NOBODY and green != world.fresh_decoy and not active & bit(green):
        # Green was not there, whatever else happened: the question of where it was comes first, or after whether.
        question = 0 if world.options[0] > 2 else 1
    while question >= 0 and answers[question] + 1 >= world.options[question]:
        answers[question] = 0
        question -= 1
    if question >= 0:
        answers[question] += 1
        for later in range(question + 1, MOST_QUESTIONS):
            answers[later] = 0
    return question


@compiled
def simplify(world, settings):
    """Make worlds equal that differ in nothing that anybody asks for again."""
    world.exploit, world.detected = NO_EXPLOIT, -1
    world.red_connections = world.red_touched = world.green_connections = world.green_ports = 0
    for host in range(N_HOSTS):
        sessions, removable = world.red_sessions[host], world.red_removable[host]
        if world.red_root_sessions[host]:  # of which one is as good as many, and sessions of users are of no use
            world.red_sessions[host] = world.red_root_sessions[host] = 1
            world.red_removable[host] = 0
        elif sessions:
            world.red_removable[host] = removable > 0
            world.red_sessions[host] = (removable > 0) + (sessions > removable)
    if world.red == MEANDER and settings.style[world.plan, world.phase] == USUAL and not world.held:
        meander_learns(world)  # at once instead of before its next action
        if world.red_success != TRUE:
            world.red_target = NOBODY  # it will not remember where it failed


@compiled
def keep(worlds, words, after, room, digests, settings):
    """Add the world at the place `after` to those before it, or to its equal among them; returns how many there are.

    Where all places are taken, the least likely makes room.
    """
    world = worlds[1, after]
    simplify(world, settings)
    digest = np.uint64(0)
    for word in words[1, after, FIRST_WORD:]:
        digest = chance.absorbed(digest, word)
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
        worlds[1, place] = worlds[1, after]
    digests[place] = digest
    return min(after + 1, room)


@compiled
def keep_anyway(worlds, words, after, room, digests, settings, seen):
    """Keep a world that shows something else than was seen: what blue believes becomes what is seen, and where an
    exploit or its traces are seen that it knows nothing of, that may have succeeded. Whoever attacks may not keep to
    its plan: half of the weight goes to a world in which it has become Meander, who goes on from anywhere.
    """
    world = worlds[1, after]
    world.weight *= UNEXPLAINED / 4
    world.lost = 1.0
    suspicious = np.int64(0)
    for h in range(N_HOSTS):
        if world.obs[h] != seen[h]:
            if seen[h] & ACTIVITY_BYTES:
                world.known_addresses |= bit(h)
                world.known_subnets |= bit(scenario.SUBNET_OF[h])
            if (seen[h] & ACTIVITY_BYTES) == EXPLOIT_SEEN or (seen[h] & BELIEF_BYTES) == PRIVILEGED_SEEN:
                suspicious |= bit(h)
        world.obs[h] = seen[h] & BELIEF_BYTES  # activity that is not its own would never be cleared again
    worlds[1, room] = worlds[1, after]
    for succeeded in range(2):
        for wanders in range(2):
            if after < room:
                worlds[1, after] = worlds[1, room]
                other = worlds[1, after]
                for h in range(N_HOSTS):
                    if succeeded and suspicious & bit(h):
                        other.files[h] |= SHELL_FILE
                        add_session(other, h, False, True)
                if wanders:
                    begin_wandering(other, settings)
                after = keep(worlds, words, after, room, digests, settings)
    return after


@compiled
def begin_wandering(world, settings):
    """Red becomes the plan's Meander, if there is one, with a memory that fits what red knows and holds."""
    green = settings.green_rate[world.plan, world.phase]
    for plan in range(settings.plans):
        if settings.attacker[plan, 0] == MEANDER and settings.green_rate[plan, 0] == green:
            world.plan, world.phase, world.phase_began, world.red, world.held = plan, 0, 0, MEANDER, 0
            world.meander_subnets = world.known_subnets
            world.meander_scanned = world.meander_exploited = world.meander_escalated = 0
            for h in range(N_HOSTS):
                world.meander_scanned |= bit(h) * (world.red_ports[h] != 0)
                world.meander_exploited |= bit(h) * (world.red_sessions[h] > 0)
                world.meander_escalated |= bit(h) * (world.red_root_sessions[h] > 0)
            world.meander_mapped = world.meander_exploited
            world.meander_last_exploit = world.meander_last_escalate = NOBODY
            return


@compiled
def differences(world, seen):
    """Of how many hosts it shows something else."""
    count = 0
    for host in range(N_HOSTS):
        count += world.obs[host] != seen[host]
    return count


# ------------------------------------------------------------------------------------------------ what Python calls
_entry_point = cached(*KERNEL_SOURCES, "cage2/features.py", "cage2/particles.py")


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
        if times[i] == 0:
            for r in range(rules):
                begin(particles[i, r], words[i, r], initial, settings[r], 1.0 / rules)
        elif actions is not None:
            follow_rules(particles[i], words[i], actions[i], seen[i], settings, no_red, digests)
        success[i] = normalise(particles[i])


@compiled
def follow_rules(particles, words, action, seen, settings, no_red, digests):
    """Rule sets that do not explain what blue saw are ruled out for the episode, unless none does."""
    rules, explained = len(particles), 0
    for r in range(rules):
        if particles[r, 0, 0].weight > 0.0:
            kept = follow(particles[r], words[r], action, seen, settings[r], no_red, digests)
            particles[r, 1, 0].weight = kept  # for the loop below; a new world takes this place in the next step
            explained += kept
    for r in range(rules):
        if particles[r, 0, 0].weight > 0.0:
            if explained == 0:
                follow_anyway(particles[r], words[r], seen, settings[r], no_red, digests)
            elif particles[r, 1, 0].weight == 0.0:
                replace(particles[r], words[r], 0, settings[r].plans)


@compiled
def normalise(particles):
    """The weights of all rule sets together become 1. Returns whether blue's action succeeded: since its decoys stand
    in all particles alike, any of them tells."""
    rules, _, room = particles.shape
    total, success = 0.0, np.int8(0)
    for r in range(rules):
        for k in range(room):
            total += particles[r, 0, k].weight
        if particles[r, 0, 0].weight > 0.0:
            success = particles[r, 0, 0].blue_success
    for r in range(rules):
        for k in range(room):
            particles[r, 0, k].weight /= total
    return success


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
                add_world(world, settings[r], weight, weight * (np.float32(1) - world.lost), masks, out[i])
                k += 1


@_entry_point
def describe_truth_batch(worlds, settings, out, first, end):
    """What is true of worlds [first, end), as 0 and 1 in the place of probabilities, into (n, N_FEATURES)."""
    masks, world = np.empty(len(HOST_FEATURES), np.int64), worlds[first:end][:1].copy()
    for i in range(first, end):
        world[0] = worlds[i]
        simplify(world[0], settings[0])
        out[i, :] = 0
        one = out.dtype.type(1)
        add_world(world[0], settings[0], one, one, masks, out[i])
