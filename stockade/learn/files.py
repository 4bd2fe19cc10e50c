"""Writing files that survive a crash."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """Write beside, sync, rename, sync the directory: after a crash there is the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
