"""A search that is killed or interrupted, in processes of their own, continues as if nothing had happened."""

from __future__ import annotations

import dataclasses
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stockade.workflow.config import SearchConfig
from stockade.workflow.store import Saved, SearchFolder, Task, UpdateRow, WorkflowResult
from stockade.workflow.training import CHECKPOINT_UPDATES, train_workflow
from tests.processes import after_calls, wait_until_gone
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
{before}
import dataclasses, sys
from pathlib import Path
from stockade.workflow.config import SearchConfig
from stockade.workflow.training import train_workflow
from tests.workflow.fake import FakeTrainer, searched
from tests.workflow.test_separate_resume import {config} as config
searched(dataclasses.replace(config, runs=Path({runs!r}), {changes}), {trainer})
"""
ROOT = Path(__file__).resolve().parents[2]


def interrupted(
    runs: Path, number: int, updates: int, config: str = "CONFIG", then: str = "", pause: float = 0.0, **changes: object
) -> subprocess.CompletedProcess[str]:
    """A search in a process of its own, which sends itself a signal after so many updates."""
    then = then or f"os.kill(os.getpid(), {int(number)})"
    code = CODE.format(
        before=after_calls("stockade.workflow.store", "TrainingLog.write", updates, then),
        config=config,
        runs=str(runs),
        trainer=f"FakeTrainer(pause={pause})" if config == "CONFIG" else "train_workflow",
        changes=", ".join(f"{k}={v!r}" for k, v in changes.items()),
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, start_new_session=True, check=False
    )


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
    for moment, changes in ((3, {}), (15, {"resume": "x"})):
        ended = interrupted(tmp_path, signal.SIGKILL, moment + chance.randrange(10), **changes)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
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


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_ends_a_search_cleanly_and_keeps_the_training_in_flight(
    whole: dict[str, object], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    ended = interrupted(tmp_path, number, 6, pause=0.1)  # the second of ten updates of a training
    message = ended.stderr
    assert ended.returncode == code
    assert f"stopped by {number.name}" in message
    assert "--resume" in message
    assert "Traceback" not in message
    state = SearchFolder(tmp_path / "x").read_state()
    (unfinished,) = (p.number for p in state.proposals if p.number not in {r.number for r in state.results})
    kept = SearchFolder(tmp_path / "x").load_training(unfinished)
    played = [int(r["update"]) for r in rows_of(tmp_path / "x" / "training_log.csv") if r["number"] == str(unfinished)]
    assert kept is not None  # nothing of it is lost
    assert kept.update == max(played)
    assert f"is kept after {kept.update} updates" in message
    go_on(tmp_path / "elsewhere", resume=str(tmp_path / "x"))
    assert content_of(tmp_path / "x") == whole


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGKILL])
def test_several_at_once_leave_nothing_behind_and_go_on(tmp_path: Path, number: signal.Signals) -> None:
    tell = "import psutil; print(*(c.pid for c in psutil.Process().children(recursive=True)), flush=True)"
    kill = f"os.{'killpg' if number == signal.SIGINT else 'kill'}(os.getpid(), {int(number)})"
    ended = interrupted(tmp_path, number, 15, then=f"{tell}; {kill}", parallel=2)
    assert ended.returncode == (130 if number == signal.SIGINT else -number), ended.stderr
    (told,) = (line for line in ended.stdout.splitlines() if line.replace(" ", "").isdigit())  # others may follow it
    children = [int(pid) for pid in told.split()]
    assert len(children) >= 2
    wait_until_gone(children, "processes have outlived the search")
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


@pytest.mark.parametrize("config", [pytest.param("REAL", marks=pytest.mark.slow), "STRICT"])
def test_kill_9_of_real_trainings_then_resume_gives_the_very_same_weights(tmp_path: Path, config: str) -> None:
    """And repeats no more than what was trained since the last checkpoint."""
    runs, settings = [tmp_path / "whole", tmp_path / "killed"], {"REAL": REAL, "STRICT": STRICT}[config]
    searched(dataclasses.replace(settings, runs=runs[0]), train_workflow)
    ended = interrupted(runs[1], signal.SIGKILL, 27, config)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
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
    assert interrupted(tmp_path, signal.SIGINT, 6, pause=0.1).returncode == 130
    for arrays in (tmp_path / "x" / "trainings").glob("*.safetensors"):
        arrays.write_bytes(b"nothing")
    with pytest.warns(UserWarning, match="cut off or was altered"):
        go_on(tmp_path)
    assert content_of(tmp_path / "x") == whole
