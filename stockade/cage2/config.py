"""What a world is made of: frozen dataclasses, checked when they are made."""

import math
from dataclasses import dataclass, fields

import numpy as np

from stockade.cage2.chance import GREEN_RATE
from stockade.cage2.green import GREEN_ACTS, GREEN_FOLLOWS_PLAN, GREEN_SLEEPS
from stockade.cage2.kernel import SETTINGS
from stockade.cage2.state import BLINE, MEANDER, MIX, PLANNED, PLAYER, SLEEPING
from stockade.cage2.variants import Red, is_learned, read_red
from stockade.cage2.views import RULES, View, read_view
from stockade.errors import SettingError, did_you_mean

RED_AGENTS = {"bline": BLINE, "meander": MEANDER, "sleep": SLEEPING, "mix": MIX, "player": PLAYER}
MAX_HORIZON = 30_000  #: counters in the state have 16 bits
MAX_WEIGHT = 1e300  #: beyond it a reward could be infinite
GREEN = {"sleep": 0.0, "active": GREEN_RATE}  #: how often green scans a host
_WORDS = {"rules": RULES, "chance": ("fast", "cyborg"), "green": tuple(GREEN)}


@dataclass(frozen=True)
class RewardWeights:
    """Weights of the three parts of the reward; all 1 is the challenge's own reward."""

    hosts: float = 1.0  #: of red's root access, 0.1 or 1 per host and step.
    service: float = 1.0  #: of the operational service being down, 10 per step.
    restore: float = 1.0  #: of blue's Restore, 1 each.

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            try:
                weight = math.nan if isinstance(value, (str, bool, np.bool_)) else float(value)
            except (TypeError, OverflowError):
                weight = math.nan
            if not abs(weight) <= MAX_WEIGHT:
                raise SettingError(f"reward.{field.name}", value, "is not a finite number, such as 1.0")
            object.__setattr__(self, field.name, weight)


CHALLENGE_REWARD = RewardWeights()


@dataclass(frozen=True)
class WorldConfig:
    """Settings of a world, checked."""

    #: who attacks: bline, meander, sleep, mix (one of the three, drawn anew each episode), a variant or combination of
    #: them (variants.py; a `Red` is taken too), a learned one (nemesis, nemesis-sleep, the path of a run), or player
    #: (red's actions are given beside blue's)
    red: str = "bline"
    horizon: int = 100  #: steps after which an episode is truncated; the challenge has 30, 50 and 100
    rules: str = "current"  #: or leaderboard, with which the published scores were made
    chance: str = "fast"  #: or cyborg: seeds give the reference's episodes
    green: str | float = "sleep"  #: as in the challenge, active, or the probability that it scans a host in a step
    #: what blue sees: bits (52 of them), memory (these and what it knows from its own history), or belief (these and
    #: what red probably holds and knows): views.py
    obs: str = "bits"
    reward: RewardWeights = CHALLENGE_REWARD

    def __post_init__(self) -> None:
        if not isinstance(self.red, str | Red):
            raise SettingError("red", self.red, "is no name of an attacker, such as 'bline' or 'meander+idle:0.2'")
        if self.red not in RED_AGENTS and not is_learned(self.red):
            object.__setattr__(self, "red", str(read_red(str(self.red))))
        if isinstance(self.green, int | float | np.number) and not isinstance(self.green, bool):
            object.__setattr__(self, "green", _green(float(self.green)))
        for name, allowed in _WORDS.items():
            value = getattr(self, name)
            is_rate = name == "green" and isinstance(value, float)
            if not is_rate and not (isinstance(value, str) and value in allowed):
                near = did_you_mean(str(value), allowed)
                raise SettingError(name, value, f"is unknown; take one of {', '.join(map(repr, allowed))}.{near}")
        object.__setattr__(self, "obs", str(read_view(self.obs)))
        if isinstance(self.reward, dict) and set(self.reward) <= {field.name for field in fields(RewardWeights)}:
            object.__setattr__(self, "reward", RewardWeights(**self.reward))  # as dataclasses.asdict and JSON give it
        if not isinstance(self.reward, RewardWeights):
            known = "stockade.RewardWeights(hosts=..., service=..., restore=...)"
            raise SettingError("reward", self.reward, f"is unknown; take {known}")
        if isinstance(self.horizon, bool) or not isinstance(self.horizon, (int, np.integer)):
            raise SettingError("horizon", self.horizon, "is not a whole number of steps")
        object.__setattr__(self, "horizon", int(self.horizon))
        if not 1 <= self.horizon <= MAX_HORIZON:
            raise SettingError("horizon", self.horizon, f"is out of range; take 1 to {MAX_HORIZON} steps")
        planned = self.red not in RED_AGENTS and not is_learned(self.red)
        if self.green != "sleep" and planned and read_red(self.red).has_green:
            raise SettingError("green", self.green, f"is said twice: red={self.red!r} names a rate of green too")

    @property
    def view(self) -> View:
        """What blue sees."""
        return read_view(self.obs)

    @property
    def has_free_red(self) -> bool:
        """Red is none of the reference's attackers: a player or a plan."""
        return RED_AGENTS.get(self.red, PLANNED) in (PLAYER, PLANNED)

    def settings(self) -> np.ndarray:
        """The same for the kernel: one row of SETTINGS."""
        settings = np.zeros(1, SETTINGS)
        row = settings[0]
        row["red"], row["horizon"] = RED_AGENTS.get(self.red, PLANNED), self.horizon
        row["green"] = GREEN_ACTS if self.green == "active" else GREEN_SLEEPS
        row["leaderboard"], row["weighted"] = self.rules == "leaderboard", self.reward != CHALLENGE_REWARD
        row["hosts"], row["service"], row["restore"] = self.reward.hosts, self.reward.service, self.reward.restore
        if row["red"] == PLANNED:
            red = read_red(self.red)
            red.fill(row)
            if red.has_green:
                row["green"] = GREEN_FOLLOWS_PLAN
        if isinstance(self.green, float):
            row["green"], row["green_rate"][:] = GREEN_FOLLOWS_PLAN, self.green
        return settings


def _green(rate: float) -> str | float:
    """A rate, by its name if it has one."""
    if not 0.0 <= rate <= 1.0:
        raise SettingError("green", rate, "is no probability from 0 to 1, nor 'sleep' or 'active'")
    return next((name for name, known in GREEN.items() if rate == known), rate)
