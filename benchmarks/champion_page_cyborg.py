"""The page's section on the real CybORG: the command, what it printed, and the comparison cell by cell."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from champion_evaluate import check_reference
from champion_page_results import MISSING, RED_NAMES, Files, main_run
from champion_protocol import RULE_SETS, TEST_SEED

from stockade.bench.report_tables import markdown
from stockade.learn.evaluate import EvaluateConfig
from stockade.learn.results import CellResult, EvaluateResult

_TEXT = """\
## On the real CybORG

The same policy on the reference simulator, through the adapter of [cyborg.md](cyborg.md), which also says which
commit of it has which rules."""
_COMMAND = "stockade evaluate {} --simulator cyborg --episodes {} --rules {} --seed {} --json {}"


def cyborg(files: Files) -> Iterator[str]:
    """For each rule set the command, its output and the comparison."""
    yield _TEXT
    for rules in RULE_SETS:
        name = f"benchmarks/results/champion/champion-cyborg-{rules}.json"
        reference = files.cyborg[rules]
        yield ""
        yield f"### Rules `{rules}` on CybORG"
        yield ""
        if reference is None:
            yield f"{MISSING}: run `{_COMMAND.format('champion', 100, rules, TEST_SEED, name)}`."
            continue
        check_reference(Path(name), reference)
        yield "```"
        how = reference["policy"], reference["episodes"], rules, reference["seed"], name
        yield f"$ {_COMMAND.format(*how)}"
        cells = [CellResult(**{**cell, "returns": tuple(cell["returns"])}) for cell in reference["cells"]]
        config = EvaluateConfig(reference["policy"], rules=rules, episodes=reference["episodes"])
        yield str(EvaluateResult(reference["policy"], "greedy", config, tuple(cells)))
        yield "```"
        yield ""
        yield from _compare(files, rules, reference)


def _compare(files: Files, rules: str, reference: Any) -> Iterator[str]:
    if files.evaluation is None:
        yield f"{MISSING}: run `python benchmarks/champion.py evaluate champion RUN...` to compare it with."
    else:
        ours = main_run(files.evaluation)["rules"][rules]["cells"]
        rows, outside = [], 0
        for there, here in zip(reference["cells"], ours, strict=True):
            gap = there["mean"] - here["mean"]
            width = math.hypot(there["interval"], here["interval"])
            outside += abs(gap) > width
            names = f"{RED_NAMES[there['red']]} {there['horizon']}"
            figures = [f"{cell['mean']:.2f} ± {cell['interval']:.2f}" for cell in (there, here)]
            rows.append([names, *figures, f"{gap:+.2f} ± {width:.2f}", "no" if abs(gap) > width else "yes"])
        yield from markdown(["cell", "CybORG", "here, test seeds", "difference", "inside the interval"], rows)
        yield ""
        yield (
            f"{len(rows) - outside} of {len(rows)} cells are equal within the interval of the difference. Of 20 "
            "such intervals one misses by chance."
        )
    results = [] if files.replayed is None else files.replayed["results"]
    same = next((entry for entry in results if entry["rules"] == rules), None)
    yield ""
    if same is None:
        command = "`python benchmarks/champion.py cyborg`"
        yield f"{MISSING}, whether the very same seeds give the same returns here: run {command}."
    else:
        yield (
            f"Played here with the same seeds and `--chance cyborg`, {same['equal']:,} of these "
            f"{same['episodes']:,} episodes end with the same return, to the last digit "
            "(`python benchmarks/champion.py cyborg`)."
        )
