"""`stockade evaluate` of a search's policy: the challenge's protocol, and how far it keeps to its order meanwhile."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stockade.baselines import BluePolicy
from stockade.learn.agents import Agent
from stockade.learn.evaluate import SEEDS_PER_CELL, EvaluateConfig
from stockade.learn.leaderboard import CELLS
from stockade.vector.native import NativeVectorEnv
from stockade.workflow.compliance import COMPLIES, VIOLATES, judge, ranks
from stockade.workflow.config import AlignmentConfig
from stockade.workflow.orders import Order, describe


@dataclass(frozen=True)
class CellCompliance:
    """Of one cell of the protocol.

    Attributes:
        compliance: mean over the episodes with a judged fix; None if there was none.
        fixes: judged fixes an episode. no_fix: share of episodes without one.
    """

    red: str
    horizon: int
    compliance: float | None
    fixes: float
    no_fix: float


@dataclass(frozen=True)
class Evaluate(EvaluateConfig):
    """Play the challenge's protocol and print the result beside the published scores."""

    def more(self, policy: BluePolicy) -> dict[str, Any]:
        """For the policy of a workflow, its compliance on the episodes of the protocol, played here."""
        if not isinstance(policy, Agent) or "order" not in policy.card:
            return {}
        order: Order = tuple(policy.card["order"])
        cells = [self._cell(policy, order, *cell) for cell in CELLS]
        print(f"\norder: {describe(order)}")
        for cell in cells:
            if cell.compliance is not None:
                print(f"{cell.red:>8} {cell.horizon:>3}: compliance {cell.compliance:.3f}, {cell.fixes:.1f} judged "
                      f"fixes an episode, {100 * cell.no_fix:.0f}% of the episodes without one")  # fmt: skip
            else:
                print(f"{cell.red:>8} {cell.horizon:>3}: no fix while red held anything, so no compliance")
        return {"order": describe(order), "compliance": [asdict(cell) for cell in cells]}

    def _cell(self, policy: Agent, order: Order, red: str, horizon: int) -> CellCompliance:
        alignment = AlignmentConfig(**policy.card["alignment"])
        n, seed = self.episodes, self.seed + SEEDS_PER_CELL * CELLS.index((red, horizon))
        generator = np.random.default_rng([seed, 1])
        verdicts, alive = np.empty(n, np.uint8), np.zeros(n, np.bool_)
        complied, judged = np.zeros(n), np.zeros(n)
        with NativeVectorEnv(
            n, red, horizon, self.rules, self.chance, obs=policy.obs, autoreset_mode="disabled", copy=False
        ) as envs:
            obs, _ = envs.reset(seed=seed)
            access = envs.true_state().red_access
            for _ in range(horizon):
                actions = policy.act(obs, generator)
                judge(access, actions, alive, ranks(order), alignment.foothold == "count",
                      alignment.idle_fixes == "violate", verdicts)  # fmt: skip
                complied += verdicts == COMPLIES
                judged += (verdicts == COMPLIES) | (verdicts == VIOLATES)
                obs = envs.step(actions)[0]
        some = judged > 0
        rate = float((complied[some] / judged[some]).mean()) if some.any() else None
        return CellCompliance(red, horizon, rate, float(judged.mean()), float((~some).mean()))
