"""Code blocks of Markdown pages: page -> fenced blocks -> Python to run, commands to run or at least to parse.

A block that cannot run as pasted has a mark before it that gives the reason, invisible on the page:

    <!-- not run: needs a cluster -->
    ```sh
    ray start --head
    ```
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ("python", "py")
SHELL = ("sh", "bash", "shell")
#: What is there to read: outputs, listings, settings, drawings.
DATA = ("", "text", "json", "toml", "yaml", "csv", "bibtex", "html", "mermaid")

_FENCE = re.compile(r"(?P<prefix>[\s>]*)(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_MARK = re.compile(r"<!--\s*not run\b[\s:]*(.*?)\s*-->")
_CODE = re.compile(r"(\$ |>>> |import \w|from \w+ import|(stockade|python3?|pip|git|make) [\w.'-])")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*")


class PageError(ValueError):
    """A page whose code blocks cannot be told apart, or that has a mark without sense."""


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    line: int  #: of its first line of code, from 1
    language: str  #: first word of its info string
    code: str  #: without the indentation of its fence
    not_run: str | None = None  #: why it is not run, if it is marked so

    def __str__(self) -> str:
        return f"{_short(self.page)}:{self.line}"

    @property
    def is_python(self) -> bool:
        return self.language in PYTHON

    @property
    def is_shell(self) -> bool:
        return self.language in SHELL

    def commands(self) -> list[list[str]]:
        """Commands of a shell block as words, without comments and assignments before them."""
        lines = self.code.replace("\\\n", " ").splitlines()
        parts = (part for line in lines for part in _split(shlex.split(line, comments=True)))
        return [part for part in parts if part]

    def problem(self) -> str | None:
        """What is wrong with its language or its mark, or None."""
        if self.language not in (*PYTHON, *SHELL, *DATA):
            return f"{self}: unknown language {self.language!r}; take one of {', '.join((*PYTHON, *SHELL, *DATA))}"
        if self.language in DATA and self.not_run is not None:
            return f"{self}: the mark 'not run' is for Python and shell blocks"
        if not self.language and any(map(_CODE.match, self.code.splitlines())):
            return f"{self}: this looks like code; give it a language (text, if it is not)"
        return None


def _short(page: Path) -> Path:
    return page.relative_to(ROOT) if page.is_relative_to(ROOT) else page


def _split(words: list[str]) -> Iterator[list[str]]:
    """`A=1 a b && c` -> [a, b], [c]."""
    part: list[str] = []
    for word in [*words, "&&"]:
        if word == "&&":
            yield part
            part = []
        elif part or not _ASSIGNMENT.fullmatch(word):
            part.append(word)


def pages() -> list[Path]:
    """All pages that people read."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_of(page: Path, text: str | None = None) -> list[Block]:
    """All fenced blocks of a page, in order; PageError for a fence that does not end or a mark that is of no use."""
    lines = enumerate((page.read_text() if text is None else text).splitlines(), 1)
    found: list[Block] = []
    mark: tuple[int, str] | None = None
    for number, line in lines:
        if fence := _FENCE.fullmatch(line):
            if fence["fence"][0] == "`" and "`" in fence["info"]:  # code inside a line of text
                continue
            words = fence["info"].strip().strip("{}").split()
            code = "".join(f"{inside}\n" for inside in _inside(lines, fence, f"{_short(page)}:{number}"))
            reason = None if mark is None else mark[1]
            found.append(Block(page, number + 1, words[0].lstrip(".").lower() if words else "", code, reason))
            mark = None
            continue
        if mark is not None and line.strip(" \t>"):
            raise PageError(f"{_short(page)}:{mark[0]}: no code block follows the mark 'not run'")
        if said := _MARK.fullmatch(line.lstrip(" \t>").rstrip()):
            if not said[1]:
                raise PageError(f"{_short(page)}:{number}: the mark 'not run' gives no reason")
            mark = number, said[1]
        elif "<!--" in line.rpartition("-->")[2]:  # a comment of several lines: no block in it is shown
            for _, inside in lines:
                if "-->" in inside:
                    break
    if mark is not None:
        raise PageError(f"{_short(page)}:{mark[0]}: no code block follows the mark 'not run'")
    return found


def _inside(lines: Iterator[tuple[int, str]], fence: re.Match[str], where: str) -> Iterator[str]:
    """Lines up to the fence that ends this block, without its indentation."""
    prefix, end = fence["prefix"], re.compile(rf"[\s>]*{fence['fence'][0]}{{{len(fence['fence'])},}}\s*")
    for _, line in lines:
        if end.fullmatch(line):
            return
        yield line[len(prefix) :] if line.startswith(prefix) else line.lstrip(" \t>" if ">" in prefix else " \t")
    raise PageError(f"{where}: this code block never ends")
