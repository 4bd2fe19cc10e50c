"""The page's section on ablations: what the recipe loses when one part of it is taken away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from champion_ablate import WHOLE, same_recipe, variants
from champion_page_results import MISSING, Files
from champion_protocol import RULE_SETS

from stockade.bench.report_tables import markdown
from stockade.learn.leaderboard import REDS
from stockade.learn.presets import CHAMPION

_TEXT = """\
## Ablations

The recipe for the rules `current` with one thing changed at a time, trained for a short while and played on seeds of
their own ({episodes:,} episodes a cell). Totals of the nine cells, means over the seeds of training; the change is
against the whole recipe with the same seed, under `current`; its range over the seeds says how much of it is chance.
The column `leaderboard` shows what the same policies earn under rules that most of them were not trained for."""


def ablations(files: Files) -> Iterator[str]:
    """A table for each length of training."""
    entries = [] if files.ablations is None else files.ablations["entries"]
    fitting = [entry for entry in entries if _is_of_the_recipe(entry)]
    if not fitting:
        yield "## Ablations"
        yield ""
        yield f"{MISSING}: run `python benchmarks/champion.py ablate`."
    else:
        yield _TEXT.format(episodes=fitting[0]["eval_episodes"])
        for episodes in sorted({entry["episodes"] for entry in fitting}):
            group = [entry for entry in fitting if entry["episodes"] == episodes]
            yield ""
            yield f"Trained for {episodes:,} episodes (`python benchmarks/champion.py ablate --episodes {episodes}`):"
            yield ""
            head = [
                "",
                "seeds",
                *(f"`{rules}`" for rules in RULE_SETS),
                "change",
                "range",
                "of it B_line",
                "Meander",
                "Sleep",
            ]
            yield from markdown(head, _rows(group))
    if len(fitting) < len(entries):
        yield ""
        yield f"Left out: {len(entries) - len(fitting)} results of another recipe than today's."


def _is_of_the_recipe(entry: Any) -> bool:
    """It is a variant of the preset as it is now."""
    known = {variant.name: variant.config for variant in variants(CHAMPION)}
    config = known.get(entry["variant"])
    return config is not None and same_recipe(entry["settings"], replace(config, seed=entry["seed"]))


def _rows(group: list[Any]) -> Iterator[list[str]]:
    """The whole recipe first, then its other ways to play, then the variants in the order of the list."""
    whole = {entry["seed"]: entry for entry in group if (entry["variant"], entry["play"]) == (WHOLE, "")}
    names = [(variant.name, play) for variant in variants(CHAMPION) for play in variant.plays]
    for name, play in names:
        mine = {entry["seed"]: entry for entry in group if (entry["variant"], entry["play"]) == (name, play)}
        if not mine:
            continue
        totals = [f"{np.mean([entry['rules'][rules]['total'] for entry in mine.values()]):.2f}" for rules in RULE_SETS]
        pairs = [(mine[seed], whole[seed]) for seed in sorted(mine.keys() & whole.keys())]
        changes = ["", "", "", "", ""]
        if pairs and (name, play) != (WHOLE, ""):
            changed = [_sum(a) - _sum(b) for a, b in pairs]
            parts = [np.mean([_sum(a, red) - _sum(b, red) for a, b in pairs]) for red in REDS]
            changes = [
                f"{np.mean(changed):+.2f}",
                f"{min(changed):+.2f} to {max(changed):+.2f}" if len(changed) > 1 else "",
                *(f"{part:+.2f}" for part in parts),
            ]
        yield [play or name, str(len(mine)), *totals, *changes]


def _sum(entry: Any, red: str | None = None) -> float:
    """Sum of the cells under the rules `current`, against one attacker or all."""
    cells = entry["rules"]["current"]["cells"]
    return float(sum(cell["mean"] for cell in cells if red in (None, cell["red"])))
