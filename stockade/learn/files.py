"""The folders of runs: made, found, and held by one process at a time.

runs/NAME/  config.json  lock (held while a process works on it)  failure.txt (why the last session failed)  ...
"""

import contextlib
import fcntl
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from stockade.baselines import ALIASES, BASELINES
from stockade.errors import InputError, SettingError, did_you_mean

#: What a session makes of a new run before its first checkpoint.
_BEGINNINGS = ("config.json", "metrics.csv", "lock", "tensorboard", "checkpoints")
#: Policies in the package: `<name>-<rules>.json` and its arrays, checkpoints like any other.
SHIPPED = Path(__file__).parent / "weights"


def shipped_names() -> list[str]:
    return sorted({path.stem.rsplit("-", 1)[0] for path in SHIPPED.glob("*.json")})


def builtin_names() -> list[str]:
    """Names that no run may have: baselines, their aliases, and shipped policies."""
    return [*BASELINES, *ALIASES, *shipped_names()]


def new_run_folder(runs: Path, name: str | None, default: str) -> Path:
    """Make the folder of a new run; a `name` that exists is refused, to `default` a number is added."""
    check_runs(runs)
    stem = name or default
    if Path(stem).name != stem or stem in ("", ".", ".."):
        raise InputError(f"--name {stem} is no name of a folder in {runs}")
    folder, number = runs / stem, 2
    while name is None and folder.exists():
        folder, number = runs / f"{stem}-{number}", number + 1
    if folder.name in builtin_names():
        raise SettingError("name", stem, "is the name of a policy of the package; choose another")
    if (folder / "config.json").exists():
        raise InputError(f"{folder} exists already; continue it with --resume {stem}, or take another --name")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def check_runs(runs: Path) -> None:
    """Refuse what is no folder of runs and cannot become one."""
    if runs.exists() and not runs.is_dir():
        raise SettingError("runs", str(runs), "is a file; name the folder that holds the runs")


def find_run(name: str, runs: Path) -> Path:
    """Folder of a training run, by its name or path."""
    check_runs(runs)
    for folder in (runs / name, Path(name)):
        path = folder / "config.json"
        if path.exists():
            try:
                is_search = json.loads(path.read_text()).get("command") == "search"
            except (OSError, ValueError, AttributeError) as error:
                raise InputError(f"{path} cannot be used: {error}") from error
            if is_search:
                raise InputError(f"{folder} is a search, not a training run; to continue it: stockade search --resume "
                                 f"{folder}; to play its best policy: stockade evaluate {folder}")  # fmt: skip
            return folder
    near = did_you_mean(name, [path.parent.name for path in runs.glob("*/config.json")])
    raise InputError(f"there is no run {name!r} in {runs}, nor such a folder with a config.json.{near}")


@contextlib.contextmanager
def run_session(folder: Path) -> Iterator[None]:
    """Work on a run alone; the kernel releases the lock when its holder dies.

    An error is written to failure.txt. If nothing was trained yet, the folder of the run is removed instead.
    """
    with (folder / "lock").open("a") as file:
        deadline = time.monotonic() + 1  # `is_running` of another process holds it for an instant
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise InputError(f"another process is working on {folder}; wait for it, or stop it") from None
                time.sleep(0.05)
        (folder / "failure.txt").unlink(missing_ok=True)
        try:
            yield
        except Exception as error:
            if any((folder / "checkpoints").glob("*.json")) or (folder / "state.json").exists():
                with contextlib.suppress(OSError):
                    (folder / "failure.txt").write_text(f"{type(error).__name__}: {error}\n")
            else:
                with contextlib.suppress(OSError):  # what a user put there stays, and the folder with it
                    for path in map(folder.joinpath, _BEGINNINGS):
                        if path.is_dir():
                            shutil.rmtree(path)
                        else:
                            path.unlink(missing_ok=True)
                    folder.rmdir()
            raise


def is_running(folder: Path) -> bool:
    """Whether a process works on it now."""
    try:
        with (folder / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False
