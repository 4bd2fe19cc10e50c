"""The pages on the search: their Python runs as pasted, commands parse, every key of summary.json and flag is named."""

import json
import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from stockade.cli import parse
from stockade.errors import flag_of
from stockade.workflow.config import RewardProtocol, SearchConfig
from stockade.workflow.store import SearchFolder

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("results/search", "guides/search", "concepts/workflows", "concepts/compliance", "reference/files")
TEXT = "\n".join((DOCS / f"{name}.md").read_text() for name in PAGES)
COMMANDS = re.findall(r"^stockade (search .*?)(?:  +#.*)?$", TEXT, re.MULTILINE)


@pytest.mark.slow
def test_python_runs_and_every_key_of_the_summary_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    for code in sorted(blocks, key=lambda code: "stockade.search" not in code):  # others use the folder of that search
        exec(compile(code, "the pages on the search", "exec"), {"__name__": "pasted"})
    summary = json.loads((tmp_path / "runs" / "first" / "summary.json").read_text())
    explained = {
        name for row in re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    }
    assert {*summary, *summary["classes"][0]} <= explained
    for key in ("precedences", "free_agent", "cost_of_order"):
        content = summary[key][0] if key == "precedences" else summary[key]
        (row,) = re.findall(rf"^\| `{key}` \|.*?{{(.*?)}}", TEXT, re.MULTILINE)
        assert list(content) == row.split(", ")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_parse_and_have_no_flag_without_effect(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    SearchFolder.create(SearchConfig())  # which those with --resume continue
    config = parse("search", shlex.split(command)[1:])
    assert config.without_effect() == []


def test_every_flag_of_the_first_versions_way_is_explained() -> None:
    given = {field.name for field in (*fields(RewardProtocol), *fields(SearchConfig))}
    missing = {flag_of(field.name) for field in fields(RewardProtocol)} - set(re.findall(r"`(--[\w-]+)`", TEXT))
    assert not missing
    named = {flag.replace("-", "_") for flag in re.findall(r"`--([\w-]+)", TEXT)}
    others = {"red_agent", "max_steps", "no_classes", "suite"}  # names on the command line; `suite` is of `evaluate`
    assert named - given <= others, "a flag on the page that does not exist"
