"""The documentation site: it builds without a warning, and opens from disk in a browser that finds nothing missing."""

import json
import os
import re
import subprocess
import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

import pytest

from stockade.cli import COMMANDS
from tests.browser import Browser, browser  # noqa: F401

pytest.importorskip("material", reason="the extra `docs` is not installed; `make test-docs` does it")
pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {"DOCS_EXECUTE": "0", "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
MAIN_PAGES = ("index", "start/install", "guides/backends", "concepts/rules", "reference/commands/train",
              "reference/python/environments", "results/champion", "about/changes")  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, without the outputs of the tutorials: those are run by a test of their own."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **SETTINGS}, capture_output=True, text=True, check=False
    )
    assert (built.returncode, built.stdout + built.stderr) == (0, "")
    return folder


class Links(HTMLParser):
    """Addresses that a page leads to or loads, and the places in it that links can aim at."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.leads, self.loads, self.places = set(), set(), {""}
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if "href" in given:
            (self.leads if tag == "a" else self.loads).add(given["href"])
        if "src" in given:
            self.loads.add(given["src"])


def test_every_link_leads_to_a_place_that_exists_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 60
    for page, links in pages.items():
        for address in links.leads | links.loads:
            parts = urllib.parse.urlsplit(address)
            if parts.scheme in ("http", "https"):
                assert address in links.leads, f"{page} loads {address}"
            elif not parts.scheme:
                target = (page.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else page
                assert target.is_file(), f"{page}: {address}"
                fragment = urllib.parse.unquote(parts.fragment)
                assert target not in pages or fragment in pages[target].places, f"{page}: {address}"


def test_the_command_line_is_there_as_it_is(site: Path) -> None:
    seen: set[str] = set()
    for name in COMMANDS:
        text = (site / "reference" / "commands" / f"{name}.html").read_text()
        shown = subprocess.run(
            [sys.executable, "-m", "stockade.cli", name, "--help"],
            env={**os.environ, **SETTINGS, "COLUMNS": "200"}, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        flags = set(re.findall(r"^\W*(--[a-z][\w.-]+)", shown, re.MULTILINE)) - {"--help"}
        assert flags <= set(re.findall(r"--[a-z][\w.-]+", text)), name
        seen |= flags
    assert len(seen) > 50


def test_every_tutorial_is_a_page_of_text_and_code(site: Path) -> None:
    for script in (ROOT / "docs" / "tutorials").glob("*.py"):
        text = (site / "tutorials" / f"{script.stem}.html").read_text()
        title = re.search(r"^# # (.*)$", script.read_text(), re.MULTILINE)
        assert title
        assert re.search(rf"<h1[^>]*>{re.escape(title[1])}<", text)
        assert 'class="highlight"' in text
        assert "%%" not in text, "a line between cells became text"


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_pages_open_from_disk_without_a_complaint(site: Path, browser: Browser, width: int, dark: bool) -> None:  # noqa: F811
    for name in MAIN_PAGES:
        browser.open(site / f"{name}.html", width=width, dark=dark)
        browser.wait("return document.readyState === 'complete'")
        assert browser.complaints() == [], name
        assert {urllib.parse.urlsplit(url).scheme for url in browser.requests()} <= {"file", "about"}, name
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth"), f"{name} is too wide"
        scheme = browser.run("return document.body.dataset.mdColorScheme")
        assert scheme == ("slate" if dark else "default"), name


def test_search_works_from_disk(site: Path, browser: Browser) -> None:  # noqa: F811
    browser.open(site / "guides" / "cluster.html")
    browser.driver.find_element("css selector", ".md-search__input").send_keys("decoy")
    browser.wait("return document.querySelectorAll('.md-search-result__link').length > 3")
    found = browser.run("return [...document.querySelectorAll('.md-search-result__link')].map(link => link.href)")
    assert any("concepts/rules.html" in address for address in found)
    assert browser.complaints() == []
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert any("reference/python/" in entry["location"] for entry in index["docs"])
