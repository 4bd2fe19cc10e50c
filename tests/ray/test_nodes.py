"""A whole node of a cluster is lost: the run goes on elsewhere, or ends in an error; nothing waits for ever.

The cluster is a real one of several raylets, all on this machine.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

import stockade
from stockade.errors import InputError
from stockade.vector import WorkerDiedError
from tests.ray.conftest import OBJECT_STORE, gone, wait_until


@pytest.fixture
def cluster(no_ray: Any) -> Iterator[Any]:
    """A head without CPUs and two nodes with four each."""
    from ray.cluster_utils import Cluster

    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 5}
    head = {"num_cpus": 0, "_system_config": {**quick, "enable_worker_prestart": False}}
    made = Cluster(initialize_head=True, head_node_args={"object_store_memory": OBJECT_STORE, **head})
    made.workers = [made.add_node(num_cpus=4, object_store_memory=OBJECT_STORE) for _ in range(2)]
    yield made
    no_ray.shutdown()
    made.shutdown()


def step_for(envs, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        envs.step(np.zeros(envs.num_envs, np.int64))


def raylet_of(pid: int) -> int:
    """The raylet that started an actor's process."""
    return psutil.Process(pid).ppid()


def test_a_node_is_lost_under_load(cluster):
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
        doomed = next(node for node in cluster.workers if raylet_pid(node) == homes[0])
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
        cluster.remove_node(next(node for node in cluster.workers if node is not doomed), allow_graceful=False)
        with pytest.raises(WorkerDiedError, match="used up"):
            step_for(envs, seconds=60.0)  # the actors end a moment after their raylet


def raylet_pid(node: Any) -> int:
    return int(node.all_processes["raylet"][0].process.pid)


def test_an_address_where_nothing_is(no_ray):
    with pytest.raises(InputError, match=r"no Ray cluster at address='127\.0\.0\.1:1'"):
        stockade.make_vec(2, backend="ray", address="127.0.0.1:1")
    assert not no_ray.is_initialized()
