"""`--constraint reward` gives, seed for seed, the numbers of the first version: recorded at commit 2dc9b67."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch

from stockade.workflow.orders import ORDERS, TYPES
from stockade.workflow.separate import SeparateSession
from stockade.workflow.store import SearchFolder
from tests.workflow.fake import reward_config

RECORDINGS = json.loads((Path(__file__).parents[1] / "data" / "reward_searches.json").read_text())["recordings"]


def processor() -> str:
    """Sums of floats differ in the last bit between kinds of processors, and training turns that into other actions."""
    if "AuthenticAMD" in (Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""):
        return "AMD"
    left, right = np.random.default_rng(0).random((2, 320, 320), np.float32)
    torch.set_num_threads(1)
    return hashlib.sha256((torch.from_numpy(left) @ torch.from_numpy(right)).numpy().tobytes()).hexdigest()[:16]


VERSIONS = [torch.__version__, np.__version__, numba.__version__]
ARITHMETIC = [torch.backends.cpu.get_cpu_capability(), *VERSIONS, processor()]
RECORDED = next((recording for recording in RECORDINGS if recording["arithmetic"] == ARITHMETIC), None)


def known(value: object) -> object:
    """JSON has null for NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value


@pytest.mark.skipif(RECORDED is None, reason=f"nothing is recorded with {ARITHMETIC}")
@pytest.mark.parametrize("number", range(3), ids=["defaults", "inherit, greedy", "all options"])
def test_the_same_seed_gives_the_numbers_of_the_first_version(number: int, tmp_path: Path) -> None:
    recorded: dict[str, Any] = RECORDED["searches"][number]
    names = {"max_steps": "horizon", "red_agent": "red"}
    config = reward_config(runs=tmp_path, **{names.get(k, k): v for k, v in recorded["settings"].items()})
    folder = SearchFolder.create(config)
    session = SeparateSession(config, folder)
    assert session.run() is None
    found = []
    for result in session.results.values():
        weights, _ = folder.load_policy(result.number, result.order)
        digest = hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest()
        found.append({**vars(result), "order": TYPES.describe(result.order), "weights": digest[:16]})
    assert len(found) == len(recorded["trainings"])
    for mine, expected in zip(found, recorded["trainings"], strict=True):
        assert {name: known(mine[name]) for name in expected} == expected
    posterior = session.strategy.value_model().posterior()
    named = [TYPES.describe(order) for order in ORDERS]
    for order, *numbers in recorded["ranking"]:
        # Sums of doubles differ in the last bits between processors of one maker, too; trainings above must not.
        found_numbers = [known(float(x[named.index(order)])) for x in posterior]
        assert found_numbers == [n if n is None else pytest.approx(n, rel=1e-9, abs=1e-9) for n in numbers]
