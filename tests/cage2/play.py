"""What the tests of the environments share: blue's actions out of a seed, and playing them through any environment."""

from dataclasses import dataclass, field

import numpy as np

from stockade.cage2 import N_ACTIONS

REDS = ("bline", "meander", "sleep")
CHANCES = ("fast", "cyborg")


def random_actions(seed: int, steps: int, n: int) -> np.ndarray:
    """(steps, n) actions, any of the 145."""
    return np.random.default_rng(seed).integers(N_ACTIONS, size=(steps, n))


@dataclass
class Record:
    """What came out of steps: a list entry each."""

    obs: list = field(default_factory=list)
    rewards: list = field(default_factory=list)
    truncated: list = field(default_factory=list)
    infos: list = field(default_factory=list)

    def __eq__(self, other: object) -> bool:
        """Equal bits; infos are left out."""
        return isinstance(other, Record) and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("obs", "rewards", "truncated")
        )


def play(envs, actions: np.ndarray) -> Record:
    """Steps through actions (steps, n) of a vector environment, or (steps,) of a single one."""
    record = Record()
    for step_actions in actions:
        obs, reward, terminated, truncated, info = envs.step(step_actions)
        assert not np.any(terminated), "an episode never terminates"
        record.obs.append(obs)
        record.rewards.append(reward)
        record.truncated.append(truncated)
        record.infos.append(info)
    return record
