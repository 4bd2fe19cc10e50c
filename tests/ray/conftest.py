"""One small Ray for all tests here, which are skipped where there is none; none may leave anything behind."""

import os
import time
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.workflow.fake import HELD, FakeTrainer

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is reported to anybody
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # else Ray warns of a change to come


CPUS = 32  # by name: actors of several vector environments at once
OBJECT_STORE = 100_000_000
HERE = Path(__file__).parent
WHY = "Ray is not installed: it needs an environment of its own, `make test-ray`"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that start a Ray of their own come last: it takes seconds, and the shared one must be gone by then."""
    items.sort(key=lambda item: HERE in item.path.parents and "local_ray" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def ray_module() -> Any:
    """Ray, or the test is skipped."""
    return pytest.importorskip("ray", reason=WHY)


@pytest.fixture
def local_ray(ray_module: Any) -> Iterator[Any]:
    """Ray, running; started by the first test that needs it and left to the next ones. No test may leave an actor."""
    if not ray_module.is_initialized():
        ray_module.init(
            "local",  # never a cluster that happens to run on this machine
            num_cpus=CPUS,
            object_store_memory=OBJECT_STORE,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _system_config={"enable_worker_prestart": False, "prestart_worker_first_driver": False},
        )
    yield ray_module
    wait_until(lambda: free_cpus(ray_module) == CPUS, "actors left behind")


@pytest.fixture
def no_ray(ray_module: Any) -> Iterator[Any]:
    """Ray, not running: for tests that start it themselves."""
    ray_module.shutdown()
    yield ray_module
    ray_module.shutdown()


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[None]:
    """At the end Ray is shut down: no process of it, and nothing in shared memory."""
    before = shared_memory()
    yield
    try:
        import ray
    except ImportError:
        return
    ray.shutdown()
    wait_until(lambda: not psutil.Process().children(recursive=True), "processes left behind")
    wait_until(lambda: shared_memory() <= before, "entries of shared memory left behind")


def free_cpus(ray: Any) -> float:
    """Actors hold theirs until they have ended."""
    found: float = ray.available_resources().get("CPU", 0.0)
    return found


def shared_memory() -> set[str]:
    """Entries of /dev/shm; Ray's are called plasma*."""
    return {entry.name for entry in Path("/dev/shm").iterdir()} if Path("/dev/shm").exists() else set()


def wait_until(condition: Any, what: str, seconds: float = 120.0) -> None:
    """Ray hears of things a little later, on a busy machine a good deal later."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


# ---------------------------------------------------------------------------------------------------- for searches
@pytest.fixture(scope="session")
def known_holdings() -> Iterator[None]:
    """What red can hold is known here, and need not be played out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stockade.workflow.separate.types_red_can_hold", lambda *_: np.array(HELD))
        yield


@pytest.fixture(scope="session")
def whole(known_holdings: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the local engine finds, one workflow at a time."""
    from tests.ray.searches import CONFIG, run

    return run(tmp_path_factory.mktemp("runs"), CONFIG, FakeTrainer())


@pytest.fixture(scope="session")
def two(known_holdings: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the local engine finds, two workflows at a time, with the results in a given order."""
    from tests.ray.searches import run_in_order

    found = run_in_order(tmp_path_factory.mktemp("runs"), engine="local")
    helpers: Any = forkserver, resource_tracker  # of multiprocessing; here nothing may be left
    helpers[0]._forkserver._stop()
    helpers[1]._resource_tracker._stop()
    return found
