"""`stockade evaluate --suite robustness`: the challenge's cells, then attackers and staff that a policy has not met.

policy -> cells of the suite -> mean, interval and tail of each -> the worst cell, beside the undisturbed one
docs/guides/attackers.md defines the suite.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import stockade
from stockade.cage2.views import RULES
from stockade.learn.agents import Player
from stockade.learn.evaluate import CELLS, REDS, SCRIPTED, SEEDS_PER_CELL, CellResult, EvaluateConfig, play
from stockade.text import Shown, Table, fixed, interval, plural

#: Changes with the list of cells, their order (which gives them their seeds) or the meaning of a figure.
ROBUSTNESS_VERSION = 1
HORIZON = 100  #: of every cell but the challenge's shorter ones


@dataclass(frozen=True)
class Cell:
    """What is played: an attacker, and whether it is by the rule set that the policy was not evaluated for."""

    group: str
    red: str
    horizon: int = HORIZON
    other_rules: bool = False

    @property
    def base(self) -> str | None:
        """The challenge's attacker that it begins as; None for one that was learned."""
        return next((red for red in REDS if self.red.startswith(red)), None)


#: Attackers that were learned: against the champion, React-Restore and a defender that sleeps.
LEARNED = ("nemesis", "nemesis-react-restore", "nemesis-sleep")
#: The suite. Cell k has the seeds SEED + SEEDS_PER_CELL k, and on from there.
SUITE: tuple[Cell, ...] = (
    *(Cell("challenge", red, horizon) for red, horizon in CELLS),
    *(Cell("delay", f"{red}+delay:10") for red in SCRIPTED),
    *(Cell("idle", f"{red}+idle:0.2") for red in SCRIPTED),
    *(Cell("errors", f"{red}+noise:0.1") for red in SCRIPTED),
    *(Cell("switch", red) for red in ("meander>bline@50", "meander>bline@20-80", "bline>meander@50")),
    *(Cell("style", red) for red in ("bline-detour", "meander-aggressive", "meander-stealthy")),
    *(Cell("green", f"{red}+green:{rate}") for red in SCRIPTED for rate in (0.1, 0.25, 0.5)),
    Cell("green", "sleep+green:0.5"),
    *(Cell("rules", red, other_rules=True) for red in SCRIPTED),
    *(Cell("learned", red) for red in LEARNED),
)


@dataclass(frozen=True)
class RobustnessCell:
    """One cell of the suite, played."""

    group: str
    rules: str
    base: str | None  #: undisturbed attacker that the ratio is to, over 100 steps by the rules of the evaluation
    ratio: float | None  #: mean by the mean against `base`; None without one, or if that costs nothing
    worst: float  #: the lowest return of an episode
    result: CellResult

    @property
    def attacker(self) -> str:
        """As tables name it."""
        return self.result.red + (f", rules {self.rules}" if self.group == "rules" else "")

    def to_dict(self) -> dict[str, Any]:
        """Its figures in one level."""
        own = {name: value for name, value in vars(self).items() if name != "result"}
        return {"attacker": self.attacker, **own, **asdict(self.result)}


@dataclass(frozen=True, repr=False)
class Robustness(Shown):
    """The suite, played by one policy."""

    title: str
    cells: tuple[RobustnessCell, ...]  #: in the order of SUITE

    @property
    def worst(self) -> RobustnessCell:
        """The cell with the lowest mean."""
        return min(self.cells, key=lambda cell: cell.result.mean)

    def __repr__(self) -> str:
        return f"<Robustness, version {ROBUSTNESS_VERSION}. {self.summary}>"

    @property
    def summary(self) -> str:
        """The worst cell in one line."""
        cell = self.worst
        line = f"Worst cell: {cell.attacker}, {cell.result.horizon} steps: {fixed(cell.result.mean)}"
        if cell.ratio is None:
            return f"{line}; it has no undisturbed cell to compare with"
        base = next(c for c in self.cells if (c.result.red, c.result.horizon) == (cell.base, HORIZON))
        return f"{line}, {cell.ratio:.2f} times the undisturbed {cell.base} ({fixed(base.result.mean)})"

    def tables(self) -> list[Table]:
        """All cells; the worst."""
        rows = [[c.group, c.attacker, c.result.horizon, interval(c.result.mean, c.result.interval), fixed(c.result.q05),
                 fixed(c.worst), "" if c.ratio is None else f"{c.ratio:.2f}"] for c in self.cells]  # fmt: skip
        header = ["cells", "attacker", "steps", "mean ± 95%", "5% quantile", "worst", "ratio"]
        return [Table(header, rows, self.title), Table([self.summary], [])]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; docs/reference/files.md describes it."""
        worst = self.worst
        return {
            "version": ROBUSTNESS_VERSION, "summary": self.summary,
            "worst": {"index": self.cells.index(worst), "attacker": worst.attacker, "mean": worst.result.mean,
                      "base": worst.base, "ratio": worst.ratio},
            "cells": [cell.to_dict() for cell in self.cells],
        }  # fmt: skip


def require_learned(rules: str) -> None:
    """Refuse to begin where an attacker of the suite cannot play: those that were learned need Torch."""
    for red in LEARNED:
        stockade.make(red=red, rules=rules).close()


def measure(
    player: Player, config: EvaluateConfig, challenge: Sequence[CellResult], done: Callable[[], object] = lambda: None
) -> Robustness:
    """Play the rest of the suite, given the challenge's nine cells; `done` is called after each cell."""
    results, other = list(challenge), next(rules for rules in RULES if rules != config.rules)
    for k, cell in enumerate(SUITE[len(CELLS) :], len(CELLS)):
        rules, seed = other if cell.other_rules else config.rules, config.seed + SEEDS_PER_CELL * k
        returns = play(player, cell.red, cell.horizon, config.episodes, seed, rules, config.chance)
        results.append(CellResult.of(cell.red, cell.horizon, returns))
        done()
    means = {red: results[CELLS.index((red, HORIZON))].mean for red in REDS}
    hardest = min(SCRIPTED, key=means.__getitem__)
    cells = []
    for cell, result in zip(SUITE, results, strict=True):
        base = (cell.base or hardest) if cell.horizon == HORIZON else None
        ratio = result.mean / means[base] + 0.0 if base and means[base] else None  # no minus zero
        rules = other if cell.other_rules else config.rules
        cells.append(RobustnessCell(cell.group, rules, base, ratio, float(np.min(result.returns)), result))
    title = f"{player.name}: robustness suite, version {ROBUSTNESS_VERSION}, rules {config.rules}, {player.style}, "
    return Robustness(title + f"{plural(config.episodes, 'episode')} per cell", tuple(cells))
