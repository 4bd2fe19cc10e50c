"""The pictures of docs/benchmarks.md, one function each: results -> a Matplotlib figure, or None without figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stockade.bench.figures import Figure
from stockade.bench.report_plots import COLOURS, count_axis, curves, legend_below, new_figure, plain, steps_axis
from stockade.bench.report_tables import Results, in_order

WORLDS = {"synthetic": "an environment that costs what the reference does", "built-in": "the built-in world"}
PARTS = {
    "environment": "#1f5fa8",
    "true states": "#d9730d",
    "messages": "#c0392b",
    "waiting for the slowest": "#b8bec6",
    "process management": "#7d3c98",
}
"""Of the time of a step, in the order in which they are drawn."""
_FEW = 8
"""Environments of the picture of crossings: with more of them all backends pass `serial` at the cheapest steps."""


def throughput(results: Results) -> Any:
    """Steps a second of all backends over the number of environments: a panel for each world and mode."""
    found = results.find("throughput", "steps/s", world=tuple(WORLDS))
    worlds, modes = (in_order(f.tags[tag] for f in found) for tag in ("world", "mode"))
    panels = [(str(world), str(mode)) for mode in modes for world in worlds]
    if not panels:
        return None
    columns = len(worlds)
    lines = -(-len(panels) // columns)
    figure = new_figure(5.4 * columns, 3.3 * lines + 0.9, "Throughput by backend and number of environments")
    places = list(figure.subplots(lines, columns, squeeze=False).flat)
    names = _names(found, _backend)
    for axes, (world, mode) in zip(places, panels, strict=True):
        shown = [f for f in found if (f.tags["world"], f.tags["mode"]) == (world, mode)]
        curves(axes, shown, "n_envs", _backend, names)
        plain(axes, f"{WORLDS.get(world, world)}: {mode}", "environments", "steps/s")
        if world == "built-in":  # the backends are orders of magnitude apart
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        count_axis(axes, (float(f.tags["n_envs"]) for f in shown))
    legend_below(figure, places)
    return figure


def bottleneck(results: Results) -> Any:
    """Where the time of a step goes: a bar for each backend, number of environments and mode, summing to 100%."""
    found = [f for f in results.find("bottleneck", part=tuple(PARTS)) if f.unit.startswith("%")]
    worlds = in_order(str(f.tags["world"]) for f in found)
    if not worlds:
        return None
    bars = {world: in_order(_bar(f) for f in found if f.tags["world"] == world) for world in worlds}
    counts = [len(bars[world]) for world in worlds]
    figure = new_figure(9, 0.24 * sum(counts) + 0.8 * len(worlds) + 1.2, "Where the time of a step goes")
    panels = figure.subplots(len(worlds), 1, squeeze=False, gridspec_kw={"height_ratios": [c + 1 for c in counts]})
    for axes, world in zip(panels.flat, worlds, strict=True):
        left = dict.fromkeys(bars[world], 0.0)
        for part, shade in PARTS.items():
            for f in found:
                if f.tags["world"] == world and f.tags["part"] == part:
                    bar = _bar(f)
                    label = part if bar == bars[world][0] else "_"
                    axes.barh(bars[world].index(bar), f.value, left=left[bar], color=shade, height=0.75, label=label)
                    left[bar] += f.value
        plain(axes, WORLDS.get(str(world), str(world)), "% of the time", "")
        axes.grid(visible=False, axis="y")
        axes.set_yticks(range(len(bars[world])), bars[world])
        axes.set_ylim(len(bars[world]) - 0.4, -0.6)
        axes.set_xlim(0, 100)
    legend_below(figure, panels.flat)
    return figure


def stragglers(results: Results) -> Any:
    """What is left of the cores when step times vary, beside what theory allows, and what `async` gains."""
    found = results.find("stragglers", "of the cores")
    gains = results.find("stragglers", "times")
    if not found:
        return None
    figure = new_figure(11, 4.4, "Stragglers: steps whose cost varies (lognormal, the same mean)")
    left, right = figure.subplots(1, 2)
    _curves_beside_bounds(left, found)
    plain(left, "share of the cores that steps", "spread of the step times: sigma of their logarithm", "of the cores")
    left.set_ylim(bottom=0)
    _curves_beside_bounds(right, gains)
    right.axhline(1.0, color="black", linewidth=0.7)
    compared = ", ".join(sorted({str(f.tags["to"]) for f in gains if "to" in f.tags}))
    plain(right, f"speed beside {compared}", "spread of the step times: sigma of their logarithm", "times")
    legend_below(figure, (left, right), columns=4)
    return figure


def _curves_beside_bounds(axes: Any, figures: Iterable[Figure]) -> None:
    found = list(figures)
    measured = [f for f in found if f.tags.get("kind") != "bound"]
    curves(axes, measured, "sigma", _backend, _names(measured, _backend))
    bounds = [f for f in found if f.tags.get("kind") == "bound"]
    styles = iter(("-.", (0, (1, 3))))
    for name in _names(bounds, _backend):
        points = sorted((float(f.tags["sigma"]), f.value) for f in bounds if _backend(f) == name)
        shade = COLOURS.get(name.split(",")[0])
        style: Any = ":" if shade else next(styles, ":")
        axes.plot(*zip(*points, strict=True), linestyle=style, color=shade or "black", linewidth=1.3,
                  label=f"bound: {name}")  # fmt: skip


def scaling(results: Results) -> Any:
    """Native worlds up to a million; backends over environments, over workers, and over the cost of a step."""
    takeover = results.find("scaling", "times", part="takeover")
    few = min((int(f.tags["n_envs"]) for f in takeover), key=lambda n: abs(n - _FEW), default=0)
    panels: list[tuple[str, list[Figure], str, Callable[[Figure], str], str, str]] = [
        ("native worlds", results.find("scaling", "steps/s", part="native"), "n_envs", _threads, "worlds", "steps/s"),
        (
            "more environments as slow as the reference",
            results.find("scaling", "steps/s", part="n_envs", world="synthetic"),
            "n_envs",
            _backend,
            "environments",
            "steps/s",
        ),
        (
            "more workers",
            results.find("scaling", "of the cores", part="workers"),
            "workers",
            _backend_of_cost,
            "workers",
            "of the cores",
        ),
        (
            f"longer steps: when a backend passes serial, {few} environments",
            [f for f in takeover if f.tags["n_envs"] == few],
            "step_us",
            _backend,
            "microseconds a step",
            "times serial",
        ),
    ]
    shown = [panel for panel in panels if panel[1]]
    if not shown:
        return None
    columns = min(2, len(shown))
    figure = new_figure(5.6 * columns, 3.6 * -(-len(shown) // columns) + 0.5, "Scaling")
    places = list(figure.subplots(-(-len(shown) // columns), columns, squeeze=False).flat)
    for axes, (title, figures, tag, series, x, y) in zip(places, shown, strict=False):
        curves(axes, figures, tag, series, _names(figures, series))
        plain(axes, title, x, y)
        count_axis(axes, (float(f.tags[tag]) for f in figures))
        if y == "times serial":
            axes.axhline(1.0, color="black", linewidth=0.7)
        steps_axis(axes)
        axes.legend(fontsize=7, frameon=False)
    for axes in places[len(shown) :]:
        axes.set_visible(False)
    return figure


def memory(results: Results) -> Any:
    """What the environments add to the memory of all processes, over their number."""
    found = results.find("memory", "MiB", part="all")
    if not found:
        return None
    figure = new_figure(7, 4.6, "Memory that environments add, all processes together")
    axes = figure.subplots()
    curves(axes, found, "n_envs", _backend, _names(found, _backend))
    plain(axes, "proportional set size (PSS): what is shared is counted once", "environments", "MiB")
    axes.set_yscale("log")
    count_axis(axes, (float(f.tags["n_envs"]) for f in found))
    legend_below(figure, [axes], columns=3)
    return figure


PICTURES: dict[str, Callable[[Results], Any]] = {
    "throughput": throughput,
    "bottleneck": bottleneck,
    "stragglers": stragglers,
    "scaling": scaling,
    "memory": memory,
}
"""By the name of the bench that they show."""


# --------------------------------------------------------------------------------------------------- names of curves
def _names(figures: Iterable[Figure], series: Callable[[Figure], str]) -> list[str]:
    """Ours first, in their usual order, then the others as they come."""
    names = list(dict.fromkeys(series(f) for f in figures))
    order = {name: place for place, name in enumerate(COLOURS)}
    return sorted(names, key=lambda name: order.get(name.split(",")[0], len(order)))


def _backend(figure: Figure) -> str:
    return str(figure.tags.get("backend", figure.what))


def _threads(figure: Figure) -> str:
    threads = figure.tags.get("threads", 1)
    return f"native, {threads} thread{'s' if threads != 1 else ''}"


def _backend_of_cost(figure: Figure) -> str:
    cost = figure.tags.get("step_us")
    return _backend(figure) + (f", {cost:,} microseconds a step" if cost is not None else "")


def _bar(figure: Figure) -> str:
    return f"{_backend(figure)}, {figure.tags['n_envs']} environments, {figure.tags['mode']}"
