"""The pictures of a search: how each workflow learned, what the model thinks of all orders, what the budget bought.

summary.json, training_log.csv -> pictures/curves, posterior, best; each as .png and .svg
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stockade.errors import InputError

MAX_PANELS = 30
"""Classes of orders that get a panel in the picture of the curves."""
MAX_NUMBERS = 60
"""Trainings up to which each has its number in the picture of the budget."""
_BLUE, _ORANGE, _RED, _GREY = "#1f5fa8", "#d9730d", "#c0392b", "#b8bec6"
_Z95 = 1.96


def draw_search(folder: Path) -> list[Path]:
    """Draw all pictures of a search that has finished a workflow; the PNG files.

    Raises:
        InputError: Matplotlib is not installed, or the folder has no results.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError as error:
        raise InputError(
            f"pictures need {error.name}, which is not installed: pip install 'stockade[plots]'"
        ) from error
    search = _Search.read(folder)
    files = []
    for name, draw in (("curves", _curves), ("posterior", _posterior), ("best", _best)):
        figure = draw(search)
        where = folder / "pictures" / name
        where.parent.mkdir(exist_ok=True)
        figure.savefig(where.with_suffix(".svg"))
        figure.savefig(where.with_suffix(".png"), dpi=150)
        files.append(where.with_suffix(".png"))
    return files


@dataclass(frozen=True)
class _Search:
    """What is drawn.

    Attributes:
        title: of the pictures.
        summary: content of summary.json.
        updates: of each training, rows of training_log.csv as (episodes, env_reward, compliance).
    """

    title: str
    summary: dict[str, Any]
    updates: dict[int, list[tuple[float, float, float]]]

    @classmethod
    def read(cls, folder: Path) -> _Search:
        try:
            summary = json.loads((folder / "summary.json").read_text())
            with (folder / "training_log.csv").open() as file:
                rows = list(csv.DictReader(file))
        except (OSError, ValueError) as error:
            raise InputError(f"{folder} has no results that could be drawn: {error}") from error
        if not summary["workflows"]:
            raise InputError(f"{folder} has no finished workflow that could be drawn")
        updates: dict[int, list[tuple[float, float, float]]] = {w["number"]: [] for w in summary["workflows"]}
        for row in rows:
            if int(row["number"]) in updates:
                cells = (float(row[name] or "nan") for name in ("episodes", "env_reward", "compliance"))
                episodes, reward, compliance = cells
                updates[int(row["number"])].append((episodes, reward, compliance))
        settings = summary["settings"]
        title = (
            f"{folder.resolve().name}: red {settings['red_agent']}, rules {settings['rules']}, seed {settings['seed']}"
        )
        return cls(title, summary, updates)

    def label(self, order: str) -> str:
        """The types of an order that matter, if any do."""
        kept = [unit for unit in order.split(" > ") if self.summary["matters"][unit]]
        return " > ".join(kept) or order

    def heading(self, row: dict[str, Any]) -> str:
        """An entry of the ranking in two lines."""
        place = f"{row['rank']}." if row["rank"] is not None else "not complied with:"
        return f"{place} {row['name'] or ''}\n{self.label(row['order'])}"


def _figure(width: float, height: float, title: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, fontsize=11)
    return figure


def _plain(axes: Any) -> None:
    """No box, a light grid behind."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e6e8eb", linewidth=0.6)
    axes.set_axisbelow(True)


# ----------------------------------------------------------------------------------------------------------- learning
def _curves(search: _Search) -> Any:
    """A panel for each class that was tried, best first: reward and compliance of its trainings."""
    from matplotlib.lines import Line2D

    ranking = search.summary["ranking"]
    shown = ranking[:MAX_PANELS]
    columns = _columns(len(shown))
    lines = -(-len(shown) // columns)
    title = f"{search.title}\nlearning and compliance of the workflows, best first"
    if len(shown) < len(ranking):
        title += f" ({len(shown)} of {len(ranking)})"
    figure = _figure(3.1 * columns + 0.6, 2.1 * lines + 1.1, title)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    low, high = _reward_limits(search)
    threshold = search.summary["settings"]["compliance_threshold"]
    for k, axes in enumerate(panels.flat):
        if k >= len(shown):
            axes.set_visible(False)
            continue
        _plain(axes)
        right = axes.twinx()
        right.set_ylim(0, 1.02)
        right.spines[["top"]].set_visible(False)
        right.tick_params(labelsize=7, colors=_ORANGE, labelright=k % columns == columns - 1 or k == len(shown) - 1)
        right.axhline(threshold, color=_ORANGE, linewidth=0.7, linestyle=":")
        for number in shown[k]["trainings"]:
            episodes, rewards, rates = (
                zip(*search.updates[number], strict=True) if search.updates[number] else ((),) * 3
            )
            axes.plot(episodes, rewards, color=_BLUE, linewidth=1.1, alpha=0.8)
            right.plot(episodes, rates, color=_ORANGE, linewidth=1.1, alpha=0.8)
        axes.set_ylim(low, high)
        axes.tick_params(labelsize=7)
        axes.tick_params(axis="y", colors=_BLUE)
        axes.set_title(
            search.heading(shown[k]), fontsize=7.5, loc="left", color="black" if shown[k]["feasible"] else _RED
        )
        if k + columns >= len(shown):
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("episodes of the training", fontsize=7.5)
    figure.supylabel("environment reward an episode", fontsize=9, color=_BLUE)
    handles = [
        Line2D([], [], color=_BLUE, label="environment reward (left)"),
        Line2D([], [], color=_ORANGE, label="compliance (right)"),
        Line2D([], [], color=_ORANGE, linestyle=":", label=f"threshold {threshold:g}"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def _columns(panels: int) -> int:
    """As many as leave the fewest places empty."""
    if panels < 4:
        return panels
    return min((3, 2) if panels <= 9 else (6, 5, 4), key=lambda columns: -panels % columns)


def _reward_limits(search: _Search) -> tuple[float, float]:
    """Of the rewards, without the first quarter of each training: what a beginner earns would squeeze the rest."""
    later = [row[1] for rows in search.updates.values() for row in rows[len(rows) // 4 :] if not math.isnan(row[1])]
    if not later:
        return -1.0, 0.0
    margin = 0.06 * (max(later) - min(later)) + 1e-3
    return min(later) - margin, max(later) + margin


# ---------------------------------------------------------------------------------------------------------- posterior
def _posterior(search: _Search) -> Any:
    """All orders, or classes of equal ones, by the mean of the model, with intervals and what was measured."""
    rows = _classes(search)
    ranked = {order: row for row in search.summary["ranking"] for order in row["members"]}
    orders = len(search.summary["posterior"])
    sizes = f"{len(rows)} classes of {orders // len(rows)} equal orders" if len(rows) < orders else f"{orders} orders"
    figure = _figure(10, 0.19 * len(rows) + 2.3, f"{search.title}\nwhat the model thinks of all {sizes}")
    axes = figure.subplots()
    _plain(axes)
    by_number = {w["number"]: w for w in search.summary["workflows"]}
    labels = []
    for place, row in enumerate(rows):
        tried = ranked.get(row["order"])
        colour = _GREY if tried is None else _BLUE if tried["feasible"] else _RED
        if row["mean"] is not None:
            face = "white" if tried is None else colour
            axes.errorbar(row["mean"], place, xerr=_Z95 * row["sd"], fmt="o", ms=5, mfc=face, mec=colour, ecolor=colour,
                          elinewidth=1.2)  # fmt: skip
        for number in tried["trainings"] if tried else ():
            trained = by_number[number]
            mark = "|" if trained["feasible"] else "x"
            axes.plot(trained["value"], place, mark, ms=8, color="black" if trained["feasible"] else _RED, zorder=3)
        names = " = ".join(row["names"])
        labels.append(f"{search.label(row['order'])}{f'  ({names})' if names else ''}")
    axes.set_yticks(range(len(rows)), labels, fontsize=7 if len(rows) <= 60 else 6)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlabel("environment reward an episode")
    _legend_of_posterior(figure)
    return figure


def _legend_of_posterior(figure: Any) -> None:
    from matplotlib.lines import Line2D

    def mark(colour: str, face: str, text: str) -> Any:
        return Line2D([], [], marker="o", color=colour, mfc=face, mec=colour, label=text)

    handles = [
        mark(_BLUE, _BLUE, "tried and complied with"),
        mark(_RED, _RED, "tried, not complied with"),
        mark(_GREY, "white", "not tried"),
        Line2D([], [], marker="|", ms=8, linestyle="", color="black", label="measured"),
        Line2D([], [], marker="x", linestyle="", color=_RED, label="measured without compliance; no part of the model"),
    ]  # fmt: skip
    title = "mean and 95% interval of the model"
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False, title=title,
                  title_fontsize=8)  # fmt: skip


def _classes(search: _Search) -> list[dict[str, Any]]:
    """One entry a class, best first; of the orders that have no mean, in their own order at the end."""
    classes: dict[int, dict[str, Any]] = {}
    for row in search.summary["posterior"]:
        entry = classes.setdefault(row["class"], {**row, "names": []})
        if row["name"] is not None:
            entry["names"].append(row["name"])
    return sorted(classes.values(), key=lambda row: math.inf if row["mean"] is None else -row["mean"])


# --------------------------------------------------------------------------------------------------------- the budget
def _best(search: _Search) -> Any:
    """What each training was worth, and the best so far, against the episodes used."""
    figure = _figure(11, 5.4, f"{search.title}\nbest value so far against the budget")
    axes = figure.subplots()
    _plain(axes)
    trained, used = search.summary["workflows"], 0
    steps: list[tuple[int, float, dict[str, Any]]] = []
    for workflow in trained:
        used += workflow["episodes"]
        value, error = workflow["value"], _Z95 * (workflow["value_error"] or 0.0)
        better = workflow["feasible"] and (not steps or value > steps[-1][1])
        if better:
            steps.append((used, value, workflow))
        if workflow["feasible"]:
            axes.errorbar(used, value, yerr=error, fmt="o", ms=5, color=_BLUE if better else _GREY, elinewidth=1)
        elif value is not None:
            axes.plot(used, value, "x", color=_RED, ms=6)
        if value is not None and (better or len(trained) <= MAX_NUMBERS):
            colour = _BLUE if better else "#6b7480"
            axes.annotate(str(workflow["number"]), (used, value), (5, 3), textcoords="offset points", fontsize=7,
                          color=colour, weight="bold" if better else "normal")  # fmt: skip
    if steps:
        xs, ys = [x for x, _, _ in steps] + [used], [y for _, y, _ in steps] + [steps[-1][1]]
        axes.step(xs, ys, where="post", color=_BLUE, linewidth=1.5, zorder=1)
    total = search.summary["budget"]["total"]
    axes.set_xlim(0, total * 1.02)
    axes.axvline(total, color="black", linewidth=0.8, linestyle="--")
    axes.set_xlabel(f"episodes used, of {total:,}")
    axes.set_ylabel("environment reward an episode, 95% interval")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _legends_of_best(figure, [f"{w['number']}: {search.label(w['order'])}" for _, _, w in steps])
    return figure


def _legends_of_best(figure: Any, improvements: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker="o", color=_BLUE, label="best so far"),
        Line2D([], [], marker="o", linestyle="", color=_GREY, label="complied with, not better"),
        Line2D([], [], marker="x", linestyle="", color=_RED, label="not complied with"),
        Line2D([], [], linestyle="--", linewidth=0.8, color="black", label="budget"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    if improvements:
        words = [Line2D([], [], linestyle="", label=text) for text in improvements[-12:]]
        figure.legend(handles=words, loc="outside right upper", fontsize=7.5, frameon=False, title="became the best",
                      title_fontsize=8, labelcolor=_BLUE, handlelength=0, handletextpad=0)  # fmt: skip
