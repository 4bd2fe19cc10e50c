"""`stockade bench all`: a bench that fails or hangs is named and does not harm the others; nothing outlives it."""

import os
import signal
import subprocess
import sys

import pytest

from stockade import cli
from stockade.bench import cli as benches
from stockade.bench.cli import AllBenches, run_bench
from tests.processes import PATIENCE, wait_until, wait_until_gone

LEAVES_A_PROCESS = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; print('child', flush=True); time.sleep(3600)"])
open(sys.argv[1], "w").write(str(child.pid))
"""


def python(script: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", script, *map(str, arguments)]


def test_a_bench_that_ends_well_has_no_problem():
    assert run_bench(python("pass"), 60) == ""


def test_a_failure_is_told_with_its_exit_code():
    assert run_bench(python("raise SystemExit(3)"), 60) == "exit code 3"
    killed = run_bench(python("import os; os.kill(os.getpid(), 9)"), 60)
    assert killed == "ended by SIGKILL"


def test_a_bench_that_hangs_is_ended_with_its_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(benches, "GRACE", 0.2)
    note, wait = tmp_path / "pid", subprocess.Popen.wait

    def wait_for_the_note(child, timeout=None):
        """As if the time were over once the bench has begun."""
        if timeout != 60:
            return wait(child, timeout)
        wait_until(lambda: note.exists() and note.read_text(), "the bench does not begin")
        raise subprocess.TimeoutExpired("bench", timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_for_the_note)
    problem = run_bench(python(LEAVES_A_PROCESS + "import time; time.sleep(3600)", note), 60)
    assert problem == "not done after 1 minutes, ended"
    wait_until_gone([int(note.read_text())], "it has outlived the bench")


def test_processes_left_behind_are_ended(tmp_path):
    note = tmp_path / "pid"
    assert run_bench(python(LEAVES_A_PROCESS, note), 60) == ""
    wait_until_gone([int(note.read_text())], "it has outlived the bench")


def test_a_terminated_run_ends_the_bench_in_flight(tmp_path):
    note = tmp_path / "pid"
    bench = python(LEAVES_A_PROCESS + "import time; time.sleep(3600)", note)
    script = f"""
from pathlib import Path
from stockade.bench import cli
run_bench = cli.run_bench
cli.PLAN = {{"x": ()}}
cli.run_bench = lambda command, limit: run_bench({bench!r}, limit)
cli.AllBenches(results=Path({str(tmp_path)!r})).run()
"""
    run = subprocess.Popen(python(script))
    wait_until(lambda: note.exists() and note.read_text(), "the bench does not begin")
    run.send_signal(signal.SIGTERM)
    assert run.wait(PATIENCE) == 128 + signal.SIGTERM
    wait_until_gone([int(note.read_text())], "it has outlived the bench")


@pytest.fixture
def three(monkeypatch):
    """A plan of which one fails; what was run."""
    ran: list[list[str]] = []

    def run(command, limit):
        ran.append(command)
        return "exit code 1" if command[4] == "b" else ""

    monkeypatch.setattr(benches, "PLAN", {"a": (), "b": ("--rounds", "9"), "c": ()})
    monkeypatch.setattr(benches, "run_bench", run)
    return ran


def test_all_go_on_after_a_failure_and_the_exit_code_tells_of_it(three, tmp_path, capsys):
    assert AllBenches(results=tmp_path / "new" / "folder").run() == 1
    assert [command[4] for command in three] == ["a", "b", "c"]
    assert three[1][5:] == ["--rounds", "9", "--json", str(tmp_path / "new" / "folder" / "b.json")]
    assert (tmp_path / "new" / "folder").is_dir()
    assert capsys.readouterr().out.endswith("failed: b\n")


def test_quick_results_do_not_take_the_place_of_full_ones(three, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert AllBenches(quick=True, only=("a",)).run() == 0
    assert three == [[sys.executable, "-m", "stockade.cli", "bench", "a", "--quick", "--json", "bench-quick/a.json"]]
    AllBenches(only=("a",)).run()
    assert three[1][-1] == os.path.join("benchmarks", "results", "a.json")


def test_every_planned_bench_is_a_command():
    for name, given in benches.PLAN.items():
        for arguments in (given, ("--quick",)):
            with pytest.raises(SystemExit) as ended:
                cli.main(["bench", name, *arguments, "--json", "/no/such/folder/x.json"])
            assert ended.value.code == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--only", "nonsense"], "--only nonsense: there is no such bench"),
        (["--minutes", "0"], "--minutes 0.0"),
        (["--results", "/dev/null/x"], "/dev/null/x: Not a directory"),
    ],
)
def test_unusable_arguments_get_code_2_before_any_work(arguments, reason, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "all", *arguments])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
