"""Construction that fails half-way: a clear error, no process left (the fixture of this directory looks)."""

import functools
import os
import subprocess
import sys

import pytest

from stockade.vector import (
    LOCAL_BACKENDS as BACKENDS,
)
from stockade.vector import (
    SharedMemoryError,
    SyntheticEnv,
    UnsupportedFeatureError,
    UnsupportedSpaceError,
    WorkerDiedError,
    WorkerTimeoutError,
    make_vector,
)
from stockade.vector.local import shared as memory_module
from tests.processes import PATIENCE
from tests.vector.environments import AlwaysDifferent, OneFails, TextEnv

PROCESS_BACKENDS = ("pipes", "shared_memory", "async")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_cannot_be_built(backend, tmp_path):
    workers = {} if backend == "serial" else {"workers": 4}
    with pytest.raises(ConnectionError, match="third one"):
        make_vector(backend, functools.partial(OneFails, str(tmp_path / "count")), 4, **workers)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_worker_that_dies_while_building(backend):
    with pytest.raises(WorkerDiedError, match="building its environments"):
        make_vector(backend, lambda: os._exit(9), 4, workers=2)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_a_worker_that_hangs_while_building(backend):
    with pytest.raises(WorkerTimeoutError, match="building its environments"):
        make_vector(backend, lambda: __import__("time").sleep(3600), 4, workers=2, timeout=0.5)


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_environments_with_different_spaces(backend):
    with pytest.raises((RuntimeError, ValueError), match="spaces"):
        make_vector(backend, AlwaysDifferent, 4, workers=4)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_space_without_fixed_shape(backend):
    with pytest.raises(UnsupportedSpaceError, match="Text"):
        make_vector(backend, TextEnv, 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_true_states_of_environments_that_have_none(backend):
    with pytest.raises(UnsupportedFeatureError, match="true_state"):
        make_vector(backend, SyntheticEnv, 2, true_states="every_step")


@pytest.mark.parametrize("backend", ["shared_memory", "async"])
def test_too_little_shared_memory_is_told_before_work_starts(backend, monkeypatch):
    monkeypatch.setattr(memory_module, "available_memory", lambda: 1 << 20)
    big = functools.partial(SyntheticEnv, observation_size=1 << 16)
    with pytest.raises(SharedMemoryError, match=r"need 1\d MiB of shared memory, 1 MiB are available"):
        make_vector(backend, big, 64, workers=1)


def test_a_factory_that_cannot_be_pickled():
    with pytest.raises((TypeError, AttributeError), match="pickle"):
        make_vector("pipes", functools.partial(SyntheticEnv, faults=(sys._getframe(),)), 2)


@pytest.mark.parametrize(
    ("backend", "options", "words"),
    [
        ("thread", {}, "backend='thread' is unknown; take one of 'serial', 'pipes'"),
        ("serial", {"workers": 3}, "workers=3"),
        ("pipes", {"workers": 0}, "workers=0"),
        ("pipes", {"start_method": "magic"}, "start_method='magic'"),
        ("pipes", {"batch_size": 1}, "batch_size=1 is for backend='async'"),
        ("async", {"batch_size": 9}, "between 1 and n_envs=4"),
        ("serial", {"autoreset_mode": "sometimes"}, "autoreset_mode='sometimes'"),
        ("serial", {"true_states": 0}, "true_states=0"),
    ],
)
def test_options_that_make_no_sense(backend, options, words):
    with pytest.raises(ValueError, match=words):
        make_vector(backend, SyntheticEnv, 4, **options)


@pytest.mark.parametrize("mebibytes", [200, 350, 380])
def test_too_little_memory_is_an_error_and_not_a_hang(mebibytes):
    """OpenBLAS asks for ever for memory that it does not get: at 380 MiB while it is loaded."""
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({mebibytes} << 20,) * 2)\n"
        "import stockade; stockade.make_vec(8, threads=2).reset(seed=0)"
    )
    variables = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    ended = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=PATIENCE
    )
    assert "raise the limit (ulimit -v)" in ended.stderr.splitlines()[-1]
