"""`stockade bench report`: results -> docs/benchmarks.md, its pictures, and the README's part between two marks.

The same results give the same bytes, so that a test can tell whether anybody typed a figure by hand.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import tyro

from stockade.bench.page import make_page
from stockade.bench.page_readme import make_readme_part
from stockade.bench.report_files import RESULTS, read_results
from stockade.bench.report_pictures import PICTURES
from stockade.bench.report_plots import require_matplotlib, save
from stockade.bench.report_tables import Results
from stockade.errors import InputError
from stockade.learn.files import write_durably

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


@dataclass(frozen=True)
class Report:
    """Markdown tables and pictures of results."""

    results: tyro.conf.Positional[Path] = RESULTS
    """Folder of results, as `stockade bench all` writes them."""
    page: Path = Path("docs/benchmarks.md")
    """The page to write; all of it is made anew."""
    images: Path = Path("docs/images")
    """Folder for its pictures."""
    readme: Path | None = Path("README.md")
    """Put a table between the lines `<!-- bench:begin -->` and `<!-- bench:end -->` of this file; None for none."""

    def run(self) -> int:
        """Draw and write; whatever cannot be done is found out before."""
        if not self.results.is_dir():
            raise InputError(f"{self.results} is no folder of results: make one with `stockade bench all`")
        by_bench, older = read_results(self.results)
        for line in older:
            print(f"warning: {line}")
        results = Results(by_bench)
        require_matplotlib()
        texts = {} if self.readme is None else {self.readme: with_part(self.readme, make_readme_part(results))}
        pictures = {bench: picture for bench, draw in PICTURES.items() if (picture := draw(results)) is not None}
        texts[self.page] = make_page(results, {bench: self.link(bench) for bench in pictures})
        for folder in (self.page.parent, self.images):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(f"{folder}: cannot make this folder ({error.strerror})") from error
        for bench, picture in pictures.items():
            save(picture, self.image(bench))
            print(self.image(bench))
        for path, text in texts.items():
            write_durably(path.absolute(), text.encode())
            print(path)
        return 0

    def image(self, bench: str) -> Path:
        """Where the picture of a bench is written."""
        return self.images / f"bench-{bench}.svg"

    def link(self, bench: str) -> str:
        """The same as seen from the page."""
        return Path(os.path.relpath(self.image(bench), self.page.parent)).as_posix()


def with_part(path: Path, part: str) -> str:
    """The text of a file with a new part between the marks.

    Raises:
        InputError: there is no such file, or it does not have both marks once, in order.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"--readme {path}: {error.strerror}; give `--readme None` to write the page only") from error
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise InputError(f"--readme {path}: it needs the line {BEGIN} and, below it, the line {END}, each once")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{part}{END}{rest.split(END)[1]}"
