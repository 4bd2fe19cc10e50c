"""Every kernel of the GPU compiles for real, for three generations of devices, on a machine that has none."""

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
