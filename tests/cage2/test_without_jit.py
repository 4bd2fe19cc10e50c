"""The kernel is plain Python with `NUMBA_DISABLE_JIT=1`: the same results, and a debugger can step through it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .traces import load, shortened
from .without_jit import digests

ROOT = Path(__file__).parents[2]
SHORT = {"public_B_lineAgent_mixed": 40, "leaderboard_RedMeanderAgent_decoys": 40, "green_RedMeanderAgent_mixed": 40,
         "public_SleepAgent_random": 20}  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> dict:
    """What a process without the compiler found; every warning would have ended it."""
    folder = tmp_path_factory.mktemp("traces")
    for name, steps in SHORT.items():
        np.savez(folder / f"{name}.npz", **shortened(load(f"{name}.npz"), episodes=2, steps=steps))
    command = [sys.executable, "-W", "error", "-m", "tests.cage2.without_jit", str(folder)]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_really_ran_without_the_compiler(plain):
    assert plain["is_plain_python"]


def test_recorded_episodes_are_replayed_without_a_difference(plain):
    assert plain["verified"] == {f"{name}.npz": [2 * steps, 0, "None"] for name, steps in SHORT.items()}


@pytest.mark.parametrize("obs", ["bits", "memory"])
def test_every_kind_of_world_comes_out_as_compiled(obs, plain):
    """Both chances, both rule sets, all red agents, green active, resets on the way."""
    compiled = digests(obs)
    assert len(compiled) == 16
    assert len(set(compiled.values())) >= 8, "agents and chances differ"
    assert plain[obs] == compiled


def test_a_debugger_meets_the_phases_in_their_order(plain):
    phases = ["blue_acts", "green_acts", "red_chooses", "red_acts", "reward", "monitor"]
    assert [name for name in plain["phases"] if name in phases] == phases
