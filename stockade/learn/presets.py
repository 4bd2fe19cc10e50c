"""Settings that were found good and are worth a name. `stockade train --preset NAME` begins with them."""

from __future__ import annotations

from collections.abc import Sequence

from stockade.errors import InputError
from stockade.learn.config import PPOConfig, TrainConfig

#: One policy against every attacker and over every horizon; docs/champion.md says why each setting is so. Long episodes
#: against Meander take the longest to learn, so they have the largest share. The score isn't discounted, but
#: without a discount at the start some seeds stay on a plateau. `--rules leaderboard` gives the other one.
CHAMPION = TrainConfig(
    preset="champion",
    red_agent="bline:6,meander:18,sleep:1",
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


def preset_of(arguments: Sequence[str]) -> TrainConfig:
    """What a command line's flags are changes of: the preset that it names, or the defaults."""
    for k, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag == "--preset":
            name = value if equals else arguments[k + 1] if k + 1 < len(arguments) else ""
            if name not in PRESETS:
                raise InputError(f"--preset {name}: there is none of that name; take one of {', '.join(PRESETS)}")
            return PRESETS[name]
    return TrainConfig()
