"""The pictures of a search, made of its summary alone.

summary.json -> pictures/values, learning, precedences; each as .png for the screen, .svg and .pdf for papers
"""

import json
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stockade import figures as paper
from stockade.errors import InputError
from stockade.text import fixed, plural

MAX_ORDERS, MAX_LINES, MAX_PRECEDENCES = 30, 60, 12  # rows of the pictures; lines of the labels of orders
FREE, LEADER = "no order", "best order of hosts"  # names of curves: the agent without an order, each round's best
_BAND = {"color": paper.COLOURS[4], "alpha": 0.3, "lw": 0}


@paper.paper_style()
def draw_search(folder: Path) -> list[Path]:
    """Draw a finished search: the PNG files in `folder / "pictures"`; beside each are an SVG and a PDF file.

    `learning` is left out if the summary has no curves, `precedences` if it has none (only one order was tried).
    InputError: Matplotlib is not installed, the summary is missing or damaged, or the files cannot be written.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    summary, pictures, files = folder / "summary.json", folder / "pictures", []
    try:
        found = _parse(json.loads(summary.read_text()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = f"no finished search: {summary} is missing, damaged or of another version ({error!r})"
        raise InputError(said) from error
    try:
        pictures.mkdir(exist_ok=True)
        for draw in (_values, _learning, _precedences):
            path = pictures / f"{draw.__name__[1:]}.png"
            draw(found, figure := paper.new_figure(1))
            if not figure.axes:  # the summary has nothing for it
                continue
            canvas = FigureCanvasAgg(figure)  # `savefig` would draw everything twice
            canvas.draw()
            Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]).quantize(128).save(path)  # palette
            figure.set_layout_engine("none")  # the layout is settled
            for kind in ("svg", "pdf"):
                path.with_suffix(f".{kind}").write_bytes(paper.rendered(figure, kind))
            files.append(path)
    except OSError as error:
        raise InputError(f"pictures cannot be written to {pictures}: {error}") from error
    return files


# ------------------------------------------------------------------------------------------------------- what is drawn
class _Row(NamedTuple):
    """An order or a precedence, with its 95% interval. strong: in the winning set, or an interval above 0."""

    label: str
    strong: bool
    value: float
    low: float
    high: float
    p_best: float = 0.0


class _Found(NamedTuple):
    """The part of summary.json that is drawn."""

    world: str  #: in words, with the goal if there are several attackers
    margin: float
    best: list[str]  #: the winning set, the likeliest best first
    free: float | None  #: value of the agent without an order
    orders: list[_Row]  #: the best first
    precedences: list[_Row]  #: the largest first
    episodes: np.ndarray  #: (rounds,)
    curves: dict[str, np.ndarray]  #: for each order by name (rounds,) values over training; NaN is unknown


def _parse(summary: dict[str, Any]) -> _Found:
    settings, best, free, curves = summary["settings"], summary["best"], summary["free_agent"], summary["curves"]
    orders, precedences = [], []
    for c in summary["classes"]:
        share = c["compliance"]  # said only where it is no rule
        note = "" if share == 1 else " (no fixes)" if share is None else f" ({share:.0%} compliant)"
        numbers = (float(c[key]) for key in ("value", "low", "high", "p_best"))
        orders.append(_Row(c["order"] + note, c["order"] in best, *numbers))
    if not orders:
        raise ValueError("no order was measured")
    for p in summary["precedences"]:
        effect, low, high = (float(p[key]) for key in ("effect", "low", "high"))
        precedences.append(_Row(f"{p['before']} before {p['after']}  {effect:+.1f}", low > 0, effect, low, high))
    reds, worst = settings["red"].replace(",", " and "), summary["goal"] == "worst"
    goal = "against" if " and " not in reds else f"{summary['goal']} of"
    values = np.array(curves.get("values") or np.empty((0, 1, len(curves["orders"]))), float)
    values = values.min(axis=1) if worst else values.mean(axis=1)  # over the attackers
    return _Found(
        f"{settings['horizon']} steps, {goal} {reds}", float(summary["margin"]), best, free and float(free["value"]),
        sorted(orders, key=lambda row: -row.value), sorted(precedences, key=lambda row: -abs(row.value)),
        np.reshape(curves.get("episodes", ()), len(values)), dict(zip(curves["orders"], values.T, strict=True)),
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ pictures
def _values(found: _Found, figure: Any) -> None:
    """Posterior of every order, the best on top, and the probability that it is the best."""
    labels = [_wrapped(row.label) for row in found.orders[:MAX_ORDERS]]
    lines = 1 + max(label.count("\n") for label in labels)
    rows = found.orders[: min(MAX_ORDERS, MAX_LINES // lines)]
    count = plural(len(rows), "order") if len(rows) == len(found.orders) else f"best {len(rows)} of {len(found.orders)}"
    _begin(figure, len(rows) * (0.15 * lines + 0.1))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(5, 1))
    left.axvspan(rows[0].value - found.margin, rows[0].value, label=f"within {found.margin:.2g} of the best", **_BAND)
    if found.free is not None:
        left.axvline(found.free, color=paper.DARK, ls="--", lw=1.1, label=f"{FREE} ({fixed(found.free, 1)})")
    _rows(left, rows, labels[: len(rows)], ("winning set", "other orders"))
    left.set_xlabel(f"reward per episode, 95% interval\n{found.world}; {count}")
    chances = [row.p_best for row in rows]
    bars = right.barh(range(len(rows)), chances, 0.6, color=[paper.BLUE if row.strong else paper.GREY for row in rows])
    right.bar_label(bars, [fixed(p) if p >= 0.005 else "" for p in chances], padding=3, fontsize=8)
    right.set(xlim=(0, 1.7 * max(*chances, 0.01)), xticks=[], xlabel="P(best)\n")  # with room for the numbers
    right.tick_params(axis="y", length=0)
    right.grid(visible=False)
    paper.legend_below(figure, left)


def _learning(found: _Found, figure: Any) -> None:
    """Values of all orders over training, the winning set in colours."""
    every = np.array(list(found.curves.values()))
    if not np.isfinite(every[:, -1:]).any():
        return
    _begin(figure, 3.2)
    axes = figure.subplots()
    marker = {"marker": "o", "ms": 2} if len(found.episodes) <= 30 else {}
    best = [name for name in (*found.best, LEADER) if name in found.curves]
    more, others = best[len(paper.COLOURS) :], [name for name in found.curves if name not in (*best, FREE)]
    groups = [([name], _wrapped(name), colour, 1.6) for name, colour in zip(best, paper.COLOURS, strict=False)]
    groups.append((more, f"others of the winning set ({len(more)})", paper.PALE_BLUE, 1.0))
    groups.append((others, f"other orders ({len(others)})", paper.PALE_GREY, 0.9))
    groups.append(([name for name in found.curves if name == FREE], FREE, paper.DARK, 1.3))
    for names, label, colour, width in groups:
        style = marker | {"color": colour, "lw": width, "zorder": 1 + width, "ls": "--" if label == FREE else "-"}
        for k, name in enumerate(names):
            axes.plot(found.episodes, found.curves[name], label="" if k else label, **style)
    # What beginners earn would squeeze the rest: the last third of the training decides what is shown.
    low, high = np.nanquantile(every[:, 2 * every.shape[1] // 3 :], 0.02), np.nanmax(every)
    space = 0.06 * (high - low) + 0.05
    axes.set(xlim=(0, None), ylim=(low - space, high + space), ylabel=f"reward per episode\n{found.world}")
    cut = f"; values below {fixed(low - space, 1)} are not shown" if np.nanmin(every) < low - space else ""
    axes.set_xlabel(f"training episodes of all orders{cut}")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    paper.legend_below(figure, axes)


def _precedences(found: _Found, figure: Any) -> None:
    """What each precedence is worth, the largest first."""
    if not found.precedences:
        return
    rows = found.precedences[:MAX_PRECEDENCES]
    shown = "" if len(rows) == len(found.precedences) else f"; largest {len(rows)} of {len(found.precedences)}"
    _begin(figure, 0.28 * len(rows))
    axes = figure.subplots()
    axes.axvspan(-found.margin, found.margin, label=f"within the margin of {found.margin:.2g}", **_BAND)
    axes.axvline(0, color=paper.DARK, lw=1)
    _rows(axes, rows, [row.label for row in rows], ("interval above 0", "interval contains 0"))
    axes.set_xlabel(f"difference in reward per episode, 95% interval\n{found.world}{shown}")
    paper.legend_below(figure, axes)


# --------------------------------------------------------------------------------------------------------------- parts
def _begin(figure: Any, height: float) -> None:
    """For panels of so many inches, with room for axis and legend."""
    figure.set_size_inches(paper.WIDTH, max(0.6, height) + 1.2)


def _rows(axes: Any, rows: list[_Row], labels: list[str], groups: tuple[str, str]) -> None:
    """A point with its interval per row, from the top: filled and blue, or hollow and grey."""
    for strong, colour, face, group in (
        (True, paper.BLUE, paper.BLUE, groups[0]),
        (False, paper.GREY, "white", groups[1]),
    ):
        places = [k for k, row in enumerate(rows) if row.strong == strong]
        if places:
            x, low, high = np.array([rows[k][2:5] for k in places]).T
            axes.hlines(places, low, high, color=colour, lw=1.8)
            axes.plot(x, places, "o", color=colour, mfc=face, ms=5.5, mew=1.5, label=group)
    axes.grid(visible=False, axis="y")
    axes.set(yticks=range(len(rows)), yticklabels=labels, ylim=(len(rows) - 0.4, -0.6))


def _wrapped(order: str) -> str:
    """An order in lines of at most 50 columns, none of which begins with `>`."""
    return textwrap.fill(order.replace(" > ", "\xa0> "), 50).replace("\xa0", " ")
