"""Settings that were found good and are worth a name. `stockade train --preset NAME` begins with them."""

from __future__ import annotations

from collections.abc import Sequence

from stockade.errors import InputError
from stockade.learn.config import PPOConfig, TrainConfig

#: One policy against every attacker, over every horizon and under both rule sets; docs/champion.md says why each is so.
CHAMPION = TrainConfig(
    preset="champion",
    red_agent="bline:9,meander:9,sleep:1",
    horizons="30,50,100:2",
    rules="both",
    obs="memory",
    action_mask=True,
    n_envs=256,
    total_episodes=700_000,
    checkpoint_episodes=20_000,
    validation_episodes=500,
    ppo=PPOConfig(
        minibatch_size=1280, learning_rate=2e-3, final_learning_rate=0.0, entropy_weight=0.005, final_entropy_weight=0.0
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
