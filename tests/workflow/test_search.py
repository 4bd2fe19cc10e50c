"""Whole searches of all orders together: killed, extended, certified, of hosts, against several attackers."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stockade
from stockade.errors import InputError
from stockade.text import WIDTH
from stockade.workflow import together
from stockade.workflow.config import SearchConfig
from stockade.workflow.policies import load_search
from stockade.workflow.search import SearchResult, search
from stockade.workflow.summary import rising
from stockade.workflow.together import JUDGE_SEED
from tests.processes import after_calls

SMALL: dict[str, Any] = {"n_envs": 20, "horizon": 12, "total_episodes": 1200, "n_eval_episodes": 40, "plots": False}


def searched(folder: Path, **options: Any) -> SearchResult:
    return search(SearchConfig(**{**SMALL, "runs": folder, "name": "x", **options}))


def content(folder: Path) -> dict[str, Any]:
    """What a search found, but for the time that it took."""
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    del summary["seconds"]
    return summary


def fits(printed: str, folder: Path) -> None:
    """No line is too wide, but for the name of the temporary folder."""
    assert max(len(line) for line in printed.splitlines() if str(folder) not in line) <= WIDTH


@pytest.fixture(scope="module", autouse=True)
def short_measurements() -> Iterator[None]:
    """Policies as small as these need few episodes to be compared, and few proposals."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("FRESH", 12),
            ("PROPOSING_ROUNDS", 2),
            ("CHOOSING_EPISODES", 100),
            ("SCREENING_EPISODES", 20),
        ):
            patch.setattr(together, name, value)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """A small search to its end."""
    return searched(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def finished(whole: SearchResult, tmp_path: Path) -> Path:
    """A folder with a copy of it."""
    shutil.copytree(whole.folder, tmp_path / "x")
    return tmp_path


def test_killed_after_any_checkpoint_and_resumed_it_finds_the_same(whole: SearchResult, tmp_path: Path) -> None:
    expected = whole.to_dict()
    flags = ["--n-envs", "20", "--max-steps", "12", "--total-episodes", "1200", "--n-eval-episodes", "40", "--no-plots"]
    command = ["search", *flags, "--runs", str(tmp_path / "killed"), "--name", "x"]
    saves = random.choice((1, 2, 3))
    kill = after_calls("stockade.learn.checkpoint", "CheckpointFolder.save", saves, "os.kill(os.getpid(), 9)")
    code = f"{kill}\nfrom stockade.cli import main\nmain({command!r})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    folder = tmp_path / "killed" / "x"
    assert not (folder / "summary.json").exists()
    search(SearchConfig.resumed("x", tmp_path / "killed", plots=False))
    found = content(folder)
    assert found == {name: json.loads(json.dumps(value)) for name, value in expected.items() if name != "seconds"}


def test_certified_by_trainings_alone(whole: SearchResult, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "certified" not in whole.to_dict()
    result = search(SearchConfig.resumed("x", finished, certify=2, plots=False, max_episodes=100))
    certified = content(finished / "x")["certified"]
    assert certified == json.loads(json.dumps(result.to_dict()["certified"]))
    assert len(certified["leader_values"]) == len(certified["rival_values"]) == 2
    assert certified["leader"] == whole.best[0] != certified["rival"]
    assert certified["claim"] == ("equal" if certified["rival"] in whole.best else "better")
    assert certified["episodes"] == 100
    assert f"Trained alone for {certified['episodes']:,} episodes, 2 seeds each" in capsys.readouterr().out
    # Everything of it is on disk: nothing is trained again.
    again = search(SearchConfig.resumed("x", finished, certify=2, plots=False, max_episodes=100))
    assert json.loads(json.dumps(again.to_dict()["certified"])) == certified
    # A later session that does not certify keeps what is known.
    search(SearchConfig.resumed("x", finished, plots=False))
    assert content(finished / "x")["certified"] == certified


def test_orders_of_hosts_are_compared_with_those_of_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = searched(tmp_path, units="hosts", red="meander", total_episodes=500)
    assert result.verdict.startswith("The best order of single hosts against the best order of types: ")
    assert "of the" in result.verdict
    assert "orders of single hosts. The best 8 of these were judged." in result.verdict.replace("\n  ", " ")
    assert "Not tried" not in result.verdict
    found = result.to_dict()["finer_order"]
    assert found["low"] <= found["gain"] <= found["high"]
    assert found["types"].count("enterprise") == 1
    fits(capsys.readouterr().out, tmp_path)


def test_several_attackers_and_the_delivered_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = searched(tmp_path, red="bline,meander", goal="worst")
    summary = result.to_dict()
    assert set(summary["best_by_goal"]) == {"mean", "worst"}
    assert summary["best"] == summary["best_by_goal"]["worst"]
    for entry in summary["classes"]:
        assert set(entry["by_attacker"]) == {"bline", "meander"}
    assert "Mean over bline and meander:" in result.verdict
    assert "Worst case of bline and meander:" in result.verdict
    printed = capsys.readouterr().out
    fits(printed, tmp_path)
    assert "try next:" in printed
    played = stockade.evaluate("x", runs=tmp_path, episodes=3, progress=False).to_dict()["order"].split(" > ")
    assert [unit for unit in played if unit in summary["matters"]] == summary["best"][0].split(" > ")


def test_the_delivered_policy_is_the_one_that_was_judged(finished: Path) -> None:
    """Told what summary.json says and kept to its order, it gets the very returns, for every order."""
    summary = content(finished / "x")
    for entry in summary["classes"]:
        agent = load_search(finished / "x", order=entry["order"])
        envs = stockade.make_vec(40, horizon=12, obs="memory")
        obs, _ = envs.reset(seed=JUDGE_SEED)
        total = np.zeros(40)
        for _ in range(12):
            obs, rewards, *_ = envs.step(agent.allowed(agent.predict(obs)[0], obs, envs))
            total += rewards
        assert total.mean() == pytest.approx(entry["measured"])
    first, second = summary["classes"]
    first["told"] = second["ranking"]
    (finished / "x" / "summary.json").write_text(json.dumps(summary))
    agents = [load_search(finished / "x", order=entry["order"]) for entry in (first, second)]
    assert np.array_equal(agents[0].context, agents[1].context)
    assert [agent.order for agent in agents] == [tuple(first["ranking"]), tuple(second["ranking"])]


def test_a_finished_search_is_extended(whole: SearchResult, finished: Path) -> None:
    with pytest.raises(InputError, match="seed=3 cannot be changed by --resume: it was begun with 0"):
        search(SearchConfig.resumed("x", finished, seed=3))
    with pytest.raises(InputError, match="name='y' cannot be changed by --resume: it is x"):
        search(SearchConfig.resumed("x", finished, name="y"))
    with pytest.raises(InputError, match="--last is for runs"):
        stockade.load("x", finished, last=True)
    assert repr(whole.agent) == repr(stockade.load("x", finished))
    longer = search(SearchConfig.resumed("x", finished, total_episodes=2400, plots=False))
    before, after = whole.to_dict(), longer.to_dict()
    assert after["settings"]["total_episodes"] == 2400
    assert sum(entry["episodes"] for entry in after["classes"]) > sum(entry["episodes"] for entry in before["classes"])
    shared = len(before["curves"]["episodes"])
    assert after["curves"]["episodes"][:shared] == before["curves"]["episodes"]


def test_flags_without_effect_are_named_even_if_they_repeat_a_default() -> None:
    from stockade.workflow.config import RewardFlags

    config = SearchConfig(first_version=RewardFlags(compliance_threshold=0.95), goal="worst", gp_beta=1.0)
    assert config.without_effect() == [
        "--compliance-threshold has no effect with --constraint strict",
        "--goal has no effect with a single attacker",
        "--gp-beta has no effect with --train together",
    ]
    hosts = SearchConfig(red="bline,meander", goal="worst", units="hosts", gp_beta=1.0)
    assert hosts.without_effect() == []
    assert SearchConfig(train="separate", search="all", gp_beta=1.0).without_effect() == [
        "--gp-beta has no effect with --search all"
    ]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"n_eval_episodes": 0}, "n_eval_episodes=0 must be at least 2"),
        ({"update_steps": 400}, "total_episodes=1200 is less than two updates"),
    ],
)
def test_numbers_that_would_end_in_nothing_are_refused_at_once(
    tmp_path: Path, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(InputError, match=error):
        searched(tmp_path, **options)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("best", "loser", "said"), [(0.0, 0.0, False), (1.0, 0.0, True), (0.0, 1.0, False), (0.0, 12.0, True)]
)
def test_values_that_still_rise_are_called_lower_bounds(best: float, loser: float, said: bool) -> None:
    """Those of the best order, and of others that might catch up; the gains are those of the last rounds."""
    rounds = np.full((30, 1, 2), [-4.0, -20.0])
    rounds[:-2, 0] -= best, loser
    outcome: Any = SimpleNamespace(curves={"values": rounds.tolist()})
    verdict: Any = SimpleNamespace(orders=[SimpleNamespace(value=v) for v in rounds[-1, 0]], margin=0.3)
    remarks = rising(outcome, verdict)
    assert bool(remarks) == said
    assert all("they are lower bounds" in remark and f"{max(best, loser):.1f} points" in remark for remark in remarks)


def test_certifying_again_never_mixes_orders_or_budgets(finished: Path) -> None:
    def certified(seeds: int, episodes: int) -> dict[str, Any]:
        options: dict[str, Any] = {"certify": seeds, "max_episodes": episodes, "plots": False}
        return dict(search(SearchConfig.resumed("x", finished, **options)).to_dict()["certified"])

    two, longer = certified(2, 100), certified(2, 200)
    assert (two["episodes"], longer["episodes"]) == (100, 200)
    trained = json.loads((finished / "x" / "certify" / "state.json").read_text())
    assert {proposed["episodes"] for proposed in trained["proposals"]} == {200}
    assert certified(1, 200)["leader_values"] == longer["leader_values"][:1]


def test_a_policy_file_of_a_strict_search_is_kept_to_its_order(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="policy for all orders of a search: name the search"):
        stockade.load(finished / "x" / "policies" / "conditioned.json")
    alone = searched(tmp_path / "alone", train="separate", n_workflows=1, max_episodes=200, total_episodes=400)
    file = next(path for path in (alone.folder / "policies").glob("*.json") if "no-order" not in path.name)
    agent: Any = stockade.load(file)
    assert [agent.units.names[unit] for unit in agent.order] == file.stem.split("-")[1:]
