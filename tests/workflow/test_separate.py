"""Separate trainings: the budget to the episode, files, choices, and what happens when something goes wrong."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stockade.errors import InputError
from stockade.learn.checkpoint import load
from stockade.workflow import separate
from stockade.workflow.config import SearchConfig
from stockade.workflow.engine import Event, TrainingFailedError
from stockade.workflow.orders import ALL_MATTER, FREE, ORDERS, TYPES, restricted
from stockade.workflow.search import search
from stockade.workflow.separate import SeparateSession, allowance, parent_of, seed_of, whole_updates
from stockade.workflow.store import GP_COLUMNS, TRAINING_COLUMNS, SearchFolder, Task, WorkflowResult
from stockade.workflow.training import train_workflow
from tests.workflow.fake import (
    HELD,
    FakeTrainer,
    changed,
    content_of,
    result_of,
    reward_config,
    rows_of,
    searched,
    true_value,
)

CONFIG = reward_config(n_envs=10, total_episodes=400, max_episodes=100, min_episodes=40, name="x")
STRICT = SearchConfig(train="separate", n_envs=10, total_episodes=1000, max_episodes=40, name="x", n_eval_episodes=50)


@pytest.fixture(autouse=True)
def quick_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What red can hold is known here."""
    monkeypatch.setattr(separate, "types_red_can_hold", lambda *_: np.array(HELD))


def run(folder: Path, train: object = None, config: SearchConfig = CONFIG, **changes: Any) -> SeparateSession:
    """A search to its end."""
    return searched(changed(config, runs=folder, **changes), train)


class Recorder(FakeTrainer):
    """A fake trainer that keeps its tasks and results."""

    def __init__(self, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]
        object.__setattr__(self, "tasks", [])
        object.__setattr__(self, "results", {})

    def __call__(self, task: Task, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        self.tasks.append(task)  # type: ignore[attr-defined]
        for event in super().__call__(task, should_stop):
            if isinstance(event, WorkflowResult):
                self.results[task.number] = event  # type: ignore[attr-defined]
            yield event


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
    config = SearchConfig(n_envs=2 * n_envs, horizon=max_steps, update_steps=update_steps)
    reached = [2 * n_envs * episodes_after(u, update_steps, max_steps) for u in range(limit * (max_steps + 1) + 2)]
    assert whole_updates(config, limit) == max(e for e in reached if e <= limit)


@given(
    total=st.integers(10, 400), most=st.integers(10, 120), least=st.integers(0, 120), fixed=st.booleans(),
    seed=st.integers(0, 99), parallel=st.integers(1, 4),
)  # fmt: skip
def test_the_budget_is_never_exceeded_and_used_as_far_as_possible(
    total: int, most: int, least: int, fixed: bool, seed: int, parallel: int
) -> None:
    """Trainings of any length up to what they may, any number at once."""
    config = reward_config(
        n_envs=10, total_episodes=total, max_episodes=most, min_episodes=min(least, most), fixed_episodes=fixed
    )
    used, open_, started = 0, [], 0
    chance = np.random.default_rng(seed)
    enough = most // 10 * 10 if fixed else min(config.protocol.min_episodes, most // 10 * 10)
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
    session = run(tmp_path, parallel=parallel, **changes)
    folder = session.folder.path
    played: dict[str, int] = {}
    for row in rows_of(folder / "training_log.csv"):
        played[row["number"]] = int(row["episodes"])
        assert int(row["total_episodes"]) == sum(played.values())
    assert played == {str(r.number): r.episodes for r in session.results.values()}
    assert session.runner.used == sum(played.values()) <= session.config.budget
    for row in rows_of(folder / "gp_log.csv"):
        assert int(row["episodes"]) <= int(row["allowed_episodes"])


def test_more_than_was_allowed_is_an_error(tmp_path: Path) -> None:
    def greedy(task: Task, should_stop: object = None) -> Iterator[Event]:
        yield dataclasses.replace(result_of(task), episodes=task.episodes + 1)

    with pytest.raises(RuntimeError, match="played 101 episodes instead of 100"):
        run(tmp_path, greedy)


def test_an_update_that_does_not_fit_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="update-steps"):
        search(dataclasses.replace(CONFIG, runs=tmp_path, update_steps=101 * 20))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "trained", "why"),
    [
        ({"n_workflows": 3}, 3, "all 3 trainings are done"),
        ({"search": "all", "total_episodes": 10_000}, 6, "nothing left to try"),
        ({"search": "round-robin", "total_episodes": 200}, 3, "the rest of the budget is too small"),
    ],
)
def test_why_a_search_ends(tmp_path: Path, changes: dict[str, object], trained: int, why: str) -> None:
    session = run(tmp_path, FakeTrainer(feasible_episodes=50), **changes)
    assert len(session.results) == trained
    assert why in str(session.ended)


# --------------------------------------------------------------------------------------------------------------- files
def test_files_of_a_search(tmp_path: Path) -> None:
    trainer = Recorder()
    session = run(tmp_path, trainer)
    folder = session.folder.path
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
        assert row["order"] == TYPES.describe(trained.order)
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
        assert np.array_equal(saved.arrays["returns"], trained.returns)
        assert saved.rest["order"] == list(trained.order)
        assert (saved.rest["value"], saved.rest["compliance"]) == (trained.value, trained.compliance)
        assert (saved.rest["obs"], saved.rest["architecture"]) == ("memory", trained.architecture)
    assert not list((folder / "trainings").glob("*"))  # nothing is in flight, nothing is continued


def test_the_outcome_of_reward_has_the_best_training_of_each_class_that_was_complied_with(tmp_path: Path) -> None:
    session = run(tmp_path)
    outcome = session.outcome()
    feasible = [r for r in session.results.values() if r.feasible]
    assert {restricted(o, np.array(HELD)) for o in outcome.orders} == {
        restricted(r.order, np.array(HELD)) for r in feasible
    }
    assert len(outcome.orders) == 4 < session.strategy.n_classes == outcome.total == 6
    for k, order in enumerate(outcome.orders):
        best = max((r for r in feasible if r.order == order), key=lambda r: r.value)
        expected = session.folder.load_policy(best.number, order)[1]
        np.testing.assert_array_equal(outcome.returns[:, k], expected)
        assert outcome.compliance is not None
        assert outcome.compliance[k] == best.compliance
    assert outcome.free_returns is None
    assert [t["number"] for t in outcome.extra["trainings"]] == list(session.results)
    assert (outcome.training_sd > 0).all()


def test_the_same_seed_gives_the_same_search_and_another_one_another(tmp_path: Path) -> None:
    contents = []
    for k, seed in enumerate((0, 0, 1)):
        (tmp_path / str(k)).mkdir()
        contents.append(content_of(run(tmp_path / str(k), seed=seed, inherit="nearest").folder.path))
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
    config = reward_config(n_envs=2, total_episodes=10, max_episodes=10, min_episodes=0)
    return result_of(Task(number, order, config, 0, 2))


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
    session = run(tmp_path, FakeTrainer(held=(False, True, True, True, True)))
    assert "op_host" in next(line for line in capsys.readouterr().out.splitlines() if "not thought to" in line)
    assert session.strategy.n_classes == session.outcome().total == 24
    again = run(tmp_path, FakeTrainer(held=(True,) * 5), name="y", classes=False)
    assert again.strategy.n_classes == 120


def test_a_training_that_fails_is_reported_and_what_is_done_is_kept(tmp_path: Path) -> None:
    whole = content_of(run(tmp_path, name="whole").folder.path)
    with pytest.raises(TrainingFailedError, match="ZeroDivisionError: a fault in training") as caught:
        run(tmp_path, FakeTrainer(fail=(3,)))
    assert any("--resume" in note for note in caught.value.__notes__)
    assert len(SearchFolder(tmp_path / "x").read_state().results) == 3
    assert content_of(run(tmp_path, resume="x").folder.path) == whole


def test_a_worker_that_dies_leaves_no_trace_in_the_tables(tmp_path: Path) -> None:
    (tmp_path / "marks").mkdir()
    session = run(tmp_path, FakeTrainer(die=(1, 2), marks=tmp_path / "marks"), parallel=2)
    assert len(list((tmp_path / "marks").glob("*-*"))) == 2
    rows = rows_of(session.folder.path / "training_log.csv")
    updates = [(row["number"], row["update"]) for row in rows]
    assert len(set(updates)) == len(updates)
    for number in {row["number"] for row in rows}:
        mine = [int(row["update"]) for row in rows if row["number"] == number]
        assert mine == list(range(1, len(mine) + 1))
    assert session.runner.used == int(rows[-1]["total_episodes"])


def test_a_full_disk_costs_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = content_of(run(tmp_path, name="whole", inherit="last").folder.path)
    save, calls = SearchFolder.save_policy, iter(range(1000))

    def full_now_and_then(self: SearchFolder, result: WorkflowResult, config: SearchConfig) -> None:
        if next(calls) in (1, 2, 5):
            raise OSError(28, "No space left on device")
        save(self, result, config)

    monkeypatch.setattr(SearchFolder, "save_policy", full_now_and_then)
    folder = run(tmp_path, inherit="last").folder.path
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
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "config.json").write_text('{"stockade": "0", "red_agent": "bline"}')
    with pytest.raises(InputError, match="of no search"):
        run(tmp_path, resume="t")
    for wrong in ("{", '{"format": "stockade search", "version": 99}', '{"format": "stockade search", "version": 2}'):
        (tmp_path / "x" / "state.json").write_text(wrong)
        with pytest.raises(InputError, match=re.escape("state.json cannot be used")):
            run(tmp_path, resume="x")


def test_nothing_that_matters_is_one_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against an attacker who does nothing."""
    monkeypatch.setattr(separate, "types_red_can_hold", lambda *_: ~ALL_MATTER)
    session = run(tmp_path, FakeTrainer(held=(False,) * 5))
    assert session.strategy.n_classes == len(session.results) == 1


# ----------------------------------------------------------------------------------------- strict: trained further
@pytest.mark.parametrize("how", ["gp-ucb", "random", "round-robin", "all"])
def test_a_strict_search_trains_its_orders_further_from_their_own_last_states(tmp_path: Path, how: str) -> None:
    trainer = Recorder()
    session = run(tmp_path, trainer, STRICT, search=how)
    by_order: dict[tuple[int, ...], list[Task]] = {}
    for task in trainer.tasks:  # type: ignore[attr-defined]
        by_order.setdefault(task.order, []).append(task)
    for tasks in by_order.values():
        assert tasks[0].state is None
        assert len({task.seed for task in tasks}) == 1
        for before, after in itertools.pairwise(tasks):
            expected = trainer.results[before.number].state  # type: ignore[attr-defined]
            assert after.state.rest == expected.rest
            np.testing.assert_array_equal(after.state.arrays["head"], expected.arrays["head"])
    assert len(session.runner.proposals) == (7 if how == "all" else 25)
    assert session.runner.used == 40 * len(session.results) <= 1000
    longest = max(len(tasks) for order, tasks in by_order.items() if order != FREE)
    assert longest - 1 <= len(by_order[FREE]) <= longest  # as long as any order
    assert len(by_order) == 7
    states = sorted(path.stem for path in (session.folder.path / "trainings").glob("*.json"))
    assert states == sorted(f"{tasks[-1].number:03d}" for tasks in by_order.values())


def test_gp_ucb_spends_its_budget_on_what_is_good_and_still_gains(tmp_path: Path) -> None:
    session = run(tmp_path, None, STRICT)
    times = Counter(restricted(p.order, np.array(HELD)) for p in session.runner.proposals.values() if p.order)
    ranked = sorted(times, key=lambda o: -true_value(next(x for x in ORDERS if restricted(x, np.array(HELD)) == o)))
    assert times[ranked[0]] + times[ranked[1]] > 2 * (times[ranked[-1]] + times[ranked[-2]])
    assert [r.gain for r in session.results.values() if r.number == 0] == pytest.approx([math.nan], nan_ok=True)


def test_a_search_that_is_extended_is_that_of_the_larger_budget_from_the_start(tmp_path: Path) -> None:
    whole = content_of(run(tmp_path, None, STRICT, name="whole").folder.path)
    short = run(tmp_path, None, STRICT, total_episodes=330)
    assert len(short.results) == 8
    longer = searched(SearchConfig(runs=tmp_path, resume="x", total_episodes=1000))
    assert content_of(longer.folder.path) == whole


def test_a_strict_session_judges_every_tried_order_on_common_seeds(tmp_path: Path) -> None:
    """With real trainings, two attackers and the worse of them as the goal."""
    config = SearchConfig(
        train="separate", red="bline,meander", goal="worst", n_envs=8, horizon=10, total_episodes=400, max_episodes=80,
        name="x", n_eval_episodes=40, judge="observed", runs=tmp_path, search="round-robin",
    )  # fmt: skip
    session = searched(config, train_workflow)
    outcome = session.outcome()
    assert outcome.orders == tuple(dict.fromkeys(r.order for r in session.results.values() if r.order != FREE))
    assert outcome.returns.shape == (2, len(outcome.orders), 40)
    assert outcome.free_returns is not None
    assert outcome.free_returns.shape == (2, 40)
    assert outcome.training_sd.shape == (2, len(outcome.orders))
    assert outcome.episodes.sum() == sum(r.episodes for r in session.results.values() if r.order != FREE)
    assert np.array_equal(session.outcome().returns, outcome.returns)
    for r in session.results.values():
        assert r.value == min(r.by_attacker)
        assert r.compliance == 1.0
    latest = {r.order: r for r in session.results.values()}
    expected = [[latest[o].by_attacker[a] for o in (*outcome.orders, FREE)] for a in range(2)]
    np.testing.assert_array_equal(outcome.curves["values"][-1], expected)
    assert outcome.curves["episodes"][-1] == 400
