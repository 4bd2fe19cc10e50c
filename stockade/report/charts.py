"""Charts of a report, drawn by Bokeh: hover for values, drag or wheel to zoom, click a legend's entry to hide it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stockade.errors import missing_package
from stockade.figures import COLOURS, GREY
from stockade.text import Table

DASHES = ("solid", "dashed", "dotted", "dotdash")


class Curve(NamedTuple):
    """A line of a chart; with `low` and `high` a band around it."""

    name: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


class Estimate(NamedTuple):
    """A row of a chart of estimates: a value with its 95% interval."""

    name: str
    value: float
    low: float
    high: float
    note: str = ""


def curves(x_label: str, y_label: str, lines: Sequence[Curve], height: int = 340) -> Any:
    """Curves over each other."""
    figure = _figure(height, x_axis_label=x_label, y_axis_label=y_label)
    shown = []
    for k, line in enumerate(lines):
        label = line.name if len(line.name) <= 44 else f"{k + 1}. {textwrap.shorten(line.name, 40, placeholder=' ...')}"
        known = np.isfinite(line.x) & np.isfinite(line.y)
        data = {"x": line.x[known], "y": line.y[known], "name": [line.name] * int(known.sum())}
        colour, dash = COLOURS[k % len(COLOURS)], DASHES[k // len(COLOURS) % len(DASHES)]
        if line.low is not None and line.high is not None:
            figure.varea(line.x, line.low, line.high, color=colour, alpha=0.15, legend_label=label)
        draw = figure.scatter if known.sum() == 1 else figure.line
        source = _source(data)
        looks = {"color": colour, "legend_label": label, "source": source}
        shown.append(draw("x", "y", **looks, **({} if known.sum() == 1 else {"line_width": 2, "line_dash": dash})))
    _hover(figure, shown, [("", "@name"), (x_label, "@x{0,0}"), (y_label, "@y{0.000}")])
    if len(lines) > 1:  # below, where it hides no curve of a narrow page
        figure.height += 24 * len(lines)
        figure.add_layout(figure.legend[0], "below")
    figure.legend.click_policy, figure.legend.location, figure.legend.border_line_color = "hide", "top_left", None
    figure.legend.visible = len(lines) > 1
    for axis in (*figure.xaxis, *figure.yaxis):
        axis.formatter.use_scientific = False
    return figure


def estimates(x_label: str, rows: Sequence[Estimate], zero: bool = False) -> Any:
    """Values with intervals, one row each, the first on top."""
    names = [f"{k + 1}. {row.name}" for k, row in enumerate(rows)]  # different, whatever they are called
    places = [textwrap.fill(name, 26, max_lines=3, placeholder=" ...") for name in names]  # narrow pages have room
    lines = sum(1 + place.count("\n") for place in places)
    figure = _figure(90 + 12 * len(rows) + 14 * lines, x_axis_label=x_label, y_range=places[::-1])
    columns = {key: [getattr(row, key) for row in rows] for key in ("value", "low", "high", "note")}
    source = _source({"name": names, "place": places, **columns})
    figure.segment("low", "place", "high", "place", source=source, line_width=2.5, color=COLOURS[0])
    points = figure.scatter("value", "place", source=source, size=9, color=COLOURS[0])
    if zero:
        figure.segment([0], [places[-1]], [0], [places[0]], color=GREY, line_dash="dashed")
    _hover(figure, [points], [("", "@name"), ("value", "@value{0.00} (@low{0.00} to @high{0.00})"), ("", "@note")])
    return figure


def _figure(height: int, **options: Any) -> Any:
    try:
        from bokeh.plotting import figure
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    tools = "pan,wheel_zoom,box_zoom,reset,save"
    made: Any = figure(height=height, sizing_mode="stretch_width", tools=tools, toolbar_location="above", **options)
    made.toolbar.logo, made.xaxis.ticker.desired_num_ticks = None, 5
    made.outline_line_color = made.background_fill_color = made.border_fill_color = None  # the page's, light or dark
    return made


def values(figure: Any, most: int = 25) -> Table:
    """The numbers of a chart in words, for those who cannot see or point at it; curves are thinned to `most` rows."""
    sources = {id(r.data_source): r.data_source.data for r in figure.renderers if "name" in r.data_source.data}
    heads = [key for key in next(iter(sources.values())) if key not in ("name", "place")]
    rows = []
    for data in sources.values():
        for k in range(0, len(data["name"]), 1 if "low" in data else max(1, -(-len(data["name"]) // most))):
            cells = (data[key][k] for key in heads)
            rows.append([data["name"][k], *(cell if isinstance(cell, str) else _number(cell) for cell in cells)])
    axis = {"x": figure.xaxis.axis_label, "y": figure.yaxis.axis_label or "value"}
    return Table(["", *(axis.get(key, key) for key in heads)], rows, align="l" + "r" * len(heads))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _source(data: dict[str, Any]) -> Any:
    from bokeh.models import ColumnDataSource

    return ColumnDataSource(
        {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in data.items()}
    )


def _hover(figure: Any, glyphs: list[Any], tooltips: list[tuple[str, str]]) -> None:
    from bokeh.models import HoverTool

    figure.add_tools(HoverTool(renderers=glyphs, tooltips=tooltips))
