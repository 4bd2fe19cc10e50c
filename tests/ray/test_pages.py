"""Blocks of the pages that only lack Ray run as pasted where it is installed."""

from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks_of, pages

BLOCKS = [block for page in pages() for block in blocks_of(page) if str(block.not_run).startswith("needs Ray;")]


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.is_python], ids=str)
def test_block_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile("\n" * (block.line - 1) + block.code, str(block.page), "exec"), {"__name__": "__main__"})


def test_there_are_such_blocks() -> None:
    assert any(block.is_python for block in BLOCKS)
