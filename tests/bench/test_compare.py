"""benchmarks/compare.py: noise is not reported, changes are, and whether they are losses depends on the unit."""

import dataclasses
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.results import STAMP, figure, one, result, write

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from common import run_script
from compare import Compare, compare, verdict, warnings

NUMBERS = st.floats(1e-3, 1e6)
ROUNDS = st.lists(NUMBERS, min_size=1, max_size=12)
OPPOSITE = {"slower": "faster", "faster": "slower", "bigger": "smaller", "smaller": "bigger"}
UNITS = st.sampled_from(["steps/s", "million steps/s", "s", "ms an iteration", "MiB", "%", "times"])


def verdict_of(before, after, unit="steps/s", at_least=10.0):
    return verdict(figure(before, unit), figure(after, unit), at_least)


@pytest.fixture
def script(capsys):
    def run(*arguments):
        code = run_script(Compare, None, list(map(str, arguments)))
        return code, *capsys.readouterr()

    return run


# ------------------------------------------------------------------------------------------------------------ verdicts
@given(ROUNDS, ROUNDS, UNITS)
def test_the_other_way_round_it_is_the_opposite(a, b, unit):
    there, back = verdict_of(a, b, unit), verdict_of(b, a, unit)
    assert back == OPPOSITE.get(there, there)


@given(ROUNDS, st.data(), UNITS)
def test_what_stays_within_the_spread_is_never_reported(a, data, unit):
    inside = st.floats(min(a), max(a))
    b = data.draw(st.lists(inside, min_size=1, max_size=12))
    assert verdict_of(a, b, unit) == "same"


@given(st.floats(1e-3, 1e6), st.integers(0, 2**32), st.integers(3, 15), st.integers(3, 15), UNITS)
def test_twice_as_slow_is_always_reported_where_rounds_differ_by_less_than_a_quarter(scale, seed, n, m, unit):
    chance = random.Random(seed)
    a = [scale * chance.uniform(0.9, 1.12) for _ in range(n)]
    b = [2 * scale * chance.uniform(0.9, 1.12) for _ in range(m)]
    expected = {"s": "slower", "ms an iteration": "slower", "MiB": "bigger", "%": "changed", "times": "changed"}
    assert verdict_of(a, b, unit) == expected.get(unit, "faster")
    assert verdict_of(b, a, unit) == OPPOSITE.get(expected.get(unit, "faster"), "changed")


@given(st.integers(0, 2**32))
def test_five_rounds_are_believed_although_they_are_wide(seed):
    chance = random.Random(seed)
    before = [chance.uniform(75, 125) for _ in range(5)]
    after = [value / 2 for value in (chance.uniform(75, 125) for _ in range(5))]
    assert verdict_of(before, after) == "slower"


@pytest.mark.parametrize("rounds", [3, 5, 9])
def test_equal_code_is_seldom_reported(rounds):
    chance = random.Random(0)
    draw = lambda: [chance.lognormvariate(0, 0.2) for _ in range(rounds)]  # noqa: E731
    reported = sum(verdict_of(draw(), draw()) != "same" for _ in range(2000))
    assert reported <= 0.02 * 2000


def test_a_small_difference_is_not_reported_however_sure_it_is():
    before, after = [100.0, 100.1, 99.9, 100.0, 100.05], [95.0, 95.1, 94.9, 95.0, 95.05]
    assert verdict_of(before, after) == "same"
    assert verdict_of(before, after, at_least=3.0) == "slower"


def test_sizes_have_no_noise_and_are_compared_as_they_are():
    assert verdict_of([320.0], [320.0], "bytes") == "same"
    assert verdict_of([320.0], [400.0], "bytes") == "bigger"
    assert verdict_of([400.0], [320.0], "bytes") == "smaller"


def test_one_or_two_rounds_say_nothing_of_the_noise_so_only_twice_counts():
    assert verdict_of([100.0], [60.0]) == verdict_of([100.0, 101.0], [60.0, 60.5]) == "same"
    assert verdict_of([100.0], [49.0]) == verdict_of([100.0, 101.0], [49.0, 49.5]) == "slower"


def test_costs_below_zero_are_compared_too():
    assert verdict_of([-0.4, 0.3, 1.0], [0.2, -0.5, 0.9], "%") == "same"
    assert verdict_of([-1.0, -1.1, -0.9], [5.0, 5.1, 5.2], "%") == "changed"


# ------------------------------------------------------------------------------------------------------------- listing
def test_losses_come_first_and_the_worst_of_them_at_the_top():
    names = ["a", "b", "c", "d", "e"]
    factors = [0.5, 1.0, 0.25, 4.0, 1.0]
    before = [figure([100.0] * 5, case=name) for name in names]
    after = [figure([100.0 * factor] * 5, case=name) for name, factor in zip(names, factors, strict=True)]
    changes = compare({"x": result("x", before)}, {"x": result("x", after)})
    assert [(c.before.tags["case"], c.verdict) for c in changes] == [
        ("c", "slower"),
        ("a", "slower"),
        ("d", "faster"),
        ("b", "same"),
        ("e", "same"),
    ]


def test_figures_are_paired_by_their_tags():
    before = [figure([1.0], n_envs=20), figure([9.0], n_envs=200)]
    after = [figure([9.0], n_envs=200), figure([1.0], n_envs=20)]
    changes = compare({"x": result("x", before)}, {"x": result("x", after)})
    assert [c.verdict for c in changes] == ["same", "same"]


def test_what_only_one_has_is_listed(script, tmp_path):
    before, after = (write(tmp_path / unit, *one([1.0], unit).values()) for unit in ("MiB", "s"))
    code, out, _ = script(before, after)
    assert code == 0
    assert f"only in {before}: some MiB of bench throughput\n" in out
    assert f"only in {after}: some s of bench throughput\n" in out
    assert "0 figures compared" in out


def test_other_machines_and_settings_are_warned_of():
    before = {"x": result("x", [], n_envs=20)}
    assert list(warnings(before, before)) == []
    elsewhere = dataclasses.replace(before["x"], stamp={**STAMP, "cpu": "Abacus 4000"})
    assert "different machines" in next(warnings(before, {"x": elsewhere}))
    alone = dataclasses.replace(before["x"], stamp={**STAMP, "cores": 1})
    assert "2 cores of Abacus 3000, 24 GiB; 1 core of Abacus" in next(warnings(before, {"x": alone}))
    assert "different settings: n_envs" in next(warnings(before, {"x": result("x", [], n_envs=50)}))


# ------------------------------------------------------------------------------------------------------------- command
def test_the_exit_code_says_whether_something_became_slower(script, tmp_path):
    fast, slow = (tmp_path / name for name in ("fast", "slow"))
    write(fast, *one([100.0, 101.0, 99.0]).values())
    write(slow, *one([50.0, 51.0, 49.0]).values())
    for before, after, code, words in (
        (fast, slow, 1, "1 slower or bigger, 0 faster"),
        (slow, fast, 0, "0 slower or bigger, 1 faster"),
        (fast, fast, 0, "0 slower or bigger, 0 faster"),
        (fast / "throughput.json", slow / "throughput.json", 1, "1 slower or bigger"),
    ):
        got, out, _ = script(before, after)
        assert got == code
        assert words in out


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "no JSON"),
        ("[]", "no result of a bench"),
        ("{}", "it has no 'figures'"),
        ('{"bench": "x", "figures": [{"unit": "x"}]}', "it has no 'tags'"),
    ],
)
def test_a_broken_file_is_named_with_the_reason(script, tmp_path, content, reason):
    good = write(tmp_path / "good", *one([1.0]).values()) / "throughput.json"
    broken = tmp_path / "broken.json"
    broken.write_text(content)
    for arguments in ((good, broken), (broken, good)):
        code, _, err = script(*arguments)
        assert code == 2
        assert str(broken) in err
        assert reason in err


def test_two_files_of_one_bench_in_a_folder_are_refused(script, tmp_path):
    folder = write(tmp_path / "results", *one([1.0]).values())
    (folder / "again.json").write_bytes((folder / "throughput.json").read_bytes())
    code, _, err = script(folder, folder)
    assert code == 2
    assert "throughput.json is a second result of bench throughput" in err
