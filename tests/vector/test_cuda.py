"""Backend `cuda` without a GPU: in Numba's simulator the same bits as `native`, and clear errors where it cannot run.

The simulator runs the kernels as Python, a thread for each thread of the device: it shows what is computed, not that
it compiles. tests/cuda compiles them for real.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stockade
from stockade.vector import UnsupportedFeatureError
from tests.cuda.ptx import SIGNATURES

from .cuda_simulated import MODES, digests

ROOT = Path(__file__).parents[2]


def simulated(*arguments: str) -> Any:
    """What cuda_simulated.py says in a process whose GPU is Numba's simulator."""
    command = [sys.executable, "-W", "ignore:overflow", "-m", "tests.vector.cuda_simulated", *arguments]
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_same_bits_as_native():
    """Reds, rules, green, observations, weights, autoreset modes, infos, snapshots, seeds, true states."""
    compiled = digests("native")
    assert len(set(compiled.values())) == len(compiled) == 10
    assert simulated("digests", "cuda") == compiled


@pytest.mark.parametrize("mode", MODES)
def test_the_contract(mode):
    report = simulated("contract", mode)
    assert set(report["skipped"]) <= {"send_and_recv", "statistics"}
    assert {"single_environments", "snapshots", "calls", "autoreset", "bad_actions"} <= set(report["passed"])


def test_results_that_stay_on_the_device():
    """Equal to those of `native`, in the same memory at every step; an unknown action is Sleep, and reported."""
    pytest.importorskip("torch")
    facts = simulated("device")
    for mode in MODES:
        assert facts[mode] == {"equal": True, "places": 1}
    assert facts["refused"] == 1
    assert facts["sleeps"] == 0


def test_a_training_on_the_device_gives_the_weights_of_one_on_the_cpu():
    """`stockade train --device cuda` beside `--device cpu`, bit for bit, through a checkpoint too."""
    pytest.importorskip("torch")
    assert simulated("learner") == {"one attacker": True, "mixture": True}


def test_kernels_are_launched_with_the_types_that_are_compiled():
    """So that tests/cuda compiles what a GPU would be asked for."""
    compiled = {name: [str(kind) for kind in kinds] for name, kinds in SIGNATURES.items()}
    assert simulated("launched") == compiled


def test_the_benchmark_runs(tmp_path):
    """Tiny, in the simulator: it checks, measures, and writes a result in the format of all."""
    pytest.importorskip("torch")
    settings = {"n-envs": 2, "obs": "bits", "train-envs": 2, "train-steps": 6, "seconds": 0.01, "rounds": 2}
    settings |= {"check-envs": 2, "check-steps": 3}
    arguments = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    command = [sys.executable, "-W", "ignore:overflow", str(ROOT / "benchmarks" / "gpu.py"), *arguments]
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "equal bits on CPU and GPU: 6 steps in each of 16 settings" in done.stdout, done.stderr
    result = json.loads((tmp_path / "benchmarks" / "results" / "gpu.json").read_text())
    assert [figure["tags"]["case"] for figure in result["figures"]] == ["results on the GPU", "on the host", "training"]
    assert all(len(figure["rounds"]) == 2 for figure in result["figures"])


def test_without_a_device_the_error_names_package_and_device():
    with pytest.raises(UnsupportedFeatureError, match=r"numba-cuda \(pip install 'stockade\[cuda\]'\).*NVIDIA GPU"):
        stockade.make_vec(2, "cuda")


def test_the_simulator_needs_plain_python():
    code = "import stockade; stockade.make_vec(2, 'cuda')"
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert "NUMBA_DISABLE_JIT=1" in done.stderr


@pytest.mark.parametrize("options", [{"threads": 2}, {"workers": 2}, {"env": stockade.make}])
def test_options_that_it_cannot_obey_are_refused(options):
    with pytest.raises(ValueError, match="cuda"):
        stockade.make_vec(2, "cuda", **options)


def test_nothing_of_cuda_is_loaded_without_being_asked_for():
    code = "import stockade, sys; stockade.make_vec(2).reset(seed=0); print('numba.cuda' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"], done.stdout
