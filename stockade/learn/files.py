"""Writing files that survive a crash, and the folders of runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from stockade.baselines import ALIASES, BASELINES
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


#: Policies in the package: `<name>-<rules>.json` and its arrays, checkpoints like any other.
SHIPPED = Path(__file__).parent / "weights"


def shipped_names() -> list[str]:
    """Policies that ship with the package."""
    return sorted({path.stem.rsplit("-", 1)[0] for path in SHIPPED.glob("*.json")})


def builtin_names() -> list[str]:
    """Names that no run may have: baselines, their aliases, and shipped policies."""
    return [*BASELINES, *ALIASES, *shipped_names()]


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
    if folder.name in builtin_names():
        raise InputError(f"--name {stem}: a policy of the package has this name; choose another")
    if (folder / "config.json").exists():
        raise InputError(f"{folder} exists already; go on with it by --resume {stem}, or take another --name")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
