"""Pages of runs and searches: they hold what was measured, work in a browser, and run nothing that a name says."""

import json
import re
import shutil

import numpy as np
import pytest

import stockade
from stockade import cli
from stockade.errors import InputError
from stockade.learn.evaluate import play
from stockade.learn.exploit import ExploitConfig, exploit
from stockade.learn.files import read_metrics
from stockade.report.command import (
    comparison_sections,
    evaluation_sections,
    exploit_sections,
    report,
    run_sections,
    search_sections,
)

pytest.importorskip("bokeh")
HOSTILE = "<img src=x onerror=alert(1)><!--<script>alert(2)"  # the latter would swallow the end of a real script
HOSTS = " > ".join(f"{kind}{k}" for kind in ("Enterprise", "Op_Host", "User") for k in range(4))  # of a search by hosts
DRAWN = "return Bokeh.documents.length && Bokeh.documents.every((d) => d.is_idle)"
SET_SCHEME = "Emulation.setEmulatedMedia"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs that differ in one setting, and a search with names that nobody should trust."""
    folder = tmp_path_factory.mktemp("runs")
    for name, rate in (("first", 1e-3), (f"second {HOSTILE}", 3e-3)):
        small = {"horizon": 10, "n_envs": 20, "total_episodes": 300, "checkpoint_episodes": 100, "tensorboard": False}
        stockade.train(name=name, learning_rate=rate, runs=folder, progress=False, **small)
    search = folder / "search"
    search.mkdir()
    (search / "config.json").write_text(json.dumps({"command": "search", "seed": 0, "name": "</script><b>x</b>"}))
    orders = ["a > b", f"b > a </script>{HOSTILE}", HOSTS]
    classes = [{"order": order, "value": -7.0 - k, "low": -8.0 - k, "high": -6.5 - k, "p_best": 0.75 - 0.25 * k,
                "episodes": 100} for k, order in enumerate(orders)]  # fmt: skip
    precedences = [{"before": "a", "after": "b", "effect": 1.0, "low": 0.2, "high": 1.8}]
    curves = {"orders": orders, "episodes": [50, 100], "values": [[[-9.0, -10.0, -11.0]], [[-7.0, -8.0, -9.0]]]}
    content = {"format": 2, "classes": classes, "precedences": precedences, "curves": curves, "goal": "mean",
               "verdict": f"a before b. {HOSTILE}"}  # fmt: skip
    (search / "summary.json").write_text(json.dumps(content))
    exploit(ExploitConfig("react-restore", seeds=2, total_episodes=64, horizon=10, episodes=20, n_envs=32,
                          name="exploited", runs=folder), progress=False)  # fmt: skip
    score = stockade.evaluate("react-restore", suite="robustness", episodes=2, progress=False)
    (folder / "score.json").write_text(json.dumps(score.to_dict() | {"policy": HOSTILE}))
    return folder


def columns(section):
    """Data of all lines and points of a chart."""
    return [renderer.data_source.data for renderer in section.content.renderers]


def named(sections, title):
    return next(section for section in sections if section.title == title)


def test_the_curves_of_a_run_are_its_metrics(runs):
    rows = read_metrics(runs / "first" / "metrics.csv")
    sections = run_sections(runs / "first")
    window = next(
        data for data in columns(named(sections, "Return")) if "mean of the last 1000" in data.get("name", ())
    )
    assert window["x"] == [row["episodes"] for row in rows]
    assert window["y"] == [row["return_window"] for row in rows]
    entropy = columns(named(sections, "Entropy"))[0]
    assert entropy["y"] == [row["entropy"] for row in rows]


def test_a_search_shows_its_verdict_values_and_precedences(runs):
    sections = search_sections(runs / "search")
    assert named(sections, "Verdict").content.startswith("a before b.")
    values = columns(named(sections, "Value of each order, 95% interval"))[0]
    assert (values["value"], values["low"], values["high"]) == (
        [-7.0, -8.0, -9.0],
        [-8.0, -9.0, -10.0],
        [-6.5, -7.5, -8.5],
    )
    effects = columns(named(sections, "Effect of repairing one before another, 95% interval"))[0]
    assert (effects["value"], effects["low"]) == ([1.0], [0.2])
    first, second, _ = columns(named(sections, "Value over training"))
    assert (first["y"], second["y"]) == ([-9.0, -7.0], [-10.0, -8.0])


def test_an_evaluation_shows_its_cells_and_the_worst_of_the_suite(runs, tmp_path):
    content = json.loads((runs / "score.json").read_text())
    suite = content.pop("robustness")
    sections = evaluation_sections(runs / "score.json")
    assert named(sections, f"Robustness suite, version {suite['version']}").content == suite["summary"]
    means = columns(named(sections, "Mean return of each cell, 95% interval"))[0]
    assert means["value"] == [cell["mean"] for cell in suite["cells"]]
    assert [high - value for high, value in zip(means["high"], means["value"], strict=True)] == pytest.approx(
        [cell["interval"] for cell in suite["cells"]]
    )
    (tmp_path / "plain.json").write_text(json.dumps(content))
    assert len(named(evaluation_sections(tmp_path / "plain.json"), "All cells").content.rows) == 9


def test_a_result_of_exploit_shows_the_attackers_and_before_its_end_their_trainings(runs, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(runs / "exploited", folder)
    result = json.loads((folder / "exploit.json").read_text())
    sections = exploit_sections(folder)
    assert named(sections, "What the strongest attacker does").content.splitlines() == result["words"]
    means = columns(named(sections, "Return of the policy against each attacker, 95% interval"))[0]
    assert means["value"] == [cell["mean"] for cell in result["against"]]
    last = [read_metrics(folder / name / "metrics.csv")[-1]["return_window"] for name in ("seed0", "seed1")]
    trained = columns(named(sections, "Trainings, mean of the last 1000 episodes"))
    assert [data["y"][-1] for data in trained] == last

    (folder / "exploit.json").unlink()
    assert [section.title for section in exploit_sections(folder)] == [section.title for section in sections[3:]]
    (folder / "exploit.json").write_text("{}")
    with pytest.raises(InputError, match=r"exploit\.json cannot be used"):
        report([folder])


@pytest.mark.parametrize("content", ["{}", "[]", "no JSON", '{"cells": [{}]}'])
def test_a_file_that_is_no_evaluation_is_named(tmp_path, capsys, content):
    (tmp_path / "other.json").write_text(content)
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", str(tmp_path / "other.json")])
    assert ended.value.code == 2
    assert "other.json is no result of stockade evaluate --json" in capsys.readouterr().err


def test_runs_are_compared_by_greedy_play_in_the_same_episodes(runs):
    folders = [runs / "first", runs / f"second {HOSTILE}"]
    sections = comparison_sections(folders, 200)
    assert "learning_rate" in named(sections, "Comparison").content
    assert "entropy_weight" not in named(sections, "Comparison").content
    rows = columns(next(section for section in sections if section.title.startswith("Greedy play")))[0]
    returns = [play(stockade.load(folder), "bline", 10, 200, 153) for folder in folders]
    assert rows["value"] == pytest.approx([0.0, float((returns[1] - returns[0]).mean())])
    assert rows["low"][1] < rows["value"][1] < rows["high"][1] or np.ptp(returns[1] - returns[0]) == 0


def test_only_runs_are_compared_and_what_is_damaged_is_named(runs, tmp_path):
    with pytest.raises(InputError, match="only training runs are compared"):
        report([runs / "first", runs / "search"])
    shutil.copytree(runs / "search", tmp_path / "broken")
    (tmp_path / "broken" / "summary.json").write_text("{}")
    with pytest.raises(InputError, match=r"broken.summary\.json cannot be used"):
        report([tmp_path / "broken"])


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("which", ["first", "search", "both", "score", "exploited"])
def test_pages_draw_their_charts_ask_for_nothing_and_run_no_name(browser, runs, tmp_path, capsys, which, width):
    names = {"both": ["first", f"second {HOSTILE}"], "score": [str(runs / "score.json")]}.get(which, [which])
    page = tmp_path / "report.html"
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", *names, "--runs", str(runs), "--out", str(page), "--episodes", "50"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"page: {page}\n"
    assert page.stat().st_size < 6_000_000
    browser.open(page, width, dark=width == 400)
    browser.wait(DRAWN)
    charts = browser.run("return document.querySelectorAll('section.chart').length")
    assert charts == browser.run("return Bokeh.documents[0].roots().length")
    assert charts >= (1 if which == "score" else 2)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.requests() == [page.as_uri()]
    assert [line for line in browser.complaints() if "[bokeh" not in line] == []
    assert browser.run("return document.images.length") == 0
    assert browser.run("return document.querySelectorAll('b').length") == 0
    if which == "both":
        assert HOSTILE in browser.run("return document.querySelector('h1').textContent")


def luminance(colour):
    """Of `#rrggbb`, `#rgb` or `rgb(r, g, b)`, as WCAG defines it."""
    if colour.startswith("#"):
        digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
        parts = [int(digits[i : i + 2], 16) for i in (0, 2, 4)]
    else:
        parts = [int(part) for part in re.findall(r"\d+", colour)[:3]]
    linear = [p / 255 / 12.92 if p <= 10 else ((p / 255 + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_of_page_and_charts_stands_out_in_both_schemes_also_when_the_scheme_changes(browser, runs, tmp_path):
    page = tmp_path / "report.html"
    page.write_text(report([runs / "search"]), "utf-8")
    browser.open(page, dark=True)
    browser.wait(DRAWN)
    grounds = []
    for scheme in ("dark", "light", "dark"):
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.driver.execute_cdp_cmd(SET_SCHEME, media)
        ground = browser.run("return getComputedStyle(document.querySelector('section.chart')).backgroundColor")
        grounds.append(luminance(ground))
        chart = """const found = [...Bokeh.documents[0].roots()].flatMap((chart) => [...chart.references()]);
            const names = ['axis_label_text_color', 'major_label_text_color', 'label_text_color'];
            return found.flatMap((m) => names.filter((n) => n in m.properties).map((n) => m[n]))"""
        browser.wait(f"return (() => {{ {chart} }})().every((c) => c === getComputedStyle(document.documentElement)"
                     ".getPropertyValue('--ink').trim())")  # fmt: skip
        texts = browser.run("return ['h1', '.muted', 'pre', 'td', 'th', 'summary'].map((name) => "
                            "getComputedStyle(document.querySelector(name)).color)")  # fmt: skip
        for colour in (*browser.run(chart), *texts):
            assert contrast(colour, ground) >= 4.5
        assert contrast(texts[1], browser.run("return getComputedStyle(document.body).backgroundColor")) >= 4.5
    assert grounds[0] == grounds[2] < 0.1 < 0.9 < grounds[1]


def test_by_keyboard_every_chart_gives_its_values_as_a_table(browser, runs, tmp_path):
    from selenium.webdriver.common.keys import Keys

    page = tmp_path / "report.html"
    page.write_text(report([runs / "search"]), "utf-8")
    browser.open(page)
    browser.wait(DRAWN)
    charts, opened, reached = browser.run("return document.querySelectorAll('section.chart').length"), [], set()
    for _ in range(200):
        browser.press(Keys.TAB)
        tag, name = browser.run("const e = document.activeElement; return [e.tagName, e.className]")
        reached.add(name)
        if tag == "BODY" and opened:
            break
        if tag == "SUMMARY":
            browser.press(Keys.ENTER)
            opened.append(browser.run("return document.activeElement.parentElement.innerText"))
    assert len(opened) == charts
    assert "scroll" in reached, "wide tables scroll by keyboard"
    for number in ("-7", "-8", "-6.5"):
        assert number in opened[0]
