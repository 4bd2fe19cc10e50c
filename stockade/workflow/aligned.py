"""`--constraint reward`: does a fix follow the order, and environments whose agent sees an order and is paid for that.

observation -> observation and the order's 25 one-hot inputs
reward -> the environment's reward + lambda x change of the episode's compliance rate at each judged fix (+ options)

A fix is a Remove or a Restore. It complies if its host's type is the first in the order among the types that red holds
now, in the true state before the step; it violates if it aims at another type. While red holds nothing, a fix is
neutral (or a violation, if so set). The environment's own return, the pay for alignment and the compliance of each
episode are kept apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stockade.cage2.jit import cached
from stockade.cage2.scenario import FOOTHOLD, HOSTS, N_HOSTS
from stockade.workflow.config import RewardProtocol
from stockade.workflow.orders import FIXED_HOST, HOST_TYPES, N_TYPES, NOT_A_FIX, UNIT_TYPES, Order, one_hot
from stockade.workflow.records import Statistics
from stockade.workflow.strict import OrderedVectorEnv, joined
from stockade.workflow.units import TYPES

NO_FIX, NEUTRAL, COMPLIES, VIOLATES = range(4)
"""What an action is, seen from the order."""
_entry_point = cached("cage2/actions.py", "cage2/scenario.py", "workflow/orders.py", "workflow/aligned.py")


@_entry_point
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
    """Sums over steps, by host: what was repaired and what red held."""

    def __init__(self) -> None:
        self.verdicts = np.zeros((VIOLATES + 1, N_HOSTS), np.int64)  #: fixes of each host by verdict
        self.held = np.zeros(N_HOSTS, np.int64)  #: steps before which red held the host
        self.episodes = 0  #: that ended

    def add(self, red_access: np.ndarray, actions: np.ndarray, dead: np.ndarray, verdicts: np.ndarray) -> None:
        """Count one step of all environments."""
        fixes = np.flatnonzero(verdicts != NO_FIX)
        np.add.at(self.verdicts, (verdicts[fixes], FIXED_HOST[actions[fixes]]), 1)
        self.held += (red_access[~dead] > 0).sum(axis=0)

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


# -------------------------------------------------------------------------------------------------------- environments
@dataclass(frozen=True)
class Episodes:
    """Episodes that ended, one row each.

    Attributes:
        env: int64, which environment. env_return: float64, of the environment alone. alignment: float64, paid for it.
        complied, judged: int64, fixes that complied, and that complied or violated.
    """

    env: np.ndarray
    env_return: np.ndarray
    alignment: np.ndarray
    complied: np.ndarray
    judged: np.ndarray

    def __len__(self) -> int:
        """How many."""
        return len(self.env)

    def rates(self, no_fix: float | None) -> np.ndarray:
        """Compliance of each episode with a judged fix; the others count `no_fix`, or are left out if it is None."""
        some = self.judged > 0
        rates = np.full(len(self), np.nan if no_fix is None else no_fix)
        rates[some] = self.complied[some] / self.judged[some]
        return rates[some] if no_fix is None else rates


class AlignedVectorEnv(OrderedVectorEnv):
    """A vector environment with true states, seen and paid through an order.

    Args:
        envs: environments of CAGE 2 with next_step autoreset and uint8 observations; if its backend refreshes true
            states by a rule, that must be "every_step".
        order: to comply with.
        config: what is paid.
    """

    def __init__(self, envs: Any, order: Order, config: RewardProtocol) -> None:
        self.config, self._places, code = config, TYPES.ranks(order), one_hot(order)
        super().__init__(envs, len(code))
        self._seen[:, self._size :] = code
        self._verdicts = np.empty(self.num_envs, np.uint8)

    def _begin(self) -> None:
        n = self.num_envs
        self._dead = np.zeros(n, np.bool_)
        self._complied, self._judged = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self._env_return, self._alignment = np.zeros(n), np.zeros(n)
        self._ended: list[Episodes] = []
        self._counts = FixCounts()

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all; the observation is overwritten by the next step."""
        held = self.envs.true_state().red_access
        config, verdicts = self.config, self._verdicts
        judge(held, actions, self._dead, self._places,
              config.foothold == "count", config.idle_fixes == "violate", verdicts)  # fmt: skip
        self._counts.add(held, actions, self._dead, verdicts)
        pay = self._pay(verdicts)
        obs, rewards, terminated, truncated, info = self.envs.step(actions)
        over = terminated | truncated
        self._env_return += rewards
        pay[over & (self._judged == 0)] -= config.no_fix_penalty
        self._alignment += pay
        if over.any():
            self._close(np.flatnonzero(over))
        self._dead = over
        self._seen[:, : self._size] = obs
        return self._seen, rewards + pay, terminated, truncated, info

    def _pay(self, verdicts: np.ndarray) -> np.ndarray:
        """(n,) what the actions earn, by the change of each episode's rate; a rate begins at 0."""
        pay = np.zeros(self.num_envs)
        judged = np.flatnonzero(verdicts >= COMPLIES)
        complied = verdicts[judged] == COMPLIES
        before = self._complied[judged] / np.maximum(1, self._judged[judged])
        self._complied[judged] += complied
        self._judged[judged] += 1
        after = self._complied[judged] / self._judged[judged]
        options = np.where(complied, self.config.compliant_bonus, -self.config.violation_penalty)
        pay[judged] = self.config.alignment_lambda * (after - before) + options
        return pay

    def _close(self, over: np.ndarray) -> None:
        """Episodes have ended: file them, and begin anew for these environments."""
        columns = (self._env_return, self._alignment, self._complied, self._judged)
        self._ended.append(Episodes(over, *(column[over] for column in columns)))
        self._counts.episodes += len(over)
        for column in columns:
            column[over] = 0

    def take(self) -> tuple[Episodes, FixCounts]:
        """Episodes that ended, and what was repaired, since the last time."""
        self._close(np.zeros(0, np.int64))
        taken = joined(self._ended), self._counts
        self._ended, self._counts = [], FixCounts()
        return taken

    def _running(self) -> dict[str, np.ndarray]:
        return {
            "was_over": self._dead, "complied": self._complied, "judged": self._judged,
            "env_return": self._env_return, "alignment": self._alignment,
        }  # fmt: skip
