"""What a search shows while it trains all orders: a live table in a terminal, elsewhere a table now and then."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from typing import TextIO

import numpy as np

from stockade.text import Table, duration, fixed

_REDRAW_SECONDS = 0.3
_UP_AND_CLEAR = "\x1b[{}A\x1b[0J"
_BAR = 24
#: Elsewhere than in a terminal, tables come at these parts of the budget.
_PRINTED_AT = (0.25, 0.5, 0.75)


class Board:
    """The live table of a search.

    Args:
        labels: of the orders. total: episodes of the search. used: before this session.
    """

    def __init__(self, labels: Sequence[str], total: int, used: int = 0, stream: TextIO | None = None) -> None:
        self._labels, self._total, self._first = list(labels), total, used
        self._stream = sys.stdout if stream is None else stream
        self._live = self._stream.isatty()
        self._begin, self._drawn, self._height = time.monotonic(), 0.0, 0
        self._printed = used / total

    def show(
        self, episodes: int, total: int, values: np.ndarray | None, sds: np.ndarray | None, shares: np.ndarray
    ) -> None:
        """Draw the state of the training.

        Args:
            episodes, total: trained so far, and when the training ends.
            values, sds: (orders,) of the last round and how much they moved lately, or None before the first round.
            shares: (orders,) of the environments.
        """
        self._total = total
        now = time.monotonic()
        if self._live:
            if now - self._drawn < _REDRAW_SECONDS:
                return
            self._drawn = now
            self._replace(self._lines(episodes, values, sds, shares))
        elif values is not None:
            passed = [p for p in _PRINTED_AT if self._printed < p <= episodes / self._total]
            if passed:
                self._printed = passed[-1]
                print("\n".join(self._lines(episodes, values, sds, shares)), file=self._stream, flush=True)

    def say(self, text: str) -> None:
        """A remark, above the table."""
        self.clear()
        print(text, file=self._stream, flush=True)

    def clear(self) -> None:
        """Take the table away; the next `show` draws it again."""
        if self._height:
            self._stream.write(_UP_AND_CLEAR.format(self._height))
            self._stream.flush()
            self._height = 0

    def _replace(self, lines: list[str]) -> None:
        size = shutil.get_terminal_size()
        lines = [line[: size.columns - 1] for line in lines[: max(2, size.lines - 2)]]
        up = _UP_AND_CLEAR.format(self._height) if self._height else ""
        self._stream.write(up + "\n".join(lines) + "\n")
        self._stream.flush()
        self._height = len(lines)

    def _lines(self, episodes: int, values: np.ndarray | None, sds: np.ndarray | None, shares: np.ndarray) -> list[str]:
        done = min(1.0, episodes / self._total)
        seconds = time.monotonic() - self._begin
        rate = (episodes - self._first) / max(seconds, 1e-9)
        left = f", {duration((self._total - episodes) / rate)} left" if rate > 0 and done < 1 else ""
        bar = "#" * round(_BAR * done) + "." * (_BAR - round(_BAR * done))
        head = f"[{bar}] {episodes:,} of {self._total:,} episodes, {rate:,.0f} per second{left}"
        if values is None:
            return [head, "no values yet: the first round of greedy episodes comes soon"]
        moved = np.zeros_like(values) if sds is None else sds
        ranked = np.argsort(-values, kind="stable")
        rows = [
            [
                self._labels[k],
                fixed(values[k]),
                f"± {moved[k]:.2f}" if np.isfinite(moved[k]) else "",
                f"{100 * shares[k]:.0f}%",
            ]
            for k in ranked
        ]
        table = Table(["order", "value so far", "moved", "share"], rows, align="lrrr").text()
        return [head, *table.split("\n")]
