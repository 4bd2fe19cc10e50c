"""Every tutorial runs from top to bottom as a notebook, within its time, and what it asserts of its results holds."""

import resource
from pathlib import Path
from typing import Any

import pytest

import stockade
from tests.docs.blocks import ROOT

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
CPU_SECONDS = 90  # of one tutorial: less than a minute on two cores, however busy they are
WHY = "not installed: the extra `docs` has it, `make test-docs` installs it"


def test_tutorials_are_plain_python() -> None:
    assert len(TUTORIALS) == 6
    for path in TUTORIALS:
        compile(path.read_text(), path.name, "exec")  # no magic commands
        assert "# %%\nimport " in path.read_text()


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The kernels are compiled, which takes longer than any tutorial."""
    for chance in ("fast", "cyborg"):
        stockade.make(chance=chance, obs="memory").reset(seed=0)
    few = {"total_episodes": 1, "n_envs": 1, "horizon": 2, "update_steps": 2, "progress": False}
    stockade.train(runs=tmp_path_factory.mktemp("runs"), **few)


@pytest.mark.docs
@pytest.mark.usefixtures("compiled")
@pytest.mark.filterwarnings("default")  # other people's event loops
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_runs_as_a_notebook(path: Path, tmp_path: Path) -> None:
    jupytext: Any = pytest.importorskip("jupytext", reason=f"jupytext is {WHY}")
    nbclient: Any = pytest.importorskip("nbclient", reason=f"nbclient is {WHY}")
    pytest.importorskip("ipykernel", reason=f"ipykernel is {WHY}")
    notebook, before = jupytext.read(path, fmt="py:percent"), children_cpu()
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=1800, kernel_name="python3", resources=place).execute()
    assert children_cpu() - before < CPU_SECONDS
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    warned = [output.text for output in outputs if output.output_type == "stream" and "Warning" in output.text]
    assert not warned
    kinds = {kind for output in outputs if output.output_type != "stream" for kind in output.data}
    assert kinds & {"image/png", "text/html"}, "a tutorial shows a picture or a table"
