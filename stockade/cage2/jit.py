"""How kernels are compiled: one decorator for all, and a cache that notices when any source file changes.

Inner functions carry `@compiled`. Only the entry points, in kernel.py and history.py, are cached on disk. Numba's cache
looks at the file of the entry point alone, so an edit of red.py would leave a stale step; the entry points therefore
close over `source_digest()`, which is part of the cache's key.

With `NUMBA_DISABLE_JIT=1` everything runs as plain Python, for a debugger.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numba
import numpy as np

#: The files that compiled code is made of: what kernel.py imports, directly or not (a test compares).
KERNEL_SOURCES = (
    "actions.py", "blue.py", "chance.py", "green.py", "jit.py", "kernel.py", "ledger.py", "mt19937.py", "network.py",
    "observe.py", "red.py", "scenario.py", "state.py",
)  # fmt: skip
OPTIONS = {"nogil": True, "error_model": "numpy"}
compiled = numba.njit(**OPTIONS)
cached = numba.njit(cache=True, **OPTIONS)

JIT_DISABLED: bool = bool(numba.config.DISABLE_JIT)
if JIT_DISABLED:
    # Compiled integers wrap around silently, which the random stream relies on; NumPy's scalars warn of it.
    np.seterr(over="ignore")


def source_digest() -> int:
    """A number that changes with any of the files that compiled code is made of."""
    digest = 0
    for name in KERNEL_SOURCES:
        digest = zlib.crc32(Path(__file__).with_name(name).read_bytes(), digest)
    return digest


def as_records(array: np.ndarray) -> np.ndarray:
    """A structured array in the form that kernels take.

    Compiled code reads fields as attributes of any structured array (and takes plain ones four times faster); plain
    Python needs a recarray for that.
    """
    return array.view(np.recarray) if JIT_DISABLED else array
