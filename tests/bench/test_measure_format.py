"""The one format of results: what is written is read again, and what is none is refused."""

import dataclasses
import json
import math
import shlex
import statistics
import sys
from pathlib import Path

import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

from stockade.bench.cli import BENCHES, Bench
from stockade.bench.result import Figure, Result, Skipped, find, machine_stamp
from stockade.bench.runner import BenchCommand
from stockade.bench.throughput import ThroughputBench
from stockade.errors import InputError
from tests.bench.results import figure

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from common import read_result, write_result  # noqa: E402

#: Without those that need Ray, or tables of the truth.
CHECKED = [bench for bench in BENCHES if not bench.name.startswith("search")]
finite = st.floats(allow_nan=False, allow_infinity=False)
tags = st.dictionaries(st.text(min_size=1), st.one_of(st.text(), st.integers(), finite), max_size=4)
figures = st.builds(Figure, tags, st.text(), st.lists(finite, min_size=1, max_size=5).map(tuple))
results = st.builds(
    Result,
    st.text(),
    st.text(),
    st.just({"cores": 2}),
    st.dictionaries(st.text(), st.integers()),
    finite,
    st.lists(figures, max_size=3),
    st.lists(st.builds(Skipped, st.text(), st.text()), max_size=2),
)


@given(st.lists(finite, min_size=1))
def test_the_value_is_the_median(rounds: list[float]) -> None:
    assert figure(rounds).value == statistics.median(rounds)


def test_ratios_compare_what_was_measured_together() -> None:
    ratio = figure([2.0, 9.0], backend="a").over(figure([1.0, 3.0], backend="b"), to="b")
    assert (ratio.rounds, ratio.unit, ratio.tags) == ((2.0, 3.0), "times", {"backend": "a", "to": "b"})
    with pytest.raises(ValueError, match="zip"):
        figure([1.0]).over(figure([1.0, 2.0]))


def test_figures_are_found_by_their_tags() -> None:
    bound, measured = figure([1.0], "s", k=1, kind="bound"), figure([2.0], "s", k=1)
    both = [bound, measured]
    assert find(both, "s", k=1) == both
    assert find(both, k=1, kind=None) == [measured]
    assert find(both, "s", k=(1, 2), kind="bound") == [bound]
    assert find(both, "ms", k=1) == find(both, "s", k=2) == []


@given(results)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, result: Result) -> None:
    path = tmp_path_factory.mktemp("results") / "result.json"
    write_result(result, path)
    assert read_result(path) == result
    assert list(path.parent.iterdir()) == [path]  # nothing is left of the writing


def _result(**changes: object) -> Result:
    pipes = figure([1.0, 2.0, 4.0], backend="pipes")
    result = Result("throughput", "stockade bench throughput", machine_stamp(), {"rounds": 3}, 1.5, [pipes])
    return dataclasses.replace(result, **changes)


def test_the_file_has_the_documented_form(tmp_path: Path) -> None:
    write_result(_result(skipped=[Skipped("ray", "not installed")]), tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text())
    assert list(content) == ["bench", "command", "stamp", "settings", "seconds", "figures", "skipped"]
    assert content["figures"] == [{"tags": {"backend": "pipes"}, "unit": "steps/s", "rounds": [1.0, 2.0, 4.0]}]
    assert content["skipped"] == [{"what": "ray", "why": "not installed"}]


def test_figures_that_are_no_numbers_are_never_written(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_result(_result(), path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="broken"):
        write_result(_result(figures=[figure([math.nan], case="broken")]), path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b"null",
        b'{"bench": "kernel", "stamp": {}, "figures": []}',  # as older versions wrote it
        b'{"bench":"a","command":"","stamp":[],"settings":{},"seconds":1,"figures":[],"skipped":[]}',
        b'{"bench":"a","command":"","stamp":{},"settings":{},"seconds":1,"figures":[{"what":"x"}],"skipped":[]}',
        b'{"bench":"a","command":"","stamp":{},"settings":{},"seconds":1,"skipped":[],"figures":'
        b'[{"unit":"","rounds":[NaN],"tags":{}}]}',
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"other\.json is no result of a bench"):
        read_result(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_result(tmp_path / "missing.json")
    with pytest.raises(InputError, match="directory"):
        read_result(tmp_path)


def test_keys_of_other_versions_do_not_matter(tmp_path: Path) -> None:
    entry = {
        "what": "restore of one world",
        "value": 2.0,
        "unit": "s",
        "rounds": [1, 2, 3],
        "tags": {"backend": "pipes"},
    }
    content = {"bench": "memory", "command": "x", "stamp": {}, "settings": {}, "seconds": 1.0, "skipped": [], "more": 1}
    (tmp_path / "old.json").write_text(json.dumps({**content, "figures": [entry]}))
    assert read_result(tmp_path / "old.json").figures == [Figure({"backend": "pipes"}, "s", (1.0, 2.0, 3.0))]


def test_committed_figures_are_identified_by_unit_and_tags() -> None:
    files = list((ROOT / "benchmarks" / "results").glob("*.json"))
    assert len(files) >= 12
    for result in map(read_result, files):
        keys = [(one.unit, frozenset(one.tags.items())) for one in result.figures]
        assert len(set(keys)) == len(keys) > 0


def test_the_stamp_tells_what_figures_depend_on() -> None:
    stamp = machine_stamp()
    assert stamp["cores"] >= 1
    assert {"cpu", "memory_gib", "system", "python", "packages", "commit", "date", "load", "cache"} <= set(stamp)
    assert {"stockade", "numpy", "numba", "gymnasium"} <= set(stamp["packages"])
    json.dumps(stamp, allow_nan=False)


# ------------------------------------------------------------------------------------------------------------- commands
@pytest.mark.parametrize("bench", CHECKED)
@pytest.mark.parametrize("quick", [False, True])
def test_the_command_of_a_result_repeats_it(bench: type[BenchCommand], quick: bool) -> None:
    changed: dict[str, object] = {"rounds": 9, "quick": quick}
    if any(field.name == "modes" for field in dataclasses.fields(bench)):
        changed["modes"] = ("steps only",)  # a value with a space in it
    if any(field.name == "peers" for field in dataclasses.fields(bench)):
        changed["peers"] = False
    given = bench(**changed)  # type: ignore[arg-type]
    words = shlex.split(given.command())
    assert words[:3] == ["stockade", "bench", bench.name]
    assert tyro.cli(Bench, args=words[2:]).what == given


@pytest.mark.parametrize("bench", CHECKED)
def test_defaults_and_quick_settings_can_be_used(bench: type[BenchCommand]) -> None:
    bench().check()
    quick = bench(quick=True).sized()
    quick.check()
    for field in dataclasses.fields(bench):
        assert field.metadata.get("quick") in (None, getattr(quick, field.name))


def test_quick_leaves_alone_what_was_asked_for() -> None:
    quick = ThroughputBench(quick=True, n_envs=(7,)).sized()
    assert quick.n_envs == (7,)
    assert quick.rounds == 1
