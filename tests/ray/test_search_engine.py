"""The search on Ray: what the local engine finds, whatever dies on the way: a worker, a node, the driver."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stockade.errors import InputError
from stockade.workflow import search as search_module
from stockade.workflow.config import SearchConfig
from stockade.workflow.engine import Failed, TrainingFailedError, WorkerLostError
from stockade.workflow.orders import ORDERS
from stockade.workflow.ray_engine import RayEngine
from stockade.workflow.records import Task, UpdateRow, WorkflowResult
from stockade.workflow.search import search
from tests.ray.conftest import CPUS, OBJECT_STORE, free_cpus, wait_until
from tests.workflow.fake import HELD, FakeTrainer, content_of, rows_of

ROOT = Path(__file__).resolve().parents[2]
CONFIG = SearchConfig(n_envs=10, total_episodes=700, max_episodes=100, min_episodes=40, inherit="nearest", name="x")
SIX = dataclasses.replace(CONFIG, total_episodes=2000, n_workflows=6, parallel=2)
#: With these a real training takes a second.
REAL = SearchConfig(
    n_envs=20, n_workflows=2, max_episodes=240, min_episodes=100, compliance_threshold=0.3, min_fixes=0.1,
    max_steps=15, inherit="last", name="x", total_episodes=1200,
)  # fmt: skip


@pytest.fixture(autouse=True)
def quick_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What red can hold is known here."""
    monkeypatch.setattr(search_module, "types_red_can_hold", lambda *_: np.array(HELD))


@dataclasses.dataclass(frozen=True)
class InOrder(FakeTrainer):
    """A training ends when the search has written down the results that shall come before its own."""

    wanted: tuple[int, ...] = ()
    folder: Path = Path()

    def __call__(
        self, task: Task, report: Callable[[UpdateRow], None], should_stop: Callable[[], bool] = lambda: False
    ) -> WorkflowResult:
        result = super().__call__(task, report, should_stop)
        before = list(self.wanted[: self.wanted.index(task.number)])
        wait_until(lambda: numbers_of(self.folder) == before, f"{before} before {task.number}", 60)
        return result


@dataclasses.dataclass(frozen=True)
class Held(FakeTrainer):
    """From the third training on, none ends before there is a file."""

    file: Path = Path()

    def __call__(
        self, task: Task, report: Callable[[UpdateRow], None], should_stop: Callable[[], bool] = lambda: False
    ) -> WorkflowResult:
        result = super().__call__(task, report, should_stop)
        if task.number >= 2:
            wait_until(self.file.exists, "nobody made the file", 60)
        return result


@dataclasses.dataclass(frozen=True)
class Slow(FakeTrainer):
    """Its trainings never end."""

    def __call__(self, task: Task, report: Any, should_stop: Any = None) -> WorkflowResult:
        report(UpdateRow(task.number, 1, task.threads or 0, *[0.0] * 7))
        while True:
            time.sleep(1)


def run(folder: Path, config: SearchConfig, train: Any = None, **changes: Any) -> dict[str, object]:
    """A search to its end; what it found out."""
    config = dataclasses.replace(config, runs=folder, **changes)
    assert search(config, *([] if train is None else [train])) == 0
    return content_of(folder / "x")


def results_of(folder: Path) -> list[dict[str, Any]]:
    """That are safe on disk, in the order in which they came."""
    state = folder / "state.json"
    found: list[dict[str, Any]] = json.loads(state.read_text())["results"] if state.exists() else []
    return found


def numbers_of(folder: Path) -> list[int]:
    return [result["number"] for result in results_of(folder)]


def under_way(folder: Path) -> set[str]:
    """Numbers of the trainings of which an update was heard."""
    log = folder / "training_log.csv"
    return {row["number"] for row in rows_of(log)} if log.exists() else set()


def task(number: int) -> Task:
    return Task(number, ORDERS[7 * number], CONFIG, seed=number, episodes=100)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What the local engine finds, one workflow at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "types_red_can_hold", lambda *_: np.array(HELD))
        return run(tmp_path_factory.mktemp("runs"), CONFIG, FakeTrainer())


# ----------------------------------------------------------------------------------------------- as the local engine
@pytest.mark.usefixtures("local_ray")
def test_one_at_a_time_real_trainings_are_bit_for_bit_those_of_the_local_engine(tmp_path: Path) -> None:
    here = run(tmp_path / "local", REAL)
    assert run(tmp_path / "ray", REAL, engine="ray") == here
    assert len(results_of(tmp_path / "ray" / "x")) == 2


@pytest.fixture
def no_helpers() -> Iterator[None]:
    """Those of multiprocessing, which the local engine starts, would outlive the test; here nothing may be left."""
    yield
    helpers: Any = forkserver, resource_tracker
    helpers[0]._forkserver._stop()
    helpers[1]._resource_tracker._stop()


@pytest.mark.usefixtures("local_ray", "no_helpers")
def test_two_at_a_time_the_same_order_of_results_gives_the_same_search(tmp_path: Path) -> None:
    """Proposals (GP-BUCB), inherited weights, ranking, policies: all but the log's order of rows under way."""
    found = []
    wanted = (1, 0, 3, 4, 2, 5)
    for engine in ("local", "ray"):
        trainer = InOrder(wanted=wanted, folder=tmp_path / engine / "x")
        content = run(tmp_path / engine, SIX, trainer, engine=engine)
        assert tuple(numbers_of(tmp_path / engine / "x")) == wanted
        rows = content.pop("training_log")
        assert isinstance(rows, list)
        for row in rows:
            del row["total_episodes"]  # those of others that happened to be under way
        found.append((content, sorted(map(str, rows))))
    assert found[0] == found[1]


def test_each_workflow_has_cpus_of_its_own_and_close_ends_it_at_once(local_ray: Any) -> None:
    engine = RayEngine(2, Slow(), num_cpus=3)
    try:
        engine.submit(task(0))
        engine.submit(task(1))
        with pytest.raises(RuntimeError, match="all 2 places are taken"):
            engine.submit(task(2))
        rows = [engine.next_event(60), engine.next_event(60)]
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
    with pytest.warns(UserWarning, match=rf"room for 1 workflows of {CPUS - 1} CPUs .* --parallel 2 wait"):
        RayEngine(2, FakeTrainer(), num_cpus=CPUS - 1).close()


# ------------------------------------------------------------------------------------------------------------ faults
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
    with pytest.raises(WorkerLostError, match=r"training 2 was given up.*2 were lost before") as caught:
        run(tmp_path / "runs", CONFIG, FakeTrainer(die=(2,), deaths=99, marks=tmp_path), engine="ray")
    assert caught.value.number == 2
    assert len(list(tmp_path.glob("2-*"))) == 3  # the first, and two more
    assert numbers_of(tmp_path / "runs" / "x") == [0, 1]
    config = SearchConfig(runs=tmp_path / "runs", resume="x", engine="ray")
    assert search(config, FakeTrainer()) == 0
    assert content_of(tmp_path / "runs" / "x") == whole


@pytest.mark.usefixtures("local_ray")
def test_an_exception_in_training_comes_with_its_traceback_and_is_not_repeated() -> None:
    engine = RayEngine(2, FakeTrainer(fail=(0,)))
    try:
        engine.submit(task(0))
        event = engine.next_event(60)
    finally:
        engine.close()
    assert isinstance(event, Failed)
    assert isinstance(event.error, TrainingFailedError)
    assert "a fault in training" in str(event.error)
    assert "Traceback" in str(event.error)


CODE = """
import dataclasses, sys
import numpy as np
from pathlib import Path
from stockade.workflow import search as search_module
from tests.ray.test_search_engine import CONFIG
from tests.workflow.fake import HELD, FakeTrainer
search_module.types_red_can_hold = lambda *_: np.array(HELD)
config = dataclasses.replace(CONFIG, runs=Path({runs!r}), engine="ray", address={address!r})
sys.exit(search_module.search(config, FakeTrainer(pause=0.05)))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_a_driver_that_is_killed_leaves_no_training_and_goes_on(
    local_ray: Any, whole: dict[str, object], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """It uses a cluster by its address, which outlives it."""
    source = CODE.format(runs=str(tmp_path), address=local_ray.get_runtime_context().gcs_address)
    driver = subprocess.Popen([sys.executable, "-c", source], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: driver.poll() is not None or len(results_of(tmp_path / "x")) >= 2, "no progress", 60)
    driver.send_signal(number)
    _, complaints = driver.communicate(timeout=60)
    assert driver.returncode == code, complaints
    wait_until(lambda: free_cpus(local_ray) == CPUS, "a training was left")
    before = results_of(tmp_path / "x")
    assert len(before) >= 2
    assert search(SearchConfig(runs=tmp_path, resume="x", engine="ray"), FakeTrainer()) == 0
    assert content_of(tmp_path / "x") == whole
    assert results_of(tmp_path / "x")[: len(before)] == before


@pytest.fixture
def cluster(no_ray: Any) -> Iterator[Any]:
    """A head without CPUs, on which the search runs."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    yield made
    no_ray.shutdown()
    made.shutdown()


def test_a_whole_node_is_lost_under_load(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE) for _ in range(2)]
    folder, safe, file = tmp_path / "x", [], tmp_path / "go on"

    def lose_a_node() -> None:
        """While each of the two has a training, which can't end before one of them was begun again."""
        wait_until(lambda: {"2", "3"} <= under_way(folder), "no progress", 60)
        safe.extend(results_of(folder))
        cluster.remove_node(nodes[0], allow_graceful=False)
        wait_until(lambda: len(under_way(folder) & {"2", "3"}) == 1, "nobody missed the node", 60)
        file.touch()

    fault = threading.Thread(target=lose_a_node)
    fault.start()
    try:
        content = run(tmp_path, SIX, Held(file=file), engine="ray", address=cluster.address)
    finally:
        fault.join()
    printed = capsys.readouterr()
    assert "its worker was lost" in printed.out + printed.err
    assert sorted(numbers_of(folder)) == list(range(6))
    assert results_of(folder)[: len(safe)] == safe
    assert len(safe) == 2
    policies = content["policies"]
    assert isinstance(policies, dict)
    assert {int(name[:3]) for name in policies} == set(range(6))


# ------------------------------------------------------------------------------------------------------------ refusals
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


def test_without_ray_the_message_names_the_extra_and_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'stockade\[ray\]'"):
        run(tmp_path, CONFIG, FakeTrainer(), engine="ray")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("ray_module")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "127.0.0.1:port", "127.0.0.1:99999"])
def test_no_cluster_at_the_address_is_told_and_nothing_is_begun(tmp_path: Path, address: str) -> None:
    with pytest.raises(InputError, match="no Ray cluster at"):
        run(tmp_path, CONFIG, FakeTrainer(), engine="ray", address=address)
    assert not list(tmp_path.iterdir())


def test_where_a_search_runs_is_not_written_down() -> None:
    """So that it can go on elsewhere."""
    assert SearchConfig(engine="ray", address="auto", num_cpus_per_workflow=2).to_json() == SearchConfig().to_json()
