"""What became slower between two results, beyond the noise: `python benchmarks/compare.py BEFORE AFTER`.

two files or folders -> figures paired by bench, unit and tags -> a verdict for each -> table, exit code
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tyro
from common import Results, read_results, run_script
from scipy.stats import mannwhitneyu

from stockade.bench.result import Figure
from stockade.text import Table, plural

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
_TIMES = ("s", "ms", "seconds", "minutes", "microseconds", "nanoseconds")
_SIZES = ("bytes", "MiB")
Key = tuple[str, str, frozenset[tuple[str, Any]]]  # Bench, unit and tags


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

    def run(self) -> int:
        before, after = read_results(self.before), read_results(self.after)
        for line in warnings(before, after):
            print(f"warning: {line}")
        changes = compare(before, after, self.at_least)
        rows = [[word, bench, old.name, old.text, new.text, new.unit,
                 f"{new.value / old.value:.2f}" if old.value * new.value > 0 else "sign changed"]
                for bench, old, new, word in changes if word != "same"]  # fmt: skip
        if rows:
            print(Table(["", "bench", "case", "before", "after", "unit", "times"], rows))
        old, new = by_key(before), by_key(after)
        for path, mine, others in ((self.before, old, new), (self.after, new, old)):
            for bench, unit in dict.fromkeys(key[:2] for key in mine if key not in others):
                print(f"only in {path}: some {unit} of bench {bench}")
        losses, gains = (sum(_RANKS[change.verdict] == rank for change in changes) for rank in (0, 2))
        print(f"\n{len(changes)} figures compared: {losses} slower or bigger, {gains} faster or smaller")
        print(RULE.format(at_least=self.at_least))
        return 1 if losses else 0


def compare(before: Results, after: Results, at_least: float = 10.0) -> list[Change]:
    """A verdict for each figure that both have, losses first, the greatest change first."""
    old, new = by_key(before), by_key(after)
    changes = [Change(key[0], old[key], new[key], verdict(old[key], new[key], at_least)) for key in old if key in new]
    return sorted(changes, key=lambda c: (_RANKS[c.verdict], -_distance(c.before.value, c.after.value), c.bench))


def by_key(results: Results) -> dict[Key, Figure]:
    """All figures by what identifies them."""
    return {(result.bench, figure.unit, frozenset(figure.tags.items())): figure
            for result in results.values() for figure in result.figures}  # fmt: skip


def warnings(before: Results, after: Results) -> Iterator[str]:
    """Why a comparison may say nothing about the code."""
    for bench in before.keys() & after.keys():
        stamps = before[bench].stamp, after[bench].stamp
        one, other = (f"{plural(s['cores'], 'core')} of {s['cpu']}, {s['memory_gib']} GiB" for s in stamps)
        if one != other:
            yield f"bench {bench} was run on different machines ({one}; {other}): differences may be theirs"
        old, new = before[bench].settings, after[bench].settings
        changed = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
        if changed:
            yield f"bench {bench} was run with different settings: {', '.join(changed)}"


def verdict(before: Figure, after: Figure, at_least: float = 10.0) -> str:
    """What became of a figure, by the rule above."""
    if not _differs(before, after, at_least):
        return "same"
    grew, unit = after.value > before.value, before.unit
    if unit in _SIZES:
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
        return float(mannwhitneyu(a, b, method="exact").pvalue) < UNLIKELY
    if fewest < FEW_ROUNDS and before.unit not in _SIZES and distance < 1:
        return False
    return max(min(b) - max(a), min(a) - max(b)) > max(max(a) - min(a), max(b) - min(b))


def _distance(a: float, b: float) -> float:
    """Relative to the smaller; figures of different signs are as far apart as can be."""
    small, large = sorted((abs(a), abs(b)))
    return large / small - 1 if a * b > 0 else math.inf if small != large else 0.0


if __name__ == "__main__":
    sys.exit(run_script(Compare, __doc__))
