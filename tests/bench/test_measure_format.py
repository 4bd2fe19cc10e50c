"""The one format of results: what is written is read again, and what is none is refused."""

import dataclasses
import json
import math
import shlex
import statistics
from pathlib import Path

import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

from stockade.bench.bottleneck import BottleneckBench
from stockade.bench.cli import Bench
from stockade.bench.command import BenchCommand
from stockade.bench.figures import Figure, figure_of, ratios
from stockade.bench.kernel import KernelBench
from stockade.bench.learn import LearnBench
from stockade.bench.memory import MemoryBench
from stockade.bench.result import Result, Skipped, read_result, write_result
from stockade.bench.scaling import ScalingBench
from stockade.bench.stamp import machine_stamp
from stockade.bench.startup import StartupBench
from stockade.bench.stragglers import StragglersBench
from stockade.bench.throughput import ThroughputBench
from stockade.bench.train import TrainBench
from stockade.bench.true_state import TrueStateBench
from stockade.bench.vector_overhead import VectorBench
from stockade.errors import InputError

BENCHES: tuple[type[BenchCommand], ...] = (
    BottleneckBench,
    KernelBench,
    LearnBench,
    MemoryBench,
    ScalingBench,
    StartupBench,
    StragglersBench,
    ThroughputBench,
    TrainBench,
    TrueStateBench,
    VectorBench,
)
finite = st.floats(allow_nan=False, allow_infinity=False)
tags = st.dictionaries(st.text(min_size=1), st.one_of(st.text(), st.integers(), finite), max_size=4)
# `what`, `rounds` and `unit` may be tags too: the arguments of figure_of are positional
figures = st.builds(
    lambda what, rounds, unit, tags: figure_of(what, rounds, unit, **tags),
    st.text(),
    st.lists(finite, min_size=1, max_size=5),
    st.text(),
    tags,
)
results = st.builds(
    Result,
    st.text(),
    st.text(),
    st.just({"cores": 2}),
    st.dictionaries(st.text(), st.integers()),
    finite,
    st.lists(figures, max_size=3).map(tuple),
    st.lists(st.builds(Skipped, st.text(), st.text()), max_size=2).map(tuple),
)


@given(st.lists(finite, min_size=1))
def test_figure_has_median_and_range(rounds: list[float]) -> None:
    figure = figure_of("speed", rounds, "steps/s", n_envs=3)
    assert figure.value == statistics.median(rounds)
    assert (figure.low, figure.high) == (min(rounds), max(rounds))
    assert figure.rounds == tuple(rounds)
    assert figure.tags == {"n_envs": 3}


def test_ratios_compare_what_was_measured_together() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    with pytest.raises(ValueError, match="zip"):
        ratios([1.0], [1.0, 2.0])


@given(results)
def test_what_is_written_is_read_again(tmp_path_factory: pytest.TempPathFactory, result: Result) -> None:
    path = tmp_path_factory.mktemp("results") / "result.json"
    write_result(path, result)
    assert read_result(path) == result
    assert list(path.parent.iterdir()) == [path]  # nothing is left of the writing


def _result(**changes: object) -> Result:
    figure = figure_of("speed", [1.0, 2.0, 4.0], "steps/s", backend="pipes")
    result = Result("throughput", "stockade bench throughput", machine_stamp(), {"rounds": 3}, 1.5, (figure,))
    return dataclasses.replace(result, **changes)


def test_the_file_has_the_documented_form(tmp_path: Path) -> None:
    write_result(tmp_path / "a.json", _result(skipped=(Skipped("ray", "not installed"),)))
    content = json.loads((tmp_path / "a.json").read_text())
    assert list(content) == ["bench", "command", "stamp", "settings", "seconds", "figures", "skipped"]
    assert content["figures"] == [
        {
            "what": "speed",
            "value": 2.0,
            "unit": "steps/s",
            "low": 1.0,
            "high": 4.0,
            "rounds": [1.0, 2.0, 4.0],
            "tags": {"backend": "pipes"},
        }
    ]
    assert content["skipped"] == [{"what": "ray", "why": "not installed"}]


def test_figures_that_are_no_numbers_are_never_written(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_result(path, _result())
    before = path.read_bytes()
    with pytest.raises(ValueError, match="broken"):
        write_result(path, _result(figures=(Figure("broken", math.nan, "s", 0.0, 1.0),)))
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
        b'[{"what":"x","value":NaN,"unit":"","low":1,"high":1,"rounds":[],"tags":{}}]}',
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


def test_the_stamp_tells_what_figures_depend_on() -> None:
    stamp = machine_stamp()
    assert stamp["cores"] >= 1
    assert stamp["physical_cores"] is None or stamp["physical_cores"] >= 1
    assert {"cpu", "memory_gib", "system", "python", "packages", "commit", "date", "load", "cache"} <= set(stamp)
    assert {"stockade", "numpy", "numba", "gymnasium"} <= set(stamp["packages"])
    json.dumps(stamp, allow_nan=False)


# ------------------------------------------------------------------------------------------------------------- commands
@pytest.mark.parametrize("bench", BENCHES)
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


@pytest.mark.parametrize("bench", BENCHES)
def test_defaults_and_quick_settings_can_be_used(bench: type[BenchCommand]) -> None:
    bench().check()
    quick = bench(quick=True).sized()
    quick.check()
    for name, value in bench.quick_settings.items():
        assert getattr(quick, name) == value


def test_quick_leaves_alone_what_was_asked_for() -> None:
    quick = ThroughputBench(quick=True, n_envs=(7,)).sized()
    assert quick.n_envs == (7,)
    assert quick.rounds == 1
