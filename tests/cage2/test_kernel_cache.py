"""The compiled code on disk is thrown away when any file that it was made of changes."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.cage2 import jit

PACKAGE = Path(jit.__file__).parent
_READ_REWARD = """
import stockade
env = stockade.make(red="sleep")
env.reset(seed=0)
print(env.step(144)[1])
"""


def imported(path: Path) -> set[str]:
    """Names of the modules of this package that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "stockade.cage2":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stockade.cage2."):
            names.add(node.module.rpartition(".")[2])
        elif isinstance(node, ast.Import):
            names |= {alias.name.rpartition(".")[2] for alias in node.names if alias.name.startswith("stockade.")}
    return {f"{name}.py" for name in names}


def closure(name: str) -> set[str]:
    """A file and all that it imports, directly or not."""
    found, waiting = set(), {name}
    while waiting:
        found |= waiting
        waiting = {other for each in waiting for other in imported(PACKAGE / each)} - found
    return found


def test_the_sources_are_what_the_kernel_imports():
    assert len(jit.KERNEL_SOURCES) == len(set(jit.KERNEL_SOURCES))
    assert set(jit.KERNEL_SOURCES) == closure("kernel.py")


def test_every_cached_entry_point_is_made_of_those_sources():
    """Numba itself looks at the file of an entry point; what that imports must be among the sources."""
    files = {path.name for path in PACKAGE.glob("*.py") if "@cached" in path.read_text()}
    assert "kernel.py" in files
    for name in files:
        assert closure(name) - {name} <= set(jit.KERNEL_SOURCES), name
        assert "source_digest()" in (PACKAGE / name).read_text(), name


def test_the_digest_changes_with_every_source(tmp_path, monkeypatch):
    for name in jit.KERNEL_SOURCES:
        shutil.copy(PACKAGE / name, tmp_path / name)
    before = jit.source_digest()
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "jit.py"))
    assert jit.source_digest() == before, "it depends on contents only, not on places and times"
    for name in jit.KERNEL_SOURCES:
        path = tmp_path / name
        text = path.read_text()
        path.write_text(text + "# changed\n")
        assert jit.source_digest() != before, name
        path.write_text(text)
    assert jit.source_digest() == before


@pytest.mark.slow
def test_an_edit_of_an_inner_file_reaches_compiled_code(tmp_path):
    """In a copy of the package: the price of a Restore is edited, and the next process pays it."""
    shutil.copytree(PACKAGE.parent, tmp_path / "stockade", ignore=shutil.ignore_patterns("__pycache__"))
    scenario = tmp_path / "stockade" / "cage2" / "scenario.py"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    rewards = []
    for price in ("RESTORE_COST = 10", "RESTORE_COST = 20", "RESTORE_COST = 10"):
        lines = scenario.read_text().splitlines()
        lines = [price if line.startswith("RESTORE_COST = ") else line for line in lines]
        scenario.write_text("\n".join(lines) + "\n")
        done = subprocess.run(
            [sys.executable, "-c", _READ_REWARD],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        rewards.append(float(done.stdout))
    assert rewards == [-1.0, -2.0, -1.0]
