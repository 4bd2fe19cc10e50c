"""Without Ray installed: everything else works, and what needs it says what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

import stockade
from stockade.bench.search import SearchParallelBench
from stockade.errors import InputError
from stockade.integrations import rllib
from stockade.vector import SyntheticEnv, make_vector
from stockade.workflow.config import SearchConfig


@pytest.fixture(autouse=True)
def without_ray(monkeypatch):
    """As if it were not installed, also where it is."""
    for name in [name for name in sys.modules if name.split(".")[0] == "ray"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)


@pytest.mark.parametrize(
    "use",
    [
        lambda: stockade.make_vec(4, backend="ray"),
        lambda: stockade.make_vec(4, backend="ray", env=SyntheticEnv),
        lambda: make_vector("ray", SyntheticEnv, 4, workers=2, address="auto"),
        lambda: rllib.register(),
        lambda: SearchConfig(engine="ray", train="separate", runs=Path("nowhere")).run(),
        lambda: SearchParallelBench().run(),
    ],
    ids=["make_vec", "with env", "make_vector", "rllib", "search", "bench search"],
)
def test_the_message_names_the_extra(use):
    with pytest.raises(InputError, match=r"pip install 'stockade\[ray\]'"):
        use()
    assert not Path("nowhere").exists()


def test_everything_can_be_imported_and_the_other_backends_run():
    code = """if True:
        import sys
        sys.modules["ray"] = None
        import importlib, pkgutil
        import numpy as np
        import stockade.vector, stockade.integrations
        for package in (stockade.vector, stockade.integrations, stockade.cage2):
            for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
                if module.name not in ("stockade.integrations.sb3", "stockade.integrations.jax"):
                    importlib.import_module(module.name)
        for backend in ("native", "serial", "shared_memory"):
            with stockade.make_vec(2, backend=backend) as envs:
                envs.reset(seed=0)
                print(envs.step(np.zeros(2, int))[0].shape)
    """
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout.split("\n")[:3] == ["(2, 52)"] * 3, done.stderr
    assert done.returncode == 0
