"""Ray is started if it is not running, in silence, and ended by those who started it; nothing outlives its user."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import psutil
import pytest

import stockade
from stockade.errors import InputError
from stockade.vector import SyntheticEnv, make_vector
from tests.processes import gone
from tests.ray.conftest import shared_memory, wait_until

ROOT = Path(__file__).resolve().parents[2]


def run(script):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def test_started_in_silence_and_ended_by_the_last_user(ray_module):
    before = shared_memory()
    process = run("""
        import json, os
        import psutil, ray
        import stockade
        first = stockade.make_vec(2, backend="ray", workers=2)
        second = stockade.make_vec(2, backend="ray", workers=1)
        first.reset(seed=0)
        first.close()
        alone = ray.is_initialized()
        second.reset(seed=0)
        steps = [second.step(second.action_space.sample())[0].shape for _ in range(3)]
        second.close()
        left = [child.name() for child in psutil.Process().children(recursive=True)]
        reports = "RAY_USAGE_STATS_ENABLED" in os.environ
        print(json.dumps([first.workers, alone, steps, ray.is_initialized(), left, reports]))
    """)
    output, errors = process.communicate(timeout=300)
    assert errors == ""
    assert json.loads(output) == [0, True, [[2, 52]] * 3, False, [], False]
    assert shared_memory() <= before


def test_a_ray_of_the_users_own_is_left_alone(local_ray):
    with make_vector("ray", SyntheticEnv, 3, workers=2) as envs:
        envs.reset(seed=0)
        pids = envs.worker_pids
        with pytest.raises(InputError, match="already uses the Ray at"):
            stockade.make_vec(2, backend="ray", address="127.0.0.1:1")
    assert local_ray.is_initialized()
    wait_until(lambda: gone(pids), "actors outlive close()")


def test_ctrl_c_is_the_parents_alone_and_nothing_outlives_a_killed_parent(ray_module):
    """SIGINT goes to the whole group, as from a terminal; then SIGKILL, in the middle of a step."""
    before = shared_memory()
    process = run("""
        import functools, time
        import numpy as np
        from stockade.vector import SyntheticEnv, make_vector
        slow = functools.partial(SyntheticEnv, step_seconds=600.0, work="sleep")
        envs = make_vector("ray", slow, 4, workers=2)
        envs.reset(seed=0)
        try:
            print(*envs.worker_pids, flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print(len(envs.get_attr("spec")), flush=True)
        envs.step(np.zeros(4, int))
    """)
    workers = [int(pid) for pid in process.stdout.readline().split()]
    family = {child.pid: child.name() for child in psutil.Process(process.pid).children(recursive=True)}
    assert len(workers) == 2
    assert set(workers) <= set(family)
    core = [pid for pid, name in family.items() if name in ("raylet", "gcs_server")]  # Ray's agents take a minute
    assert len(core) == 2
    os.killpg(process.pid, signal.SIGINT)
    assert process.stdout.readline().split() == ["4"]
    process.kill()
    process.communicate()
    wait_until(lambda: gone(workers + core), "processes have outlived their parent")
    assert shared_memory() <= before


def test_options_that_make_no_sense(local_ray):
    for options, words in (
        ({"workers": 0}, "workers=0"),
        ({"start_method": "fork"}, "start_method='fork' is for backend='pipes'"),
        ({"batch_size": 9}, "between 1 and n_envs=4"),
        ({"autoreset_mode": "sometimes"}, "sometimes"),
    ):
        with pytest.raises(ValueError, match=words):
            make_vector("ray", SyntheticEnv, 4, **options)
    with pytest.raises(ValueError, match="for backend='ray', not 'pipes'"):
        make_vector("pipes", SyntheticEnv, 4, address="auto")


def test_actors_that_share_a_cpu_and_a_cluster_that_is_full(local_ray, monkeypatch):
    """More actors than CPUs is told, not waited for in silence."""
    monkeypatch.setattr("stockade.vector.ray.cluster._PATIENCE", 0.5)
    with make_vector("ray", SyntheticEnv, 4, workers=2, actor_options={"num_cpus": 0.5}) as envs:
        envs.reset(seed=0)
        assert envs.step(np.zeros(4, np.int64))[1].shape == (4,)
        with (
            pytest.warns(UserWarning, match=r"1 of 1 workers wait for 64 CPUs each.*fewer workers="),
            pytest.raises(TimeoutError, match=r"start_timeout=1\.0"),
        ):
            make_vector("ray", SyntheticEnv, 4, workers=1, start_timeout=1.0, actor_options={"num_cpus": 64})


SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guides" / "cluster.md").read_text(), re.DOTALL)


@pytest.mark.usefixtures("local_ray")
@pytest.mark.parametrize("snippet", SNIPPETS, ids=["synchronous", "asynchronous"])
def test_snippets_of_the_documentation_run(snippet):
    exec(compile(snippet, "docs/guides/cluster.md", "exec"), {})
