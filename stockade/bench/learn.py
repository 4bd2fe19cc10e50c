"""`stockade bench learn`: do our PPO and Stable-Baselines3's learn equally well from the same steps?

Same world, networks, batch, minibatches, epochs and constant rates; several seeds of each, in turns.
"""

from __future__ import annotations

import json as jsonlib
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

from stockade.bench.stamp import describe, machine_stamp
from stockade.learn.config import PPOConfig, TrainConfig

#: Episodes at the end of training whose mean return is compared.
LAST = 1000


@dataclass(frozen=True)
class LearnBench:
    """Train both on 100-step episodes, and compare the mean returns of their last 1000 episodes."""

    episodes: int = 20_000
    """Episodes of each training."""
    seeds: int = 3
    """Trainings of each."""
    red_agent: str = "bline"
    """Who attacks."""
    obs: Literal["bits", "memory"] = "bits"
    """What the agent sees."""
    n_envs: int = 256
    """Environments."""
    json: Path | None = None
    """Write the returns to this file too."""

    def run(self) -> int:
        """Train, print, write."""
        stamp = machine_stamp()
        ppo = PPOConfig(time_limit="bootstrap")
        ppo = replace(ppo, final_learning_rate=ppo.learning_rate, final_entropy_weight=ppo.entropy_weight)
        returns: dict[str, list[float]] = {"ours": [], "Stable-Baselines3": []}
        for seed in tqdm(range(self.seeds), desc="bench learn", unit="seed", disable=None):
            returns["ours"].append(self._ours(ppo, seed))
            returns["Stable-Baselines3"].append(self._theirs(ppo, seed))
        print(describe(stamp))
        print(f"{self.episodes} episodes against {self.red_agent}, obs={self.obs}; mean return of the last {LAST}")
        for name, means in returns.items():
            each = ", ".join(f"{mean:.2f}" for mean in means)
            print(f"{name:<18}  {np.mean(means):8.2f} \u00b1 {_interval(means):.2f}  (seeds: {each})")
        if self.json is not None:
            settings: dict[str, Any] = {k: v for k, v in asdict(self).items() if k != "json"}
            content = {"bench": "learn", "stamp": stamp, **settings, "returns": returns}
            self.json.write_text(jsonlib.dumps(content, indent=1) + "\n")
        return 0

    def _ours(self, ppo: PPOConfig, seed: int) -> float:
        from stockade.learn.train import make_learner

        config = TrainConfig(red_agent=self.red_agent, obs=self.obs, n_envs=self.n_envs, seed=seed, ppo=ppo)
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
