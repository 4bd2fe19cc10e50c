"""`stockade evaluate`: the challenge's protocol, and for a search's policy how far it keeps to its order."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import tyro

from stockade.files import JsonFile, json_output
from stockade.learn.agents import Agent, AttackerError, Player
from stockade.learn.evaluate import CELLS, SEEDS_PER_CELL, EvaluateConfig, EvaluateResult, Section
from stockade.learn.evaluate import evaluate as play_protocol
from stockade.learn.exploit import AttackResult, evaluate_red
from stockade.text import Table, fixed
from stockade.vector.native import NativeVectorEnv
from stockade.workflow.aligned import AlignedVectorEnv, Episodes, measure
from stockade.workflow.config import RewardProtocol
from stockade.workflow.orders import TYPES
from stockade.workflow.policies import OrderAgent, find_policy
from stockade.workflow.strict import play


@dataclass(frozen=True)
class Evaluate:
    """Play the challenge's protocol and print the result beside the published scores of the same rules."""

    settings: Annotated[EvaluateConfig, tyro.conf.arg(name="")]  # What to play.
    json: JsonFile = None  # Write the result, each single return included, to this file too; - is standard output.

    def run(self) -> int:
        with json_output(self.json) as write:
            result: EvaluateResult | AttackResult
            try:
                result = evaluate(self.settings)
            except AttackerError as error:
                if self.settings.suite != "challenge":
                    raise
                result = evaluate_red(error.agent, self.settings)
            print(result)
            write(result.to_dict())
        return 0


def evaluate(config: EvaluateConfig, policy: Any = None, *, progress: bool = True) -> EvaluateResult:
    """The protocol, and the compliance of a policy that was trained for an order; a search plays its best order."""
    if policy is None:
        c = config
        policy = find_policy(c.policy, c.runs, greedy=c.greedy, last=c.last, rules=c.rules)
    return play_protocol(config, policy, extras=[order_kept, compliance], progress=progress)


def order_kept(player: Player, config: EvaluateConfig) -> Section | None:
    """For a policy that is bound to an order: which, and who judges."""
    agent = player.policy
    if not isinstance(agent, OrderAgent):
        return None
    order = agent.units.describe(agent.order)
    kept = f"kept to the order {order}; forbidden fixes are not carried out (judge: {agent.judge})"
    return Section(Table([kept], []), {"order": order, "judge": agent.judge})


def compliance(player: Player, config: EvaluateConfig) -> Section | None:
    """For a policy that was paid for keeping to an order, its compliance on the episodes of the protocol, played here.

    Of each cell the mean over the episodes with a judged fix (None if there was none), judged fixes per episode, and
    the share of episodes without one.
    """
    agent = player.policy
    if not isinstance(agent, Agent) or "alignment" not in agent.card:
        return None
    cells, rows = [], []
    for k, (red, horizon) in enumerate(CELLS):
        episodes = _play(agent, config, red, horizon, config.seed + SEEDS_PER_CELL * k)
        _, _, rate, fixes, no_fix = measure(episodes, None)
        cells.append({"red": red, "horizon": horizon, "compliance": rate, "fixes": fixes, "no_fix": no_fix})
        rows.append([red, horizon, fixed(rate, 3), fixed(fixes, 1), f"{100 * no_fix:.0f}%"])
    header = ["attacker", "steps", "compliance", "judged fixes per episode", "episodes without one"]
    order = TYPES.describe(agent.card["order"])
    return Section(Table(header, rows, f"order: {order}"), {"order": order, "compliance": cells})


def _play(agent: Agent, config: EvaluateConfig, red: str, horizon: int, seed: int) -> Episodes:
    """One episode in each environment of a cell."""
    world = NativeVectorEnv(config.episodes, red, horizon, config.rules, config.chance, obs=agent.obs, copy=False)
    env = AlignedVectorEnv(world, tuple(agent.card["order"]), RewardProtocol(**agent.card["alignment"]))
    size, generator = len(agent.context), np.random.default_rng([seed, 1])
    return play(env, lambda obs: agent.act(obs[:, :-size], generator), horizon, seed)  # it adds its context itself
