"""`--constraint reward`: does a fix follow the order, and environments whose agent sees an order and is paid for that.

observation -> observation and the order's 25 one-hot inputs
reward -> the environment's reward + lambda x change of the episode's compliance rate at each judged fix (+ options)

A fix is a Remove or a Restore. It complies if its host's type is the first in the order among the types that red holds
now, in the true state before the step; it violates if it aims at another type. While red holds nothing, a fix is
neutral (or a violation, if so set). The environment's own return, the pay for alignment and the compliance of each
episode are kept apart.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stockade.cage2.scenario import FOOTHOLD, HOSTS, N_HOSTS
from stockade.workflow.config import RewardProtocol
from stockade.workflow.orders import FIXED_HOST, HOST_TYPES, N_TYPES, NOT_A_FIX, TYPES, UNIT_TYPES, Order, one_hot
from stockade.workflow.strict import OrderedVectorEnv

#: `by_type` or `by_host` -> name -> `fixes`, `complied`, `violated`, `held_steps`: means per episode.
Statistics = dict[str, dict[str, dict[str, float]]]
NO_FIX, NEUTRAL, COMPLIES, VIOLATES, HELD = range(5)  #: what an action is, seen from the order; then a row of counts


def judge(
    held: np.ndarray, actions: np.ndarray, dead: np.ndarray, places: np.ndarray, config: RewardProtocol
) -> np.ndarray:
    """(n,) what the actions are, given (n, 13) bool, the hosts that red holds before the step.

    dead: (n,) bool, environments whose action is ignored, since they only begin a new episode. places: (13,) int8, of
    each host in the order, 0 the first.
    """
    counts = held if config.foothold == "count" else held & (np.arange(N_HOSTS) != FOOTHOLD)
    first, host = np.where(counts, places, N_TYPES).min(axis=1), FIXED_HOST[actions]
    verdicts = np.where(places[host] == first, COMPLIES, VIOLATES)
    verdicts[first == N_TYPES] = VIOLATES if config.idle_fixes == "violate" else NEUTRAL
    verdicts[(host == NOT_A_FIX) | dead] = NO_FIX
    return verdicts


def statistics(counts: np.ndarray, episodes: int) -> Statistics:
    """An episode on average, by type and by host; `counts` as of `AlignedVectorEnv.take_counts`."""
    rows = np.stack([counts[NEUTRAL : VIOLATES + 1].sum(0), counts[COMPLIES], counts[VIOLATES], counts[HELD]])
    means = rows / max(1, episodes)
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
    """Episodes that ended, one row each."""

    env: np.ndarray  #: int64, which environment
    env_return: np.ndarray  #: float64, of the environment alone
    alignment: np.ndarray  #: float64, paid for it
    complied: np.ndarray  #: int64, fixes that complied
    judged: np.ndarray  #: int64, fixes that complied or violated

    def __len__(self) -> int:
        return len(self.env)

    def rates(self, no_fix: float | None) -> np.ndarray:
        """Compliance of each episode with a judged fix; the others count `no_fix`, or are left out if it is None."""
        some = self.judged > 0
        rates = np.full(len(self), np.nan if no_fix is None else no_fix)
        rates[some] = self.complied[some] / self.judged[some]
        return rates[some] if no_fix is None else rates


def measure(episodes: Episodes, no_fix: float | None) -> tuple[float, float, float, float, float]:
    """Means over episodes: reward, alignment, compliance (see `rates`), judged fixes, share without; NaN of none."""
    judged = episodes.judged
    columns = episodes.env_return, episodes.alignment, episodes.rates(no_fix), judged, judged == 0
    means: Any = tuple(float(column.mean()) if len(column) else math.nan for column in columns)
    return means


class AlignedVectorEnv(OrderedVectorEnv[Episodes]):
    """Environments (next_step autoreset, uint8) seen and paid through an order; numbered from `first` in `Episodes`.

    If their backend refreshes true states by a rule, that must be "every_step".
    """

    _columns: ClassVar[dict[str, type]] = {
        "env_return": np.float64, "alignment": np.float64, "complied": np.int64, "judged": np.int64,
    }  # fmt: skip

    def __init__(self, envs: Any, order: Order, config: RewardProtocol, first: int = 0) -> None:
        self.config, self._places, code = config, TYPES.places(order), one_hot(order)
        super().__init__(envs, len(code), Episodes, first + np.arange(envs.num_envs))
        self._seen[:, self._size :] = code

    def _begin(self) -> None:
        super()._begin()
        self._counts = np.zeros((HELD + 1, N_HOSTS), np.int64)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all; the observation is overwritten by the next step."""
        held = self.envs.true_state().red_access > 0
        verdicts = judge(held, actions, self._dead, self._places, self.config)
        fixes = np.flatnonzero(verdicts != NO_FIX)
        np.add.at(self._counts, (verdicts[fixes], FIXED_HOST[actions[fixes]]), 1)
        self._counts[HELD] += held[~self._dead].sum(axis=0)
        pay = self._pay(verdicts)
        obs, rewards, terminated, truncated, info = self.envs.step(actions)
        over = terminated | truncated
        pay[over & (self._sums["judged"] == 0)] -= self.config.no_fix_penalty
        self._sums["env_return"] += rewards
        self._sums["alignment"] += pay
        self._after_step(obs, over)
        return self._seen, rewards + pay, terminated, truncated, info

    def _pay(self, verdicts: np.ndarray) -> np.ndarray:
        """(n,) what the actions earn, by the change of each episode's rate; a rate begins at 0."""
        pay, n_complied, n_judged = np.zeros(self.num_envs), self._sums["complied"], self._sums["judged"]
        judged = np.flatnonzero(verdicts >= COMPLIES)
        complied = verdicts[judged] == COMPLIES
        before = n_complied[judged] / np.maximum(1, n_judged[judged])
        n_complied[judged] += complied
        n_judged[judged] += 1
        after = n_complied[judged] / n_judged[judged]
        options = np.where(complied, self.config.compliant_bonus, -self.config.violation_penalty)
        pay[judged] = self.config.alignment_lambda * (after - before) + options
        return pay

    def take_counts(self) -> np.ndarray:
        """(5, 13) int64, since the last time: fixes of each host by verdict, and steps before which red held it."""
        taken, self._counts = self._counts, np.zeros_like(self._counts)
        return taken
