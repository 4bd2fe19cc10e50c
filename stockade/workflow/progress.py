"""What a search shows while it runs: a table that lives at the foot of a terminal, or lines now and then elsewhere.

Trainings that are over are printed once and scroll away like any output; only those under way are drawn again and
again, so that neither the number of workflows nor the height of the terminal matters.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from dataclasses import dataclass
from typing import TextIO

from stockade.workflow.records import UpdateRow, WorkflowResult

_REDRAW_SECONDS = 0.1
_LINE_SECONDS = 20.0
_BAR = 24
_UP, _CLEAR_BELOW, _DIM, _PLAIN = "\x1b[{}A", "\x1b[0J", "\x1b[2m", "\x1b[0m"


@dataclass
class _Training:
    order: str
    note: str
    begun: float
    last: UpdateRow | None = None


class Progress:
    """Lines now and then: for logs and pipes.

    Args:
        total: episodes of the whole search.
        used: episodes that were used before this sitting.
        stream: where to write.
    """

    def __init__(self, total: int, used: int, stream: TextIO | None = None) -> None:
        self._total, self._used, self._first = total, used, used
        self._stream = sys.stdout if stream is None else stream
        self._begin = self._shown = time.monotonic()
        self._training: dict[int, _Training] = {}

    def begin(self, number: int, order: str, note: str) -> None:
        """A training begins; `note` says with which weights."""
        self._training[number] = _Training(order, note, time.monotonic())
        self._on_begin(number)

    def update(self, row: UpdateRow, used: int) -> None:
        """An update was made; `used` episodes in all so far."""
        self._training[row.number].last, self._used = row, used
        self.tick()

    def finish(self, result: WorkflowResult, used: int) -> None:
        """A training is over."""
        training = self._training.pop(result.number)
        self._used = used
        self._on_finish(result, training)

    def restart(self, number: int, reason: str, used: int) -> None:
        """A training begins again."""
        self._training[number].last, self._used = None, used
        self.say(f"training {number} begins again: {reason}")

    def say(self, text: str) -> None:
        """A remark."""
        print(text, file=self._stream, flush=True)

    def tick(self) -> None:
        """Nothing happened, but time goes by."""
        if time.monotonic() - self._shown >= _LINE_SECONDS:
            self._shown = time.monotonic()
            for number, training in self._training.items():
                if training.last is not None:
                    row = training.last
                    self.say(f"training {number}: {row.episodes:,} episodes, {_figures(row.env_reward, row)}")
            self.say(self._budget())

    def close(self) -> None:
        """The last line is written."""

    def _on_begin(self, number: int) -> None:
        training = self._training[number]
        self.say(f"training {number} begins: {training.order}, {training.note}")

    def _on_finish(self, result: WorkflowResult, training: _Training) -> None:
        ended = f"{_verdict(result)} after {result.episodes:,} episodes in {result.seconds:.1f} s"
        self.say(f"training {result.number} ended: {training.order}, {ended}; {_figures(result.value, result)}")
        self.say(self._budget())

    def _budget(self) -> str:
        seconds = time.monotonic() - self._begin
        rate = (self._used - self._first) / seconds if seconds > 0 else 0.0
        text = f"{self._used:,} of {self._total:,} episodes"
        if rate > 0:
            text += f", {rate:,.0f} a second, at most {_duration((self._total - self._used) / rate)} to go"
        return text


class LiveTable(Progress):
    """A table in a terminal: finished trainings above, those under way and the budget redrawn below."""

    def __init__(self, total: int, used: int, stream: TextIO | None = None) -> None:
        super().__init__(total, used, stream)
        self._drawn = self._width = 0
        self._colours = "NO_COLOR" not in os.environ

    def say(self, text: str) -> None:
        """A remark, above what is redrawn."""
        self._erase()
        self._print(text)
        self._draw()

    def tick(self) -> None:
        """Draw again, if it is time."""
        if time.monotonic() - self._shown >= _REDRAW_SECONDS:
            self._erase()
            self._draw()

    def close(self) -> None:
        """Leave the terminal clean."""
        self._erase()
        self._stream.flush()

    def _on_begin(self, number: int) -> None:
        self._erase()
        if len(self._training[number].order) > self._width:  # the first, or one with a type more than those before
            self._width = len(self._training[number].order)
            self._print(self._line("#", "order", "episodes", "reward", "compliance", "fixes", "state"))
        self._draw()

    def _on_finish(self, result: WorkflowResult, training: _Training) -> None:
        self._erase()
        state = f"{_verdict(result)}, {_duration(result.seconds)}"
        cells = (f"{result.value:.2f}", _share(result.compliance), f"{result.fixes:.1f}", state)
        line = self._line(str(result.number), training.order, f"{result.episodes:,}", *cells)[: self._columns()]
        dim = self._colours and not result.feasible
        self._print(f"{_DIM}{line}{_PLAIN}" if dim else line)
        self._draw()

    def _line(self, *cells: str) -> str:
        number, order, episodes, reward, compliance, fixes, state = cells
        return (f"{number:>3}  {order:<{self._width}}  {episodes:>8}  {reward:>8}  {compliance:>10}  {fixes:>5}  "
                f"{state}")  # fmt: skip

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(_UP.format(self._drawn) + "\r" + _CLEAR_BELOW)
        self._drawn = 0

    def _draw(self) -> None:
        """What is under way, cut to the terminal: a line that wraps would spoil the count of lines."""
        lines = []
        for number, training in sorted(self._training.items()):
            row = training.last
            if row is None:
                cells = ("0", "", "", "")
            else:
                cells = (f"{row.episodes:,}", f"{row.env_reward:.2f}", _share(row.compliance), f"{row.fixes:.1f}")
            state = f"training, {training.note}, {_duration(time.monotonic() - training.begun)}"
            lines.append(self._line(str(number), training.order, *cells, state))
        filled = round(_BAR * min(1.0, self._used / self._total))
        lines.append(f"[{'#' * filled}{'.' * (_BAR - filled)}] {self._budget()}")
        room = max(1, shutil.get_terminal_size().lines - 1)
        lines = lines[-room:]
        for line in lines:
            self._print(line[: self._columns()])
        self._drawn = len(lines)
        self._shown = time.monotonic()
        self._stream.flush()

    def _columns(self) -> int:
        return max(1, shutil.get_terminal_size().columns - 1)

    def _print(self, line: str) -> None:
        self._stream.write(f"{line}\n")


def make_progress(total: int, used: int) -> Progress:
    """For this process's output."""
    live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    return (LiveTable if live else Progress)(total, used)


def _verdict(result: WorkflowResult) -> str:
    return str(result.stopped) if result.feasible else f"{result.stopped}, not compliant"


def _figures(reward: float, of: UpdateRow | WorkflowResult) -> str:
    return f"reward {reward:.2f}, compliance {_share(of.compliance)}, {of.fixes:.1f} fixes an episode"


def _share(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.3f}"


def _duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} h" if hours else f"{minutes}:{rest:02d} min"
