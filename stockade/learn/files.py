"""The folders of runs: made, found, and held by one process at a time; and their metrics.

runs/NAME/  config.json  lock (held while a process works on it)  failure.txt (why the last session failed)
            metrics.csv, tensorboard/ (what it writes while it trains)  ...
"""

import contextlib
import csv
import fcntl
import json
import math
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stockade.baselines import ALIASES, BASELINES
from stockade.errors import InputError, SettingError, did_you_mean
from stockade.files import write_durably

#: What a session makes of a new run before its first checkpoint.
_BEGINNINGS = ("config.json", "metrics.csv", "lock", "tensorboard", "checkpoints")
#: Policies in the package: `<name>-<rules>.json` and its arrays, checkpoints like any other.
SHIPPED = Path(__file__).parent / "weights"
WINDOW = 1000  #: episodes of the running mean that agents are compared by
COLUMNS = (
    "iteration", "episodes", "steps", "seconds", "episodes_per_second", "return_mean", "return_median", "return_q05",
    "return_window", "length_mean", "entropy", "kl", "clipped", "policy_loss", "value_loss", "explained_variance",
    "grad_norm", "learning_rate", "entropy_weight", "validation",
)  # fmt: skip


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
        raise SettingError("name", stem, f"is no name of a folder in {runs}")
    if ":" in stem or stem.endswith(".zip"):  # `stockade evaluate` would take it for a class or another library's model
        raise SettingError("name", stem, "must not contain ':' or end in .zip")
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


def find_folder(name: str, runs: Path, kind: str = "run") -> Path:
    """Folder of a run or search, by its name or path."""
    check_runs(runs)
    for folder in (runs / name, Path(name)):
        if (folder / "config.json").exists():
            return folder
    near = did_you_mean(name, [path.parent.name for path in runs.glob("*/config.json")])
    raise InputError(f"there is no {kind} {name!r} in {runs}, nor such a folder with a config.json.{near}")


def find_run(name: str, runs: Path) -> Path:
    """Folder of a training run, by its name or path."""
    folder = find_folder(name, runs)
    try:
        is_search = json.loads((folder / "config.json").read_text()).get("command") == "search"
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{folder / 'config.json'} cannot be used: {error}") from error
    if is_search:
        raise InputError(f"{folder} is a search, not a training run; to continue it: stockade search --resume "
                         f"{folder}; to play its best policy: stockade evaluate {folder}")  # fmt: skip
    return folder


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


# -------------------------------------------------------------------------------------------------------------- metrics
class MetricsFile:
    """metrics.csv of a run, and the same as TensorBoard events, by episodes, unless `events` is None.

    After a crash a run continues from its last checkpoint: lines of iterations that came after it are removed, so that
    there is one line for each iteration, no more and no fewer.
    """

    def __init__(self, path: Path, iterations_done: int, events: Path | None = None, episodes_done: int = 0) -> None:
        kept = [row for row in read_metrics(path) if row["iteration"] <= iterations_done]
        write_durably(path, "".join([",".join(COLUMNS) + "\n", *map(_line, kept)]).encode())
        self._file = path.open("a", newline="")
        self._events: Any = None
        if events is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._events = SummaryWriter(str(events), purge_step=episodes_done + 1)

    def write(self, row: dict[str, float]) -> None:
        """One line, at once."""
        self._file.write(_line(row))
        self._file.flush()
        if self._events is not None:
            for name, value in row.items():
                if name not in ("iteration", "episodes") and not math.isnan(value):
                    self._events.add_scalar(name, value, int(row["episodes"]))

    def close(self) -> None:
        self._file.close()
        if self._events is not None:
            self._events.close()


def _line(row: dict[str, float]) -> str:
    cells = (row[name] for name in COLUMNS)
    texts = ("" if math.isnan(x) else str(int(x)) if float(x).is_integer() else f"{x:.6g}" for x in cells)
    return ",".join(texts) + "\n"


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Lines of a metrics.csv; one that was cut off by a crash is left out."""
    if not path.exists():
        return []
    whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [
        {name: float(row[name]) if row.get(name) else math.nan for name in COLUMNS}
        for row in csv.DictReader(whole)
        if None not in row and None not in row.values() and set(row) >= set(COLUMNS) - {"validation"}  # it is younger
    ]
