"""What all pictures of the benchmarks have in common: colours, axes, curves with ranges, files that repeat exactly.

The same results give the same bytes with the same Matplotlib: ids are salted with a constant and there is no date.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from stockade.bench.figures import Figure
from stockade.errors import InputError
from stockade.learn.files import write_durably

COLOURS = {
    "native": "#1f5fa8",
    "serial": "#6b7480",
    "pipes": "#c0392b",
    "shared_memory": "#d9730d",
    "async": "#2e8b57",
    "ray": "#7d3c98",
}
"""Of our backends, in all pictures. Other libraries are drawn in the colours below, with broken lines."""
_OTHERS = ("#8c9bab", "#b08968", "#9bb8a3", "#b59cc4", "#c9a0a0", "#7f8f8f", "#a3a65a")


def require_matplotlib() -> None:
    """Refuse at once where nothing can be drawn.

    Raises:
        InputError: it is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            f"pictures need {error.name}, which is not installed: pip install 'stockade[plots]'"
        ) from error


def save(figure: Any, path: Path) -> None:
    """Write the SVG file."""
    import matplotlib

    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "stockade", "svg.fonttype": "path"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    write_durably(path.absolute(), content.getvalue())


def new_figure(width: float, height: float, title: str) -> Any:
    """An empty picture."""
    from matplotlib.figure import Figure as Picture

    figure = Picture(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure


def plain(axes: Any, title: str, x: str, y: str) -> None:
    """No box, a light grid behind, names."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e6e8eb", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(which="both", labelsize=7.5)


def colour(name: str, names: Sequence[str]) -> str:
    """Of a backend, whatever is said of it besides, or another library; `names` are all in the picture."""
    others = [other for other in names if _backend(other) is None]
    return COLOURS.get(_backend(name) or "") or _OTHERS[others.index(name) % len(_OTHERS)]


def _backend(name: str) -> str | None:
    """Of a name such as `pipes` or `pipes, a process each`."""
    first = name.split(",")[0]
    return first if first in COLOURS else None


def curves(axes: Any, figures: Iterable[Figure], x: str, series: Callable[[Figure], str], names: Sequence[str]) -> None:
    """A curve of medians for each of the names that `series` gives, over the tag `x`, with the ranges as bars."""
    found = list(figures)
    for name in names:
        points = sorted((float(f.tags[x]), f.value, f.low, f.high) for f in found if series(f) == name)
        if not points:
            continue
        xs, ys, lows, highs = zip(*points, strict=True)
        below = [max(0.0, y - low) for y, low in zip(ys, lows, strict=True)]
        above = [max(0.0, high - y) for y, high in zip(ys, highs, strict=True)]
        alike = [other for other in names if colour(other, names) == colour(name, names)]
        styles = ("-", "--", ":") if _backend(name) else ("--", "-.", ":")
        style = styles[min(2, alike.index(name))]
        axes.errorbar(xs, ys, yerr=[below, above], fmt=f"o{style}", ms=3.5, linewidth=1.2, elinewidth=1, capsize=2,
                      color=colour(name, names), label=name)  # fmt: skip


def steps_axis(axes: Any) -> None:
    """A linear axis of steps a second, from 0, with M for millions in place of powers of ten."""
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1e6:g} M" if value >= 1e6 else f"{value:,.10g}")


def count_axis(axes: Any, counts: Iterable[float]) -> None:
    """A logarithmic axis of counts, marked where something was measured."""
    marks = sorted(set(counts))
    axes.set_xscale("log")
    while len(marks) > 8:
        marks = marks[::2]
    axes.set_xticks(marks, [f"{mark:,.0f}" for mark in marks])
    axes.xaxis.minorticks_off()


def legend_below(figure: Any, axes: Iterable[Any], columns: int = 5) -> None:
    """One legend for all panels."""
    handles: dict[str, Any] = {}
    for each in axes:
        for handle, label in zip(*each.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=8,
                  frameon=False)  # fmt: skip
