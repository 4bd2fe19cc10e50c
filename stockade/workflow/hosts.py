"""`--units hosts`: orders of single hosts, far too many to try, so a Gaussian process proposes which to play.

training:  each round a new set of host orders (random ones, and neighbours of the best so far) shares the environments
           with the orders of types; the policy learns to keep any order, given as its pairwise precedences
proposing: with the policy at rest, GP-UCB (Mallows kernel) picks orders, greedy episodes measure them, and so on
judging:   the best host orders beside all orders of types, on fresh common seeds
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from stockade.learn.evaluate import mean_interval
from stockade.workflow.conditioned import ConditionedTraining
from stockade.workflow.config import SearchConfig
from stockade.workflow.gaussian_process import GaussianProcess, Observations
from stockade.workflow.orders import Order
from stockade.workflow.together import VALIDATION_SEED, AllOrders, Curves, goal_returns, goal_value, round_episodes
from stockade.workflow.units import FREE, HOST_UNITS, TYPES, Ranking

REFERENCES_SHARE = 0.3  #: part of the environments that keeps to orders of types, or to none
FRESH = 40  #: host orders that share the other environments from one round to the next
PROPOSED, PROPOSING_ROUNDS = 12, 12  #: orders that GP-UCB picks at once when the policy is at rest, and how often
PROPOSED_EPISODES = 200
FINALISTS = 8  #: host orders that are judged in the end
CHOOSING_EPISODES = 1_000  #: by which the best of the finalists is chosen, apart from those that judge it
PROPOSE_SEED, CHOOSE_SEED = 1_600_000_000, 1_650_000_000


class HostOrders(AllOrders):
    """The plan of a training: beside orders of `types`, random host orders and neighbours of those that did best.

    `matters` is (13,) bool, hosts that red can hold. `orders` are the orders of types as orders of hosts, hosts of a
    type side by side, and FREE. `best` are the host orders with the highest values so far, the best first.
    """

    def __init__(self, config: SearchConfig, matters: np.ndarray, types: Sequence[Order]) -> None:
        super().__init__(config, [*map(as_hosts, types), FREE])
        self.matters, self.types = matters, types

    def round(self, training: ConditionedTraining, curves: Curves) -> np.ndarray:
        """Play the references and the candidates; the next set of candidates shares the environments."""
        references, known = len(self.orders), training.orders
        candidates = range(max(references, len(known) - FRESH), len(known))
        hosts = [*candidates, *(k for k, order in enumerate(known) if order in self.best and k not in candidates)]
        episodes = round_episodes(self.config.budget, references + FRESH)
        values = training.returns(episodes, VALIDATION_SEED, [*range(references), *hosts]).mean(axis=2)
        ranked = np.argsort(-goal_value(values[:, references:], self.config.goal), kind="stable")
        self.best = [known[hosts[k]] for k in ranked[:FINALISTS]]
        fresh = self._fresh(np.random.default_rng([self.config.seed, len(curves.episodes) + 1]))
        training.add_orders(fresh)
        training.shares = np.zeros(len(training.orders))
        training.shares[:references] = REFERENCES_SHARE / references
        training.shares[-len(fresh) :] = (1 - REFERENCES_SHARE) / len(fresh)
        leader = values[:, [references + int(ranked[0])]] if len(ranked) else values.max(axis=1, keepdims=True)
        return np.concatenate([values[:, :references], leader], axis=1)

    def _fresh(self, rng: np.random.Generator) -> list[Ranking]:
        """Half of them at random, half of them near the best orders of hosts and of types."""
        parents = self.best or [self.orders[int(k)] for k in rng.integers(len(self.orders) - 1, size=4)]
        near = [neighbour(parents[k % len(parents)], self.matters, rng) for k in range(FRESH // 2)]
        return [*near, *(at_random(self.matters, rng) for _ in range(FRESH // 2))]


def propose(training: ConditionedTraining, plan: HostOrders) -> list[int]:
    """Measure orders that GP-UCB picks, with the policy at rest; indices in `training.orders` of the best."""
    rng, first = np.random.default_rng([plan.config.seed, 2**20]), len(training.orders)
    data = Observations(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    for _ in range(PROPOSING_ROUNDS):
        before, known = len(training.orders), training.orders[first:]
        training.add_orders(_pick(known, data, _pool(known, data.values, plan, rng), plan))
        returns = training.returns(PROPOSED_EPISODES, PROPOSE_SEED, range(before, len(training.orders)))
        values = np.concatenate([data.values, goal_value(returns.mean(axis=2), plan.config.goal)])
        variances = np.concatenate([data.variances, returns.mean(axis=0).var(axis=1) / PROPOSED_EPISODES])
        data = Observations(np.arange(len(values)), values, variances)
    process = GaussianProcess.fit(distances(training.orders[first:], plan.matters), data)
    ranked = np.argsort(-process.posterior().mean, kind="stable")[:FINALISTS]
    return [first + int(k) for k in ranked]


def _pool(known: list[Ranking], values: np.ndarray, plan: HostOrders, rng: np.random.Generator) -> list[Ranking]:
    """Candidates: at first those that did best in training, then neighbours of the best measured; and random ones."""
    references = [linear(order, plan.matters, rng) for order in plan.orders[:-1]]
    leaders = [known[k] for k in np.argsort(-values)[:6]] if known else plan.best
    near = [neighbour(parent, plan.matters, rng) for parent in leaders for _ in range(12)]
    others = [at_random(plan.matters, rng) for _ in range(30)]
    pool = dict.fromkeys([*([] if known else plan.best), *references, *near, *others])
    return [order for order in pool if order not in set(known)]


def _pick(known: list[Ranking], data: Observations, pool: list[Ranking], plan: HostOrders) -> list[Ranking]:
    """The orders of the pool with the highest mean + beta x sd, one after the other as GP-BUCB does."""
    if not known:
        return pool[:PROPOSED]
    arms = known + pool
    process = GaussianProcess.fit(distances(arms, plan.matters), data)
    picked: list[int] = []
    for _ in range(min(PROPOSED, len(pool))):
        mean, sd = process.expecting(np.array(picked, np.int64))
        score = (mean + plan.config.gp_beta * sd)[len(known) :]
        score[[k - len(known) for k in picked]] = -np.inf
        picked.append(len(known) + int(score.argmax()))
    return [arms[k] for k in picked]


# ------------------------------------------------------------------------------------------------------ orders of hosts
def as_hosts(order: Order) -> Ranking:
    """An order of types as one of hosts: the hosts of a type stand side by side."""
    return tuple(tuple(h for h, t in enumerate(TYPES.of_host) if t == unit) for unit in order)


def linear(order: Ranking, matters: np.ndarray, rng: np.random.Generator) -> Ranking:
    """The hosts that matter one after the other, those of a group in a sequence at random; the others last, together.

    So two orders that differ in effect differ, and two that are equal in effect are equal.
    """
    groups = [element if isinstance(element, tuple) else (element,) for element in order]
    hosts = [int(h) for group in groups for h in rng.permutation(list(group)) if matters[h]]
    return (*hosts, tuple(np.flatnonzero(~matters).tolist()))


def at_random(matters: np.ndarray, rng: np.random.Generator) -> Ranking:
    """Any order of the hosts that matter."""
    return linear((tuple(np.flatnonzero(matters).tolist()),), matters, rng)


def neighbour(order: Ranking, matters: np.ndarray, rng: np.random.Generator) -> Ranking:
    """One or two hosts that red can hold put elsewhere."""
    *hosts, others = linear(order, matters, rng)
    for _ in range(int(rng.integers(1, 3))):
        moved = hosts.pop(int(rng.integers(len(hosts))))
        hosts.insert(int(rng.integers(len(hosts) + 1)), moved)
    return (*hosts, others)


def distances(orders: Sequence[Ranking], matters: np.ndarray) -> np.ndarray:
    """(n, n) Kendall distances over the hosts that matter; a tie is half-way between the two precedences."""
    pairs = np.array(list(itertools.combinations(np.flatnonzero(matters), 2)))
    ranks = np.stack([HOST_UNITS.ranks(order) for order in orders]).astype(np.int64)
    signs = np.sign(ranks[:, pairs[:, 0]] - ranks[:, pairs[:, 1]]) / 2
    return np.asarray(np.abs(signs[:, None] - signs[None]).sum(axis=2))


def finer(
    training: ConditionedTraining, plan: HostOrders, judged: Sequence[int], returns: np.ndarray
) -> dict[str, Any]:
    """Does an order of hosts beat the best of types? Both are chosen on other seeds than those that compare them.

    `judged` are the orders of types, then of hosts, and (attackers, orders, episodes) what they returned.
    """
    types, goal = len(plan.types), plan.config.goal
    merit = goal_value(training.returns(CHOOSING_EPISODES, CHOOSE_SEED, judged).mean(axis=2), goal)
    pair = types + int(merit[types:].argmax()), int(merit[:types].argmax())
    gain, half = mean_interval(np.subtract(*(goal_returns(returns[:, k], goal) for k in pair)))
    hosts, of_types = (HOST_UNITS.describe(training.orders[judged[k]], plan.matters) for k in pair)
    return {"finer_order": {"gain": gain, "low": gain - half, "high": gain + half, "hosts": hosts, "types": of_types}}
