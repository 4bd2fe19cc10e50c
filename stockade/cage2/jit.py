"""How functions are compiled, and a cache on disk that notices when any source file changes.

Inner functions carry `@compiled`. Only entry points, which Python calls, are `cached` on disk. Numba's cache looks at
the file of the entry point alone, so an edit of red.py would leave a stale step. Entry points therefore carry a digest
of all files they are made of in their qualified name, which Numba makes the name of the cache file from.

With `NUMBA_DISABLE_JIT=1` everything runs as plain Python, for a debugger.
"""

import functools
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np

#: The files that the simulator is compiled from: what kernel.py imports, directly or not (a test compares).
KERNEL_SOURCES = (
    "cage2/actions.py", "cage2/attackers.py", "cage2/blue.py", "cage2/chance.py", "cage2/green.py", "cage2/jit.py",
    "cage2/kernel.py", "cage2/ledger.py", "cage2/mt19937.py", "cage2/observe.py", "cage2/red.py", "cage2/scenario.py",
    "cage2/state.py",
)  # fmt: skip
OPTIONS = {"nogil": True, "error_model": "numpy"}
compiled_with = functools.partial(numba.njit, **OPTIONS)
compiled = compiled_with()

JIT_DISABLED: bool = bool(numba.config.DISABLE_JIT)
if JIT_DISABLED:
    # Compiled integers wrap around silently, which the random stream relies on; NumPy's scalars warn of it.
    np.seterr(over="ignore")


def source_digest(*files: str) -> str:
    """Eight hexadecimal digits that change with the files (below stockade/), how they are compiled, the facts of the
    scenario, Numba's version and the CPU."""
    cpu = numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    digest = zlib.crc32(f"{numba.__version__} {cpu}".encode())
    for name in ("cage2/jit.py", "cage2/scenario2.toml", *files):
        digest = zlib.crc32(Path(__file__).parents[1].joinpath(name).read_bytes(), digest)
    return f"{digest:08x}"


def cached(*files: str, jit: Callable[..., Any] = compiled_with, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator for entry points: compiled, and kept on disk for as long as the files (below stockade/) are the same.

    `files` are all that the compiled code is made of, tables included; `options` those of Numba beside OPTIONS. `jit`
    chooses another target than the CPU.
    """
    digest = source_digest(*files)

    def decorate(function: Callable[..., Any]) -> Any:
        function.__qualname__ += f"_{digest}"
        return jit(cache=True, **options)(function)

    return decorate


def as_records(array: np.ndarray) -> np.ndarray:
    """A structured array in the form that kernels take: plain Python needs a recarray to read fields as attributes.

    Compiled code does so with any structured array, and takes plain ones four times faster.
    """
    return array.view(np.recarray) if JIT_DISABLED else array
