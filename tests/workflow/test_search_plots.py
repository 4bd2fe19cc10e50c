"""The pictures of a search, and where they and its answer show up.

The summaries come from the search's own judging code; only the returns are invented.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")
from PIL import Image

from stockade.errors import InputError
from stockade.files import as_json
from stockade.learn.config import TrainConfig
from stockade.learn.runs import RunsConfig
from stockade.workflow import plots
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import ALL_MATTER, ORDERS, TYPES, representative, restricted
from stockade.workflow.plots import draw_search
from stockade.workflow.search import finish
from stockade.workflow.store import SearchFolder
from stockade.workflow.summary import Outcome, answer

THREE = np.array([False, True, True, False, True])  # enterprise, op_server and user matter: 6 classes of equal orders
FOUR = np.array([False, True, True, True, True])  # 24 classes
NAMES = ["values.png", "learning.png", "precedences.png"]
ROUNDS = 8


def enterprise_first(order: Sequence[int]) -> float:
    """A value of -4 with enterprise before user, else -13."""
    return -4.0 if order.index(1) < order.index(4) else -13.0


def outcome_of(
    matters: np.ndarray, value: Callable[[Sequence[int]], float] = enterprise_first, attackers: int = 1, keep: int = 200
) -> Outcome:
    """200 episodes of every class of orders; attacker k costs 10 k points more, curves rise to the values."""
    orders = list({restricted(order, matters): representative(order, matters) for order in ORDERS}.values())[:keep]
    rng = np.random.default_rng(0)
    values = np.array([value(order) for order in orders])[None, :] - 10 * np.arange(attackers)[:, None]
    returns = values[:, :, None] + 0.3 * rng.standard_normal((attackers, len(orders), 200))
    free = -3.9 - 10 * np.arange(attackers)[:, None] + 0.3 * rng.standard_normal((attackers, 200))
    final = np.concatenate([values, free.mean(axis=1, keepdims=True)], axis=1)
    curves = [(final - 60 * 0.3**k).tolist() for k in range(ROUNDS)]
    return Outcome(
        TYPES, matters, tuple(orders), returns, np.full(values.shape, 0.05), np.full(len(orders), 100), free,
        np.full(attackers, 0.05), {"episodes": [1000 * (k + 1) for k in range(ROUNDS)], "values": curves}, "done", 1.0,
        total=len(orders),
    )  # fmt: skip


def summary_of(outcome: Outcome, **settings: Any) -> dict[str, Any]:
    """As a reader of summary.json gets it."""
    config = SearchConfig(**{"red": "bline", "horizon": 30, "total_episodes": 8000, **settings})
    content: dict[str, Any] = json.loads(as_json(answer(config, outcome).summary))
    return content


@functools.cache
def judged() -> str:
    return json.dumps(summary_of(outcome_of(THREE)))


def three() -> dict[str, Any]:
    """A summary of six classes, to alter as a test likes; judged once."""
    content: dict[str, Any] = json.loads(judged())
    return content


@pytest.fixture(scope="module")
def all_orders() -> dict[str, Any]:
    """Summary of all 120 orders; to judge them takes seconds."""
    return summary_of(outcome_of(ALL_MATTER))


def drawn(folder: Path, summary: dict[str, Any], only: str = "") -> dict[str, list[str]]:
    """All texts of each picture, or of one alone, which takes less time, from its SVG file."""
    (folder / "summary.json").write_text(json.dumps(summary))
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES if only else ():
            if name != f"{only}.png":
                patch.setattr(plots, f"_{Path(name).stem}", lambda found, figure: None)
        return {path.stem: texts_of(path) for path in draw_search(folder)}


def texts_of(path: Path) -> list[str]:
    found = re.findall(r"<text[^>]*>([^<]*)</text>", path.with_suffix(".svg").read_text())
    return [text.replace("&gt;", ">").strip() for text in found]


def test_three_pictures_of_900_pixels_in_three_formats(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps(summary_of(outcome_of(FOUR))))
    files = draw_search(tmp_path)
    assert files == [tmp_path / "pictures" / name for name in NAMES]
    for path in files:
        with Image.open(path) as picture:
            assert picture.width == 900
            assert picture.format == "PNG"
        assert path.stat().st_size < 150_000
        assert path.with_suffix(".svg").read_text().startswith("<?xml")
        assert path.with_suffix(".svg").stat().st_size < 60_000
        assert path.with_suffix(".pdf").read_bytes().startswith(b"%PDF")
    papers = [path.with_suffix(kind) for path in files for kind in (".svg", ".pdf")]
    before = [path.read_bytes() for path in papers]
    draw_search(tmp_path)
    assert [path.read_bytes() for path in papers] == before


@pytest.mark.parametrize(("matters", "count"), [(THREE, 6), (FOUR, 24)])
def test_every_order_has_a_row_the_best_on_top(tmp_path: Path, matters: np.ndarray, count: int) -> None:
    summary = summary_of(outcome_of(matters))
    texts = drawn(tmp_path, summary, "values")["values"]
    orders = [entry["order"] for entry in summary["classes"]]
    assert [text for text in texts if " > " in text] == orders
    assert len(orders) == count
    chances = [entry["p_best"] for entry in summary["classes"] if entry["p_best"] >= 0.005]
    assert [text for text in texts if re.fullmatch(r"[01]\.\d\d", text)] == [f"{p:.2f}" for p in chances]
    words = ["winning set", "other orders", f"within {summary['margin']:.2g} of the best", "no order (-3.9)", "P(best)"]
    assert set(words) <= set(texts)


@pytest.mark.slow
def test_of_120_orders_the_best_30_are_shown(tmp_path: Path, all_orders: dict[str, Any]) -> None:
    texts = drawn(tmp_path, all_orders, "values")["values"]
    assert [text for text in texts if " > " in text] == [entry["order"] for entry in all_orders["classes"][:30]]
    assert any("best 30 of 120" in text for text in texts)


def test_learning_names_the_winning_set_and_shows_the_end(tmp_path: Path) -> None:
    summary = three()
    texts = drawn(tmp_path, summary, "learning")["learning"]
    assert [text for text in texts if " > " in text] == summary["best"]
    assert len(summary["best"]) == 3
    assert "other orders (3)" in texts
    assert "no order" in texts
    ticks = [float(text) for text in texts if re.fullmatch(r"-\d+(\.\d+)?", text)]
    assert min(ticks) > -16  # the first values of -64 would hide the difference between -4 and -13
    assert any("values below -1" in text for text in texts)


def test_a_winning_set_larger_than_the_colours_is_counted(tmp_path: Path) -> None:
    summary = summary_of(outcome_of(FOUR, lambda order: -4.0))
    pictures = drawn(tmp_path, summary)
    assert len(summary["best"]) == 24
    assert [text for text in pictures["learning"] if " > " in text] == summary["best"][:6]
    assert "others of the winning set (18)" in pictures["learning"]
    for texts in pictures.values():
        assert not any("other orders" in text for text in texts)  # there are none
    assert "interval above 0" not in pictures["precedences"]


def test_precedences_are_the_largest_first_with_their_effects(tmp_path: Path, all_orders: dict[str, Any]) -> None:
    texts = drawn(tmp_path, {**all_orders, "precedences": all_orders["precedences"] * 2})["precedences"]
    rows = [text for text in texts if re.search(r" before \w+ +\+", text)]
    assert len(rows) == 12
    assert re.fullmatch(r"enterprise before user +\+9\.0", rows[0])
    effects = [float(row.rsplit("+", 1)[1]) for row in rows]
    assert effects == sorted(effects, reverse=True)
    assert {"interval above 0", "interval contains 0", "within the margin of 0.3"} <= set(texts)
    assert any("largest 12 of 20" in text for text in texts)


@pytest.mark.parametrize(("goal", "words", "end"), [("mean", "mean of bline and meander", -8.9),
                                                    ("worst", "worst of bline and meander", -13.9)])  # fmt: skip
def test_several_attackers_are_drawn_by_the_goal(tmp_path: Path, goal: str, words: str, end: float) -> None:
    summary = summary_of(outcome_of(THREE, attackers=2), red="bline,meander", goal=goal)
    pictures = drawn(tmp_path, summary)
    assert all(any(words in text for text in texts) for texts in pictures.values())
    assert f"no order ({end})" in pictures["values"]
    ticks = [float(text) for text in pictures["learning"] if re.fullmatch(r"-\d+(\.\d+)?", text)]
    assert end - 2 <= max(ticks) < end + 1  # the curves rise to the values of the goal; a tick every 2 points


def test_one_order_has_no_precedences(tmp_path: Path) -> None:
    assert list(drawn(tmp_path, summary_of(outcome_of(THREE, keep=1)))) == ["values", "learning"]


def test_a_search_by_reward_shows_compliance_and_needs_no_curves(tmp_path: Path) -> None:
    summary = three()
    summary["free_agent"], summary["curves"] = None, {"orders": summary["curves"]["orders"][:-1]}
    for entry, share in zip(summary["classes"], (0.97, 0.95, 0.4, None, 1.0, 0.2), strict=True):
        entry["compliance"] = share
    pictures = drawn(tmp_path, summary)
    assert list(pictures) == ["values", "precedences"]
    labels = [text for text in pictures["values"] if " > " in text]
    ends = ["user (97% compliant)", "(95% compliant)", "(40% compliant)", "(no fixes)", "", "(20% compliant)"]
    assert [label.endswith(end.split("user ")[-1]) for label, end in zip(labels, ends, strict=True)] == [True] * 6
    assert "compliant" not in labels[4]
    assert not any("no order" in text for text in pictures["values"])


def test_rounds_that_measured_nothing_are_gaps(tmp_path: Path) -> None:
    summary = three()
    for values in summary["curves"]["values"][:3]:
        values[0][0] = None
    assert "learning" in drawn(tmp_path, summary, "learning")


def test_long_orders_of_hosts_wrap_and_the_leader_has_a_curve(tmp_path: Path) -> None:
    summary = three()
    hosts = " > ".join(f"Enterprise{k} > User{k}" for k in range(4))
    summary["classes"][0]["order"] = summary["best"][0] = hosts
    summary["curves"]["orders"][0] = "best order of hosts"
    pictures = drawn(tmp_path, summary)
    parts = [text for text in pictures["values"] if "Enterprise" in text]
    assert len(parts) == 2
    assert " ".join(parts) == hosts
    assert "best order of hosts" in pictures["learning"]


def test_names_from_a_file_are_text_and_no_formula(tmp_path: Path) -> None:
    summary = three()
    summary["precedences"][0]["before"] = "<script>$x_1$"
    texts = drawn(tmp_path, summary, "precedences")["precedences"]
    assert any(text.startswith("&lt;script>$x_1$ before") for text in texts)


def test_no_texts_overlap_and_none_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    seen: dict[int, list[tuple[str, Any]]] = {}
    pages: list[Any] = []
    draw_page, draw_text = FigureCanvasAgg.draw, Text.draw

    def page(self: Any) -> None:
        pages.append(self.figure)
        draw_page(self)

    def text(self: Any, renderer: Any, *arguments: Any, **more: Any) -> None:
        if self.get_text().strip() and "Agg" in type(renderer).__name__:
            seen.setdefault(len(pages), []).append((self.get_text(), self.get_window_extent(renderer)))
        draw_text(self, renderer, *arguments, **more)

    monkeypatch.setattr(FigureCanvasAgg, "draw", page)
    monkeypatch.setattr(Text, "draw", text)
    drawn(tmp_path, summary_of(outcome_of(FOUR, attackers=2), red="bline,meander"))
    for k, name in enumerate(NAMES):
        boxes = seen[1 + k]
        assert len(boxes) > 10
        for word, box in boxes:
            assert -2 <= box.x0 < box.x1 <= 902, (name, word)
        overlapping = [
            (a, b)
            for i, (a, one) in enumerate(boxes)
            for b, other in boxes[:i]
            if one.x0 + 1 < other.x1 and other.x0 + 1 < one.x1 and one.y0 + 2 < other.y1 and other.y0 + 2 < one.y1
        ]
        assert not overlapping, name


# ----------------------------------------------------------------------------------------------------------- bad input
def test_without_a_summary_the_message_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"summary\.json is missing"):
        draw_search(tmp_path)
    assert not (tmp_path / "pictures").exists()


def without(*keys: Any) -> Callable[[dict[str, Any]], None]:
    def damage(summary: dict[str, Any]) -> None:
        for key in keys[:-1]:
            summary = summary[key]
        del summary[keys[-1]]

    return damage


@pytest.mark.parametrize("damage", [
    without("classes"), without("classes", 0, "low"), without("settings", "red"), without("precedences", 0, "effect"),
    without("curves", "orders", 0), without("curves", "values", 0), without("margin"),
    lambda summary: summary["classes"].clear(), lambda summary: summary["classes"][0].update(value=None),
    lambda summary: summary["classes"][0].update(high="high"), lambda summary: summary.update(classes=3),
])  # fmt: skip
def test_a_damaged_summary_is_refused(tmp_path: Path, damage: Callable[[dict[str, Any]], None]) -> None:
    summary = three()
    damage(summary)
    with pytest.raises(InputError, match=r"summary\.json is missing, damaged or of another version"):
        drawn(tmp_path, summary)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"workflows": [], "ranking": []}'])
def test_a_file_that_is_no_summary_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "summary.json").write_bytes(content)
    with pytest.raises(InputError, match=r"summary\.json"):
        draw_search(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps(three()))
    (tmp_path / "pictures").write_text("in the way")
    with pytest.raises(InputError, match="pictures cannot be written"):
        draw_search(tmp_path)


def test_without_matplotlib_the_message_names_the_extra(tmp_path: Path) -> None:
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
    draw_search(Path({str(tmp_path)!r}))
except InputError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'stockade[plots]'" in result.stdout


def test_drawing_does_not_touch_the_state_of_pyplot(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps(three()))
    code = f"""
import sys
from pathlib import Path
import matplotlib
from stockade.workflow.plots import draw_search
draw_search(Path({str(tmp_path)!r}))
print("matplotlib.pyplot" in sys.modules)  # before rcParams are read: reading the backend loads it
print(all(matplotlib.rcParams[key] == matplotlib.rcParamsDefault[key] for key in ("font.size", "svg.fonttype")))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True"]


# --------------------------------------------------------------------------------------------- at the end of a search
@pytest.mark.parametrize("plots", [True, False])
def test_a_search_ends_with_its_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str], plots: bool) -> None:
    config = SearchConfig(red="bline", horizon=30, total_episodes=8000, runs=tmp_path, name="x", plots=plots)
    finish(config, SearchFolder.create(config), outcome_of(THREE))
    printed = capsys.readouterr().out
    assert ("values.png" in printed) == plots
    assert (tmp_path / "x" / "pictures" / "values.png").exists() == plots


def test_searches_are_listed_beside_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = SearchConfig(red="bline", horizon=30, total_episodes=8000, runs=tmp_path, name="done", plots=False)
    finish(config, SearchFolder.create(config), outcome_of(THREE))
    SearchFolder.create(SearchConfig(red="bline", total_episodes=500, runs=tmp_path, name="new"))
    capsys.readouterr()
    assert RunsConfig(runs=tmp_path, json=tmp_path / "runs.json").run() == 0
    printed = capsys.readouterr().out
    assert "done" in printed
    content = {row["name"]: row for row in json.loads((tmp_path / "runs.json").read_text())}
    summary = json.loads((tmp_path / "done" / "summary.json").read_text())
    assert content["done"]["value"] == summary["classes"][0]["value"]
    assert all(order in content["done"]["best"] for order in summary["best"])
    assert content["done"]["status"] == "finished"
    assert content["new"]["status"] == "interrupted"
    assert content["new"]["value"] is None
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps(TrainConfig(red="meander").to_json()))
    assert RunsConfig(("run", "done"), runs=tmp_path).run() == 0
    differ = capsys.readouterr().out.partition("Settings that differ")[2].split()
    assert "meander" in differ
    assert not {"gamma", "gp_beta"} & set(differ), "settings that only runs or only searches have"


# ------------------------------------------------------------------------------------------------------- short budgets
def test_a_budget_in_which_restores_are_given_up_is_called_short() -> None:
    found = {budget: summary_of(outcome_of(FOUR), total_episodes=budget)["verdict"] for budget in (79_000, 80_000)}
    assert "A budget below 80,000 episodes is short" in found[79_000].replace("\n  ", " ")
    assert "is short" not in found[80_000]
