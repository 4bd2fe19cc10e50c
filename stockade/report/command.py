"""`stockade report`: runs, searches, evaluations -> sections: text, tables, charts -> one page of HTML.

The library of the charts is put inside the page from its installed package, so that the page needs no network.
"""

from __future__ import annotations

import html
import json
import re
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from stockade.errors import InputError, missing_package
from stockade.files import check_writable, write_durably
from stockade.learn.files import check_runs, command_of, find_folder, read_metrics
from stockade.learn.runs import WORLD, compare, read_settings, read_summary
from stockade.report.charts import Curve, Estimate, curves, estimates, values
from stockade.text import Table, duration, fixed, interval, plural

EVALUATION_SEED = 153  #: of comparisons, as of `stockade evaluate`
MOST_ORDERS, MOST_CURVES = 40, 8  #: rows and curves of the charts of orders, the best; the table has all of them
#: What of the learner is charted: column of metrics.csv, and what it is.
LEARNING = {
    "entropy": "Entropy", "kl": "KL divergence of an update", "explained_variance": "Explained variance",
    "value_loss": "Value loss", "grad_norm": "Length of gradients", "learning_rate": "Learning rate",
    "episodes_per_second": "Episodes per second", "seconds": "Seconds since the start",
}  # fmt: skip

#: Columns of a page of an evaluation: key of a cell, and what it is.
CELL_COLUMNS = {"red": "attacker", "horizon": "steps", "mean": "mean", "interval": "± 95%", "median": "median",
                "q05": "5% quantile"}  # fmt: skip
SUITE_COLUMNS = {"group": "cells", "attacker": "attacker", "horizon": "steps", "mean": "mean", "interval": "± 95%",
                 "q05": "5% quantile", "worst": "worst", "ratio": "ratio"}  # fmt: skip

AGAINST_COLUMNS = {"red": "attacker", "mean": "mean", "interval": "± 95%", "q05": "5% quantile", "worst": "worst",
                   "impact_share": "episodes with an Impact"}  # fmt: skip


@dataclass(frozen=True)
class Section:
    """A part of the page: a chart, a table, or text; `half` as wide where there is room, `kind` a class of its text."""

    title: str
    content: Any
    half: bool = False
    kind: str = ""

    def html(self, chart: str) -> str:
        """All text is escaped; `chart` is the place of its chart, if it is one."""
        if isinstance(self.content, str):
            scrolls = ' tabindex="0"' if self.kind else ""  # by keyboard too
            chart = f'<pre class="{self.kind}"{scrolls}>{html.escape(self.content)}</pre>'
        elif isinstance(self.content, Table):
            chart = _table(self.content)
        else:
            chart += f"<details><summary>Values of this chart</summary>{_table(values(self.content))}</details>"
        kinds = ["chart"] * self.is_chart + ["half"] * self.half
        return f'<section class="{" ".join(kinds)}"><h2>{html.escape(self.title)}</h2>{chart}</section>\n'

    @property
    def is_chart(self) -> bool:
        return not isinstance(self.content, str | Table)


def _table(table: Table) -> str:
    return f'<div class="scroll" tabindex="0">{table._repr_html_()}</div>'


def _settings(folder: Path) -> Section:
    rows = [[name, str(value)] for name, value in read_settings(folder).items() if value is not None]
    return Section("Settings", Table(["setting", "value"], rows, align="ll"))


# ------------------------------------------------------------------------------------------------------------ contents
def run_sections(folder: Path) -> list[Section]:
    """A training run: returns with quantiles, validation, the learner, speed, settings."""
    rows = read_metrics(folder / "metrics.csv")
    if not rows:
        raise InputError(f"{folder} has no metrics yet: nothing to report")
    m = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    episodes, median = m["episodes"], m["return_median"]
    lines = [
        Curve("mean of the last 1000", episodes, m["return_window"]),
        Curve("median of an update, down to 5% quantile", episodes, median, m["return_q05"], median),
    ]
    if np.isfinite(m["validation"]).any():
        lines.append(Curve("validation, greedy", episodes, m["validation"]))
    summary = read_summary(folder)
    facts = [
        ["status", summary["status"]],
        ["episodes", f"{summary['episodes']:,}"],
        ["time", duration(summary["seconds"])],
        ["mean return of the last 1000 episodes", fixed(summary["last"])],
        ["best such mean", fixed(summary["best"])],
    ]
    charts = {name: curves("episodes", "", [Curve(name, episodes, m[key])], 200) for key, name in LEARNING.items()}
    return [
        Section("The run", Table(["", ""], facts, align="ll")),
        Section("Return", curves("episodes", "return of an episode", lines)),
        *(Section(name, chart, half=True) for name, chart in charts.items()),
        _settings(folder),
    ]


def search_sections(folder: Path) -> list[Section]:
    """A search: verdict, values with intervals, P(best), precedences, learning curves by order, settings."""
    try:
        summary = json.loads((folder / "summary.json").read_text())
        classes = sorted(summary["classes"], key=lambda c: -c["value"])
        rows = [Estimate(c["order"], c["value"], c["low"], c["high"], f"P(best) {fixed(c['p_best'])}") for c in classes]
        effects = sorted(summary["precedences"], key=lambda p: -abs(p["effect"]))
        before = [Estimate(f"{p['before']} before {p['after']}", p["effect"], p["low"], p["high"]) for p in effects]
        learned, verdict = summary["curves"], summary["verdict"]
        table = Table(["order", "value", "low", "high", "P(best)", "episodes"],
                      [[c["order"], *(fixed(c[key]) for key in ("value", "low", "high", "p_best")), c["episodes"]]
                       for c in classes])  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder / 'summary.json'} cannot be used: {error!r}") from error
    shown = rows[:MOST_ORDERS]
    chances = [Estimate(c["order"], c["p_best"], 0.0, c["p_best"]) for c in classes[:MOST_ORDERS]]
    sections = [
        Section("Verdict", verdict),
        Section("Value of each order, 95% interval", estimates("return of an episode", shown)),
        Section("Probability that it is the best", estimates("P(best)", chances), half=True),
    ]
    if before:
        chart = estimates("points", before, zero=True)
        sections.append(Section("Effect of repairing one before another, 95% interval", chart, half=True))
    if learned.get("values"):
        values = np.array(learned["values"], float)
        values = values.min(axis=1) if summary["goal"] == "worst" else values.mean(axis=1)
        x = np.array(learned["episodes"], float)
        left_out = {c["order"] for c in classes[MOST_CURVES:]}
        lines = [Curve(o, x, values[:, k]) for k, o in enumerate(learned["orders"]) if o not in left_out]
        title = f"Value over training{f': the best {MOST_CURVES} orders' if left_out else ''}"
        sections.append(Section(title, curves("episodes", "return of an episode", lines, 380)))
    return [*sections, Section("All orders that were judged", table), _settings(folder)]


def exploit_sections(folder: Path) -> list[Section]:
    """Attackers that learned against a policy: what the strongest does to it, returns, learning curves, settings."""
    result: dict[str, Any] = {"words": [], "against": []}  # while it trains
    path = folder / "exploit.json"
    try:
        result = json.loads(path.read_text()) if path.exists() else result
        said = "\n".join(result["words"])
        rows = [[_figure(cell[name]) for name in AGAINST_COLUMNS] for cell in result["against"]]
        means = []
        for cell in result["against"]:
            low, high = cell["mean"] - (half := cell["interval"] or 0.0), cell["mean"] + half
            means.append(Estimate(cell["red"], cell["mean"], low, high, f"5% quantile {fixed(cell['q05'])}"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} cannot be used: {error!r}") from error
    lines = []
    for run in sorted(folder.glob("seed*/metrics.csv")):
        if found := read_metrics(run):
            x, y = (np.array([row[key] for row in found]) for key in ("episodes", "return_window"))
            lines.append(Curve(run.parent.name, x, y))
    if not lines:
        raise InputError(f"{folder} has no metrics yet: nothing to report")
    trained = curves("episodes", "return of the attacker", lines)
    judged = [
        Section("What the strongest attacker does", said),
        Section("Return of the policy against each attacker, 95% interval", estimates("return of an episode", means)),
        Section("Against each attacker", Table(list(AGAINST_COLUMNS.values()), rows)),
    ]
    return [*(judged if rows else []), Section("Trainings, mean of the last 1000 episodes", trained), _settings(folder)]


def comparison_sections(folders: Sequence[Path], episodes: int) -> list[Section]:
    """Training runs side by side: what differs, curves over each other, greedy play on common seeds."""
    metrics = {folder.name: read_metrics(folder / "metrics.csv") for folder in folders}
    lines = [
        Curve(name, *(np.array([row[key] for row in rows]) for key in ("episodes", "return_window")))
        for name, rows in metrics.items()
    ]
    settings = [read_settings(folder) for folder in folders]
    parts = [Section("Mean return of the last 1000 episodes", curves("episodes", "return of an episode", lines, 420))]
    if all(s.get(name) == settings[0].get(name) for s in settings for name in WORLD) and not settings[0].get(
        "horizons"
    ):
        parts.append(_evaluated(folders, settings[0], episodes))
    return [*parts, Section("Comparison", compare(folders), kind="table")]


def _evaluated(folders: Sequence[Path], world: dict[str, Any], episodes: int) -> Section:
    """Differences of greedy returns to the first run, in the same episodes."""
    from stockade.learn.agents import load
    from stockade.learn.evaluate import mean_interval, play

    found = []
    for folder in folders:
        agent = load(folder, folder.parent, rules=world["rules"])
        found.append(play(agent, world["red"], world["horizon"], episodes, EVALUATION_SEED, world["rules"]))
    rows = []
    for folder, returns in zip(folders, found, strict=True):
        gain, half = mean_interval(returns - found[0])
        rows.append(
            Estimate(folder.name, gain, gain - half, gain + half, f"return {interval(*mean_interval(returns))}")
        )
    title = f"Greedy play, {plural(episodes, 'common episode')}: difference to {folders[0].name}, 95% interval"
    return Section(title, estimates("points", rows, zero=True))


def evaluation_sections(path: Path) -> list[Section]:
    """The result of an evaluation: the challenge's cells, or those of the robustness suite if it was played."""
    try:
        content = json.loads(path.read_text("utf-8"))
        suite = content.get("robustness")
        cells = suite["cells"] if suite else content["cells"]
        columns = SUITE_COLUMNS if suite else CELL_COLUMNS
        rows = [[_figure(cell[name]) for name in columns] for cell in cells]
        means = []
        for cell in cells:
            name, half = f"{cell.get('attacker', cell['red'])}, {cell['horizon']}", cell["interval"] or 0.0
            low, high, tail = cell["mean"] - half, cell["mean"] + half, f"5% quantile {fixed(cell['q05'])}"
            means.append(Estimate(name, cell["mean"], low, high, tail))
        total = f"{fixed(content['total'])} ± {_figure(content['total_interval'])}"
        settings = [[name, str(content[name])] for name in ("policy", "style", "rules", "episodes", "chance", "seed")]
        said = [Section(f"Robustness suite, version {suite['version']}", suite["summary"])] if suite else []
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no result of stockade evaluate --json: {error!r}") from error
    return [
        *said,
        Section("Mean return of each cell, 95% interval", estimates("return of an episode", means)),
        Section("All cells", Table(list(columns.values()), rows)),
        Section("The evaluation", Table(["", ""], [["total of nine cells", total], *settings], align="ll")),
    ]


def _figure(value: Any) -> Any:
    return fixed(value) if isinstance(value, float) else "n/a" if value is None else value


# ------------------------------------------------------------------------------------------------------------ the page
def report(sources: Sequence[Path], episodes: int = 1000) -> str:
    """The page of a folder in runs/, of an evaluation's file, or of runs compared by so many episodes."""
    try:
        from bokeh.embed import components
        from bokeh.resources import Resources
    except ModuleNotFoundError as error:
        raise missing_package(error) from error

    what, sections = _content(sources, episodes)
    script, places = components([section.content for section in sections if section.is_chart])
    charts = iter(places)
    body = "".join(section.html(next(charts) if section.is_chart else "") for section in sections)
    parts = {
        "title": html.escape(" and ".join(source.name for source in sources)),
        "subtitle": html.escape(what),
        "style": (files("stockade.report") / "report.css").read_text("utf-8"),
        "library": Resources(mode="inline", components=["bokeh"]).render(),
        "body": body,
        "script": script,
    }
    template = (files("stockade.report") / "report.html").read_text("utf-8")
    return re.sub(r"@(\w+)@", lambda place: parts[place[1]], template)


def _content(sources: Sequence[Path], episodes: int) -> tuple[str, list[Section]]:
    """What a page is about, and its sections."""
    pages: dict[str, tuple[str, Callable[[Path], list[Section]]]] = {
        "train": ("training run", run_sections),
        "search": ("search", search_sections),
        "exploit": ("attackers that learned against a policy", exploit_sections),
        "evaluate": ("evaluation", evaluation_sections),
    }
    commands = ["evaluate" if source.is_file() else command_of(source) for source in sources]
    if len(sources) == 1:
        what, make = pages[commands[0]]
        return what, make(sources[0])
    if set(commands) != {"train"}:
        raise InputError("only training runs are compared: name runs, or one search, evaluation or result of exploit")
    return f"comparison of {plural(len(sources), 'run')}", comparison_sections(sources, episodes)


@dataclass(frozen=True)
class Report:
    """Write a page about a run, a search, an evaluation or a result of exploit: charts, settings. Runs are compared."""

    names: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME [NAME ...]", help_behavior_hint="")
    ]
    """Runs, a search, a result of exploit: names or folders; or the file that `stockade evaluate --json FILE` wrote."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Write the page here. Default: report.html in the folder of the first; of FILE.json it is FILE.html."""
    open: bool = False  # Open the page in the browser.
    # Episodes of greedy play by which several runs are compared.
    episodes: Annotated[int, tyro.conf.arg(aliases=["--n-eval-episodes"])] = 1000
    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs")  # Folder of all runs.

    def run(self) -> int:
        check_runs(self.runs)
        if not self.names:
            raise InputError("name a run, a search or the file of an evaluation")
        sources = [path if (path := Path(name)).is_file() else find_folder(name, self.runs) for name in self.names]
        first = sources[0]
        out = self.out or (first.with_suffix(".html") if first.is_file() else first / "report.html")
        check_writable(out, "--out")
        write_durably(out.resolve(), report(sources, self.episodes).encode())
        print(f"page: {out}")
        if self.open:
            webbrowser.open(out.resolve().as_uri())
        return 0
