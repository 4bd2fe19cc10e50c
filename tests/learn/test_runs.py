"""`stockade runs`, and what the commands of this layer cost before they are used."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.runs import RunsConfig
from stockade.learn.train import train

TINY = TrainConfig(
    total_episodes=1100, n_envs=50, horizon=5, tensorboard=False, ppo=PPOConfig(update_steps=60, hidden=(8,))
)


def test_runs_are_listed_best_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, red in (("easy", "sleep"), ("hard", "bline")):
        assert train(dataclasses.replace(TINY, runs=tmp_path, name=name, red=red, horizon=20)).saved
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.json").write_text((tmp_path / "easy" / "config.json").read_text())
    capsys.readouterr()
    path = tmp_path / "runs.json"
    assert RunsConfig(runs=tmp_path, json=path).run() == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert "last 1000" in head
    assert [line.split()[0] for line in lines] == ["easy", "hard", "new"]
    assert "of 1,100" in lines[2]
    easy, hard, new = json.loads(path.read_text())
    assert 0 >= easy["last"] > hard["last"]
    assert easy["episodes"] >= 1100
    assert (new["episodes"], new["last"]) == (0, None)
    assert RunsConfig(("har",), runs=tmp_path).run() == 0
    assert "easy" not in capsys.readouterr().out
    assert RunsConfig(("nothing",), runs=tmp_path).run() == 1
    assert RunsConfig(runs=tmp_path / "nowhere").run() == 1


def test_optional_packages_are_loaded_when_they_are_needed_only() -> None:
    code = "import stockade.cli, stockade.learn, stockade.baselines, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "safetensors", "stable_baselines3", "tensorboard", "CybORG"} & set(loaded)


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
