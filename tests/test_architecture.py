"""docs/about/architecture.md maps the package as it is: every file on one line, and nothing that is not there."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "about" / "architecture.md"
#: `### stockade/learn/` and the block of lines below it, each `file.py  what it is for`.
SECTION = re.compile(r"^### `(stockade/[\w/]*)`[^\n]*\n+(?:[^#`\n][^\n]*\n+)?```\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"(\S+)  +(\S.*)")


def mapped() -> dict[str, str]:
    """Path and description of each file on the page; also checks that each line has both."""
    found: dict[str, str] = {}
    for folder, block in SECTION.findall(PAGE.read_text()):
        for line in block.splitlines():
            match = LINE.fullmatch(line)
            assert match, f"not `file  description`: {line!r}"
            path = folder + match[1]
            assert path not in found, f"{path} is on two lines"
            found[path] = match[2]
    return found


def test_every_file_is_on_the_map_and_nothing_else() -> None:
    files = (path for path in (ROOT / "stockade").rglob("*.py") if path.name != "__init__.py")
    there = {str(path.relative_to(ROOT)) for path in files}
    page = set(mapped())
    assert not there - page, f"docs/about/architecture.md lacks {sorted(there - page)}"
    assert not page - there, f"docs/about/architecture.md lists what does not exist: {sorted(page - there)}"


def test_every_line_is_short_and_says_something_of_its_own() -> None:
    descriptions = mapped()
    repeated = [text for text, count in Counter(descriptions.values()).items() if count > 1]
    assert not repeated
    assert all(len(line) <= 120 for line in PAGE.read_text().splitlines())
