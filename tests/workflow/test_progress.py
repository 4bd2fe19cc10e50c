"""What a search shows: a table that leaves each finished training on the screen once, and nothing half drawn."""

from __future__ import annotations

import io
import re

import pytest

from stockade.workflow import progress as progress_module
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import ORDERS
from stockade.workflow.progress import LiveTable, Progress, make_progress
from stockade.workflow.records import Task
from tests.workflow.fake import FakeTrainer

CONFIG = SearchConfig(n_envs=10, total_episodes=1000, max_episodes=100, min_episodes=40)


def screen_of(written: str) -> list[str]:
    """What a terminal shows after this was written: a small one that knows as much as is needed."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[\d*[A-Za-z]|\n|\r|[^\x1b\n\r]+", written):
        if part == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif part == "\r":
            continue
        elif part.startswith("\x1b["):
            kind, count = part[-1], int(part[2:-1] or 1)
            if kind == "A":
                assert count <= row, "up beyond the first line"
                row -= count
            elif kind == "J":
                del lines[row:]
                lines.append("")
            else:
                assert kind == "m"
        else:
            assert lines[row] == "" or not part.strip() or part == lines[row], f"drawn over {lines[row]!r}"
            lines[row] = part
    return lines


def play(progress: Progress) -> None:
    """Two at a time; the last is still under way."""
    trainer, used = FakeTrainer(), 0
    for number in range(0, 6, 2):
        for k in (number, number + 1):
            progress.begin(k, f"order{k}", "new weights")
        for k in (number, number + 1):
            rows: list[object] = []
            result = trainer(Task(k, ORDERS[20 * k], CONFIG, 0, 100), rows.append)
            for row in rows:
                used += 10
                progress.update(row, used)  # type: ignore[arg-type]
            if k == 5:
                return
            if k == 3:
                progress.restart(k, "its process was ended by SIGKILL", used)
            progress.finish(result, used)


def test_the_live_table_keeps_what_is_finished_and_redraws_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_REDRAW_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LINES", "50")
    stream = io.StringIO()
    table = LiveTable(1000, 0, stream)
    play(table)
    screen = [line for line in screen_of(stream.getvalue()) if line]
    assert screen[0].split() == ["#", "order", "episodes", "reward", "compliance", "fixes", "state"]
    finished = [line.split()[1] for line in screen if "compliant" in line]
    assert finished == ["order0", "order1", "order2", "order3", "order4"]
    assert sum("not compliant" in line for line in screen) == 0  # all these orders are feasible
    assert "begins again" in screen[4]
    (under_way,) = (line for line in screen if "training, new weights" in line)
    assert under_way.split()[:2] == ["5", "order5"]
    assert re.match(r"\[#+\.+\] \d+ of 1,000 episodes", screen[-1])
    table.close()
    assert [line for line in screen_of(stream.getvalue()) if line] == [
        line for line in screen[:-1] if line != under_way
    ]


def test_the_live_table_never_wraps_nor_outgrows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_REDRAW_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "3")
    stream = io.StringIO()
    table = LiveTable(1000, 0, stream)
    for number in range(10):
        table.begin(number, "enterprise>op_server>op_host>user", "new weights")
    drawn = re.split(r"\x1b\[\d+A\r\x1b\[0J", stream.getvalue())
    assert all(block.count("\n") <= 3 for block in drawn)  # the first has the head too
    assert max(len(line) for block in drawn[1:] for line in block.splitlines()) <= 39


def test_without_a_terminal_there_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    progress = make_progress(1000, 0)
    assert type(progress) is Progress
    play(progress)
    progress.close()
    lines = capsys.readouterr().out.splitlines()
    assert "\x1b" not in "".join(lines)
    assert sum("begins:" in line for line in lines) == 6
    ended = [line for line in lines if "ended:" in line]
    assert [line.split()[1] for line in ended] == ["0", "1", "2", "3", "4"]
    assert "compliant after 40 episodes" in ended[0]
    assert "compliance 0.970" in ended[0]
    assert any("begins again: its process was ended by SIGKILL" in line for line in lines)


def test_lines_come_now_and_then_while_nothing_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    progress = make_progress(1000, 500)
    progress.begin(0, "order0", "from 3")
    rows: list[object] = []
    FakeTrainer()(Task(0, ORDERS[0], CONFIG, 0, 100), rows.append)
    for k in range(100):
        now[0] = float(k)
        progress.update(rows[0], 510)  # type: ignore[arg-type]
    lines = capsys.readouterr().out.splitlines()
    assert 3 <= sum(line.startswith("training 0: 10 episodes") for line in lines) <= 6
    assert "510 of 1,000 episodes, 0 a second" in lines[-1]


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_progress(1, 0)) is Progress
    monkeypatch.setenv("TERM", "xterm")
    assert type(make_progress(1, 0)) is LiveTable
