"""`stockade bench all`: a bench that fails or hangs is named and does not harm the others; nothing outlives it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stockade import cli
from stockade.bench import cli as benches
from stockade.bench.cli import AllBenches, run_bench

LEAVES_A_PROCESS = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; print('child', flush=True); time.sleep(600)"])
open(sys.argv[1], "w").write(str(child.pid))
"""


def ended(pid: int) -> bool:
    """Whether a process ends within seconds; one that ended and that nobody has asked for does not run either."""
    deadline = time.monotonic() + 5
    with contextlib.suppress(OSError):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    return True


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
    note = tmp_path / "pid"
    problem = run_bench(python(LEAVES_A_PROCESS + "import time; time.sleep(600)", note), 2.0)
    assert "not done after" in problem
    assert ended(int(note.read_text()))


def test_processes_left_behind_are_ended(tmp_path):
    note = tmp_path / "pid"
    assert run_bench(python(LEAVES_A_PROCESS, note), 60) == ""
    assert ended(int(note.read_text()))


def test_a_terminated_run_ends_the_bench_in_flight(tmp_path):
    note = tmp_path / "pid"
    bench = python(LEAVES_A_PROCESS + "import time; time.sleep(600)", note)
    script = f"""
from pathlib import Path
from stockade.bench import cli
run_bench = cli.run_bench
cli.PLAN = {{"x": ()}}
cli.run_bench = lambda command, limit: run_bench({bench!r}, limit)
cli.AllBenches(results=Path({str(tmp_path)!r})).run()
"""
    run = subprocess.Popen(python(script))
    deadline = time.monotonic() + 30
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    assert run.wait(30) == 128 + signal.SIGTERM
    assert ended(int(note.read_text()))


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
