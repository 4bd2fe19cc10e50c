"""What blue sees, by its string: `read_view(str(view)) == view`.

| string | observation |
|---|---|
| `bits` | the challenge's 52 bits |
| `memory` | these, and what blue knows from its own history: history.py |
| `belief` | these, and what red probably holds and knows: particles.py |
| `belief:256` | the same with room for 256 particles instead of 64 |
| `belief:256:leaderboard` | where blue knows the rules; `both` is for not knowing them |
| `belief:256:both:bline|meander` | where blue takes these attackers to be possible, all equally likely (variants.py) |
| `truth` | as `belief`, but what is true in the place of what is probable: no defender can see it |
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from stockade.cage2.features import N_FEATURES
from stockade.cage2.history import MEMORY_SIZE
from stockade.cage2.state import OBS_SIZE
from stockade.cage2.variants import read_red
from stockade.errors import SettingError, did_you_mean

VIEWS = ("bits", "memory", "belief", "truth")
RULES = ("current", "leaderboard")
PARTICLES, LEAST_PARTICLES, MOST_PARTICLES = 64, 16, 1 << 16
#: The attackers that blue takes to be possible, unless it is told others: the challenge's.
POSSIBLE_REDS = "bline|meander|sleep"
_SIZES = {"bits": OBS_SIZE, "memory": MEMORY_SIZE, **dict.fromkeys(("belief", "truth"), MEMORY_SIZE + N_FEATURES)}


@dataclass(frozen=True)
class View:
    """What blue sees; all but `kind` are for `belief`."""

    kind: str = "bits"
    particles: int = PARTICLES  #: room for so many different worlds that could be the true one, for each rule set
    rules: str = "both"  #: the rule set, if blue knows it
    red: str = POSSIBLE_REDS  #: the attackers that blue takes to be possible

    def __post_init__(self) -> None:
        if not LEAST_PARTICLES <= self.particles <= MOST_PARTICLES:
            problem = f"needs room for {LEAST_PARTICLES} to {MOST_PARTICLES} particles, for instance 'belief:64'"
            raise SettingError("obs", str(self), problem)

    def __str__(self) -> str:
        parts = [self.kind, str(self.particles), self.rules, self.red]
        defaults = ["", str(PARTICLES), "both", POSSIBLE_REDS]
        while len(parts) > 1 and parts[-1] == defaults[len(parts) - 1]:
            parts.pop()
        return ":".join(parts)

    @property
    def size(self) -> int:
        """Values of an observation."""
        return _SIZES[self.kind]

    @property
    def dtype(self) -> Any:
        """Probabilities, and the truth in their place, are float32; bits are uint8."""
        return np.float32 if self.kind in ("belief", "truth") else np.uint8

    @property
    def rule_sets(self) -> tuple[str, ...]:
        """Those that blue takes to be possible."""
        return RULES if self.rules == "both" else (self.rules,)

    @classmethod
    def read(cls, text: Any) -> Self:
        """Of its string."""
        kind, *more = str(text).split(":", 3)
        known = ", ".join(map(repr, VIEWS))
        if not isinstance(text, str) or kind not in VIEWS:
            raise SettingError("obs", text, f"is unknown; take one of {known}.{did_you_mean(str(kind), VIEWS)}")
        if more and kind != "belief":
            raise SettingError("obs", text, f"says more than {kind!r}, which only 'belief' can")
        particles, rules, red = [*more, *("", "", "")[len(more) :]]
        if particles and not (particles.isdecimal() and len(particles) < 9):
            raise SettingError("obs", text, "needs a whole number of particles, for instance 'belief:256'")
        if rules not in ("", "both", *RULES):
            known = "'both' (blue does not know them), 'current' or 'leaderboard'"
            near = did_you_mean(rules, ("both", *RULES))
            raise SettingError("obs", text, f"names the rules {rules!r}; take {known}.{near}")
        try:
            possible = str(read_red(red)) if red else POSSIBLE_REDS
            return cls(kind, int(particles or PARTICLES), rules or "both", possible)
        except SettingError as error:
            raise SettingError("obs", text, error.problem) from error


read_view = View.read


def with_rules(obs: str, rules: str) -> str:
    """What blue sees if it knows by which rules it plays; only a belief changes."""
    view = read_view(obs)
    return str(replace(view, rules=rules)) if view.kind == "belief" else obs
