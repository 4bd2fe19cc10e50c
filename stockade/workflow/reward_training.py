"""`--constraint reward`, one training: collect episodes -> measure the policy that played -> stop with it or improve.

Compliance is asked before the update, of the episodes that the present policy has just played: what passes the
threshold is the policy that is kept. An update plays whole episodes (unless --update-steps says otherwise), so that
none is cut by a change of policy and episodes are counted exactly.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stockade.learn.checkpoint import Checkpoint
from stockade.learn.policy import Policy
from stockade.learn.ppo import PPO
from stockade.vector.native import NativeVectorEnv
from stockade.workflow.aligned import AlignedVectorEnv, Episodes
from stockade.workflow.compliance import FixCounts
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import UNIT_TYPES, Order
from stockade.workflow.records import StopReason, Task, UpdateRow, WorkflowResult
from stockade.workflow.strict import joined

GAIN = 0.01
"""Less than this is no gain of compliance."""
VALUE_EPISODES = 3
"""Of each environment, that the value of a workflow is the mean of."""


class RewardTraining:
    """One order, trained until its agent complies. `stopped` says why it is over, once it is."""

    def __init__(self, task: Task) -> None:
        self.task, config = task, task.config
        settings = replace(config.ppo, threads=task.threads)
        lanes = min(settings.shards, config.n_envs)
        ends = [config.n_envs * k // lanes for k in range(lanes + 1)]
        self._envs = [make_aligned(config, task.order, end - first) for first, end in itertools.pairwise(ends)]
        self._learner = PPO(self._envs, settings, task.seed, horizon_is_end=config.obs == "memory")
        if task.weights is not None:
            self._learner.policy.load_weights(task.weights)
        self._last = LastEpisodes(config.n_envs)
        self._rule = StopRule(config, task.episodes)
        protocol = config.protocol
        self._schedule = task.episodes if protocol.fixed_episodes else max(protocol.min_episodes, config.n_envs)
        self._held = np.zeros(len(UNIT_TYPES), np.bool_)
        self.stopped: StopReason | None = None
        if (state := task.state) is not None:
            self._learner.restore(state.arrays, state.rest)
            self._last.kept[...], self._held[...] = state.arrays["last"], state.arrays["held"]
            self._rule = replace(self._rule, **state.rest["rule"])

    @property
    def updates(self) -> int:
        """Made so far."""
        return self._rule.updates

    def update(self) -> UpdateRow:
        """Collect, measure, and unless that was the last: learn."""
        learner, clock = self._learner, time.perf_counter()
        iteration = learner.collect()
        collected = time.perf_counter() - clock
        episodes, self._counts = _taken(self._envs)
        self._last.add(episodes)
        self._held |= self._counts.types_held()
        self._measured = measure(episodes, self.task.config.protocol.no_fix_compliance)
        self.stopped = self._rule.decide(learner.episodes, self._measured)
        if self.stopped is None:
            learner.improve(iteration, min(1.0, learner.episodes / self._schedule))
        updated = time.perf_counter() - clock - collected if self.stopped is None else 0.0
        return UpdateRow(self.task.number, self.updates, learner.episodes, *self._measured, collected, updated)

    def result(self, seconds: float) -> WorkflowResult:
        """Of the policy that played last."""
        task, config, policy = self.task, self.task.config, self._learner.policy
        assert self.stopped is not None
        returns, measured, counts = self._last.returns(), self._measured, self._counts
        if config.judged_episodes:
            episodes, counts = play_greedily(policy, config, task.order, config.judged_episodes, task.seed)
            returns, measured = episodes.env_return, measure(episodes, config.protocol.no_fix_compliance)
        value = float(returns.mean())
        return WorkflowResult(
            task.number, task.order, value, standard_error(returns), len(returns), (value,), math.nan,
            measured.compliance, measured.fixes, measured.no_fix, self._rule.complies(measured),
            self._learner.episodes, self.updates, self.stopped, tuple(self._held.tolist()), counts.statistics(),
            seconds, policy.save_weights(), policy.architecture.to_json(), returns[None],
        )  # fmt: skip

    def state(self) -> Checkpoint:
        """Everything that the rest of the training depends on."""
        arrays, rest = self._learner.state()
        arrays |= {"last": self._last.kept.copy(), "held": self._held.copy()}
        rule = {name: getattr(self._rule, name) for name in ("best", "since", "before", "updates")}
        return Checkpoint(arrays, {**rest, "rule": rule})

    def close(self) -> None:
        """End threads and environments."""
        self._learner.close()


def make_aligned(config: SearchConfig, order: Order, n: int) -> AlignedVectorEnv:
    """Environments of a search, on one thread."""
    world = NativeVectorEnv(n, config.red, config.horizon, config.rules, obs=config.obs, reward=config.reward,
                            copy=False, threads=1)  # fmt: skip
    return AlignedVectorEnv(world, order, config.protocol)


def _taken(envs: Sequence[AlignedVectorEnv]) -> tuple[Episodes, FixCounts]:
    """Of all lanes, environments numbered through."""
    counts, parts, first = FixCounts(), [], 0
    for env in envs:
        episodes, counted = env.take()
        parts.append(replace(episodes, env=episodes.env + first))
        counts += counted
        first += env.num_envs
    return joined(parts), counts


# ------------------------------------------------------------------------------------------------------- measuring
class Measured(NamedTuple):
    """Means over episodes, as in UpdateRow."""

    env_reward: float
    alignment: float
    compliance: float
    fixes: float
    no_fix: float


def measure(episodes: Episodes, no_fix_compliance: float | None) -> Measured:
    """Means over episodes; NaN of none."""
    if not len(episodes):
        return Measured(*[math.nan] * 5)
    rates = episodes.rates(no_fix_compliance)
    compliance = float(rates.mean()) if len(rates) else math.nan
    reward, alignment, fixes = (float(c.mean()) for c in (episodes.env_return, episodes.alignment, episodes.judged))
    return Measured(reward, alignment, compliance, fixes, float((episodes.judged == 0).mean()))


class LastEpisodes:
    """Environment returns of the last few episodes of every environment."""

    def __init__(self, n_envs: int) -> None:
        self.kept = np.full((n_envs, VALUE_EPISODES), np.nan)  #: the latest last; NaN where there is none yet

    def add(self, episodes: Episodes) -> None:
        """In the order in which they ended."""
        for env, value in zip(episodes.env.tolist(), episodes.env_return.tolist(), strict=True):
            self.kept[env] = [*self.kept[env, 1:], value]

    def returns(self) -> np.ndarray:
        """Of all environments."""
        return self.kept[~np.isnan(self.kept)]


def standard_error(returns: np.ndarray) -> float:
    """Of their mean."""
    return float(returns.std(ddof=1) / math.sqrt(len(returns))) if len(returns) > 1 else math.inf


def play_greedily(policy: Policy, config: SearchConfig, order: Order, n: int, seed: int) -> tuple[Episodes, FixCounts]:
    """One episode in each of n environments, always by the likeliest action."""
    env = make_aligned(config, order, n)
    try:
        obs, _ = env.reset(seed=int(np.random.SeedSequence([seed, 1]).generate_state(1)[0]))
        for _ in range(config.horizon):
            obs = env.step(policy.act(obs, None))[0]
        return env.take()
    finally:
        env.close()


# -------------------------------------------------------------------------------------------------------- stopping
@dataclass
class StopRule:
    """When a workflow is done."""

    config: SearchConfig
    limit: int  #: episodes that the task may use
    best: float = -1e9  #: compliance so far
    since: int = 0  #: updates without a gain
    before: int = 0  #: episodes before the last update
    updates: int = 0

    def decide(self, episodes: int, measured: Measured) -> StopReason | None:
        """After the collection of an update: stop with the policy that played it, and why; or None.

        Args:
            episodes: of this workflow so far.
            measured: of those that this update played.
        """
        protocol = self.config.protocol
        largest = max(episodes - self.before, self.config.n_envs)
        self.updates, self.before = self.updates + 1, episodes
        if not protocol.fixed_episodes:
            gained = measured.compliance > self.best + GAIN
            self.best, self.since = (measured.compliance, 0) if gained else (self.best, self.since + 1)
            if episodes >= protocol.min_episodes:
                if self.complies(measured):
                    return "compliant"
                if self.since >= protocol.patience:
                    return "plateau"
        if episodes + largest <= self.limit:  # another update fits
            return None
        if self.limit < self.config.task_episodes:
            return "budget"
        return "fixed" if protocol.fixed_episodes else "max_episodes"

    def complies(self, measured: Measured) -> bool:
        """Whether compliance is high enough, and rests on enough fixes."""
        protocol = self.config.protocol
        return measured.compliance >= protocol.compliance_threshold and measured.fixes >= protocol.min_fixes
