"""What a search shows while it trains all orders: a live table in a terminal, elsewhere a table now and then."""

import math
import shutil
import sys
import time
from collections.abc import Iterable

from stockade.text import Table, duration, fixed

HALF_WIDTH = 1.96  #: standard errors in half of a 95% interval
_REDRAW_SECONDS = 0.3
_BAR = 24
#: Elsewhere than in a terminal, tables come at these parts of the budget.
_PRINTED_AT = (0.25, 0.5, 0.75)


class Board:
    """The live table of a search of so many episodes in `total`, `used` of them before this session."""

    def __init__(self, total: int, used: int = 0) -> None:
        self._first = used
        self._begin, self._drawn, self._height = time.monotonic(), 0.0, 0
        self._printed = used / total

    def show(self, episodes: int, total: int, orders: Iterable[tuple[str, float, float, float]]) -> None:
        """Draw the state of a training after so many episodes of those that it ends with.

        Of the `orders` their names, latest values, half of their 95% intervals (NaN: unknown), and shares of the work.
        """
        ranked = sorted(orders, key=lambda order: (math.isnan(order[1]), -order[1]))
        live, now = sys.stdout.isatty(), time.monotonic()
        passed = [part for part in _PRINTED_AT if self._printed < part <= episodes / total]
        due = now - self._drawn >= _REDRAW_SECONDS if live else ranked and passed
        if not due:
            return
        self._drawn, self._printed = now, passed[-1] if passed else self._printed
        done, rate = min(1.0, episodes / total), (episodes - self._first) / max(now - self._begin, 1e-9)
        left = f", {duration((total - episodes) / rate)} left" if rate > 0 and done < 1 else ""
        bar = ("#" * round(_BAR * done)).ljust(_BAR, ".")
        lines = [f"[{bar}] {episodes:,} of {total:,} episodes, {rate:,.0f} per second{left}"]
        rows = [[name, fixed(value), "" if math.isnan(half) else f"± {half:.2f}", f"{100 * share:.0f}%"]
                for name, value, half, share in ranked]  # fmt: skip
        table = Table(["order", "value so far", "", "share"], rows, align="lrrr")
        lines += str(table).split("\n") if rows else ["no values yet: the first round of greedy episodes comes soon"]
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
