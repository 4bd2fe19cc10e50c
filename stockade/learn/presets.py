"""Settings that were found good and are worth a name. `stockade train --preset NAME` starts from them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from stockade.errors import SettingError, did_you_mean
from stockade.learn.config import PPOConfig, TrainConfig

#: One policy against every attacker and over every horizon; docs/champion.md says why each setting is so. Long episodes
#: against Meander take the longest to learn, so they have the largest share. The score isn't discounted, but
#: without a discount at the start some seeds stay on a plateau. `--rules leaderboard` gives the other one.
CHAMPION = TrainConfig(
    preset="champion",
    red="bline:6,meander:18,sleep:1",
    horizons="30,50:2,100:3",
    obs="memory",
    action_mask=True,
    n_envs=256,
    total_episodes=400_000,
    checkpoint_episodes=20_000,
    validation_episodes=500,
    ppo=PPOConfig(
        gamma=0.99,
        final_gamma=1.0,
        minibatch_size=1280,
        learning_rate=2e-3,
        final_learning_rate=0.0,
        entropy_weight=0.01,
        final_entropy_weight=0.0,
    ),
)

PRESETS = {"champion": CHAMPION}


def defaults_of(arguments: Sequence[str]) -> TrainConfig:
    """What the flags of a command line change: the preset that it names, or the plain defaults."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--preset", nargs="?")
    name: str | None = parser.parse_known_args(list(arguments))[0].preset
    if name is None:
        return TrainConfig()
    if name not in PRESETS:
        raise SettingError(
            "preset", name, f"is unknown; take one of {', '.join(PRESETS)}.{did_you_mean(name, PRESETS)}"
        )
    return PRESETS[name]
