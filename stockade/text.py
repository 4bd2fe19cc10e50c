"""The one table printer and the one set of number formats, for the terminal, Markdown pages and notebooks; progress.

    print(Table(["run", "return"], [["a", interval(-13.52, 0.2)]], title="Runs"))

Non-finite numbers are shown as `n/a`.
"""

import html
import itertools
import math
import re
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 100  #: columns that a table may take in a terminal
NARROWEST = 8  #: columns that a column of words keeps when a table must become narrower
_MISSING = ("", "-", "n/a")
_NUMBER = re.compile(r"[+\-±<>~]? ?[\d.][\d,.]*(%|x|e[+\-]?\d+)?([ (/±:]|$)")
_MILLION = " million"


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header.

    Attributes:
        rows: cells; None is an empty cell, an int a count, a float a number of three digits, anything else its `str`.
        title: a line above it.
        align: `l` or `r` for each column; default: columns of numbers to the right, columns of words to the left.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    align: str = ""

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int = WIDTH) -> str:
        """Aligned lines. Where the table is wider than `width`, words and headings wrap inside their columns."""
        cells, sides = self._layout()
        widths = _fit([[len(row[k]) for row in cells] for k in range(len(sides))], sides, width)
        lines = [self.title] if self.title else []
        for row in cells:
            wrapped = [[c] if len(c) <= w else textwrap.wrap(c, w) for c, w in zip(row, widths, strict=True)]
            for line in itertools.zip_longest(*wrapped, fillvalue=""):
                lines.append("  ".join(_padded(line, widths, sides)).rstrip())
        return "\n".join(lines)

    def markdown(self) -> str:
        """A Markdown table that is readable as text too: all lines have the same length."""
        cells, sides = self._layout()
        cells = [[cell.replace("|", "\\|") for cell in row] for row in cells]
        widths = [max(3, *(len(row[k]) for row in cells)) for k in range(len(sides))]
        marks = ["-" * (w + 1) + ("-" if side == "l" else ":") for w, side in zip(widths, sides, strict=True)]
        head, *body = ["| " + " | ".join(_padded(row, widths, sides)) + " |" for row in cells]
        lines = [head, "|" + "|".join(marks) + "|", *body]
        return "\n".join([self.title, "", *lines] if self.title else lines)

    def _repr_html_(self) -> str:
        """For a notebook; all text is escaped."""
        cells, sides = self._layout()
        styles = [f'style="text-align:{"left" if side == "l" else "right"}"' for side in sides]
        text = f"<table><caption>{html.escape(self.title)}</caption>"
        for tag, row in zip(["th", *["td"] * len(self.rows)], cells, strict=True):
            columns = zip(styles, map(html.escape, row), strict=True)
            text += "<tr>" + "".join(f"<{tag} {style}>{cell}</{tag}>" for style, cell in columns) + "</tr>"
        return text + "</table>"

    def _layout(self) -> tuple[list[list[str]], str]:
        """Header and rows as text, and the side of each column."""
        cells = [list(self.header), *([_cell(value) for value in row] for row in self.rows)]
        if wrong := [row for row in cells if len(row) != len(self.header)]:
            raise ValueError(f"a row has {len(wrong[0])} cells where the header has {len(self.header)}: {wrong[0]}")
        columns = [[row[k] for row in cells[1:] if row[k] not in _MISSING] for k in range(len(self.header))]
        sides = ["r" if column and all(map(_NUMBER.match, column)) else "l" for column in columns]
        return cells, self.align or "".join(sides)


def _cell(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "", True: "yes", False: "no"}[value]
    return f"{value:,}" if isinstance(value, int) else number(value) if isinstance(value, float) else str(value)


def _padded(row: Sequence[str], widths: Sequence[int], sides: str) -> list[str]:
    return [c.ljust(w) if side == "l" else c.rjust(w) for c, w, side in zip(row, widths, sides, strict=True)]


def _fit(lengths: list[list[int]], sides: str, width: int) -> list[int]:
    """Widths of the columns: the widest shrink first; numbers never wrap, only their headings do."""
    widths = [max(column) for column in lengths]
    least = [NARROWEST if side == "l" else max(1, *c[1:]) for c, side in zip(lengths, sides, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        wide = [k for k, w in enumerate(widths) if w > least[k]]
        if not wide:
            break
        widths[max(wide, key=lambda k: widths[k])] -= 1
    return widths


class Shown:
    """Shows its `tables()`: as text by `print`, as HTML in a notebook."""

    def tables(self) -> list[Table]:
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables()))

    def _repr_html_(self) -> str:
        return "".join(table._repr_html_() for table in self.tables())


def in_notebook() -> bool:
    """Code runs in a kernel of Jupyter, whose output is no terminal but shows a progress bar all the same."""
    return "ipykernel" in sys.modules


def progress_bar(progress: bool, **options: Any) -> Any:
    """A bar of tqdm on a terminal or in a notebook; nothing elsewhere, or if `progress` is False."""
    from tqdm import tqdm

    return tqdm(disable=not (progress and (sys.stderr.isatty() or in_notebook())), **options)


# -------------------------------------------------------------------------------------------------------------- numbers
def fixed(value: float, digits: int = 2) -> str:
    """A value with so many decimals: `-13.52`."""
    return f"{value:.{digits}f}" if math.isfinite(value) else "n/a"


def interval(value: float, half_width: float, digits: int = 2) -> str:
    """A value with the half width of its 95% interval: `-13.52 ± 0.20`."""
    return f"{fixed(value, digits)} ± {fixed(half_width, digits)}"


def number(value: float) -> str:
    """Three digits that matter: `0.0123`, `14.4`, `1,234`, `14.4 million`."""
    if not math.isfinite(value):
        return "n/a"
    if abs(value) >= 999_500:
        return f"{value / 1e6:,.3g}{_MILLION}" if abs(value) < 999.5e6 else f"{value / 1e6:,.0f}{_MILLION}"
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def median_range(value: float, low: float, high: float) -> str:
    """A median with its range: `14.4 (13.9 to 15.1) million`; the median alone if the range is none."""
    words = [number(each) for each in (value, low, high)]
    if words[1] == words[2]:
        return words[0]
    unit = _MILLION if all(word.endswith(_MILLION) for word in words) else ""
    middle, least, most = (word.removesuffix(unit) for word in words)
    return f"{middle} ({least} to {most}){unit}"


def size(n_bytes: float) -> str:
    """Bytes: `320 B`, `1.5 KiB`, `2.25 GiB`."""
    power = min(4, int(math.log(abs(n_bytes), 1024))) if abs(n_bytes) >= 1 else 0
    return f"{number(n_bytes / 1024**power)} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def duration(seconds: float) -> str:
    """A time: `250 us`, `3.2 s`, `12.5 minutes`, `3.1 hours`."""
    for least, unit, name in ((6000, 3600, "hours"), (100, 60, "minutes"), (1, 1, "s"), (1e-3, 1e-3, "ms")):
        if abs(seconds) >= least:
            return f"{number(seconds / unit)} {name}"
    return f"{number(seconds / 1e-6)} us"


def plural(n: int, word: str, words: str = "") -> str:
    """`1 episode`, `2,000 episodes`; `words` is for what takes no s."""
    return f"{n:,} {word if n == 1 else words or word + 's'}"


def sparkline(values: Sequence[float]) -> str:
    """A curve as one character per value, lowest to highest; a blank where there is no number."""
    finite = [v for v in values if math.isfinite(v)]
    low, span = min(finite, default=0.0), (max(finite, default=0.0) - min(finite, default=0.0)) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (v - low) / span)] if math.isfinite(v) else " " for v in values)
