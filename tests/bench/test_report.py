"""`stockade bench report`: the page says what the results say, all of it, and nothing that they do not."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from stockade import cli
from stockade.bench.figures import figure_of
from stockade.bench.page import make_page
from stockade.bench.page_claims import TOPICS
from stockade.bench.page_readme import make_readme_part
from stockade.bench.page_sections import SECTIONS
from stockade.bench.report import Report, with_part
from stockade.bench.report_files import read_results
from stockade.bench.report_pictures import PICTURES
from stockade.bench.report_plots import save
from stockade.bench.report_tables import Ask, Results, Table, cell, number
from tests.bench.complete import complete
from tests.bench.results import STAMP, one, result, write

ROOT = Path(__file__).parents[2]
ASKS = [ask for topic in TOPICS for claim in topic.claims for ask in claim.now]
MARKED = "# Title\n\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nthe end\n"


@pytest.fixture(scope="module")
def results() -> Results:
    return Results({each.bench: each for each in complete()})


@pytest.fixture
def checkout(tmp_path):
    """A folder with two results and a README."""
    write(tmp_path / "results", *(each for each in complete() if each.bench in ("memory", "kernel")))
    (tmp_path / "README.md").write_text(MARKED)
    return tmp_path


@pytest.fixture
def stockade(capsys):
    def run(folder, *arguments):
        files = ["--page", folder / "docs" / "b.md", "--images", folder / "docs" / "img"]
        given = [folder / "results", *files, "--readme", folder / "README.md", *arguments]
        with pytest.raises(SystemExit) as ended:
            cli.main(["bench", "report", *map(str, given)])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


# ---------------------------------------------------------------------------------------------- what is in the checkout
def test_the_pages_are_what_the_committed_results_give():
    results = Results(read_results(ROOT / "benchmarks" / "results")[0])
    report = Report(page=Path("docs/benchmarks.md"), images=Path("docs/images"))
    pictures = {bench: report.link(bench) for bench, draw in PICTURES.items() if draw(results) is not None}
    again = "make them anew with `stockade bench report`"
    assert (ROOT / "docs" / "benchmarks.md").read_text() == make_page(results, pictures), again
    readme = ROOT / "README.md"
    assert readme.read_text() == with_part(readme, make_readme_part(results)), again
    assert all((ROOT / "docs" / link).is_file() for link in pictures.values()), again


# ------------------------------------------------------------------------------------------------------------ the page
def test_every_claim_is_answered_by_what_the_benches_measure_by_default(results):
    assert [ask for ask in ASKS if ask.answer(results) is None] == []


def test_every_claim_says_what_the_notes_said_and_why_it_differs():
    for topic in TOPICS:
        for claim in topic.claims:
            assert claim.notes
            assert claim.why
            assert claim.now


NOTES = """
3,391|2,766|434|0.8|0.1|270|180|3,052|393|17|2.2|1.5|47%|48%|20%|8%|23.8%|71%|29%|30 to 50%|2 to 3 times|550 ms|33 ms
111 s|6.6 s|0.554|0.242|800|710 kB|71 MB|5 kB|2.7|9.1|1.1|3 to 4|70 to 120|173|3.4|150 to 170|160 to 173|130 to 150
500 to 1000|20 to 30%|18 to 20|70 to 75%|50 to 70%|85 to 98%|5 to 10|more than 10|3.6|1.2 times
600|20 s|1.112 s|2.3 times|200 times|0.8 times|70% efficiency
"""


@pytest.mark.parametrize("figure", NOTES.strip().replace("\n", "|").split("|"))
def test_every_figure_of_the_notes_has_its_place(figure):
    said = " ".join(f"{claim.what} {claim.notes}" for topic in TOPICS for claim in topic.claims)
    assert figure in said


def test_the_page_shows_the_value_that_was_measured(results):
    page = make_page(results, {})
    (found,) = results.find("throughput", "steps/s", world="synthetic", mode="steps only", backend="pipes", n_envs=200)
    row = next(line for line in page.splitlines() if line.startswith("| pipes | 180 transitions/s"))
    assert f"`pipes`, steps only: {cell(found)} steps/s" in row
    table = page[page.index("| the reference's cost, steps only, steps/s |") :]
    assert cell(found) in next(line for line in table.splitlines() if line.startswith("| pipes |"))


def test_every_figure_of_every_result_is_on_the_page(results):
    page = make_page(results, {})
    missing = [f.what for r in results.by_bench.values() for f in r.figures if cell(f) not in page]
    assert missing == []


def test_figures_that_no_table_knows_are_listed():
    strange = figure_of("weight of the keyboard", [123.0], "g")
    page = make_page(Results({"kernel": result("kernel", [strange])}), {})
    assert "| weight of the keyboard | 123 | g |" in page


def test_the_page_says_how_to_repeat_and_what_was_left_out(results):
    page = make_page(results, {})
    for each in results.by_bench.values():
        assert f"Repeat it: `{each.command}`" in page
    assert "- PufferLib: it is not installed: pip install pufferlib" in page


def test_the_readme_shows_everything_that_it_asks_for(results):
    part = make_readme_part(results)
    assert "ot measured" not in part
    (found,) = results.find("throughput", "steps/s", world="built-in", mode="steps only", backend="native", n_envs=200)
    assert next(line for line in part.splitlines() if line.startswith("| `native` |")).split(" | ")[1] == cell(found)


def test_without_results_it_says_what_to_run():
    page = make_page(Results({}), {})
    for section in SECTIONS:
        assert f"Not measured: run `stockade bench {section.bench} --json" in page
    assert page.count("not measured: run `stockade bench") >= len(TOPICS)
    assert "run `stockade bench" in make_readme_part(Results({}))


def test_links_within_the_page_lead_to_headings(results):
    page = make_page(results, {})
    headings = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^## (.*)$", page, re.M)}
    assert set(re.findall(r"\]\(#([^)]*)\)", page)) <= headings


def test_tables_have_as_many_cells_in_every_row(results):
    blocks = re.findall(r"(?:^\|.*\|$\n?)+", make_page(results, {}) + make_readme_part(results), re.M)
    assert len(blocks) > 20
    for block in blocks:
        assert len({line.replace("\\|", "").count("|") for line in block.splitlines()}) == 1, block


# --------------------------------------------------------------------------------------------------------------- asking
def test_ratios_are_taken_round_by_round():
    figures = [figure_of("a", [10.0, 40.0, 90.0], "steps/s", k=1), figure_of("b", [5.0, 10.0, 30.0], "steps/s", k=2)]
    results = Results({"x": result("x", figures)})
    answer = Ask("x", {"k": 1}, "steps/s", over=Ask("x", {"k": 2}, "steps/s")).answer(results)
    assert answer is not None
    assert answer.rounds == (2.0, 4.0, 3.0)
    assert (answer.value, answer.low, answer.high, answer.unit) == (3.0, 2.0, 4.0, "times")


def test_tags_must_all_fit_and_none_means_without():
    figures = [figure_of("a", [1.0], "s", k=1, kind="bound"), figure_of("b", [2.0], "s", k=1)]
    results = Results({"x": result("x", figures)})
    assert [f.what for f in results.find("x", "s", k=1)] == ["a", "b"]
    assert [f.what for f in results.find("x", "s", k=1, kind=None)] == ["b"]
    assert [f.what for f in results.find("x", "s", k=(1, 2), kind="bound")] == ["a"]
    assert results.find("x", "ms", k=1) == results.find("x", "s", k=2) == results.find("y", "s", k=1) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123, "0.012"), (0.5, "0.5"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346"), (2.5e7, "25 million")],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_a_range_of_millions_says_so_once():
    assert cell(figure_of("x", [1e6, 2e6, 4e6], "steps/s")) == "2 (1 to 4) million"
    assert cell(figure_of("x", [9e5, 2e6, 4e6], "steps/s")) == "2 million (900,000 to 4 million)"


def test_columns_are_in_the_order_of_their_numbers():
    figures = [figure_of("x", [float(n)], "s", k="a", n=n) for n in (200, 20, 1000)]
    head = Table("t", "s", "k", "n").lines(Results({"x": result("x", figures)}), "x")[1]
    assert head == "| t, s | 20 | 200 | 1,000 |"


# ------------------------------------------------------------------------------------------------------------ pictures
@pytest.mark.parametrize("bench", PICTURES)
def test_a_picture_drawn_again_is_the_same_file(results, bench, tmp_path):
    files = [tmp_path / "first.svg", tmp_path / "second.svg"]
    for file in files:
        save(PICTURES[bench](results), file)
    content = files[0].read_bytes()
    assert content.startswith(b"<?xml")
    assert b"<dc:date>" not in content
    assert content == files[1].read_bytes()


@pytest.mark.parametrize("bench", PICTURES)
def test_without_figures_there_is_no_picture(bench):
    assert PICTURES[bench](Results({})) is None


# ------------------------------------------------------------------------------------------------------------- command
def test_the_command_writes_page_pictures_and_readme_and_repeats_itself(stockade, checkout):
    assert stockade(checkout)[0] == 0
    files = [file for file in checkout.rglob("*") if file.suffix in (".md", ".svg")]
    assert len(files) == 3
    first = {file: file.read_bytes() for file in files}
    page = (checkout / "docs" / "b.md").read_text()
    assert re.findall(r"!\[.*?\]\((.*?)\)", page) == ["img/bench-memory.svg"]
    readme = (checkout / "README.md").read_text()
    assert readme.startswith("# Title\n\n<!-- bench:begin -->\nMeasured by")
    assert readme.endswith("<!-- bench:end -->\nthe end\n")
    assert "\nold\n" not in readme
    assert stockade(checkout)[0] == 0
    assert {file: file.read_bytes() for file in files} == first


@pytest.mark.parametrize("text", ["", "<!-- bench:end -->\n<!-- bench:begin -->\n", MARKED + MARKED])
def test_a_readme_without_marks_is_refused_before_anything_is_written(stockade, checkout, text):
    (checkout / "README.md").write_text(text)
    code, _, err = stockade(checkout)
    assert code == 2
    assert "<!-- bench:begin -->" in err
    assert not (checkout / "docs").exists()


def test_a_broken_result_is_named_with_the_reason(stockade, checkout):
    (checkout / "results" / "memory.json").write_text('{"bench": "memory", "command": "x", "figures": [3]}')
    code, _, err = stockade(checkout)
    assert code == 2
    assert "memory.json is no result of a bench" in err
    assert not (checkout / "docs").exists()


def test_results_of_an_older_format_are_left_out_with_a_warning(stockade, checkout):
    (checkout / "results" / "memory.json").write_text(json.dumps({"bench": "memory", "stamp": {}, "figures": []}))
    code, out, _ = stockade(checkout)
    assert code == 0
    assert "memory.json is of an older format" in out
    assert "Not measured: run `stockade bench memory" in (checkout / "docs" / "b.md").read_text()


def test_a_missing_folder_is_refused(stockade, tmp_path):
    code, _, err = stockade(tmp_path)
    assert code == 2
    assert "stockade bench all" in err


def test_the_readme_can_be_left_alone(stockade, checkout):
    assert stockade(checkout, "--readme", "None")[0] == 0
    assert (checkout / "README.md").read_text() == MARKED


def test_results_of_several_machines_are_told_apart():
    here, there = one([1.0]), result("memory", [])
    elsewhere = dataclasses.replace(there, stamp={**STAMP, "cpu": "Abacus 4000"})
    machines = [line for line in make_page(Results({**here, "memory": there}), {}).splitlines() if "Abacus" in line]
    assert len(machines) == 1
    page = make_page(Results({**here, "memory": elsewhere}), {})
    machines = [line for line in page.splitlines() if "Abacus" in line]
    assert [line.rpartition(" ")[2] for line in machines] == ["(throughput)", "(memory)"]
