"""What two choices of the search are worth: trains its policy as it is, and with one of them changed.

    python benchmarks/search_variants.py [--red-agent bline] [--max-steps 30] [--episodes 100000] [--seeds 2]
                                         [--variants default no-bonus told]

no-bonus: a Restore costs what it costs from the start; in a search it is paid for at first.
told: agents see one more bit, "the last fix was refused"; in a search a refused fix looks like Sleep. They know at
least as much as any agent that infers refusals from its own history: inference is worth at most what they gain.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any
from unittest import mock

import numpy as np

from stockade.text import Table, fixed
from stockade.workflow import conditioned
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import FREE, ORDERS, TYPES, representative, types_red_can_hold
from stockade.workflow.strict import StrictVectorEnv
from stockade.workflow.together import JUDGE_SEED, TogetherTraining


class TellingVectorEnv(StrictVectorEnv):
    """The last bit of the context says whether the last action was refused."""

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        over = self._dead.copy()
        result = super().step(actions)
        self._seen[:, -1] = (self._allowed != actions) & ~over
        return result


class TellingTraining(TogetherTraining):
    """The training of a search whose agents see refusals."""

    def _make(self, red: str, n: int, autoreset_mode: str = "next_step") -> StrictVectorEnv:
        places, contexts = self._tables
        world = super()._make(red, n, autoreset_mode).envs
        return TellingVectorEnv(world, places, np.pad(contexts, ((0, 0), (0, 1))), self.config.judge)


def values(variant: str, config: SearchConfig, orders: list[Any]) -> np.ndarray:
    """(orders,) mean returns of 4,000 greedy episodes each."""
    kind = TellingTraining if variant == "told" else TogetherTraining
    bonus = 0.0 if variant == "no-bonus" else conditioned.RESTORE_BONUS
    with (
        mock.patch.object(conditioned, "RESTORE_BONUS", bonus),
        contextlib.closing(kind(config, orders, None)) as training,
    ):
        training.run(lambda: False, lambda t: None)
        return training.returns(4_000, JUDGE_SEED).mean(axis=(0, 2))


def main() -> None:
    """Print the values of all orders, by variant and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--red-agent", default="bline")
    parser.add_argument("--max-steps", type=int, default=30)
    parser.add_argument("--episodes", type=int, default=100_000, help="of each training (default 100,000)")
    parser.add_argument("--seeds", type=int, default=2)
    choices = ("default", "no-bonus", "told")
    parser.add_argument("--variants", nargs="+", choices=choices, default=choices)
    given = parser.parse_args()
    matters = types_red_can_hold(given.red_agent, horizon=given.max_steps)
    orders: list[Any] = [*dict.fromkeys(representative(order, matters) for order in ORDERS), FREE]
    configs = [SearchConfig(given.red_agent, given.max_steps, given.episodes, seed=s) for s in range(given.seeds)]
    found = [[values(variant, config, orders) for config in configs] for variant in given.variants]
    rows = [
        [TYPES.describe(order, matters), *(", ".join(fixed(seed[k]) for seed in seeds) for seeds in found)]
        for k, order in enumerate(orders)
    ]
    print(Table(["order", *given.variants], rows))


if __name__ == "__main__":
    main()
