"""Leagues of several seeds as one result and one figure: `python benchmarks/league.py runs/league30-0 ...`.

league.json of each run, and of its defender and of one trained without a league what new attackers cost
(`stockade exploit`) -> benchmarks/results/league/league.json -> a table and docs/images/league.svg
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from common import run_script

from stockade.bench.result import machine_stamp
from stockade.figures import COLOURS, legend_below, new_figure, paper_style, rendered
from stockade.files import as_json, write_durably
from stockade.learn.league import worst_of
from stockade.text import Table, interval

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class League:
    """Collect leagues that differ in their seeds, and draw them."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Folders of runs of `stockade train --league`."""
    exploits: tuple[Path, ...] = ()  # Folders of `stockade exploit` that judge them, and others to compare with.
    json: Path = ROOT / "benchmarks" / "results" / "league" / "league.json"  # Where the result goes.
    image: Path = ROOT / "docs" / "images" / "league.svg"  # Where the figure goes, and beside it as PDF.

    def run(self) -> int:
        leagues = {folder.name: json.loads((folder / "league.json").read_text()) for folder in self.folders}
        judged = [json.loads((folder / "exploit.json").read_text()) for folder in self.exploits]
        short = []
        for entry in judged:
            against = {b["red"]: [b["mean"], b["interval"]] for b in entry["against"]}
            kept = ("policy", "exploitability", "ratio", "strengths", "settings")
            short.append({key: entry[key] for key in kept} | {"against": against})
        self.json.parent.mkdir(parents=True, exist_ok=True)
        content = {"stamp": machine_stamp(), "leagues": leagues, "exploits": short}
        write_durably(self.json, (as_json(content) + "\n").encode())
        for kind in ("svg", "pdf"):
            write_durably(self.image.with_suffix(f".{kind}"), rendered(_figure(leagues), kind))
        for name, league in leagues.items():
            rows = [[f"{row['episodes']:,}", interval(*worst_of(row)), *(interval(*v) for v in row["given"].values())]
                    for row in league["rounds"]]  # fmt: skip
            print(Table(["episodes", "worst learned", *league["rounds"][0]["given"]], rows, name), end="\n\n")
        rows = [[entry["policy"], *(interval(*v) for v in entry["against"].values())] for entry in short]
        print(Table(["defender", "new attacker", "bline", "meander"], rows))
        return 0


@paper_style()
def _figure(leagues: dict[str, Any]) -> Any:
    figure = new_figure(3.0)
    axes = figure.subplots()
    for k, league in enumerate(leagues.values()):
        rounds = league["rounds"]
        x, given = [row["episodes"] for row in rounds], list(rounds[0]["given"])
        series = {"worst learned attacker": [worst_of(row)[0] for row in rounds]}
        series |= {name: [row["given"][name][0] for row in rounds] for name in given}
        for colour, (name, values) in zip(COLOURS, series.items(), strict=False):
            axes.plot(x, values, color=colour, marker="o", ms=3, label=name if k == 0 else None)
    axes.set_xlabel("episodes of the defender")
    axes.set_ylabel("mean return of the defender")
    legend_below(figure, axes)
    return figure


if __name__ == "__main__":
    sys.exit(run_script(League, __doc__))
