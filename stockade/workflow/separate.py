"""`--train separate` and `--constraint reward`: every order is trained alone, and a strategy chooses which is next.

strategy.propose -> Runner trains -> strategy.tell -> propose ...; at the end Outcome, for the same verdict as always

With strict an order that is chosen again is trained further from its own last state, so that the budget goes to orders
that are good or may become so; the agent without an order is trained as long as the order that was trained longest.
With reward it is trained anew, and only orders that were complied with have a value.

`--certify K`: leader, rival -> 2 K separate trainings of equal budgets -> greedy episodes on common seeds -> difference
The verdict of a search rests on one policy for all orders. If the leader also wins when each order has a network of its
own, nobody can say that the shared network decided. Training k of both orders has the same seed.
"""

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from stockade.errors import InputError
from stockade.text import fixed
from stockade.workflow.config import SearchConfig
from stockade.workflow.engine import Trainer
from stockade.workflow.orders import FREE, TYPES, Order, distances, index_of, restricted, types_red_can_hold
from stockade.workflow.proposals import Strategy
from stockade.workflow.runner import Runner
from stockade.workflow.store import Proposed, SearchFolder, WorkflowResult
from stockade.workflow.summary import Outcome
from stockade.workflow.together import goal_value
from stockade.workflow.training import judged_returns, seed_of, train_workflow

LEAST_EPISODES = 12_000  #: of one certifying training, unless --max-episodes says otherwise
_T975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  #: Student's t for 95% from 2, 3, ... seeds
Claim = Literal["better", "equal"]


class SeparateSession:
    """A search with separate trainings, new or continued, to its end or to a signal; a larger budget extends it."""

    def __init__(self, config: SearchConfig, folder: SearchFolder, train: Trainer = train_workflow) -> None:
        if allowance(config, used=0, reserved=0, first=True) == 0:
            raise InputError(f"a single update of {config.ppo.update_steps} steps plays more episodes than "
                             f"--max-episodes {config.task_episodes} and --total-episodes {config.budget} allow; take "
                             "fewer --update-steps or --n-envs")  # fmt: skip
        self.config, self.folder = config, folder
        self._strict = config.constraint == "strict"
        held = [types_red_can_hold(red, config.rules, config.horizon, config.judge) for red in config.reds]
        self.strategy = Strategy(config, np.any(held, axis=0))
        describe = TYPES.describe
        self.runner = Runner(config, folder, train, lambda p: describe(p.order, self.strategy.matters))
        self.results = self.runner.results
        self.ended: str | None = None  #: why the search is over, once it is
        for result in self.results.values():
            self._learn(result)

    def run(self) -> int | None:
        """Search; the signal that ended it, if one did."""
        return self.runner.run(self._propose, self._learn_and_say)

    def _kept(self, order: Order) -> Order | None:
        """What orders of one class have in common; None for the agent without an order."""
        return restricted(order, self.strategy.matters) if order else None

    # --------------------------------------------------------------------------------------------------- what is next
    def _propose(self) -> Proposed | None:
        config, runner = self.config, self.runner
        number, unfinished = len(runner.proposals), runner.unfinished
        if sum(p.order != FREE for p in runner.proposals.values()) == config.n_workflows:
            self.ended = f"all {config.n_workflows} trainings are done"
            return None
        episodes = allowance(config, runner.used, sum(p.episodes for p in unfinished), first=number == 0)
        if episodes == 0:
            self.ended = "the rest of the budget is too small for another training"
            return None
        if self._strict and self._free_is_behind():
            return Proposed(number, FREE, *self._origin(number, FREE, episodes))
        chosen = self.strategy.propose([p.order for p in unfinished if p.order != FREE])
        if chosen is None:
            self.ended = "there is nothing left to try"
            return None
        top = "; ".join(
            f"{TYPES.describe(c.order, self.strategy.matters)} ucb {c.ucb:.2f} mean {c.mean:.2f} sd {c.sd:.2f} "
            f"feasible {c.feasibility:.2f}"
            for c in chosen.top
        )
        thoughts = chosen.ucb, chosen.mean, chosen.sd, chosen.feasibility
        return Proposed(number, chosen.order, *self._origin(number, chosen.order, episodes), *thoughts, top)

    def _free_is_behind(self) -> bool:
        """Whether the agent without an order was trained less often than some order, and is not in flight."""
        orders = [p.order for p in self.runner.proposals.values()]
        in_flight = any(p.order == FREE for p in self.runner.unfinished)
        return not in_flight and orders.count(FREE) < max((orders.count(o) for o in orders if o != FREE), default=0)

    def _origin(self, number: int, order: Order, episodes: int) -> tuple[int, int, int | None]:
        """Seed, episodes, and the training that it begins with."""
        if self._strict:
            same = [n for n, r in self.results.items() if r.order == order]
            return seed_of(self.config.seed, min(same, default=number)), episodes, same[-1] if same else None
        parent = parent_of(order, self.config.protocol.inherit, self.results, self.strategy.matters)
        return seed_of(self.config.seed, number), episodes, parent

    def _learn(self, result: WorkflowResult) -> np.ndarray:
        """Tell the strategy; (5,) bool: types that red held unexpectedly, which count from now on."""
        new: np.ndarray = np.array(result.held) & ~self.strategy.matters
        if new.any():
            self.strategy.set_matters(new)
        if result.order != FREE:
            self.strategy.tell(result)
        return new

    def _learn_and_say(self, result: WorkflowResult) -> None:
        new = self._learn(result)
        if new.any():
            names = ", ".join(TYPES.names[unit] for unit in np.flatnonzero(new))
            self.runner.say(f"in training {result.number} red held what it was not thought to: {names}. Orders that "
                            "differ there count as different from now on.")  # fmt: skip

    # ----------------------------------------------------------------------------------------------------- at the end
    def outcome(self) -> Outcome:
        """What was measured, for the verdict: greedy episodes on common seeds; with reward the last of training."""
        tried = [r for r in self.results.values() if r.order != FREE]
        groups = self._by_class([r for r in tried if r.feasible] or tried).values()
        # A class is judged by its latest training; with reward by the best that complied.
        rows = [group[-1] if self._strict else max(group, key=lambda r: r.value) for group in groups]
        free = next((r for r in reversed(self.results.values()) if r.order == FREE), None)
        judged = rows if free is None else [*rows, free]
        trained = [self.folder.load_policy(r.number, r.order) for r in judged]
        classes, usual = self._by_class(self.results.values()), self.strategy.noise_sd()
        trainings = [classes[self._kept(r.order)] for r in judged]
        sd = np.stack([training_sd(each, usual) for each in trainings], axis=1)
        if self._strict:
            returns = judged_returns(self.config, [(r.order, t[0]) for r, t in zip(judged, trained, strict=True)])
        else:
            episodes = min(found.shape[1] for _, found in trained)
            returns = np.stack([found[:, :episodes] for _, found in trained], axis=1)
        n = len(rows)
        listed = [
            {**r.to_json(), "order": TYPES.describe(r.order), "held": dict(zip(TYPES.names, r.held, strict=True))}
            for r in self.results.values()
        ]
        return Outcome(
            TYPES, self.strategy.matters, tuple(r.order for r in rows), returns[:, :n], sd[:, :n],
            episodes=np.array([sum(r.episodes for r in each) for each in trainings[:n]]),
            free_returns=None if free is None else returns[:, n], free_sd=None if free is None else sd[:, n],
            curves=self._curves([r.order for r in judged]),
            policies=tuple(f"policies/{self.folder.policy_path(r.number, r.order).name}.json" for r in rows),
            ended=f"{self.runner.used:,} episodes; {self.ended}", seconds=self.runner.seconds(),
            compliance=None if self._strict else np.nan_to_num(np.array([r.compliance for r in rows])),
            total=self.strategy.n_classes, extra={"trainings": listed},
        )  # fmt: skip

    def _by_class(self, results: Iterable[WorkflowResult]) -> dict[Order | None, list[WorkflowResult]]:
        """Trainings of each class of equal orders, in the order in which they came; the key is what `_kept` gives."""
        groups: dict[Order | None, list[WorkflowResult]] = {}
        for result in results:
            groups.setdefault(self._kept(result.order), []).append(result)
        return groups

    def _curves(self, orders: list[Order]) -> dict[str, Any]:
        """The latest value of every order after each training; NaN before its first."""
        column = {self._kept(order): k for k, order in enumerate(orders)}
        values = np.full((len(self.config.reds), len(orders)), np.nan)
        episodes, curve, used = [], [], 0
        for r in self.results.values():
            used += r.episodes
            if self._kept(r.order) in column:
                values[:, column[self._kept(r.order)]] = r.by_attacker
                episodes.append(used)
                curve.append(values.tolist())
        return {"episodes": episodes, "values": curve}


def training_sd(trainings: Sequence[WorkflowResult], usual: float) -> np.ndarray:
    """(attackers,) how much the last values of a class differ, or if there is one only, what is usual."""
    values = np.array([r.by_attacker for r in trainings])[-3:]
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1], usual)


def allowance(config: SearchConfig, used: int, reserved: int, first: bool) -> int:
    """Episodes that a new training may use: whole updates that surely fit what is neither `used` nor `reserved` for
    those in flight; 0 if that is too little, unless it is the `first`: a short training is better than none."""
    episodes = whole_updates(config, min(config.task_episodes, config.budget - used - reserved))
    most = whole_updates(config, config.task_episodes)
    shorter = config.constraint == "reward" and not config.protocol.fixed_episodes
    least = min(config.protocol.min_episodes, most) if shorter else most
    return episodes if first or episodes >= least else 0


def whole_updates(config: SearchConfig, limit: int) -> int:
    """The most episodes, not above `limit`, after which an update can end.

    All environments are in step: each row of an update is a step of all of them, and an episode takes its steps and a
    row in which the next one begins. So after u updates (u x steps + 1) // (episode + 1) episodes of each are over.
    """
    episode, steps = config.horizon, config.ppo.update_steps
    each = limit // config.n_envs
    updates = ((each + 1) * (episode + 1) - 2) // steps if each > 0 else 0
    return config.n_envs * ((updates * steps + 1) // (episode + 1))


def parent_of(order: Order, inherit: str, results: Mapping[int, WorkflowResult], matters: np.ndarray) -> int | None:
    """The training whose weights one of `order` begins with; of equally good ones the latest."""
    latest_first = list(results.values())[::-1]
    if inherit == "same":
        kept = restricted(order, matters)
        latest_first = [r for r in latest_first if restricted(r.order, matters) == kept]
    if inherit == "none" or not latest_first:
        return None
    if inherit == "nearest":
        far = distances("kendall", matters)[index_of(order)]
        return min(latest_first, key=lambda r: far[index_of(r.order)]).number
    return latest_first[0].number


# ------------------------------------------------------------------------------------------------------------ --certify
@dataclass(frozen=True)
class CertifyResult:
    """What the separate trainings say."""

    leader: str
    rival: str
    claim: Claim  #: of the verdict: the leader is better, or they are equal within the margin
    leader_values: tuple[float, ...]  #: of each seed, by the goal of the search
    rival_values: tuple[float, ...]
    episodes: int  #: of each training
    difference: float  #: leader minus rival, mean over seeds
    low: float  #: of its 95% interval; NaN of a single seed
    high: float
    outcome: Literal["confirms", "contradicts", "open"]  #: what the interval does to the claim

    def lines(self) -> list[str]:
        n = len(self.leader_values)
        seeds = f"{n} seeds each" if n > 1 else "one seed each, which gives no interval"
        interval = f" ({self.low:+.2f} to {self.high:+.2f})" if n > 1 else ""
        said = "is better than" if self.claim == "better" else "equals"
        end = f"That {self.outcome} that the first {said} the second."
        if self.outcome == "open":
            end = "That decides nothing; more seeds (--certify) or episodes (--max-episodes) would."
        return [
            f"Trained alone for {self.episodes:,} episodes, {seeds}: {self.difference:+.2f} points{interval}.",
            f"  {fixed(float(np.mean(self.leader_values)))} {self.leader}",
            f"  {fixed(float(np.mean(self.rival_values)))} {self.rival}",
            f"  {end}",
        ]


def certify(
    config: SearchConfig, folder: SearchFolder, outcome: Outcome, summary: dict[str, Any]
) -> CertifyResult | int:
    """Train the leader and its best rival alone, in the subfolder `certify` of a search; interrupted and continued like
    any. What these trainings say, or the signal that interrupted them."""
    best, ranked = summary["best"], summary["classes"]
    outside = [entry for entry in ranked if entry["order"] not in best]
    leader = next(entry for entry in ranked if entry["order"] == best[0])
    rival = next(entry for entry in outside or ranked if entry is not leader)
    names, orders = (leader["order"], rival["order"]), (leader["ranking"], rival["ranking"])
    # By default each training gets the budget that an order had in the search.
    most = config.max_episodes or max(LEAST_EPISODES, config.budget // len(outcome.orders))
    episodes = whole_updates(config, most)
    config = replace(config, max_episodes=most, total_episodes=2 * config.certify * episodes)
    inner = SearchFolder(folder.path / "certify")
    if any(p.order != orders[p.number % 2] or p.episodes != episodes for p in inner.read_state().proposals):
        shutil.rmtree(inner.path)  # of an earlier verdict, or of another budget
    inner.path.mkdir(exist_ok=True)

    def label(proposed: Proposed) -> str:
        return f"{names[proposed.number % 2]}, seed {proposed.number // 2}"

    runner = Runner(config, inner, train_workflow, label, folder.path)

    def propose() -> Proposed | None:
        number = len(runner.proposals)
        seed = seed_of(config.seed, 1_000_000 + number // 2)  # no training of the search has these
        return Proposed(number, orders[number % 2], seed, episodes) if number < 2 * config.certify else None

    stopped = runner.run(propose, lambda result: None)
    if stopped is not None:
        return stopped
    policies = [(orders[n % 2], inner.load_policy(n, orders[n % 2])[0]) for n in range(2 * config.certify)]
    values = goal_value(judged_returns(config, policies).mean(axis=2), config.goal).reshape(-1, 2)  # (seeds, orders)
    differences = values[:, 0] - values[:, 1]
    n, mean, margin = len(values), float(differences.mean()), summary["margin"]
    half = float(_T975[min(n - 2, len(_T975) - 1)] * differences.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    low, high = mean - half, mean + half
    claim: Claim = "better" if outside else "equal"
    if claim == "better":
        confirms, contradicts = low > 0, high < 0
    else:
        confirms, contradicts = -margin <= low <= high <= margin, low > margin or high < -margin
    said: Any = "confirms" if confirms else "contradicts" if contradicts else "open"
    by_seed = tuple(values[:, 0].tolist()), tuple(values[:, 1].tolist())
    return CertifyResult(*names, claim, *by_seed, episodes, mean, low, high, said)
