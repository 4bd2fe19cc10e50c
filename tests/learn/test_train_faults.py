"""A training that cannot write, or finds its files damaged or changed: every loss is said, and nothing else is lost."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stockade import cli
from stockade.errors import InputError
from stockade.files import AppendedFile
from stockade.learn import checkpoint
from stockade.learn.checkpoint import CheckpointFolder
from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.runs import ExportConfig, read_summary
from stockade.learn.train import _Session, make_learner, train
from tests.processes import PATIENCE, wait_until

CONFIG = TrainConfig(
    total_episodes=400, n_envs=16, horizon=20, checkpoint_episodes=60, tensorboard=False,
    ppo=PPOConfig(update_steps=50, minibatch_size=400, hidden=(16,)),
)  # fmt: skip
FLAGS = ["--total-episodes", "400", "--n-envs", "16", "--max-steps", "20", "--checkpoint-episodes", "60",
         "--update-steps", "50", "--minibatch-size", "400", "--hidden", "16"]  # fmt: skip
#: For machines on which nothing can be mounted: from the second checkpoint on there is no room for one.
NO_ROOM = """
import os
real, large = os.fsync, []
def fsync(file):
    if os.fstat(file).st_size > 20_000:
        large.append(file)
        if len(large) > 1:
            raise OSError(28, "No space left on device")
    real(file)
os.fsync = fsync
"""


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[bool]:
    """A file system of this size in a folder, if that is allowed; whether it is."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = (
        shutil.which("mount") is not None and not subprocess.run(mount, check=False, capture_output=True).returncode
    )
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def train_by_command(runs: Path, *flags: str, before: str = "") -> tuple[int, str]:
    """Exit code and standard error of `stockade train`."""
    code = f"{before}\nfrom stockade.cli import main\nmain({['train', *flags, '--runs', str(runs), '--name', 'x']!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


# ------------------------------------------------------------------------------------------------- a full disk
def test_a_full_disk_is_warned_about_at_every_save_and_the_end_says_what_is_lost(tmp_path: Path) -> None:
    with small_disk(tmp_path, "160k") as mounted:
        code, said = train_by_command(tmp_path, *FLAGS, "--no-tensorboard", before="" if mounted else NO_ROOM)
        saved = CheckpointFolder(tmp_path / "x" / "checkpoints").load_last()
        summary = read_summary(tmp_path / "x")
    assert code == 1
    assert "Traceback" not in said
    assert said.count("UserWarning") >= 5, "one for each save that failed, and for the last try"
    assert "--resume" in said.splitlines()[-1]
    assert saved.rest["episodes"] < 400
    assert (summary["status"], summary["episodes"]) == ("interrupted", saved.rest["episodes"])


@pytest.mark.slow
def test_metrics_and_events_that_find_no_room_do_not_end_a_run(tmp_path: Path) -> None:
    with small_disk(tmp_path, "20k") as mounted:
        if not mounted:
            pytest.skip("nothing can be mounted here")
        (tmp_path / "other").write_bytes(bytes(8000))
        flags = [*FLAGS, "--update-steps", "5"]  # so that there are many lines
        code, said = train_by_command(tmp_path, *flags)
    assert code == 1
    assert "Traceback" not in said
    for name in ("metrics.csv", "tfevents", "checkpoint-"):
        assert said.count(name) > 2, name
    assert "not all on disk" in said.splitlines()[-1]


def test_what_could_not_be_written_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AppendedFile(tmp_path / "new" / "x", b"one ")
    real = Path.open

    def half(self: Path, *args: Any, **options: Any) -> Any:
        with real(self, "ab") as opened:
            opened.write(b"tw")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", half)
        for word in (b"two ", b"three "):
            with pytest.warns(UserWarning, match="No space left"):
                assert not file.append(word)
    assert file.read() == b"one two three "
    assert file.append(b"")
    assert (tmp_path / "new" / "x").read_bytes() == b"one two three "


@pytest.mark.parametrize("failing", ["best", "checkpoint", "both"])
def test_the_best_checkpoint_is_the_best_that_could_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Scores -50, -10 (not saved), -30, -20."""
    (tmp_path / "x").mkdir()
    real, broken = checkpoint.save, []

    def save(path: Path, saved: checkpoint.Checkpoint) -> None:
        if broken and (failing == "both" or path.name.startswith(failing)):
            raise OSError(28, "No space left on device")
        real(path, saved)

    monkeypatch.setattr(checkpoint, "save", save)
    folder = CheckpointFolder(tmp_path / "x" / "checkpoints")
    with contextlib.closing(make_learner(CONFIG)) as learner:
        session = _Session(CONFIG, tmp_path / "x", learner, progress=False)
        for score, best in ((-50.0, -50.0), (-10.0, -50.0), (-30.0, -30.0), (-20.0, -20.0)):
            learner.iterate(0.0)
            broken[:] = [True] * (score == -10)
            with pytest.warns(UserWarning, match="No space") if broken else contextlib.nullcontext():
                session._save(score)
            expected = -10.0 if failing == "checkpoint" and score != -50 else best
            assert checkpoint.load(folder.folder / "best").rest["best"] == expected
            if not (broken and failing != "best"):
                assert folder.load_last().rest["best"] == expected


# ---------------------------------------------------------------------------------------- damaged and edited files
@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("finished")
    assert train(dataclasses.replace(CONFIG, runs=runs, name="x"), progress=False).saved
    return runs


@pytest.fixture
def runs(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "runs"))


@pytest.mark.parametrize("line", [0, 3])
def test_a_damaged_line_of_metrics_does_not_keep_a_run_from_continuing(runs: Path, line: int) -> None:
    path = runs / "x" / "metrics.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    whole = [*lines]
    lines[line] = b"\xff" + lines[line]
    path.write_bytes(b"".join(lines))
    with pytest.raises(InputError, match=r"metrics.csv: 1 line damaged"):
        read_summary(runs / "x")
    with pytest.warns(UserWarning, match=r"metrics.csv: 1 line damaged; .* kept as"):
        assert train(TrainConfig.resumed("x", runs), progress=False).saved
    assert path.read_bytes().splitlines(keepends=True) == [*whole[:1], *(x for x in whole[1:] if x in lines)]
    assert path.with_suffix(".damaged").read_bytes() == b"".join(lines)
    assert read_summary(runs / "x")["status"] == "finished"


EDITS = {
    "n_envs": "many", "total_episodes": None, "seed": 1.5, "red": 5, "ppo": [], "backend": "nope", "horizon": "20",
    "rules": ["both"], "reward": {"hosts": "x"}, "n_environments": 3,
}  # fmt: skip
EDITS_OF_PPO = {"activation": "selu", "hidden": [8.5], "clip": "x", "shared": 1}
#: These could be settings of a run, but not of this one's checkpoint.
OTHERS = {"n_envs": 32, "obs": "bits", "horizons": "20,30"}


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [(None, *item) for item in (*EDITS.items(), *OTHERS.items())] + [("ppo", *item) for item in EDITS_OF_PPO.items()],
)
def test_an_edited_config_is_refused_in_one_line(
    runs: Path, capsys: pytest.CaptureFixture[str], part: str | None, name: str, value: object
) -> None:
    path = runs / "x" / "config.json"
    content = json.loads(path.read_text())
    (content if part is None else content[part])[name] = value
    path.write_text(json.dumps(content))
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "--resume", "x", "--runs", str(runs)])
    assert ended.value.code == 2
    assert str(runs / "x") in capsys.readouterr().err


@pytest.mark.parametrize("flags", ["--total-episodes 100000", "--name y", "--gamma 0.9", "--preset champion"])
def test_a_flag_beside_resume_is_refused_even_if_it_is_the_default(
    runs: Path, capsys: pytest.CaptureFixture[str], flags: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "--resume", "x", "--runs", str(runs), *flags.split()])
    assert ended.value.code == 2
    assert f"{flags} cannot be changed by --resume" in capsys.readouterr().err
    same = cli.parse("train", ["--resume", "x", "--runs", str(runs), "--total-episodes", "400"])
    assert same == TrainConfig.resumed("x", runs)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("train --preset champion --max-steps 30", "--max-steps 30 is of no use beside --horizons"),
        ("evaluate sleep --official-order --chance cyborg --simulator cyborg", "leave one of them out"),
        ("evaluate champion --last", "--last is for runs"),
    ],
)
def test_a_flag_that_could_not_be_obeyed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, problem: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([*command.split(), "--runs", str(tmp_path)])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("last", [False, True])
def test_an_exported_policy_has_no_score_if_it_was_never_judged(runs: Path, last: bool) -> None:
    """400 episodes are too few for a best: the last checkpoint is taken in any case."""
    assert ExportConfig("x", runs / "p", last=last, runs=runs).run() == 0
    assert checkpoint.load(runs / "p").rest["score"] is None


# ------------------------------------------------------------------------------------------------- other processes
def test_the_lock_of_a_run_says_who_holds_it(runs: Path) -> None:
    code = f"""
from pathlib import Path
from stockade.learn.files import run_session
with run_session(Path({str(runs / "x")!r})):
    print("held", flush=True)
    input()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=rf"another process \({holder.pid} on "):
            train(TrainConfig.resumed("x", runs))
        holder.kill()
    assert train(TrainConfig.resumed("x", runs), progress=False).saved


def test_a_killed_worker_ends_a_training_in_one_line(tmp_path: Path) -> None:
    flags = [*FLAGS, "--no-tensorboard", "--backend", "shared_memory", "--runs", str(tmp_path), "--name", "x"]
    command = [sys.executable, "-m", "stockade.cli", "train", *flags, "--total-episodes", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        checkpoints = CheckpointFolder(tmp_path / "x" / "checkpoints")
        wait_until(lambda: checkpoints.numbers() or process.poll() is not None, "it does not train")
        os.kill(_youngest_descendant(process.pid), signal.SIGKILL)
        said = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 1
    assert "Traceback" not in said
    assert "SIGKILL" in said.splitlines()[-1]
    summary = read_summary(tmp_path / "x")
    assert summary["status"] == "failed"
    assert "SIGKILL" in summary["failure"]


def _youngest_descendant(parent: int) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return max([parent, *(_youngest_descendant(int(child)) for child in children)])


def test_rollouts_of_one_step_are_learned_from(tmp_path: Path) -> None:
    """All episodes begin at once, so that some rollouts hold nothing but beginnings."""
    config = dataclasses.replace(CONFIG, n_envs=4, horizon=5, total_episodes=16, ppo=PPOConfig(update_steps=1))
    result = train(dataclasses.replace(config, runs=tmp_path), progress=False)
    assert result.episodes == 16
    assert len(result.metrics["episodes"]) == 5 * 4 + 3
