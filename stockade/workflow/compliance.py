"""Does a fix follow the order? From the true state before the step, for many environments at once.

A fix is a Remove or a Restore. It complies if its host's type is the first in the order among the types that red holds
now; it violates if it aims at another type. While red holds nothing, a fix is neutral (or a violation, if so set).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stockade.cage2.actions import ACTION_HOST, ACTION_KIND, REMOVE, RESTORE
from stockade.cage2.jit import cached
from stockade.cage2.scenario import FOOTHOLD, HOSTS, N_HOSTS
from stockade.workflow.orders import HOST_TYPES, N_TYPES, UNIT_TYPES
from stockade.workflow.records import Statistics

NO_FIX, NEUTRAL, COMPLIES, VIOLATES = range(4)
"""What an action is, seen from the order."""

NOT_A_FIX = -1
FIXED_HOST = np.where(np.isin(ACTION_KIND, (REMOVE, RESTORE)), ACTION_HOST, NOT_A_FIX).astype(np.int8)
"""(145,) host that an action repairs, or NOT_A_FIX."""
entry_point = cached("cage2/actions.py", "cage2/scenario.py", "workflow/orders.py", "workflow/compliance.py")


@entry_point
def judge(
    red_access: Any, actions: Any, dead: Any, places: Any, count_foothold: Any, idle_violates: Any, verdicts: Any
) -> None:
    """Write the verdict, (n,) uint8, of each environment's action.

    Args:
        red_access: (n, 13) uint8, before the step. actions: (n,) int64, blue's.
        dead: (n,) bool, environments whose action is ignored, since they only begin a new episode.
        places: (5,) int8, place of each type in the order, 0 the first.
        count_foothold: whether User0 counts as held.
        idle_violates: whether a fix while red holds nothing is a violation.
    """
    for i in range(len(actions)):
        host = FIXED_HOST[actions[i]]
        verdicts[i] = NO_FIX
        if host == NOT_A_FIX or dead[i]:
            continue
        first = N_TYPES
        for h in range(N_HOSTS):
            if red_access[i, h] > 0 and (count_foothold or h != FOOTHOLD):
                first = min(first, places[HOST_TYPES[h]])
        if first == N_TYPES:
            verdicts[i] = VIOLATES if idle_violates else NEUTRAL
        else:
            verdicts[i] = COMPLIES if places[HOST_TYPES[host]] == first else VIOLATES


class FixCounts:
    """Sums over steps, by host: what was repaired and what red held.

    Attributes:
        verdicts: (4, 13) int64, fixes of each host by verdict.
        held: (13,) int64, steps before which red held the host.
        episodes: that ended.
    """

    def __init__(self) -> None:
        self.verdicts = np.zeros((VIOLATES + 1, N_HOSTS), np.int64)
        self.held = np.zeros(N_HOSTS, np.int64)
        self.episodes = 0

    def add(self, red_access: np.ndarray, actions: np.ndarray, dead: np.ndarray, verdicts: np.ndarray) -> None:
        """Count one step of all environments."""
        _count(red_access, actions, dead, verdicts, self.verdicts, self.held)

    def __iadd__(self, other: FixCounts) -> FixCounts:
        """Add what another has counted."""
        self.verdicts += other.verdicts
        self.held += other.held
        self.episodes += other.episodes
        return self

    def types_held(self) -> np.ndarray:
        """(5,) bool, whether red held a host of each type at any time, its foothold apart."""
        hosts = np.flatnonzero((self.held > 0) & (np.arange(N_HOSTS) != FOOTHOLD))
        return np.isin(np.arange(N_TYPES), HOST_TYPES[hosts])

    def statistics(self) -> Statistics:
        """An episode on average, by type and by host."""
        rows = np.stack([self.verdicts[NEUTRAL:].sum(0), self.verdicts[COMPLIES], self.verdicts[VIOLATES], self.held])
        means = rows / max(1, self.episodes)
        names = ("fixes", "complied", "violated", "held_steps")
        by_type = {name: means[:, t == HOST_TYPES].sum(1) for t, name in enumerate(UNIT_TYPES)}
        by_host = dict(zip(HOSTS, means.T, strict=True))
        return {
            kind: {name: dict(zip(names, numbers.tolist(), strict=True)) for name, numbers in found.items()}
            for kind, found in (("by_type", by_type), ("by_host", by_host))
        }


@entry_point
def _count(red_access: Any, actions: Any, dead: Any, verdicts: Any, by_verdict: Any, held: Any) -> None:
    for i in range(len(actions)):
        if dead[i]:
            continue
        if verdicts[i] != NO_FIX:
            by_verdict[verdicts[i], FIXED_HOST[actions[i]]] += 1
        for h in range(N_HOSTS):
            held[h] += red_access[i, h] > 0
