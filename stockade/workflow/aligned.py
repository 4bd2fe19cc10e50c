"""`--constraint reward`: environments whose agent sees an order and is paid for keeping to it.

observation -> observation and the order's 25 one-hot inputs
reward -> the environment's reward + lambda x change of the episode's compliance rate at each judged fix (+ options)

The environment's own return, the pay for alignment and the compliance of each episode are kept apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from stockade.learn.mixture import restore_worlds, save_worlds
from stockade.workflow.compliance import COMPLIES, FixCounts, judge, ranks
from stockade.workflow.config import RewardProtocol
from stockade.workflow.orders import Order, one_hot


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

    @classmethod
    def joined(cls, parts: list[Episodes]) -> Episodes:
        """One after the other."""
        names = ("env", "env_return", "alignment", "complied", "judged")
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

    def __len__(self) -> int:
        """How many."""
        return len(self.env)

    def rates(self, no_fix: float | None) -> np.ndarray:
        """Compliance of each episode with a judged fix; the others count `no_fix`, or are left out if it is None."""
        some = self.judged > 0
        rates = np.full(len(self), np.nan if no_fix is None else no_fix)
        rates[some] = self.complied[some] / self.judged[some]
        return rates[some] if no_fix is None else rates


class AlignedVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """A vector environment with true states, seen and paid through an order.

    Args:
        envs: environments of CAGE 2 with next_step autoreset and uint8 observations; if its backend refreshes true
            states by a rule, that must be "every_step".
        order: to comply with.
        config: what is paid.

    Attributes:
        counts: what was repaired, since the last `take`.
    """

    def __init__(self, envs: Any, order: Order, config: RewardProtocol) -> None:
        self.envs, self.order, self.config = envs, order, config
        self.num_envs, self.metadata = envs.num_envs, envs.metadata
        self.single_action_space, self.action_space = envs.single_action_space, envs.action_space
        (self._size,) = envs.single_observation_space.shape
        code = one_hot(order)
        shape = (self._size + len(code),)
        self.single_observation_space = gymnasium.spaces.Box(0, 1, shape, np.uint8)
        self.observation_space = gymnasium.spaces.Box(0, 1, (self.num_envs, *shape), np.uint8)
        self._seen = np.empty((self.num_envs, *shape), np.uint8)
        self._seen[:, self._size :] = code
        self._places = ranks(order)
        self._verdicts = np.empty(self.num_envs, np.uint8)
        self._begin()

    def _begin(self) -> None:
        n = self.num_envs
        self._dead = np.zeros(n, np.bool_)
        self._complied, self._judged = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self._env_return, self._alignment = np.zeros(n), np.zeros(n)
        self._ended: list[Episodes] = []
        self.counts = FixCounts()

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin episodes in all environments."""
        if options:
            raise ValueError("an aligned environment begins all its episodes together and takes no options")
        obs, info = self.envs.reset(seed=seed)
        self._seen[:, : self._size] = obs
        self._begin()
        return self._seen, info

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all; the observation is overwritten by the next step."""
        held = self.envs.true_state().red_access
        config, verdicts = self.config, self._verdicts
        judge(held, actions, self._dead, self._places,
              config.foothold == "count", config.idle_fixes == "violate", verdicts)  # fmt: skip
        self.counts.add(held, actions, self._dead, verdicts)
        pay = self._pay(verdicts)
        obs, rewards, terminated, truncated, info = self.envs.step(actions)
        over = terminated | truncated
        self._env_return += rewards
        if over.any():
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
        if len(judged):
            complied = verdicts[judged] == COMPLIES
            before = self._complied[judged] / np.maximum(1, self._judged[judged])
            self._complied[judged] += complied
            self._judged[judged] += 1
            after = self._complied[judged] / self._judged[judged]
            config = self.config
            options = np.where(complied, config.compliant_bonus, -config.violation_penalty)
            pay[judged] = config.alignment_lambda * (after - before) + options
        return pay

    def _close(self, over: np.ndarray) -> None:
        """Episodes have ended: file them, and begin anew for these environments."""
        columns = (self._env_return, self._alignment, self._complied, self._judged)
        self._ended.append(Episodes(over, *(column[over] for column in columns)))
        self.counts.episodes += len(over)
        for column in columns:
            column[over] = 0

    def take(self) -> tuple[Episodes, FixCounts]:
        """Episodes that ended, and what was repaired, since the last time."""
        nothing = np.zeros(0, np.int64)
        none = Episodes(nothing, np.zeros(0), np.zeros(0), nothing, nothing)
        taken = Episodes.joined([none, *self._ended]), self.counts
        self._ended, self.counts = [], FixCounts()
        return taken

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        self.envs.close()

    # --------------------------------------------------------------------------------------------- state, for resume
    def _running(self) -> dict[str, np.ndarray]:
        return {
            "was_over": self._dead, "complied": self._complied, "judged": self._judged,
            "env_return": self._env_return, "alignment": self._alignment,
        }  # fmt: skip

    def save_worlds(self) -> dict[str, np.ndarray]:
        """What `learn.mixture.save_worlds` keeps of it in a checkpoint, after a `take`."""
        return {**save_worlds(self.envs), **{name: array.copy() for name, array in self._running().items()}}

    def restore_worlds(self, arrays: dict[str, np.ndarray]) -> None:
        """Put it back."""
        restore_worlds(self.envs, arrays)
        for name, array in self._running().items():
            array[...] = arrays[name]
        self._ended, self.counts = [], FixCounts()
