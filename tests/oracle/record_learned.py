"""Learned attackers on a real CybORG 2.1: `python -m tests.oracle.record_learned FOLDER` records some of their play.

    reference's results -> RedObserver, MemoryObservation -> red's and blue's policy -> actions -> CybORG

Both sides see what the reference showed them and nothing of our world: equal returns mean that the world and what red
sees in it are the reference's. The rule set is that of the CybORG that is installed; docs/guides/cyborg.md.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro

import stockade
from stockade.baselines import Defender
from stockade.cage2.history import MemoryObservation
from stockade.cage2.red_view import RED_OBS_SIZE
from stockade.integrations.cyborg import CybORGEnv

from .network import Outcome
from .record_red import Episode, GivenRed, arrays_of, write
from .red_observer import RedObserver

#: Learned attackers of the package, and whom each learned against.
ZOO = {"nemesis": "champion", "nemesis-react-restore": "react-restore", "nemesis-sleep": "sleep"}


class _Shown(gymnasium.Env[np.ndarray, int]):
    """Shows `MemoryObservation` what an episode of the reference showed."""

    observation_space = gymnasium.spaces.Box(0, 1, (52,), np.uint8)
    action_space = gymnasium.spaces.Discrete(145)

    def __init__(self, episode: Episode) -> None:
        self.episode = episode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.episode.obs, {}

    def step(self, action: int) -> Any:
        success = self.episode.steps[-1]["blue_success"] != Outcome.FALSE
        return self.episode.obs, 0.0, False, False, {"blue_success": success}


def play_reference(env: CybORGEnv, red: Defender, blue: Defender, seed: int, horizon: int = 100) -> Episode:
    """An episode of the reference; what blue samples comes from the seed."""
    episode, observer, generator = Episode(env, seed), RedObserver(env.rules, horizon), np.random.default_rng(seed)
    observer.reset(episode.states[-1]["red_mask"])
    memory: Any = MemoryObservation(_Shown(episode), horizon)
    remembered, _ = memory.reset()
    for _ in range(horizon):
        bits, seen = observer.observation(), remembered if blue.obs == "memory" else episode.obs
        red_obs = np.array([[bits >> i & 1 for i in range(RED_OBS_SIZE)]], np.uint8)
        blue_action, red_action = int(blue.act(seen[None], generator)[0]), int(red.act(red_obs)[0])
        episode.step(blue_action, red_action)
        last = episode.steps[-1]
        mask = episode.states[-1]["red_mask"]
        observer.see(red_action, int(last["red_success"]), int(last["red_saw_ports"]), mask)
        remembered, *_ = memory.step(blue_action)
    return episode


def play_here(red: Defender, blue: Defender, rules: str, seed: int, horizon: int = 100) -> list[float]:
    """The rewards of the same episode in our world."""
    generator, rewards = np.random.default_rng(seed), []
    options: dict[str, Any] = {"horizon": horizon, "rules": rules, "chance": "cyborg", "obs": blue.obs}
    with stockade.make_vec(1, side="both", **options) as envs:
        obs, _ = envs.reset(seed=seed)
        for _ in range(horizon):
            obs, reward, *_ = envs.step({"blue": blue.act(obs["blue"], generator), "red": red.act(obs["red"])})
            rewards.append(float(reward[0]))
    return rewards


@dataclass(frozen=True)
class Recording:
    """Record the learned attackers of the package on the installed CybORG."""

    folder: tyro.conf.Positional[Path]
    """where the traces go"""
    episodes: int = 3
    """episodes per file"""


def main(settings: Recording) -> int:
    env = CybORGEnv(GivenRed, 100)
    for name, against in ZOO.items():
        red, blue = (stockade.load(one, rules=env.rules) for one in (name, against))
        seeds = np.arange(settings.episodes)
        episodes = [play_reference(env, red, blue, seed) for seed in seeds.tolist()]
        write(settings.folder / f"free_{env.rules}_{name}_sleep.npz", arrays_of(episodes, seeds), env.rules, name,
              [against], "sleep")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Recording)))
