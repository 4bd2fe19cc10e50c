"""docs/benchmarks.md as text: results -> machine, how to repeat, a section for each bench, the notes' claims."""

from __future__ import annotations

from collections.abc import Iterator

from stockade.bench.page_asks import Claim
from stockade.bench.page_claims import TOPICS
from stockade.bench.page_sections import SECTIONS, Section
from stockade.bench.report_tables import Results, flat, markdown, measure, texts

_HEAD = """\
<!-- Made by `stockade bench report` of the files in benchmarks/results. Do not edit: measure again. -->
# Benchmarks

Every figure here is the median of several rounds, with their range; cases that are compared took turns round by round
in one run. `stockade bench all` repeats everything (under half an hour on two cores, `--quick` in about a minute);
`stockade bench compare A B` tells what became slower between two such runs, beyond the noise; `stockade bench report`
makes this page. The files with all rounds, versions and settings are in [benchmarks/results](../benchmarks/results)."""

_CLAIMS = """\
## The notes' claims

This project began with notes about the speed of its first version. Here is every figure in them, beside what that first
version did when it was measured on this machine before we began (B_line, 100 environments unless said otherwise), and
what this one does. Where a claim was an estimate, what it estimated has been built and measured."""


def make_page(results: Results, pictures: dict[str, str]) -> str:
    """The whole page. `pictures`: by bench, where its picture lies as seen from the page."""
    lines = [_HEAD, "", *_machines(results), "", *_contents()]
    for section in SECTIONS:
        lines += ["", *_section(section, results, pictures.get(section.bench))]
    lines += ["", _CLAIMS]
    for topic in TOPICS:
        lines += ["", f"### {topic.title}"]
        if topic.text:
            lines += ["", topic.text]
        head = ["claim", "the notes", "first version, measured here", "now", "why they differ"]
        lines += ["", *markdown(head, (_claim_row(claim, results) for claim in topic.claims), left=len(head))]
    return "\n".join(lines) + "\n"


def _contents() -> list[str]:
    titles = [section.title for section in SECTIONS] + ["The notes' claims"]
    return [" · ".join(f"[{title}](#{_anchor(title)})" for title in titles)]


def _anchor(title: str) -> str:
    """As GitHub makes them."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def _machines(results: Results) -> Iterator[str]:
    """On what it was measured; one line if it was the same for all."""
    machines: dict[str, list[str]] = {}
    for bench, result in results.by_bench.items():
        machines.setdefault(_machine(result.stamp), []).append(bench)
    yield "## The machine"
    yield ""
    if not machines:
        yield "Nothing has been measured yet: run `stockade bench all`."
    for machine, benches in machines.items():
        yield f"- {machine}" + (f" ({', '.join(benches)})" if len(machines) > 1 else "")


def _machine(stamp: dict[str, object]) -> str:
    """All that does not change from one bench of a run to the next."""
    packages = stamp.get("packages")
    versions = ", ".join(f"{k} {v}" for k, v in packages.items()) if isinstance(packages, dict) else ""
    extra = [
        f"{stamp[name]}{unit}" for name, unit in (("cache", " last cache"), ("memory_gib", " GiB")) if stamp.get(name)
    ]
    parts = [f"{stamp.get('cores')} cores of {stamp.get('cpu')}", *extra, str(stamp.get("system"))]
    return f"{', '.join(parts)}; Python {stamp.get('python')}, {versions}"


def _section(section: Section, results: Results, picture: str | None) -> Iterator[str]:
    yield f"## {section.title}"
    yield ""
    yield section.text
    yield ""
    result = results.by_bench.get(section.bench)
    if result is None:
        yield f"Not measured: run `{measure(section.bench)}`."
        return
    stamp = result.stamp
    yield (
        f"Repeat it: `{result.command}` ({result.seconds:.0f} s on {stamp.get('date')}, commit {stamp.get('commit')}, "
        f"load {stamp.get('load')} as it began)."
    )
    if picture is not None:
        yield ""
        yield f"![{section.title}]({picture})"
    shown = set()
    for table in section.tables:
        shown |= {id(f) for f in table.figures(results, section.bench)}
        yield from table.lines(results, section.bench)
    yield from flat(f for f in result.figures if id(f) not in shown)
    if result.skipped:
        yield ""
        yield "Left out:"
        yield ""
        reasons = dict.fromkeys(skip.why for skip in result.skipped)
        for why in reasons:
            cases = "; ".join(skip.what for skip in result.skipped if skip.why == why)
            yield f"- {cases}: {why}"


def _claim_row(claim: Claim, results: Results) -> list[str]:
    return [claim.what, claim.notes, claim.before or "not measured", "<br>".join(texts(claim.now, results)), claim.why]
