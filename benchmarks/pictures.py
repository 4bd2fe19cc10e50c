"""The pictures of docs/benchmarks.md and docs/search.md: results -> a Matplotlib figure, or None without figures."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from common import Results, figures, in_order

from stockade.bench.result import Figure, find, name_of
from stockade.files import write_durably

COLOURS = {"native": "#1f5fa8", "serial": "#6b7480", "pipes": "#c0392b", "shared_memory": "#d9730d",
           "async": "#2e8b57", "ray": "#7d3c98",
           "strict": "#1f5fa8", "gp-ucb": "#c0392b", "random": "#6b7480", "round-robin": "#d9730d"}  # fmt: skip
"""Of our backends and of the ways to search, in all pictures. Other libraries are drawn in the colours below."""
_OTHERS = ("#8c9bab", "#b08968", "#9bb8a3", "#b59cc4", "#c9a0a0", "#7f8f8f", "#a3a65a")
_WORLDS = {"synthetic": "an environment that costs what the reference does", "built-in": "the built-in world"}
_PARTS = {"environment": "#1f5fa8", "true states": "#d9730d", "messages": "#c0392b",
          "waiting for the slowest": "#b8bec6", "process management": "#7d3c98"}  # fmt: skip
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
        lines: dict[str, list[Figure]] = {}
        for figure in self.found:
            tags = {tag: figure.tags[tag] for tag in self.series if tag in figure.tags}
            lines.setdefault(name_of(tags), []).append(figure)
        drawn: list[str] = []
        others = iter(_OTHERS)
        for name, members in lines.items():
            colour = next((COLOURS[word] for word in name.split(", ") if word in COLOURS), "") or next(others, "black")
            style = ("-" if colour in COLOURS.values() else "-.", "--", ":")[min(2, drawn.count(colour))]
            members.sort(key=lambda figure: float(figure.tags[self.x]))
            xs, ys = [f.tags[self.x] for f in members], [f.value for f in members]
            ranges = [[f.value - min(f.rounds) for f in members], [max(f.rounds) - f.value for f in members]]
            if self.points:
                axes.plot(xs, ys, style, linewidth=1.2, color=colour, label=name)
                each = [(x, value) for x, f in zip(xs, members, strict=True) for value in f.rounds]
                axes.plot(*zip(*each, strict=True), "o", ms=4, alpha=0.6, markeredgewidth=0, color=colour)
            else:
                axes.errorbar(xs, ys, yerr=ranges, fmt=f"o{style}", ms=3.5, linewidth=1.2, elinewidth=1, capsize=2,
                              color=colour, label=name)  # fmt: skip
            drawn.append(colour)
        plain(axes, self.title, self.x_label, self.y_label)
        if self.log_y:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g} M" if value >= 1e6 else f"{value:,.10g}")
        if self.x != "sigma":
            marks = in_order(f.tags[self.x] for f in self.found)
            marks = marks[:: -(-len(marks) // 8)]
            axes.set_xscale("log")
            axes.set_xticks(marks, [f"{mark:,}" for mark in marks])
            axes.xaxis.minorticks_off()


def throughput(results: Results) -> Any:
    """Steps per second over the number of environments: one panel for each mode and world."""
    found = figures(results, "throughput", "steps/s", world=tuple(_WORLDS))
    places = product(*(in_order(f.tags[tag] for f in found) for tag in ("mode", "world")))
    return _panels("Throughput by backend and number of environments", [
        Panel(f"{_WORLDS[str(w)]}: {m}", find(found, mode=m, world=w), "n_envs", "environments", "steps/s",
              log_y=w == "built-in") for m, w in places])  # fmt: skip


def stragglers(results: Results) -> Any:
    """What is left of the cores when step times vary, beside what theory allows, and what `async` gains."""
    x = "spread of the step times: sigma of their logarithm"
    shares, gains = (figures(results, "stragglers", unit) for unit in ("of the cores", "times"))
    return _panels("Stragglers: steps whose cost varies (lognormal, the same mean)", [
        Panel("share of the cores that steps", shares, "sigma", x, "of the cores", ("kind", "backend")),
        Panel("speed beside shared_memory", gains, "sigma", x, "times")])  # fmt: skip


def scaling(results: Results) -> Any:
    """Native worlds up to a million; backends over environments, over workers, and over the cost of a step."""
    found = figures(results, "scaling")
    few = min((int(f.tags["n_envs"]) for f in find(found, part="takeover")), key=lambda n: abs(n - _FEW), default=0)
    native, workers = find(found, "steps/s", part="native"), find(found, "of the cores", part="workers")
    slow, takeover = find(found, "steps/s", part="n_envs", world="synthetic"), find(found, "times", n_envs=few)
    return _panels("Scaling", [
        Panel("native worlds", native, "n_envs", "worlds", "steps/s", ("backend", "threads")),
        Panel("more environments as slow as the reference", slow, "n_envs", "environments", "steps/s"),
        Panel("more workers", workers, "workers", "workers", "of the cores", ("backend", "step_us")),
        Panel(f"longer steps, {few} environments", takeover, "step_us", "microseconds per step", "times serial"),
    ])  # fmt: skip


def memory(results: Results) -> Any:
    """What the environments add to the memory of all processes, over their number."""
    found = [f for f in figures(results, "memory", "MiB", part="all") if f.value > 0]
    panel = Panel("proportional set size: shared pages count once", found, "n_envs", "environments", "MiB", log_y=True)
    return _panels("Memory that environments add, all processes together", [panel])


def search_quality(results: Results) -> Any:
    """Regret and error of searches over their budgets, one line per method: two panels for each attacker."""
    found = [f.turned_into("points", lambda value: max(value, _LEAST_POINTS))
             for f in figures(results, "search-quality", "points")]  # fmt: skip
    labels = {"regret": "regret of the delivered policy", "RMSE": "error of the reported values (RMSE)"}
    return _panels("Searches against the brute-force truth, one point per seed", [
        Panel(f"{red}: {label}", find(found, red=red, part=part), "budget", "training episodes",
              f"points ({_LEAST_POINTS} or less at the bottom)", ("method",), log_y=True, points=True)
        for red, (part, label) in product(in_order(f.tags["red"] for f in found), labels.items())])  # fmt: skip


def bottleneck(results: Results) -> Any:
    """Where the time of a step goes: one bar for each backend and mode, summing to 100%."""
    bars: dict[str, dict[str, dict[str, float]]] = {}
    for f in figures(results, "bottleneck", "% of the time"):
        bar = bars.setdefault(f.tags["world"], {}).setdefault(f"{f.tags['backend']}, {f.tags['mode']}", {})
        bar[f.tags["part"]] = f.value
    if not bars:
        return None
    counts = [len(names) for names in bars.values()]
    picture = new_figure(9, 0.24 * sum(counts) + 0.8 * len(bars) + 1.2, "Where the time of a step goes")
    panels = picture.subplots(len(bars), 1, squeeze=False, gridspec_kw={"height_ratios": [c + 1 for c in counts]}).flat
    for axes, (world, names) in zip(panels, bars.items(), strict=True):
        left = [0.0] * len(names)
        for part, shade in _PARTS.items():
            widths = [shares.get(part, 0.0) for shares in names.values()]
            axes.barh(range(len(names)), widths, left=left, color=shade, height=0.75, label=part)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        plain(axes, _WORLDS.get(world, world), "% of the time", "")
        axes.grid(visible=False, axis="y")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_xlim(0, 100)
    legend_below(picture, panels)
    return picture


PICTURES: dict[str, Callable[[Results], Any]] = {  # By name of the file: docs/images/NAME.svg
    **{f"bench-{draw.__name__}": draw for draw in (throughput, bottleneck, stragglers, scaling, memory)},
    "search-quality": search_quality,
}


# ------------------------------------------------------------------------------------------------------ shared by all
def save(picture: Any, path: Path) -> None:
    """As SVG, the same bytes with the same Matplotlib: ids are salted with a constant and there is no date."""
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "stockade", "svg.fonttype": "path"}):
        picture.savefig(content, format="svg", metadata={"Date": None})
    write_durably(path.absolute(), content.getvalue())


def new_figure(width: float, height: float, title: str) -> Any:
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(width, height), layout="constrained")
    picture.suptitle(title, fontsize=11)
    return picture


def plain(axes: Any, title: str, x: str, y: str) -> None:
    """No box, a light grid behind, names."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e6e8eb", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(which="both", labelsize=7.5)


def legend_below(picture: Any, axes: Iterable[Any]) -> None:
    """One legend for all panels."""
    handles: dict[str, Any] = {}
    for each in axes:
        for handle, label in zip(*each.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    picture.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8, frameon=False)


def _panels(title: str, panels: Sequence[Panel]) -> Any:
    shown = [panel for panel in panels if panel.found]
    if not shown:
        return None
    columns, lines = min(2, len(shown)), -(-len(shown) // 2)
    picture = new_figure(5.6 * columns, 3.5 * lines + 1.0, title)
    places = list(picture.subplots(lines, columns, squeeze=False).flat)
    for axes, panel in zip(places, shown, strict=False):
        panel.draw(axes)
    for axes in places[len(shown) :]:
        axes.set_visible(False)
    legend_below(picture, places)
    return picture
