"""`stockade evaluate`: the challenge's protocol, and for a search's policy how far it keeps to its order meanwhile."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import tyro

from stockade.files import JsonFile, json_output
from stockade.learn.agents import Agent, Player
from stockade.learn.evaluate import CELLS, SEEDS_PER_CELL, EvaluateConfig, EvaluateResult, Section
from stockade.learn.evaluate import evaluate as play_protocol
from stockade.text import Table, fixed
from stockade.vector.native import NativeVectorEnv
from stockade.workflow.aligned import COMPLIES, VIOLATES, judge
from stockade.workflow.config import RewardProtocol
from stockade.workflow.orders import Order
from stockade.workflow.units import TYPES


@dataclass(frozen=True)
class Evaluate:
    """Play the challenge's protocol and print the result beside the published scores of the same rules."""

    settings: Annotated[EvaluateConfig, tyro.conf.arg(name="")]
    """What to play."""
    json: JsonFile = None
    """Write the result, each single return included, to this file too; - is standard output."""

    def run(self) -> int:
        """Play, print, write."""
        with json_output(self.json) as write:
            result = evaluate(self.settings)
            print(result)
            write(result.to_dict())
        return 0


def evaluate(config: EvaluateConfig, policy: Any = None, *, progress: bool = True) -> EvaluateResult:
    """The protocol, and the compliance of a policy that was trained for an order; a search plays its best order."""
    from stockade.workflow.policies import find_search, load_search  # not before it is needed: brings Torch along

    if policy is None and (folder := find_search(config.policy, config.runs)) is not None:
        policy = load_search(folder, greedy=config.greedy)
    return play_protocol(config, policy, extras=[order_kept, compliance], progress=progress)


def order_kept(player: Player, config: EvaluateConfig) -> Section | None:
    """For a policy that is bound to an order: which, and who judges."""
    from stockade.workflow.policies import OrderAgent

    agent = player.policy
    if not isinstance(agent, OrderAgent):
        return None
    order = agent.units.describe(agent.order)
    told = f"kept to the order {order}; forbidden fixes are not carried out (judge: {agent.judge})"
    return Section(Table([told], []), {"order": order, "judge": agent.judge})


@dataclass(frozen=True)
class CellCompliance:
    """Of one cell of the protocol.

    Attributes:
        compliance: mean over the episodes with a judged fix; None if there was none.
        fixes: judged fixes per episode. no_fix: share of episodes without one.
    """

    red: str
    horizon: int
    compliance: float | None
    fixes: float
    no_fix: float


def compliance(player: Player, config: EvaluateConfig) -> Section | None:
    """For the policy of a workflow, its compliance on the episodes of the protocol, played here."""
    agent = player.policy
    if not isinstance(agent, Agent) or "order" not in agent.card:
        return None
    order: Order = tuple(agent.card["order"])
    cells = [_cell(agent, order, config, *cell) for cell in CELLS]
    rows = [
        [c.red, c.horizon, "n/a" if c.compliance is None else fixed(c.compliance, 3), fixed(c.fixes, 1),
         f"{100 * c.no_fix:.0f}%"]
        for c in cells
    ]  # fmt: skip
    header = ["attacker", "steps", "compliance", "judged fixes per episode", "episodes without one"]
    content = {"order": TYPES.describe(order), "compliance": [asdict(cell) for cell in cells]}
    return Section(Table(header, rows, f"order: {TYPES.describe(order)}"), content)


def _cell(agent: Agent, order: Order, config: EvaluateConfig, red: str, horizon: int) -> CellCompliance:
    alignment = RewardProtocol(**agent.card["alignment"])
    n, seed = config.episodes, config.seed + SEEDS_PER_CELL * CELLS.index((red, horizon))
    generator = np.random.default_rng([seed, 1])
    verdicts, alive = np.empty(n, np.uint8), np.zeros(n, np.bool_)
    complied, judged = np.zeros(n), np.zeros(n)
    with NativeVectorEnv(
        n, red, horizon, config.rules, config.chance, obs=agent.obs, autoreset_mode="disabled", copy=False
    ) as envs:
        obs, _ = envs.reset(seed=seed)
        access = envs.true_state().red_access
        for _ in range(horizon):
            actions = agent.act(obs, generator)
            judge(access, actions, alive, TYPES.ranks(order), alignment.foothold == "count",
                  alignment.idle_fixes == "violate", verdicts)  # fmt: skip
            complied += verdicts == COMPLIES
            judged += (verdicts == COMPLIES) | (verdicts == VIOLATES)
            obs = envs.step(actions)[0]
    some = judged > 0
    rate = float((complied[some] / judged[some]).mean()) if some.any() else None
    return CellCompliance(red, horizon, rate, float(judged.mean()), float((~some).mean()))
