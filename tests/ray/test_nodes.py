"""A whole node of a cluster is lost: the run goes on elsewhere, or ends in an error; nothing waits for ever.

The cluster is a real one of several raylets, all on this machine.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import stockade
from stockade.errors import InputError
from stockade.vector import WorkerDiedError
from tests.processes import gone
from tests.ray.conftest import OBJECT_STORE, wait_until
from tests.ray.searches import pid_file, results_of, run_in_order, under_way

SMALL = {"object_store_memory": OBJECT_STORE, "include_dashboard": False}


@pytest.fixture(scope="module")
def head(ray_module: Any) -> Iterator[Any]:
    """A cluster of nothing but a head without CPUs."""
    from ray.cluster_utils import Cluster

    ray_module.shutdown()
    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 5}
    options = {"num_cpus": 0, "_system_config": {**quick, "enable_worker_prestart": False}}
    made = Cluster(initialize_head=True, head_node_args={**SMALL, **options})
    yield made
    ray_module.shutdown()
    made.shutdown()


@pytest.fixture
def cluster(head: Any, no_ray: Any) -> Iterator[Any]:
    """The head, and the nodes that a test adds to it."""
    yield head
    for node in list(head.worker_nodes):
        head.remove_node(node, allow_graceful=False)


def step_for(envs, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        envs.step(np.zeros(envs.num_envs, np.int64))


def raylet_of(pid: int) -> int:
    """The raylet that started an actor's process."""
    return psutil.Process(pid).ppid()


def raylet_pid(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def test_a_node_is_lost_under_load(cluster):
    nodes = [cluster.add_node(num_cpus=4, **SMALL) for _ in range(2)]
    horizon = 50
    options = {"red": "meander", "horizon": horizon}
    spread, lost_at_once = {"scheduling_strategy": "SPREAD"}, 2
    with (
        stockade.make_vec(
            8, backend="ray", workers=4, restart=lost_at_once, address=cluster.address, actor_options=spread, **options
        ) as envs,
        stockade.make_vec(8, **options) as undisturbed,
    ):
        homes = [raylet_of(pid) for pid in envs.worker_pids]
        assert homes.count(homes[0]) == lost_at_once  # and the others on the other node
        doomed = next(node for node in nodes if raylet_pid(node) == homes[0])
        lost = np.repeat([home == homes[0] for home in homes], 2)
        others = [pid for pid, home in zip(envs.worker_pids, homes, strict=True) if home == homes[0]]
        envs.reset(seed=0)
        undisturbed.reset(seed=0)
        removal = threading.Thread(target=cluster.remove_node, args=(doomed, False))
        marked = np.zeros(8, int)
        for step in range(horizon - 1):
            if step == 5:
                removal.start()
            if step == 20:
                removal.join()
                wait_until(lambda: gone(others), "the node's processes live on")
            actions = np.full(8, step)
            values, expected = envs.step(actions), undisturbed.step(actions)
            for ours, theirs in zip(values[:4], expected[:4], strict=True):
                assert np.array_equal(ours[~lost], theirs[~lost])
            marked += values[3]
        assert marked.tolist() == lost.astype(int).tolist()  # once each
        assert envs.restarts == lost.sum() // 2
        assert len({raylet_of(pid) for pid in envs.worker_pids}) == 1
        cluster.remove_node(next(node for node in nodes if node is not doomed), allow_graceful=False)
        with pytest.raises(WorkerDiedError, match="used up"):
            step_for(envs, seconds=300.0)  # the actors end a moment after their raylet


@pytest.mark.usefixtures("known_holdings")
def test_a_search_loses_a_node_under_load(
    cluster: Any, two: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The training that the node had is begun again elsewhere, and the search finds what it would have found."""
    nodes = [cluster.add_node(num_cpus=1, **SMALL) for _ in range(3)]
    folder, gate, safe = tmp_path / "x", tmp_path / "go on", []

    def lose_a_node() -> None:
        """While it has one of the two trainings under way, which cannot end before."""
        wait_until(lambda: {"2", "3"} <= under_way(folder), "no progress")
        safe.extend(results_of(folder))
        trainer = int(pid_file(folder, 3).read_text())
        doomed = next(node for node in nodes if raylet_pid(node) == raylet_of(trainer))
        cluster.remove_node(doomed, allow_graceful=False)
        wait_until(lambda: gone([trainer]), "the node's processes live on")
        gate.touch()

    fault = threading.Thread(target=lose_a_node)
    fault.start()
    try:
        assert run_in_order(tmp_path, gate, engine="ray", address=cluster.address) == two
    finally:
        fault.join()
    printed = capsys.readouterr()
    assert "its worker was lost" in printed.out + printed.err
    assert len(safe) == 2
    assert results_of(folder)[:2] == safe


def test_an_address_where_nothing_is(no_ray):
    with pytest.raises(InputError, match=r"no Ray cluster at address='127\.0\.0\.1:1'"):
        stockade.make_vec(2, backend="ray", address="127.0.0.1:1")
    assert not no_ray.is_initialized()
