"""`--train together`: one training for all orders, from its first episode to measured values, through interruptions.

rounds: train a twentieth of the budget -> play every order greedily on the same validation seeds -> shares, checkpoint
end:    values stopped improving, or the budget is used -> for every order, which one the policy is told -> judge every
        order on fresh seeds -> measured values

Shares of the environments move towards orders whose values still improve, and towards those near the best. All that
decides what happens next is in the checkpoint: a search that was killed continues bit for bit.

`--units hosts`: orders of single hosts, far too many to try, so a Gaussian process proposes which to play.
training:  each round a new set of host orders (random ones, and neighbours of the best so far) shares the environments
           with the orders of types; the policy learns to keep any order, given as its pairwise precedences
proposing: with the policy at rest, GP-UCB (Mallows kernel) picks orders, greedy episodes measure them, and so on
judging:   the best host orders beside all orders of types, on fresh common seeds
"""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np

from stockade.learn.checkpoint import Checkpoint, CheckpointError, CheckpointFolder
from stockade.learn.evaluate import mean_interval
from stockade.workflow.conditioned import ConditionedTraining
from stockade.workflow.config import SearchConfig
from stockade.workflow.gaussian_process import GaussianProcess, Observations
from stockade.workflow.orders import FREE, HOST_UNITS, TYPES, UNITS, Order, Ranking, as_ranking, kendall
from stockade.workflow.posterior import GAIN_ROUNDS, last_gains, training_noise

ROUNDS = 20  #: of a whole budget
FINISH = 0.2  #: Once values no longer improve, so much of what was used goes into running the schedules to their end.
VALIDATION_SEED, JUDGE_SEED = 1_700_000_000, 1_800_000_000  #: first seeds of both; no training has them
_EVEN = 0.7  #: part of the environments that is always spread evenly over all orders
REFERENCES_SHARE = 0.3  #: part of the environments that keeps to orders of types, or to none
FRESH = 40  #: host orders that share the other environments from one round to the next
PROPOSED, PROPOSING_ROUNDS = 12, 12  #: orders that GP-UCB picks at once when the policy is at rest, and how often
PROPOSED_EPISODES = 200
FINALISTS = 8  #: host orders that are judged in the end
CHOOSING_EPISODES = 1_000  #: by which the best of the finalists is chosen, apart from those that judge it
SCREENING_EPISODES = 100  #: of every order with every other one told
PROPOSE_SEED, CHOOSE_SEED = 1_600_000_000, 1_650_000_000


@dataclass
class Curves:
    """What the rounds measured, in lists that JSON can hold."""

    episodes: list[int] = field(default_factory=list)  #: trained before each round
    values: list[Any] = field(default_factory=list)  #: (attackers, orders) of each round
    shares: list[Any] = field(default_factory=list)  #: (orders,) in it


class TogetherTraining(ConditionedTraining):
    """The training of many orders, FREE (no order) the last, in rounds; its state goes to `checkpoints`, or nowhere."""

    def __init__(self, config: SearchConfig, orders: Sequence[Ranking], checkpoints: CheckpointFolder | None) -> None:
        super().__init__(config, UNITS[config.units], orders, config.seed)
        self.budget, self._checkpoints, self._saved = config.budget, checkpoints, -1
        self.curves = Curves()
        self.last_goal = self.budget  #: episodes at which it ends; less than the budget once values stop improving
        self.extended_from: int | None = None  #: the smaller budget that was used up before, if this session extends it
        self._first_round = 0  # of this budget: rounds of a smaller one say nothing of whether values stopped improving
        self.n_first = len(orders)  #: orders that it begins with; later ones follow these
        self.best: list[Ranking] = []  #: of the later ones, the best first
        self.episodes_by_order = np.zeros(len(orders), np.int64)
        self.value_error = np.zeros((len(config.reds), len(orders)))  #: standard error of the latest values
        self._begin, self._before = time.monotonic(), 0.0
        self._restore()

    def run(self, should_stop: Callable[[], bool], show: Callable[[Self], None]) -> None:
        """Train to the end, or until `should_stop`. `show` is called after every iteration."""
        while (before := self.episodes) + self.config.update_episodes <= self.last_goal:  # the budget is never exceeded
            if should_stop():
                break
            played = self.advance(self.last_goal)
            counts = np.bincount(played.order, minlength=len(self.orders))
            counts[: len(self.episodes_by_order)] += self.episodes_by_order
            self.episodes_by_order = counts
            every = max(1, self.budget // ROUNDS)
            if self.episodes // every > before // every:
                self._round()
                self.save()
            show(self)
        self.save()

    def _round(self) -> None:
        self.curves.shares.append(self.shares.tolist())
        self.curves.values.append(self._measured().tolist())
        self.curves.episodes.append(self.episodes)
        bonus_until = self.bonus_until(self.budget)
        rounds_with_bonus = sum(episodes <= bonus_until for episodes in self.curves.episodes)
        since = self.curves.values[max(self._first_round, rounds_with_bonus) :]
        if self.last_goal == self.budget and no_longer_improving(since):
            self.last_goal = min(self.budget, int(self.episodes * (1 + FINISH)))

    def _measured(self) -> np.ndarray:
        """(attackers, ...) values of a round, for the curves; sets the shares of what is trained next."""
        episodes = round_episodes(self.budget, len(self.orders))
        returns = self.returns(episodes, VALIDATION_SEED)
        values, self.value_error = returns.mean(axis=2), returns.std(axis=2) / math.sqrt(episodes)
        self.shares = next_shares([*map(np.array, self.curves.values), values], self.config.goal)
        return values

    def training_noise(self) -> tuple[np.ndarray, np.ndarray]:
        """(attackers, orders) and (attackers,) of the noise in each value and in all of them: `posterior` says how.

        The rounds play the same seeds, so that most of the difference between two of them is the policy's.
        """
        return training_noise(np.array(self.curves.values))

    def seconds(self) -> float:
        """That the training has taken, earlier sessions included."""
        return self._before + time.monotonic() - self._begin

    @property
    def is_saved(self) -> bool:
        """The present state is on disk."""
        return self._saved == self.learner.iteration

    def save(self) -> None:
        """Write a checkpoint; if that fails, warn and continue: the next one tries again."""
        if self._checkpoints is None or self.is_saved:
            return
        arrays, rest = self.state()
        rest |= {"curves": asdict(self.curves), "goal": self.last_goal, "budget": self.budget,
                 "first_round": self._first_round, "seconds": self.seconds(),
                 "plan": {"best": [list(order) for order in self.best]}}  # fmt: skip
        checkpoint = Checkpoint({**arrays, "counts": self.episodes_by_order.copy()}, rest)
        if self._checkpoints.save(self.learner.iteration, checkpoint):
            self._saved = self.learner.iteration

    def _restore(self) -> None:
        if self._checkpoints is None or not self._checkpoints.numbers():
            return
        try:
            checkpoint = self._checkpoints.load_last()
        except CheckpointError as error:
            warnings.warn(f"{error}; the training begins again", stacklevel=2)
            return
        arrays, rest = checkpoint.arrays, checkpoint.rest
        self.restore(arrays, rest)
        self.best = [as_ranking(order) for order in rest["plan"].get("best", ())]
        self.curves, self.episodes_by_order = Curves(**rest["curves"]), arrays["counts"].copy()
        self._saved, self._before = self.learner.iteration, float(rest["seconds"])
        if rest["budget"] == self.budget:
            self.last_goal, self._first_round = rest["goal"], rest.get("first_round", 0)
        else:  # extended: the schedules stand where they would in a search of the new budget
            self.extended_from, self._first_round = rest["budget"], len(self.curves.values)
            self.progress = min(1.0, self.episodes / self.budget)


def round_episodes(budget: int, orders: int) -> int:
    """Validation episodes of each order in a round: few enough that playing them costs a tenth of the training."""
    return int(np.clip(0.3 * budget / (ROUNDS * orders), 50, 500))


def goal_value(values: np.ndarray, goal: str) -> np.ndarray:
    """(orders,) of (attackers, orders): their mean or their worst."""
    return np.asarray(values.mean(axis=0) if goal == "mean" else values.min(axis=0))


def goal_returns(returns: np.ndarray, goal: str) -> np.ndarray:
    """(episodes,) of (attackers, episodes) of one order: their mean, or those of the attacker that decides."""
    return np.asarray(returns.mean(axis=0) if goal == "mean" else returns[returns.mean(axis=1).argmin()])


def best_told(training: ConditionedTraining, orders: Sequence[int]) -> tuple[list[int], np.ndarray]:
    """For each of the orders, by index, the one of them that the policy is best told to keep this one; its value so.

    Two orders that are equal in effect should have equal values, but one network may play them differently: it waits
    for ever in a rare state, or knows a trick, with one of them only. What an order is worth is the best play that its
    rule allows, whatever the policy is told. Chosen on seeds that judge nothing.
    """
    k, goal, own = len(orders), training.config.goal, np.arange(len(orders))

    def values(episodes: int, kept: np.ndarray, told: np.ndarray) -> np.ndarray:
        pairs = ([orders[i] for i in which] for which in (kept, told))
        return goal_value(training.returns(episodes, CHOOSE_SEED, *pairs).mean(axis=2), goal)

    screened = values(SCREENING_EPISODES, *np.divmod(np.arange(k * k), k)).reshape(k, k)
    screened[own, own] = -np.inf
    told = np.stack([own, screened.argmax(axis=1)])
    both = values(CHOOSING_EPISODES, np.tile(own, 2), told.ravel()).reshape(2, k)
    return [orders[i] for i in told[both.argmax(axis=0), own]], both.max(axis=0)


def next_shares(values: Sequence[np.ndarray], goal: str) -> np.ndarray:
    """(orders,) of the environments: most of them evenly, the rest by what is still to be gained and to be decided.

    Given (attackers, orders) values of each round so far.
    """
    merits = [goal_value(v, goal) for v in values]
    now = merits[-1]
    even = np.full(len(now), 1 / len(now))
    gained = np.maximum(now - merits[-min(3, len(merits))], 0.0)
    near = np.exp((now - now.max()) / max(1.0, 0.1 * abs(now.max())))
    gained = gained / gained.sum() if gained.sum() > 0 else even
    return np.asarray(_EVEN * even + (1 - _EVEN) * (gained + near / near.sum()) / 2)


def no_longer_improving(values: Sequence[np.ndarray]) -> bool:
    """Whether the last rounds brought no order and no attacker a gain worth mentioning over the rounds before them."""
    if len(values) < 2 * GAIN_ROUNDS:
        return False
    worth = np.maximum(0.05, 0.005 * np.abs(np.mean(values[-GAIN_ROUNDS:], axis=0)))
    return bool((last_gains(np.array(values)) < worth).all())


# -------------------------------------------------------------------------------------------------------- --units hosts
class HostTraining(TogetherTraining):
    """Beside orders of `types`, random host orders and neighbours of those that did best.

    `matters` is (13,) bool, hosts that red can hold. The first `orders` are those of types as orders of hosts, hosts of
    a type side by side, and FREE. `best` are the host orders with the highest values so far, the best first.
    """

    def __init__(
        self, config: SearchConfig, matters: np.ndarray, types: Sequence[Order], checkpoints: CheckpointFolder | None
    ) -> None:
        super().__init__(config, [*map(as_hosts, types), FREE], checkpoints)
        self.matters = matters

    def _measured(self) -> np.ndarray:
        """Play the references and the candidates; the next set of candidates shares the environments."""
        references, known = self.n_first, self.orders
        candidates = range(max(references, len(known) - FRESH), len(known))
        hosts = [*candidates, *(k for k, order in enumerate(known) if order in self.best and k not in candidates)]
        episodes = round_episodes(self.budget, references + FRESH)
        returns = self.returns(episodes, VALIDATION_SEED, [*range(references), *hosts])
        values, self.value_error = returns.mean(axis=2), returns.std(axis=2)[:, :references] / math.sqrt(episodes)
        ranked = np.argsort(-goal_value(values[:, references:], self.config.goal), kind="stable")
        self.best = [known[hosts[k]] for k in ranked[:FINALISTS]]
        fresh = self._fresh(np.random.default_rng([self.config.seed, len(self.curves.episodes) + 1]))
        self.add_orders(fresh)
        self.shares[:] = 0.0
        self.shares[:references] = REFERENCES_SHARE / references
        self.shares[-len(fresh) :] = (1 - REFERENCES_SHARE) / len(fresh)
        leader = values[:, [references + int(ranked[0])]] if len(ranked) else values.max(axis=1, keepdims=True)
        return np.concatenate([values[:, :references], leader], axis=1)

    def _fresh(self, rng: np.random.Generator) -> list[Ranking]:
        """Half of them at random, half of them near the best orders of hosts and of types."""
        parents = self.best or [self.orders[int(k)] for k in rng.integers(self.n_first - 1, size=4)]
        near = [neighbour(parents[k % len(parents)], self.matters, rng) for k in range(FRESH // 2)]
        return [*near, *(at_random(self.matters, rng) for _ in range(FRESH // 2))]


def propose(training: HostTraining) -> list[int]:
    """Measure orders that GP-UCB picks, with the policy at rest; indices in `training.orders` of the best."""
    rng, first = np.random.default_rng([training.config.seed, 2**20]), len(training.orders)
    data = Observations(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    for _ in range(PROPOSING_ROUNDS):
        before, known = len(training.orders), training.orders[first:]
        training.add_orders(_pick(known, data, _pool(known, data.values, training, rng), training))
        returns = training.returns(PROPOSED_EPISODES, PROPOSE_SEED, range(before, len(training.orders)))
        values = np.concatenate([data.values, goal_value(returns.mean(axis=2), training.config.goal)])
        judged = np.stack([goal_returns(returns[:, k], training.config.goal) for k in range(returns.shape[1])])
        variances = np.concatenate([data.variances, judged.var(axis=1) / PROPOSED_EPISODES])
        data = Observations(np.arange(len(values)), values, variances)
    process = GaussianProcess.fit(distances(training.orders[first:], training.matters), data)
    ranked = np.argsort(-process.posterior().mean, kind="stable")[:FINALISTS]
    return [first + int(k) for k in ranked]


def _pool(known: list[Ranking], values: np.ndarray, training: HostTraining, rng: np.random.Generator) -> list[Ranking]:
    """Candidates: at first those that did best in training, then neighbours of the best measured; and random ones."""
    matters, best = training.matters, training.best
    references = [linear(order, matters, rng) for order in training.orders[: training.n_first - 1]]
    leaders = [known[k] for k in np.argsort(-values)[:6]] if known else best
    near = [neighbour(parent, matters, rng) for parent in leaders for _ in range(12)]
    others = [at_random(matters, rng) for _ in range(30)]
    pool = dict.fromkeys([*([] if known else best), *references, *near, *others])
    return [order for order in pool if order not in set(known)]


def _pick(known: list[Ranking], data: Observations, pool: list[Ranking], training: HostTraining) -> list[Ranking]:
    """The orders of the pool with the highest mean + beta x sd, one after the other as GP-BUCB does."""
    if not known:
        return pool[:PROPOSED]
    arms = known + pool
    process = GaussianProcess.fit(distances(arms, training.matters), data)
    picked: list[int] = []
    for _ in range(min(PROPOSED, len(pool))):
        mean, sd = process.expecting(np.array(picked, np.int64))
        score = (mean + training.config.gp_beta * sd)[len(known) :]
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
    """(n, n) Kendall distances over the hosts that matter, which stand one after the other."""
    return kendall(np.stack([HOST_UNITS.ranks(order) for order in orders])[:, matters])


def finer(training: HostTraining, judged: Sequence[int], merit: np.ndarray, returns: np.ndarray) -> dict[str, Any]:
    """Does an order of hosts beat the best of types? Both are chosen on other seeds than those that compare them.

    `judged` are the orders of types, then of hosts, `merit` their values on the seeds that choose, and (attackers,
    orders, episodes) what they returned.
    """
    types, goal = training.n_first - 1, training.config.goal
    pair = types + int(merit[types:].argmax()), int(merit[:types].argmax())
    gain, half = mean_interval(np.subtract(*(goal_returns(returns[:, k], goal) for k in pair)))
    # Another training would rank two orders of one network differently by about this much.
    noise = training.training_noise()[0][:, pair[1]].max() * math.sqrt(2)
    half = math.hypot(half, 1.96 * noise)
    hosts, of_types = (HOST_UNITS.describe(training.orders[judged[k]], training.matters) for k in pair)
    return {"finer_order": {"gain": gain, "low": gain - half, "high": gain + half, "hosts": hosts, "types": of_types}}
