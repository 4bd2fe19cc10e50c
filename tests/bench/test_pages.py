"""benchmarks/pages.py: tables between markers say what the results say; all else on a page stays."""

import json
import re
import sys
from pathlib import Path

import pytest

from stockade.bench.result import find
from stockade.cli import parse
from tests.bench.results import figure, result, search_quality, write

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from common import read_results, run_script  # noqa: E402
from pages import FIRST_VERSION, PAGES, TABLES, Pages, filled, grid  # noqa: E402
from pictures import PICTURES, champion_curves, save  # noqa: E402

MARKED = "# Title\n\n<!-- bench:memory:begin -->\nold\n<!-- bench:memory:end -->\n\nwritten by hand\n"


@pytest.fixture(scope="module")
def committed():
    return read_results(ROOT / "benchmarks" / "results")


@pytest.fixture
def checkout(tmp_path):
    """A folder with one result and one page."""
    grown = [figure([float(n)], "MiB", backend="native", part="all", n_envs=n) for n in (1000, 20)]
    write(tmp_path / "results", result("memory", grown))
    (tmp_path / "page.md").write_text(MARKED)
    return tmp_path


@pytest.fixture
def pages(capsys):
    def run(folder):
        given = [folder / "results", "--pages", folder / "page.md", "--images", folder / "img"]
        return run_script(Pages, None, list(map(str, given))), capsys.readouterr().err

    return run


# ---------------------------------------------------------------------------------------------- what is in the checkout
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_the_tables_of_the_pages_are_what_the_committed_results_give(page, committed, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert (ROOT / page).read_text() == filled(ROOT / page, committed), "run `python benchmarks/pages.py`"


def test_every_table_is_on_a_page_and_every_picture_is_there(committed):
    text = "".join((ROOT / page).read_text() for page in PAGES)
    assert set(re.findall(r"<!-- bench:([\w-]+):begin", text)) == set(TABLES)
    pictures = set(re.findall(r"images/((?:bench|search)-[\w-]+).svg", text))
    assert pictures == {name for name in PICTURES if name.removeprefix("bench-") in committed}
    assert all((ROOT / "docs" / "images" / f"{name}.svg").is_file() for name in pictures)


def test_pictures_are_small_and_each_has_a_twin_for_papers():
    images = ROOT / "docs" / "images"
    for path in images.glob("*.svg"):
        assert path.stat().st_size < 60_000, path.name
        assert path.name == "readme-search.svg" or path.with_suffix(".pdf").read_bytes().startswith(b"%PDF"), path.name
    top = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (ROOT / "README.md").read_text().partition("\n## ")[0])
    assert top == ["docs/images/readme-replay.png"]
    assert all((ROOT / path).stat().st_size < 150_000 for path in top)


def test_answers_to_the_first_versions_claims_ask_for_one_figure_each(committed):
    for claim in json.loads((ROOT / FIRST_VERSION).read_text()):
        for ask in claim["now"]:
            found = find(committed[ask["bench"]].figures, ask["unit"], **ask["tags"])
            assert len(found) <= 1, ask


# --------------------------------------------------------------------------------------------------------------- tables
def test_a_table_has_the_value_that_was_measured_where_its_tags_say():
    figures = [
        figure([n * k for k in (1.0, 2.0, 4.0)], "s", backend=b, n_envs=n) for b in ("b", "a") for n in (200, 20)
    ]
    table = grid("x", "s", "backend", head="{} envs")({"x": result("x", figures)})
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert head == ["s", "20 envs", "200 envs"]
    assert rows == [["b", "40 (20 to 80)", "400 (200 to 800)"], ["a", "40 (20 to 80)", "400 (200 to 800)"]]


def test_what_was_not_measured_says_what_to_run():
    for name in TABLES.keys() - {"runs", "overview", "readme", "first-version"}:
        command = re.search("`stockade (.*)`", TABLES[name]({}))[1].split()
        assert parse(command[0], command[1:]).what.json == Path(command[-1])


def test_the_commands_of_the_page_exist():
    page = (ROOT / "docs" / "results" / "benchmarks.md").read_text()
    (block,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    commands = [line.split("  ")[0].split() for line in block.splitlines() if line and not line.startswith("#")]
    for program, name, *flags in commands:
        if program == "stockade":
            parse(name, flags)
        else:
            assert (program, (ROOT / name).is_file()) == ("python", True)
    assert len(commands) >= 5


# ------------------------------------------------------------------------------------------------------------- pictures
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "search-quality" else pytest.mark.slow) for name in PICTURES]
)
def test_a_picture_drawn_again_is_the_same_file(committed, name, tmp_path):
    files = [tmp_path / "first.svg", tmp_path / "second.svg"]
    for file in files:
        save(PICTURES[name]({"search-quality": search_quality(), **committed}), file)
    content = files[0].read_bytes()
    assert content.startswith(b"<?xml")
    assert b"<dc:date>" not in content
    assert content == files[1].read_bytes()
    assert PICTURES[name]({}) is None


def test_curves_of_the_champion_are_means_over_seeds_with_their_range():
    runs = [{"rules": rules, "training": [[10, 0.1, start + seed], [20, 0.2, -3.0]], "validation": []}
            for rules, start in (("current", -9.0), ("leaderboard", -7.0)) for seed in (0, 1, 5)]  # fmt: skip
    (panel,) = champion_curves(runs, 1000).axes
    lines = {line.get_label(): line.get_ydata().tolist() for line in panel.lines}
    assert lines == {"rules leaderboard: mean of 3 seeds": [-5.0, -3.0], "rules current: mean of 3 seeds": [-7.0, -3.0]}
    leaderboard, current = (sorted(set(band.get_paths()[0].vertices[:, 1])) for band in panel.collections)
    assert (leaderboard, current) == ([-7.0, -3.0, -2.0], [-9.0, -4.0, -3.0])


def test_the_table_has_one_row_per_case_and_the_picture_one_point_per_seed():
    results = {"search-quality": search_quality()}
    picture, _, head, _, *rows = TABLES["search-quality"](results).splitlines()
    assert picture.endswith("(../images/search-quality.svg)")
    assert head.split("|")[1].strip() == "attacker"
    assert len(rows) == 2 * 2 * 2
    assert [cell.strip() for cell in rows[0].strip("|").split("|")] == [
        "bline", "50,000", "strict", "0.5 (-0.1 to 2)", "2 (1 to 3)", "6", "9"]  # fmt: skip
    panels = PICTURES["search-quality"](results).axes
    assert [axes.get_title(loc="left").split(":")[0] for axes in panels] == ["bline", "bline", "meander", "meander"]
    line, points = panels[0].lines[:2]
    assert line.get_ydata().tolist() == [0.5, 0.5]
    assert points.get_ydata().tolist() == [0.5, 0.01, 2.0] * 2  # no regret is drawn at the bottom
    assert panels[0].get_yscale() == "log"


# -------------------------------------------------------------------------------------------------------------- command
def test_blocks_are_filled_and_a_second_time_changes_nothing(pages, checkout):
    assert pages(checkout)[0] == 0
    page = (checkout / "page.md").read_text()
    assert page.startswith("# Title\n\n<!-- bench:memory:begin -->\n| MiB")
    assert page.endswith("<!-- bench:memory:end -->\n\nwritten by hand\n")
    assert "old" not in page
    picture = (checkout / "img" / "bench-memory.svg").read_bytes()
    assert pages(checkout)[0] == 0
    assert (checkout / "page.md").read_text() == page
    assert (checkout / "img" / "bench-memory.svg").read_bytes() == picture


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<!-- bench:memory:begin -->\n", "needs its"),
        ("<!-- bench:memory:end -->\n<!-- bench:memory:begin -->\n", "needs its"),
        ("<!-- bench:memory:begin -->\n<!-- bench:kernel:end -->\n", "needs its"),
        ("<!-- bench:weather:begin -->\n<!-- bench:weather:end -->\n", "no table weather"),
    ],
)
def test_a_page_with_wrong_markers_is_refused_before_anything_is_written(pages, checkout, text, reason):
    (checkout / "page.md").write_text(text)
    code, err = pages(checkout)
    assert code == 2
    assert reason in err
    assert (checkout / "page.md").read_text() == text
    assert not (checkout / "img").exists()


def test_a_broken_result_is_named_with_the_reason(pages, checkout):
    (checkout / "results" / "memory.json").write_text('{"bench": "memory", "command": "x", "figures": [3]}')
    code, err = pages(checkout)
    assert code == 2
    assert "memory.json is no result of a bench" in err
    assert (checkout / "page.md").read_text() == MARKED


def test_what_is_missing_is_refused(pages, checkout, tmp_path):
    (checkout / "page.md").unlink()
    assert "page.md: No such file" in pages(checkout)[1]
    assert "results: No such file" in pages(tmp_path / "nothing")[1]
