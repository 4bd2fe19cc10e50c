"""`stockade.search` for notebooks: keywords in, a result object out, which can be played and shown."""

import json
from pathlib import Path

import pytest

import stockade

TINY = {"n_envs": 20, "horizon": 10, "total_episodes": 100, "n_eval_episodes": 10, "plots": False, "progress": False}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> "stockade.workflow.search.SearchResult":
    runs = str(tmp_path_factory.mktemp("runs"))
    return stockade.search(reward=stockade.RewardWeights(hosts=3), name="found", runs=runs, **TINY)


def test_keywords_reach_the_search(result) -> None:
    settings = json.loads((result.folder / "config.json").read_text())
    assert (settings["horizon"], settings["n_envs"], settings["total_episodes"]) == (10, 20, 100)
    assert settings["reward"] == {"hosts": 3.0, "service": 1.0, "restore": 1.0}


def test_without_progress_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stockade.search(runs=tmp_path, **TINY)
    assert capfd.readouterr().out == ""


def test_the_result_as_a_dictionary_and_html(result) -> None:
    assert json.loads((result.folder / "summary.json").read_text()) == result.to_dict()
    assert set(result.best) <= {each["order"] for each in result.to_dict()["classes"]}
    assert "<table>" in result._repr_html_()


def test_the_result_is_played_as_its_folder_is(result) -> None:
    played = stockade.evaluate(result, episodes=2, progress=False)
    assert played.cells == stockade.evaluate(result.folder, episodes=2, progress=False).cells
    assert played.to_dict()["order"] == stockade.evaluate(result.agent, episodes=2, progress=False).to_dict()["order"]
