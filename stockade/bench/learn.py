"""`stockade bench learn`: do our PPO and Stable-Baselines3's learn equally well from the same steps?

Same world, networks, batch, minibatches, epochs and constant rates; several seeds of each, in turns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from tqdm import tqdm

from stockade.bench.command import BenchCommand, Notes, announce, require_counts
from stockade.bench.figures import figure_of
from stockade.bench.turns import installed
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
        require_counts("--episodes", [self.episodes])
        require_counts("--n-envs", [self.n_envs])
        try:
            WorldConfig(self.red_agent)
        except ValueError as error:
            raise InputError(f"--red-agent {self.red_agent}: {error}") from error

    def measure(self, notes: Notes) -> None:
        """Train, in turns."""
        ppo = PPOConfig(time_limit="bootstrap")
        ppo = replace(ppo, final_learning_rate=ppo.learning_rate, final_entropy_weight=ppo.entropy_weight)
        cases = {"ours": self._ours}
        if installed("stable_baselines3"):
            cases["Stable-Baselines3"] = self._theirs
        else:
            notes.skip("Stable-Baselines3", "it is not installed: pip install 'stockade[sb3]'")
        announce(self.name, self.rounds * self.episodes * len(cases) / 300)
        returns: dict[str, list[float]] = {case: [] for case in cases}
        for seed in tqdm(range(self.rounds), desc="bench learn", unit="seed", disable=None):
            for case, train in cases.items():
                returns[case].append(train(ppo, seed))
        for case, means in returns.items():
            what = f"mean return of the last {LAST} of {self.episodes} episodes, {case}"
            notes.figures.append(figure_of(what, means, "return", case=case, red=self.red_agent, obs=self.obs))
            half = _interval(means)
            if math.isfinite(half):
                interval = figure_of(f"{case}: half of the 95% interval over seeds", [half], "return", case=case)
                notes.figures.append(interval)

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


def _interval(means: list[float]) -> float:
    """Half width of the 95% interval over seeds, by the normal approximation."""
    return 1.96 * float(np.std(means, ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.nan
