"""The command `stockade`: what it prints, and its exit codes: 0 fine, 1 the answer is no, 2 unusable input, 130."""

import json
import subprocess
import sys

import numpy as np
import pytest

from stockade import cli
from stockade.cage2 import verify
from tests.cage2.traces import TRACES, load, shortened

GREEN = TRACES / "green_SleepAgent_sleep.npz"


@pytest.fixture
def stockade(capsys):
    """Runs the command in this process; returns its exit code, output and errors."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


@pytest.fixture
def altered(tmp_path):
    """A trace of 3 episodes x 20 steps with one wrong reward."""
    arrays = shortened(load("public_B_lineAgent_random.npz"), episodes=3, steps=20)
    arrays["reward"][1, 7] -= 1
    path = tmp_path / "altered.npz"
    np.savez(path, **arrays)
    return path


def test_verify_of_equal_traces_ends_with_the_count_and_code_0(stockade):
    code, out, err = stockade("verify", TRACES / "public_SleepAgent_mixed.npz", GREEN)
    lines = out.splitlines()
    assert code == 0
    assert lines[-1] == "4000 steps, 2 files, 0 mismatches"
    assert [line.split() for line in lines[:-1]] == [
        ["public_SleepAgent_mixed.npz", "3000", "steps", "equal"],
        ["green_SleepAgent_sleep.npz", "1000", "steps", "equal"],
    ]
    assert err == ""


def test_verify_takes_folders(stockade):
    code, out, _ = stockade("verify", TRACES)
    assert (code, out.splitlines()[-1]) == (0, "81000 steps, 35 files, 0 mismatches")


def test_verify_explains_the_first_mismatch_and_ends_with_code_1(stockade, altered):
    code, out, _ = stockade("verify", GREEN, altered)
    lines = out.splitlines()
    assert code == 1
    assert lines[-1] == "1060 steps, 2 files, 1 mismatches"
    assert lines[1].split() == ["altered.npz", "60", "steps", "1", "mismatches"]
    explanation = "\n".join(lines[2:-1])
    for part in ("altered.npz", "episode 1", "step 7", "reward", "expected -2.1", "got      -1.1"):
        assert part in explanation


def test_verify_writes_json(stockade, altered, tmp_path):
    file = tmp_path / "result.json"
    code, _, _ = stockade("verify", GREEN, altered, "--json", file)
    result = json.loads(file.read_text())
    assert code == 1
    assert (result["steps"], result["mismatches"]) == (1060, 1)
    assert [(f["file"], f["steps"], f["mismatches"]) for f in result["files"]] == [
        ("green_SleepAgent_sleep.npz", 1000, 0),
        ("altered.npz", 60, 1),
    ]
    first = result["files"][1]["first"]
    assert (first["episode"], first["step"], first["field"]) == (1, 7, "reward")
    assert first["expected"] == pytest.approx(first["got"] - 1)
    assert result["files"][0]["first"] is None


def test_verify_of_what_is_no_trace_names_it_and_ends_with_code_2(stockade, tmp_path):
    notes = tmp_path / "notes.npz"
    notes.write_text("no archive")
    for arguments, message in [
        ((tmp_path / "missing.npz",), "missing.npz: no such file"),
        ((notes,), "notes.npz: cannot be read as a trace"),
        ((GREEN, notes), "notes.npz: cannot be read as a trace"),
        ((), "name at least one trace file"),
    ]:
        code, out, err = stockade("verify", *arguments)
        assert code == 2
        assert err.startswith("stockade: ")
        assert message in err
        assert "Traceback" not in err
        assert "mismatches" not in out


def test_json_that_cannot_be_written_is_refused_without_a_traceback(stockade, tmp_path):
    code, _, err = stockade("verify", GREEN, "--json", tmp_path / "no_such_folder" / "result.json")
    assert code == 2
    assert "no_such_folder" in err


@pytest.mark.parametrize("arguments", [("verfy",), ("verify", "--jsn", "x", "file.npz"), ("bench", "nothing")])
def test_wrong_usage_ends_with_code_2(stockade, arguments):
    code, out, _ = stockade(*arguments)
    assert code == 2
    assert out == ""


def test_an_interrupt_ends_with_code_130_and_one_line(stockade, monkeypatch):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "verify_file", interrupted)
    code, _, err = stockade("verify", GREEN)
    assert (code, err) == (130, "stockade: interrupted\n")


def test_help_names_the_commands(stockade):
    code, out, _ = stockade("--help")
    assert code == 0
    assert "verify" in out
    assert "bench" in out


def test_the_command_runs_as_a_process_of_its_own(altered):
    command = [sys.executable, "-m", "stockade.cli", "verify", str(altered)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "60 steps, 1 files, 1 mismatches"
    assert done.stderr == ""
