"""Figures found by their tags, and Markdown tables of them: what the page of the benchmarks is built from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from stockade.bench.figures import Figure, Tag, figure_of
from stockade.bench.report_files import RESULTS
from stockade.bench.result import Result

Wanted = Tag | tuple[Tag, ...] | None
Tags = dict[str, Wanted]
"""What a figure must be tagged with; of a tuple any value will do, None is for figures without this tag.

`what` is the figure's name, for those that have no tags."""


@dataclass(frozen=True)
class Results:
    """All results that a page is made of, by name of the bench."""

    by_bench: dict[str, Result]

    def find(self, bench: str, unit: str | None = None, **tags: Wanted) -> list[Figure]:
        """Figures of a bench that have these tags, and this unit, in the order of the file."""
        result = self.by_bench.get(bench)
        if result is None:
            return []
        return [f for f in result.figures if (unit is None or f.unit == unit) and _has(f, tags)]


def measure(bench: str) -> str:
    """What measures all that a page asks of a bench."""
    return f"stockade bench {bench} --json {RESULTS / bench}.json"


def _has(figure: Figure, tags: Tags) -> bool:
    for name, wanted in tags.items():
        choices = wanted if isinstance(wanted, tuple) else (wanted,)
        if (figure.what if name == "what" else figure.tags.get(name)) not in choices:
            return False
    return True


# --------------------------------------------------------------------------------------------------------------- asking
@dataclass(frozen=True)
class Ask:
    """A figure that a page wants, by bench, unit and tags.

    Attributes:
        bench: whose.
        tags: which.
        unit: of the figure in the result.
        label: what to call it.
        over: another figure; the answer is the ratio of both, round by round where they were measured in turns.
        change: from a value in the result to the one that is shown, such as steps/s to the time of a step.
        shown: unit of what is shown, if not the result's.
    """

    bench: str
    tags: Tags
    unit: str
    label: str = ""
    over: Ask | None = None
    change: Callable[[float], float] | None = None
    shown: str | None = None

    def answer(self, results: Results) -> Figure | None:
        """The figure, or None if it was not measured."""
        found = results.find(self.bench, self.unit, **self.tags)
        if not found:
            return None
        figure = found[0]
        rounds = figure.rounds or (figure.value,)
        if self.over is not None:
            other = self.over.answer(results)
            if other is None:
                return None
            below = other.rounds or (other.value,)
            paired = zip(rounds, below, strict=True) if len(rounds) == len(below) else [(figure.value, other.value)]
            rounds = tuple(a / b for a, b in paired)
        if self.change is not None:
            rounds = tuple(self.change(value) for value in rounds)
        if self.over is None and self.change is None:
            return figure
        return figure_of(self.label, rounds, self.shown or "times")

    def text(self, results: Results) -> str | None:
        """The answer in words, or None."""
        figure = self.answer(results)
        if figure is None:
            return None
        label = f"{self.label}: " if self.label else ""
        # How many environments there were is said where the question left it open.
        n = figure.tags.get("n_envs") if "n_envs" not in self.tags else None
        return f"{label}{with_unit(figure)}" + (f" (n={n})" if n is not None else "")


def texts(asks: Iterable[Ask], results: Results) -> list[str]:
    """The answers in words; for those that were not measured, once for each bench, how to do it."""
    found, missing = [], []
    for ask in asks:
        text = ask.text(results)
        if text is not None:
            found.append(text)
        else:
            missing.append(ask.bench)
    more = "more " if found else ""
    return [*found, *(f"{more}not measured: run `{measure(bench)}`" for bench in dict.fromkeys(missing))]


# --------------------------------------------------------------------------------------------------------------- tables
_MILLION = " million"


def number(value: float) -> str:
    """Three digits that matter, and no more zeros than one can count."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.3g}{_MILLION}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.2g}" if abs(value) < 0.1 else f"{value:.3g}"


def cell(figure: Figure) -> str:
    """Median and range; the median alone if there is no range."""
    words = [number(value) for value in (figure.value, figure.low, figure.high)]
    if words[1] == words[2]:
        return words[0]
    if all(word.endswith(_MILLION) for word in words):
        value, low, high = (word.removesuffix(_MILLION) for word in words)
        return f"{value} ({low} to {high}){_MILLION}"
    return "{} ({} to {})".format(*words)


def with_unit(figure: Figure) -> str:
    """Median, range and unit."""
    return f"{cell(figure)}{'' if figure.unit.startswith('%') else ' '}{figure.unit}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table, whose first `left` columns are words and the others figures."""
    marks = ["---" if k < left else "--:" for k in range(len(head))]
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(marks)}|"]
    return [*lines, *(f"| {' | '.join(each)} |" for each in rows)]


@dataclass(frozen=True)
class Table:
    """A table of the figures of a bench: a row for each value of one tag, a column for each of another.

    Attributes:
        title: above it.
        unit: only figures of this unit.
        rows, columns: tags.
        tags: only figures with these.
        form: of a column's head, such as "{} environments".
        split: a tag for each value of which there is a table of its own.
    """

    title: str
    unit: str
    rows: str
    columns: str
    tags: Tags = field(default_factory=dict)
    form: str = "{}"
    split: str | None = None

    def figures(self, results: Results, bench: str) -> list[Figure]:
        """Those that it shows."""
        found = results.find(bench, self.unit, **self.tags)
        return [f for f in found if self.rows in f.tags and self.columns in f.tags]

    def lines(self, results: Results, bench: str) -> list[str]:
        """Markdown; nothing if there is no figure."""
        figures = self.figures(results, bench)
        if self.split is None:
            return self._table(self.title, figures)
        lines = []
        for value in in_order(f.tags[self.split] for f in figures if self.split in f.tags):
            of_value = [f for f in figures if f.tags.get(self.split) == value]
            lines += self._table(f"{self.title}, {self.split}={_tag(value)}", of_value)
        return lines

    def _table(self, title: str, figures: list[Figure]) -> list[str]:
        if not figures:
            return []
        rows = list(dict.fromkeys(f.tags[self.rows] for f in figures))
        columns = in_order(f.tags[self.columns] for f in figures)
        cells = {(f.tags[self.rows], f.tags[self.columns]): cell(f) for f in reversed(figures)}
        head = [f"{title}, {self.unit}", *(self.form.format(_tag(c)) for c in columns)]
        body = [[_tag(row), *(cells.get((row, c), "") for c in columns)] for row in rows]
        return ["", *markdown(head, body)]


def in_order(values: Iterable[Tag]) -> list[Tag]:
    """Numbers by size, words as they come."""
    unique = list(dict.fromkeys(values))
    if all(isinstance(value, (int, float)) for value in unique):
        return sorted(unique, key=float)
    return unique


def flat(figures: Iterable[Figure]) -> list[str]:
    """A table with a line for each figure."""
    rows = [[f.what, cell(f), f.unit] for f in figures]
    return ["", *markdown(["what", "median (range)", "unit"], rows)] if rows else []


def _tag(value: Tag) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
