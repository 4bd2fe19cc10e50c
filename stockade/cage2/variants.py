"""Attackers as data: one frozen dataclass and one string, `read_red(str(red)) == red`.

| string | who attacks |
|---|---|
| `bline`, `meander`, `sleep` | the reference's attackers |
| `bline-detour` | B_line that takes one more user host before the one through which it goes on |
| `meander-aggressive` | Meander that goes inwards: escalates, exploits and scans inner hosts first |
| `meander-stealthy` | the same in every other step; it leaves hosts alone whose exploit failed, and outer subnets |
| `bline+delay:5` | asleep in the first 5 steps |
| `meander+idle:0.2` | asleep in each step with probability 0.2 |
| `bline+noise:0.1` | does anything that red can try, in each step with probability 0.1 |
| `bline+green:0.25` | green scans a host in each step with probability 0.25 (0.5 is the reference's active green) |
| `meander>bline@50` | B_line takes over after 50 steps; it begins its own plan, but keeps what red knows and holds |
| `meander>bline@20-80` | it takes over after 20 to 80 steps, all equally likely |
| `bline|meander+idle:0.2` | one of these, drawn anew in each episode |

Learned attackers, `nemesis` and others, are policies, not part of this grammar: `is_learned` knows their names.

A pause or an error does not disturb an attacker's plan: it resumes with the result of its last own action. All these
draws come from a stream of our own, so under `chance="cyborg"` the reference's stream is asked for exactly what the
reference's attackers and actions ask.
"""

import re
from dataclasses import dataclass, replace
from typing import Any, Self

from stockade.cage2 import state
from stockade.cage2.state import BLINE, MEANDER, MOST_PHASES, MOST_PLANS, SLEEPING, USUAL
from stockade.errors import SettingError, did_you_mean

#: Who attacks, and in which style.
ATTACKERS = {
    "bline": (BLINE, USUAL), "bline-detour": (BLINE, state.DETOUR), "meander": (MEANDER, USUAL),
    "meander-aggressive": (MEANDER, state.AGGRESSIVE), "meander-stealthy": (MEANDER, state.STEALTHY),
    "sleep": (SLEEPING, USUAL),
}  # fmt: skip
#: The reference's class names are taken too.
RED_ALIASES = {"B_lineAgent": "bline", "RedMeanderAgent": "meander", "SleepAgent": "sleep"}
_CHANGES = {"delay": int, "idle": float, "noise": float, "green": float}
_EXAMPLES = "'bline+delay:5', 'meander+idle:0.2', 'meander>bline@50', 'bline|meander'"
_MOST_STEPS = 30_000
_LEARNED = re.compile(r"nemesis(-[a-z-]+)?|.*/.*|.*\.json")


@dataclass(frozen=True)
class Phase:
    """An attacker's turn in a plan."""

    attacker: str = "bline"
    delay: int = 0  #: steps asleep at its beginning
    idle: float = 0.0  #: probability to sleep in a step
    noise: float = 0.0  #: probability of any action that red can try, instead of the attacker's own
    green: float = 0.0  #: probability that green scans a host in a step
    first: int = 0  #: it begins after so many steps of the episode, at least ...
    last: int = 0  #: ... and at most

    def __str__(self) -> str:
        changes = "".join(f"+{name}:{getattr(self, name):g}" for name in _CHANGES if getattr(self, name))
        when = f"@{self.first}" + (f"-{self.last}" if self.last != self.first else "")
        return self.attacker + changes + (when if self.last else "")


@dataclass(frozen=True)
class Red:
    """Who attacks: plans, of which one is drawn in each episode; a plan is one attacker or several in turn."""

    plans: tuple[tuple[Phase, ...], ...] = ((Phase(),),)

    def __post_init__(self) -> None:
        for plan in self.plans:
            for before, phase in zip((Phase(), *plan), plan, strict=False):
                _check(phase, before, phase is plan[0])
        if not 1 <= len(self.plans) <= MOST_PLANS or not all(1 <= len(plan) <= MOST_PHASES for plan in self.plans):
            raise SettingError("red", str(self), f"has too many attackers: take up to {MOST_PLANS} plans, and up to "
                               f"{MOST_PHASES} attackers in turn")  # fmt: skip

    def __str__(self) -> str:
        return "|".join(">".join(map(str, plan)) for plan in self.plans)

    @property
    def is_plain(self) -> bool:
        """One attacker of the reference, and nothing else."""
        return self.plans in [((Phase(name),),) for name in RED_ALIASES.values()]

    @property
    def has_green(self) -> bool:
        """Does a plan say what green does?"""
        return any(phase.green for plan in self.plans for phase in plan)

    def fill(self, settings: Any) -> None:
        """Write the plans into a row of kernel.SETTINGS."""
        settings["plans"] = len(self.plans)
        for p, plan in enumerate(self.plans):
            settings["phases"][p] = len(plan)
            for k, phase in enumerate(plan):
                settings["attacker"][p, k], settings["style"][p, k] = ATTACKERS[phase.attacker]
                for name in ("delay", "first", "last", "idle", "noise"):
                    settings[name][p, k] = getattr(phase, name)
                settings["green_rate"][p, k] = phase.green

    @classmethod
    def read(cls, text: str) -> Self:
        """Of its string."""
        plans = []
        for part in text.split("|"):
            first, *turns = part.split(">")
            plans.append((_read_phase(text, first, None), *(_read_phase(text, *_turn(text, turn)) for turn in turns)))
        try:
            return cls(tuple(plans))
        except SettingError as error:
            raise SettingError("red", text, error.problem) from error


read_red = Red.read


def is_learned(name: Any) -> bool:
    """Is it the name of a policy that attacks: a shipped `nemesis`, or the path of a run or of the file of a policy?"""
    return isinstance(name, str) and _LEARNED.fullmatch(name) is not None


def _turn(text: str, turn: str) -> tuple[str, str]:
    found = re.search(r"@(\d{1,6}(?:-\d{1,6})?)(?=\+|$)", turn)
    if found is None:
        name = turn.partition("@")[0]
        raise SettingError("red", text, f"does not say when {name or turn!r} takes over: write >{name or 'bline'}@50 "
                           "for after 50 steps, or @20-80 for any time in between")  # fmt: skip
    return turn[: found.start()] + turn[found.end() :], found[1]


def _read_phase(text: str, description: str, when: str | None) -> Phase:
    name, *changes = description.split("+")
    name = RED_ALIASES.get(name, name)
    if name not in ATTACKERS:
        if is_learned(name):
            raise SettingError("red", text, f"combines {name!r}, a policy, which can only attack alone")
        known = (*ATTACKERS, "mix", *RED_ALIASES, "nemesis")
        what = "is unknown" if description == text else f"names {name!r}, which is unknown"
        raise SettingError("red", text, f"{what}; take one of {', '.join(map(repr, known))}, or combine them, for "
                           f"example {_EXAMPLES}.{did_you_mean(name, known)}")  # fmt: skip
    values: dict[str, Any] = {}
    for change in changes:
        key, _, value = change.partition(":")
        if key not in _CHANGES or key in values:
            what = f"names {key!r} twice" if key in values else f"has {change!r}, which is unknown"
            possible = ", ".join(f"{other}:{'5' if kind is int else '0.2'}" for other, kind in _CHANGES.items())
            raise SettingError("red", text, f"{what}; behind + take {possible}.{did_you_mean(key, _CHANGES)}")
        try:
            values[key] = _CHANGES[key](value)
        except ValueError as error:
            number = "a whole number of steps" if _CHANGES[key] is int else "a probability"
            raise SettingError("red", text, f"has {change!r}: {key} takes {number}") from error
    first, _, last = (when or "0").partition("-")
    return replace(Phase(name, **values), first=int(first), last=int(last or first))


def _check(phase: Phase, before: Phase, is_first: bool) -> None:
    text = str(phase)
    if phase.attacker not in ATTACKERS:
        raise SettingError("red", text, f"is unknown; take one of {', '.join(map(repr, ATTACKERS))}")
    for name in ("idle", "noise", "green"):
        if not 0.0 <= getattr(phase, name) <= 1.0:
            raise SettingError("red", text, f"has {name}:{getattr(phase, name)}; take a probability from 0 to 1")
    if not 0 <= phase.delay <= _MOST_STEPS:
        raise SettingError("red", text, f"has delay:{phase.delay}; take 0 to {_MOST_STEPS} steps")
    in_time = phase.first == phase.last == 0 if is_first else before.last < phase.first <= phase.last <= _MOST_STEPS
    if not in_time:
        raise SettingError("red", text, "takes over too early or too late: each attacker of a plan must begin after "
                           f"the one before it, within {_MOST_STEPS} steps")  # fmt: skip
