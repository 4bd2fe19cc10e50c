"""The champion's page: seeds that are kept apart, counts that are right, tables made of what was measured."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stockade
from stockade.baselines import Baseline
from stockade.cage2.actions import action_index
from stockade.errors import InputError
from stockade.learn.config import CHAMPION, PPOConfig, TrainConfig
from stockade.learn.evaluate import PUBLISHED, SEEDS_PER_CELL, EvaluateConfig
from stockade.learn.files import read_metrics
from stockade.learn.mixture import cells_of
from stockade.learn.train import VALIDATION_SEED, TrainResult, train
from stockade.workflow.evaluation import Evaluate

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))  # scripts import each other as neighbours

import champion  # noqa: E402
import champion_ablate  # noqa: E402
from champion_behaviour import costs, parting, summarise, watch  # noqa: E402
from champion_evaluate import RESULTS, RULE_SETS, check_test_seeds  # noqa: E402

TINY = TrainConfig(
    red="bline,meander,sleep", horizons="30", rules="both", n_envs=24, total_episodes=1300, action_mask=True,
    checkpoint_episodes=400, validation_episodes=3, tensorboard=False,
    ppo=PPOConfig(hidden=(8,), update_steps=30, epochs=1, threads=1),
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a second or two."""
    runs = tmp_path_factory.mktemp("runs")
    assert train(replace(TINY, runs=runs, name="tiny")).saved
    return runs / "tiny"


@pytest.fixture(scope="module")
def results(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what evaluate, curves and behaviour make of it."""
    folder = tmp_path_factory.mktemp("results")
    for command in (
        ["evaluate", str(run), "--episodes", "10", "--out", str(folder / "champion.json")],
        ["curves", str(run), "--out", str(folder / "champion-curves.json"), "--picture", str(folder / "curves.svg")],
        ["behaviour", str(run), "--episodes", "10", "--out", str(folder / "champion-behaviour.json")],
    ):
        assert champion.main(command) == 0
    return folder


# ---------------------------------------------------------------------------------------------------------------- seeds
@given(st.integers(0, 3_000_000_000), st.integers(1, 1_000_000))
def test_accepted_test_seeds_are_nobody_elses(first: int, episodes: int) -> None:
    """Stated with ranges of our own: every cell's against every range that something was chosen by."""
    try:
        check_test_seeds(first, episodes)
    except InputError:
        return
    for k in range(9):
        seeds = range(first + k * SEEDS_PER_CELL, first + k * SEEDS_PER_CELL + episodes)
        assert seeds[-1] < VALIDATION_SEED
        assert seeds[0] >= 153 + 9 * SEEDS_PER_CELL
        for begin in (300_000_000, 500_000_000, 700_000_000, 900_000_000):
            assert seeds[-1] < begin or seeds[0] >= begin + 9 * SEEDS_PER_CELL


def test_default_test_seeds_are_accepted() -> None:
    check_test_seeds(600_000_000, 1000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "--seed", "153"], "development"),
        (["evaluate", "--seed", "-5"], "development"),
        (["evaluate", "--seed", "500000100", "--episodes", "1000001"], "take 1 to 1000000"),
        (["evaluate", "--seed", "500000000"], "an earlier recipe"),
        (["evaluate", "--seed", "1995000000"], "chooses checkpoints"),
        (["evaluate", "--seed", "899999999"], "ablations"),
        (["evaluate"], "at least one run"),
        (["evaluate", "no-such-run"], "no run 'no-such-run'"),
        (["curves", "no-such-run"], "no run 'no-such-run'"),
        (["ablate", "--only", "horoscope"], "no variant has such a name"),
        (["behaviour", "sleep", "--episodes", "1"], "at least 2"),
        (["tables", "--pages", "no/such/folder/page.md"], "no folder"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert champion.main(arguments) == 2
    assert message in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------------- evaluation
def test_evaluation_is_that_of_the_command(run: Path, results: Path, tmp_path: Path) -> None:
    content = json.loads((results / "champion.json").read_text())
    (entry,) = content["runs"]
    for rules in RULE_SETS:
        path = tmp_path / f"{rules}.json"
        Evaluate(EvaluateConfig(str(run), 10, rules, seed=content["seed"]), path).run()  # type: ignore[arg-type]
        expected = json.loads(path.read_text())
        ours = entry["rules"][rules]
        assert [c["mean"] for c in ours["cells"]] == pytest.approx([c["mean"] for c in expected["cells"]], abs=1e-4)
        assert [c["q05"] for c in ours["cells"]] == pytest.approx([c["q05"] for c in expected["cells"]], abs=1e-4)
        assert ours["total_interval"] == pytest.approx(expected["total_interval"], abs=1e-3)
    last = read_metrics(run / "metrics.csv")[-1]
    assert ours["cost"] == {"episodes": int(last["episodes"]), "steps": int(last["steps"]),
                             "minutes": round(last["seconds"] / 60, 2)}  # fmt: skip


def test_seeds_of_the_reference_are_played_again(run: Path, tmp_path: Path) -> None:
    """What ours plays with the reference's chance stands for the reference; two altered returns are found."""
    path, out = tmp_path / "champion-cyborg-current.json", tmp_path / "replayed.json"
    Evaluate(EvaluateConfig(str(run), 4, seed=600_000_000, chance="cyborg"), path).run()
    content = {**json.loads(path.read_text()), "simulator": "cyborg"}
    content["cells"][0]["returns"][1] -= 0.1
    content["cells"][5]["returns"][2] -= 1.0
    path.write_text(json.dumps(content))
    assert champion.main(["cyborg", str(path), "--out", str(out)]) == 0
    (entry,) = json.loads(out.read_text())["results"]
    assert (entry["rules"], entry["episodes"], entry["equal"]) == ("current", 36, 34)
    path.write_text(json.dumps({**content, "simulator": "stockade"}))
    assert champion.main(["cyborg", str(path), "--out", str(out)]) == 2


# --------------------------------------------------------------------------------------------------------------- curves
def test_curves_end_where_the_run_ended_and_the_picture_repeats(run: Path, results: Path, tmp_path: Path) -> None:
    (curve,) = json.loads((results / "champion-curves.json").read_text())["runs"]
    rows = read_metrics(run / "metrics.csv")
    assert curve["training"][-1][0] == rows[-1]["episodes"]
    assert curve["training"][-1][2] == pytest.approx(rows[-1]["return_window"], abs=1e-3)
    measured = [row for row in rows if not np.isnan(row.get("validation", np.nan))]
    assert [point[0] for point in curve["validation"]] == [row["episodes"] for row in measured]
    again = tmp_path / "again.svg"
    assert champion.main(["curves", str(run), "--out", str(tmp_path / "again.json"), "--picture", str(again)]) == 0
    assert again.read_bytes() == (results / "curves.svg").read_bytes()


# ------------------------------------------------------------------------------------------------------------ ablations
def test_each_variant_changes_something_else_and_can_be_trained() -> None:
    found = champion_ablate.variants(CHAMPION)
    configs = [variant.config for variant in found]
    assert found[0].name == champion_ablate.WHOLE
    assert configs[0] == CHAMPION
    assert all(a != b for k, a in enumerate(configs) for b in configs[:k])
    assert len({variant.name for variant in found}) == len(found) >= 9
    for config in configs:
        assert cells_of(config)


def test_ablations_go_on_where_they_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(champion_ablate, "CHAMPION", TINY)
    trained: list[tuple[str, int]] = []

    def counted(config: TrainConfig) -> TrainResult:
        trained.append((config.obs, config.seed))
        return train(config)

    monkeypatch.setattr(champion_ablate, "train", counted)
    out = tmp_path / "ablations.json"
    common = ["ablate", "--episodes", "200", "--eval-episodes", "3", "--out", str(out)]
    assert champion.main([*common, "--seeds", "0", "--only", "whole"]) == 0
    assert champion.main([*common, "--seeds", "0", "1", "--only", "whole", "no memory"]) == 0
    assert trained == [("memory", 0), ("bits", 0), ("memory", 1), ("bits", 1)]
    assert champion.main([*common, "--seeds", "0", "1", "--only", "whole", "no memory"]) == 0
    assert len(trained) == 4
    entries = json.loads(out.read_text())["entries"]
    assert len(entries) == 2 * (3 + 1)  # the whole recipe is played in three ways

    monkeypatch.setattr(champion, "CHAMPION", TINY)
    (tmp_path / "champion-ablations.json").write_text(out.read_text())
    row = next(row for row in champion.ablations(tmp_path).rows if str(row[0]).startswith("no memory"))
    sums = {
        name: [sum(c["mean"] for c in e["rules"]["current"]["cells"])
               for e in entries if (e["variant"], e["play"]) == (name, "")]
        for name in ("whole recipe", "no memory: the 52 bits only")
    }  # fmt: skip
    change = np.mean(sums["no memory: the 52 bits only"]) - np.mean(sums["whole recipe"])
    assert row[4] == f"{change:+.2f}"

    monkeypatch.setattr(champion, "CHAMPION", replace(TINY, n_envs=48))
    assert champion.ablations(tmp_path).rows == []  # results of another recipe are not shown
    monkeypatch.setattr(champion_ablate, "CHAMPION", replace(TINY, n_envs=48))
    assert champion.main([*common, "--seeds", "0", "--only", "whole"]) == 0
    assert len(trained) == 5


# ------------------------------------------------------------------------------------------------------------ behaviour
@pytest.mark.parametrize("rules", RULE_SETS)
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_causes_add_up_to_the_return(red: str, rules: str) -> None:
    """Of a random defender: it lets everything happen, the stopped service included."""
    record = watch(Baseline("random"), red, rules, 40, 60, seed=1)
    causes = costs(record)
    assert sum(causes.values()) == pytest.approx(record.rewards.sum(axis=0).mean(), abs=2e-3)
    assert causes["service down"] < 0
    assert causes["Restore"] < 0


class Scripted:
    """Plays the same list of actions in every episode."""

    obs = "bits"

    def __init__(self, names: list[str]) -> None:
        self.actions = [action_index(name) for name in names]
        self.step = 0

    def act(self, observations: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        action = self.actions[self.step % len(self.actions)]
        self.step += 1
        return np.full(len(observations), action)


def test_counts_are_those_of_a_slow_look() -> None:
    """The same seeds in single environments, counted by the names in their info."""
    names = ["DecoyTomcat User1", "DecoyTomcat User1", "Restore User1", "Remove User2", "Analyse Enterprise0", "Sleep"]
    steps, episodes = 36, 6
    found = summarise(watch(Scripted(names), "bline", "current", episodes, steps, seed=77))
    placed, held, met = 0, np.zeros(13), []
    for k in range(episodes):
        env = stockade.make("bline", steps, "current")
        env.reset(seed=77 + k)
        for t in range(steps):
            name = names[t % len(names)]
            before = int(env.true_state().red_access[9])
            if name == "Restore User1":
                met.append(before)
            info = env.step(action_index(name))[4]
            placed += name.startswith("Decoy") and info["blue_success"]
            held += env.true_state().red_access > 0
    assert found["decoys"] == [{"action": "DecoyTomcat User1", "host": "User1", "episodes": 1.0,
                                "an_episode": round(placed / episodes, 4), "first_step": 1.0}]  # fmt: skip
    assert placed == episodes * steps // len(names)  # the second of each pair fails
    assert found["kinds"] == {"Analyse": 6, "Remove": 6, "decoy": 12, "Restore": 6, "Sleep or Monitor": 6}
    assert found["restore_hosts"] == {"User1": 6}
    assert [found["red_holds"][host]["any"] for host in found["red_holds"]] == pytest.approx(
        held / (steps * episodes), abs=1e-4
    )
    assert found["aim"]["Restore"] == {
        name: pytest.approx(met.count(level) / len(met), abs=1e-4)
        for level, name in enumerate(("nobody", "user", "root"))
    }
    assert found["first_steps"][0] == [["DecoyTomcat User1", 1.0]]


def test_parting_of_two_scripts() -> None:
    one, other = (watch(Scripted(["Sleep", name]), red, "current", 8, 2, seed=0)
                  for red, name in (("bline", "Sleep"), ("meander", "Restore User1")))  # fmt: skip
    found = parting(one, other)
    assert found["distance"] == [0.0, 1.0]
    assert (found["first_beyond_0.1"], found["first_beyond_0.5"]) == (2, 2)
    assert found["noise"] == [0.0, 0.0]


# ----------------------------------------------------------------------------------------------------------------- page
def test_the_tables_of_the_page_are_those_of_the_results() -> None:
    text = "".join(page.read_text() for page in champion.PAGES)
    assert text == "".join(champion.filled(page, RESULTS) for page in champion.PAGES), "run champion.py tables"
    assert all(f"<!-- champion:{name}:begin -->" in text for name in champion.TABLES)


def test_a_decoy_that_fails_counts_as_a_wait(tmp_path: Path) -> None:
    names = ["DecoyTomcat User1", "DecoyTomcat User1", "Restore User1"]  # the second of each three fails
    found = {red: summarise(watch(Scripted(names), red, "current", 4, 30, seed=5)) for red in ("bline", "meander")}
    worlds = [{"red": red, "rules": rules, **found[red]} for red in found for rules in RULE_SETS]
    (tmp_path / "champion-behaviour.json").write_text(json.dumps({"worlds": worlds}))
    rows = {str(row[0]): row[1:] for row in champion.actions(tmp_path).rows}
    assert rows["decoy that is placed"] == rows["decoy that fails: a wait"] == ["10.0"] * 4


def test_a_result_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- champion:cost:begin -->\n<!-- champion:cost:end -->\n")
    assert champion.main(["tables", "--pages", str(page), "--results", str(tmp_path)]) == 2
    assert "champion.json is not there" in capsys.readouterr().err


@pytest.mark.parametrize("rules", RULE_SETS)
def test_readme_and_pages_tell_the_totals_that_were_measured(rules: str) -> None:
    winner = next(row for row in PUBLISHED if row.name == "CardiffUni, replayed" and row.rules == rules)
    for name, pages in (("champion", ("champion.md",)), ("challenger", ("../../README.md", "challenger.md"))):
        runs = json.loads((RESULTS / f"{name}.json").read_text())["runs"]
        measured = next(run for run in runs if run["shipped"])["rules"][rules]
        for page in pages:
            text = (ROOT / "docs" / "results" / page).read_text()
            assert f"{measured['total']:.2f}" in text
            assert f"{winner.total:.2f}" in text
