"""The folders of runs: made, found, and held by one process at a time; and their metrics.

runs/NAME/  config.json  lock (held while a process works on it)  failure.txt (why the last session failed)
            metrics.csv, tensorboard/ (what it writes while it trains)  ...
"""

import contextlib
import fcntl
import io
import json
import math
import os
import shutil
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stockade.baselines import ALIASES, BASELINES
from stockade.errors import InputError, SettingError, did_you_mean
from stockade.files import AppendedFile
from stockade.text import plural

#: What a session makes of a new run before its first checkpoint.
_BEGINNINGS = ("config.json", "metrics.csv", "lock", "tensorboard", "checkpoints")
#: Policies in the package: `<name>-<rules>.json` and its arrays, checkpoints like any other.
SHIPPED = Path(__file__).parent / "weights"
WINDOW = 1000  #: episodes of the running mean that agents are compared by
LOWEST = -1e300  #: worse than any return; JSON knows no infinity
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
    stem = name or default.replace(":", "-")  # of `belief:16`, `bline+delay:5`
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


def is_search(folder: Path) -> bool:
    """Whether it is the folder of a search, not of a training run."""
    return command_of(folder) == "search"


def command_of(folder: Path) -> str:
    """The command that made it: train, search or exploit."""
    try:
        return str(json.loads((folder / "config.json").read_text()).get("command", "train"))
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{folder / 'config.json'} cannot be used: {error}") from error


def find_run(name: str, runs: Path) -> Path:
    """Folder of a training run, by its name or path."""
    folder = find_folder(name, runs)
    command = command_of(folder)
    if command == "search":
        raise InputError(f"{folder} is a search, not a training run; to continue it: stockade search --resume "
                         f"{folder}; to play its best policy: stockade evaluate {folder}")  # fmt: skip
    if command != "train":
        raise InputError(f"{folder} is a result of {command}, not a training run; to continue it: stockade {command} "
                         f"--resume {folder}; its trainings are in {folder}/seed*")  # fmt: skip
    return folder


@contextlib.contextmanager
def run_session(folder: Path) -> Iterator[None]:
    """Work on a run alone; the kernel releases the lock when its holder dies.

    An error is written to failure.txt. If nothing was trained yet, the folder of the run is removed instead.
    """
    with (folder / "lock").open("a+") as file:
        deadline = time.monotonic() + 1  # `is_running` of another process holds it for an instant
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    file.seek(0)
                    raise InputError(f"another process{file.read()} is working on {folder}; wait for it, or stop "
                                     "it") from None  # fmt: skip
                time.sleep(0.05)
        with contextlib.suppress(OSError):  # on a full disk it is held without a name
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), f" ({os.getpid()} on {socket.gethostname()})".encode())
        (folder / "failure.txt").unlink(missing_ok=True)
        try:
            yield
        except Exception as error:
            with contextlib.suppress(OSError):
                if any((folder / "checkpoints").glob("*.json")) or (folder / "state.json").exists():
                    (folder / "failure.txt").write_text(f"{type(error).__name__}: {error}\n")
                else:
                    for path in map(folder.joinpath, _BEGINNINGS):
                        shutil.rmtree(path, ignore_errors=True)  # leaves files
                        path.unlink(missing_ok=True)
                    folder.rmdir()  # unless a user put something there
            raise


def checkpoint_numbers(folder: Path) -> list[int]:
    """Of the checkpoints in a folder, ascending: the iterations after which they were written."""
    found = (path.stem.removeprefix("checkpoint-") for path in folder.glob("checkpoint-*.json"))
    return sorted(int(number) for number in found if number.isdecimal())


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
    there is one line for each iteration, no more and no fewer. Of a damaged file what is whole is kept.
    """

    def __init__(self, path: Path, iterations_done: int, events: Path | None = None, episodes_done: int = 0) -> None:
        content = path.read_bytes() if path.exists() else b""
        rows, damaged = _parse(content)
        if damaged:
            beside = path.with_suffix(".damaged")
            warnings.warn(f"{path}: {plural(damaged, 'line')} damaged; as it was it is kept as {beside}", stacklevel=2)
            AppendedFile(beside, content)
        kept = [row for row in rows if row["iteration"] <= iterations_done]
        self._table = AppendedFile(path, b"".join([",".join(COLUMNS).encode() + b"\n", *map(_line, kept)]))
        self._formats = {self._table: _line}
        if events is not None:
            name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}"
            # it begins by taking back what earlier files say of the steps to come
            takes_back = _record(step=episodes_done + 1, session_log={"status": "START"})
            head = _record(file_version="brain.Event:2") + takes_back
            self._formats[AppendedFile(events / name, head)] = _event

    def write(self, row: dict[str, float]) -> None:
        """One line, at once."""
        for file, format_row in self._formats.items():
            file.append(format_row(row))

    def rows(self) -> list[dict[str, float]]:
        """What was written, and what could not be."""
        return _parse(self._table.read())[0]

    def close(self) -> bool:
        """Try once more to write what could not be; whether all is on disk."""
        written = [file.append(b"") for file in self._formats]  # all of them, even if one cannot be
        return all(written)


def _line(row: dict[str, float]) -> bytes:
    cells = (row[name] for name in COLUMNS)
    texts = ("" if math.isnan(x) else str(int(x)) if float(x).is_integer() else f"{x:.6g}" for x in cells)
    return ",".join(texts).encode() + b"\n"


def _parse(content: bytes) -> tuple[list[dict[str, float]], int]:
    """Rows of a metrics.csv, and how many of its lines are damaged; a last one that a crash cut off is left out."""
    head, *lines = content[: content.rfind(b"\n") + 1].decode(errors="replace").splitlines() or [",".join(COLUMNS)]
    names: Sequence[str] = head.split(",")
    damaged = int(not set(COLUMNS) - {"validation"} <= set(names) <= set(COLUMNS))  # 0.1.0 had no validation
    names = COLUMNS if damaged else names
    rows = []
    for line in lines:
        try:
            cells = zip(names, line.split(","), strict=True)
            rows.append(dict.fromkeys(COLUMNS, math.nan) | {k: float(x) if x else math.nan for k, x in cells})
        except ValueError:
            damaged += 1
    return rows, damaged


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Lines of a metrics.csv; one that was cut off by a crash is left out. InputError if others are damaged."""
    rows, damaged = _parse(path.read_bytes() if path.exists() else b"")
    if damaged:
        raise InputError(f"{path}: {plural(damaged, 'line')} damaged; --resume of the run mends it")
    return rows


# TensorBoard's own writer has a thread, which a full disk ends with a traceback; so its records are written like lines.
def _record(**content: Any) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    buffer = io.BytesIO()
    RecordWriter(buffer).write(Event(wall_time=time.time(), **content).SerializeToString())
    return buffer.getvalue()


def _event(row: dict[str, float]) -> bytes:
    names = [name for name, x in row.items() if name not in ("iteration", "episodes") and not math.isnan(x)]
    values = [{"tag": name, "simple_value": row[name]} for name in names]
    return _record(step=int(row["episodes"]), summary={"value": values})
