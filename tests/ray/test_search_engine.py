"""The search on Ray: what the local engine finds, whatever dies on the way: a worker, the driver.

A node that dies: test_nodes.py.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stockade.errors import InputError
from stockade.workflow.config import SearchConfig
from stockade.workflow.engine import Event, Failed, RayEngine, TrainingFailedError, WorkerLostError
from stockade.workflow.orders import ORDERS
from stockade.workflow.search import search
from stockade.workflow.store import Task, UpdateRow
from stockade.workflow.training import train_workflow
from tests.ray.conftest import CPUS, free_cpus, wait_until
from tests.ray.searches import CONFIG, numbers_of, pid_file, results_of, run, run_in_order, under_way
from tests.workflow.fake import FakeTrainer, content_of, reward_config, searched

ROOT = Path(__file__).resolve().parents[2]
#: With these a real training takes a second.
REAL = reward_config(
    n_envs=20, n_workflows=2, max_episodes=240, min_episodes=100, compliance_threshold=0.3, min_fixes=0.1,
    horizon=15, inherit="last", name="x", total_episodes=1200,
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("known_holdings")


@dataclasses.dataclass(frozen=True)
class Slow(FakeTrainer):
    """Its trainings never end."""

    def __call__(self, task: Task, should_stop: Any = None) -> Iterator[Event]:
        yield UpdateRow(task.number, 1, task.threads or 0, *[0.0] * 7)
        while True:
            time.sleep(1)


def task(number: int) -> Task:
    return Task(number, ORDERS[7 * number], CONFIG, seed=number, episodes=100)


# ----------------------------------------------------------------------------------------------- as the local engine
@pytest.mark.usefixtures("local_ray")
def test_one_at_a_time_real_trainings_are_bit_for_bit_those_of_the_local_engine(tmp_path: Path) -> None:
    here = run(tmp_path / "local", REAL, train_workflow)
    assert run(tmp_path / "ray", REAL, train_workflow, engine="ray") == here
    assert len(results_of(tmp_path / "ray" / "x")) == 2


@pytest.mark.essential
@pytest.mark.usefixtures("local_ray")
def test_two_at_a_time_the_same_order_of_results_gives_the_same_search(two: dict[str, Any], tmp_path: Path) -> None:
    """Proposals (GP-BUCB), inherited weights, ranking, policies."""
    assert run_in_order(tmp_path, engine="ray") == two


def test_each_workflow_has_cpus_of_its_own_and_close_ends_it_at_once(local_ray: Any) -> None:
    engine = RayEngine(2, Slow(), num_cpus=3)
    try:
        engine.submit(task(0))
        engine.submit(task(1))
        with pytest.raises(RuntimeError, match="all 2 places are taken"):
            engine.submit(task(2))
        rows = [engine.next_event(120), engine.next_event(120)]
        assert {row.number for row in rows if isinstance(row, UpdateRow)} == {0, 1}
        assert {row.episodes for row in rows if isinstance(row, UpdateRow)} == {3}  # threads
        wait_until(lambda: free_cpus(local_ray) == CPUS - 6, "CPUs were not taken")
        assert engine.next_event(0.01) is None
    finally:
        engine.close()
        engine.close()
    assert local_ray.is_initialized()  # it was not started by the engine
    wait_until(lambda: free_cpus(local_ray) == CPUS, "trainings were not ended")


@pytest.mark.usefixtures("local_ray")
def test_more_than_the_cluster_has_room_for_is_told() -> None:
    with pytest.warns(UserWarning, match=rf"room for 1 trainings of {CPUS - 1} CPUs .* --parallel 2 wait"):
        RayEngine(2, FakeTrainer(), num_cpus=CPUS - 1).close()


# ------------------------------------------------------------------------------------------------------------ faults
@pytest.mark.essential
@pytest.mark.usefixtures("local_ray")
def test_a_worker_process_is_killed_from_outside_under_load(
    two: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had one of the two trainings under way: nothing is lost, and the search finds what it would have found."""
    folder, gate, safe = tmp_path / "x", tmp_path / "go on", []

    def kill_a_worker() -> None:
        wait_until(lambda: {"2", "3"} <= under_way(folder), "no progress")
        safe.extend(results_of(folder))
        os.kill(int(pid_file(folder, 3).read_text()), signal.SIGKILL)
        gate.touch()

    fault = threading.Thread(target=kill_a_worker)
    fault.start()
    try:
        assert run_in_order(tmp_path, gate, engine="ray") == two
    finally:
        fault.join()
    printed = capsys.readouterr()
    assert "its worker was lost" in printed.out + printed.err
    assert len(safe) == 2
    assert results_of(folder)[:2] == safe


@pytest.mark.usefixtures("local_ray")
def test_a_worker_that_is_killed_is_replaced_and_its_workflow_begun_again(
    whole: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = FakeTrainer(die=(1,), deaths=2, marks=tmp_path)
    assert run(tmp_path / "runs", CONFIG, trainer, engine="ray") == whole
    assert len(list(tmp_path.glob("1-*"))) == 2  # so many processes were killed
    printed = capsys.readouterr()
    assert "its worker was lost" in printed.out + printed.err


@pytest.mark.usefixtures("local_ray")
def test_a_workflow_that_kills_every_worker_is_given_up_and_can_be_gone_on_with(
    whole: dict[str, object], tmp_path: Path
) -> None:
    with pytest.raises(WorkerLostError, match=r"training 2 was given up.*2 were lost before"):
        run(tmp_path / "runs", CONFIG, FakeTrainer(die=(2,), deaths=99, marks=tmp_path), engine="ray")
    assert len(list(tmp_path.glob("2-*"))) == 3  # the first, and two more
    assert numbers_of(tmp_path / "runs" / "x") == [0, 1]
    searched(SearchConfig(runs=tmp_path / "runs", resume="x", engine="ray"))
    assert content_of(tmp_path / "runs" / "x") == whole


@pytest.mark.usefixtures("local_ray")
def test_an_exception_in_training_comes_with_its_traceback_and_is_not_repeated() -> None:
    engine = RayEngine(2, FakeTrainer(fail=(0,)))
    try:
        engine.submit(task(0))
        event = engine.next_event(120)
    finally:
        engine.close()
    assert isinstance(event, Failed)
    assert isinstance(event.error, TrainingFailedError)
    assert "a fault in training" in str(event.error)
    assert "Traceback" in str(event.error)


CODE = """
import dataclasses
import numpy as np
from pathlib import Path
from stockade.workflow import separate
from tests.ray.searches import CONFIG
from tests.workflow.fake import HELD, FakeTrainer, searched
separate.types_red_can_hold = lambda *_: np.array(HELD)
searched(
    dataclasses.replace(CONFIG, runs=Path({runs!r}), engine="ray", address={address!r}), FakeTrainer(pause=0.05)
)
"""


@pytest.mark.essential
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGKILL, -9), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_driver_that_is_killed_leaves_no_training_and_goes_on(
    local_ray: Any, whole: dict[str, object], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """It uses a cluster by its address, which outlives it."""
    source = CODE.format(runs=str(tmp_path), address=local_ray.get_runtime_context().gcs_address)
    driver = subprocess.Popen([sys.executable, "-c", source], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: driver.poll() is not None or len(results_of(tmp_path / "x")) >= 2, "no progress")
    driver.send_signal(number)
    _, complaints = driver.communicate(timeout=300)
    assert driver.returncode == code, complaints
    wait_until(lambda: free_cpus(local_ray) == CPUS, "a training was left")
    before = results_of(tmp_path / "x")
    assert len(before) >= 2
    searched(SearchConfig(runs=tmp_path, resume="x", engine="ray"))
    assert content_of(tmp_path / "x") == whole
    assert results_of(tmp_path / "x")[: len(before)] == before


# ------------------------------------------------------------------------------------------------------------ refusals
@pytest.mark.essential
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"address": "10.0.0.1:6379"}, "--engine ray"),
        ({"num_cpus_per_workflow": 2.0}, "without --engine ray"),
        ({"engine": "ray", "num_cpus_per_workflow": 0.0}, "whole number, or above 0 and below 1"),
        ({"engine": "ray", "num_cpus_per_workflow": 1.5}, "whole number"),
        ({"engine": "ray", "address": "ray://head:10001"}, "--address auto"),
    ],
)
def test_what_could_not_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SearchConfig(**changes)


@pytest.mark.essential
def test_without_ray_the_message_names_the_extra_and_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'stockade\[ray\]'"):
        search(dataclasses.replace(CONFIG, runs=tmp_path, engine="ray"))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "127.0.0.1:port", "127.0.0.1:99999"])
def test_no_cluster_at_the_address_is_told_and_nothing_is_begun(tmp_path: Path, address: str) -> None:
    with pytest.raises(InputError, match="no Ray cluster at"):
        search(dataclasses.replace(CONFIG, runs=tmp_path, engine="ray", address=address))
    assert not list(tmp_path.iterdir())


def test_where_a_search_runs_is_not_written_down() -> None:
    """So that it can go on elsewhere."""
    assert SearchConfig(engine="ray", address="auto", num_cpus_per_workflow=2).to_json() == SearchConfig().to_json()
