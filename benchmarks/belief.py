"""Is the belief right? Compares it with the truth, and fills docs/concepts/belief.md: `python benchmarks/belief.py`.

The champion defends; the belief knows neither the attacker nor the rules. It is judged on every host and step: red has
access, red is root.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from common import run_script
from pages import fill
from pictures import save

import stockade
from stockade import figures as paper
from stockade.bench.result import RESULTS
from stockade.files import write_durably
from stockade.learn.agents import as_player
from stockade.replay.episode import seen_by
from stockade.text import Table

PAGE, PICTURE, FILE = (
    Path("docs/concepts/belief.md"),
    Path("docs/images/belief.svg"),
    RESULTS / "belief" / "belief.json",
)
REDS, RULES, PARTICLES, BINS = ("bline", "meander"), ("leaderboard", "current"), (16, 64, 256), 10
LEAST = 1e-3  # what is called impossible counts as this probable, and certain as one minus this


@dataclass(frozen=True)
class BeliefBench:
    """Measure how well the belief is calibrated, and write the tables and the picture of its page."""

    episodes: int = 200  # Episodes of each attacker, rule set and number of particles.
    seed: int = 41_000_000  # Of the first episode.
    measure: bool = True  # Without, the page is made from the last result.

    def run(self) -> int:
        if self.measure:
            cells = [self._cell(*case) for case in product(REDS, RULES, PARTICLES)]
            content = {"episodes": self.episodes, "seed": self.seed, "cells": cells}
            FILE.parent.mkdir(parents=True, exist_ok=True)
            write_durably(FILE.absolute(), (json.dumps(content, indent=1) + "\n").encode())
        cells = json.loads(FILE.read_text())["cells"]
        save(reliability(cells), PICTURE)
        text = fill(PAGE, "belief", {"scores": lambda: scores(cells)})
        write_durably(PAGE.absolute(), text.encode())
        print(scores(cells))
        return 0

    def _cell(self, red: str, rules: str, particles: int) -> dict[str, Any]:
        # The same under both rule sets: else what it does would tell the rules, which the belief cannot know.
        player = as_player(stockade.load("champion", rules="leaderboard"))
        envs = stockade.make_vec(self.episodes, red=red, rules=rules, obs=f"belief:{particles}", copy=False, threads=1)
        obs, _ = envs.reset(seed=self.seed)
        said, true, seconds = [], [], 0.0
        for t in range(100):
            actions = player.act(seen_by(player, obs, envs.config, np.full(self.episodes, t)), np.random.default_rng(0))
            begin = time.thread_time()
            obs, *_ = envs.step(actions)
            seconds += time.thread_time() - begin
            belief, access = envs.belief(), envs.true_state().red_access
            said += [belief.access, belief.root]
            true += [access >= 1, access == 2]
        guess, fact = np.stack(said), np.stack(true)
        usual = np.stack([fact[k::2].mean(axis=(0, 1)) for k in (0, 1)])  # of each host, for access and root
        usual = np.broadcast_to(np.tile(usual, (100, 1))[:, None], fact.shape)
        edges = np.clip((guess * BINS).astype(int), 0, BINS - 1).ravel()
        counts = [np.bincount(edges, values.ravel(), BINS) for values in (np.ones_like(guess), guess, fact)]
        belief = envs.belief()
        return {
            "red": red, "rules": rules, "particles": particles, "score": score(guess, fact),
            "usual": score(usual, fact), "bins": np.array(counts).round(3).tolist(),
            "attacker": float(belief.attacker[:, ("sleep", *REDS).index(red)].mean()),
            "rule_set": float((belief.leaderboard if rules == "leaderboard" else 1 - belief.leaderboard).mean()),
            "microseconds": seconds / 100 / self.episodes * 1e6,
        }  # fmt: skip


def score(guess: np.ndarray, fact: np.ndarray) -> float:
    """Logarithmic: minus the mean logarithm of the probability that was given to what is true."""
    likely = np.clip(guess, LEAST, 1 - LEAST)
    return float(-np.where(fact, np.log(likely), np.log(1 - likely)).mean())


def scores(cells: list[dict[str, Any]]) -> str:
    """The table of the page."""
    head = [
        "attacker",
        "rules",
        "particles",
        "log score",
        "of what is usual",
        "right attacker",
        "right rules",
        "microseconds",
    ]
    rows = [
        [cell["red"], f"`{cell['rules']}`", str(cell["particles"]), f"{cell['score']:.4f}", f"{cell['usual']:.4f}",
         f"{cell['attacker']:.2f}", f"{cell['rule_set']:.2f}", f"{cell['microseconds']:.0f}"]
        for cell in cells
    ]  # fmt: skip
    return Table(head, rows).markdown() + "\n"


@paper.paper_style()
def reliability(cells: list[dict[str, Any]]) -> Any:
    """How often what is given a probability is true: a curve for each number of particles."""
    figure = paper.new_figure(3.4)
    for axes, red in zip(figure.subplots(1, 2), REDS, strict=True):
        axes.plot([0, 1], [0, 1], color=paper.GREY, linewidth=0.8)
        for particles, colour in zip(PARTICLES, paper.COLOURS, strict=False):
            bins = [np.array(c["bins"]) for c in cells if c["red"] == red and c["particles"] == particles]
            count, guess, fact = np.sum(bins, axis=0)
            shown = count >= 100
            label = f"{particles} particles"
            axes.plot(guess[shown] / count[shown], fact[shown] / count[shown], "o-", color=colour, label=label, ms=3)
        axes.set(title=red, xlabel="probability", ylabel="share that is true")
    axes.legend()
    return figure


if __name__ == "__main__":
    sys.exit(run_script(BeliefBench, __doc__))
