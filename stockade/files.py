"""Files that commands write: durable ones, and results as JSON for `--json FILE` and `--json -`."""

import contextlib
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from stockade.errors import InputError

JsonFile = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]  #: a command's `json` option


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


class AppendedFile:
    """A file that grows while long work is done, which it never ends: what cannot be written, as on a full disk, is
    warned about, kept in memory, and written by the next `append` that can."""

    def __init__(self, path: Path, content: bytes) -> None:
        """Begin it with this content, in place of what was there."""
        self._path, self._size, self._waiting = path, -1, b""  # -1: nothing of it is written
        self.append(content)

    def append(self, content: bytes) -> bool:
        """Write it, and first what is waiting; whether all is written."""
        self._waiting += content
        try:
            if self._size < 0:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_durably(self._path, self._waiting)
                self._size = 0
            elif self._waiting:
                with self._path.open("r+b") as file:
                    file.seek(self._size)
                    file.truncate()  # what an attempt before could write of it
                    file.write(self._waiting)
        except OSError as error:
            warnings.warn(f"{self._path}: {len(self._waiting)} bytes could not be written and wait for the next try: "
                          f"{error}", stacklevel=2)  # fmt: skip
        else:
            self._size, self._waiting = self._size + len(self._waiting), b""
        return not self._waiting

    def read(self) -> bytes:
        """All of it, what is waiting included."""
        return (self._path.read_bytes()[: self._size] if self._size > 0 else b"") + self._waiting


def check_writable(path: Path, option: str) -> None:
    """Refuse a file that cannot be written, before any work is done for it."""
    folder = path.absolute().parent
    if path.is_dir():
        raise InputError(f"{option} {path} is a folder; name a file")
    if not folder.is_dir():
        raise InputError(f"{option} {path}: there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"{option} {path}: no permission to write there")


@contextlib.contextmanager
def json_output(path: Path | None) -> Iterator[Callable[[Any], None]]:
    """Give a function that writes a command's result: to a file (refused here, before any work, if it cannot be
    written), nowhere (None), or for `-` to standard output, which it then has for itself: what is printed meanwhile
    goes to standard error."""
    if path is None:
        yield lambda content: None
    elif str(path) == "-":
        out = sys.stdout
        with contextlib.redirect_stdout(sys.stderr):
            yield lambda content: print(as_json(content), file=out, flush=True)
    else:
        check_writable(path, "--json")
        yield lambda content: _write(path, as_json(content) + "\n")


def as_json(content: Any) -> str:
    """JSON text of what `json_ready` can make ready."""
    return json.dumps(json_ready(content), indent=1, allow_nan=False)


def json_ready(content: Any) -> Any:
    """As JSON can hold it: paths become text, tuples and arrays lists; NaN and infinities, which it lacks, None."""
    if isinstance(content, dict):
        return {key: json_ready(value) for key, value in content.items()}
    if isinstance(content, list | tuple | np.ndarray):
        return [json_ready(value) for value in content]
    if isinstance(content, np.generic):
        return json_ready(content.item())
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    return str(content) if isinstance(content, Path) else content


def _write(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():  # a pipe or a device such as /dev/stdout must not be replaced
        path.write_text(text)
    else:
        write_durably(path.resolve(), text.encode())
