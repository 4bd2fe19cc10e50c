"""`stockade bench compare`: what became slower from one result to another, beyond the noise.

two files or folders -> figures paired by bench, unit and tags -> a verdict for each pair -> table, exit code
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import tyro

from stockade.bench.result import Figure, Results, read_results
from stockade.errors import InputError
from stockade.text import Table

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


class Change(NamedTuple):
    """One figure of both results."""

    bench: str
    before: Figure
    after: Figure
    verdict: str  # one of the words of `_RANKS`


@dataclass(frozen=True)
class Compare:
    """What became slower between two results, beyond the noise. Exit code 1 if anything became slower or bigger."""

    before: tyro.conf.Positional[Path]
    """The older result: a file of `stockade bench ... --json`, or a folder of such files."""
    after: tyro.conf.Positional[Path]  # The newer result.
    at_least: float = 10.0
    """Differences below so many percent are never reported: two runs of the same code differ by that."""
    all: bool = False  # List what stayed the same too.

    def run(self) -> int:
        """Print; the exit code is the answer."""
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
