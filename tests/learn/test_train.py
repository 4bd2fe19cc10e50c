"""Runs: their folder, interruptions of every kind, and that a run goes on as if nothing had happened."""

import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stockade import RewardWeights
from stockade.errors import InputError
from stockade.learn.checkpoint import CheckpointFolder
from stockade.learn.config import CHALLENGER, LEARNER, PPOConfig, TrainConfig
from stockade.learn.files import COLUMNS, MetricsFile, read_metrics
from stockade.learn.train import StopSignals, TrainingDiverged, find_run, make_learner, read_config, train
from tests.processes import after_calls

PPO = dataclasses.replace(LEARNER, update_steps=50, minibatch_size=400, hidden=(16,))
CONFIG = TrainConfig(
    total_episodes=400, n_envs=16, horizon=20, checkpoint_episodes=60, tensorboard=False, seed=5, ppo=PPO
)


def in_folder(folder: Path, **changes: object) -> TrainConfig:
    return dataclasses.replace(CONFIG, runs=folder, **changes)  # type: ignore[arg-type]


def arguments(folder: Path, episodes: int, number: int) -> list[str]:
    """CONFIG as a command line, in a process that sends itself a signal after ten iterations."""
    flags = {"total-episodes": episodes, "n-envs": 16, "max-steps": 20, "checkpoint-episodes": 60, "seed": 5,
             "update-steps": 50, "minibatch-size": 400, "hidden": 16, "runs": folder, "name": "x"}  # fmt: skip
    command = [
        "train",
        "--no-tensorboard",
        *(part for name, value in flags.items() for part in (f"--{name}", str(value))),
    ]
    signalled = after_calls("stockade.learn.files", "MetricsFile.write", 10, f"os.kill(os.getpid(), {int(number)})")
    return [sys.executable, "-c", f"{signalled}\nfrom stockade.cli import main\nmain({command!r})"]


def weights(run: Path) -> bytes:
    arrays = CheckpointFolder(run / "checkpoints").load_last().arrays
    return b"".join(arrays[name].tobytes() for name in sorted(arrays))  # worlds and Adam too


def iterations(run: Path) -> list[int]:
    with (run / "metrics.csv").open() as file:
        return [int(row["iteration"]) for row in csv.DictReader(file)]


def columns_but_time(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k not in ("seconds", "episodes_per_second")} for row in rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 1000 episodes that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    assert train(in_folder(folder, name="x", total_episodes=1000)).saved
    return folder / "x"


def test_a_run_writes_what_it_promises(whole: Path) -> None:
    assert iterations(whole) == list(range(1, len(iterations(whole)) + 1))
    rows = read_metrics(whole / "metrics.csv")
    assert list(rows[0]) == list(COLUMNS)
    assert rows[-1]["episodes"] >= 1000 > rows[-2]["episodes"]
    assert all(np.isfinite(row["return_mean"]) for row in rows)
    assert len(CheckpointFolder(whole / "checkpoints").numbers()) == 3
    assert read_config(whole).ppo == PPO
    assert "return" in CheckpointFolder(whole / "checkpoints").load_best().rest


def test_tensorboard_events_are_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    assert train(in_folder(tmp_path, tensorboard=True, total_episodes=40)).saved
    (events,) = (tmp_path / "bline-memory-seed5" / "tensorboard").iterdir()
    assert b"return_mean" in events.read_bytes()


def test_kill_9_then_resume_gives_the_very_same_run(whole: Path, tmp_path: Path) -> None:
    ended = subprocess.run(arguments(tmp_path, 1000, signal.SIGKILL), capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    run = tmp_path / "x"
    before = iterations(run)
    assert len(CheckpointFolder(run / "checkpoints").numbers()) >= 2
    assert before[-1] < iterations(whole)[-1]
    with (run / "metrics.csv").open("a") as file:
        file.write(f"{before[-1] + 1},half a li")  # as a crash may leave it
    changes = {
        "seed=9": {"seed": 9},
        "preset=": {"preset": "champion"},
        "gamma=0.5": {"ppo": dataclasses.replace(PPO, gamma=0.5)},
    }
    for named, change in changes.items():
        with pytest.raises(InputError, match=f"{named}.* cannot be changed by --resume: it was begun with"):
            train(dataclasses.replace(TrainConfig.resumed("x", tmp_path), **change))
    assert train(TrainConfig.resumed("x", tmp_path)).saved
    assert weights(run) == weights(whole)
    assert columns_but_time(run) == columns_but_time(whole)


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_a_run_with_a_checkpoint_and_it_can_go_on(
    whole: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    ended = subprocess.run(arguments(tmp_path, 1000, number), capture_output=True, text=True, check=False)
    run, message = tmp_path / "x", ended.stderr
    assert ended.returncode == code
    assert f"stopped by {number.name}" in message
    assert "Traceback" not in message
    assert "--resume" in message
    stopped = CheckpointFolder(run / "checkpoints").load_last()
    assert stopped.rest["iteration"] == 10
    assert stopped.rest["iteration"] == iterations(run)[-1] < iterations(whole)[-1]
    assert train(TrainConfig.resumed(str(run), tmp_path / "elsewhere")).saved
    assert weights(run) == weights(whole)
    assert columns_but_time(run) == columns_but_time(whole)


def test_a_second_signal_kills() -> None:
    code = (
        "import os, signal\nfrom stockade.learn.train import StopSignals\n"
        "with StopSignals() as stop:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n    print(stop.received, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n    print('still here', flush=True)\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.stdout == "2\n"
    assert answer.returncode == -signal.SIGINT


def test_handlers_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_resuming_from_a_truncated_checkpoint_takes_the_one_before(tmp_path: Path) -> None:
    assert train(in_folder(tmp_path, name="x")).saved
    run = tmp_path / "x"
    right = weights(run)
    folder = CheckpointFolder(run / "checkpoints")
    newest = run / "checkpoints" / f"checkpoint-{folder.numbers()[-1]:08d}.json"
    arrays = newest.with_name(json.loads(newest.read_text())["arrays"])
    arrays.write_bytes(arrays.read_bytes()[:1000])
    with pytest.warns(UserWarning, match="checksum"):
        assert train(TrainConfig.resumed("x", tmp_path)).saved
    assert weights(run) == right
    assert iterations(run) == list(range(1, len(iterations(run)) + 1))


def test_a_run_that_is_over_stays_as_it_is(tmp_path: Path) -> None:
    assert train(in_folder(tmp_path, name="x", total_episodes=40)).saved
    before, lines = weights(tmp_path / "x"), (tmp_path / "x" / "metrics.csv").read_text()
    assert train(TrainConfig.resumed("x", tmp_path)).saved
    assert weights(tmp_path / "x") == before
    assert (tmp_path / "x" / "metrics.csv").read_text() == lines


def test_names_of_runs(tmp_path: Path) -> None:
    tiny = in_folder(tmp_path, total_episodes=1, red="B_lineAgent", obs="bits")
    assert train(tiny).saved
    assert train(tiny).saved
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bline-bits-seed5", "bline-bits-seed5-2"]
    with pytest.raises(ValueError, match="exists already"):
        train(dataclasses.replace(tiny, name="bline-bits-seed5"))
    with pytest.raises(ValueError, match="no name of a folder"):
        train(dataclasses.replace(tiny, name="../x"))
    with pytest.raises(ValueError, match="there is no run"):
        find_run("nothing", tmp_path)


def test_a_run_has_a_name_that_others_take(tmp_path: Path) -> None:
    """Views and attackers have colons of their own, which the name of a run must not have."""
    for settings, name in (
        ({"obs": "belief:16:current:bline"}, "bline-belief-seed5"),
        ({"red": "bline+delay:5", "obs": "bits"}, "bline+delay-5-bits-seed5"),
        ({"preset": "challenger", "obs": CHALLENGER.obs}, "challenger-belief-seed5"),
    ):
        assert train(in_folder(tmp_path, total_episodes=1, **settings)).folder.name == name
        assert find_run(name, tmp_path) == tmp_path / name


def test_divergence_is_an_error_and_the_last_checkpoint_is_good(tmp_path: Path) -> None:
    wild = dataclasses.replace(PPO, learning_rate=1e30)
    with pytest.raises(TrainingDiverged, match="learning rate"):
        train(in_folder(tmp_path, name="x", ppo=wild))


def test_settings_that_cannot_work_are_refused() -> None:
    for wrong in ({"epochs": 0}, {"gamma": 1.5}, {"hidden": ()}, {"threads": 0}, {"learning_rate": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PPOConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="n_envs"):
        TrainConfig(n_envs=0)


def test_metrics_of_iterations_to_come_are_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    file = MetricsFile(path, 0)
    for k in range(1, 6):
        file.write({name: float(k) + 0.5 * (name == "kl") for name in COLUMNS})
    file.close()
    MetricsFile(path, 3).close()
    assert [row["iteration"] for row in read_metrics(path)] == [1, 2, 3]
    assert read_metrics(path)[2]["kl"] == 3.5


def test_an_agent_learns_from_the_reward_that_it_is_given(tmp_path: Path) -> None:
    """Only Restore costs anything, ten times as much as in the challenge: every return is -10 times the restores."""
    config = in_folder(tmp_path, name="x", total_episodes=100, reward=RewardWeights(hosts=0, service=0, restore=10))
    result = train(config)
    means = result.metrics["return_mean"]
    assert (means < 0).all()
    assert result.config.reward == read_config(tmp_path / "x").reward
    ends = np.array(CheckpointFolder(tmp_path / "x" / "checkpoints").load_last().arrays["window"])
    assert np.array_equal(ends, 10 * np.round(ends / 10))
    other = train(in_folder(tmp_path, name="y", total_episodes=100))
    assert not np.array_equal(other.metrics["return_mean"], means)


@pytest.mark.parametrize("backend", ["native", "serial"])
def test_the_reward_reaches_every_backend(backend: str) -> None:
    free = dataclasses.replace(CONFIG, backend=backend, reward=RewardWeights(0, 0, 0))  # type: ignore[arg-type]
    learner = make_learner(free)
    try:
        assert not learner.collect().returns.any()
    finally:
        learner.close()
