"""Fills the tables of pages and draws their pictures, from results: `python benchmarks/pages.py --help`.

The same results give the same bytes, so that a test can tell whether anybody typed a figure by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import tyro
from common import Results, figures, in_order, read_results, run_script
from pictures import PICTURES, champion_curves, save

from stockade.bench.result import RESULTS, Figure, Tag, Tags, flat_table
from stockade.errors import InputError
from stockade.files import write_durably
from stockade.text import Table, plural

_MEASURED = ("benchmarks", "throughput", "scaling", "kernel", "training-speed", "search")
PAGES = (
    Path("README.md"),
    Path("docs/about/first-version.md"),
    *(Path(f"docs/results/{name}.md") for name in _MEASURED),
)
FIRST_VERSION = RESULTS.parent / "first_version.json"


@dataclass(frozen=True)
class Pages:
    """Fill the tables of pages and draw the pictures, from results."""

    results: tyro.conf.Positional[Path] = RESULTS  # Folder of results, as `stockade bench all` writes them.
    pages: tuple[Path, ...] = PAGES
    """Markdown files; what is between the lines `<!-- bench:NAME:begin -->` and `...:end -->` becomes table NAME."""
    images: Path = Path("docs/images")  # Folder for the pictures.

    def run(self) -> int:
        """Draw and write; whatever cannot be done is found out before."""
        results = read_results(self.results)
        texts = {page: filled(page, results) for page in self.pages}
        pictures = {self.images / f"{name}.svg": draw(results) for name, draw in PICTURES.items()}
        curves = self.results / "champion" / "champion-curves.json"  # as `champion.py curves` writes it
        if curves.exists():
            content = json.loads(curves.read_text())
            pictures[self.images / "champion-curves.svg"] = champion_curves(content["runs"], content["window"])
        self.images.mkdir(parents=True, exist_ok=True)
        for path, picture in pictures.items():
            if picture is not None:
                save(picture, path)
        for page, text in texts.items():
            write_durably(page.absolute(), text.encode())
        return 0


def filled(page: Path, results: Results) -> str:
    """The text of a page with its tables made anew."""
    return fill(page, "bench", {name: partial(table, results) for name, table in TABLES.items()})


def fill(page: Path, prefix: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """The text of a page with every block between `<!-- PREFIX:NAME:begin -->` and `...:end -->` made anew; InputError
    if a name is unknown, or a marker has no partner."""
    text = page.read_text()
    begin = rf"(<!-- {prefix}:([\w-]+):begin -->\n)"
    whole = re.compile(begin + rf".*?(<!-- {prefix}:\2:end -->)", re.DOTALL)
    if not len(whole.findall(text)) == len(re.findall(begin, text)) == len(re.findall(f"<!-- {prefix}:.*?:end", text)):
        markers = " needs its ".join(f"`<!-- {prefix}:NAME:{end} -->`" for end in ("begin", "end"))
        raise InputError(f"{page}: every {markers} below it")

    def block(match: re.Match[str]) -> str:
        if match[2] not in blocks:
            raise InputError(f"{page}: there is no table {match[2]}; there are {', '.join(blocks)}")
        return f"{match[1]}{blocks[match[2]]()}\n{match[3]}"

    return whole.sub(block, text)


# -------------------------------------------------------------------------------------------------------------- tables
def _texts(found: Iterable[Figure], row: Callable[[Tags], Any], column: Callable[[Tags], Any]) -> dict[Any, Any]:
    """Medians with ranges, by row and column."""
    cells: dict[Any, Any] = {}
    for figure in found:
        cells.setdefault(row(figure.tags), {})[column(figure.tags)] = figure.text
    return cells


def _word(tag: Tag) -> str:
    return f"{tag:,}" if isinstance(tag, int) else str(tag)


def _made_of(bench: str, draw: Callable[[list[Figure]], str], unit: str | None = None, **tags: Any) -> Any:
    """What `draw` makes of some figures of a bench, or how to measure them."""

    def table(results: Results) -> str:
        how = f"Not measured: run `stockade bench {bench} --json {RESULTS / bench}.json`."
        return draw(found) if (found := figures(results, bench, unit, **tags)) else how

    return table


def grid(bench: str, unit: str, *rows: str, by: str = "n_envs", head: str = "{} environments", **tags: Any) -> Any:
    """A table of some figures of a bench: one row for each value of the tags `rows`, one column for each of `by`."""

    def draw(found: list[Figure]) -> str:
        cells = _texts(found, lambda t: ", ".join(_word(t[name]) for name in rows if name in t), lambda t: t[by])
        columns = in_order(figure.tags[by] for figure in found)
        lines = [[row, *(values.get(column, "") for column in columns)] for row, values in cells.items()]
        heads = [unit, *(head.format(_word(column)) for column in columns)]
        return Table(heads, lines, align="l" + "r" * len(columns)).markdown()

    return _made_of(bench, draw, unit, **tags)


def _runs(results: Results) -> str:
    """How each bench was run, and on what."""
    machines = {f"{plural(r.stamp['cores'], 'core')} of {r.stamp['cpu']}, {r.stamp.get('cache')} last cache, "
                f"{r.stamp['memory_gib']} GiB, Python {r.stamp['python']}" for r in results.values()}  # fmt: skip
    packages = {f"{name} {version}" for r in results.values() for name, version in r.stamp["packages"].items()}
    rows = [[f"`{r.command}`", f"{r.seconds:.0f}", str(r.stamp["date"])[:10], str(r.stamp["commit"]),
             f"{r.stamp['load']:.2f}"] for r in results.values()]  # fmt: skip
    table = Table(["command", "seconds", "date", "commit", "load before"], rows, align="lrllr").markdown()
    return f"Machine: {'; '.join(sorted(machines))}; {', '.join(sorted(packages))}.\n\n{table}"


def _overview(results: Results) -> str:
    """200 environments of every backend and library: the built-in world and one at the reference's cost."""
    columns = {
        "built-in world": ("built-in", "steps only"),
        "with true states before and after": ("built-in", "twice a step"),
        "at the reference's cost": ("synthetic", "steps only"),
        "with true states too": ("synthetic", "twice a step"),
    }
    found = figures(results, "throughput", "steps/s", n_envs=200, world=("built-in", "synthetic"))
    cells = _texts(found, lambda t: t["backend"], lambda t: (t["world"], t["mode"]))
    rows = [[f"`{backend}`", *(texts.get(place, "") for place in columns.values())]
            for backend, texts in cells.items() if backend != "ray"]  # fmt: skip
    return Table(["steps/s, 200 environments", *columns], rows, align="lrrrr").markdown()


def _readme(results: Results) -> str:
    """The few figures of the first page, each beside what it is to be compared with, and the machine."""
    asked: list[tuple[str, tuple[str, Tags], str, tuple[str, Tags]]] = [
        ("steps/s of 200 worlds in one process", _steps("native"), "CybORG 2.1, 20 in workers: ",
         ("throughput", {"world": "CybORG", "mode": "steps only", "backend": "shared_memory", "n_envs": 20})),
        ("steps/s of 200 environments in workers", _steps("shared_memory"), "`AsyncVectorEnv` of Gymnasium: ",
         _steps("Gymnasium AsyncVectorEnv")),
        ("episodes/s of PPO, 256 environments", ("train", {"n_envs": 256, "case": "2 threads"}),
         "PPO of Stable-Baselines3, the same networks and batches: ",
         ("train", {"n_envs": 256, "case": "Stable-Baselines3"})),
    ]  # fmt: skip
    rows = []
    for what, (bench, tags), beside, (other, others) in asked:
        texts = [found[0].text if (found := figures(results, name, what.split()[0], **some)) else "not measured"
                 for name, some in ((bench, tags), (other, others))]  # fmt: skip
        rows.append([what, texts[0], beside + texts[1]])
    used = [results[name] for name in ("throughput", "train") if name in results]
    machines = sorted({f"{plural(result.stamp['cores'], 'core')} of {result.stamp['cpu']}" for result in used})
    table = Table(["", "Stockade", "beside it"], rows, align="lrl").markdown()
    return f"{table}\n\nMedians and ranges of rounds that take turns, on {' and '.join(machines) or 'no machine yet'}."


def _steps(backend: str) -> tuple[str, Tags]:
    return "throughput", {"world": "built-in", "mode": "steps only", "backend": backend, "n_envs": 200}


def _first_version(results: Results) -> str:
    """What the first version claimed, what it did when measured here, and the figures that answer it now."""
    rows = []
    for claim in json.loads(FIRST_VERSION.read_text()):
        now = []
        for ask in claim["now"]:
            found = figures(results, ask["bench"], ask["unit"], **ask["tags"])
            space = "" if ask["unit"].startswith("%") else " "
            now.append(f"{ask['label']}{found[0].text}{space}{ask['unit']}" if found else "not measured")
        rows.append([claim["claim"], claim["notes"], claim["measured"], "; ".join(now)])
    heads = ["claim", "first version, claimed", "first version, measured", "now"]
    return Table(heads, rows, align="llll").markdown()


def _search_quality(found: list[Figure]) -> str:
    """The picture, and one row for each attacker, budget and method: medians over the seeds with their ranges."""
    found = sorted(found, key=lambda f: (f.tags["red"], f.tags["budget"]))
    cells = _texts(found, lambda t: (t["red"], t["budget"], t["method"]), lambda t: t["part"])
    columns = {"regret": "regret", "RMSE": "RMSE of its values", "reported": "orders reported", "time": "seconds"}
    rows = [[*map(_word, row), *(texts.get(part, "") for part in columns)] for row, texts in cells.items()]
    table = Table(["attacker", "episodes", "method", *columns.values()], rows, align="lrlrrrr").markdown()
    return f"![Regret and error of searches over training episodes](../images/search-quality.svg)\n\n{table}"


_TRUTH = {"": "steps only", "-truth": "twice a step"}
_WORKERS = {"by": "workers", "head": "{} workers"}
TABLES: dict[str, Callable[[Results], str]] = {
    "runs": _runs,
    "overview": _overview,
    "readme": _readme,
    "first-version": _first_version,
    **{f"throughput-{world}{end}": grid("throughput", "steps/s", "backend", world=world, mode=mode, to=None)
       for world, (end, mode) in product(("built-in", "synthetic"), _TRUTH.items())},
    "throughput-others": grid("throughput", "steps/s", "world", "mode", "backend",
                              world=("CybORG", "MiniCAGE", "CartPole")),
    "scaling-native": grid("scaling", "steps/s", "threads", head="{} worlds", part="native"),
    "scaling-workers": grid("scaling", "of the cores", "backend", "step_us", **_WORKERS, part="workers"),
    "scaling-crossing": grid("scaling", "microseconds", "backend", part="crossing"),
    **{f"bottleneck-{w}": grid("bottleneck", "% of the time", "backend", by="part", head="{}", world=w, mode=mode)
       for w, mode in (("synthetic", "twice a step"), ("built-in", "steps only"))},
    "stragglers": grid("stragglers", "of the cores", "kind", "backend", by="sigma", head="sigma {}"),
    "true-state": grid("true-state", "%", "world", "mode", by="backend", head="{}"),
    "memory": grid("memory", "MiB", "backend", part="all"),
    "startup": grid("startup", "s", "backend", "start_method", "part", **_WORKERS),
    "train": grid("train", "episodes/s", "case"),
    "train-phases": grid("train", "%", "part", case="2 threads"),
    "vector-overhead": grid("vector", "steps/s", "backend", part="overhead"),
    "vector-efficiency": grid("vector", "of the cores", "backend", by="step_us", head="{} us", part="efficiency"),
    "search-quality": _made_of("search-quality", _search_quality),
    **{bench: _made_of(bench, lambda found: flat_table(found, "").markdown())
       for bench in ("kernel", "learn", "search", "time-to-score")},
}  # fmt: skip
"""By name of the block between `<!-- bench:NAME:begin -->` and `<!-- bench:NAME:end -->`."""


if __name__ == "__main__":
    sys.exit(run_script(Pages, __doc__))
