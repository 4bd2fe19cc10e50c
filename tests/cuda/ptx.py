"""The kernels of the GPU, compiled on a machine without one: Python -> PTX (Numba, NVVM) -> machine code (ptxas).

`python -m tests.cuda.ptx [kernel ...]` prints what a thread of each takes on each generation of devices. It needs the
extra `cuda`: compiler and assembler come with it.
"""

import importlib.util
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numba
from numba import cuda, types

from stockade.cage2 import cuda as ours
from stockade.cage2.history import MEMORY
from stockade.cage2.kernel import SETTINGS
from stockade.cage2.state import WORLD
from stockade.text import Table

GENERATIONS = {"sm_70": (7, 0), "sm_80": (8, 0), "sm_90": (9, 0)}  #: V100, A100, H100

_WORLDS, _SETTINGS, _MEMORY = (numba.from_dtype(dtype)[::1] for dtype in (WORLD, SETTINGS, MEMORY))
_FLAGS, _WHOLE, _BYTES, _WORDS = types.boolean[::1], types.int64[::1], types.uint8[:, ::1], types.int32[:, ::1]
_RANGE = (types.int64, types.int64)
_RESULTS = (_WORDS, types.float64[::1], _FLAGS, types.boolean, *_RANGE)
_LIVED = (_WORLDS, types.int8[::1], types.int32[::1], types.int64, _BYTES, _BYTES, *_RANGE)
#: The types with which CudaBatch calls its kernels.
SIGNATURES = {
    "seed_worlds": (_WORLDS, types.uint64[::1], _FLAGS, *_RANGE),
    "reset_worlds": (_WORLDS, _WORLDS, _SETTINGS, _FLAGS, _WORDS, *_RANGE),
    "step_worlds": (_WORLDS, _WORLDS, _SETTINGS, _WHOLE, *_RESULTS),
    "step_plans": (_WORLDS, _WORLDS, _SETTINGS, _WHOLE, _WHOLE, *_RESULTS),
    "remember_step": (_MEMORY, _WHOLE, *_LIVED),
    "recall": (_MEMORY, *_LIVED),
    "take_actions": (_WHOLE, _WHOLE, _WHOLE, *_RANGE),
}


@dataclass(frozen=True)
class Usage:
    """What ptxas says of a kernel."""

    instructions: int  #: of PTX, all branches together
    fused: int  #: multiplications that are added with one rounding, which a CPU does with two
    registers: int  #: a thread
    stack: int  #: bytes of local memory a thread
    spills: int  #: bytes of registers stored there and loaded again
    constants: int  #: bytes of constant memory, of which there are 65,536


def compiled(kernel: str, generation: str) -> Usage:
    """Compile one kernel for one generation of devices; an error says what the compiler did not take."""
    capability = GENERATIONS[generation]
    present = mock.Mock(return_value=SimpleNamespace(compute_capability=capability))  # of inner functions
    with mock.patch("numba.cuda.dispatcher.get_current_device", present):
        function, signature = getattr(ours, kernel).py_func, types.void(*SIGNATURES[kernel])
        ptx, _ = cuda.compile(function, signature, device=False, abi="numba", cc=capability)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(ptx)
        command = [assembler(), "-v", f"-arch={generation}", str(source), "-o", str(source.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ptxas refuses {kernel} for {generation}:\n{done.stderr}")

    def count(pattern: str) -> int:
        return sum(int(number) for number in re.findall(pattern, done.stderr))

    spills = count(r"(\d+) bytes spill stores") + count(r"(\d+) bytes spill loads")
    constants = sum(int(size) for size in re.findall(r"^\.const .*?\[(\d+)\]", ptx, re.MULTILINE))
    instructions = len(re.findall(r"^\t[^.{}\s][^;]*;", ptx, re.MULTILINE))
    fused = len(re.findall(r"\bfma\.", ptx))
    return Usage(
        instructions, fused, count(r"Used (\d+) registers"), count(r"(\d+) bytes stack frame"), spills, constants
    )


def kept(kernel: str, generation: str) -> tuple[int, int]:
    """Have a kernel ready as its first launch does, but for loading it into a device: hits and misses of the cache."""
    capability = GENERATIONS[generation]
    device = SimpleNamespace(compute_capability=capability)
    dispatcher = getattr(ours, kernel)
    with (
        mock.patch("numba.cuda.dispatcher.get_current_device", return_value=device),
        mock.patch("numba.cuda.api.get_current_device", return_value=device),
        mock.patch("numba.cuda.cudadrv.devices.get_context", return_value=SimpleNamespace(device=device)),
        mock.patch("numba.cuda.dispatcher._Kernel.bind", lambda self: self._codelibrary.get_cubin(cc=capability)),
    ):
        dispatcher.compile(SIGNATURES[kernel])
    return dispatcher.stats.cache_hits.total(), dispatcher.stats.cache_misses.total()


def assembler() -> str:
    """ptxas, from the toolkit's package."""
    toolkit = importlib.util.find_spec("nvidia.cuda_nvcc")
    return str(Path(next(iter(toolkit.submodule_search_locations)), "bin", "ptxas"))


if __name__ == "__main__":
    rows = []
    for name in sys.argv[1:] or SIGNATURES:
        for generation in GENERATIONS:
            usage = compiled(name, generation)
            parts = usage.registers, usage.stack, usage.spills, usage.constants, usage.instructions
            rows.append([name, generation, *map(str, parts)])
            print(*rows[-1], file=sys.stderr, flush=True)
    print(Table(["kernel", "for", "registers", "stack", "spills", "constants", "instructions"], rows).markdown())
