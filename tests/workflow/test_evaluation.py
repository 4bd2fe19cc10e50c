"""`stockade evaluate` of a search's policy: found by name, told its order, its compliance counted right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import stockade
from stockade.errors import InputError
from stockade.learn.agents import Agent
from stockade.learn.evaluate import EvaluateConfig
from stockade.workflow.aligned import AlignedVectorEnv
from stockade.workflow.config import RewardProtocol, SearchConfig
from stockade.workflow.evaluation import Evaluate
from stockade.workflow.orders import TYPES, one_hot
from stockade.workflow.search import search
from tests.workflow.fake import reward_config


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A small real search, all of whose workflows count as feasible, and one of which none does."""
    folder = tmp_path_factory.mktemp("runs")
    small = {"n_envs": 20, "horizon": 15, "total_episodes": 400, "max_episodes": 200, "min_episodes": 200,
             "plots": False, "runs": folder}  # fmt: skip
    assert search(reward_config(name="good", compliance_threshold=0.0, min_fixes=0.0, **small)).exit_code == 0
    assert search(reward_config(name="bad", min_fixes=1000.0, **small)).exit_code == 0
    return folder


def test_a_search_is_found_by_its_name_and_its_best_policy_is_told_its_order(runs):
    summary = json.loads((runs / "good" / "summary.json").read_text())
    agent = stockade.load("good", runs, greedy=False)
    assert isinstance(agent, Agent)
    best = next(entry for entry in summary["classes"] if entry["order"] == summary["best"][0])
    order = tuple(best["ranking"])
    np.testing.assert_array_equal(agent.context, one_hot(order))
    file = stockade.load(runs / "good" / best["policy"], runs, greedy=False)
    envs = stockade.make_vec(8, obs="memory")
    obs, _ = envs.reset(seed=3)
    np.testing.assert_array_equal(agent.act(obs, np.random.default_rng(1)), file.act(obs, np.random.default_rng(1)))
    told = np.hstack([obs, np.tile(one_hot(order), (8, 1))])
    np.testing.assert_array_equal(
        agent.act(obs, np.random.default_rng(1)), agent.policy.act(told, np.random.default_rng(1))
    )


def test_a_search_in_which_nothing_complied_has_no_best(runs):
    with pytest.raises(InputError, match="no workflow of this search complied"):
        stockade.load("bad", runs)


def test_compliance_is_that_of_the_episodes_played(runs, capsys, tmp_path):
    config = Evaluate(EvaluateConfig("good", episodes=12, seed=40, runs=runs, greedy=False), tmp_path / "out.json")
    assert config.run() == 0
    written = json.loads((tmp_path / "out.json").read_text())
    agent = stockade.load("good", runs)
    order = tuple(agent.card["order"])
    assert "order: " in capsys.readouterr().out
    for cell in written["compliance"]:
        k = next(
            k for k, c in enumerate(written["cells"]) if (c["red"], c["horizon"]) == (cell["red"], cell["horizon"])
        )
        seed = 40 + 1_000_000 * k
        worlds = stockade.make_vec(12, red=cell["red"], horizon=cell["horizon"], obs="memory")
        env = AlignedVectorEnv(worlds, order, RewardProtocol())
        obs, _ = env.reset(seed=seed)
        generator = np.random.default_rng([seed, 1])
        for _ in range(cell["horizon"]):
            obs = env.step(agent.policy.act(obs, generator))[0]
        episodes = env.take()
        np.testing.assert_allclose(np.sort(episodes.env_return), np.sort(written["cells"][k]["returns"]), atol=1e-6)
        rates = episodes.rates(None)
        assert cell["fixes"] == episodes.judged.mean()
        assert cell["compliance"] == (None if not len(rates) else pytest.approx(rates.mean()))
        assert cell["no_fix"] == (episodes.judged == 0).mean()
    assert any(cell["compliance"] is not None for cell in written["compliance"])
    assert all(cell["compliance"] is None for cell in written["compliance"] if cell["red"] == "sleep")


def test_an_order_that_was_trained_alone_as_a_rule_is_kept_and_has_no_compliance_to_count(tmp_path):
    small = {"n_envs": 20, "horizon": 12, "total_episodes": 300, "max_episodes": 100, "n_eval_episodes": 20}
    search(SearchConfig(train="separate", plots=False, runs=tmp_path, name="alone", **small))
    result = stockade.evaluate("alone", runs=tmp_path, episodes=2, progress=False).to_dict()
    assert "compliance" not in result
    assert sorted(result["order"].split(" > ")) == sorted(TYPES.names)
