"""A release, as users get it: built, installed into an empty environment, and used there.

Slow: it installs Torch and needs an index of packages. `make test-release` runs these alone, `make test-slow` too.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import stockade
from tests.release.dependencies import ROOT

pytestmark = pytest.mark.slow
VERSION = stockade.__version__
MOST_BYTES = 2_500_000  #: of each distribution, packed; more than half of it are networks
RUNS = ROOT / "tests" / "data" / "runs"
#: Commands that need an extra, with a package of it that they name.
NEED_AN_EXTRA = {
    "train --total-episodes 100": ("torch", "train"),
    "search --total-episodes 5000": ("safetensors", "train"),
    "search --total-episodes 5000 --train separate --engine ray": ("safetensors", "train"),
    "evaluate champion --episodes 2": ("safetensors", "train"),
    f"evaluate run-0.1.0 --runs {RUNS}": ("safetensors", "train"),
    "evaluate model.zip": ("stable_baselines3", "sb3"),
    "replay champion": ("safetensors", "train"),
    f"export run-0.1.0 exported --runs {RUNS}": ("safetensors", "train"),
    f"report run-0.1.0 --out page.html --runs {RUNS}": ("bokeh", "plots"),
    "bench learn --quick": ("safetensors", "train"),
    "bench train --quick": ("safetensors", "train"),
}


def run(*command: object, cwd: Path, code: int = 0, **variables: str) -> str:
    """What a command prints; it knows nothing of this checkout."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=kept | variables, capture_output=True, text=True)
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with source distribution and wheel."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        f"stockade-{VERSION}-py3-none-any.whl",
        f"stockade-{VERSION}.tar.gz",
    ]
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    return next(built.glob("*.whl"))


def environment(folder: Path, wheel: Path, extras: str = "") -> Path:
    """An empty virtual environment with the wheel in it; the folder of its commands."""
    run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt")
    run(*pip, f"{wheel}{extras}", cwd=folder.parent)
    return folder / "bin"


@pytest.fixture(scope="module")
def core(wheel, tmp_path_factory):
    """Without any extra."""
    return environment(tmp_path_factory.mktemp("core") / "venv", wheel)


@pytest.fixture(scope="module")
def full(wheel, tmp_path_factory):
    """With what training and pictures need."""
    return environment(tmp_path_factory.mktemp("full") / "venv", wheel, "[train,plots]")


# ------------------------------------------------------------------------------------------------------ what is in them
def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel):
    tracked = subprocess.run(["git", "ls-files", "stockade"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == set(tracked.stdout.split())
    for needed in ("py.typed", "cage2/scenario2.toml", "replay/page/replay.html", "report/report.html"):
        assert f"stockade/{needed}" in names
    assert len([name for name in names if re.fullmatch(r"stockade/learn/weights/champion-.*\.safetensors", name)]) == 2
    assert len([name for name in names if re.fullmatch(r"stockade/learn/weights/nemesis-.*\.safetensors", name)]) == 4
    assert wheel.stat().st_size < MOST_BYTES


def test_the_source_distribution_gives_the_same_wheel(built, wheel, tmp_path):
    (source,) = built.glob("*.tar.gz")
    assert source.stat().st_size < MOST_BYTES
    with tarfile.open(source) as opened:
        roots = {Path(name).parts[1] for name in opened.getnames()}
        opened.extractall(tmp_path, filter="data")
    assert {"stockade", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= roots
    assert not roots & {"tests", "benchmarks", "docs", "runs"}
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "again", ".", cwd=tmp_path / source.name[:-7])
    (again,) = (tmp_path / "again").iterdir()
    first, second = ({i.filename: i.CRC for i in zipfile.ZipFile(path).infolist()} for path in (wheel, again))
    assert first == second


# -------------------------------------------------------------------------------------------------------- with the core
def test_the_core_makes_environments_and_says_its_version(core, tmp_path):
    assert run(core / "stockade", "--version", cwd=tmp_path) == f"stockade {VERSION}\n"
    code = """
import stockade
for backend in ("native", "serial", "pipes", "shared_memory", "async"):
    with stockade.make_vec(4, backend, red="meander") as envs:
        envs.reset(seed=0)
env = stockade.make()
env.reset(seed=0)
print(stockade.__file__, env.step(0)[1])
print(stockade.evaluate("react-remove", episodes=2, progress=False))
"""
    said = run(core / "python", "-c", code, cwd=tmp_path)
    assert str(core.parent) in said
    assert "bline" in said


def test_the_core_verifies_measures_and_replays(core, tmp_path):
    traces = ROOT / "tests" / "data" / "traces" / "public_SleepAgent_mixed.npz"
    assert "3000 steps, 1 files, 0 mismatches" in run(core / "stockade", "verify", traces, cwd=tmp_path)
    assert "million steps/s" in run(core / "stockade", "bench", "kernel", "--quick", cwd=tmp_path)
    assert "react-remove" in run(core / "stockade", "evaluate", "react-remove", "--episodes", "2", cwd=tmp_path)
    run(core / "stockade", "replay", "react-remove", "--no-analyse", "--out", "page.html", cwd=tmp_path)
    assert "<script" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("command", NEED_AN_EXTRA)
def test_a_command_that_needs_an_extra_names_it_in_one_line(core, tmp_path, command):
    package, extra = NEED_AN_EXTRA[command]
    said = run(core / "stockade", *command.split(), cwd=tmp_path, code=2)
    assert said == f"stockade: this needs {package}, which is not installed: pip install 'stockade[{extra}]'\n"


# ---------------------------------------------------------------------------------------------- with training, pictures
def test_the_champion_of_the_wheel_defends(full, tmp_path):
    run(full / "stockade", "evaluate", "champion", "--episodes", "20", "--json", "scores.json", cwd=tmp_path)
    cells = json.loads((tmp_path / "scores.json").read_text())["cells"]
    scores = {(cell["red"], cell["horizon"]): cell["mean"] for cell in cells}
    assert len(scores) == 9
    assert -16 < scores["bline", 100] < -8  # its mean is -11.4, where doing nothing gives -1000
    assert -1 < scores["sleep", 30] <= 0


def test_a_search_and_its_report(full, tmp_path):
    said = run(
        full / "stockade", "search", "--total-episodes", "5000", "--max-steps", "30", "--name", "tried", cwd=tmp_path
    )
    assert (tmp_path / "runs" / "tried" / "summary.json").is_file()
    assert "tried" in run(full / "stockade", "runs", cwd=tmp_path), said
    run(full / "stockade", "report", "runs/tried", cwd=tmp_path)


def test_a_replay_of_the_champion(full, tmp_path):
    run(full / "stockade", "replay", "champion", "--red-agent", "meander", "--out", "page.html", cwd=tmp_path)
    assert "champion" in (tmp_path / "page.html").read_text()
