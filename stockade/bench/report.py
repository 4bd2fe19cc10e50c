"""`stockade bench report`: results -> the tables between the markers of hand-written pages, and pictures.

The same results give the same bytes, so that a test can tell whether anybody typed a figure by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import tyro

from stockade.bench.pictures import PICTURES, require_matplotlib, save
from stockade.bench.result import RESULTS, read_results
from stockade.bench.tables import TABLES
from stockade.errors import InputError
from stockade.files import write_durably

PAGES = (Path("README.md"), Path("docs/benchmarks.md"), Path("docs/first-version.md"), Path("docs/search.md"))


@dataclass(frozen=True)
class Report:
    """Fill the tables of pages, and draw the pictures, from results."""

    results: tyro.conf.Positional[Path] = RESULTS
    """Folder of results, as `stockade bench all` writes them."""
    pages: tuple[Path, ...] = PAGES
    """Markdown files. What is between the lines `<!-- bench:NAME:begin -->` and `<!-- bench:NAME:end -->` becomes the
    table NAME; all else stays."""
    images: Path = Path("docs/images")
    """Folder for the pictures."""

    def run(self) -> int:
        """Draw and write; whatever cannot be done is found out before."""
        if not self.results.is_dir():
            raise InputError(f"{self.results} is no folder of results: make one with `stockade bench all`")
        results = read_results(self.results)
        require_matplotlib()
        blocks = {name: partial(table, results) for name, table in TABLES.items()}
        texts = {page: fill(page, "bench", blocks) for page in self.pages}
        pictures = {name: picture for name, draw in PICTURES.items() if (picture := draw(results)) is not None}
        try:
            self.images.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--images {self.images}: cannot make this folder ({error.strerror})") from error
        for name, picture in pictures.items():
            save(picture, self.images / f"{name}.svg")
            print(self.images / f"{name}.svg")
        for page, text in texts.items():
            write_durably(page.absolute(), text.encode())
            print(page)
        return 0


def fill(page: Path, prefix: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """The text of a page with every block between `<!-- PREFIX:NAME:begin -->` and `...:end -->` made anew.

    Raises:
        InputError: the page cannot be read, a name is unknown, or a marker has no partner.
    """
    try:
        text = page.read_text()
    except OSError as error:
        raise InputError(f"{page}: {error.strerror}") from error
    begin = rf"<!-- {prefix}:([\w-]+):begin -->\n"
    whole = re.compile(begin + rf".*?<!-- {prefix}:\1:end -->", re.DOTALL)
    if not len(whole.findall(text)) == len(re.findall(begin, text)) == len(re.findall(f"<!-- {prefix}:.*?:end", text)):
        raise InputError(
            f"{page}: every `<!-- {prefix}:NAME:begin -->` needs its `<!-- {prefix}:NAME:end -->` below it"
        )

    def block(match: re.Match[str]) -> str:
        name = match[1]
        if name not in blocks:
            raise InputError(f"{page}: there is no table {name}; there are {', '.join(blocks)}")
        return f"<!-- {prefix}:{name}:begin -->\n{blocks[name]()}\n<!-- {prefix}:{name}:end -->"

    return whole.sub(block, text)
