"""What a search shows while it trains all orders: a live table in a terminal, elsewhere a table now and then."""

import shutil
import sys
import time
from collections.abc import Sequence

import numpy as np

from stockade.text import Table, duration, fixed

_REDRAW_SECONDS = 0.3
_BAR = 24
#: Elsewhere than in a terminal, tables come at these parts of the budget.
_PRINTED_AT = (0.25, 0.5, 0.75)


class Board:
    """The live table of a search of so many episodes in `total`, `used` of them before this session."""

    def __init__(self, labels: Sequence[str], total: int, used: int = 0) -> None:
        self._labels, self._first = list(labels), used
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
        live, now = sys.stdout.isatty(), time.monotonic()
        passed = [part for part in _PRINTED_AT if self._printed < part <= episodes / total]
        due = now - self._drawn >= _REDRAW_SECONDS if live else values is not None and len(passed) > 0
        if not due:
            return
        self._drawn, self._printed = now, passed[-1] if passed else self._printed
        done, rate = min(1.0, episodes / total), (episodes - self._first) / max(now - self._begin, 1e-9)
        left = f", {duration((total - episodes) / rate)} left" if rate > 0 and done < 1 else ""
        bar = ("#" * round(_BAR * done)).ljust(_BAR, ".")
        lines = [f"[{bar}] {episodes:,} of {total:,} episodes, {rate:,.0f} per second{left}"]
        if values is None:
            lines.append("no values yet: the first round of greedy episodes comes soon")
        else:
            moved = [f"± {sd:.2f}" if np.isfinite(sd) else "" for sd in (np.zeros_like(values) if sds is None else sds)]
            ranked = np.argsort(-values, kind="stable")
            rows = [[self._labels[k], fixed(values[k]), moved[k], f"{100 * shares[k]:.0f}%"] for k in ranked]
            lines += str(Table(["order", "value so far", "moved", "share"], rows, align="lrrr")).split("\n")
        if live:
            size = shutil.get_terminal_size()
            lines = [line[: size.columns - 1] for line in lines[: max(2, size.lines - 2)]]
        self.say("\n".join(lines))
        self._height = len(lines) if live else 0

    def say(self, text: str) -> None:
        """A remark, in place of the table."""
        self.clear()
        print(text, flush=True)

    def clear(self) -> None:
        """Take the table away; the next `show` draws it again."""
        if self._height:
            print(f"\x1b[{self._height}A\x1b[0J", end="", flush=True)
            self._height = 0
