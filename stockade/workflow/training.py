"""Train one order alone, in a thread, a process or on a cluster: updates, checkpoints now and then, the result.

task -> RewardTraining or StrictTraining, update by update -> UpdateRow, Saved ... -> WorkflowResult

A strict training may continue an earlier one of the same order: from its weights, Adam's moments and environments, with
the schedules as far along as if all episodes had been planned from the start.

With `--constraint reward` compliance is asked before each update, of the episodes that the present policy has just
played: what passes the threshold is the policy that is kept. An update plays whole episodes (unless --update-steps says
otherwise), so that none is cut by a change of policy and episodes are counted exactly.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from stockade.cage2.scenario import FOOTHOLD
from stockade.cores import available_cores
from stockade.learn.checkpoint import Checkpoint
from stockade.learn.policy import Policy
from stockade.learn.ppo import PPO
from stockade.vector.native import NativeVectorEnv
from stockade.workflow.aligned import HELD, AlignedVectorEnv, Episodes, measure, statistics
from stockade.workflow.conditioned import ConditionedTraining, split
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import TYPES, UNIT_TYPES, UNITS, Order
from stockade.workflow.store import Saved, StopReason, Task, UpdateRow, WorkflowResult
from stockade.workflow.strict import joined, play
from stockade.workflow.together import JUDGE_SEED, VALIDATION_SEED, goal_returns

CHECKPOINT_UPDATES = 10  #: between two checkpoints of a training: what a kill repeats at most
VALUE_EPISODES = 1000  #: greedy, by attacker, that the value of a strict training rests on; the same seeds for all
REWARD_VALUE_EPISODES = 3  #: last ones of each environment, of which the value of a training by reward is the mean
GAIN = 0.01  #: less is no gain of compliance


def train_workflow(
    task: Task, should_stop: Callable[[], bool] = lambda: False
) -> Iterator[UpdateRow | Saved | WorkflowResult]:
    """Train to the end: each update, a checkpoint now and then, the result. `should_stop` is asked before each update:
    if it says yes, a last checkpoint takes the place of the result."""
    begin = time.perf_counter()
    kind = RewardTraining if task.config.constraint == "reward" else StrictTraining
    with contextlib.closing(kind(task)) as training:
        saved = training.updates
        while training.stopped is None:
            stop = should_stop()
            if training.updates - saved >= (1 if stop else CHECKPOINT_UPDATES):
                saved = training.updates
                yield Saved(task.number, saved, training.checkpoint())
            if stop:
                return
            yield training.update()
        yield training.result(time.perf_counter() - begin)


def standard_error(returns: np.ndarray) -> float:
    """Of their mean."""
    return float(returns.std(ddof=1) / math.sqrt(len(returns))) if len(returns) > 1 else math.inf


# -------------------------------------------------------------------------------------------------- --constraint strict
class StrictTraining(ConditionedTraining):
    """One order as a rule, trained for so many episodes."""

    def __init__(self, task: Task) -> None:
        self.task = task
        super().__init__(task.config, UNITS[task.config.units], [task.order], task.seed, task.threads)
        self.updates, self._first = 0, 0
        self._value_before: float | None = None
        self._fixes = [0.0, 0.0]  # fixes per episode in the last update, share of episodes without one
        if task.state is None:
            return
        mine = task.state.rest["strict"]
        self.restore(task.state.arrays, task.state.rest)
        if mine["number"] == task.number:
            self.updates, self._first, self._fixes = mine["updates"], mine["first"], mine["fixes"]
            self._value_before = mine["value_before"]
        else:  # the training that this one continues
            self._first, self._value_before = self.episodes, mine["value"]
            self.progress = self._first / (self._first + task.episodes)

    @property
    def _own_episodes(self) -> int:
        return self.episodes - self._first

    @property
    def stopped(self) -> StopReason | None:
        """Over when another update might not fit; so is a training that ended before its result was written down."""
        fits = self._own_episodes + self.config.update_episodes <= self.task.episodes
        return None if fits else "fixed"

    def update(self) -> UpdateRow:
        """One iteration of PPO."""
        clock, task = time.perf_counter(), self.task
        played = self.advance(self._first + task.episodes)
        self.updates += 1
        fixes = played.fixes - played.refused
        reward, each, none = (float(x.mean()) if len(x) else math.nan for x in (played.value, fixes, fixes == 0))
        self._fixes, seconds = [each, none], time.perf_counter() - clock
        return UpdateRow(task.number, self.updates, self._own_episodes, reward, 0.0, 1.0, each, none, seconds, 0.0)

    def result(self, seconds: float) -> WorkflowResult:
        """Greedy episodes on the seeds that all orders are compared by."""
        task, policy, config, (fixes, no_fix) = self.task, self.policy, self.config, self._fixes
        assert self.stopped is not None
        returns = self.returns(min(VALUE_EPISODES, config.judged_episodes or VALUE_EPISODES), VALIDATION_SEED)[:, 0]
        judged = goal_returns(returns, config.goal)
        value = float(judged.mean())
        gain = math.nan if self._value_before is None else value - self._value_before
        return WorkflowResult(
            task.number, task.order, value, standard_error(judged), returns.size,
            tuple(returns.mean(axis=1).tolist()), gain, 1.0, fixes, no_fix, True, self._own_episodes, self.updates,
            self.stopped, (False,) * len(UNIT_TYPES), {"by_type": {}, "by_host": {}}, seconds,
            policy.save_weights(), policy.architecture.to_json(), returns, self.checkpoint(value),
        )  # fmt: skip

    def checkpoint(self, value: float | None = None) -> Checkpoint:
        """Everything that the rest of the training depends on, or with its `value` one that continues it."""
        arrays, rest = self.state()
        mine = {"number": self.task.number, "updates": self.updates, "first": self._first, "fixes": self._fixes,
                "value_before": self._value_before, "value": value}  # fmt: skip
        return Checkpoint(arrays, {**rest, "strict": mine})


def judged_returns(config: SearchConfig, policies: Sequence[tuple[Order, dict[str, np.ndarray]]]) -> np.ndarray:
    """(attackers, policies, episodes) of greedy episodes on the seeds of the final judgement; `policies` are orders and
    the weights of who keeps to them."""
    units = UNITS[config.units]

    def play(policy: tuple[Order, dict[str, np.ndarray]]) -> np.ndarray:
        with contextlib.closing(ConditionedTraining(config, units, [policy[0]], seed=0, threads=1)) as training:
            training.policy.load_weights(policy[1])
            return training.returns(config.judged_episodes, JUDGE_SEED)[:, 0]

    with ThreadPoolExecutor(available_cores()) as pool:
        return np.stack(list(pool.map(play, policies)), axis=1)


# -------------------------------------------------------------------------------------------------- --constraint reward
class RewardTraining:
    """One order, trained until its agent complies. `stopped` says why it is over, once it is."""

    def __init__(self, task: Task) -> None:
        self.task, config = task, task.config
        settings = replace(config.ppo, threads=task.threads)
        lanes = split(config.n_envs, min(settings.shards, config.n_envs))
        self._envs = [make_aligned(config, task.order, n, sum(lanes[:lane])) for lane, n in enumerate(lanes)]
        self._learner = PPO(self._envs, settings, task.seed, horizon_is_end=config.obs == "memory")
        if task.weights is not None:
            self._learner.policy.load_weights(task.weights)
        # Of each environment the returns of the last episodes, the latest last; NaN where there is none yet.
        self._last = np.full((config.n_envs, REWARD_VALUE_EPISODES), np.nan)
        self._rule = StopRule(config, task.episodes)
        protocol = config.protocol
        self._schedule = task.episodes if protocol.fixed_episodes else max(protocol.min_episodes, config.n_envs)
        self._held = np.zeros(len(UNIT_TYPES), np.bool_)
        self.stopped: StopReason | None = None
        if (state := task.state) is not None:
            self._learner.restore(state.arrays, state.rest)
            self._last[...], self._held[...] = state.arrays["last"], state.arrays["held"]
            self._rule = replace(self._rule, **state.rest["rule"])

    @property
    def updates(self) -> int:
        return self._rule.updates

    def update(self) -> UpdateRow:
        """Collect, measure, and unless that was the last: learn."""
        learner, clock = self._learner, time.perf_counter()
        iteration = learner.collect()
        collected = time.perf_counter() - clock
        episodes = joined([env.take() for env in self._envs])
        counts: np.ndarray = np.sum([env.take_counts() for env in self._envs], axis=0)
        self._played = episodes, counts
        for env, value in zip(episodes.env, episodes.env_return, strict=True):
            self._last[env] = [*self._last[env, 1:], value]
        held = counts[HELD] > 0
        held[FOOTHOLD] = False
        self._held |= TYPES.matters(held)
        measured = measure(episodes, self.task.config.protocol.no_fix_compliance)
        self.stopped = self._rule.decide(learner.episodes, *measured[2:4])
        if self.stopped is None:
            learner.improve(iteration, min(1.0, learner.episodes / self._schedule))
        updated = time.perf_counter() - clock - collected if self.stopped is None else 0.0
        return UpdateRow(self.task.number, self.updates, learner.episodes, *measured, collected, updated)

    def result(self, seconds: float) -> WorkflowResult:
        """Of the policy that played last."""
        task, config, policy = self.task, self.task.config, self._learner.policy
        assert self.stopped is not None
        returns, (episodes, counts) = self._last[~np.isnan(self._last)], self._played
        if config.judged_episodes:
            episodes, counts = play_greedily(policy, config, task.order, config.judged_episodes, task.seed)
            returns = episodes.env_return
        value = float(returns.mean())
        _, _, compliance, fixes, no_fix = measure(episodes, config.protocol.no_fix_compliance)
        return WorkflowResult(
            task.number, task.order, value, standard_error(returns), len(returns), (value,), math.nan,
            compliance, fixes, no_fix, self._rule.complies(compliance, fixes), self._learner.episodes, self.updates,
            self.stopped, tuple(self._held.tolist()), statistics(counts, len(episodes)), seconds, policy.save_weights(),
            policy.architecture.to_json(), returns[None],
        )  # fmt: skip

    def checkpoint(self) -> Checkpoint:
        """Everything that the rest of the training depends on."""
        arrays, rest = self._learner.state()
        arrays |= {"last": self._last.copy(), "held": self._held.copy()}
        rule = {name: getattr(self._rule, name) for name in ("best", "since", "before", "updates")}
        return Checkpoint(arrays, {**rest, "rule": rule})

    def close(self) -> None:
        self._learner.close()


def make_aligned(config: SearchConfig, order: Order, n: int, first: int = 0) -> AlignedVectorEnv:
    """Environments of a search, on one thread; numbered from `first`."""
    world = NativeVectorEnv(n, config.red, config.horizon, config.rules, obs=config.obs, reward=config.reward,
                            copy=False, threads=1)  # fmt: skip
    return AlignedVectorEnv(world, order, config.protocol, first)


def seed_of(seed: int, number: int) -> int:
    """Of one of several things that have seeds of their own, from the seed of them all."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def play_greedily(policy: Policy, config: SearchConfig, order: Order, n: int, seed: int) -> tuple[Episodes, np.ndarray]:
    """One episode in each of n environments, always by the likeliest action; and the counts of these."""
    env = make_aligned(config, order, n)
    return play(env, lambda obs: policy.act(obs, None), config.horizon, seed_of(seed, 1)), env.take_counts()


@dataclass
class StopRule:
    """When a workflow is done."""

    config: SearchConfig
    limit: int  #: episodes that the task may use
    best: float = -1e9  #: compliance so far
    since: int = 0  #: updates without a gain
    before: int = 0  #: episodes before the last update
    updates: int = 0

    def decide(self, episodes: int, compliance: float, fixes: float) -> StopReason | None:
        """After an update has played, of `episodes` so far, some with this compliance: why to stop now, or None."""
        protocol = self.config.protocol
        largest = max(episodes - self.before, self.config.n_envs)
        self.updates, self.before = self.updates + 1, episodes
        if not protocol.fixed_episodes:
            gained = compliance > self.best + GAIN
            self.best, self.since = (compliance, 0) if gained else (self.best, self.since + 1)
            if episodes >= protocol.min_episodes:
                if self.complies(compliance, fixes):
                    return "compliant"
                if self.since >= protocol.patience:
                    return "plateau"
        if episodes + largest <= self.limit:  # another update fits
            return None
        if self.limit < self.config.task_episodes:
            return "budget"
        return "fixed" if protocol.fixed_episodes else "max_episodes"

    def complies(self, compliance: float, fixes: float) -> bool:
        """Whether compliance is high enough, and rests on enough fixes."""
        protocol = self.config.protocol
        return compliance >= protocol.compliance_threshold and fixes >= protocol.min_fixes
