"""`stockade bench learn`: do our PPO and Stable-Baselines3's learn equally well from the same steps?

Same world, networks, batch, minibatches, epochs and constant rates; several seeds of each, in turns.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from stockade.bench.command import BenchCommand, Notes
from stockade.bench.peers import installed
from stockade.bench.result import Figure
from stockade.bench.runner import Case, Sample, in_turns
from stockade.bench.train import NO_SB3, THEIRS
from stockade.cage2.config import WorldConfig
from stockade.errors import InputError
from stockade.learn.config import PPOConfig, TrainConfig

#: Episodes at the end of training whose mean return is compared.
LAST = 1000


@dataclass(frozen=True)
class LearnBench(BenchCommand):
    """Train both on 100-step episodes, and compare the mean returns of their last 1000 episodes."""

    rounds: int = 3
    """Trainings of each, with different seeds."""
    episodes: int = 20_000
    """Episodes of each training."""
    red_agent: str = "bline"
    """Who attacks."""
    obs: Literal["bits", "memory"] = "bits"
    """What the agent sees."""
    n_envs: int = 256
    """Environments."""

    name: ClassVar[str] = "learn"
    quick_settings: ClassVar[dict[str, object]] = {"rounds": 1, "episodes": 500, "n_envs": 32}

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        try:
            WorldConfig(self.red_agent)
        except ValueError as error:
            raise InputError(f"--red-agent {self.red_agent}: {error}") from error

    def measure(self, notes: Notes) -> None:
        """Train, in turns."""
        theirs = "" if installed("stable_baselines3") else NO_SB3
        cases = [self._case("ours", self._ours), self._case(THEIRS, self._theirs, theirs)]
        for group in in_turns([cases], self.rounds, notes):
            for one in (one for one in group if self.rounds > 1):  # 95% over seeds, by the normal approximation
                half = 1.96 * statistics.stdev(one.rounds) / math.sqrt(self.rounds)
                tags = {"case": one.tags["case"], "part": "half of the 95% interval"}
                notes.figures.append(Figure(tags, "return", (half,)))

    def _case(self, case: str, train: Callable[[PPOConfig, int], float], why_not: str = "") -> Case:
        ppo = PPOConfig(time_limit="bootstrap")
        ppo = replace(ppo, final_learning_rate=ppo.learning_rate, final_entropy_weight=ppo.entropy_weight)
        seeds = itertools.count()
        tags = {"case": case, "red": self.red_agent, "obs": self.obs}
        return Case(tags, lambda: [Sample("return", train(ppo, next(seeds)))], why_not)

    def _ours(self, ppo: PPOConfig, seed: int) -> float:
        from stockade.learn.train import make_learner

        config = TrainConfig(red=self.red_agent, obs=self.obs, n_envs=self.n_envs, seed=seed, ppo=ppo)
        learner = make_learner(config)
        returns: list[float] = []
        while learner.episodes < self.episodes:
            returns += learner.iterate(0.0).returns.tolist()
        learner.close()
        return float(np.mean(returns[-LAST:]))

    def _theirs(self, ppo: PPOConfig, seed: int) -> float:
        from stockade.bench.sb3_ppo import make_sb3_ppo

        model = make_sb3_ppo(ppo, self.n_envs, seed, window=LAST, obs=self.obs, red=self.red_agent)
        model.learn(100 * self.episodes)
        return float(np.mean([episode["r"] for episode in model.ep_info_buffer or ()]))
