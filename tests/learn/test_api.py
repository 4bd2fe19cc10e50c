"""`stockade.train` and `stockade.evaluate` for notebooks: keywords, result objects, interrupts, silence."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import stockade
from stockade.errors import InputError
from stockade.learn.config import LEARNER
from stockade.learn.files import COLUMNS
from stockade.learn.train import StopSignals, train

TINY = {"n_envs": 8, "horizon": 10, "total_episodes": 100, "update_steps": 20, "minibatch_size": 80, "hidden": [8],
        "tensorboard": False}  # fmt: skip


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> "stockade.learn.train.TrainResult":
    return stockade.train(red="meander", obs="bits", name="mine", runs=str(tmp_path_factory.mktemp("runs")), **TINY)


def test_keywords_reach_the_world_and_the_learner(result) -> None:
    config = result.config
    assert (config.red, config.horizon, config.n_envs, config.obs) == ("meander", 10, 8, "bits")
    assert config.ppo == dataclasses.replace(LEARNER, update_steps=20, minibatch_size=80, hidden=(8,))
    assert json.loads((result.folder / "config.json").read_text())["red"] == "meander"


def test_the_result_holds_metrics_and_an_agent(result) -> None:
    assert set(result.metrics) == set(COLUMNS)
    assert all(column.shape == (len(result.metrics["episodes"]),) for column in result.metrics.values())
    assert result.episodes == result.metrics["episodes"][-1] >= 100
    assert not result.interrupted
    obs, _ = stockade.make_vec(4, obs=result.agent.obs).reset(seed=0)
    assert result.agent.predict(obs)[0].shape == (4,)
    evaluated = stockade.evaluate(result.agent, episodes=2, progress=False)
    assert evaluated.cells == stockade.evaluate(result.folder, episodes=2, progress=False).cells
    assert evaluated.cells == stockade.evaluate(result, episodes=2, progress=False).cells
    assert "mine" in repr(result)


def test_results_as_dictionaries_and_html(result) -> None:
    evaluated = stockade.evaluate("sleep", episodes=3, progress=False)
    for one in (result, evaluated):
        assert json.loads(json.dumps(one.to_dict(), allow_nan=False)) == one.to_dict()
        assert one._repr_html_().startswith("<table>")
        lines = str(one).replace(str(result.folder), "runs/mine").splitlines()  # a path may be of any length
        assert all(len(line) <= 100 for line in lines)
    assert result.to_dict()["metrics"]["episodes"] == result.metrics["episodes"].tolist()
    assert evaluated.total == pytest.approx(sum(np.mean(cell.returns) for cell in evaluated.cells), abs=0.05)
    assert evaluated.to_dict()["total"] == evaluated.total


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_steps": 30}, "no setting 'max_steps'. Did you mean 'horizon'"),
        ({"red_agent": "bline"}, "no setting 'red_agent'. Did you mean 'red'"),
        ({"total_epsiodes": 3}, "no setting 'total_epsiodes'. Did you mean 'total_episodes'"),
        ({"horizon": 0}, "horizon=0"),
        ({"horizon": 2.5}, "horizon=2.5 is not possible: it must be of type int"),
        ({"activation": "gelu"}, "activation='gelu' is not possible: it must be one of 'relu', 'tanh'"),
        ({"learning_rate": "fast"}, "learning_rate='fast'"),
        ({"red": "nobody"}, "red='nobody'"),
        ({"preset": "champoin"}, "preset='champoin'"),
        ({"resume": "x", "seed": 3}, "its own settings; leave out seed"),
        ({"n_envs": 10**11}, "n_envs=100000000000 needs about .* of memory"),
    ],
)
def test_bad_keywords_are_said_and_leave_nothing_behind(tmp_path: Path, settings: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        stockade.train(**{**({} if "resume" in settings else {"runs": tmp_path / "runs"}), **settings})
    assert not (tmp_path / "runs").exists()


def test_training_is_the_same_as_by_its_configuration_and_threads_are_given_back(result, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        again = train(dataclasses.replace(result.config, runs=tmp_path), progress=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    for name, weight in again.agent.policy.save_weights().items():
        np.testing.assert_array_equal(weight, result.agent.policy.save_weights()[name])


def test_progress_can_be_switched_off_and_counts_are_sensible(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    stockade.train(progress=False, runs=tmp_path, **TINY)
    stockade.evaluate("sleep", episodes=1, progress=False)
    assert capfd.readouterr() == ("", "")
    stockade.train(runs=tmp_path, **{**TINY, "total_episodes": 3})
    printed = capfd.readouterr().out
    assert "8 episodes (100%)" in printed  # and not "8 of 3 episodes"
    assert " of 3 " not in printed


def test_an_interrupt_ends_a_training_cleanly_and_it_can_continue(tmp_path: Path) -> None:
    """As a notebook's stop button: SIGINT to the main thread while it trains."""

    def interrupt() -> None:
        while not (tmp_path / "x" / "metrics.csv").exists() or len(metrics.read_text().splitlines()) < 4:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    metrics = tmp_path / "x" / "metrics.csv"
    thread = threading.Thread(target=interrupt)
    thread.start()
    result = stockade.train(name="x", runs=tmp_path, progress=False, **{**TINY, "total_episodes": 10**7})
    thread.join()
    assert result.interrupted
    assert result.saved
    assert "interrupted" in repr(result)
    assert result.agent.predict(np.zeros(160, np.uint8))[1] is None


def test_training_works_outside_the_main_thread(tmp_path: Path) -> None:
    results = []
    thread = threading.Thread(target=lambda: results.append(stockade.train(runs=tmp_path, progress=False, **TINY)))
    thread.start()
    thread.join()
    assert results[0].saved


def test_a_second_interrupt_does_not_kill_a_notebooks_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", threading)  # any module: it only has to be there
    with StopSignals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_disk_that_stays_full_is_said_and_the_best_is_only_what_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stockade.learn.checkpoint.write_durably", full)
    with pytest.warns(UserWarning, match="could not be written"):
        result = stockade.train(name="x", runs=tmp_path, progress=False, **TINY)
    assert not result.saved
    monkeypatch.undo()
    resumed = stockade.train(resume="x", runs=tmp_path, progress=False)
    assert resumed.saved
    assert (tmp_path / "x" / "checkpoints").is_dir()


def test_an_unknown_rule_set_is_named() -> None:
    with pytest.raises(InputError, match=r"rules='old' is unknown; take one of 'current', 'leaderboard'"):
        stockade.load("champion", rules="old")


def test_importing_stays_light() -> None:
    code = "import stockade, sys; stockade.train, stockade.evaluate, stockade.load; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "tyro", "tqdm", "stockade.learn"} & set(loaded)
