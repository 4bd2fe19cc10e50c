"""`stockade runs`: listing, status, comparison; and what the commands of this layer cost before they are used."""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from stockade.errors import InputError
from stockade.learn import train as training
from stockade.learn.checkpoint import CheckpointFolder
from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.files import find_run, run_session
from stockade.learn.runs import RunsConfig, read_summary
from stockade.learn.train import train

TINY = TrainConfig(
    total_episodes=1100, n_envs=50, horizon=20, tensorboard=False, ppo=PPOConfig(update_steps=60, hidden=(8,))
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two runs that are finished."""
    runs = tmp_path_factory.mktemp("trained")
    for name, red, seed in (("easy", "sleep", 0), ("hard", "bline", 1)):
        train(dataclasses.replace(TINY, runs=runs, name=name, red=red, seed=seed))
    return runs


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(trained, tmp_path / "runs"))


def listed(runs: Path, *names: str) -> list[dict[str, object]]:
    path = runs.parent / "runs.json"
    assert RunsConfig(names, runs=runs, json=path).run() == 0
    found: list[dict[str, object]] = json.loads(path.read_text())
    return found


def test_runs_are_listed_best_first(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "new").mkdir()
    shutil.copy(runs / "easy" / "config.json", runs / "new")
    easy, hard, new = listed(runs)
    head, *lines = capsys.readouterr().out.splitlines()
    assert "last 1000" in head
    assert [line.split()[0] for line in lines] == ["easy", "hard", "new"]
    assert max(map(len, lines)) <= 100
    assert "nan" not in "".join(lines)
    assert "of 1,100" in lines[2]
    assert 0 >= easy["last"] > hard["last"]
    assert easy["episodes"] >= 1100
    assert [run["status"] for run in (easy, hard, new)] == ["finished", "finished", "interrupted"]
    assert (new["episodes"], new["last"]) == (0, None)


def test_names_choose_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [run["name"] for run in listed(runs, "har")] == ["hard"]
    with pytest.raises(InputError, match=r"'hrad'.*Did you mean 'hard'"):
        RunsConfig(("hrad",), runs=runs).run()
    assert RunsConfig(runs=runs / "nowhere").run() == 1


@pytest.mark.parametrize("file", ["config.json", "metrics.csv"])
def test_one_damaged_run_is_named_and_the_others_are_listed(
    runs: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    path = runs / "easy" / file
    path.write_bytes(path.read_bytes()[:40] + b"\xff" + path.read_bytes()[40:])
    assert [run["name"] for run in listed(runs)] == ["hard"]
    assert "easy" in capsys.readouterr().err


def test_a_run_of_version_0_1_0_is_listed(runs: Path) -> None:
    path = runs / "hard" / "config.json"
    settings = json.loads(path.read_text())
    settings["red_agent"], settings["max_steps"] = settings.pop("red"), settings.pop("horizon")
    path.write_text(json.dumps(settings))
    assert listed(runs, "hard")[0]["red"] == "bline"


# --------------------------------------------------------------------------------------------------------------- status
@pytest.fixture
def holder(runs: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that works on the run `easy`."""
    code = f"""
from pathlib import Path
from stockade.learn.files import run_session
with run_session(Path({str(runs / "easy")!r})):
    print("held", flush=True)
    input()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_run_is_running_until_its_process_dies(runs: Path, holder: subprocess.Popen[str]) -> None:
    assert read_summary(runs / "easy")["status"] == "running"
    with pytest.raises(InputError, match="another process"):
        train(TrainConfig.resumed("easy", runs))
    holder.kill()
    holder.wait()
    assert read_summary(runs / "easy")["status"] == "finished"


def test_a_run_that_fails_says_why(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="out of ideas"), run_session(runs / "hard"):
        raise RuntimeError("out of ideas")
    assert [run["status"] for run in listed(runs)] == ["finished", "failed"]
    assert "hard failed: RuntimeError: out of ideas" in capsys.readouterr().out
    with run_session(runs / "hard"):
        pass
    assert read_summary(runs / "hard")["status"] == "finished"


def test_a_run_that_never_began_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def impossible(config: TrainConfig, cells: object) -> None:
        raise MemoryError("14.6 TiB")

    monkeypatch.setattr(training, "make_learner", impossible)
    with pytest.raises(MemoryError):
        train(dataclasses.replace(TINY, runs=tmp_path, name="x"))
    assert list(tmp_path.iterdir()) == []


def test_what_a_user_put_into_a_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(MemoryError), run_session(tmp_path):
        raise MemoryError
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_mistyped_run_is_suggested(runs: Path) -> None:
    with pytest.raises(InputError, match="Did you mean 'easy'"):
        find_run("esay", runs)


# ----------------------------------------------------------------------------------------------------------- comparison
def test_names_compare_settings_curves_and_returns(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert RunsConfig(("hard", "easy"), runs=runs).run() == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 100
    _, settings, curves, end, warning = text.split("\n\n")
    rows = [line.split() for line in settings.splitlines()[1:]]
    assert rows == [["setting", "hard", "easy"], ["red", "bline", "sleep"], ["seed", "1", "0"]]
    counts = [int(line.split()[0].replace(",", "")) for line in curves.splitlines()[2:-1]]
    assert counts == sorted(counts)
    assert counts[-1] == read_summary(runs / "hard")["episodes"]
    hard, easy = (CheckpointFolder(runs / n / "checkpoints").load_last().arrays["window"] for n in ("hard", "easy"))
    half = 1.96 * np.sqrt(hard.var(ddof=1) / len(hard) + easy.var(ddof=1) / len(easy))
    assert f"{easy.mean() - hard.mean():.2f} ± {half:.2f}" in end
    assert "different worlds (red)" in warning


def test_equal_settings_are_called_equal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(runs / "hard", runs / "again")
    assert RunsConfig(("hard", "again"), runs=runs).run() == 0
    text = capsys.readouterr().out
    assert "All settings are equal." in text
    assert "different worlds" not in text
    assert " 0.00 ± " in text


# ------------------------------------------------------------------------------------------------------------- packages
def test_optional_packages_are_loaded_when_they_are_needed_only() -> None:
    code = """
import sys
from stockade import cli
for name in cli.COMMANDS:
    try:
        cli.parse(name, ["--help"])
    except SystemExit:
        pass
print("LOADED", *sys.modules)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(answer.partition("LOADED")[2].split())
    assert "stockade.learn.config" in loaded
    assert not {"torch", "safetensors", "stable_baselines3", "tensorboard", "CybORG", "matplotlib", "ray"} & loaded


def test_without_torch_the_message_names_the_extra() -> None:
    code = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
from stockade.cli import main
main(["train", "--total-episodes", "1"])
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "stockade[train]" in answer.stderr
    assert "Traceback" not in answer.stderr
