"""What goes wrong around a search: a full disk, damaged files, two processes, Ctrl-C while it starts."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stockade import cli
from stockade.errors import InputError, SettingError, WorkError
from stockade.learn.files import run_session
from stockade.workflow import store
from stockade.workflow.config import RewardFlags, SearchConfig
from stockade.workflow.search import search
from stockade.workflow.store import SearchFolder
from tests.processes import PATIENCE, wait_until

SMALL = ["--max-steps", "6", "--n-envs", "20", "--n-eval-episodes", "20", "--no-plots"]
TOGETHER = [*SMALL, "--total-episodes", "800"]
SEPARATE = [*SMALL, "--total-episodes", "300", "--max-episodes", "100", "--train", "separate"]


def exit_code(*arguments: str) -> int:
    """Of a command, in this process; a traceback would be an exception here."""
    with pytest.raises(SystemExit) as ended:
        cli.main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture(scope="module")
def searches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished searches: `together` and `separate`."""
    folder = tmp_path_factory.mktemp("searches")
    for name, flags in (("together", TOGETHER), ("separate", SEPARATE)):
        assert exit_code("search", *flags, "--runs", str(folder), "--name", name) == 0
    return folder


@pytest.fixture
def runs(searches: Path, tmp_path: Path) -> Path:
    """A copy of these."""
    return Path(shutil.copytree(searches, tmp_path / "runs"))


# ------------------------------------------------------------------------------------------------------------ full disk
@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A file system of a given size; skipped where it may not be mounted."""
    folder = tmp_path / "disk"

    def mount(size: str) -> Path:
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("no file system may be mounted here")
        return folder

    yield mount
    subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


@pytest.mark.filterwarnings("ignore:.*could not be written")
@pytest.mark.parametrize(("flags", "size"), [(TOGETHER, "700k"), (TOGETHER, "300k"), (SEPARATE, "300k")])
def test_an_end_that_is_not_on_disk_is_an_error(
    small_disk: Callable[[str], Path], flags: list[str], size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = exit_code("search", *flags, "--runs", str(small_disk(size)), "--name", "x")
    last = capsys.readouterr().err.splitlines()[-1]
    assert code == 1
    assert "not on disk" in last
    assert "--resume" in last


def test_no_stale_summary_where_the_new_one_has_no_room(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write, before = store.write_durably, json.loads((runs / "together/summary.json").read_text())

    def full(path: Path, content: bytes) -> None:
        if path.name == "summary.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(store, "write_durably", full)
    more = ["--total-episodes", "1200", "--json", str(tmp_path / "j"), "--no-plots"]
    assert exit_code("search", "--resume", "together", "--runs", str(runs), *more) == 1
    assert "summary.json" in capsys.readouterr().err.splitlines()[-1]
    assert json.loads((tmp_path / "j").read_text())["settings"]["total_episodes"] == 1200
    assert before["settings"]["total_episodes"] == 800


# -------------------------------------------------------------------------------------------------------- damaged files
def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def same_json(one: bytes, other: bytes) -> bool:
    """1e-05 and 1E-05 are the same number, and so are some that differ in the 17th digit."""
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def test_every_change_of_the_state_is_noticed(runs: Path) -> None:
    path, rng = runs / "separate/state.json", random.Random(0)
    whole = path.read_bytes()
    folder = SearchFolder(runs / "separate")
    assert len(folder.read_state().results) > 1
    for _ in range(60):
        place = rng.randrange(len(whole) - 1)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << rng.randrange(7)]) + whole[place + 1 :])
        if not same_json(path.read_bytes(), whole):
            with pytest.raises(InputError, match=r"state\.json cannot be used"):
                folder.read_state()
    path.write_bytes(whole)
    edit(path, proposals=[])
    with pytest.raises(InputError, match="checksum"):
        folder.read_state()


def test_a_state_that_was_written_without_a_checksum_is_read(runs: Path) -> None:
    path, folder = runs / "separate/state.json", SearchFolder(runs / "separate")
    known = folder.read_state()
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_text(json.dumps({**content, "version": 3}))
    assert repr(folder.read_state()) == repr(known)


SUMMARIES: dict[str, Callable[[Path], object]] = {
    "cut": lambda p: p.write_bytes(p.read_bytes()[:100]),
    "removed": lambda p: p.unlink(),
    "list": lambda p: p.write_text("[]"),
    "bytes": lambda p: p.write_bytes(b"\xff" + p.read_bytes()),
    "best": lambda p: edit(p, best=5),
    "no best": lambda p: edit(p, best=[]),
    "classes": lambda p: edit(p, classes=[{}]),
    "trainings": lambda p: edit(p, trainings=[{}]),
    "policy": lambda p: edit(p, classes=[{**c, "policy": 7} for c in json.loads(p.read_text())["classes"]]),
    "ranking": lambda p: edit(p, classes=[{**c, "ranking": [0, 77]} for c in json.loads(p.read_text())["classes"]]),
    "no ranking": lambda p: edit(p, classes=[{**c, "ranking": None} for c in json.loads(p.read_text())["classes"]]),
}


@pytest.mark.parametrize("name", ["together", "separate"])
@pytest.mark.parametrize("damage", SUMMARIES)
def test_a_damaged_summary_is_one_line(runs: Path, name: str, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    SUMMARIES[damage](runs / name / "summary.json")
    code = exit_code("evaluate", name, "--runs", str(runs), "--episodes", "2")
    said = capsys.readouterr().err.splitlines()
    assert code == 2
    assert len(said) == 1
    assert name in said[0]
    assert exit_code("runs", "--runs", str(runs)) == 0
    if damage in ("cut", "best"):
        assert exit_code("search", "--resume", name, "--runs", str(runs), "--no-plots") == 0
        assert json.loads((runs / name / "summary.json").read_text())["best"]  # it is made anew


LOGS: dict[str, Callable[[Path], object]] = {
    "another file": lambda p: p.write_bytes(p.with_name("gp_log.csv").read_bytes()),
    "bytes": lambda p: p.write_bytes(p.read_bytes().replace(b"\n0,", b"\n\xff0,", 1)),
    "a number": lambda p: p.write_bytes(p.read_bytes().replace(b"\n0,", b"\n0x,", 1)),
    "quote": lambda p: p.write_bytes(p.read_bytes().replace(b"\n0,", b'\n"0,', 1)),
}


@pytest.mark.parametrize("damage", LOGS)
def test_damaged_lines_of_the_training_log_are_left_out(runs: Path, damage: str) -> None:
    log = runs / "separate/training_log.csv"
    whole = log.read_text().splitlines()
    LOGS[damage](log)
    with pytest.warns(UserWarning, match=r"training_log\.csv: \d+ lines? damaged"):
        assert exit_code("search", "--resume", str(runs / "separate"), "--no-plots") == 0
    kept = log.read_text().splitlines()
    assert kept[0] == whole[0]
    assert len(kept) == (1 if damage == "another file" else len(whole) - 1)


CONFIGS: dict[str, Any] = {
    "red": 5, "n_envs": "20", "horizon": 2.5, "units": "streets", "constraint": "none", "kernel": "round",
    "search": "magic", "first_version": None, "reward": {"hosts": "a"}, "total_episodes": "many", "margin": [],
    "seed": -1, "unknown": 1, "format": 99, "command": "train",
}  # fmt: skip


@pytest.mark.parametrize("setting", [*CONFIGS, ""])
def test_an_edited_config_is_one_line(runs: Path, setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = runs / "separate/config.json"
    if setting:
        edit(path, **{setting: CONFIGS[setting]})
    else:
        path.write_text("[]")
    code = exit_code("search", "--resume", "separate", "--runs", str(runs))
    said = capsys.readouterr().err.splitlines()
    assert code == 2
    assert len(said) == 1
    assert "config.json" in said[0]
    assert exit_code("runs", "--runs", str(runs)) == 0
    assert exit_code("evaluate", "separate", "--runs", str(runs), "--episodes", "2") in (0, 2)


# ---------------------------------------------------------------------------------------------- flags beside --resume
def test_a_default_that_a_search_does_not_have_cannot_be_asked_for_at_resume(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("search", "--resume", "together", "--runs", str(runs), "--max-steps", "100") == 2
    assert "--max-steps 100 cannot be changed" in capsys.readouterr().err
    with pytest.raises(SettingError):
        search(SearchConfig.resumed("together", runs, plots=False, seed=1))


def test_the_settings_that_began_a_search_continue_it(tmp_path: Path) -> None:
    flags = RewardFlags(min_episodes=40, compliance_threshold=0.0)
    config = SearchConfig(
        constraint="reward", horizon=6, n_envs=20, total_episodes=100, max_episodes=100, first_version=flags,
        plots=False, runs=tmp_path, name="x",
    )  # fmt: skip
    search(config)
    longer = search(replace(config, resume="x", total_episodes=200))
    assert longer.to_dict()["settings"]["total_episodes"] == 200
    other = RewardFlags(min_episodes=40, compliance_threshold=0.5)
    with pytest.raises(SettingError, match="compliance_threshold"):
        search(replace(config, resume="x", total_episodes=200, first_version=other))


def test_certify_is_refused_where_it_cannot_confirm_anything() -> None:
    with pytest.raises(SettingError, match="certify=1"):
        SearchConfig(constraint="reward", certify=1)


def test_a_search_that_another_process_holds_is_not_touched(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (runs / "together/config.json").read_bytes()
    with run_session(runs / "together"):
        code = exit_code("search", "--resume", "together", "--runs", str(runs), "--total-episodes", "5000")
    assert code == 2
    assert "another process" in capsys.readouterr().err
    assert (runs / "together/config.json").read_bytes() == before
    assert not (runs / "together/failure.txt").exists()


def test_a_certified_claim_is_kept_as_long_as_it_is_made(tmp_path: Path) -> None:
    folder = SearchFolder(tmp_path)
    certified = {"leader": "a", "rival": "b", "claim": "equal", "outcome": "confirms"}
    classes = [{"order": order} for order in "abc"]

    def kept(best: list[str]) -> bool:
        folder.write_summary({"best": ["a", "b"], "classes": classes, "certified": certified})
        summary: dict[str, Any] = {"best": best, "classes": classes}
        folder.write_summary(summary)
        assert json.loads((tmp_path / "summary.json").read_text()).get("certified") == summary.get("certified")
        return "certified" in summary

    assert kept(["a", "b"])
    assert kept(["b", "a"])
    assert kept(["b", "c", "a"])
    assert not kept(["a", "c"])
    assert not kept(["b"])


# --------------------------------------------------------------------------------------------------------------- Ctrl-C
@pytest.mark.parametrize(
    "arguments",
    [["search", *SMALL, "--train", "separate", "--parallel", "2", "--max-episodes", "2000"],
     ["evaluate", "champion", "--episodes", "1000000"]],
)  # fmt: skip
def test_ctrl_c_while_it_starts_is_one_line_and_130(arguments: list[str], tmp_path: Path) -> None:
    rng, command = random.Random(arguments[0]), [sys.executable, "-m", "stockade.cli", *arguments]
    runs = ["--runs", str(tmp_path / "runs")] if arguments[0] == "search" else []
    for k in range(3):
        process = subprocess.Popen(
            [*command, *runs], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        wait_until(lambda maps=Path(f"/proc/{process.pid}/maps"): "numpy" in maps.read_text(), "it does not start")
        time.sleep(0.6 * k + rng.uniform(0, 0.6))  # before that, Python itself has the signal
        os.killpg(process.pid, signal.SIGINT)  # to all of its processes, as a terminal does
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130, said
        assert "Traceback" not in said
        assert "interrupted" in said or "stopped by SIGINT" in said


def test_a_ctrl_c_inside_a_callback_of_compiled_code_is_not_lost() -> None:
    code = """
import ctypes, signal, time
from stockade import startup
startup.IS_COMMAND = True
signal.signal(signal.SIGINT, startup.end)
startup.interrupts_as_exceptions()
callback = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))
try:
    callback()
    time.sleep(120)
except KeyboardInterrupt:
    print("arrived")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "arrived\n", "")


def test_a_second_ctrl_c_while_the_first_is_on_its_way_out_ends_at_once() -> None:
    code = """
import os, signal
from stockade import startup
startup.IS_COMMAND = True
signal.signal(signal.SIGINT, startup.end)
startup.interrupts_as_exceptions()
class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
last = Last()
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    del last
print("not at once")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "stockade: interrupted\n")


def test_nothing_changes_for_ctrl_c_in_other_programs() -> None:
    code = "import signal, stockade; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "True\n"


def test_a_full_disk_is_an_error_in_python_too(tmp_path: Path) -> None:
    folder = SearchFolder(tmp_path)
    with folder.ending("the policy"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(WorkError, match="the policy"):
        folder.require_end()
