"""The pictures of the pages: results -> a Matplotlib figure, or None without figures -> an SVG and a PDF file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from common import Results, figures, in_order

from stockade import figures as paper
from stockade.bench.result import Figure, find, name_of
from stockade.files import write_durably

_BLUE, _RED, _GREEN, _PURPLE, _ORANGE, _SKY = paper.COLOURS
OURS = {"native": _BLUE, "serial": paper.GREY, "pipes": _RED, "shared_memory": _ORANGE, "async": _GREEN,
        "ray": _PURPLE, "strict": _BLUE, "gp-ucb": _RED, "random": paper.GREY, "round-robin": _ORANGE}  # fmt: skip
"""Of our backends and of the ways to search, in all pictures."""
OTHERS = {"Gymnasium SyncVectorEnv": _SKY, "Gymnasium AsyncVectorEnv": "#882255", "PufferLib": paper.DARK,
          "Stable-Baselines3 DummyVecEnv": "#999933", "Stable-Baselines3 SubprocVecEnv": "#AA4499",
          "a core each": _SKY, "a process each": paper.DARK}  # fmt: skip
"""Of other libraries and of bounds: other dashes and hollow points, so that colour is not all that tells them apart."""
_WORLDS = {"built-in": "built-in world", "synthetic": "at the reference's cost"}
_MODES = {"twice a step": "true states twice a step", "every step": "true states every step"}
_PARTS = {"environment": _BLUE, "true states": _ORANGE, "messages": _RED, "waiting for the slowest": paper.PALE_GREY,
          "process management": _PURPLE}  # fmt: skip
_RULES = {"leaderboard": _RED, "current": _BLUE}
_FEW = 8  # Environments of the panel of crossings: with more of them all backends pass `serial` at the cheapest steps
_LEAST_POINTS = 0.01  # What the logarithmic axes of the search's quality end at: a policy may have no regret at all


@dataclass(frozen=True)
class Panel:
    """Curves of medians over the tag `x`, one per value of the tags `series`, with their ranges, or with `points` with
    a point for each round."""

    title: str
    found: Sequence[Figure]
    x: str
    x_label: str
    y_label: str
    series: tuple[str, ...] = ("backend",)
    log_y: bool = False
    points: bool = False

    def draw(self, axes: Any) -> None:
        """Into axes of Matplotlib; x is logarithmic and marked where something was measured, but for sigma."""
        from matplotlib.ticker import LogLocator

        lines: dict[str, list[Figure]] = {}
        for figure in self.found:
            tags = {tag: figure.tags[tag] for tag in self.series if tag in figure.tags}
            lines.setdefault(name_of(tags), []).append(figure)
        drawn: list[str] = []
        for name, members in lines.items():
            words = name.split(", ")
            ours = next((OURS[word] for word in words if word in OURS), "")
            colour = ours or next((OTHERS[word] for word in words if word in OTHERS), "black")
            dashes = (("-", "--", ":") if ours else ("-.",) * 3)[min(2, drawn.count(colour))]
            members.sort(key=lambda figure: float(figure.tags[self.x]))
            xs, ys = [f.tags[self.x] for f in members], [f.value for f in members]
            if self.points:
                axes.plot(xs, ys, dashes, linewidth=1.2, color=colour, label=name)
                each = [(x, value) for x, f in zip(xs, members, strict=True) for value in f.rounds]
                axes.plot(*zip(*each, strict=True), "o", ms=4, alpha=0.6, markeredgewidth=0, color=colour)
            else:
                face = colour if ours else "white"
                axes.plot(xs, ys, f"o{dashes}", ms=3.5, linewidth=1.2, mfc=face, color=colour, label=name)
                ends = [end for f in members for end in (min(f.rounds), max(f.rounds), np.nan)]
                axes.plot(np.repeat(xs, 3), ends, linewidth=1, color=colour)  # ranges, as one line with gaps
            drawn.append(colour)
        axes.set(title=self.title, xlabel=self.x_label, ylabel=self.y_label)
        if self.log_y:
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
            axes.yaxis.minorticks_off()
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: _number(value))
        if self.x != "sigma":
            marks = in_order(f.tags[self.x] for f in self.found)
            marks = marks[:: -(-len(marks) // 8)]
            axes.set_xscale("log")
            axes.set_xticks(marks, [_number(mark) for mark in marks])
            axes.xaxis.minorticks_off()


def _number(value: Any) -> str:
    return f"{value / 1e6:g} M" if value >= 1e6 else f"{value:,.10g}"


@paper.paper_style()
def throughput(results: Results) -> Any:
    """Steps per second over the number of environments: one panel for each mode and world."""
    found = figures(results, "throughput", "steps/s", world=tuple(_WORLDS))
    places = product(*(in_order(f.tags[tag] for f in found) for tag in ("mode", "world")))
    return _panels([
        Panel(f"{_WORLDS[str(w)]}: {_MODES.get(str(m), m)}", find(found, mode=m, world=w), "n_envs", "environments",
              "steps/s", log_y=w == "built-in") for m, w in places])  # fmt: skip


@paper.paper_style()
def stragglers(results: Results) -> Any:
    """What is left of the cores when step times vary, beside what theory allows, and what `async` gains."""
    x = "spread of the step times: sigma of their logarithm"
    shares, gains = (figures(results, "stragglers", unit) for unit in ("of the cores", "times"))
    return _panels([
        Panel("share of the cores that steps", shares, "sigma", x, "of the cores", ("kind", "backend")),
        Panel("speed beside shared_memory", gains, "sigma", x, "times")])  # fmt: skip


@paper.paper_style()
def scaling(results: Results) -> Any:
    """Native worlds up to a million; backends over environments, over workers, and over the cost of a step."""
    found = figures(results, "scaling")
    few = min((int(f.tags["n_envs"]) for f in find(found, part="takeover")), key=lambda n: abs(n - _FEW), default=0)
    native, workers = find(found, "steps/s", part="native"), find(found, "of the cores", part="workers")
    slow, takeover = find(found, "steps/s", part="n_envs", world="synthetic"), find(found, "times", n_envs=few)
    return _panels([
        Panel("native worlds", native, "n_envs", "worlds", "steps/s", ("backend", "threads")),
        Panel("more environments as slow as the reference", slow, "n_envs", "environments", "steps/s"),
        Panel("more workers", workers, "workers", "workers", "of the cores", ("backend", "step_us")),
        Panel(f"longer steps, {few} environments", takeover, "step_us", "microseconds per step", "times serial"),
    ])  # fmt: skip


@paper.paper_style()
def memory(results: Results) -> Any:
    """What the environments add to the memory of all processes, over their number."""
    found = [f for f in figures(results, "memory", "MiB", part="all") if f.value > 0]
    panel = Panel("proportional set size: shared pages count once", found, "n_envs", "environments", "MiB", log_y=True)
    return _panels([panel])


@paper.paper_style()
def search_quality(results: Results) -> Any:
    """Regret and error of searches over their budgets, one line per method: two panels for each attacker."""
    found = [f.turned_into("points", lambda value: max(value, _LEAST_POINTS))
             for f in figures(results, "search-quality", "points")]  # fmt: skip
    labels = {"regret": "regret of the delivered policy", "RMSE": "error of the reported values (RMSE)"}
    return _panels([
        Panel(f"{red}: {label}", find(found, red=red, part=part), "budget", "training episodes",
              f"points ({_LEAST_POINTS} or less at the bottom)", ("method",), log_y=True, points=True)
        for red, (part, label) in product(in_order(f.tags["red"] for f in found), labels.items())])  # fmt: skip


@paper.paper_style()
def bottleneck(results: Results) -> Any:
    """Where the time of a step goes: one bar for each backend and mode, summing to 100%."""
    bars: dict[str, dict[str, dict[str, float]]] = {}
    for f in figures(results, "bottleneck", "% of the time"):
        bar = bars.setdefault(f.tags["world"], {}).setdefault(f"{f.tags['backend']}, {f.tags['mode']}", {})
        bar[f.tags["part"]] = f.value
    if not bars:
        return None
    counts = [len(names) for names in bars.values()]
    picture = paper.new_figure(0.2 * sum(counts) + 0.7 * len(bars) + 0.8)
    panels = picture.subplots(len(bars), 1, squeeze=False, gridspec_kw={"height_ratios": [c + 1 for c in counts]}).flat
    for axes, (world, names) in zip(panels, bars.items(), strict=True):
        left = [0.0] * len(names)
        for part, shade in _PARTS.items():
            widths = [shares.get(part, 0.0) for shares in names.values()]
            axes.barh(range(len(names)), widths, left=left, color=shade, height=0.75, label=part)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        axes.set(title=_WORLDS.get(world, world), xlabel="% of the time")
        axes.grid(visible=False, axis="y")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, 100)
    paper.legend_below(picture, *picture.axes)
    return picture


@paper.paper_style()
def champion_curves(runs: Sequence[dict[str, Any]], window: int) -> Any:
    """Training and, if there is any, validation of the runs of each rule set: mean and range over their seeds."""
    labels = {"training": f"mean return of the last {window:,}\ntraining episodes, sampled actions",
              "validation": "validation, greedy actions:\nsum of mean returns over all worlds"}  # fmt: skip
    panels = [what for what in labels if any(run[what] for run in runs)]
    picture = paper.new_figure(2.5 * len(panels) + 0.5)
    for axes, what in zip(picture.subplots(len(panels), 1, squeeze=False, sharex=True).flat, panels, strict=True):
        settled: list[float] = []
        for rules in dict.fromkeys([*_RULES, *(run["rules"] for run in runs)]):
            colour = _RULES.get(rules, "black")
            curves = [np.array(run[what], float) for run in runs if run["rules"] == rules and run[what]]
            if not curves:
                continue
            x = curves[0][:, 0]
            each = np.array([np.interp(x, curve[:, 0], curve[:, 2]) for curve in curves])
            axes.plot(x, each.mean(axis=0), color=colour, lw=1.5, label=f"rules {rules}: mean of {len(each)} seeds")
            axes.fill_between(x, each.min(axis=0), each.max(axis=0), color=colour, alpha=0.25, lw=0,
                              label=f"rules {rules}: range over seeds")  # fmt: skip
            settled += [each[:, len(x) // 8 :].min(), each.max()]  # what a beginner earns would squeeze the rest
        margin = 0.05 * (max(settled) - min(settled)) + 1e-3
        axes.set(xlim=(0, None), ylim=(min(settled) - margin, max(settled) + margin), ylabel=labels[what])
    axes.set_xlabel("training episodes")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    paper.legend_below(picture, *picture.axes)
    return picture


PICTURES: dict[str, Callable[[Results], Any]] = {  # By name of the file: docs/images/NAME.svg
    **{f"bench-{draw.__name__}": draw for draw in (throughput, bottleneck, stragglers, scaling, memory)},
    "search-quality": search_quality,
}


# ------------------------------------------------------------------------------------------------------ shared by all
def save(picture: Any, path: Path) -> None:
    """As SVG, and beside it as PDF; the same bytes with the same Matplotlib."""
    for kind in ("svg", "pdf"):
        write_durably(path.absolute().with_suffix(f".{kind}"), paper.rendered(picture, kind))


def _panels(panels: Sequence[Panel]) -> Any:
    shown = [panel for panel in panels if panel.found]
    if not shown:
        return None
    columns, lines = min(2, len(shown)), -(-len(shown) // 2)
    picture = paper.new_figure(2.5 * lines + 0.9, paper.WIDTH if columns > 1 else 0.7 * paper.WIDTH)
    places = list(picture.subplots(lines, columns, squeeze=False).flat)
    for axes, panel in zip(places, shown, strict=False):
        panel.draw(axes)
    for axes in places[len(shown) :]:
        axes.set_visible(False)
    paper.legend_below(picture, *places)
    return picture
