"""Writing files that survive a crash, and the folders of runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from stockade.errors import InputError


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


def new_run_folder(runs: Path, name: str | None, default: str) -> Path:
    """Make the folder of a new run.

    Args:
        runs: folder of all runs.
        name: as the user wants it; one that exists is refused.
        default: name if there is none; a number is added where it exists.
    """
    stem = name or default
    if Path(stem).name != stem or stem in ("", ".", ".."):
        raise InputError(f"--name {stem} is no name of a folder in {runs}")
    folder, number = runs / stem, 2
    while name is None and folder.exists():
        folder, number = runs / f"{stem}-{number}", number + 1
    if (folder / "config.json").exists():
        raise InputError(f"{folder} exists already; go on with it by --resume {stem}, or take another --name")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
