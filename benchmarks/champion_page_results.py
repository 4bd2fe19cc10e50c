"""The page's tables of results: scores beside the published ones, bars, cost, where it still loses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from champion_protocol import ACTIVE, BARS, RULE_SETS, TIME_BAR, read_json

from stockade.bench.report_tables import markdown
from stockade.learn.leaderboard import CELLS, PUBLISHED

#: Begins every sentence about a result that is not there.
MISSING = "Not measured yet"
RED_NAMES = {"bline": "B_line", "meander": "Meander", "sleep": "Sleep"}


@dataclass(frozen=True)
class Files:
    """Contents of the results, None where there are none yet.

    Attributes:
        cyborg: by rule set.
    """

    evaluation: Any
    curves: Any
    ablations: Any
    behaviour: Any
    replayed: Any
    cyborg: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> Files:
        """All that a folder has."""
        names = "champion", "champion-curves", "champion-ablations", "champion-behaviour", "champion-cyborg-replayed"
        contents = [read_json(folder / f"{name}.json") for name in names]
        return cls(*contents, {rules: read_json(folder / f"champion-cyborg-{rules}.json") for rules in RULE_SETS})


def main_run(evaluation: Any) -> Any:
    """The shipped policy, or the first run if it was not played."""
    return next((run for run in evaluation["runs"] if run["shipped"]), evaluation["runs"][0])


def cell_heads() -> list[str]:
    """B_line 30, 50, ... as heads of columns."""
    return [f"{RED_NAMES[red]} {horizon}" for red, horizon in CELLS]


def run_name(run: Any) -> str:
    """As the tables call it."""
    seeds = {result["seed"] for result in run["rules"].values()}
    return "**champion**" if run["shipped"] else f"trained with seed {', '.join(map(str, sorted(seeds)))}"


# -------------------------------------------------------------------------------------------------------------- results
_RESULTS = """\
## Results

The official protocol, {episodes:,} episodes a cell on test seeds ([which](#seeds)), likeliest actions. The interval
is that of 95% (± 1.96 standard errors). The tail is heavy, so look at the median and the 5% quantile too."""
_BARS = """\
### Against the bars

Totals of the six cells with an active attacker. *Must* under `leaderboard` is the winner, replayed by us, and *aim*
the best of every column of the leader board; under `current` both were set before we began (the winner scores
{current:.2f} there). "Within the interval" means better, but by less than the interval of the total. The last column
names cells that are worse than the winner's by more than their own interval."""


def results(files: Files) -> Iterator[str]:
    """A table for each rule set, then the bars."""
    found = files.evaluation
    if found is None:
        yield "## Results"
        yield ""
        yield f"{MISSING}: run `python benchmarks/champion.py evaluate champion RUN...`."
        return
    yield _RESULTS.format(episodes=found["episodes"])
    for rules in RULE_SETS:
        yield ""
        yield f"### Rules `{rules}`"
        yield ""
        yield from markdown(["", *cell_heads(), "total"], _score_rows(found, rules))
    current = next(row for row in PUBLISHED if row.name == "CardiffUni, replayed" and row.rules == "current")
    yield ""
    yield _BARS.format(current=current.total)
    yield ""
    head = ["", "rules", "total", "must", "", "aim", "", "Sleep 0", "worse than the winner"]
    rows = [_bar_row(run, rules) for rules in RULE_SETS for run in found["runs"]]
    yield from markdown(head, rows, left=2)


def _score_rows(found: Any, rules: str) -> Iterator[list[str]]:
    best = main_run(found)
    result = best["rules"][rules]
    cells = result["cells"]
    yield [run_name(best), *(f"**{c['mean']:.2f}**" for c in cells), f"**{result['total']:.2f}**"]
    yield ["95% interval", *(f"± {c['interval']:.2f}" for c in cells), f"± {result['total_interval']:.2f}"]
    yield ["median", *(f"{c['median']:.2f}" for c in cells), ""]
    yield ["5% quantile", *(f"{c['q05']:.2f}" for c in cells), ""]
    for run in found["runs"]:
        if run is not best:
            other = run["rules"][rules]
            total = f"{other['total']:.2f} ± {other['total_interval']:.2f}"
            yield [run_name(run), *(f"{c['mean']:.2f}" for c in other["cells"]), total]
    for row in PUBLISHED:
        if row.rules == rules:
            yield [row.name, *(f"{mean:.2f}" for mean in row.means), f"{row.total:.2f}"]


def _bar_row(run: Any, rules: str) -> list[str]:
    result, bar = run["rules"][rules], BARS[rules]
    total = f"{result['active']:.2f} ± {result['active_interval']:.2f}"
    worse = ", ".join(f"{RED_NAMES[red]} {horizon}" for red, horizon in map(str.split, result["worse"])) or "none"
    return [run_name(run), f"`{rules}`", total, f"{bar.must:.1f}", result["must"], f"{bar.aim:.1f}", result["aim"],
            result["asleep"], worse]  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------- cost
def cost(files: Files) -> Iterator[str]:
    """What each training took."""
    yield "## Cost"
    yield ""
    found = files.evaluation
    if found is None:
        yield f"{MISSING}: run `python benchmarks/champion.py evaluate champion RUN...`."
        return
    yield (
        f"Trained on {found['trained_on']}; minutes as the run counted them, validation included. The bar is "
        f"{TIME_BAR.must:.0f} minutes, the aim {TIME_BAR.aim:.0f}."
    )
    yield ""
    rows = []
    for run, rules in ((run, rules) for rules in RULE_SETS for run in found["runs"]):
        result = run["rules"][rules]
        spent = result["cost"]
        note = "up to its checkpoint, which is all that its card tells" if run["shipped"] else "the whole run"
        chosen = f"{result['chosen_after']:,}"
        figures = f"{spent['episodes']:,}", f"{spent['steps']:,}", f"{spent['minutes']:.1f}"
        rows.append([run_name(run), f"`{rules}`", str(result["seed"]), note, *figures, chosen, _met(spent["minutes"])])
    head = ["", "rules", "seed", "counted", "episodes", "steps", "minutes", "checkpoint chosen after", "bar"]
    yield from markdown(head, rows, left=4)


def _met(minutes: float) -> str:
    return "aim met" if minutes <= TIME_BAR.aim else "met" if minutes <= TIME_BAR.must else "missed"


# --------------------------------------------------------------------------------------------------------------- losses
def losses(files: Files) -> Iterator[str]:
    """Cells below the best published ones, tails, differences between seeds, causes."""
    yield "## Where it still loses"
    yield ""
    found = files.evaluation
    if found is None:
        yield f"{MISSING}: run `python benchmarks/champion.py evaluate champion RUN...`."
        return
    run = main_run(found)
    yield from _below_the_best(run)
    yield from _tails(run)
    yield from _between_seeds(found)
    if files.behaviour is not None:
        yield from _causes(files.behaviour)


def _below_the_best(run: Any) -> Iterator[str]:
    """Rules `leaderboard` only: nobody else has published under the current ones."""
    rows = [row for row in PUBLISHED if row.rules == "leaderboard"]
    worse = []
    for k in ACTIVE:
        best = max(rows, key=lambda row: row.means[k])
        cell = run["rules"]["leaderboard"]["cells"][k]
        if cell["mean"] < best.means[k]:
            inside = ", inside the interval" if best.means[k] - cell["mean"] <= cell["interval"] else ""
            worse.append(f"{RED_NAMES[cell['red']]} {cell['horizon']} ({cell['mean']:.2f}; {best.name} "
                         f"{best.means[k]:.2f}{inside})")  # fmt: skip
    if worse:
        yield (
            "- Cells in which some published agent is better, by the rules of the leader board: "
            + "; ".join(worse)
            + "."
        )
    else:
        yield "- By the rules of the leader board no published agent is better in any cell."


def _tails(run: Any) -> Iterator[str]:
    cells = [(rules, cell) for rules in RULE_SETS for cell in run["rules"][rules]["cells"]]
    rules, cell = min(cells, key=lambda pair: pair[1]["q05"] - pair[1]["mean"])
    yield (
        f"- The heaviest tail: one episode in twenty against {RED_NAMES[cell['red']]} over {cell['horizon']} steps, "
        f"rules `{rules}`, ends at {cell['q05']:.2f} or worse (mean {cell['mean']:.2f}, median {cell['median']:.2f})."
    )


def _between_seeds(found: Any) -> Iterator[str]:
    runs = [run for run in found["runs"] if not run["shipped"]]
    if len(runs) < 2:
        return
    parts = []
    for rules in RULE_SETS:
        totals = [run["rules"][rules]["total"] for run in runs]
        parts.append(f"{min(totals):.2f} to {max(totals):.2f} under `{rules}`")
    yield f"- {len(runs)} trainings that differ only in their seed end at totals of " + ", ".join(parts) + "."


def _causes(behaviour: Any) -> Iterator[str]:
    for red in ("bline", "meander"):
        parts = []
        for rules in RULE_SETS:
            world = next(w for w in behaviour["worlds"] if (w["red"], w["rules"]) == (red, rules))
            causes = sorted(world["costs"].items(), key=lambda pair: pair[1])[:3]
            parts.append(f"under `{rules}` " + ", ".join(f"{cause} {value:.2f}" for cause, value in causes if value))
        yield f"- What costs most against {RED_NAMES[red]} over {behaviour['horizon']} steps: {'; '.join(parts)}."
