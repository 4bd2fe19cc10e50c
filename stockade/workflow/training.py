"""Train one workflow: collect episodes -> measure the policy that played them -> stop with it, or improve it.

Compliance is asked before the update, of the episodes that the present policy has just played: what passes the
threshold is the policy that is kept. An update plays whole episodes (unless --update-steps says otherwise), so that
none is cut by a change of policy and episodes are counted exactly.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

import stockade
from stockade.learn.policy import Policy
from stockade.learn.ppo import PPO
from stockade.workflow.aligned import AlignedVectorEnv, Episodes
from stockade.workflow.compliance import FixCounts
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import Order
from stockade.workflow.records import StopReason, Task, UpdateRow, WorkflowResult

GAIN = 0.01
"""Less than this is no gain of compliance."""
VALUE_EPISODES = 3
"""Of each environment, that the value of a workflow is the mean of."""


class Interrupted(Exception):
    """The training was asked to stop before its end."""


def train_workflow(
    task: Task, report: Callable[[UpdateRow], None], should_stop: Callable[[], bool] = lambda: False
) -> WorkflowResult:
    """Train until a stop rule says so.

    Args:
        task: what to train.
        report: is called with each update.
        should_stop: is asked before each update.

    Raises:
        Interrupted: `should_stop` said yes.
    """
    begin = time.perf_counter()
    config = task.config
    learner, envs = _make_learner(task)
    last = LastEpisodes(config.n_envs)
    rule = StopRule(config, task.episodes)
    schedule = task.episodes if config.protocol.fixed_episodes else max(config.protocol.min_episodes, config.n_envs)
    held = [False] * 5
    stopped: StopReason | None = None
    try:
        while stopped is None:
            if should_stop():
                raise Interrupted
            clock = time.perf_counter()
            iteration = learner.collect()
            collected = time.perf_counter() - clock
            episodes, counts = _taken(envs)
            last.add(episodes)
            held = [a or b for a, b in zip(held, counts.types_held(), strict=True)]
            measured = measure(episodes, config.protocol.no_fix_compliance)
            stopped = rule.decide(learner.episodes, measured)
            if stopped is None:
                learner.improve(iteration, min(1.0, learner.episodes / schedule))
            updated = time.perf_counter() - clock - collected if stopped is None else 0.0
            report(UpdateRow(task.number, rule.updates, learner.episodes, *measured, collected, updated))
        returns = last.returns()
        policy = learner.policy
        if config.judged_episodes:
            episodes, counts = play_greedily(policy, config, task.order, config.judged_episodes, task.seed)
            returns, measured = episodes.env_return, measure(episodes, config.protocol.no_fix_compliance)
        return WorkflowResult(
            task.number, task.order, float(returns.mean()), standard_error(returns), len(returns),
            measured.compliance, measured.fixes, measured.no_fix, rule.complies(measured), learner.episodes,
            rule.updates, stopped, tuple(held), counts.statistics(), policy.save_weights(),
            policy.architecture.to_json(), time.perf_counter() - begin,
        )  # fmt: skip
    finally:
        learner.close()


def _make_learner(task: Task) -> tuple[PPO, list[AlignedVectorEnv]]:
    config = task.config
    settings = replace(config.ppo, threads=task.threads)
    lanes = min(settings.shards, config.n_envs)
    ends = [config.n_envs * k // lanes for k in range(lanes + 1)]
    envs = [make_aligned(config, task.order, end - first) for first, end in itertools.pairwise(ends)]
    learner = PPO(envs, settings, task.seed, horizon_is_end=config.obs == "memory")
    if task.weights is not None:
        learner.policy.load_weights(task.weights)
    return learner, envs


def make_aligned(config: SearchConfig, order: Order, n: int) -> AlignedVectorEnv:
    """Environments of a search, on one thread."""
    world = stockade.make_vec(
        n, copy=False, threads=1, red=config.red, horizon=config.horizon, rules=config.rules, obs=config.obs
    )
    return AlignedVectorEnv(world, order, config.protocol)


def _taken(envs: Sequence[AlignedVectorEnv]) -> tuple[Episodes, FixCounts]:
    """Of all lanes, environments numbered through."""
    counts, parts, first = FixCounts(), [], 0
    for env in envs:
        episodes, counted = env.take()
        parts.append(replace(episodes, env=episodes.env + first))
        counts += counted
        first += env.num_envs
    return Episodes.joined(parts), counts


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
        return Measured(math.nan, math.nan, math.nan, math.nan, math.nan)
    rates = episodes.rates(no_fix_compliance)
    compliance = float(rates.mean()) if len(rates) else math.nan
    reward, alignment, fixes = (float(c.mean()) for c in (episodes.env_return, episodes.alignment, episodes.judged))
    return Measured(reward, alignment, compliance, fixes, float((episodes.judged == 0).mean()))


class LastEpisodes:
    """Environment returns of the last few episodes of every environment."""

    def __init__(self, n_envs: int) -> None:
        """None yet."""
        self._kept = np.full((n_envs, VALUE_EPISODES), np.nan)

    def add(self, episodes: Episodes) -> None:
        """In the order in which they ended."""
        for env, value in zip(episodes.env.tolist(), episodes.env_return.tolist(), strict=True):
            self._kept[env, :-1] = self._kept[env, 1:]
            self._kept[env, -1] = value

    def returns(self) -> np.ndarray:
        """Of all environments."""
        return self._kept[~np.isnan(self._kept)]


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
class StopRule:
    """When a workflow is done.

    Attributes:
        updates: asked for so far.
    """

    def __init__(self, config: SearchConfig, episodes: int) -> None:
        """`episodes`: what the task may use."""
        self._config, self._limit = config, episodes
        self._best, self._since = -math.inf, 0
        self._before = 0
        self.updates = 0

    def decide(self, episodes: int, measured: Measured) -> StopReason | None:
        """After the collection of an update: stop with the policy that played it, and why; or None.

        Args:
            episodes: of this workflow so far.
            measured: of those that this update played.
        """
        config = self._config
        self.updates += 1
        largest = max(episodes - self._before, config.n_envs)
        self._before = episodes
        if not config.protocol.fixed_episodes:
            if measured.compliance > self._best + GAIN:
                self._best, self._since = measured.compliance, 0
            else:
                self._since += 1
            if episodes >= config.protocol.min_episodes:
                if self.complies(measured):
                    return "compliant"
                if self._since >= config.protocol.patience:
                    return "plateau"
        if episodes + largest <= self._limit:  # another update fits
            return None
        if self._limit < config.task_episodes:
            return "budget"
        return "fixed" if config.protocol.fixed_episodes else "max_episodes"

    def complies(self, measured: Measured) -> bool:
        """Whether compliance is high enough, and rests on enough fixes."""
        config = self._config
        return (
            measured.compliance >= config.protocol.compliance_threshold and measured.fixes >= config.protocol.min_fixes
        )
