"""A search that is killed or interrupted, in processes of their own, continues as if nothing had happened."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from stockade.workflow.config import SearchConfig
from stockade.workflow.store import Saved, SearchFolder, Task, UpdateRow, WorkflowResult
from stockade.workflow.training import CHECKPOINT_UPDATES, train_workflow
from tests.workflow.fake import FakeTrainer, content_of, result_of, reward_config, rows_of, searched

CONFIG = reward_config(n_envs=10, total_episodes=700, max_episodes=100, min_episodes=40, inherit="nearest", name="x")
#: With these a real training takes a second.
REAL = reward_config(
    n_envs=20, total_episodes=1800, max_episodes=600, min_episodes=400, compliance_threshold=0.3, min_fixes=0.1,
    horizon=15, inherit="last", name="x",
)  # fmt: skip
STRICT = SearchConfig(
    train="separate", n_envs=20, total_episodes=1800, max_episodes=300, horizon=15, name="x", n_eval_episodes=50
)
CODE = """
import dataclasses, sys
from pathlib import Path
from stockade.workflow.config import SearchConfig
from stockade.workflow.training import train_workflow
from tests.workflow.fake import FakeTrainer, searched
from tests.workflow.test_separate_resume import {config} as config
searched(dataclasses.replace(config, runs=Path({runs!r}), {changes}), {trainer})
"""
ROOT = Path(__file__).resolve().parents[2]


def start(runs: Path, config: str = "CONFIG", pause: float = 0.01, **changes: object) -> subprocess.Popen[str]:
    """A search in a process of its own."""
    trainer = f"FakeTrainer(pause={pause})" if config == "CONFIG" else "train_workflow"
    code = CODE.format(
        config=config, runs=str(runs), trainer=trainer, changes=", ".join(f"{k}={v!r}" for k, v in changes.items())
    )
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def wait_for_rows(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    """Until so many updates were made, or it is over."""
    log, deadline = folder / "training_log.csv", time.monotonic() + 60
    while process.poll() is None and (not log.exists() or log.read_text().count("\n") <= count):
        assert time.monotonic() < deadline, "the search does not get on"
        time.sleep(0.002)


def go_on(runs: Path, resume: str = "x") -> None:
    """To its end, in this process."""
    searched(SearchConfig(runs=runs, resume=resume))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What a search finds that nothing interrupts."""
    runs = tmp_path_factory.mktemp("runs")
    searched(dataclasses.replace(CONFIG, runs=runs))
    return content_of(runs / "x")


def test_kill_9_again_and_again_then_resume_gives_the_very_same_search(
    whole: dict[str, object], tmp_path: Path
) -> None:
    chance = random.Random(4)
    for moment, changes in ((3, {}), (25, {"resume": "x"})):
        process = start(tmp_path, **changes)
        wait_for_rows(process, tmp_path / "x", moment + chance.randrange(10))
        time.sleep(0.05 * chance.random())
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it was over before it could be killed"
    go_on(tmp_path)
    assert content_of(tmp_path / "x") == whole


def test_half_a_line_and_a_policy_without_a_result_do_no_harm(whole: dict[str, object], tmp_path: Path) -> None:
    """As a crash may leave them."""
    runs = dataclasses.replace(CONFIG, runs=tmp_path)
    with pytest.raises(RuntimeError):
        searched(runs, FakeTrainer(fail=(4,)))
    folder = SearchFolder(tmp_path / "x")
    proposed = folder.read_state().proposals[-1]
    assert proposed.number == 4
    task = Task(4, proposed.order, CONFIG, 77, 10)
    folder.save_policy(result_of(task), CONFIG)
    with (tmp_path / "x" / "training_log.csv").open("a") as file:
        file.write("4,6,defender > op_server > enterprise > op_host > user,1,10,999,-1,0,-1,0,0,0,0,0\n4,6,defen")
    searched(dataclasses.replace(runs, resume="x"))
    assert content_of(tmp_path / "x") == whole


def test_a_search_that_is_over_stays_as_it_is(tmp_path: Path) -> None:
    searched(dataclasses.replace(CONFIG, runs=tmp_path, n_workflows=2))
    before = content_of(tmp_path / "x")
    session = searched(SearchConfig(runs=tmp_path, resume="x"), FakeTrainer(fail=(0, 1, 2, 3)))
    assert content_of(tmp_path / "x") == before
    assert session.ended == "all 2 trainings are done"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_search_cleanly_and_keeps_the_training_in_flight(
    whole: dict[str, object], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = start(tmp_path, pause=0.05)
    wait_for_rows(process, tmp_path / "x", 15)
    process.send_signal(number)
    _, message = process.communicate(timeout=30)
    assert process.returncode == code
    assert f"stopped by {number.name}" in message
    assert "--resume" in message
    assert "Traceback" not in message
    state = SearchFolder(tmp_path / "x").read_state()
    (unfinished,) = (p.number for p in state.proposals if p.number not in {r.number for r in state.results})
    kept = SearchFolder(tmp_path / "x").load_training(unfinished)
    played = [int(r["update"]) for r in rows_of(tmp_path / "x" / "training_log.csv") if r["number"] == str(unfinished)]
    if played:  # nothing of it is lost
        assert kept is not None
        assert kept.update == max(played)
        assert f"is kept after {kept.update} updates" in message
    go_on(tmp_path / "elsewhere", resume=str(tmp_path / "x"))
    assert content_of(tmp_path / "x") == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_several_at_once_leave_nothing_behind_and_go_on(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, pause=0.03, parallel=2)
    wait_for_rows(process, tmp_path / "x", 15)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 2
    os.killpg(process.pid, number) if number == signal.SIGINT else process.kill()
    process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive, "processes have outlived the search"
    done = {r.number: r for r in SearchFolder(tmp_path / "x").read_state().results}
    go_on(tmp_path)
    state = SearchFolder(tmp_path / "x").read_state()
    assert [r.number for r in state.results[: len(done)]] == list(done)  # none is lost, none trained again
    assert all(repr(done[r.number]) == repr(r) for r in state.results[: len(done)])
    assert sorted(r.number for r in state.results) == [p.number for p in state.proposals]
    assert sum(r.episodes for r in state.results) <= CONFIG.total_episodes
    folder, orders = SearchFolder(tmp_path / "x"), {r.number: r.order for r in state.results}
    for proposed, result in zip(state.proposals, sorted(state.results, key=lambda r: r.number), strict=True):
        parent = proposed.inherit
        weights = None if parent is None else folder.load_policy(parent, orders[parent])[0]
        task = Task(proposed.number, proposed.order, CONFIG, proposed.seed, proposed.episodes, weights)
        assert result_of(task).value == result.value  # as it was proposed, so it was trained
    rows = rows_of(tmp_path / "x" / "training_log.csv")
    assert len({(row["number"], row["update"]) for row in rows}) == len(rows)
    assert int(rows[-1]["total_episodes"]) == sum(r.episodes for r in state.results)


@pytest.mark.parametrize("config", ["REAL", "STRICT"])
def test_kill_9_of_real_trainings_then_resume_gives_the_very_same_weights(tmp_path: Path, config: str) -> None:
    """And repeats no more than what was trained since the last checkpoint."""
    runs, settings = [tmp_path / "whole", tmp_path / "killed"], {"REAL": REAL, "STRICT": STRICT}[config]
    searched(dataclasses.replace(settings, runs=runs[0]), train_workflow)
    process = start(runs[1], config)
    wait_for_rows(process, runs[1] / "x", 27)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was over before it could be killed"
    folder = SearchFolder(runs[1] / "x")
    (in_flight,) = {p.number for p in folder.read_state().proposals} - {r.number for r in folder.read_state().results}
    kept = folder.load_training(in_flight)
    rows = [int(r["update"]) for r in rows_of(runs[1] / "x" / "training_log.csv") if r["number"] == str(in_flight)]
    assert max(rows, default=0) - (0 if kept is None else kept.update) <= CHECKPOINT_UPDATES
    searched(SearchConfig(runs=runs[1], resume="x"), train_workflow)
    whole, killed = (content_of(folder / "x") for folder in runs)
    assert whole == killed
    assert len(whole["policies"]) >= 6


@pytest.mark.parametrize("settings", [REAL, STRICT], ids=["reward", "strict"])
def test_a_training_continues_from_any_of_its_checkpoints_bit_for_bit(settings: SearchConfig) -> None:
    task = Task(0, (1, 2, 0, 3, 4), dataclasses.replace(settings, update_steps=11), 5, 300)
    *events, whole = train_workflow(task)
    assert isinstance(whole, WorkflowResult)
    states = [event for event in events if isinstance(event, Saved)]
    assert len(states) >= 2
    for saved in states:
        first, *_, again = train_workflow(dataclasses.replace(task, state=saved.state))
        assert isinstance(first, UpdateRow)
        assert first.update == saved.update + 1
        assert isinstance(again, WorkflowResult)
        assert (again.value, again.episodes, again.updates) == (whole.value, whole.episodes, whole.updates)
        assert all(np.array_equal(again.weights[name], whole.weights[name]) for name in whole.weights)


def test_a_damaged_checkpoint_of_a_training_is_named_and_the_training_begins_again(
    whole: dict[str, object], tmp_path: Path
) -> None:
    process = start(tmp_path, pause=0.05)
    wait_for_rows(process, tmp_path / "x", 7)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    for arrays in (tmp_path / "x" / "trainings").glob("*.safetensors"):
        arrays.write_bytes(b"nothing")
    with pytest.warns(UserWarning, match="cut off or was altered"):
        go_on(tmp_path)
    assert content_of(tmp_path / "x") == whole
