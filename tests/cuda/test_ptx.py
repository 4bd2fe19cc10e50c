"""Every kernel of the GPU compiles for real, for three generations of devices, on a machine that has none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba_cuda", reason="the extra `cuda` is not installed: make test-cuda")

from tests.cuda.ptx import GENERATIONS, SIGNATURES, compiled


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("kernel", SIGNATURES)
def test_kernels_compile_and_stay_in_registers(kernel, generation):
    """Nothing is spilled, and 1024 threads find room on a multiprocessor, which has 65,536 registers."""
    usage = compiled(kernel, generation)
    assert usage.spills == 0
    assert usage.registers <= 64
    assert usage.constants <= 65_536
    assert usage.fused == (2 if kernel.startswith("step") else 0), "weighted rewards alone may differ from the CPU's"


def test_compiled_kernels_are_kept_on_disk(tmp_path):
    """A second process loads what the first one compiled; after an edit of a source file it would not (jit.py)."""
    command = [sys.executable, "-c", "from tests.cuda.ptx import kept; print(*kept('seed_worlds', 'sm_80'))"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    root = Path(__file__).parents[2]
    found = [subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True) for _ in range(2)]
    assert [each.stdout.split() for each in found] == [["0", "1"], ["1", "0"]], found[0].stderr
