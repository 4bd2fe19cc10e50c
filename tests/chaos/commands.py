"""Chaos for commands: train, search, evaluate, runs and export through signals, kills, full disks and damaged files.

The model is an undisturbed run of the same settings: however often a run is interrupted and resumed, its end has the
same bits. References are made once, when they are first needed.
"""

import csv
import json
import os
import random
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stockade.learn.checkpoint import CheckpointFolder
from tests.chaos.checks import Command, Event, Violation, descendants, full_disk_at_times, mount, unmount

_TRAIN = "train --n-envs 16 --max-steps 10 --update-steps 20 --hidden 8 --no-tensorboard --checkpoint-episodes 60"
_SEARCH = "search --n-envs 20 --max-steps 8 --n-eval-episodes 10 --no-plots"
_SEPARATE = "--train separate --search round-robin --n-workflows 2 --max-episodes 200 --total-episodes 400"
#: Command lines that are disturbed, by name.
KINDS = {
    "train native": f"{_TRAIN} --total-episodes 600".split(),
    "train validated": f"{_TRAIN} --total-episodes 500 --validation-episodes 5 --seed 3".split(),
    "train shared_memory": f"{_TRAIN} --total-episodes 400 --backend shared_memory".split(),
    "train pipes": f"{_TRAIN} --total-episodes 300 --backend pipes".split(),
    "search together": f"{_SEARCH} --total-episodes 1600".split(),
    "search separate": f"{_SEARCH} {_SEPARATE}".split(),
    "search parallel": f"{_SEARCH} {_SEPARATE} --parallel 2".split(),
}
TRAINS, SEARCHES = [k for k in KINDS if k.startswith("train")], [k for k in KINDS if k.startswith("search")]
WORKERS = ("train shared_memory", "train pipes", "search parallel")  #: have processes of their own
_OF_TIME = {"seconds", "episodes_per_second", "collect_seconds", "update_seconds", "settings"}
_DONE, _FAILED, _UNUSABLE, _INTERRUPTED, _TERMINATED = 0, 1, 2, (130,), (143, -signal.SIGTERM)


# ----------------------------------------------------------------------------------------------------------- references
def reference(event: Event, kind: str) -> Path:
    """The folder of an undisturbed run, `x` in a folder of runs."""
    runs = event.references / kind.replace(" ", "-")
    if not (runs / "seconds").exists():
        shutil.rmtree(runs, ignore_errors=True)
        begin = time.monotonic()
        Command(event, *KINDS[kind], "--runs", runs, "--name", "x").end(_DONE)
        (runs / "seconds").write_text(str(time.monotonic() - begin))
    return runs / "x"


def seconds_of(event: Event, kind: str) -> float:
    return float((reference(event, kind).parent / "seconds").read_text())


def content(run: Path) -> dict[str, Any]:
    """All that must be the same in two runs of the same settings: names of array files have a digest of the content."""
    found: dict[str, Any] = {"arrays": sorted(path.name for path in run.rglob("*.safetensors"))}
    for name in ("metrics.csv", "gp_log.csv", "training_log.csv"):
        if (run / name).exists():
            rows = list(csv.DictReader((run / name).read_text().splitlines()))
            found[name] = [{key: value for key, value in row.items() if key not in _OF_TIME} for row in rows]
    if (run / "summary.json").exists():
        found["summary"] = _timeless(json.loads((run / "summary.json").read_text()))
    for path in sorted((run / "checkpoints").glob("*.json")):
        found[path.name] = _timeless(json.loads(path.read_text())["rest"])
    return found


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(entry) for key, entry in value.items() if key not in _OF_TIME}
    return [_timeless(entry) for entry in value] if isinstance(value, list) else value


def same_as_reference(event: Event, kind: str, run: Path, saves_failed: bool = False) -> None:
    """Bit for bit; but which of two trainings ends first is chance, and after failed saves only the end is the same."""
    ours, theirs = content(run), content(reference(event, kind))
    if saves_failed:
        last = max((name for name in theirs if name.startswith("checkpoint-")), default="").removesuffix(".json")
        if last and ours.get(f"{last}.json", {}).get("best", -1e300) > -1e300:
            best = ours.get("best.json", {}).get("best")
            if best != ours[f"{last}.json"]["best"]:
                raise Violation(f"{kind}: the last checkpoint knows of a best one that is not on disk ({best})")
        for found in (ours, theirs):
            for name in [n for n in found if n.endswith(".json")]:
                del found[name]
            old = ("best-", "checkpoint-")
            found["arrays"] = [n for n in found["arrays"] if not n.startswith(old) or n.startswith(last + "-")]
    else:  # a signal adds a checkpoint, which may push an older one out: what both have must be equal, and the last
        names = [{name for name in found if name.startswith("checkpoint-")} for found in (ours, theirs)]
        if names[1] and max(names[1]) != max(names[0], default=""):
            raise Violation(f"{kind}: the last checkpoint is not that of the undisturbed run: {sorted(names[0])}")
        for name in names[0] ^ names[1]:
            for found in (ours, theirs):
                found.pop(name, None)
                stem = name.removesuffix(".json") + "-"
                found["arrays"] = [each for each in found["arrays"] if not each.startswith(stem)]
    for found in (ours, theirs) if kind == "search parallel" else ():
        found["training_log.csv"].sort(key=lambda row: (row["number"], int(row["update"])))
        for row in found["training_log.csv"]:
            del row["total_episodes"]
        del found["summary"]["curves"]
        found["summary"]["trainings"].sort(key=lambda training: training["number"])
    for name in sorted(theirs.keys() | ours.keys()):
        if ours.get(name) != theirs.get(name):
            pairs = zip(_flat(ours.get(name)), _flat(theirs.get(name)), strict=False)
            first = next((pair for pair in pairs if pair[0] != pair[1]), "lengths")
            raise Violation(f"{kind}: {name} is not that of the undisturbed run, first difference {str(first)[:300]}")


def _flat(value: Any) -> list[str]:
    return json.dumps(value, indent=0, default=str).splitlines()


def readable(event: Event, run: Path) -> None:
    """Between sessions: the last checkpoint is whole, `runs` lists the run without a complaint."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if (run / "checkpoints").is_dir() and (found := CheckpointFolder(run / "checkpoints")).numbers():
            try:
                found.load_last()
            except Exception as error:
                raise Violation(f"an interruption has damaged {run}: {error}") from error
    lists = Command(event, "runs", "--runs", run.parent)
    lists.end(_DONE if (run / "config.json").exists() else _FAILED)
    if "skipped" in lists.read("err"):
        raise Violation(f"an interruption has damaged {run}: {lists.read('err')}")


# --------------------------------------------------------------------------------------------------------- disturbances
def disturb(event: Event, command: Command, seconds: float, workers: bool = False) -> tuple[int, ...]:
    """Do something to a command at a random moment of so many seconds; the exit codes that may follow."""
    chance = event.chance
    kinds = ["SIGKILL", "SIGKILL", "SIGINT", "SIGTERM", "SIGINT twice", "SIGSTOP", "terminal's SIGINT"]
    if workers:
        kinds += ["kill -9 of a worker"] * 2 + ["kill -9 of the fork server"] * 2
    kind = chance.choice(kinds)
    command.wait(chance.uniform(0, seconds))
    if command.code is not None:
        return (_DONE,)
    event.count(kind)
    if kind.startswith("kill -9"):
        servers = [p for p in descendants() if p.pid != command.pid and "forkserver" in str(p.cmdline())]
        chosen = [p for p in servers if (p.ppid() == command.pid) == kind.endswith("server")]  # it forks the workers
        if chosen:
            victim = chance.choice(chosen)
            event.note(f"victim {victim.pid} {' '.join(victim.cmdline())[:200]}")
            victim.kill()
        return _DONE, _FAILED
    if kind == "SIGSTOP":
        command.signal(signal.SIGSTOP, group=True)
        time.sleep(chance.uniform(0, 0.3))
        command.signal(signal.SIGCONT, group=True)
        return (_DONE,)
    number = signal.Signals[kind.split()[-1] if "'s" in kind else kind.split()[0]]
    command.signal(number, group="'s" in kind)
    if kind.endswith("twice"):
        command.wait(chance.expovariate(1 / 0.02))
        command.signal(number)
        return _DONE, *_INTERRUPTED, -signal.SIGINT
    return {"SIGKILL": (_DONE, -signal.SIGKILL), "SIGTERM": (_DONE, *_TERMINATED)}.get(kind, (_DONE, *_INTERRUPTED))


def through_interruptions(event: Event, kind: str, runs: Path, sessions: int) -> None:
    """Begin a run, disturb and resume it so many times, let it end; it must be the reference.

    A checkpoint holds the worlds of the native backend alone; with others, new episodes begin after a resume.
    """
    run, seconds, other_episodes = runs / "x", seconds_of(event, kind), False
    for session in range(sessions + 1):
        cold = event.chance.random() < 0.1
        again = [*KINDS[kind][:1], "--resume", run] if (run / "config.json").exists() else [*KINDS[kind], "--name", "x"]
        other_episodes |= kind in WORKERS and kind in TRAINS and any(run.glob("checkpoints/*.json"))
        parallel = ["--parallel", "2"] if kind == "search parallel" else []
        plots = ["--no-plots"] * (kind in SEARCHES and "--resume" in again)
        command = Command(event, *again, *plots, "--runs", runs, *parallel, cold=cold)
        codes = disturb(event, command, seconds + 2.0 * cold, kind in WORKERS) if session < sessions else (_DONE,)
        if command.end(*codes) == _DONE:
            break
        readable(event, run)
    if other_episodes:
        rows = content(run)["metrics.csv"]
        if [int(row["iteration"]) for row in rows] != [*range(1, len(rows) + 1)]:
            raise Violation(f"{kind}: metrics.csv has not each iteration once")
        if CheckpointFolder(run / "checkpoints").numbers()[-1] != len(rows):
            raise Violation(f"{kind}: the end is not in the last checkpoint")
    else:
        same_as_reference(event, kind, run)
    readable(event, run)


# ------------------------------------------------------------------------------------------------------------ scenarios
def train(event: Event) -> None:
    """A training, interrupted and resumed, ends with the bits of one that was not."""
    through_interruptions(event, event.chance.choice(TRAINS[:1] * 3 + TRAINS), event.folder, event.chance.randint(1, 5))


def search(event: Event) -> None:
    """A search likewise: all orders together, or separate trainings, one or two at a time."""
    through_interruptions(
        event, event.chance.choice([*SEARCHES[:2] * 2, SEARCHES[2]]), event.folder, event.chance.randint(1, 3)
    )


def full_disk(event: Event) -> None:
    """The disk is full, for ever or at times: the end is on disk, or the exit code says that it is not."""
    chance, kind = (
        event.chance,
        event.chance.choice(["train native", "train validated", "search together", "search separate"]),
    )
    reference(event, kind)
    runs, before = event.folder / "disk", None
    if event.can_mount and chance.random() < 0.6:
        mount(runs, f"{chance.randint(8, 120) * 4}k")
        event.count("full disk (tmpfs)")
    else:
        runs.mkdir()
        before = full_disk_at_times(chance, chance.choice([0.2, 0.6, 1.0]))
        event.count("full disk (injected)")
    try:
        _on_full_disk(event, kind, runs, before)
    finally:
        if os.path.ismount(runs):
            unmount(runs, event.folder / "disk-kept")


def _on_full_disk(event: Event, kind: str, runs: Path, before: Callable[[], None] | None) -> None:
    command = Command(event, *KINDS[kind], "--name", "x", "--runs", runs, before=before)
    code, run, said = command.end(_DONE, _FAILED, _UNUSABLE), runs / "x", command.read("err")
    if code == _UNUSABLE and any(run.rglob("*.safetensors")):
        raise Violation(f"{kind}: a full disk ended the work instead of a save: {said[-300:]}")
    if code == _DONE:
        same_as_reference(event, kind, run, saves_failed=True)
        return
    if not said.strip():
        raise Violation(f"{kind}: the end is not on disk, and nobody says so")
    if os.path.ismount(runs):
        mount(runs, "64m", again=True)
    again = [KINDS[kind][0], "--resume", run] if (run / "config.json").exists() else [*KINDS[kind], "--name", "x"]
    Command(event, *again, *["--no-plots"] * (kind in SEARCHES), "--runs", runs).end(_DONE)
    same_as_reference(event, kind, run, saves_failed=True)


def damaged_file(event: Event) -> None:
    """A file of a run is mutated; every command uses it as it was, says what it took instead, or refuses in a line."""
    chance, kind = event.chance, event.chance.choice([*TRAINS[:2], *SEARCHES[:2]])
    runs = event.folder / "runs"
    shutil.copytree(reference(event, kind), runs / "x")
    shutil.copytree(reference(event, "train native"), runs / "other")
    run = runs / "x"
    if chance.random() < 0.5 and kind in TRAINS:  # as if interrupted before the last checkpoint
        for path in (run / "checkpoints").glob(
            f"checkpoint-{CheckpointFolder(run / 'checkpoints').numbers()[-1]:08d}*"
        ):
            path.unlink()
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != "lock")
    victim = chance.choice(files)
    how = mutate(chance, victim, files)
    event.count(f"{how}: {'checkpoint' if victim.parent != run else victim.name}")
    event.note(f"{victim.relative_to(runs)}: {how}")
    lists = Command(event, "runs", "--runs", runs)
    lists.end(_DONE)
    if "other" not in lists.read("out"):
        raise Violation(f"{victim.name} is damaged ({how}), and `runs` does not list another run")
    Command(event, "runs", "x", "other", "--runs", runs).end(_DONE, _FAILED, _UNUSABLE)
    plays = Command(event, "evaluate", "x", "--runs", runs, "--episodes", "2", "--json", event.folder / "result.json")
    if plays.end(_DONE, _UNUSABLE) == _DONE and victim.suffix == ".safetensors":
        _same_play(event, kind, plays)
    if kind in TRAINS:
        Command(event, "export", "x", event.folder / "policy", "--runs", runs).end(_DONE, _UNUSABLE)
    resumed = Command(event, KINDS[kind][0], "--resume", run, *["--no-plots"] * (kind in SEARCHES))
    code, arrays = resumed.end(_DONE, _FAILED, _UNUSABLE), {*_arrays(run)} - {victim.name}
    if code == _DONE and kind in TRAINS and victim.parent != run and not arrays <= {*_arrays(reference(event, kind))}:
        raise Violation(f"{kind}: resumed from a damaged checkpoint ({how}), the weights are others")


def _arrays(run: Path) -> list[str]:
    return [path.name for path in run.rglob("checkpoint-*.safetensors")]


def _same_play(event: Event, kind: str, plays: Command) -> None:
    """A policy with altered arrays is never played: it is the undamaged one, or the replacement is named."""
    path = event.references / f"{kind.replace(' ', '-')}.json"
    if not path.exists():
        runs = reference(event, kind).parent
        Command(event, "evaluate", "x", "--runs", runs, "--episodes", "2", "--json", path).end(_DONE)
    ours, theirs = (json.loads(p.read_text())["cells"] for p in (event.folder / "result.json", path))
    if ours != theirs and "taking" not in plays.read("err"):
        raise Violation(f"{kind}: evaluate plays another policy without a word")


def mutate(chance: random.Random, victim: Path, others: list[Path]) -> str:
    """Damage a file; how."""
    how = chance.choice(["truncated", "emptied", "removed", "byte altered", "garbage", "swapped", "value altered"])
    raw, at = victim.read_bytes(), chance.randrange(max(1, victim.stat().st_size))
    if how == "value altered" and victim.suffix == ".json":
        data = json.loads(raw)
        places = [
            (node, key) for node in _nodes(data) for key in (node if isinstance(node, dict) else range(len(node)))
        ]
        node, key = chance.choice(places)
        node[key] = chance.choice([None, "x", [], {}, -1, 0, 1.5, True, 2, [[1]], "\ud800"])
        victim.write_text(json.dumps(data))
    elif how == "removed":
        victim.unlink()
    elif how == "swapped":
        other = chance.choice(others)
        ours, theirs = raw, other.read_bytes()
        victim.write_bytes(theirs)
        other.write_bytes(ours)
    else:
        length = chance.randint(1, 40)
        new = {
            "truncated": raw[:at],
            "emptied": b"",
            "garbage": raw[:at] + chance.randbytes(length) + raw[at + length :],
        }
        victim.write_bytes(
            new.get(how, raw[:at] + bytes([raw[at] ^ (1 << chance.randrange(8))]) + raw[at + 1 :] if raw else b"?")
        )
    return how


def _nodes(data: Any) -> list[Any]:
    """All lists and dictionaries with something in them."""
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [data] * bool(inner) + [node for value in inner for node in _nodes(value)]


def evaluate(event: Event) -> None:
    """A signal while a policy is played."""
    cold = event.chance.random() < 0.2
    runs = reference(event, "train native").parent
    command = Command(
        event, "evaluate", event.chance.choice(["x", "champion"]), "--runs", runs, "--episodes", "300", cold=cold
    )
    codes = disturb(event, command, 1.0 + 3.0 * cold)
    command.end(*codes)


def two_at_once(event: Event) -> None:
    """Two processes resume one run: one of them is refused, in one line, and the run is as if there were one."""
    kind = event.chance.choice(["train native", "search together", "search separate"])
    event.count("two processes resume one run")
    seconds, run = seconds_of(event, kind), event.folder / "x"
    first = Command(event, *KINDS[kind], "--name", "x", "--runs", event.folder)
    first.wait(event.chance.uniform(0, seconds))
    first.signal(signal.SIGKILL)
    first.end(_DONE, -signal.SIGKILL)
    if not (run / "config.json").exists():
        return
    words = [KINDS[kind][0], "--resume", run, *["--no-plots"] * (kind in SEARCHES)]
    both = [Command(event, *words), Command(event, *words)]
    for command in both:
        command.wait()
    codes = [command.end(_DONE, _UNUSABLE) for command in both]
    if _DONE not in codes:
        raise Violation(f"two processes that resume a run refuse each other: {codes}")
    same_as_reference(event, kind, run)
