"""The compiled code on disk is thrown away when any file that it was made of changes."""

import ast
import importlib
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from numba.core.dispatcher import Dispatcher

from stockade.cage2 import jit, kernel, prepare

PACKAGE = Path(jit.__file__).parents[1]
_READ_REWARD = """
import stockade
env = stockade.make(red="sleep")
env.reset(seed=0)
print(env.step(144)[1])
"""
#: Red holds Enterprise0; blue restores User1 under an order that puts it later.
_REFUSE = """
import numpy as np
from stockade.cage2 import HOSTS, action_index
from stockade.workflow.strict import _refuse
held = np.zeros((1, len(HOSTS)), np.uint8)
held[0, HOSTS.index("Enterprise0")] = 2
actions, dead, places = np.array([action_index("Restore User1")]), np.zeros(1, bool), np.arange(13, dtype=np.int8)
counts = []
for function in (_refuse, _refuse.py_func):
    order, allowed, fixes, refused = np.zeros((4, 1), np.int64)
    function(held, actions, dead, order, places[None], allowed, fixes, refused)
    counts.append(int(refused[0]))
print("compiled", counts[0], "plain", counts[1])
"""


def imported(name: str) -> set[str]:
    """Files below the package that a file imports from cage2, directly."""
    names = set()
    for node in ast.walk(ast.parse((PACKAGE / name).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "stockade.cage2":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stockade.cage2."):
            names.add(node.module.rpartition(".")[2])
        elif isinstance(node, ast.Import):
            names |= {alias.name.rpartition(".")[2] for alias in node.names if alias.name.startswith("stockade.")}
    return {f"cage2/{name}.py" for name in names}


def closure(name: str) -> set[str]:
    """A file and all that it imports, directly or not."""
    found, waiting = set(), {name}
    while waiting:
        found |= waiting
        waiting = {other for each in waiting for other in imported(each)} - found
    return found


def test_the_sources_are_what_the_kernel_imports():
    assert len(jit.KERNEL_SOURCES) == len(set(jit.KERNEL_SOURCES))
    assert set(jit.KERNEL_SOURCES) == closure("cage2/kernel.py")


def test_there_is_one_way_to_keep_compiled_code():
    kept = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if "cache=True" in path.read_text()}
    assert kept == {"cage2/jit.py"}


def declared(path: Path) -> list[str]:
    """The files that a module's call of `cached` names."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    (call,) = [call for call in calls if getattr(call.func, "id", "") == "cached"]
    starred = isinstance(call.args[0], ast.Starred)  # the simulator's
    return [*(jit.KERNEL_SOURCES if starred else ()), *(each.value for each in call.args[starred:])]


def origins(module) -> dict[str, str]:
    """Where the names come from that a module imports: names -> files below the package."""
    found = {}
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stockade"):
            for alias in node.names:
                for name in (f"{node.module}.{alias.name}", node.module):
                    path = Path(*name.split(".")[1:]).with_suffix(".py")
                    if (PACKAGE / path).is_file():
                        found.setdefault(alias.asname or alias.name, str(path))
    return found


def made_of(function) -> set[str]:
    """Files in which the functions and tables are that a function uses, and those that it calls."""
    found, waiting, seen = set(), [function], set()
    while waiting:
        one = waiting.pop()
        seen.add(one)
        module = sys.modules[one.__module__]
        found.add(str(Path(module.__file__).relative_to(PACKAGE)))
        imported_here = origins(module)
        for name in one.__code__.co_names:
            value = one.__globals__.get(name)
            found |= {imported_here[name]} if name in imported_here else set()
            parts = [getattr(value, other, None) for other in one.__code__.co_names] if inspect.ismodule(value) else []
            inner = [each.py_func for each in (value, *parts) if isinstance(each, Dispatcher)]
            waiting += [each for each in inner if each not in seen and each.__module__.startswith("stockade")]
    return found


@pytest.mark.parametrize("path", [path for path in PACKAGE.rglob("*.py") if "cached(" in path.read_text()], ids=str)
def test_what_is_kept_is_declared_to_be_made_of_all_that_it_uses(path):
    if path.name == "jit.py":
        pytest.skip("where it is defined")
    module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    kept = [each for each in vars(module).values() if isinstance(each, Dispatcher) and each.stats.cache_path]
    assert kept
    for each in kept:
        assert made_of(each.py_func) <= {*declared(path), "cage2/jit.py"}, each
        assert each.py_func.__qualname__.endswith(jit.source_digest(*declared(path)))


def test_the_digest_changes_with_every_source(tmp_path, monkeypatch):
    (tmp_path / "cage2").mkdir()
    sources = (*jit.KERNEL_SOURCES, "cage2/scenario2.toml")
    for name in sources:
        shutil.copy(PACKAGE / name, tmp_path / name)
    before = jit.source_digest(*jit.KERNEL_SOURCES)
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "cage2" / "jit.py"))
    assert jit.source_digest(*jit.KERNEL_SOURCES) == before, "it depends on contents only, not on places and times"
    for name in sources:
        path = tmp_path / name
        text = path.read_text()
        path.write_text(text + "# changed\n")
        assert jit.source_digest(*jit.KERNEL_SOURCES) != before, name
        path.write_text(text)
    assert jit.source_digest(*jit.KERNEL_SOURCES) == before


@pytest.mark.parametrize("name", ["version", "cpu"])
def test_the_digest_changes_with_numba_and_the_processor(name, monkeypatch):
    before = jit.source_digest("cage2/jit.py")
    if name == "version":
        monkeypatch.setattr(jit.numba, "__version__", "0.0.1")
    else:
        monkeypatch.setattr(jit.numba.config, "CPU_NAME", "another")
    assert jit.source_digest("cage2/jit.py") != before


# ---------------------------------------------------------------------------------------------- saying that it compiles
@pytest.fixture
def compile_once(tmp_path, monkeypatch):
    """Prepares the simulator as a process does that finds no mark of compiled code."""
    known = kernel.step_batch

    class Unmarked:
        stats = SimpleNamespace(cache_path=str(tmp_path / "cache"))
        py_func = known.py_func

        def __call__(self, *args):
            return known(*args)

    monkeypatch.setattr(kernel, "step_batch", Unmarked())
    return lambda: prepare.prepare.__wrapped__(None)


def test_the_first_process_says_that_it_compiles_and_the_next_does_not(compile_once, capsys):
    compile_once()
    said = capsys.readouterr()
    assert said.err == "compiling the simulator, once per machine (about 10 s) ...\n"
    assert said.out == ""
    compile_once()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["from multiprocessing.forkserver import main; main()", "/ray/default_worker.py"])
def test_workers_compile_silently(command, compile_once, capsys, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", command])
    compile_once()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("code", ["stockade.make()", "stockade.make_vec(2, 'pipes')", "stockade.make_vec(2, 'async')"])
def test_in_a_script_the_main_process_says_so_before_anything_else(code, tmp_path):
    command = [sys.executable, "-c", f"import stockade; {code}"]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as script:
        said, children = script.stderr.readline(), Path(f"/proc/{script.pid}/task/{script.pid}/children")
        alone = not children.exists() or not children.read_text()
        script.kill()
    assert said.startswith("compiling the simulator, once per machine")
    assert alone, "no worker has been started yet: they find compiled code"


# ----------------------------------------------------------------------------------------------------- edited sources
@pytest.mark.slow
def test_an_edit_of_an_inner_file_reaches_compiled_code(tmp_path):
    """In a copy of the package: the price of a Restore is edited, and the next process pays it."""
    shutil.copytree(PACKAGE, tmp_path / "stockade", ignore=shutil.ignore_patterns("__pycache__"))
    scenario = tmp_path / "stockade" / "cage2" / "scenario.py"
    rewards = []
    for price in ("RESTORE_COST = 10", "RESTORE_COST = 20", "RESTORE_COST = 10"):
        lines = scenario.read_text().splitlines()
        lines = [price if line.startswith("RESTORE_COST = ") else line for line in lines]
        scenario.write_text("\n".join(lines) + "\n")
        rewards.append(float(run_in(tmp_path, _READ_REWARD)))
    assert rewards == [-1.0, -2.0, -1.0]


def test_an_edit_of_what_a_fix_is_reaches_compiled_refusals(tmp_path):
    """In a copy of the package: Restore is a fix, and then it is not."""
    shutil.copytree(PACKAGE, tmp_path / "stockade", ignore=shutil.ignore_patterns("__pycache__"))
    orders = tmp_path / "stockade" / "workflow" / "orders.py"
    before, after = "np.isin(ACTION_KIND, (REMOVE, RESTORE))", "np.isin(ACTION_KIND, (REMOVE,))"
    assert orders.read_text().count(before) == 1
    first = run_in(tmp_path, _REFUSE)
    orders.write_text(orders.read_text().replace(before, after))
    assert [first, run_in(tmp_path, _REFUSE)] == ["compiled 1 plain 1\n", "compiled 0 plain 0\n"]


def run_in(folder: Path, code: str) -> str:
    """What a process says that imports the copy of the package in this folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout
