"""Blue's 145 actions and red's actions: numbers, names, and which decoys can never succeed.

Blue: 0 Sleep, 1 Monitor, then 11 kinds x 13 hosts; action i >= 2 is kind (i-2)//13 on host (i-2)%13.
"""

from typing import Any

import numpy as np

from stockade.cage2.scenario import DECOY_CAN_START, DECOYS, HOSTS, N_DECOYS, N_HOSTS, NOBODY, SUBNETS
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


def check_action(action: Any) -> int:
    """One action as an int, if it is one."""
    if type(action) in (int, np.int64) and 0 <= (number := int(action)) < N_ACTIONS:  # the common case, quickly
        return number
    if isinstance(action, np.ndarray) and action.shape == ():
        action = action[()]
    if isinstance(action, bool) or not isinstance(action, (int, np.integer)):
        raise InvalidActionError(
            f"action {action!r} of type {type(action).__name__} is no whole number; take 0 to {N_ACTIONS - 1}"
        )
    if not 0 <= action < N_ACTIONS:
        raise InvalidActionError(f"action {action} is out of range; take 0 to {N_ACTIONS - 1}")
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

#: Success of an action: the reference's three-valued truth.
FALSE, TRUE, UNKNOWN = 0, 1, 2


def red_action_name(kind: int, target: int) -> str:
    """For a person: `"ExploitRemoteService User1"`."""
    return RED_TYPES[kind] if target == NOBODY else f"{RED_TYPES[kind]} {RED_TARGETS[target]}"
