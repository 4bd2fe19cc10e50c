"""`bench search` measures real searches on Ray; the figure itself is for a calm machine."""

import json
from pathlib import Path

import pytest

from stockade.bench.search import SearchParallelBench
from stockade.cores import available_cores


@pytest.mark.slow
@pytest.mark.skipif(available_cores() < 2, reason="two cores are compared with one")
@pytest.mark.usefixtures("no_ray")
def test_both_ways_do_the_same_work(tmp_path: Path) -> None:
    before = available_cores()
    bench = SearchParallelBench(quick=True, n_envs=20, episodes=40, max_steps=10, json=tmp_path / "search.json")
    assert bench.run() == 0
    one, two, gain = json.loads((tmp_path / "search.json").read_text())["figures"]
    assert (one["tags"], two["tags"]) == ({"parallel": 1}, {"parallel": 2})
    assert {one["unit"], two["unit"]} == {"workflows/min"}
    assert gain["rounds"][0] == pytest.approx(two["rounds"][0] / one["rounds"][0])
    assert available_cores() == before
