"""The command `stockade`: what it prints, and its exit codes: 0 fine, 1 the answer is no, 2 unusable input, 130."""

import dataclasses
import itertools
import json
import os
import pickle
import shlex
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from stockade import __version__ as version
from stockade import cli, make
from stockade.cage2 import verify
from stockade.errors import SettingError, WorkerDiedError
from stockade.learn.config import CHAMPION, PPOConfig, TrainConfig
from tests.cage2.traces import TRACES, load, shortened

GREEN = TRACES / "green_SleepAgent_sleep.npz"


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """The simulator is compiled, so that no test meets the line that announces it."""
    make(chance="cyborg").reset(seed=0)


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
    assert (code, out.splitlines()[-1]) == (0, "87800 steps, 67 files, 0 mismatches")


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


COMMANDS_WITH_JSON = [("verify", GREEN), ("evaluate", "sleep", "--episodes", "2"), ("runs",)]


@pytest.mark.parametrize("command", COMMANDS_WITH_JSON, ids=lambda command: command[0])
def test_json_that_cannot_be_written_is_refused_before_any_work(stockade, tmp_path, command):
    for path, why in [(tmp_path / "no_such_folder" / "x.json", "no_such_folder"), (tmp_path, "is a folder")]:
        code, out, err = stockade(*command, "--json", path)
        assert (code, out) == (2, "")
        assert "--json" in err
        assert why in err


def test_json_to_standard_output_is_alone_there(stockade, altered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = stockade("verify", altered, "--json", "-")
    assert code == 1
    assert json.loads(out)["mismatches"] == 1
    assert err.splitlines()[-1] == "60 steps, 1 files, 1 mismatches"
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("arguments", "suggested"),
    [
        (("verfy",), "verify"),
        (("--verson",), "--version"),
        (("search", "--resume", "nothing", "--runs", "README.md"), "--runs README.md is a file"),
        (("evaluate", "nothing.zip"), "there is no file nothing.zip"),
        (("verify", "--jsn", "x", "file.npz"), "--json"),
        (("train", "--red-agnt", "x"), "--red-agent"),
        (("train", "--preset", "champon"), "'champion'"),
        (("train", "--red-agent", "meandr"), "'meander'"),
        (("evaluate", "chmpion"), "champion"),
        (("bench", "nothing"), "bench"),
    ],
)
def test_wrong_usage_ends_with_code_2_and_a_suggestion(stockade, arguments, suggested):
    code, out, err = stockade(*arguments)
    assert (code, out) == (2, "")
    assert suggested in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--max-steps", "0"), "--max-steps 0 "),
        (("--max-steps", "40000"), "--max-steps 40000 "),
        (("--red-agent", "nobody"), "--red-agent nobody "),
        (("--n-envs", "0"), "--n-envs 0 "),
        (("--gae-lambda", "2"), "--gae-lambda 2.0 "),
        (("--final-gamma", "-1"), "--final-gamma -1.0 "),
        (("--seed", "-1"), "--seed -1 "),
        (("--seed", str(2**64)), f"--seed {2**64} "),
        (("--shards", "1000000"), "--shards 1000000 "),
        (("--n-envs", "100000000000"), "--n-envs 100000000000 "),
        (("--name", "sleep"), "--name sleep "),
        (("--name", "builtin:sleep"), "--name builtin:sleep "),
        (("--name", "mine.zip"), "--name mine.zip "),
        (("--name", "../mine"), "--name ../mine "),
    ],
)
def test_errors_name_the_flag_on_the_command_line(stockade, flags, named, tmp_path):
    code, _, err = stockade("train", *flags, "--runs", tmp_path / "runs")
    assert code == 2
    assert err.startswith(f"stockade: {named}")
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"horizon": 0}, "horizon=0 "), ({"n_envs": 0}, "n_envs=0 "), ({"ppo": {"gae_lambda": 2.0}}, "gae_lambda=2.0 ")],
)
def test_errors_name_the_keyword_in_python(settings, named):
    ppo = settings.pop("ppo", {})
    with pytest.raises(SettingError) as refused:
        TrainConfig(**settings, ppo=PPOConfig(**ppo))
    assert str(refused.value).startswith(named)
    again = pickle.loads(pickle.dumps(refused.value))  # errors come from worker processes too
    assert (str(again), again.as_command()) == (str(refused.value), refused.value.as_command())


@pytest.mark.parametrize("command", ["train", "search", "evaluate sleep"])
def test_seeds_that_do_not_fit_are_refused(stockade, command):
    code, _, err = stockade(*command.split(), "--seed", 2**64 - 1)
    assert code == 2
    assert err.startswith(f"stockade: --seed {2**64 - 1} ")


def test_too_little_memory_is_one_short_line(stockade):
    code, _, err = stockade("evaluate", "sleep", "--episodes", "100000000000")
    assert code == 2
    assert err.startswith("stockade: not enough memory: Unable to allocate 2")
    assert len(err) < 80


def test_a_preset_gives_defaults_that_flags_change():
    config = cli.parse("train", ["--preset=champion", "--seed", "7", "--gamma", "0.5"])
    assert config == dataclasses.replace(CHAMPION, seed=7, ppo=dataclasses.replace(CHAMPION.ppo, gamma=0.5))
    assert cli.parse("train", ["--red-agent", "meander", "--max-steps", "30"]) == TrainConfig(red="meander", horizon=30)


def test_a_file_in_place_of_the_folder_of_runs_is_named(stockade, tmp_path):
    file = tmp_path / "README.md"
    file.write_text("no runs")
    commands = ["runs", "train --total-episodes 1", "train --resume x", "export x y", "evaluate x", "evaluate sleep"]
    for command in map(shlex.split, commands):
        code, _, err = stockade(*command, "--runs", file)
        assert code == 2
        assert f"--runs {file} is a file" in err


def test_what_is_a_search_is_called_so_with_the_command_to_use(stockade, tmp_path):
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "config.json").write_text(json.dumps({"command": "search", "seed": 0}))
    for command in (("train", "--resume", "found"), ("export", "found", tmp_path / "out")):
        code, _, err = stockade(*command, "--runs", tmp_path)
        assert code == 2
        assert f"is a search, not a training run; to continue it: stockade search --resume {tmp_path / 'found'}" in err
        assert f"stockade evaluate {tmp_path / 'found'}" in err


def test_a_missing_package_is_named_with_its_extra(stockade, monkeypatch):
    def unavailable(path):
        raise ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")

    monkeypatch.setattr(verify, "verify_file", unavailable)
    code, _, err = stockade("verify", GREEN)
    assert (code, err) == (2, "stockade: this needs torch, which is not installed: pip install 'stockade[train]'\n")


def test_an_error_of_a_vector_environment_is_one_line_and_code_1(stockade, monkeypatch):
    def died(path):
        raise WorkerDiedError("worker 1 was killed by SIGKILL", 1, (2, 3))

    monkeypatch.setattr(verify, "verify_file", died)
    code, _, err = stockade("verify", GREEN)
    assert (code, err) == (1, "stockade: worker 1 was killed by SIGKILL\n")


def test_an_interrupt_ends_with_code_130_and_one_line(stockade, monkeypatch):
    def interrupted(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(verify, "verify_file", interrupted)
    code, _, err = stockade("verify", GREEN)
    assert (code, err) == (130, "stockade: interrupted\n")


def test_ctrl_c_while_python_takes_itself_apart_changes_no_exit_code(tmp_path):
    script = """
        import os, signal, sys
        import stockade.startup
        class Last:
            def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
                kill(pid, number)
        sys.modules["kept until the end"] = Last()
    """
    (tmp_path / "stockade").write_text(textwrap.dedent(script))  # a process of this name is the command
    assert subprocess.run([sys.executable, str(tmp_path / "stockade")]).returncode == 0


def test_signs_that_the_terminal_does_not_know_are_no_error():
    command = [sys.executable, "-m", "stockade.cli", "evaluate", "sleep", "--episodes", "2"]
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert r"\xb1" in done.stdout  # plus or minus


def test_the_version(stockade):
    assert stockade("--version") == (0, f"stockade {version}\n", "")


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_the_overview_names_every_command_and_its_examples_parse(stockade, arguments):
    code, out, err = stockade(*arguments)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    examples = [shlex.split(line.split("   ")[0])[1:] for line in out.splitlines() if line.startswith("  stockade ")]
    assert examples
    for name, *flags in examples:
        cli.parse(name, flags)
    assert {line.split(" ")[0] for line in out.splitlines()} >= set(cli.COMMANDS)


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("name", [*sorted(cli.COMMANDS), "bench all"])
def test_help_fits_and_shows_no_python(stockade, name, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = stockade(*name.split(), "--help")
    assert code == 0
    usage, first, *_ = out.split("\n\n")
    assert max(map(len, out.splitlines())) <= width
    assert "{None" not in usage + out
    assert first[0].isupper(), "help begins with a sentence on what the command does"
    assert not any(line.startswith(" ") for line in first.splitlines()), "which is wrapped like any other"


@pytest.mark.parametrize(
    "name", ["train", "runs", "export", "verify", "evaluate", "search", "replay", "play", "report"]
)
def test_help_is_wrapped_where_the_column_ends_and_nowhere_else(stockade, name, monkeypatch):
    """A line ends only where the next word would not have fitted, or with its flag's explanation."""
    monkeypatch.setenv("COLUMNS", "100")
    lines = [line[2:-2] for line in stockade(name, "--help")[1].splitlines() if len(line) > 2]  # without the frame
    column = next(line.index("show this help") for line in lines if "--help" in line)
    for line, following in itertools.pairwise(lines):
        explanation = following[column:].strip()
        begun = line[column:].strip() and line[column - 2 : column].isspace()  # a long flag has a line of its own
        if begun and explanation and not following[:column].strip():
            assert len(line.rstrip()) + 1 + len(explanation.split()[0]) > len(line), following
    assert "(default: None)" not in "".join(lines)


def test_common_flags_come_first_and_those_of_the_learner_in_a_group_of_their_own(stockade):
    out = stockade("train", "--help")[1]
    places = [out.index(flag) for flag in ("--red-agent", "--seed", "--keep-checkpoints", "PPO options", "--gamma")]
    assert places == sorted(places)


def test_the_first_compilation_is_announced(tmp_path):
    command = [sys.executable, "-m", "stockade.cli", "train", "--runs", str(tmp_path / "runs")]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        first = process.stderr.readline()
        process.kill()
    assert first.startswith("compiling the simulator, once")
    assert not (tmp_path / "runs").exists()


def test_the_command_runs_as_a_process_of_its_own(altered):
    command = [sys.executable, "-m", "stockade.cli", "verify", str(altered)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "60 steps, 1 files, 1 mismatches"
    assert done.stderr == ""
