"""The Python blocks of the pages on training and policies run as they are pasted, each on its own."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("guides/training", "guides/evaluate", "guides/own-policy", "guides/own-reward", "concepts/observation")
TEXT = "\n".join((DOCS / f"{name}.md").read_text() for name in PAGES)
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = BLOCKS[number]
    if "stable_baselines3" in code:
        pytest.importorskip("stable_baselines3")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, f"block {number}", "exec"), {"__name__": "pasted"})
