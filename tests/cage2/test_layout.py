"""Checkpoints hold worlds as bytes, so that their layout, and what is in them, must stay what version 0.1.0 wrote."""

import hashlib
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stockade

from .play import play, random_actions

#: Beginnings of SHA-256, computed with version 0.1.0.
WRITTEN_BY_0_1_0 = {"fast": "654571c1dbe7b43f", "cyborg": "a83b63d7fcf62e0e"}


@pytest.mark.parametrize("reward", [stockade.RewardWeights(), stockade.RewardWeights(2.0, 0.0, -1.0)], ids=str)
@pytest.mark.parametrize("chance", WRITTEN_BY_0_1_0)
def test_worlds_are_the_bytes_of_the_first_version(chance, reward):
    """With any weights of the reward: a world does not depend on them."""
    options = {"red": "mix", "green": "active", "horizon": 30, "obs": "memory"}
    with stockade.make_vec(8, chance=chance, reward=reward, **options) as envs:
        envs.reset(seed=1)
        play(envs, random_actions(2, 70, 8))
        parts = [part.tobytes() for part in envs.snapshot().parts if part is not None]
    assert hashlib.sha256(b"".join(parts)).hexdigest()[:16] == WRITTEN_BY_0_1_0[chance]


@pytest.mark.parametrize(
    ("file", "one", "other"),
    [("state.py", '("decoys", np.uint8,', '("files", np.uint8,'), ("history.py", '("scanned",', '("exploited",')],
)
def test_a_snapshot_of_another_layout_is_refused(file, one, other, tmp_path):
    """In a copy of the package two fields of equal size are exchanged: what is read there would mean something else."""
    package = Path(stockade.__file__).parent
    shutil.copytree(package, tmp_path / "stockade", ignore=shutil.ignore_patterns("__pycache__"))
    source = tmp_path / "stockade" / "cage2" / file
    text = source.read_text()
    assert text.count(one) == text.count(other) == 1
    source.write_text(text.replace(one, "?").replace(other, one).replace("?", other))
    with stockade.make_vec(2, obs="memory") as envs:
        envs.reset(seed=0)
        (tmp_path / "snapshot").write_bytes(pickle.dumps(envs.snapshot()))
    code = """
import pickle
import stockade
envs = stockade.make_vec(2, obs="memory")
envs.reset(seed=0)
envs.restore(pickle.load(open("snapshot", "rb")))
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "the snapshot is laid out differently" in done.stderr
