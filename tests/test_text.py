"""Tables and numbers as users read them."""

import math

import pytest

from stockade.text import Table, duration, fixed, interval, median_range, number, plural, size, sparkline

RUNS = Table(["run", "return", "note"], [["first", "-3.50 ± 0.10", "a|b"], ["second", "n/a", None]], title="Runs")


def test_numbers_stand_right_and_words_left():
    assert str(RUNS).splitlines() == [
        "Runs",
        "run           return  note",
        "first   -3.50 ± 0.10  a|b",
        "second           n/a",
    ]


def test_alignment_can_be_given():
    assert str(Table(["seed"], [["7"]], align="l")) == "seed\n7"


@pytest.mark.parametrize("width", [100, 60, 45])
def test_a_wide_table_fits_and_loses_no_word_and_breaks_no_number(width):
    words = "a long description that nobody would want to see beyond the edge of the terminal"
    table = Table(["name", "a heading of many words", "what"], [["run", "-13.52 ± 0.20", words], [words, "1,234", "x"]])
    lines = table.text(width).splitlines()
    assert max(map(len, lines)) <= width
    assert any("-13.52 ± 0.20" in line for line in lines)
    assert sorted(" ".join(lines).split()) == sorted(
        " ".join([*table.header, *(cell for row in table.rows for cell in row)]).split()
    )


def test_markdown_escapes_bars_and_marks_columns_of_numbers():
    title, blank, head, marks, *rows = RUNS.markdown().splitlines()
    assert (title, blank) == ("Runs", "")
    assert marks == "|--------|-------------:|------|"
    assert {len(line) for line in (head, marks, *rows)} == {len(head)}
    assert rows[0] == "| first  | -3.50 ± 0.10 | a\\|b |"


def test_html_is_escaped():
    page = Table(["<b>"], [["x<script>"]], title="a & b")._repr_html_()
    assert "<b>" not in page
    assert "<script>" not in page
    assert "a &amp; b" in page


def test_a_row_of_the_wrong_length_is_an_error():
    with pytest.raises(ValueError, match="2 cells where the header has 1"):
        str(Table(["one"], [["a", "b"]]))


def test_cells_that_are_no_text():
    assert str(Table(["a", "b", "c", "d"], [[1234567, 0.12345, None, True]])).split() == [
        *("a", "b", "c", "d"), "1,234,567", "0.123", "yes",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (fixed(-13.515, 1), "-13.5"),
        (fixed(math.nan), "n/a"),
        (interval(-13.52, 0.2), "-13.52 ± 0.20"),
        (interval(-13.52, math.nan), "-13.52 ± n/a"),
        (number(14_412_345), "14.4 million"),
        (number(999_999), "1 million"),
        (number(2.5e9), "2,500 million"),
        (number(1234.4), "1,234"),
        (number(99.99), "100"),
        (number(0.001234), "0.00123"),
        (number(-0.5), "-0.5"),
        (number(math.inf), "n/a"),
        (median_range(14.4e6, 13.9e6, 15.1e6), "14.4 (13.9 to 15.1) million"),
        (median_range(1.2e6, 0.9e6, 1.3e6), "1.2 million (900,000 to 1.3 million)"),
        (median_range(3.0, 3.0, 3.0), "3"),
        (size(320), "320 B"),
        (size(0), "0 B"),
        (size(1536), "1.5 KiB"),
        (size(3 * 1024**3), "3 GiB"),
        (duration(0.00025), "250 us"),
        (duration(3.2), "3.2 s"),
        (duration(750), "12.5 minutes"),
        (duration(7200), "2 hours"),
        (plural(1, "episode"), "1 episode"),
        (plural(2000, "episode"), "2,000 episodes"),
        (plural(0, "class", "classes"), "0 classes"),
        (sparkline([0, 1, math.nan, 7]), "▁▂ █"),
        (sparkline([3, 3]), "▁▁"),
        (sparkline([]), ""),
    ],
)
def test_numbers(shown, wanted):
    assert shown == wanted
