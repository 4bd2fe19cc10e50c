"""Measures champion and challenger and fills the tables of their pages: `python benchmarks/champion.py --help`.

evaluate, robustness, curves, ablate, behaviour, cyborg -> benchmarks/results/champion/*.json -> tables ->
docs/results/champion*.md and challenger.md, whose text is written by hand
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from champion_ablate import WHOLE, Ablate, same_recipe, variants
from champion_behaviour import Behaviour
from champion_evaluate import RED_NAMES, RESULTS, ROOT, RULE_SETS, Curves, Cyborg, Evaluate, Robustness, read_json
from common import run_script
from pages import fill

from stockade.cage2.scenario import HOSTS
from stockade.errors import InputError, flag_of
from stockade.files import check_writable, write_durably
from stockade.learn.config import CHAMPION, PPOConfig, TrainConfig
from stockade.learn.evaluate import CELLS, PUBLISHED, REDS, SCRIPTED
from stockade.text import Table, interval

PAGES = tuple(sorted((ROOT / "docs" / "results").glob("cha*.md")))  # champion and challenger
#: Actions, hosts and decoys that are rarer than this per episode are left out.
_RARE = 0.02
_SHOWN_STEPS = 8
_COLUMNS = [(red, rules) for red in SCRIPTED for rules in RULE_SETS]
_HEADS = [f"{RED_NAMES[red]}, `{rules}`" for red, rules in _COLUMNS]
_NEVER = {"preset", "name", "runs", "resume", "seed", "tensorboard", "ppo", "threads", "backend"}


@dataclass(frozen=True)
class Tables:
    """Fill the tables of docs/results/champion*.md from the results that are there."""

    pages: tuple[Path, ...] = PAGES
    """Markdown files; what is between `<!-- champion:NAME:begin -->` and `<!-- champion:NAME:end -->` is made anew."""
    results: Path = RESULTS  # Folder of the results.

    def run(self) -> int:
        for page in self.pages:
            check_writable(page, "--pages")
        texts = {page: filled(page, self.results) for page in self.pages}
        for page, text in texts.items():
            write_durably(page.absolute(), text.encode())
            print(f"wrote {page}")
        return 0


def filled(page: Path, results: Path) -> str:
    """The text of a page with its tables made anew."""
    return fill(page, "champion", {name: lambda make=make: make(results).markdown() for name, make in TABLES.items()})


def _read(results: Path, name: str) -> Any:
    content = read_json(results / f"{name}.json")
    if content is None:
        raise InputError(f"{results / name}.json is not there: `python {__file__} --help` says what makes it")
    return content


def recipe(_: Path) -> Table:
    """Settings of the preset that differ from the defaults of `stockade train`."""
    pairs = [(CHAMPION, TrainConfig()), (CHAMPION.ppo, PPOConfig())]
    names = [(field.name, getattr(ours, field.name), getattr(default, field.name))
             for ours, default in pairs for field in fields(ours) if field.name not in _NEVER]  # fmt: skip
    rows = [[f"`{flag_of(name)}`", *map(_setting, pair)] for name, *pair in names if pair[0] != pair[1]]
    return Table(["setting", "champion", "default"], rows, align="lll")


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, tuple) else f"{value:,}" if type(value) is int else str(value)


def scores(rules: str, results: Path) -> Table:
    """The shipped policy, other seeds of the recipe, and published agents."""
    runs = _read(results, "champion")["runs"]
    rows: list[list[str]] = []
    for run in sorted(runs, key=lambda run: not run["shipped"]):
        result = run["rules"][rules]
        cells = [cell for cell in result["cells"] if cell["red"] != "sleep"]
        name = "**champion**" if run["shipped"] else f"seed {result['seed']}"
        rows.append([name, *(interval(c["mean"], c["interval"]) for c in cells),
                     interval(result["total"], result["total_interval"])])  # fmt: skip
        if run["shipped"]:
            rows += [[f"champion, {name}", *(f"{c[key]:.2f}" for c in cells), ""]
                     for name, key in (("median", "median"), ("5% quantile", "q05"))]  # fmt: skip
    return Table(_cell_heads(rules), rows + _published(rules), align="l" + 7 * "r")


def agents(rules: str, results: Path) -> Table:
    """The challenger, its seeds, what it is worth to be told more, and who was published."""
    others = {"champion": "champion: steps left, success", "oracle": "oracle: the true state"}
    rows: list[list[str]] = []
    seeds: dict[str, list[list[float]]] = {"": [], ", told the rules": []}
    for run in _read(results, "challenger")["runs"]:
        result = run["rules"][rules]
        cells = [cell for cell in result["cells"] if cell["red"] != "sleep"]
        told = ", told the rules" * run["name"].endswith("-told")
        name = others.get(run["name"], f"seed {result['seed']}{told}")
        if run["name"] not in others:
            seeds[told].append([*(cell["mean"] for cell in cells), result["total"]])
            name = f"**challenger**{told}: {name.removesuffix(told)}" if run["shipped"] else name
        rows.append([name, *(interval(c["mean"], c["interval"]) for c in cells),
                     interval(result["total"], result["total_interval"])])  # fmt: skip
    means = [[f"mean of {len(found)} seeds{told}", *(f"{mean:.2f}" for mean in np.mean(found, axis=0))]
             for told, found in seeds.items() if found]  # fmt: skip
    return Table(_cell_heads(rules), rows + means + _published(rules), align="l" + 7 * "r")


def worst(results: Path) -> Table:
    """The challenger's worst episodes, and how to see them."""
    run = next(run for run in _read(results, "challenger")["runs"] if run["name"] == "challenger")
    rows = []
    for rules in RULE_SETS:
        for cell in run["rules"][rules]["cells"]:
            if cell["horizon"] == 100 and cell["red"] != "sleep":
                command = f"stockade replay challenger --red-agent {cell['red']} --rules {rules}"
                command += f" --seed {cell['worst_seed']}"
                rows.append([f"{RED_NAMES[cell['red']]}, `{rules}`", f"{cell['worst']:.1f}", f"`{command}`"])
    return Table(["100 steps", "return", "see it"], rows, align="lrl")


def _cell_heads(rules: str) -> list[str]:
    heads = [f"{RED_NAMES[red]} {horizon}" for red, horizon in CELLS if red != "sleep"]
    return [f"rules `{rules}`", *heads, "total of nine cells"]


def _published(rules: str) -> list[list[str]]:
    """Rows of published scores under these rules."""
    rows = []
    for row in PUBLISHED:
        if row.rules == rules:
            means = [mean for (red, _), mean in zip(CELLS, row.means, strict=True) if red != "sleep"]
            rows.append([row.name, *(f"{mean:.2f}" for mean in means), f"{row.total:.2f}"])
    return rows


def cost(results: Path) -> Table:
    """What each training took, and which checkpoint validation chose."""
    runs = [run["rules"] for run in _read(results, "champion")["runs"] if not run["shipped"]]
    found = [(rules, run[rules], run[rules]["cost"]) for rules in RULE_SETS for run in runs]
    rows = [[f"`{rules}`", run["seed"], spent["episodes"], spent["steps"], f"{spent['minutes']:.1f}",
             run["chosen_after"]] for rules, run, spent in found]  # fmt: skip
    return Table(["rules", "seed", "episodes", "steps", "minutes", "checkpoint chosen after"], rows, align="lrrrrr")


def ablations(results: Path) -> Table:
    """The whole recipe, other ways to play it, then variants: totals and changes, means over seeds."""
    known = {variant.name: variant for variant in variants(CHAMPION)}
    entries = [e for e in _read(results, "champion-ablations")["entries"] if e["variant"] in known
               and same_recipe(e["settings"], replace(known[e["variant"]].config, seed=e["seed"]))]  # fmt: skip
    whole = {e["seed"]: e for e in entries if (e["variant"], e["play"]) == (WHOLE, "")}
    rows = []
    for name, play in dict.fromkeys((e["variant"], e["play"]) for e in entries):
        mine = [e for e in entries if (e["variant"], e["play"]) == (name, play)]
        totals = [f"{np.mean([e['rules'][rules]['total'] for e in mine]):.2f}" for rules in RULE_SETS]
        changes = {red: [_sum(e, red) - _sum(whole[e["seed"]], red) for e in mine if e["seed"] in whole]
                   for red in (None, *REDS)}  # fmt: skip
        first = (name, play) == (WHOLE, "") or not changes[None]
        span = "" if first else f"{min(changes[None]):+.2f} to {max(changes[None]):+.2f}"
        means = ["" if first else f"{np.mean(change):+.2f}" for change in changes.values()]
        rows.append([play or name, len(mine), *totals, means[0], span, *means[1:]])
    heads = ["", "seeds", *(f"`{rules}`" for rules in RULE_SETS), "change", "range", "of it B_line", "Meander", "Sleep"]
    return Table(heads, rows, align="l" + 8 * "r")


def _sum(entry: Any, red: str | None) -> float:
    """Sum of the cells under the rules `current`, against one attacker or all."""
    cells = entry["rules"]["current"]["cells"]
    return math.fsum(cell["mean"] for cell in cells if red in (None, cell["red"]))  # `sum` depends on Python's version


def cyborg(rules: str, results: Path) -> Table:
    """The same policy on the reference simulator, cell by cell."""
    there = _read(results, f"champion-cyborg-{rules}")["cells"]
    here = next(run for run in _read(results, "champion")["runs"] if run["shipped"])["rules"][rules]["cells"]
    rows = []
    for a, b in ((a, b) for a, b in zip(there, here, strict=True) if a["red"] != "sleep"):
        gap = interval(a["mean"] - b["mean"], math.hypot(a["interval"], b["interval"]))
        means = [interval(c["mean"], c["interval"]) for c in (a, b)]
        rows.append([f"{RED_NAMES[a['red']]} {a['horizon']}", *means, gap])
    return Table([f"rules `{rules}`", "CybORG", "here, other seeds", "difference"], rows, align="lrrr")


def robustness(results: Path, policy: str = "champion") -> Table:
    """Cells of 100 steps of the robustness suite: mean, 5% quantile and ratio to the undisturbed attacker."""
    suites = [_read(results, f"{policy}-robustness")["rules"][rules]["cells"] for rules in RULE_SETS]
    rows = []
    for cells in zip(*suites, strict=True):
        if cells[0]["horizon"] == 100 and cells[0]["red"] != "sleep":
            name = "the other rules: " * (cells[0]["group"] == "rules") + f"`{cells[0]['red']}`"
            texts = [(interval(c["mean"], c["interval"]), f"{c['q05']:.2f}", c["ratio"]) for c in cells]
            rows.append([name, *(f"{text:.2f}" if isinstance(text, float) else text for t in texts for text in t)])
    heads = [f"{head}`{rules}`" for rules in RULE_SETS for head in ("", "5% quantile, ", "ratio, ")]
    return Table(["mean return", *heads], rows, align="l" + 6 * "r")


def _world(results: Path, red: str, rules: str = "current") -> Any:
    worlds = _read(results, "champion-behaviour")["worlds"]
    return next(world for world in worlds if (world["red"], world["rules"]) == (red, rules))


def first_steps(results: Path) -> Table:
    """The commonest actions of the first steps, rules `current`."""
    rows = []
    for t in range(_SHOWN_STEPS):
        tops = [_world(results, red)["first_steps"][t] for red in RED_NAMES]
        rows.append([t + 1, *("; ".join(f"{a} {100 * p:.0f}%" for a, p in top[:3] if p >= _RARE) for top in tops)])
    return Table(["step", *(f"against {name}" for name in RED_NAMES.values())], rows, align="rlll")


def actions(results: Path) -> Table:
    """How often it does what per episode; a decoy that cannot be placed again is a wait."""
    worlds = [_world(results, *place) for place in _COLUMNS]
    placed = [sum(decoy["an_episode"] for decoy in world["decoys"]) for world in worlds]
    kinds: dict[str, list[float]] = {
        **{kind: [world["kinds"][kind] for world in worlds] for kind in ("Analyse", "Remove", "Restore")},
        "decoy that is placed": placed,
        "decoy that fails: a wait": [w["kinds"]["decoy"] - p for w, p in zip(worlds, placed, strict=True)],
        "Sleep or Monitor": [world["kinds"]["Sleep or Monitor"] for world in worlds],
    }
    rows = [[kind, *(f"{value:.1f}" for value in values)] for kind, values in kinds.items()]
    return Table(["actions per episode of 100 steps", *_HEADS], rows, align="lrrrr")


def aim(results: Path) -> Table:
    """What its fixes met, rules `current`."""
    found = [(kind, red, _world(results, red)["aim"][kind]) for kind in ("Remove", "Restore") for red in SCRIPTED]
    rows = [[f"{kind}, {RED_NAMES[red]}", *(f"{100 * share[name]:.0f}%" for name in ("root", "user", "nobody"))]
            for kind, red, share in found if share]  # fmt: skip
    return Table(["of its", "met red with root", "as a user", "met nobody"], rows, align="lrrr")


def decoys(results: Path) -> Table:
    """Share of the episodes in which each is placed, and the median step of the first time, rules `current`."""
    by_red = {red: {d["action"]: d for d in _world(results, red)["decoys"] if d["episodes"] >= _RARE}
              for red in RED_NAMES}  # fmt: skip
    names = sorted({name for red in by_red.values() for name in red}, key=lambda n: (HOSTS.index(n.split()[1]), n))
    rows = [[name, *(f"{100 * d['episodes']:.0f}%, step {d['first_step']:.0f}" if (d := by_red[red].get(name)) else ""
                     for red in RED_NAMES)] for name in names]  # fmt: skip
    return Table(["", *(f"against {name}" for name in RED_NAMES.values())], rows, align="lrrr")


def hosts(results: Path) -> Table:
    """Analyse, Remove and Restore per episode by host, rules `current`."""
    places = [(red, kind) for red in SCRIPTED for kind in ("Analyse", "Remove", "Restore")]
    counts = [_world(results, red)[f"{kind.lower()}_hosts"] for red, kind in places]
    rows = [[host, *(f"{count[host]:.2f}" if host in count else "" for count in counts)]
            for host in HOSTS if max(count.get(host, 0.0) for count in counts) >= _RARE]  # fmt: skip
    return Table(["per episode", *(f"{kind}, {RED_NAMES[red]}" for red, kind in places)], rows, align="l" + 6 * "r")


def holds(results: Path) -> Table:
    """Share of the steps at whose end red has a session on a host, in brackets with root."""
    held = [_world(results, *place)["red_holds"] for place in _COLUMNS]
    rows = [[host, *(f"{100 * h[host]['any']:.2f}% ({100 * h[host]['root']:.2f}%)" for h in held)]
            for host in HOSTS if host != "User0" and max(h[host]["any"] for h in held) > 0]  # fmt: skip
    return Table(["", *_HEADS], rows, align="lrrrr")


def costs(results: Path) -> Table:
    """What an episode of 100 steps loses by each cause."""
    worlds = [_world(results, *place) for place in _COLUMNS]
    causes = sorted(worlds[0]["costs"], key=lambda cause: sum(world["costs"][cause] for world in worlds))
    rows = [[cause, *(f"{world['costs'][cause]:.2f}" for world in worlds)]
            for cause in causes if min(world["costs"][cause] for world in worlds) < -0.005]  # fmt: skip
    return Table(["", *_HEADS], [*rows, ["return", *(f"{world['mean']:.2f}" for world in worlds)]], align="lrrrr")


def challenger_robustness(results: Path) -> Table:
    """The same of the challenger."""
    return robustness(results, "challenger")


_NAMED = (recipe, cost, robustness, challenger_robustness, worst, ablations, first_steps, actions, aim, hosts, decoys,
          holds, costs)  # fmt: skip
TABLES: dict[str, Callable[[Path], Table]] = {
    **{table.__name__.replace("_", "-"): table for table in _NAMED},
    **{f"{table.__name__}-{rules}": partial(table, rules) for table in (scores, agents, cyborg) for rules in RULE_SETS},
}


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0, 2 for what cannot be done, or that of a training that was stopped."""
    return run_script(Evaluate | Robustness | Curves | Ablate | Behaviour | Cyborg | Tables, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
