"""The code of docs/guides/backends.md runs as it is pasted."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "backends.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=["autotune", "interface", "own", "async"])
def test_code_runs(block):
    exec(compile(block, "docs/guides/backends.md", "exec"), {})
