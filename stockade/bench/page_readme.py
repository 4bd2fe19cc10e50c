"""The README's part about speed: a table of backends beside other libraries, and a few figures in a line each."""

from __future__ import annotations

from stockade.bench.page_asks import STEPS, TWICE, episodes, rate, weight
from stockade.bench.report_tables import Ask, Results, cell, markdown, measure, texts

N_ENVS = 200
"""The number of environments that the table shows: the most that all were measured with."""
_ROWS = {
    "native": "`native`",
    "shared_memory": "`shared_memory`",
    "async": "`async`",
    "pipes": "`pipes`",
    "serial": "`serial`",
    "Gymnasium AsyncVectorEnv": "Gymnasium `AsyncVectorEnv`",
    "Gymnasium SyncVectorEnv": "Gymnasium `SyncVectorEnv`",
    "Stable-Baselines3 SubprocVecEnv": "Stable-Baselines3 `SubprocVecEnv`",
    "Stable-Baselines3 DummyVecEnv": "Stable-Baselines3 `DummyVecEnv`",
    "PufferLib": "PufferLib",
}
_COLUMNS = {
    "the built-in world": ("built-in", STEPS),
    "with true states before and after": ("built-in", TWICE),
    "an environment as slow as the reference": ("synthetic", STEPS),
    "with true states, too": ("synthetic", TWICE),
}
_MILLIONS = "million steps/s"


def _kernel(what: str, unit: str = _MILLIONS) -> Ask:
    return Ask("kernel", {"what": what}, unit)


_FACTS: dict[str, tuple[Ask, ...]] = {
    "the kernel, one thread, against B_line; Meander": (
        _kernel("bline, fast, 1 thread"),
        _kernel("meander, fast, 1 thread"),
    ),
    "two threads": (_kernel("bline, fast, 2 threads"), _kernel("meander, fast, 2 threads")),
    'one thread, `chance="cyborg"`': (_kernel("bline, cyborg, 1 thread"), _kernel("meander, cyborg, 1 thread")),
    "one Gymnasium environment; with `info=False`": (
        _kernel("one environment (Gymnasium Env)", "thousand steps/s"),
        _kernel("one environment, info=False", "thousand steps/s"),
    ),
    "a snapshot of a world; its memory": (
        _kernel("snapshot of one world, fast", "microseconds"),
        _kernel("memory of a world, fast", "bytes"),
    ),
    "the start; the first one, which compiles": (
        _kernel("start with compiled code cached", "seconds"),
        _kernel("first start, compiling", "seconds"),
    ),
    "training (PPO, 256 environments)": (
        episodes(256, label="ours"),
        episodes(256, "Stable-Baselines3", "Stable-Baselines3"),
    ),
    "memory that 1000 environments add": (
        weight("native", 1000),
        weight("shared_memory", 1000),
    ),
}


def make_readme_part(results: Results) -> str:
    """Markdown, ending with a newline."""
    lines = [_introduction(results)]
    rows = []
    for backend, name in _ROWS.items():
        figures = [rate(backend, N_ENVS, mode, world).answer(results) for world, mode in _COLUMNS.values()]
        if any(figures):
            rows.append([name, *("" if figure is None else cell(figure) for figure in figures)])
    if rows:
        lines += ["", *markdown([f"steps/s, {N_ENVS} environments", *_COLUMNS], rows)]
    else:
        lines += ["", f"Not measured: run `{measure('throughput')}`."]
    facts = [[name, "; ".join(texts(asks, results))] for name, asks in _FACTS.items()]
    return "\n".join([*lines, "", *markdown(["besides", ""], facts), ""])


def _introduction(results: Results) -> str:
    stamps = {(r.stamp.get("cores"), r.stamp.get("cpu"), r.stamp.get("python")) for r in results.by_bench.values()}
    where = "; ".join(f"{cores} cores of {cpu}, Python {python}" for cores, cpu, python in sorted(stamps, key=str))
    measured = f"Measured by `stockade bench all` on {where}" if where else "Measured by `stockade bench all`"
    return (
        f"{measured}: medians and ranges, in turns in one run. More, with pictures, and beside what was claimed of the "
        "first version: [benchmarks](docs/benchmarks.md)."
    )
