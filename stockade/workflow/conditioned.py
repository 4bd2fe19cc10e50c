"""One policy for many orders: its input includes its order, and every environment keeps to one.

shares of the orders -> environments (lanes: attackers x shards) -> PPO -> greedy episodes on seeds common to all orders

An order costs a few bits of input, so what is learned about the attacker serves all orders. The same class trains a
single order alone: a list of one.

A Restore costs a point at once and pays off later, so PPO soon gives it up, and never finds what an order needs it for:
the values of such orders then are too low by many points, in every training alike. Here a Restore is paid for at first,
and its price comes back step by step: every policy has seen what Restores are good for before it saves them.
"""

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from stockade.cage2.actions import ACTION_MASK
from stockade.cores import available_cores
from stockade.learn.policy import Policy, Workspace
from stockade.learn.ppo import PPO
from stockade.vector.native import NativeVectorEnv
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import Ranking, Units, as_ranking
from stockade.workflow.strict import Played, StrictVectorEnv, joined, play

#: Blue's actions that can do anything at all; decoys that can never stand are left out.
USEFUL_ACTIONS = tuple(np.flatnonzero(ACTION_MASK).tolist())
#: How far the places in the shares move from one iteration to the next, so that small shares get their turn.
_GOLDEN = 0.6180339887498949
RESTORE_BONUS = 1.5  #: Points that a Restore earns at the start of a training, beyond its price.
#: What is played, judged and delivered is the mean of the learner's weights over about this share of the iterations so
#: far. The learner itself plays some orders badly every now and then, and a judgement at such a moment is a wrong one.
AVERAGED_SHARE = 0.05


class ConditionedTraining:
    """PPO on environments that keep to `orders`; results do not depend on `threads` (None: as many as cores)."""

    def __init__(
        self, config: SearchConfig, units: Units, orders: Sequence[Ranking], seed: int, threads: int | None = None
    ) -> None:
        self.config, self.units, self.orders = config, units, list(orders)
        self.threads = threads or available_cores()
        self._tables = _tables(units, self.orders)
        settings = replace(config.ppo, threads=threads)
        self.envs = [
            self._make(red, count)
            for red, all_of_red in zip(config.reds, split(config.n_envs, len(config.reds)), strict=True)
            for count in split(all_of_red, min(settings.shards, all_of_red))
        ]
        self.shares = np.full(len(orders), 1 / len(orders))  #: of the environments, adding up to 1; may be written to
        self._assign(0)
        self.learner = PPO(self.envs, settings, seed, USEFUL_ACTIONS, horizon_is_end=config.obs == "memory")
        self.policy = Policy(self.learner.policy.architecture)  #: what is played: the learner's, averaged
        self.policy.flat.copy_(self.learner.policy.flat)
        self.progress = 0.0  #: from 0 to 1, how far the schedules of the learner are

    @property
    def episodes(self) -> int:
        return self.learner.episodes

    def advance(self, until: int) -> Played:
        """One iteration of PPO on the way to `until` episodes in all, where the schedules end; what was played."""
        self._assign(self.learner.iteration + 1)
        bonus = RESTORE_BONUS * self.config.reward.restore * max(0.0, 1 - self.episodes / self.bonus_until(until))
        for env in self.envs:
            env.restore_bonus = bonus
        before, left = self.episodes, max(1, until - self.episodes)
        result = self.learner.collect()
        self.learner.improve(result, self.progress)
        self.policy.flat.lerp_(self.learner.policy.flat, 1 / (1 + AVERAGED_SHARE * (self.learner.iteration - 1)))
        self.progress += (1.0 - self.progress) * min(1.0, (self.episodes - before) / left)
        return joined([env.take() for env in self.envs])

    def bonus_until(self, budget: int) -> float:
        """Episodes after which Restores are no longer paid for, in a training of so many."""
        return min(self.config.enough_episodes, budget) / 2

    def returns(
        self, episodes: int, seed: int, orders: Sequence[int] | None = None, told: Sequence[int] | None = None
    ) -> np.ndarray:
        """(attackers, orders, episodes) of greedy episodes of some orders, by index, or of all of them; episode e has
        the seed `seed + e` for every order. The policy is told the order, or another one of the same number."""
        chosen = range(len(self.orders)) if orders is None else orders
        jobs = list(itertools.product(self.config.reds, zip(chosen, chosen if told is None else told, strict=True)))
        places, contexts = self._tables

        def greedy(job: tuple[str, tuple[int, int]]) -> np.ndarray:
            red, (kept, said) = job
            env, work, actions = self._make(red, episodes), Workspace(self.policy, episodes), self.policy.actions
            env.set_orders(places[[kept]], contexts[[said]])

            def likeliest(obs: np.ndarray) -> np.ndarray:
                return actions[work.forward(torch.from_numpy(obs))[0][:, : len(actions)].argmax(1).numpy()]

            with torch.inference_mode():
                return play(env, likeliest, self.config.horizon, seed).value

        with ThreadPoolExecutor(self.threads) as pool:
            played = list(pool.map(greedy, jobs))
        return np.stack(played).reshape(len(self.config.reds), len(chosen), episodes)

    def add_orders(self, orders: Sequence[Ranking]) -> None:
        """Take more orders in; their shares are 0 until they are set."""
        self.orders += orders
        self._tables = _tables(self.units, self.orders)
        for env in self.envs:
            env.set_orders(*self._tables)
        self.shares = np.concatenate([self.shares, np.zeros(len(orders))])

    def _assign(self, iteration: int) -> None:
        """Which order each environment's next episode has: as near to the shares as whole numbers are."""
        edges = np.cumsum(self.shares / self.shares.sum())
        for lane, env in enumerate(self.envs):
            offset = (iteration + lane) * _GOLDEN % 1.0
            points = (np.arange(env.num_envs) + offset) / env.num_envs
            env.next_order[:] = np.minimum(np.searchsorted(edges, points, side="right"), len(edges) - 1)

    def _make(self, red: str, n: int) -> StrictVectorEnv:
        config = self.config
        world = NativeVectorEnv(n, red, config.horizon, config.rules, obs=config.obs, reward=config.reward, copy=False,
                                threads=1)  # fmt: skip
        return StrictVectorEnv(world, *self._tables, config.judge)

    def close(self) -> None:
        self.learner.close()

    def state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Everything that continues, for a checkpoint."""
        arrays, rest = self.learner.state()
        mine = {"progress": self.progress, "orders": [list(order) for order in self.orders]}
        average = {f"average.{name}": weight for name, weight in self.policy.save_weights().items()}
        return {**arrays, **average, "shares": self.shares.copy()}, {**rest, **mine}

    def restore(self, arrays: dict[str, np.ndarray], rest: dict[str, Any]) -> None:
        """Continue where `state` was taken, bit for bit."""
        self.add_orders([as_ranking(order) for order in rest["orders"][len(self.orders) :]])
        self.learner.restore(arrays, rest)
        self.policy.load_weights(arrays, prefix="average." if "average.policy.bias" in arrays else "policy.")
        self.shares, self.progress = arrays["shares"].copy(), float(rest["progress"])


def _tables(units: Units, orders: Sequence[Ranking]) -> tuple[np.ndarray, np.ndarray]:
    return np.stack([units.places(o) for o in orders]), np.stack([units.context(o) for o in orders])


def split(n: int, parts: int) -> list[int]:
    """Sizes of so many nearly equal parts."""
    ends = [n * k // parts for k in range(parts + 1)]
    return [end - begin for begin, end in itertools.pairwise(ends)]
