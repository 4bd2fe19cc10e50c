"""What a search found: the content of summary.json, and the ranking as a table for a person.

results, strategy -> Standing (one a class of equal orders that was tried) -> JSON, table
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import stockade
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import ORDERS, UNIT_TYPES, Order, classes_of, describe, name_of, restricted
from stockade.workflow.proposals import Strategy
from stockade.workflow.records import WorkflowResult

Z95 = 1.96


def label(order: Order, matters: np.ndarray) -> str:
    """An order as short as it can be: the types that matter, if any do."""
    return describe(restricted(order, matters) or order).replace(" ", "")


@dataclass(frozen=True)
class Standing:
    """A class of equal orders that was tried.

    Attributes:
        rank: 1 is the best; None if nobody complied.
        order: that stands for the class. name: canonical, of any member.
        value: mean over the trainings that count (those that complied, or all if none did); interval: half width of its
            95% interval.
        mean, sd: what the model thinks of the value; NaN if it knows nothing.
        compliance, fixes: means over the same trainings.
        attempts: trainings. trainings: their numbers. best: number of the one whose policy is the class's best.
        members: all orders of the class.
    """

    rank: int | None
    order: Order
    name: str | None
    feasible: bool
    value: float
    interval: float
    mean: float
    sd: float
    compliance: float
    fixes: float
    attempts: int
    trainings: tuple[int, ...]
    best: int
    members: tuple[Order, ...]


def standings(strategy: Strategy, results: Sequence[WorkflowResult]) -> list[Standing]:
    """Best first, then those that nobody complied with."""
    rows = []
    for place, ranked in enumerate(strategy.ranking(), start=1):
        mine = [r for r in results if r.order in ranked.members]
        count = [r for r in mine if r.feasible] or mine
        errors = np.array([r.value_error for r in count])
        rates = [r.compliance for r in count if not math.isnan(r.compliance)]
        names = [name for name in map(name_of, (ranked.order, *ranked.members)) if name is not None]
        rows.append(
            Standing(
                rank=place if ranked.feasible else None,
                order=ranked.order,
                name=names[0] if names else None,
                feasible=ranked.feasible,
                value=ranked.measured,
                interval=Z95 * float(np.sqrt((errors**2).sum())) / len(count),
                mean=ranked.mean,
                sd=ranked.sd,
                compliance=float(np.mean(rates)) if rates else math.nan,
                fixes=float(np.mean([r.fixes for r in count])),
                attempts=ranked.attempts,
                trainings=tuple(r.number for r in mine),
                best=max(count, key=lambda r: r.value).number,
                members=ranked.members,
            )
        )
    return rows


# ------------------------------------------------------------------------------------------------------------- JSON
def summary_of(
    config: SearchConfig, strategy: Strategy, results: Sequence[WorkflowResult], policies: Mapping[int, str],
    ended: str | None, seconds: float,
) -> dict[str, Any]:  # fmt: skip
    """Content of summary.json.

    Args:
        config, strategy: of the search.
        results: in the order in which they came.
        policies: file of each training's policy, relative to the folder of the search.
        ended: why it is over, or None if it is not.
        seconds: it has run.
    """
    matters = strategy.matters
    mean, sd = strategy.posterior()
    classes = classes_of(matters)
    used = sum(r.episodes for r in results)
    rows = standings(strategy, results)
    ranking = [_ranked(row, policies) for row in rows]
    content = {
        "stockade": stockade.__version__,
        "settings": config.to_json(),
        "ended": ended,
        "seconds": seconds,
        "budget": {"total": config.budget, "used": used, "left": config.budget - used},
        "matters": {name: bool(m) for name, m in zip(UNIT_TYPES, matters, strict=True)},
        "classes": int(classes.max()) + 1,
        "best": next((row for row, of in zip(ranking, rows, strict=True) if of.feasible), None),
        "ranking": ranking,
        "workflows": [_trained(r, policies[r.number]) for r in results],
        "posterior": [
            {"order": describe(order), "name": name_of(order), "class": int(c), "mean": float(m), "sd": float(s)}
            for order, c, m, s in zip(ORDERS, classes, mean, sd, strict=True)
        ],
    }
    return _without_nan(content)


def _ranked(row: Standing, policies: Mapping[int, str]) -> dict[str, Any]:
    content = asdict(row)
    content["order"], content["members"] = describe(row.order), [describe(order) for order in row.members]
    content["class_size"] = len(row.members)
    content["policy"] = policies[row.best]
    return content


def _trained(result: WorkflowResult, policy: str) -> dict[str, Any]:
    content = asdict(result)
    for name in ("weights", "architecture"):
        del content[name]
    content["order"], content["name"] = describe(result.order), name_of(result.order)
    content["held"] = dict(zip(UNIT_TYPES, result.held, strict=True))
    content["policy"] = policy
    return content


def _without_nan(content: Any) -> Any:
    """JSON has no numbers for NaN and infinity: null."""
    if isinstance(content, dict):
        return {k: _without_nan(v) for k, v in content.items()}
    if isinstance(content, list | tuple):
        return [_without_nan(v) for v in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


# ------------------------------------------------------------------------------------------------------------ table
def ranking_table(rows: Sequence[Standing], matters: np.ndarray) -> str:
    """For a terminal: feasible orders by rank, the others below."""
    head = ["rank", "order", "name", "value", "± 95%", "model", "± sd", "compliance", "fixes", "tries", ""]
    cells = [_cells(row, matters) for row in rows]
    widths = [max(len(line[k]) for line in [head, *cells]) for k in range(len(head))]
    left = (1, 2, len(head) - 1)

    def line(columns: list[str]) -> str:
        padded = (c.ljust(w) if k in left else c.rjust(w) for k, (c, w) in enumerate(zip(columns, widths, strict=True)))
        return "  ".join(padded).rstrip()

    feasible = [line(c) for c, row in zip(cells, rows, strict=True) if row.feasible]
    others = [line(c) for c, row in zip(cells, rows, strict=True) if not row.feasible]
    lines = [line(head), *feasible]
    if others:
        lines += ["Not complied with, so their values are those of something else:", *others]
    return "\n".join([*lines, *_footnotes(rows, matters)])


def _cells(row: Standing, matters: np.ndarray) -> list[str]:
    others = len(row.members) - 1
    return [
        "-" if row.rank is None else str(row.rank),
        label(row.order, matters),
        row.name or "",
        f"{row.value:.2f}",
        _number(row.interval, "± {:.2f}"),
        _number(row.mean, "{:.2f}"),
        _number(row.sd, "± {:.2f}"),
        _number(row.compliance, "{:.3f}"),
        f"{row.fixes:.1f}",
        str(row.attempts),
        f"= also {others} equal order{'s' * (others > 1)}" if others else "",
    ]


def _number(value: float, form: str) -> str:
    return form.format(value) if math.isfinite(value) else ""


def _footnotes(rows: Sequence[Standing], matters: np.ndarray) -> list[str]:
    idle = [name for name, m in zip(UNIT_TYPES, matters, strict=True) if not m]
    if not idle or not rows:
        return []
    if len(idle) == len(UNIT_TYPES):
        return ["Nothing ever falls to this attacker: all 120 orders are equal."]
    several = len(idle) > 1
    names = f"{', '.join(idle[:-1])} and {idle[-1]}" if several else idle[0]
    fall, stand = ("fall", "they stand") if several else ("falls", "it stands")
    return [
        f"{names} never {fall} to this attacker, so it makes no difference where in an order {stand}: each line "
        f"stands for {len(rows[0].members)} equal orders."
    ]
