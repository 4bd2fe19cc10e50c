"""Made-up results with the tags of everything that the benches measure by default."""

import itertools
from collections.abc import Iterator

from stockade.bench import bottleneck, memory, stragglers
from stockade.bench.bottleneck import BottleneckBench
from stockade.bench.command import Notes
from stockade.bench.figures import Figure, figure_of
from stockade.bench.memory import MemoryBench
from stockade.bench.ours import why_not
from stockade.bench.result import Result, Skipped
from stockade.bench.scaling import ScalingBench
from stockade.bench.startup import StartupBench
from stockade.bench.stragglers import StragglersBench
from stockade.bench.throughput import ThroughputBench
from stockade.bench.train import TrainBench
from stockade.bench.true_state import TrueStateBench
from tests.bench.results import result

_values = itertools.count(1)


def _figure(unit: str, **tags: str | int | float) -> Figure:
    """Every figure has other values, so that a wrong one is noticed."""
    value = next(_values)
    what = ", ".join(f"{name}={tag}" for name, tag in tags.items())
    return figure_of(what, [value + 0.1, value + 0.5, value + 0.9], unit, **tags)


def complete() -> list[Result]:
    """A result of each bench that a claim is answered by, with Ray as if it were installed."""
    skipped = (Skipped("PufferLib", "it is not installed: pip install pufferlib"),)
    return [
        result("throughput", _throughput(), skipped),
        result("scaling", _scaling()),
        result("bottleneck", _bottleneck()),
        result("stragglers", _stragglers()),
        result("true-state", _true_state()),
        result("memory", _memory()),
        result("startup", _startup()),
        result("train", _train()),
        result("kernel", _kernel()),
    ]


def _throughput() -> Iterator[Figure]:
    bench = ThroughputBench(worlds=("synthetic", "built-in"))
    for group in bench._groups(Notes("throughput")):
        for case in group:
            yield _figure("steps/s", **case.tags)
            if case.tags["backend"] != "pipes":
                yield _figure("times", **case.tags, to="pipes")
    for world, n in itertools.product(bench.worlds, bench.n_envs):
        yield _figure("steps/s", world=world, mode="steps only", backend="ray", n_envs=n, kind="ours")


def _scaling() -> Iterator[Figure]:
    bench = ScalingBench()
    for n, threads in itertools.product(bench.native_n_envs, (1, 2)):
        yield _figure("steps/s", part="native", backend="native", n_envs=n, threads=threads)
    backends = ("serial", "pipes", "shared_memory", "async")
    for world, backend, n in itertools.product(("synthetic", "built-in"), backends, bench.n_envs):
        yield _figure("steps/s", part="n_envs", world=world, backend=backend, n_envs=n)
        yield _figure("of the cores", part="n_envs", world=world, backend=backend, n_envs=n)
    for backend, workers, cost in itertools.product(backends[1:], bench.workers, (100, 2200)):
        tags = {"part": "workers", "backend": backend, "workers": workers, "n_envs": 64, "step_us": cost}
        yield _figure("steps/s", **tags)
        yield _figure("of the cores", **tags)
    for backend, n in itertools.product(backends[1:], bench.takeover_n_envs):
        yield _figure("microseconds", part="crossing", backend=backend, n_envs=n)
        for cost in bench.step_us:
            yield _figure("times", part="takeover", backend=backend, n_envs=n, step_us=cost, to="serial")


def _bottleneck() -> Iterator[Figure]:
    bench = BottleneckBench()
    for world, mode, backend in itertools.product(bench.worlds, bench.modes, bench.backends):
        if why_not(backend, world, mode):
            continue
        tags = {"world": world, "mode": mode, "backend": backend, "n_envs": bench.n_envs}
        for part in bottleneck.PARTS:
            yield figure_of(f"{tags} {part}", [20.0, 20.0, 20.0], bottleneck.SHARE, part=part, **tags)
        yield _figure("ms", part="total", **tags)
        if mode == "twice a step":
            yield _figure("% of the wall time", part="calls", **tags)


def _stragglers() -> Iterator[Figure]:
    bench = StragglersBench()
    for sigma, backend in itertools.product(bench.sigmas, bench.backends):
        yield _figure(stragglers.UNIT, backend=backend, sigma=sigma, n_envs=bench.n_envs)
        if backend != "shared_memory":
            yield _figure("times", backend=backend, sigma=sigma, n_envs=bench.n_envs, to="shared_memory")
    for sigma in bench.sigmas:
        for name, bound in stragglers.bounds(sigma, bench.n_envs, 2).items():
            tags = {"kind": "bound", "backend": name, "sigma": sigma, "n_envs": bench.n_envs}
            yield figure_of(f"sigma {sigma}, bound: {name}", [bound], stragglers.UNIT, **tags)


def _true_state() -> Iterator[Figure]:
    bench = TrueStateBench()
    for world, mode, backend in itertools.product(bench.worlds, bench.modes, bench.backends):
        if why_not(backend, world, mode):
            continue
        tags = {"world": world, "mode": mode, "backend": backend, "n_envs": bench.n_envs}
        yield _figure("steps/s", **tags)
        if mode != "steps only":
            yield _figure("%", **tags, to="steps only")


def _memory() -> Iterator[Figure]:
    bench = MemoryBench()
    for backend, n in itertools.product(memory.OURS, bench.n_envs):
        if backend.endswith("each") and n > bench.processes:
            continue
        for part in ("a worker", "all workers", "main process", "all"):
            yield _figure("MiB", part=part, backend=backend, n_envs=n, workers=2)


def _startup() -> Iterator[Figure]:
    bench = StartupBench()
    for backend, method, n in itertools.product(("pipes", "shared_memory"), bench.methods, bench.workers):
        for part in ("start", "close"):
            yield _figure("s", part=part, backend=backend, start_method=method, workers=n, n_envs=n)


def _train() -> Iterator[Figure]:
    for n, case in itertools.product(TrainBench().n_envs, ("2 threads", "1 thread", "Stable-Baselines3")):
        yield _figure("episodes/s", n_envs=n, case=case)


def _kernel() -> Iterator[Figure]:
    for red, how in itertools.product(("bline", "meander"), ("fast, 1 thread", "fast, 2 threads", "cyborg, 1 thread")):
        yield figure_of(f"{red}, {how}", [next(_values)], "million steps/s", part="steps")
    for what, unit in (
        ("one environment (Gymnasium Env)", "thousand steps/s"),
        ("one environment, info=False", "thousand steps/s"),
        ("snapshot of one world, fast", "microseconds"),
        ("memory of a world, fast", "bytes"),
        ("start with compiled code cached", "seconds"),
        ("first start, compiling", "seconds"),
    ):
        yield figure_of(what, [next(_values)], unit)
