"""Charts of a report, drawn by Bokeh: hover for values, drag or wheel to zoom, click a legend's entry to hide it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stockade.errors import missing_package

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#666666")  # safe for the colour-blind
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
        known = np.isfinite(line.x) & np.isfinite(line.y)
        data = {"x": line.x[known], "y": line.y[known], "name": [line.name] * int(known.sum())}
        colour, dash = COLOURS[k % len(COLOURS)], DASHES[k // len(COLOURS) % len(DASHES)]
        if line.low is not None and line.high is not None:
            figure.varea(line.x, line.low, line.high, color=colour, alpha=0.15, legend_label=line.name)
        draw = figure.scatter if known.sum() == 1 else figure.line
        source = _source(data)
        looks = {"color": colour, "legend_label": line.name, "source": source}
        shown.append(draw("x", "y", **looks, **({} if known.sum() == 1 else {"line_width": 2, "line_dash": dash})))
    _hover(figure, shown, [("", "@name"), (x_label, "@x{0,0}"), (y_label, "@y{0.000}")])
    figure.legend.click_policy, figure.legend.location = "hide", "bottom_right"
    figure.legend.visible = len(lines) > 1
    for axis in (*figure.xaxis, *figure.yaxis):
        axis.formatter.use_scientific = False
    return figure


def estimates(x_label: str, rows: Sequence[Estimate], zero: bool = False) -> Any:
    """Values with intervals, one row each, the first on top."""
    names = [f"{k + 1}. {row.name}" for k, row in enumerate(rows)]  # different, whatever they are called
    figure = _figure(90 + 26 * len(rows), x_axis_label=x_label, y_range=names[::-1])
    columns = {key: [getattr(row, key) for row in rows] for key in ("value", "low", "high", "note")}
    source = _source({"name": names, **columns})
    figure.segment("low", "name", "high", "name", source=source, line_width=2.5, color=COLOURS[0])
    points = figure.scatter("value", "name", source=source, size=9, color=COLOURS[0])
    if zero:
        figure.segment([0], [names[-1]], [0], [names[0]], color="#333333", line_dash="dashed")
    _hover(figure, [points], [("", "@name"), ("value", "@value{0.00} (@low{0.00} to @high{0.00})"), ("", "@note")])
    return figure


def _figure(height: int, **options: Any) -> Any:
    try:
        from bokeh.plotting import figure
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    tools = "pan,wheel_zoom,box_zoom,reset,save"
    made = figure(height=height, sizing_mode="stretch_width", tools=tools, toolbar_location="above", **options)
    made.toolbar.logo = None
    made.outline_line_color = None
    return made


def _source(data: dict[str, Any]) -> Any:
    from bokeh.models import ColumnDataSource

    return ColumnDataSource(
        {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in data.items()}
    )


def _hover(figure: Any, glyphs: list[Any], tooltips: list[tuple[str, str]]) -> None:
    from bokeh.models import HoverTool

    figure.add_tools(HoverTool(renderers=glyphs, tooltips=tooltips))
