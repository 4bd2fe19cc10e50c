"""Checkpoints: whole or not at all, altered ones noticed, pickles refused, a full disk survived."""

import functools
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from stockade.learn import checkpoint as module
from stockade.learn.checkpoint import Checkpoint, CheckpointError, CheckpointFolder, load, remove, save


def sample(number: int = 1) -> Checkpoint:
    arrays = {
        "weights": np.random.default_rng(number).standard_normal((5, 7)).astype(np.float32),
        "bytes": np.arange(10, dtype=np.uint8),
        "scalar": np.array(2.5, np.float32),
    }
    return Checkpoint(arrays, {"number": number, "stream": {"state": 2**127 + 1}, "name": "x"})


def assert_same(one: Checkpoint, other: Checkpoint) -> None:
    assert one.rest == other.rest
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        assert array.dtype == other.arrays[name].dtype
        assert array.tobytes() == other.arrays[name].tobytes()


def arrays_of(folder: Path, name: str) -> Path:
    return folder / json.loads((folder / f"{name}.json").read_text())["arrays"]


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    save(tmp_path / "one", sample())
    assert_same(load(tmp_path / "one"), sample())
    save(tmp_path / "one", sample(2))
    assert_same(load(tmp_path / "one"), sample(2))
    assert len(list(tmp_path.iterdir())) == 2  # nothing of the old one, no temporary file


def test_saving_twice_the_same_leaves_it_whole(tmp_path: Path) -> None:
    save(tmp_path / "one", sample())
    save(tmp_path / "one", sample())
    assert_same(load(tmp_path / "one"), sample())


@pytest.mark.parametrize(
    "what", ["truncated arrays", "one bit", "no arrays", "truncated json", "changed json", "json list"]
)
def test_damage_is_noticed(tmp_path: Path, what: str) -> None:
    save(tmp_path / "one", sample())
    arrays, head = arrays_of(tmp_path, "one"), tmp_path / "one.json"
    content = bytearray(arrays.read_bytes())
    if what == "truncated arrays":
        arrays.write_bytes(content[:-1])
    elif what == "one bit":
        content[-1] ^= 1
        arrays.write_bytes(content)
    elif what == "no arrays":
        arrays.unlink()
    elif what == "truncated json":
        head.write_text(head.read_text()[:-20])
    elif what == "changed json":
        head.write_text(head.read_text().replace('"number": 1', '"number": 2'))
    else:
        head.write_text("[]")
    with pytest.raises(CheckpointError):
        load(tmp_path / "one")


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("exploded"),)


def test_a_pickle_in_its_place_is_refused_even_with_the_right_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "one", sample())
    arrays = arrays_of(tmp_path, "one")
    arrays.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError, match="checksum"):
        load(tmp_path / "one")
    # An attacker who can write checksums too still gets no code to run.
    monkeypatch.setattr(module, "format_arrays", lambda arrays: pickle.dumps(Bomb()))
    save(tmp_path / "two", sample())
    with pytest.raises(CheckpointError, match="deserializing"):
        load(tmp_path / "two")
    (tmp_path / "three.json").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(CheckpointError):
        load(tmp_path / "three")
    assert not Path("exploded").exists()


def test_another_version_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERSION", 99)
    save(tmp_path / "one", sample())
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"version 99 .* reads version 1"):
        load(tmp_path / "one")


def test_arrays_are_not_looked_for_elsewhere(tmp_path: Path) -> None:
    save(tmp_path / "one", sample())
    head = json.loads((tmp_path / "one.json").read_text())
    del head["checksum"]
    head["arrays"] = "/etc/passwd"
    (tmp_path / "one.json").write_text(json.dumps({**head, "checksum": module._checksum(head)}))
    with pytest.raises(CheckpointError, match="No such file"):
        load(tmp_path / "one")


def test_folder_keeps_the_last_and_the_best(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    for number in range(1, 6):
        assert folder.save(number, sample(number))
        assert number != 3 or folder.save_best(sample(number))
    assert folder.numbers() == [4, 5]
    assert folder.load_last().rest["number"] == 5
    assert folder.load_best().rest["number"] == 3
    assert len(list(tmp_path.iterdir())) == 6


def test_arrays_that_a_kill_left_without_their_json_are_removed_by_the_next_save(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-00000001-0123456789abcdef.safetensors").touch()
    assert CheckpointFolder(tmp_path).save(2, Checkpoint({}, {}))
    assert [path.name[:19] for path in tmp_path.glob("*.safetensors")] == ["checkpoint-00000002"]


def test_a_damaged_one_falls_back_to_the_one_before_with_a_warning(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=3)
    for number in (1, 2):
        folder.save(number, sample(number))
    damaged = arrays_of(tmp_path, "checkpoint-00000002")
    damaged.write_bytes(damaged.read_bytes()[:100])
    with pytest.warns(UserWarning, match="taking the checkpoint before it"):
        assert folder.load_last().rest["number"] == 1
    with pytest.raises(CheckpointError, match="no usable checkpoint"):
        CheckpointFolder(tmp_path / "empty").load_last()


@pytest.mark.parametrize("failing", ["arrays", "json"])
def test_a_full_disk_leaves_the_old_one_and_the_run_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    folder = CheckpointFolder(tmp_path)
    folder.save(1, sample(1))
    folder.save_best(sample(1))
    real = Path.replace

    def full(self: Path, target: Path) -> Path:
        if target.suffix == (".json" if failing == "json" else ".safetensors"):
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", full)
    for write in (functools.partial(folder.save, 2), folder.save_best):
        with pytest.warns(UserWarning, match="training continues"):
            assert not write(sample(2))
    monkeypatch.undo()
    assert_same(folder.load_last(), sample(1))
    assert_same(folder.load_best(), sample(1))
    assert sum(path.suffix == ".safetensors" for path in tmp_path.iterdir()) == 2, "a failed save leaves its arrays"
    assert not list(tmp_path.glob(".*"))


def test_a_name_that_begins_like_another_leaves_that_alone(tmp_path: Path) -> None:
    for name in ("mine-told", "mine"):
        save(tmp_path / name, Checkpoint({"x": np.arange(3.0)}, {}))
    save(tmp_path / "mine", Checkpoint({"x": np.arange(4.0)}, {}))
    assert len(load(tmp_path / "mine-told").arrays["x"]) == 3
    remove(tmp_path / "mine")
    assert len(load(tmp_path / "mine-told").arrays["x"]) == 3
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
