"""Checkpoints that survive a crash and cannot run code: arrays as safetensors, the rest as JSON.

save: arrays -> temporary file, synced, renamed -> JSON with their checksum the same way -> older arrays removed
load: JSON, its own checksum and version -> arrays, their checksum -> parsed; whatever does not fit is an error
The JSON is the last to appear and names the file of arrays, so a checkpoint is there as a whole or not at all.
"""

import contextlib
import hashlib
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as format_arrays

from stockade.errors import InputError
from stockade.files import write_durably
from stockade.learn.files import checkpoint_numbers
from stockade.text import plural

FORMAT = "stockade checkpoint"
VERSION = 1
_DIGITS = 16  #: of the checksum in the name of a file of arrays


class CheckpointError(InputError):
    """A checkpoint that cannot be used; the message says what is wrong with it."""


@dataclass(frozen=True)
class Checkpoint:
    """What was saved: arrays by name, and the rest, which JSON can hold."""

    arrays: dict[str, np.ndarray]
    rest: dict[str, Any]


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write `<path>.json` and its file of arrays; an older checkpoint of that name is replaced in one instant, or
    untouched after an OSError, for instance a full disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = format_arrays({name: np.ascontiguousarray(array) for name, array in checkpoint.arrays.items()})
    digest = hashlib.sha256(content).hexdigest()
    arrays = path.with_name(f"{path.name}-{digest[:_DIGITS]}.safetensors")
    head = {"format": FORMAT, "version": VERSION, "arrays": arrays.name, "sha256": digest, "rest": checkpoint.rest}
    try:
        write_durably(arrays, content)
        write_durably(_json_of(path), json.dumps({**head, "checksum": _checksum(head)}, indent=1).encode() + b"\n")
    except OSError:
        where = _json_of(path)
        if not where.exists() or arrays.name.encode() not in where.read_bytes():  # it would only take space
            arrays.unlink(missing_ok=True)
        raise
    for old in _arrays_of(path):
        if old != arrays:
            old.unlink(missing_ok=True)


def load(path: Path) -> Checkpoint:
    """Read `<path>.json` and its arrays; CheckpointError if it is missing, cut off, altered or of another version."""
    where = _json_of(path)
    try:
        head = json.loads(where.read_bytes())
        checksum = head.pop("checksum")
        if head["format"] != FORMAT:
            raise ValueError(f"it says {head['format']!r}, not {FORMAT!r}")
        if head["version"] != VERSION:
            raise ValueError(f"it has version {head['version']} of the format, this package reads version {VERSION}: "
                             f"use the version of stockade that wrote it")  # fmt: skip
        if checksum != _checksum(head):
            raise ValueError("it was altered: its checksum does not fit")
        arrays = where.with_name(Path(head["arrays"]).name)
        content = arrays.read_bytes()
        if hashlib.sha256(content).hexdigest() != head["sha256"]:
            raise ValueError(f"{arrays.name} is cut off or was altered: its checksum does not fit")
        return Checkpoint(parse_arrays(content), head["rest"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"{where} is no checkpoint that can be used: {error}") from error


def remove(path: Path) -> None:
    _json_of(path).unlink(missing_ok=True)  # first, so that it never points to nothing
    for arrays in _arrays_of(path):
        arrays.unlink(missing_ok=True)


class CheckpointFolder:
    """The checkpoints of a run: the last `keep` by number, and the best."""

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self.folder, self.keep = folder, keep
        self._failures = 0

    def save(self, number: int, checkpoint: Checkpoint) -> bool:
        """Write one; if that fails, warn and return False: the run can continue, and older ones are intact."""
        if not self._write(f"checkpoint-{number:08d}", checkpoint):
            return False
        with contextlib.suppress(OSError):  # they only take space
            for old in self.numbers()[: -self.keep]:
                remove(self.folder / f"checkpoint-{old:08d}")
            for arrays in self.folder.glob("checkpoint-*-*.safetensors"):
                if not _json_of(self.folder / arrays.name.rpartition("-")[0]).exists():  # of one that a kill cut short
                    arrays.unlink(missing_ok=True)
        return True

    def save_best(self, checkpoint: Checkpoint) -> bool:
        """Write the best, beside those by number; likewise."""
        return self._write("best", checkpoint)

    def _write(self, name: str, checkpoint: Checkpoint) -> bool:
        try:
            save(self.folder / name, checkpoint)
        except OSError as error:
            self._failures += 1  # in the text, because Python shows equal warnings only once
            warnings.warn(f"{self.folder / name} could not be written ({plural(self._failures, 'failure')} so far); "
                          f"training continues, the next save tries again: {error}", stacklevel=3)  # fmt: skip
            return False
        return True

    def numbers(self) -> list[int]:
        """Of the checkpoints that are there, ascending."""
        return checkpoint_numbers(self.folder)

    def load_last(self) -> Checkpoint:
        """The newest that is whole; a warning for each newer one that is not."""
        return self.load_best(last=True)

    def load_best(self, last: bool = False) -> Checkpoint:
        """The best, or the last if there is no best or `last` asks for it."""
        best = [] if last or not _json_of(self.folder / "best").exists() else ["best"]
        for name in [*best, *(f"checkpoint-{number:08d}" for number in reversed(self.numbers()))]:
            try:
                return load(self.folder / name)
            except CheckpointError as error:
                then = "last checkpoint" if name == "best" else "checkpoint before it"
                warnings.warn(f"{error}; taking the {then}", stacklevel=3)
        raise CheckpointError(f"there is no usable checkpoint in {self.folder}")


def _json_of(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _arrays_of(path: Path) -> list[Path]:
    """All files of arrays under this name; those of `NAME-more` are another's."""
    return list(path.parent.glob(f"{path.name}-{'[0-9a-f]' * _DIGITS}.safetensors"))


def _checksum(head: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()
