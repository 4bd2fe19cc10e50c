"""What is made of results: `stockade bench report` and `compare`.

report: results -> tables between the markers of pages, and pictures. The same results give the same bytes, so that a
test can tell whether anybody typed a figure by hand.
compare: two files or folders -> figures paired by bench, unit and tags -> a verdict for each -> table, exit code
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import tyro

from stockade.bench.pictures import PICTURES, save
from stockade.bench.result import RESULTS, Figure, Results, Tag, Tags, figures, flat_table, in_order, read_results
from stockade.errors import InputError
from stockade.files import write_durably
from stockade.text import Table, plural

PAGES = (Path("README.md"), Path("docs/benchmarks.md"), Path("docs/first-version.md"), Path("docs/search.md"))
FIRST_VERSION = RESULTS.parent / "first_version.json"
ENOUGH_ROUNDS = 5  # With fewer rounds on a side even complete separation has a probability above `UNLIKELY`
UNLIKELY = 0.01
FEW_ROUNDS = 3  # With fewer rounds on a side their range says next to nothing about the noise
RULE = """\
A change counts if the medians differ by at least {at_least:g}%, neither median lies within the other's range, and equal
machines and equal code would give rounds so far apart in less than 1% of all comparisons (Mann-Whitney, exact; with
fewer than 5 rounds on a side: if the gap between the two ranges is wider than both ranges; with fewer than 3, unless it
is a size: and one median is at least twice the other)."""
_RANKS = {"slower": 0, "bigger": 0, "changed": 1, "faster": 2, "smaller": 2, "same": 3}
_MORE_IS_BETTER = ("/s", "/min", "of the cores")
_TIMES = ("s", "ms", "us", "ns", "seconds", "minutes", "milliseconds", "microseconds", "nanoseconds")
_SIZES = ("bytes", "kb", "kib", "mb", "mib", "gb", "gib")


@dataclass(frozen=True)
class Report:
    """Fill the tables of pages and draw the pictures, from results."""

    results: tyro.conf.Positional[Path] = RESULTS  # Folder of results, as `stockade bench all` writes them.
    pages: tuple[Path, ...] = PAGES
    """Markdown files; what is between the lines `<!-- bench:NAME:begin -->` and `...:end -->` becomes table NAME."""
    images: Path = Path("docs/images")  # Folder for the pictures.

    def run(self) -> int:
        """Draw and write; whatever cannot be done is found out before."""
        if not self.results.is_dir():
            raise InputError(f"{self.results} is no folder of results: make one with `stockade bench all`")
        results = read_results(self.results)
        texts = {page: fill(page, "bench", {k: partial(t, results) for k, t in TABLES.items()}) for page in self.pages}
        pictures = {name: picture for name, draw in PICTURES.items() if (picture := draw(results)) is not None}
        self.images.mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            save(picture, self.images / f"{name}.svg")
            print(self.images / f"{name}.svg")
        for page, text in texts.items():
            write_durably(page.absolute(), text.encode())
            print(page)
        return 0


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


def _readme(results: Results) -> str:
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


def _first_version(results: Results) -> str:
    """What the notes of the first version claim, what it did when measured here, and the figures that answer it now."""
    rows = []
    for claim in json.loads(FIRST_VERSION.read_text()):
        now = []
        for ask in claim["now"]:
            found = figures(results, ask["bench"], ask["unit"], **ask["tags"])
            space = "" if ask["unit"].startswith("%") else " "
            now.append(f"{ask['label']}{found[0].text}{space}{ask['unit']}" if found else "not measured")
        rows.append([claim["claim"], claim["notes"], claim["measured"], "; ".join(now)])
    heads = ["claim", "notes of the first version", "first version, measured", "now"]
    return Table(heads, rows, align="llll").markdown()


def _search_quality(found: list[Figure]) -> str:
    """The picture, and one row for each attacker, budget and method: medians over the seeds with their ranges."""
    found = sorted(found, key=lambda f: (f.tags["red"], f.tags["budget"]))
    cells = _texts(found, lambda t: (t["red"], t["budget"], t["method"]), lambda t: t["part"])
    columns = {"regret": "regret", "RMSE": "RMSE of its values", "reported": "orders reported", "time": "seconds"}
    rows = [[*map(_word, row), *(texts.get(part, "") for part in columns)] for row, texts in cells.items()]
    table = Table(["attacker", "episodes", "method", *columns.values()], rows, align="lrlrrrr").markdown()
    return f"![Regret and error of searches over training episodes](images/search-quality.svg)\n\n{table}"


_TRUTH = {"": "steps only", "-truth": "twice a step"}
_WORKERS = {"by": "workers", "head": "{} workers"}
TABLES: dict[str, Callable[[Results], str]] = {
    "runs": _runs,
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
       for bench in ("kernel", "learn", "search")},
}  # fmt: skip
"""By name of the block between `<!-- bench:NAME:begin -->` and `<!-- bench:NAME:end -->`."""


# ------------------------------------------------------------------------------------------------------------- compare
class Change(NamedTuple):
    """One figure of both results."""

    bench: str
    before: Figure
    after: Figure
    verdict: str  # one of the words of `_RANKS`


@dataclass(frozen=True)
class Compare:
    """What became slower between two results, beyond the noise. Exit code 1 if anything became slower or bigger."""

    before: tyro.conf.Positional[Path]  # The older result: a file of `stockade bench NAME --json`, or a folder of them.
    after: tyro.conf.Positional[Path]  # The newer result.
    at_least: float = 10.0  # Smaller differences, in percent, are not reported: two runs of the same code have them.
    all: bool = False  # List what stayed the same too.

    def run(self) -> int:
        if not (math.isfinite(self.at_least) and self.at_least >= 0):
            raise InputError(f"--at-least {self.at_least}: give a percentage of 0 or more")
        if self.before.is_dir() != self.after.is_dir():
            raise InputError(f"compare two files or two folders, not {self.before} with {self.after}")
        before, after = read_results(self.before), read_results(self.after)
        for path, results in ((self.before, before), (self.after, after)):
            if not results:
                raise InputError(f"{path} has no results: write some with `stockade bench all`")
        for line in warnings(before, after):
            print(f"warning: {line}")
        changes = compare(before, after, self.at_least)
        rows = [[word, bench, old.name, old.text, new.text, new.unit,
                 f"{new.value / old.value:.2f}" if old.value * new.value > 0 else "sign changed"]
                for bench, old, new, word in changes if self.all or word != "same"]  # fmt: skip
        if rows:
            print(Table(["", "bench", "case", "before", "after", "unit", "times"], rows))
        for path, lonely in zip((self.before, self.after), only_in_one(before, after), strict=True):
            if lonely:
                print(f"\nonly in {path}:", *(f"  {name}" for name in lonely), sep="\n")
        losses, gains = (sum(_RANKS[change.verdict] == rank for change in changes) for rank in (0, 2))
        print(f"\n{len(changes)} figures compared: {losses} slower or bigger, {gains} faster or smaller")
        print(RULE.format(at_least=self.at_least))
        return 1 if losses else 0


def compare(before: Results, after: Results, at_least: float = 10.0) -> list[Change]:
    """A verdict for each figure that both have, losses first, the greatest change first."""
    old, new = _by_key(before), _by_key(after)
    changes = [Change(key[0], old[key], new[key], verdict(old[key], new[key], at_least)) for key in old if key in new]
    return sorted(changes, key=lambda c: (_RANKS[c.verdict], -_distance(c.before.value, c.after.value), c.bench))


def warnings(before: Results, after: Results) -> Iterator[str]:
    """Why a comparison may say nothing about the code."""
    for bench in before.keys() & after.keys():
        stamps = before[bench].stamp, after[bench].stamp
        one, other = (f"{s.get('cores')} cores of {s.get('cpu')}, {s.get('memory_gib')} GiB" for s in stamps)
        if one != other:
            yield f"bench {bench} was run on different machines ({one}; {other}): differences may be theirs"
        old, new = before[bench].settings, after[bench].settings
        changed = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
        if changed:
            yield f"bench {bench} was run with different settings: {', '.join(changed)}"


def only_in_one(before: Results, after: Results) -> tuple[list[str], ...]:
    """Names of the figures that only one of the two has."""
    old, new = _by_key(before), _by_key(after)
    pairs = (old, new), (new, old)
    return tuple([f"{k[0]}: {f.name}, {f.unit}" for k, f in mine.items() if k not in others] for mine, others in pairs)


def _by_key(results: Results) -> dict[tuple[Any, ...], Figure]:
    """By bench, unit and tags."""
    return {(result.bench, figure.unit, frozenset(figure.tags.items())): figure
            for result in results.values() for figure in result.figures}  # fmt: skip


def verdict(before: Figure, after: Figure, at_least: float = 10.0) -> str:
    """What became of a figure, by the rule above."""
    if not _differs(before, after, at_least):
        return "same"
    grew, unit = after.value > before.value, before.unit.lower()
    if unit.split(" ")[0] in _SIZES:
        return "bigger" if grew else "smaller"
    if unit.endswith(_MORE_IS_BETTER) or unit.split(" ")[0] in _TIMES:
        return "faster" if grew == unit.endswith(_MORE_IS_BETTER) else "slower"
    return "changed"  # shares and ratios: whether more is better depends on what they are of


def _differs(before: Figure, after: Figure, at_least: float) -> bool:
    a, b, distance = before.rounds, after.rounds, _distance(before.value, after.value)
    if distance < at_least / 100 or before.value == after.value:
        return False
    if min(b) <= before.value <= max(b) or min(a) <= after.value <= max(a):
        return False
    fewest = min(len(a), len(b))
    if fewest >= ENOUGH_ROUNDS:
        return mann_whitney(a, b) < UNLIKELY
    if fewest < FEW_ROUNDS and before.unit.lower().split(" ")[0] not in _SIZES and distance < 1:
        return False
    return max(min(b) - max(a), min(a) - max(b)) > max(max(a) - min(a), max(b) - min(b))


def _distance(a: float, b: float) -> float:
    """Relative to the smaller; figures of different signs are as far apart as can be."""
    small, large = sorted((abs(a), abs(b)))
    return large / small - 1 if a * b > 0 else math.inf if small != large else 0.0


def mann_whitney(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided exact p-value: how often rounds of one and the same kind fall apart like this; equal values count half,
    which makes it a little too large."""
    n, m = len(a), len(b)
    wins = sum((x > y) + 0.5 * (x == y) for x in a for y in b)
    least = math.ceil(min(wins, n * m - wins))
    return min(1.0, 2 * sum(_orders(n, m, u) for u in range(least + 1)) / math.comb(n + m, n))


@cache
def _orders(n: int, m: int, wins: int) -> int:
    """How many orders of n and m rounds there are in which the first kind is the greater in so many pairs."""
    if wins < 0 or not n or not m:
        return int(wins == 0)
    return _orders(n - 1, m, wins - m) + _orders(n, m - 1, wins)  # by the kind of the greatest
