"""One step of a world, and the entry points that run it over a batch.

actions (n,) -> step_batch: for each world blue, green, red, reward, observe -> observations (n, 13 words), rewards (n,)
Red's action is its attacker's choice, or one of a second array of actions (n,).

`ledgers` is None under `chance="fast"`. Entry points work on worlds [begin, end), so that threads can share a batch.
"""

import numpy as np

from stockade.cage2 import chance, mt19937
from stockade.cage2.actions import ACTION_KIND, RESTORE
from stockade.cage2.attackers import draw_plan, red_chooses
from stockade.cage2.blue import blue_acts
from stockade.cage2.green import GREEN_SLEEPS, green_acts
from stockade.cage2.jit import KERNEL_SOURCES, cached, compiled
from stockade.cage2.ledger import begin_episode
from stockade.cage2.observe import copy_observation, forget_activity, monitor
from stockade.cage2.red import red_acts
from stockade.cage2.scenario import RESTORE_COST, SERVICE_DOWN_COST
from stockade.cage2.state import MOST_PHASES, MOST_PLANS, PLANNED

#: One row, the same for all worlds of a batch: see WorldConfig.settings.
SETTINGS = np.dtype(
    [
        *(("red", np.int64), ("horizon", np.int64), ("green", np.int64), ("leaderboard", np.bool_)),
        # are the reward's parts weighted, and how
        *(("weighted", np.bool_), ("hosts", np.float64), ("service", np.float64), ("restore", np.float64)),
        # plans of attackers, where red is PLANNED: how many, how many phases each has, and the phases, see variants.py
        *(("plans", np.int64), ("phases", np.int64, MOST_PLANS)),
        *((name, np.int64, (MOST_PLANS, MOST_PHASES)) for name in ("attacker", "style", "delay", "first", "last")),
        *((name, np.float64, (MOST_PLANS, MOST_PHASES)) for name in ("idle", "noise", "green_rate")),
    ],
    align=True,
)


@compiled
def step(world, ledger, action, red_actions, i, settings):
    """Advance world i by an action of blue, and by one of red: `red_actions` are as of `red_chooses`."""
    forget_activity(world)
    blue_acts(world, ledger, action)
    if settings.green != GREEN_SLEEPS:
        green_acts(world, ledger, settings)
    red_chooses(world, ledger, red_actions, i, settings)
    red_acts(world, ledger, red_actions, settings.leaderboard)
    world.reward = reward(world, action)
    monitor(world)
    world.time += 1
    world.over = world.time >= settings.horizon


@compiled
def reward(world, action):
    """In tenths: what red's root sessions, the stopped service and a Restore cost."""
    cost = world.root_cost + SERVICE_DOWN_COST * world.service_down
    if ACTION_KIND[action] == RESTORE:
        cost += RESTORE_COST
    return -cost


@compiled
def weighted_reward(world, action, settings):
    """The same in whole points, with a weight for each part."""
    cost = settings.hosts * world.root_cost + settings.service * (SERVICE_DOWN_COST * world.service_down)
    if ACTION_KIND[action] == RESTORE:
        cost += settings.restore * RESTORE_COST
    return (0.0 - cost) / 10.0  # no minus zero


@compiled
def reset(worlds, i, ledger, initial, settings):
    """Begin an episode; the random streams continue."""
    stream = worlds[i].stream
    worlds[i] = initial[0]
    world = worlds[i]
    world.stream = stream
    if settings.red == PLANNED:
        draw_plan(world, settings)
    else:
        world.red = chance.red_of_episode(world, settings.red)
    begin_episode(ledger)


@compiled
def ledger_of(ledgers, i):
    if ledgers is None:
        return None
    return ledgers[i]


# ------------------------------------------------------------------------------------------------ what Python calls
entry_point = cached(*KERNEL_SOURCES)


@entry_point
def step_batch(worlds, ledgers, initial, settings, actions, red_actions, obs, rewards, over, autoreset, begin, end):
    """Step worlds [begin, end). With `autoreset`, a world whose episode was over begins a new one instead.

    `red_actions` are (n,) or None: see `red_chooses`.
    """
    weighted = settings[0].weighted
    for i in range(begin, end):
        if autoreset and worlds[i].over:
            reset(worlds, i, ledger_of(ledgers, i), initial, settings[0])
            rewards[i] = 0.0
            over[i] = False
        else:
            step(worlds[i], ledger_of(ledgers, i), actions[i], red_actions, i, settings[0])
            rewards[i] = weighted_reward(worlds[i], actions[i], settings[0]) if weighted else worlds[i].reward / 10.0
            over[i] = worlds[i].over
        copy_observation(worlds[i], obs[i])


@entry_point
def reset_batch(worlds, ledgers, initial, settings, chosen, obs, begin, end):
    """Begin an episode in the chosen worlds of [begin, end)."""
    for i in range(begin, end):
        if chosen[i]:
            reset(worlds, i, ledger_of(ledgers, i), initial, settings[0])
        copy_observation(worlds[i], obs[i])


@entry_point
def seed_batch(worlds, ledgers, seeds, seeded, begin, end):
    """Seed the streams of those worlds of [begin, end) that are marked."""
    for i in range(begin, end):
        if seeded[i]:
            chance.seed(worlds[i], ledger_of(ledgers, i), seeds[i])


@entry_point
def peek_batch(ledgers, scratch, peeks, drawn):
    """Next word of each stream, and how many it has handed out; draws nothing. `scratch` is one ledger to use."""
    for i in range(len(ledgers)):
        drawn[i] = mt19937.words_drawn(ledgers[i])
        scratch[0] = ledgers[i]
        peeks[i] = mt19937.next_word(scratch[0])


@entry_point
def are_valid(actions, count):
    """Are all of these actions below `count`? Without an early end, so that the compiler can vectorise it."""
    largest = np.uint64(0)
    for action in actions:
        largest = max(largest, np.uint64(action))  # a negative one becomes a large one
    return largest < np.uint64(count)
