"""Every bench, with tiny settings, really run: what was asked for is measured or told why not, and nothing is left."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import stockade
from stockade.bench import footprint
from stockade.bench.backends import PEERS
from stockade.bench.bottleneck import PARTS, BottleneckBench, StragglersBench
from stockade.bench.footprint import KernelBench, MemoryBench, StartupBench, weigh
from stockade.bench.result import Figure, Result
from stockade.bench.throughput import ScalingBench, ThroughputBench, TrueStateBench, VectorBench
from stockade.bench.train import LearnBench, TrainBench
from stockade.cage2.state import WORLD
from stockade.cli import main
from tests.processes import PATIENCE, wait_until

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common import read_result

TINY = {"rounds": 1, "seconds": 0.01}


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []
    helpers = ("forkserver", "resource_tracker", "semaphore_tracker")
    left = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    assert [one for one in left if not any(name in " ".join(one.cmdline()) for name in helpers)] == []


def find(result: Result, unit: str, **tags: object) -> list[Figure]:
    """Figures with this unit and these tags; a tag of None must be absent."""
    return [f for f in result.figures if f.unit == unit and all(f.tags.get(k) == v for k, v in tags.items())]


@pytest.mark.parametrize(("world", "peers"), [("synthetic", True), ("built-in", False)])
def test_throughput_measures_every_case_or_tells_why_not(tmp_path: Path, world: str, peers: bool) -> None:
    path, modes = tmp_path / "throughput.json", ("steps only", "twice a step") + (() if peers else ("every step",))
    others = ("CybORG", "MiniCAGE", "CartPole") if peers else ()
    bench = ThroughputBench(
        worlds=(world, *others), modes=modes, n_envs=(2,), native_n_envs=(50,), peers=peers, json=path, **TINY
    )
    assert bench.run() == 0
    result = read_result(path)
    skipped = [skip.what for skip in result.skipped]
    ours = ("native", "serial", "pipes", "shared_memory", "async", "ray")
    for mode in modes:
        for backend in (*ours, *(PEERS if peers else ())):
            found = find(result, "steps/s", world=world, mode=mode, backend=backend, n_envs=2)
            assert len(found) + (f"{world}, {mode}, {backend}, n=2" in skipped) == 1, (mode, backend)
            assert all(figure.value > 0 for figure in found)
        ratios = find(result, "times", world=world, mode=mode, to="pipes")
        assert len(ratios) == len(find(result, "steps/s", world=world, mode=mode, n_envs=2)) - 1
    for other in others:  # optional
        assert find(result, "steps/s", world=other) or any(what.startswith(other) for what in skipped)
    if world == "built-in":
        assert len(find(result, "steps/s", backend="native", n_envs=50)) == 2
    else:  # no way gets more out of the cores than steps of 2.2 ms of CPU time each allow
        limit = result.stamp["cores"] / 0.0022
        assert all(figure.value < 1.05 * limit for figure in find(result, "steps/s", world="synthetic"))


@pytest.mark.parametrize(("world", "peers"), [("synthetic", True), ("built-in", False)])
def test_bottleneck_shares_sum_to_everything(world: str, peers: bool) -> None:
    modes = ("steps only", "twice a step", "every step") if world == "synthetic" else ("twice a step", "every step")
    backends = ("native", "serial", "shared_memory", "async") + (("pipes, a worker each",) if peers else ())
    bench = BottleneckBench(worlds=(world,), modes=modes, backends=backends, n_envs=2, peers=peers, **TINY)
    result = bench.result()
    cases = {(f.tags["world"], f.tags["mode"], f.tags["backend"]) for f in result.figures}
    assert len(cases) + len(result.skipped) == len(modes) * (len(backends) + 2 * peers)
    for _, mode, backend in cases:
        case = {"world": world, "mode": mode, "backend": backend, "n_envs": 2}
        shares = {str(f.tags["part"]): f.value for f in find(result, "% of the time", **case)}
        assert sorted(shares) == sorted(PARTS)
        assert sum(shares.values()) == pytest.approx(100)
        assert min(shares.values()) >= 0
        assert shares["environment"] > 0
        assert (shares["true states"] > 0) == (mode != "steps only" and (world, mode) != ("built-in", "every step"))
        (total,) = find(result, "ms", part="total", **case)
        assert total.value > 0
        if world == "synthetic":
            workers = 1 if backend == "serial" else min(2, result.stamp["cores"])
            needed = 2 * 2.2 + {"steps only": 0, "twice a step": 4, "every step": 2}[str(mode)] * 1.3
            inside = (shares["environment"] + shares["true states"]) / 100 * total.value * workers
            if backend != "async":  # there turns overlap
                assert needed * 0.99 <= inside


def test_stragglers_stand_beside_their_bounds() -> None:
    result = StragglersBench(sigmas=(0.0, 1.0), n_envs=4, step_ms=1.0, rounds=1, seconds=0.05).result()
    for sigma in (0.0, 1.0):
        measured = [f for f in find(result, "of the cores", sigma=sigma) if f.tags.get("kind") != "bound"]
        assert len(measured) == 4
        assert all(0 < figure.value < 1.05 for figure in measured)
        assert len(find(result, "of the cores", sigma=sigma, kind="bound")) == 4
        assert len(find(result, "times", sigma=sigma, to="shared_memory")) == 3


def test_true_states_every_mode_has_its_cost() -> None:
    backends = ("native", "serial", "async")
    result = TrueStateBench(backends=backends, n_envs=2, **TINY).result()
    skipped = [skip.what for skip in result.skipped]
    for world in ("synthetic", "built-in"):
        for backend in backends:
            for mode in ("steps only", "twice a step", "every step", "every 10 steps", "episode end"):
                case = {"world": world, "backend": backend, "mode": mode}
                rates = find(result, "steps/s", **case)
                assert len(rates) + (f"{world}, {mode}, {backend}, n=2" in skipped) == 1
                assert len(find(result, "%", to="steps only", **case)) == (len(rates) if mode != "steps only" else 0)


@pytest.mark.slow
def test_scaling_covers_worlds_workers_and_crossings() -> None:
    result = ScalingBench(
        native_n_envs=(1, 500), n_envs=(2,), workers=(1, 3), takeover_n_envs=(2,), step_us=(10, 1000), **TINY
    ).result()
    cores = result.stamp["cores"]
    assert len(find(result, "steps/s", part="native")) == 2 * len({1, cores, "default"})
    assert len(find(result, "steps/s", part="n_envs")) == 2 * 4
    assert len(find(result, "steps/s", part="workers")) == 2 * 3 * 2
    assert all(f.value < 1.1 for f in find(result, "of the cores", part="n_envs", world="synthetic"))
    assert len(find(result, "times", part="takeover")) == 2 * 3
    assert len(find(result, "microseconds", part="crossing")) + len(result.skipped) == 3


def test_kernel_measures_what_make_vec_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def make_vec(n: int, **options: object) -> Any:
        asked.append({"n": n, **options})
        return stockade.vector.NativeVectorEnv(n, **options)

    monkeypatch.setattr(stockade, "make_vec", make_vec)
    result = KernelBench(quick=True, rounds=1, n_envs=64).result()
    for red in ("bline", "meander"):
        one, two, slow = (find(result, "million steps/s", case=f"{red}, {how}")[0].value
                          for how in ("fast, 1 thread", "fast, 2 threads", "slow model"))  # fmt: skip
        assert {"n": 64, "copy": False, "red": red, "chance": "fast", "threads": 2} in asked
        assert find(result, "times", case=f"{red}, 2 threads to 1")[0].value == pytest.approx(two / one)
        assert find(result, "times", case=f"{red}, fast to slow model")[0].value == pytest.approx(one / slow)
    assert {f.tags["case"] for f in find(result, "nanoseconds")} == {
        f"a step of a world, n={n}" for n in ("1,000", "10,000", "100,000")
    }
    assert find(result, "seconds", case="start with compiled code cached")[0].value > 0
    assert not find(result, "seconds", case="first start, compiling")


@pytest.mark.slow
def test_memory_of_workers_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ways with a worker for each environment; a fresh process for every way there is would take half a minute."""
    theirs = "Gymnasium AsyncVectorEnv"
    monkeypatch.setattr(footprint, "OURS", ("native", "pipes, a worker each"))
    monkeypatch.setattr(footprint, "PEERS", {theirs: PEERS[theirs]})
    result = MemoryBench(rounds=1, n_envs=(3,), native_worlds=200_000).result()
    for backend in ("pipes, a worker each", theirs):
        (one,), (all_workers,) = (find(result, "MiB", backend=backend, part=p) for p in ("a worker", "all workers"))
        assert one.tags["workers"] == 3
        assert all_workers.value == pytest.approx(3 * one.value)
        assert 1 < one.value < 1000
    backends = {f.tags["backend"] for f in find(result, "MiB", part="all")}
    assert backends == {"native", "pipes, a worker each", theirs}
    grown, record = find(result, "bytes", part="a world", chance="fast")
    assert record.value < grown.value < 10 * record.value


def test_memory_that_was_freed_before_is_counted_again() -> None:
    """1,000 native worlds weigh at least their records, although the process has freed larger blocks before."""
    records = 1000 * WORLD.itemsize / 2**20
    _, growth = weigh("native", 1000)
    assert records < growth < 10 * records


@pytest.mark.slow
def test_startup_of_every_method() -> None:
    result = StartupBench(rounds=1, workers=(1, 2), spawn_up_to=1).result()
    for method, workers in (("fork", 1), ("fork", 2), ("forkserver", 2), ("spawn", 1)):
        for backend in ("pipes", "shared_memory"):
            case = {"start_method": method, "workers": workers, "backend": backend}
            assert [f.tags["part"] for f in find(result, "s", **case)] == ["start", "close"]
    assert [skip.why for skip in result.skipped if "spawn" in skip.what] == 2 * ["more than --spawn-up-to 1"]


@pytest.mark.slow
def test_vector_compares_with_the_peers() -> None:
    result = VectorBench(n_envs=(4,), efficiency_n_envs=4, **TINY).result()
    overhead = find(result, "steps/s", part="overhead")
    assert {"serial", "pipes", "shared_memory", "async", "Gymnasium SyncVectorEnv"} <= {
        f.tags["backend"] for f in overhead
    }
    assert find(result, "times", backend="serial", to="Gymnasium SyncVectorEnv")
    efficiency = find(result, "of the cores", part="efficiency")
    assert {f.tags["step_us"] for f in efficiency} == {100, 2200}
    assert all(0 < f.value < 1.1 for f in efficiency)


def test_train_shows_every_phase() -> None:
    result = TrainBench(rounds=1, iterations=1, n_envs=(8, 16)).result()
    for n in (8, 16):
        assert [f.tags["case"] for f in find(result, "episodes/s", n_envs=n)][:2] == ["2 threads", "1 thread"]
        for case in ("2 threads", "1 thread"):
            shares = {f.tags["part"]: f.value for f in find(result, "%", n_envs=n, case=case)}
            assert {"world", "policy", "advantage", "update", "the rest"} == set(shares)
            assert sum(shares.values()) == pytest.approx(100)


def test_learn_trains_both() -> None:
    result = LearnBench(episodes=40, rounds=1, red_agent="meander", n_envs=20).result()
    returns = {f.tags["case"]: f.value for f in find(result, "return")}
    assert set(returns) == {"ours", "Stable-Baselines3"}
    assert all(-900 < mean < -100 for mean in returns.values())  # both begin as the random policy does: -588


# -------------------------------------------------------------------------------------------------------- bad arguments
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["throughput", "--rounds", "0"], "--rounds 0"),
        (["throughput", "--n-envs", "20", "-1"], "--n-envs -1"),
        (["throughput", "--n-envs"], "--n-envs needs at least one value"),
        (["throughput", "--backends", "pipe"], "pipe is unknown; take native, serial, pipes"),
        (["throughput", "--worlds", "mars"], "mars is unknown"),
        (["throughput", "--modes", "twice"], "twice is unknown"),
        (["throughput", "--seconds", "0"], "--seconds 0"),
        (["throughput", "--seconds", "nan"], "--seconds nan"),
        (["throughput", "--json", "no/such/folder/a.json"], "there is no folder"),
        (["scaling", "--parts", "everything"], "everything is unknown"),
        (["scaling", "--workers", "65"], "--workers 65"),
        (["scaling", "--step-us", "-1"], "--step-us -1"),
        (["bottleneck", "--n-envs", "0"], "--n-envs 0"),
        (["stragglers", "--sigmas", "-0.5"], "--sigmas -0.5"),
        (["stragglers", "--n-envs", "2"], "at least 4"),
        (["true-state", "--modes", "never"], "never is unknown"),
        (["memory", "--native-worlds", "1"], "at least 1000"),
        (["startup", "--methods", "knife"], "knife is unknown"),
        (["kernel", "--model", "no_such_model.py"], "no such Python file"),
        (["vector", "--parts", "start"], "start is unknown"),
        (["train", "--iterations", "0"], "--iterations 0"),
        (["learn", "--red-agent", "nobody"], "nobody"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["bench", *arguments])
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert told in err
    assert "Traceback" not in err
    assert out == ""


@pytest.mark.parametrize("backend", ["shared_memory", "Gymnasium"])
def test_an_interrupt_leaves_nothing(tmp_path: Path, backend: str) -> None:
    ours = "shared_memory" if backend == "shared_memory" else "serial"
    options = ["--worlds", "synthetic", "--modes", "steps only", "--backends", ours, "--n-envs", "6"]
    options += ["--seconds", "30" if backend == "shared_memory" else "0.01", "--rounds", "100"]
    options += ["--json", str(tmp_path / "a.json"), "--no-peers" if backend == "shared_memory" else "--peers"]
    bench = subprocess.Popen(
        [sys.executable, "-m", "stockade.cli", "bench", "throughput", *options],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        process = psutil.Process(bench.pid)
        wait_until(lambda: len(process.children(recursive=True)) >= 3, "no worker is started")
        os.killpg(bench.pid, signal.SIGINT)  # as the terminal does: everybody gets it
        _, err = bench.communicate(timeout=PATIENCE)
        assert bench.returncode == 130, err.decode()[-2000:]
        assert b"stockade: interrupted" in err
        assert not (tmp_path / "a.json").exists()
        wait_until(lambda: not _session(bench.pid), "processes have outlived the bench")
    finally:
        for number in _session(bench.pid):
            psutil.Process(number).kill()
        bench.communicate()


def _session(leader: int) -> list[int]:
    found = []
    for number in psutil.pids():
        try:
            if os.getsid(number) == leader and psutil.Process(number).status() != psutil.STATUS_ZOMBIE:
                found.append(number)
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return found


def test_results_are_json_that_others_can_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "stragglers.json"
    arguments = ["--sigmas", "0", "--n-envs", "4", "--step-ms", "0.1", "--rounds", "2", "--seconds", "0.01"]
    with pytest.raises(SystemExit) as stop:
        main(["bench", "stragglers", *arguments, "--json", str(path)])
    assert stop.value.code == 0
    content = json.loads(path.read_text())
    assert (
        content["command"]
        == "stockade bench stragglers --rounds 2 --sigmas 0.0 --n-envs 4 --step-ms 0.1 --seconds 0.01"
    )
    assert all(len(f["rounds"]) == 2 for f in content["figures"] if f["tags"].get("kind") != "bound")
    assert "shared_memory" in capsys.readouterr().out
