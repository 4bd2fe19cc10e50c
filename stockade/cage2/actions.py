"""Blue's 145 actions and red's 56: numbers, names, and which decoys can never succeed.

Blue: 0 Sleep, 1 Monitor, then 11 kinds x 13 hosts; action i >= 2 is kind (i-2)//13 on host (i-2)%13.
Red: 0 Sleep, 1..3 DiscoverRemoteSystems of a subnet, then 4 kinds x 13 hosts; action i >= 4 is kind (i-4)//13 on host
(i-4)%13.
"""

from typing import Any

import numpy as np

from stockade.cage2.scenario import DECOY_CAN_START, DECOYS, HOSTS, N_DECOYS, N_HOSTS, N_SUBNETS, NOBODY, SUBNETS
from stockade.errors import InvalidActionError

# ---------------------------------------------------------------------------------------------------------------- blue
SLEEP, MONITOR = 0, 1
#: Kinds of blue actions; decoy d is kind FIRST_DECOY + d.
ANALYSE, REMOVE, FIRST_DECOY, RESTORE = 0, 1, 2, 2 + N_DECOYS
NO_KIND = -1
_KINDS = ("Analyse", "Remove", *(decoy.name for decoy in DECOYS), "Restore")
N_ACTIONS = 2 + len(_KINDS) * N_HOSTS

ACTION_KIND = np.array([NO_KIND, NO_KIND] + [k for k in range(len(_KINDS)) for _ in HOSTS], np.int8)
ACTION_HOST = np.array([NOBODY, NOBODY] + [h for _ in _KINDS for h in range(N_HOSTS)], np.int8)
ACTION_NAMES: tuple[str, ...] = ("Sleep", "Monitor", *(f"{kind} {host}" for kind in _KINDS for host in HOSTS))


def action_index(name: str, host: str | None = None) -> int:
    """Number of a blue action: `action_index("Restore", "User1")` or `action_index("Restore User1")`."""
    full = name if host is None else f"{name} {host}"
    if full not in ACTION_NAMES:
        raise ValueError(f"unknown blue action {full!r}; take one of Sleep, Monitor, or one of {_KINDS} with a host "
                         f"of {HOSTS}")  # fmt: skip
    return ACTION_NAMES.index(full)


def check_action(action: Any, count: int = N_ACTIONS, side: str = "blue") -> int:
    """One action as an int, if it is one of `count`."""
    if type(action) in (int, np.int64) and 0 <= (number := int(action)) < count:  # the common case, quickly
        return number
    if isinstance(action, np.ndarray) and action.shape == ():
        action = action[()]
    name = "action" if side == "blue" else f"{side}'s action"
    if isinstance(action, bool) or not isinstance(action, (int, np.integer)):
        raise InvalidActionError(
            f"{name} {action!r} of type {type(action).__name__} is no whole number; take 0 to {count - 1}"
        )
    if not 0 <= action < count:
        raise InvalidActionError(f"{name} {action} is out of range; take 0 to {count - 1}")
    return int(action)


#: (145,) int8, 1 where an action can succeed at all: false only for decoys that a host's system or own services rule
#: out. Static, so it tells an agent nothing about the state of the world.
ACTION_MASK = np.ones(N_ACTIONS, np.int8)
ACTION_MASK[2:].reshape(-1, N_HOSTS)[FIRST_DECOY:RESTORE] = DECOY_CAN_START
for _table in (ACTION_KIND, ACTION_HOST, ACTION_MASK):
    _table.setflags(write=False)

# ----------------------------------------------------------------------------------------------------------------- red
RED_SLEEP, DISCOVER_SYSTEMS, DISCOVER_SERVICES, EXPLOIT, ESCALATE, IMPACT = range(6)
RED_TYPES = (
    "Sleep", "DiscoverRemoteSystems", "DiscoverNetworkServices", "ExploitRemoteService", "PrivilegeEscalate", "Impact",
)  # fmt: skip
FIRST_SUBNET = N_HOSTS  #: red's targets are hosts 0..12 or subnets 13..15
RED_TARGETS = (*HOSTS, *SUBNETS)

#: (56,) each, of the actions of a red player by number: what red_type and red_target become.
_ON_HOSTS = (DISCOVER_SERVICES, EXPLOIT, ESCALATE, IMPACT)
RED_ACTION_KIND = np.array([RED_SLEEP, *[DISCOVER_SYSTEMS] * N_SUBNETS, *np.repeat(_ON_HOSTS, N_HOSTS)], np.int8)
RED_ACTION_TARGET = np.array(
    [NOBODY, *range(FIRST_SUBNET, FIRST_SUBNET + N_SUBNETS), *list(range(N_HOSTS)) * len(_ON_HOSTS)], np.int8
)
N_RED_ACTIONS = len(RED_ACTION_KIND)
for _table in (RED_ACTION_KIND, RED_ACTION_TARGET):
    _table.setflags(write=False)

#: Success of an action: the reference's three-valued truth.
FALSE, TRUE, UNKNOWN = 0, 1, 2


def red_action_name(kind: int, target: int) -> str:
    """For a person: `"ExploitRemoteService User1"`."""
    return RED_TYPES[kind] if target == NOBODY else f"{RED_TYPES[kind]} {RED_TARGETS[target]}"


RED_ACTION_NAMES: tuple[str, ...] = tuple(map(red_action_name, RED_ACTION_KIND, RED_ACTION_TARGET))


def red_action_index(name: str, target: str | None = None) -> int:
    """Number of a red action: `red_action_index("Impact", "Op_Server0")` or `red_action_index("Impact Op_Server0")`."""
    full = name if target is None else f"{name} {target}"
    if full not in RED_ACTION_NAMES:
        raise ValueError(f"unknown red action {full!r}; take Sleep, DiscoverRemoteSystems with one of {SUBNETS}, or "
                         f"one of {RED_TYPES[2:]} with a host of {HOSTS}")  # fmt: skip
    return RED_ACTION_NAMES.index(full)
