"""Pictures and lists made of a search's files."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stockade import cli
from stockade.errors import InputError
from stockade.learn.runs import RunsConfig
from stockade.workflow import plots
from stockade.workflow import search as search_module
from stockade.workflow.config import SearchConfig
from stockade.workflow.engine import local_engine
from stockade.workflow.plots import draw_search
from stockade.workflow.search import search
from tests.workflow.fake import HELD, FakeTrainer

CONFIG = SearchConfig(n_envs=10, total_episodes=500, max_episodes=100, min_episodes=40)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A usual search, one of which nothing is feasible, and one over all 120 orders."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "types_red_can_hold", lambda *_: np.array(HELD))
        assert search(dataclasses.replace(CONFIG, runs=folder, name="usual"), FakeTrainer()) == 0
        hopeless = dataclasses.replace(CONFIG, runs=folder, name="hopeless", total_episodes=200)
        assert search(hopeless, hopelessly) == 0
        plain = dataclasses.replace(CONFIG, runs=folder, name="plain", classes=False, n_workflows=3)
        assert search(plain, FakeTrainer()) == 0
    return folder


def hopelessly(task: object, report: object, should_stop: object = None) -> object:
    """Nobody complies, and nobody fixes anything."""
    result = FakeTrainer()(task, report)  # type: ignore[arg-type]
    return dataclasses.replace(result, feasible=False, compliance=float("nan"), stopped="plateau")


def texts_of(figure: object) -> list[str]:
    """All words in a figure."""
    from matplotlib.text import Text

    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["usual", "hopeless", "plain"])
def test_all_pictures_are_drawn(runs: Path, name: str) -> None:
    files = draw_search(runs / name)
    assert [path.name for path in files] == ["curves.png", "posterior.png", "best.png"]
    for path in files:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert "<svg" in path.with_suffix(".svg").read_text()[:1000]


def test_the_curves_are_those_of_the_log(runs: Path) -> None:
    found = plots._Search.read(runs / "usual")
    figure = plots._curves(found)
    drawn = {tuple(np.asarray(line.get_ydata(), float)) for axes in figure.axes for line in axes.lines}
    for rows in found.updates.values():
        assert tuple(row[1] for row in rows) in drawn  # reward
        assert tuple(row[2] for row in rows) in drawn  # compliance
    shown = texts_of(figure)
    for row in found.summary["ranking"]:
        assert sum(found.label(row["order"]) in text for text in shown) == 1  # a panel each


def test_every_class_has_a_line_with_its_interval(runs: Path) -> None:
    for name, count in (("usual", 6), ("plain", 120)):
        found = plots._Search.read(runs / name)
        figure = plots._posterior(found)
        (axes,) = figure.axes
        assert len(axes.get_yticklabels()) == count
        means = [float(bars.lines[0].get_xdata()[0]) for bars in axes.containers]
        assert means == sorted(means, reverse=True)
        assert len(means) == count
        wanted = {round(row["mean"], 9) for row in found.summary["posterior"]}
        assert {round(mean, 9) for mean in means} == wanted


def test_the_best_so_far_never_falls(runs: Path) -> None:
    found = plots._Search.read(runs / "usual")
    (axes,) = plots._best(found).axes
    line = max(
        (line for line in axes.lines if line.get_drawstyle() == "steps-post"), key=lambda line: len(line.get_xdata())
    )
    values = list(line.get_ydata())
    assert values == sorted(values)
    assert values[-1] == max(w["value"] for w in found.summary["workflows"] if w["feasible"])
    assert line.get_xdata()[-1] == found.summary["budget"]["used"]


@pytest.mark.parametrize("name", ["usual", "plain"])
@pytest.mark.parametrize("draw", ["_curves", "_posterior", "_best"])
def test_no_words_lie_upon_others_or_outside(runs: Path, name: str, draw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    figure = getattr(plots, draw)(plots._Search.read(runs / name))
    FigureCanvasAgg(figure).draw()  # the layout settles
    shown, original = [], Text.draw

    def drawn(self: Text, *arguments: object, **more: object) -> None:
        shown.append(self)
        original(self, *arguments, **more)

    monkeypatch.setattr(Text, "draw", drawn)
    FigureCanvasAgg(figure).draw()
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown if text.get_text().strip()]
    assert len(boxes) > 10
    for word, box in boxes:
        assert figure.bbox.x0 - 2 <= box.x0, word
        assert box.x1 <= figure.bbox.x1 + 2, word
    overlapping = [
        (a, b)
        for i, (a, one) in enumerate(boxes)
        for b, other in boxes[:i]
        if one.x0 + 1 < other.x1 and other.x0 + 1 < one.x1 and one.y0 + 2 < other.y1 and other.y0 + 2 < one.y1
    ]
    assert not overlapping


def test_without_matplotlib_the_message_names_the_extra(runs: Path) -> None:
    code = f"""
import sys
from pathlib import Path

class NoMatplotlib:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

sys.meta_path.insert(0, NoMatplotlib())
from stockade.errors import InputError
from stockade.workflow.plots import draw_search
try:
    draw_search(Path({str(runs / "usual")!r}))
except InputError as error:
    print(error)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "stockade[plots]" in answer.stdout


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results"):
        draw_search(tmp_path)


def test_searches_are_listed_beside_runs(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "new").mkdir(exist_ok=True)
    (runs / "new" / "config.json").write_text((runs / "usual" / "config.json").read_text())
    assert RunsConfig(runs=runs, json=tmp_path / "runs.json").run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "search"
    listed = {line.split()[0]: line for line in lines[1:]}
    best = json.loads((runs / "usual" / "summary.json").read_text())["best"]
    assert best["name"] in listed["usual"]
    assert f"{best['mean']:.2f}" in listed["usual"]
    assert "none complied" in listed["hopeless"]
    assert "of 500" in listed["new"]
    content = {row["name"]: row for row in json.loads((tmp_path / "runs.json").read_text())}
    assert content["usual"]["finished"]
    assert not content["new"]["finished"]
    assert content["hopeless"]["value"] is None


def test_the_command_searches_and_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(search_module, "types_red_can_hold", lambda *_: np.array(HELD))
    monkeypatch.setattr(search_module.search, "__defaults__", (FakeTrainer(fail=(2,)), None, local_engine))
    numbers = {"n-envs": 10, "total-episodes": 300, "max-episodes": 100, "min-episodes": 40}
    flags = [part for name, value in numbers.items() for part in (f"--{name}", str(value))]
    flags += ["--runs", str(tmp_path), "--n-workflows"]
    with pytest.raises(SystemExit) as ended:
        cli.main(["search", *flags, "2", "--name", "x"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "pictures: " in printed
    assert (tmp_path / "x" / "pictures" / "best.png").exists()
    with pytest.raises(SystemExit) as ended:
        cli.main(["search", *flags, "3", "--no-plots", "--name", "y"])
    assert ended.value.code == 1
    errors = capsys.readouterr().err
    assert "training 2 failed" in errors
    assert "ZeroDivisionError" in errors
    assert "--resume" in errors
    with pytest.raises(SystemExit) as ended:
        cli.main(["search", "--n-envs", "200", "--total-episodes", "100"])
    assert ended.value.code == 2
