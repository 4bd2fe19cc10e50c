"""The tables of the documentation: results -> Markdown by name of the block that it goes into."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from stockade.bench.result import RESULTS, Figure, Result, Tag, find
from stockade.text import Table

FIRST_VERSION = RESULTS.parent / "first_version.json"
Results = dict[str, Result]
"""By name of the bench."""


def figures(results: Results, bench: str) -> tuple[Figure, ...]:
    """All of a bench; none if it was not run."""
    return results[bench].figures if bench in results else ()


@dataclass(frozen=True)
class Grid:
    """A table of a bench: one row for each value of some tags, one column for each of another.

    Attributes:
        bench, unit, tags: which figures.
        rows: tags that make the name of a row.
        columns: tag that makes a column; empty for one column, called `form`.
        form: of a column's heading, such as "{} environments".
    """

    bench: str
    unit: str
    rows: tuple[str, ...]
    columns: str = ""
    form: str = "{}"
    tags: dict[str, Tag | tuple[Tag, ...] | None] = field(default_factory=dict)

    def __call__(self, results: Results) -> str:
        """Markdown."""
        found = find(figures(results, self.bench), self.unit, **self.tags)
        if not found:
            return not_measured(self.bench)
        cells: dict[str, dict[Tag, str]] = {}
        for figure in found:
            row = ", ".join(_word(figure.tags[name]) for name in self.rows if name in figure.tags)
            cells.setdefault(row, {})[figure.tags.get(self.columns, "")] = figure.text
        columns = in_order(figure.tags.get(self.columns, "") for figure in found)
        head = [self.unit, *(self.form.format(_word(column)) for column in columns)]
        rows = [[row, *(values.get(column, "") for column in columns)] for row, values in cells.items()]
        return Table(head, rows, align="l" + "r" * len(columns)).markdown()


def not_measured(bench: str) -> str:
    """In place of a table."""
    return f"Not measured: run `stockade bench {bench} --json {RESULTS / bench}.json`."


def in_order(values: Iterable[Tag]) -> list[Tag]:
    """Numbers by size, words as they come."""
    unique = list(dict.fromkeys(values))
    return sorted(unique, key=float) if all(isinstance(value, (int, float)) for value in unique) else unique


def _word(tag: Tag) -> str:
    return f"{tag:,}" if isinstance(tag, int) else str(tag)


def _flat(bench: str) -> Callable[[Results], str]:
    """One row per figure."""

    def table(results: Results) -> str:
        rows = [[figure.name, figure.text, figure.unit] for figure in figures(results, bench)]
        return Table(["", "median (range)", "unit"], rows, align="lrl").markdown() if rows else not_measured(bench)

    return table


def _runs(results: Results) -> str:
    """How each bench was run, and on what."""
    machines = {f"{r.stamp['cores']} cores of {r.stamp['cpu']}, {r.stamp.get('cache')} last cache, "
                f"{r.stamp['memory_gib']} GiB, Python {r.stamp['python']}" for r in results.values()}  # fmt: skip
    packages = {f"{name} {version}" for r in results.values() for name, version in r.stamp["packages"].items()}
    rows = [[f"`{r.command}`", f"{r.seconds:.0f}", str(r.stamp["date"])[:10], str(r.stamp["commit"]),
             f"{r.stamp['load']:.2f}"] for r in results.values()]  # fmt: skip
    table = Table(["command", "seconds", "date", "commit", "load before"], rows, align="lrllr").markdown()
    return f"Machine: {'; '.join(sorted(machines))}; {', '.join(sorted(packages))}.\n\n{table}"


def _readme(results: Results) -> str:
    """200 environments of every backend and library: the built-in world and one at the reference's cost."""
    columns = {
        "built-in world": ("built-in", "steps only"),
        "with true states before and after": ("built-in", "twice a step"),
        "at the reference's cost": ("synthetic", "steps only"),
        "with true states too": ("synthetic", "twice a step"),
    }
    found = find(figures(results, "throughput"), "steps/s", n_envs=200, world=("built-in", "synthetic"))
    backends = [b for b in dict.fromkeys(f.tags["backend"] for f in found) if b != "ray"]
    texts = {(f.tags["backend"], f.tags["world"], f.tags["mode"]): f.text for f in found}
    rows = [[f"`{b}`", *(texts.get((b, *place), "") for place in columns.values())] for b in backends]
    return Table(["steps/s, 200 environments", *columns], rows, align="lrrrr").markdown()


def _first_version(results: Results) -> str:
    """What the notes of the first version claim, what it did when measured here, and the figures that answer it now."""
    rows = []
    for claim in json.loads(FIRST_VERSION.read_text()):
        now = []
        for ask in claim["now"]:
            found = find(figures(results, ask["bench"]), ask["unit"], **ask["tags"])
            space = "" if ask["unit"].startswith("%") else " "
            now.append(f"{ask['label']}{found[0].text}{space}{ask['unit']}" if found else "not measured")
        rows.append([claim["claim"], claim["notes"], claim["measured"], "; ".join(now)])
    return Table(
        ["claim", "notes of the first version", "first version, measured", "now"], rows, align="llll"
    ).markdown()


def _search_quality(results: Results) -> str:
    """The picture, and one row for each attacker, budget and method: medians over the seeds with their ranges."""
    found = figures(results, "search-quality")
    if not found:
        return not_measured("search-quality")
    cells: dict[tuple[Tag, ...], dict[Tag, str]] = {}
    for f in sorted(found, key=lambda f: (f.tags["red"], f.tags["budget"])):
        cells.setdefault(tuple(f.tags[name] for name in ("red", "budget", "method")), {})[f.tags["part"]] = f.text
    columns = {"regret": "regret", "RMSE": "RMSE of its values", "reported": "orders reported", "time": "seconds"}
    rows = [[*map(_word, row), *(values.get(part, "") for part in columns)] for row, values in cells.items()]
    table = Table(["attacker", "episodes", "method", *columns.values()], rows, align="lrlrrrr").markdown()
    return f"![Regret and error of searches over training episodes](images/search-quality.svg)\n\n{table}"


def _world(bench: str, unit: str, world: str, mode: str) -> Grid:
    to = {"to": None} if bench == "throughput" else {}
    return Grid(bench, unit, ("backend",), "n_envs", "{} environments", {"world": world, "mode": mode, **to})


def _bottleneck(world: str, mode: str) -> Grid:
    return Grid("bottleneck", "% of the time", ("backend",), "part", "{}", {"world": world, "mode": mode})


TABLES: dict[str, Callable[[Results], str]] = {
    "runs": _runs,
    "readme": _readme,
    "first-version": _first_version,
    "throughput-built-in": _world("throughput", "steps/s", "built-in", "steps only"),
    "throughput-built-in-truth": _world("throughput", "steps/s", "built-in", "twice a step"),
    "throughput-synthetic": _world("throughput", "steps/s", "synthetic", "steps only"),
    "throughput-synthetic-truth": _world("throughput", "steps/s", "synthetic", "twice a step"),
    "throughput-others": Grid("throughput", "steps/s", ("world", "mode", "backend"), "n_envs", "{} environments",
                              {"world": ("CybORG", "MiniCAGE", "CartPole")}),
    "scaling-native": Grid("scaling", "steps/s", ("threads",), "n_envs", "{} worlds", {"part": "native"}),
    "scaling-workers": Grid("scaling", "of the cores", ("backend", "step_us"), "workers", "{} workers",
                            {"part": "workers"}),
    "scaling-crossing": Grid("scaling", "microseconds", ("backend",), "n_envs", "{} environments",
                             {"part": "crossing"}),
    "bottleneck-synthetic": _bottleneck("synthetic", "twice a step"),
    "bottleneck-built-in": _bottleneck("built-in", "steps only"),
    "stragglers": Grid("stragglers", "of the cores", ("kind", "backend"), "sigma", "sigma {}"),
    "true-state": Grid("true-state", "%", ("world", "mode"), "backend"),
    "memory": Grid("memory", "MiB", ("backend",), "n_envs", "{} environments", {"part": "all"}),
    "startup": Grid("startup", "s", ("backend", "start_method", "part"), "workers", "{} workers"),
    "train": Grid("train", "episodes/s", ("case",), "n_envs", "{} environments"),
    "train-phases": Grid("train", "%", ("part",), "n_envs", "{} environments", {"case": "2 threads"}),
    "kernel": _flat("kernel"),
    "vector-overhead": Grid("vector", "steps/s", ("backend",), "n_envs", "{} environments", {"part": "overhead"}),
    "vector-efficiency": Grid("vector", "of the cores", ("backend",), "step_us", "{} us", {"part": "efficiency"}),
    "learn": _flat("learn"),
    "search": _flat("search"),
    "search-quality": _search_quality,
}  # fmt: skip
"""By name of the block between `<!-- bench:NAME:begin -->` and `<!-- bench:NAME:end -->`."""
