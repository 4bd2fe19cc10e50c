"""Every code block of README, CONTRIBUTING and docs runs as pasted, or says by a mark why it does not.

The blocks of a page run in order: Python in one namespace, commands in a shell, both in one empty folder. Commands are
checked even where they are not run: the real parser takes their flags, the files and targets that they name exist.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import stockade
from stockade.cli import COMMANDS, parse
from stockade.learn.config import TrainConfig
from stockade.workflow.config import SearchConfig
from stockade.workflow.store import SearchFolder
from tests.docs.blocks import ROOT, Block, blocks_of, pages

BLOCKS = {str(page.relative_to(ROOT)): blocks_of(page) for page in pages()}
SHELL = [block for blocks in BLOCKS.values() for block in blocks if block.is_shell]
RUN = {page: [block for block in blocks if (block.is_python or block.is_shell) and block.not_run is None]
       for page, blocks in BLOCKS.items()}  # fmt: skip
#: Pages that take more than a few seconds: `make test-docs` runs them. All others together take less than a minute.
SLOW = {
    "docs/guides/evaluate.md",
    "docs/guides/own-policy.md",
    "docs/guides/search.md",
    "docs/guides/training.md",
    "docs/start/five-minutes.md",
}
TARGETS = set(" ".join(re.findall(r"^([a-z -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)).split())


def test_languages_and_marks_make_sense() -> None:
    problems = [problem for blocks in BLOCKS.values() for block in blocks if (problem := block.problem())]
    assert not problems, "\n".join(problems)


def test_python_that_is_not_run_is_python() -> None:
    for block in (block for blocks in BLOCKS.values() for block in blocks if block.is_python):
        compile(block.code, str(block), "exec")


# ------------------------------------------------------------------------------------------------------------ commands
@pytest.mark.parametrize("block", SHELL, ids=str)
def test_commands_exist(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for program, *arguments in block.commands():
        match Path(program).name:
            case "stockade":
                _check_stockade(arguments)
            case "python" | "python3":
                _check_python(arguments)
            case "make":
                targets = {argument for argument in arguments if "=" not in argument}
                assert targets <= TARGETS, f"no target {targets - TARGETS} in the Makefile"


def _check_stockade(arguments: list[str]) -> None:
    name, *flags = arguments
    if name in ("--version", "--help"):
        return
    assert name in COMMANDS
    if "--resume" in flags:  # it reads the settings of what it continues
        _begin(name, flags[flags.index("--resume") + 1])
    parse(name, flags)


def _begin(command: str, name: str) -> None:
    """A search or a run of this name, not yet trained."""
    folder = Path("runs", name)
    if folder.exists():
        return
    if command == "search":
        SearchFolder.create(SearchConfig(name=name))
    else:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"stockade": stockade.__version__, **TrainConfig().to_json()}))


def _check_python(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        assert importlib.util.find_spec(arguments[1]), f"there is no module {arguments[1]}"
    elif arguments[0].endswith(".py"):
        assert (ROOT / arguments[0]).is_file(), f"there is no file {arguments[0]}"


# ----------------------------------------------------------------------------------------------------------- run pages
@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch's threads would fight with those of tests beside this one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.docs] if page in SLOW else []) for page, blocks in RUN.items() if blocks],
)
def test_blocks_run_as_pasted(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in RUN[page]:
        if block.is_python:
            at_its_line = "\n" * (block.line - 1) + block.code  # a traceback names the line of the page
            exec(compile(at_its_line, page, "exec"), namespace)
        else:
            _run_shell(block, tmp_path)


def _run_shell(block: Block, folder: Path) -> None:
    here = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "-euo", "pipefail", "-c", block.code]
    answer = subprocess.run(
        command, cwd=folder, env=os.environ | here, capture_output=True, text=True, timeout=600, check=False
    )
    assert answer.returncode == 0, f"{block}\n{answer.stdout}\n{answer.stderr}"


def test_slow_pages_exist_and_are_run() -> None:
    assert {page for page, blocks in RUN.items() if blocks} >= SLOW
