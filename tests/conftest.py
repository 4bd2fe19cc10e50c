"""What all tests share: where recorded data lies, how hypothesis searches, what the fork server has loaded.

Profiles of hypothesis, chosen by `HYPOTHESIS_PROFILE`:
    default   the normal suite: the same examples in every run, so that a failure is a change of the code
    explore   new examples in every run, and many more: for a search at one's desk
"""

import os
import signal
from multiprocessing import forkserver
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("default", max_examples=100, derandomize=True, database=None, **_COMMON)
settings.register_profile("explore", max_examples=2000, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

#: A process of pytest has one fork server, which loads this once, whichever test starts it. Else each worker process of
#: later tests would load kernels or Torch itself, which takes seconds.
forkserver.set_forkserver_preload(
    ["stockade.cage2.preload_fast", "stockade.cage2.preload_cyborg", "stockade.workflow.training"]
)

#: A shell's background job ignores Ctrl-C, and so would every process that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The directory of recorded traces and returns of the reference simulator."""
    return DATA


@pytest.fixture(scope="session")
def traces_dir(data_dir: Path) -> Path:
    """The directory of recorded traces, one `.npz` per red agent and blue policy."""
    return data_dir / "traces"


def pytest_configure(config: pytest.Config) -> None:
    """Markers that only some folders know."""
    config.addinivalue_line(
        "markers", "essential: a test of Ray that `make test` runs too; `make test-ray` runs all of them"
    )
