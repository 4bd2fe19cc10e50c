"""benchmarks/side_by_side.py: the interval holds the true median, and two checkouts really run in turns."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import side_by_side  # noqa: E402


@pytest.mark.parametrize("n", [6, 20, 41])
def test_the_interval_holds_the_true_median_at_least_95_times_of_100(n):
    samples = np.random.default_rng(0).lognormal(0.0, 0.3, (4000, n))
    found = [side_by_side.median_interval(row.tolist()) for row in samples]
    assert np.mean([low <= 1.0 <= high for _, low, high in found]) >= 0.94
    assert all(low <= median <= high for median, low, high in found)


@pytest.mark.slow
def test_this_checkout_beside_itself(tmp_path, capsys):
    path = tmp_path / "speeds.json"
    arguments = ["--other", str(ROOT), "--only", "serial", "--rounds", "6", "--seconds", "0.01", "--json", str(path)]
    assert side_by_side.main(arguments) == 0
    pairs = json.loads(path.read_text())["serial"]
    assert len(pairs) == 6
    assert all(speed > 0 for pair in pairs for speed in pair)
    assert capsys.readouterr().out.splitlines()[-1].startswith("serial")


@pytest.mark.parametrize("arguments", [["--other", "/no/such"], ["--other", str(ROOT), "--rounds", "5"],
                                       ["--other", str(ROOT), "--only", "weather"]])  # fmt: skip
def test_unusable_arguments_get_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        side_by_side.main(arguments)
    assert ended.value.code == 2


def test_a_program_that_fails_is_told_with_its_error():
    with pytest.raises(SystemExit, match="ZeroDivisionError"):
        side_by_side.measure("def work(): return 1 / 0", [ROOT, ROOT], 1, 0.01)
