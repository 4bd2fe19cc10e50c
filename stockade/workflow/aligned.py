"""`--constraint reward`: environments whose agent sees an order and is paid for keeping to it.

observation -> observation and the order's 25 one-hot inputs
reward -> the environment's reward + lambda x change of the episode's compliance rate at each judged fix (+ options)

The environment's own return, the pay for alignment and the compliance of each episode are kept apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stockade.workflow.compliance import COMPLIES, FixCounts, judge
from stockade.workflow.config import RewardProtocol
from stockade.workflow.orders import Order, one_hot
from stockade.workflow.strict import OrderedVectorEnv, joined
from stockade.workflow.units import TYPES


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
