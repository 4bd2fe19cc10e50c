"""The search: its budget to the episode, its files, its choices, and what it does when something goes wrong."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.errors import InputError
from stockade.learn.checkpoint import load
from stockade.workflow import search as search_module
from stockade.workflow.config import SearchConfig
from stockade.workflow.engine import TrainingFailedError
from stockade.workflow.logs import GP_COLUMNS, TRAINING_COLUMNS
from stockade.workflow.orders import ALL_MATTER, ORDERS, describe
from stockade.workflow.records import Task, UpdateRow, WorkflowResult
from stockade.workflow.search import allowance, parent_of, search, seed_of, whole_updates
from stockade.workflow.store import SearchFolder
from tests.workflow.fake import HELD, FakeTrainer, content_of, is_feasible, rows_of

CONFIG = SearchConfig(n_envs=10, total_episodes=400, max_episodes=100, min_episodes=40, name="x")


@pytest.fixture(autouse=True)
def quick_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What red can hold is known here."""
    monkeypatch.setattr(search_module, "types_red_can_hold", lambda *_: np.array(HELD))


def run(folder: Path, train: object = None, **changes: object) -> Path:
    """A search to its end; its folder."""
    config = dataclasses.replace(CONFIG, runs=folder, **changes)  # type: ignore[arg-type]
    assert search(config, FakeTrainer() if train is None else train) == 0  # type: ignore[arg-type]
    return folder / (config.resume or config.name or "")


def summary_of(folder: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((folder / "summary.json").read_text())
    return content


class Recorder(FakeTrainer):
    """A fake trainer that keeps its tasks and results."""

    def __init__(self, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]
        object.__setattr__(self, "tasks", [])
        object.__setattr__(self, "results", {})

    def __call__(
        self, task: Task, report: Callable[[UpdateRow], None], should_stop: Callable[[], bool] = lambda: False
    ) -> WorkflowResult:
        self.tasks.append(task)  # type: ignore[attr-defined]
        result = super().__call__(task, report, should_stop)
        self.results[task.number] = result  # type: ignore[attr-defined]
        return result


# -------------------------------------------------------------------------------------------------------------- budget
def episodes_after(updates: int, update_steps: int, max_steps: int) -> int:
    """Played row by row: an episode has max_steps rows, then one row begins the next."""
    over, steps, dead = 0, 0, False
    for _ in range(updates * update_steps):
        if dead:
            dead = False
            continue
        steps += 1
        if steps == max_steps:
            over, steps, dead = over + 1, 0, True
    return over


@given(st.integers(1, 7), st.integers(1, 12), st.integers(1, 30), st.integers(0, 60))
def test_whole_updates_are_the_most_that_fit(n_envs: int, max_steps: int, update_steps: int, limit: int) -> None:
    config = SearchConfig(n_envs=n_envs, max_steps=max_steps, update_steps=update_steps)
    reached = [n_envs * episodes_after(u, update_steps, max_steps) for u in range(limit * (max_steps + 1) + 2)]
    assert whole_updates(config, limit) == max(e for e in reached if e <= limit)


@given(
    total=st.integers(10, 400), most=st.integers(10, 120), least=st.integers(0, 120), fixed=st.booleans(),
    seed=st.integers(0, 99), parallel=st.integers(1, 4),
)  # fmt: skip
def test_the_budget_is_never_exceeded_and_used_as_far_as_possible(
    total: int, most: int, least: int, fixed: bool, seed: int, parallel: int
) -> None:
    """Trainings of any length up to what they may, any number at once."""
    config = SearchConfig(
        n_envs=10, total_episodes=total, max_episodes=most, min_episodes=min(least, most), fixed_episodes=fixed
    )
    used, open_, started = 0, [], 0
    chance = np.random.default_rng(seed)
    enough = most // 10 * 10 if fixed else min(config.min_episodes, most // 10 * 10)
    while True:
        while len(open_) < parallel:
            episodes = allowance(config, used, sum(open_), first=started == 0)
            if episodes == 0:
                break
            assert episodes % 10 == 0
            assert episodes <= most
            assert started == 0 or episodes >= enough
            open_.append(episodes)
            started += 1
        if not open_:
            break
        used += 10 * int(chance.integers(open_.pop(0) // 10 + 1))
        assert used + sum(open_) <= total
        if started > 50:
            return
    assert started > 0
    assert total - used < max(10, -(-enough // 10) * 10)


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize("changes", [{}, {"fixed_episodes": True, "total_episodes": 370}, {"total_episodes": 30}])
def test_episodes_are_counted_exactly(tmp_path: Path, parallel: int, changes: dict[str, object]) -> None:
    folder = run(tmp_path, parallel=parallel, **changes)
    summary = summary_of(folder)
    workflows, budget = summary["workflows"], summary["budget"]
    played: dict[str, int] = {}
    for row in rows_of(folder / "training_log.csv"):
        played[row["number"]] = int(row["episodes"])
        assert int(row["total_episodes"]) == sum(played.values())
    assert played == {str(w["number"]): w["episodes"] for w in workflows}  # type: ignore[attr-defined]
    assert budget["used"] == sum(played.values()) <= budget["total"]  # type: ignore[index]
    assert budget["left"] == budget["total"] - budget["used"]  # type: ignore[index]
    for row in rows_of(folder / "gp_log.csv"):
        assert int(row["episodes"]) <= int(row["allowed_episodes"])


def test_more_than_was_allowed_is_an_error(tmp_path: Path) -> None:
    def greedy(task: Task, report: object, should_stop: object = None) -> WorkflowResult:
        result = FakeTrainer()(task, lambda row: None)
        return dataclasses.replace(result, episodes=task.episodes + 1)

    with pytest.raises(RuntimeError, match="played 101 episodes instead of 100"):
        run(tmp_path, greedy)


def test_an_update_that_does_not_fit_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="update-steps"):
        run(tmp_path, update_steps=101 * 20)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "trained", "why"),
    [
        ({"n_workflows": 3}, 3, "all 3 trainings are done"),
        ({"search": "all", "total_episodes": 10_000}, 6, "nothing left to try"),
        ({"search": "round-robin", "total_episodes": 200}, 4, "the rest of the budget is too small"),
    ],
)
def test_why_a_search_ends(tmp_path: Path, changes: dict[str, object], trained: int, why: str) -> None:
    summary = summary_of(run(tmp_path, FakeTrainer(feasible_episodes=50), **changes))
    assert len(summary["workflows"]) == trained or "budget" in why  # type: ignore[arg-type]
    assert why in str(summary["ended"])


# --------------------------------------------------------------------------------------------------------------- files
def test_files_of_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = tmp_path / "result.json"
    trainer = Recorder()
    folder = run(tmp_path, trainer, json=result)
    printed = capsys.readouterr().out
    config = json.loads((folder / "config.json").read_text())
    assert (config["command"], config["total_episodes"]) == ("search", 400)
    training, asked = rows_of(folder / "training_log.csv"), rows_of(folder / "gp_log.csv")
    head = (folder / "training_log.csv").read_text().splitlines()[0]
    assert tuple(head.split(",")) == TRAINING_COLUMNS
    assert tuple((folder / "gp_log.csv").read_text().splitlines()[0].split(",")) == GP_COLUMNS
    results = trainer.results  # type: ignore[attr-defined]
    assert len(asked) == len(results) > 5
    for row in asked:
        trained = results[int(row["number"])]
        assert row["order"] == describe(trained.order)
        assert float(row["value"]) == pytest.approx(trained.value, rel=1e-5)
        assert (row["feasible"], row["stopped"]) == (str(trained.feasible), trained.stopped)
        assert row["top"].count("feasible") >= 1
    for row in training:
        total = float(row["env_reward"]) + float(row["alignment"])
        assert float(row["total"]) == pytest.approx(total, abs=1e-3)
        assert ORDERS[int(row["workflow"])] == results[int(row["number"])].order
    for number, trained in results.items():
        saved = load(SearchFolder(folder).policy_path(number, trained.order))
        assert np.array_equal(saved.arrays["policy.head"], trained.weights["head"])
        assert saved.rest["order"] == list(trained.order)
        assert (saved.rest["value"], saved.rest["compliance"]) == (trained.value, trained.compliance)
        assert (saved.rest["obs"], saved.rest["architecture"]) == ("memory", trained.architecture)
    assert result.read_bytes() == (folder / "summary.json").read_bytes()
    for text in ("rank", "Not complied with", "= also 19 equal orders", "400 episodes", str(folder)):
        assert text in printed


def test_the_summary_ranks_and_explains(tmp_path: Path) -> None:
    folder = run(tmp_path)
    summary: dict[str, object] = summary_of(folder)
    ranking: list[dict[str, object]] = summary["ranking"]  # type: ignore[assignment]
    workflows: list[dict[str, object]] = summary["workflows"]  # type: ignore[assignment]
    feasible = [row for row in ranking if row["feasible"]]
    assert [row["rank"] for row in ranking] == [*range(1, len(feasible) + 1), *[None] * (len(ranking) - len(feasible))]
    means = [row["mean"] for row in feasible]
    assert means == sorted(means, reverse=True)  # type: ignore[type-var]
    assert summary["best"] == ranking[0]
    assert {row["class_size"] for row in ranking} == {20}
    for row in ranking:
        mine = [w for w in workflows if w["order"] in row["members"]]  # type: ignore[operator]
        assert row["attempts"] == len(mine)
        assert row["trainings"] == [w["number"] for w in mine]
        assert all(is_feasible(_order(str(w["order"]))) == row["feasible"] for w in mine)
        values = [w["value"] for w in mine]
        assert row["value"] == pytest.approx(np.mean(values))  # type: ignore[arg-type]
        assert row["interval"] == pytest.approx(1.96 * 0.5 / np.sqrt(len(mine)))
        assert (folder / str(row["policy"])).exists()
    assert len({row["class"] for row in summary["posterior"]}) == summary["classes"] == 6  # type: ignore[attr-defined]
    assert workflows[0]["statistics"]["by_type"]["user"]["fixes"] == 1.5  # type: ignore[index]
    assert "User1" in workflows[0]["statistics"]["by_host"]  # type: ignore[index]


def _order(text: str) -> tuple[int, ...]:
    return next(order for order in ORDERS if describe(order) == text)


def test_the_same_seed_gives_the_same_search_and_another_one_another(tmp_path: Path) -> None:
    contents = []
    for k, seed in enumerate((0, 0, 1)):
        (tmp_path / str(k)).mkdir()
        contents.append(content_of(run(tmp_path / str(k), seed=seed, inherit="nearest")))
    assert contents[0] == contents[1]
    assert contents[0]["training_log"] != contents[2]["training_log"]


def test_seeds_of_trainings_differ() -> None:
    assert len({seed_of(seed, number) for seed in range(30) for number in range(120)}) == 3600


# --------------------------------------------------------------------------------------------------------- inheritance
@given(st.lists(st.integers(0, 119), max_size=8), st.integers(0, 119), st.lists(st.booleans(), min_size=5, max_size=5))
def test_whom_a_workflow_inherits_from(seen: list[int], new: int, matters: list[bool]) -> None:
    """Against a slow search over the pairs of types."""
    order, mask = ORDERS[new], np.array(matters)
    results = {10 + k: _result(10 + k, ORDERS[arm]) for k, arm in enumerate(seen)}

    def swapped(other: tuple[int, ...]) -> int:
        pairs = [(a, b) for a in range(5) for b in range(5) if a < b and mask[a] and mask[b]]
        return sum((order.index(a) < order.index(b)) != (other.index(a) < other.index(b)) for a, b in pairs)

    far = {number: swapped(r.order) for number, r in results.items()}
    assert parent_of(order, "none", results, mask) is None
    assert parent_of(order, "last", results, mask) == max(results, default=None)
    nearest = [number for number in results if far[number] == min(far.values())]
    assert parent_of(order, "nearest", results, mask) == max(nearest, default=None)
    assert parent_of(order, "same", results, mask) == max((n for n in results if far[n] == 0), default=None)


def _result(number: int, order: tuple[int, ...]) -> WorkflowResult:
    config = SearchConfig(n_envs=1, total_episodes=10, max_episodes=10, min_episodes=0)
    return FakeTrainer()(Task(number, order, config, 0, 1), lambda row: None)


@pytest.mark.parametrize("inherit", ["none", "last", "nearest", "same"])
def test_weights_are_handed_down(tmp_path: Path, inherit: str) -> None:
    trainer = Recorder()
    run(tmp_path, trainer, inherit=inherit, total_episodes=600)
    rows = rows_of(tmp_path / "x" / "gp_log.csv")
    parents = [row["inherit"] for row in rows]
    for row, task in zip(rows, trainer.tasks, strict=True):  # type: ignore[attr-defined]
        if row["inherit"]:
            expected = trainer.results[int(row["inherit"])].weights["head"]  # type: ignore[attr-defined]
            assert np.array_equal(task.weights["head"], expected)
        else:
            assert task.weights is None
    if inherit == "none":
        assert not any(parents)
    elif inherit == "last":
        assert parents == ["", *map(str, range(len(rows) - 1))]
    elif inherit == "same":
        assert 0 < sum(p != "" for p in parents) < len(parents)
        assert all(rows[int(p)]["order"] == row["order"] for row, p in zip(rows, parents, strict=True) if p)
    else:
        assert all(parents[1:])


# ------------------------------------------------------------------------------------------------------ what may happen
def test_a_type_that_nobody_thought_of_counts_from_then_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(tmp_path, FakeTrainer(held=(False, True, True, True, True)))
    assert "op_host" in next(line for line in capsys.readouterr().out.splitlines() if "not thought to" in line)
    assert summary_of(folder)["classes"] == 24
    again = run(tmp_path, FakeTrainer(held=(True,) * 5), name="y", classes=False)
    assert summary_of(again)["classes"] == 120


def test_a_training_that_fails_is_reported_and_what_is_done_is_kept(tmp_path: Path) -> None:
    whole = content_of(run(tmp_path, name="whole"))
    with pytest.raises(TrainingFailedError, match="ZeroDivisionError: a fault in training") as caught:
        run(tmp_path, FakeTrainer(fail=(3,)))
    assert any("--resume" in note for note in caught.value.__notes__)
    assert len(summary_of(tmp_path / "x")["workflows"]) == 3  # type: ignore[arg-type]
    assert content_of(run(tmp_path, resume="x")) == whole


def test_a_worker_that_dies_leaves_no_trace_in_the_tables(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    folder = run(tmp_path, FakeTrainer(die=(1, 2), marks=tmp_path / "marks"), parallel=2)
    assert len(list((tmp_path / "marks").iterdir())) == 2
    rows = rows_of(folder / "training_log.csv")
    updates = [(row["number"], row["update"]) for row in rows]
    assert len(set(updates)) == len(updates)
    for number in {row["number"] for row in rows}:
        mine = [int(row["update"]) for row in rows if row["number"] == number]
        assert mine == list(range(1, len(mine) + 1))
    assert summary_of(folder)["budget"]["used"] == int(rows[-1]["total_episodes"])  # type: ignore[index]


def test_a_full_disk_costs_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = content_of(run(tmp_path, name="whole", inherit="last"))
    save, calls = SearchFolder.save_policy, iter(range(1000))

    def full_now_and_then(self: SearchFolder, result: WorkflowResult, config: SearchConfig) -> None:
        if next(calls) in (1, 2, 5):
            raise OSError(28, "No space left on device")
        save(self, result, config)

    monkeypatch.setattr(SearchFolder, "save_policy", full_now_and_then)
    folder = run(tmp_path, inherit="last")
    assert capsys.readouterr().out.count("No space left on device") == 3
    assert content_of(folder) == whole


def test_names_and_resumes_that_cannot_be(tmp_path: Path) -> None:
    run(tmp_path, n_workflows=1)
    with pytest.raises(InputError, match="exists already"):
        run(tmp_path)
    with pytest.raises(InputError, match="no name of a folder"):
        run(tmp_path, name="../x")
    with pytest.raises(InputError, match="there is no search"):
        run(tmp_path, resume="nothing")
    with pytest.raises(InputError, match="no folder"):
        run(tmp_path, name="y", json=tmp_path / "nowhere" / "x.json")
    assert not (tmp_path / "y").exists()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "config.json").write_text('{"stockade": "0", "red_agent": "bline"}')
    with pytest.raises(InputError, match="is no search"):
        run(tmp_path, resume="t")
    for wrong in ("{", '{"format": "stockade search", "version": 99}', '{"format": "stockade search", "version": 1}'):
        (tmp_path / "x" / "state.json").write_text(wrong)
        with pytest.raises(InputError, match=re.escape("state.json cannot be used")):
            run(tmp_path, resume="x")


def test_without_a_name_searches_stand_side_by_side(tmp_path: Path) -> None:
    for _ in range(2):
        config = dataclasses.replace(CONFIG, runs=tmp_path, name=None, red_agent="B_lineAgent", n_workflows=1)
        assert search(config, FakeTrainer()) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["search-bline-seed0", "search-bline-seed0-2"]


def test_pictures_are_drawn_at_the_end_unless_not_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = []

    def draw(folder: Path) -> list[Path]:
        drawn.append(folder)
        return [folder / "one.png"]

    def cannot(folder: Path) -> list[Path]:
        raise InputError("pictures need matplotlib")

    for name, how, plots in (("a", draw, True), ("b", draw, False), ("c", cannot, True)):
        config = dataclasses.replace(CONFIG, runs=tmp_path, name=name, n_workflows=1, plots=plots)
        assert search(config, FakeTrainer(), how) == 0
    assert drawn == [tmp_path / "a"]
    printed = capsys.readouterr().out
    assert "one.png" in printed
    assert "pictures: none; pictures need matplotlib" in printed


def test_nothing_that_matters_is_one_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against an attacker who does nothing."""
    monkeypatch.setattr(search_module, "types_red_can_hold", lambda *_: ~ALL_MATTER)
    summary = summary_of(run(tmp_path, FakeTrainer(held=(False,) * 5)))
    assert summary["classes"] == 1
    assert len(summary["workflows"]) == 1  # type: ignore[arg-type]
