"""`stockade bench search-quality`: regret and errors are computed right, on searches that are really run."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stockade.bench.result import find
from stockade.bench.search import SearchQualityBench
from stockade.cage2.actions import ACTION_KIND, RESTORE, SLEEP
from stockade.cli import main
from stockade.errors import InputError
from stockade.learn.agents import Agent
from stockade.workflow.orders import FIXED_HOST, FREE, HOST_TYPES, ORDERS, TYPES, USER
from stockade.workflow.policies import load_search
from tests.bench.results import figure, result

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import search_quality as quality
from common import read_result, write_result
from search_quality import Delivered, classes, deliver, known_truth, search_config, strict_returns, truth_path
from search_truth import SearchTruth

QUICK = SearchQualityBench(quick=True, n_envs=10, n_eval_episodes=40, budgets=(100, 200), max_episodes=50).sized()
TRUTH = SearchTruth(("bline",), QUICK.max_steps, 1, 1000, 1, 400, n_eval_episodes=40)
TABLE = truth_path("bline", QUICK.max_steps)
TRUE = {"enterprise > user": -1.0, "user > enterprise": -3.0}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def faked(place: Path) -> Path:
    """One with a truth table that was made up: the best of several trainings counts."""
    tags = {"training": "alone", "episodes": 50, "judged": 40}
    figures = [figure([value - seed], "return", order=order, seed=seed, **tags)
               for seed in (0, 5) for order, value in TRUE.items()]  # fmt: skip
    TABLE.parent.mkdir(parents=True)
    write_result(result(TABLE.stem, figures), TABLE)
    return place


# ------------------------------------------------------------------------------------------------------------- figures
def test_regret_and_error_of_a_search_with_known_values():
    truth = {"a": -4.0, "b": -6.0, "c": -13.0}
    found = Delivered("b", -7.5, [("a", -5.0), ("c", -10.0)], 1.0)
    assert found.regret(truth) == 3.5  # against a, the best, not against b, which it names
    assert found.rmse(truth) == pytest.approx(math.sqrt((1 + 9) / 2))
    assert Delivered("a", -3.5, [("a", -4.0)], 1.0).regret(truth) == -0.5


class Restorer(Agent):
    """Restores one host in every step."""

    def __init__(self, action: int) -> None:
        self.obs, self._action = "bits", action

    def act(self, observations, generator=None):
        return np.full(len(observations), self._action)


def test_a_policy_is_bound_to_the_order_even_if_it_was_trained_to_violate_it():
    """Restoring a user host: always carried out by an order that begins with users, not by one that ends with them."""
    restore = int(np.flatnonzero((ACTION_KIND == RESTORE) & (HOST_TYPES[FIXED_HOST] == USER))[0])
    last, first = ORDERS[0], (USER, *range(4))
    free, kept, bound, asleep = (strict_returns(Restorer(action), order, "bline", 30, 200)
                                 for action, order in ((restore, FREE), (restore, first), (restore, last),
                                                       (SLEEP, FREE)))  # fmt: skip
    assert np.array_equal(free, kept)
    assert (bound != free).any()
    assert bound.mean() > free.mean()  # each restore costs a point, and most of them are no longer made
    assert bound.mean() <= asleep.mean()


def test_classes_are_those_that_red_can_tell_apart():
    assert [len(classes(red, 30)[1]) for red in ("bline", "meander")] == [6, 24]
    orders = classes("bline", 30)[1]
    assert orders["enterprise > user > op_server"] in ORDERS
    assert all([unit for unit in TYPES.describe(order).split(" > ") if unit in label] == label.split(" > ")
               for label, order in orders.items())  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- truth
def test_the_truth_is_written_after_every_training_and_never_trained_twice(place, monkeypatch):
    trained = []

    def values(self, red, orders, episodes, seed):
        trained.append((*orders, episodes, seed))
        if len(trained) == 3:
            raise KeyboardInterrupt
        return {label: -float(len(trained)) for label in orders}

    with pytest.raises(InputError, match=r"lacks 2 of the 2 orders.*search_truth.py --red-agent bline"):
        known_truth(QUICK, "bline")
    with monkeypatch.context() as patch:
        patch.setattr(SearchTruth, "values", values)
        with pytest.raises(KeyboardInterrupt):
            TRUTH.make_truth("bline")
        both = tuple(TRUE)
        assert trained == [(*both, 1000, 1000), (both[0], 400, 1000), (both[1], 400, 1000)]
        table = TRUTH.make_truth("bline")
    assert trained[3:] == [(both[1], 400, 1000)]
    assert known_truth(QUICK, "bline") == {both[0]: -1.0, both[1]: -1.0}  # all together was better than each alone
    assert read_result(TABLE) == table
    assert [f.tags["training"] for f in table.figures] == ["together", "together", "alone", "alone"]


def test_every_order_is_trained_alone_and_together_and_judged(place):
    table = TRUTH.make_truth("bline")
    assert [(f.tags["training"], f.tags["order"]) for f in table.figures] == [
        (training, order) for training in ("together", "alone") for order in TRUE
    ]
    assert all(-60 < f.value <= 0 for f in table.figures)


def test_a_policy_has_the_same_value_in_the_truth_and_when_it_is_delivered(faked):
    """Trainings judge by their own environments, deliveries by `strict_returns`: the same seeds, the same rule."""
    from stockade.workflow.conditioned import ConditionedTraining

    config = search_config(QUICK, "bline", "strict", 100, 0)
    delivered = deliver(QUICK, config)
    agent = load_search(Path(config.runs) / str(config.name))
    orders = classes("bline", QUICK.max_steps)[1]
    training = ConditionedTraining(config, TYPES, list(orders.values()), seed=0)
    training.policy.load_weights(agent.policy.save_weights())
    means = training.returns(40, quality.SEED).mean(axis=(0, 2))
    training.close()
    assert delivered.value == pytest.approx(means[list(orders).index(delivered.order)])


# ------------------------------------------------------------------------------------------------------------ searches
def test_every_case_has_its_figures_and_a_second_time_is_the_same(faked):
    bench = replace(QUICK, rounds=2, methods=("strict", "gp-ucb"))
    found = bench.result()
    assert found.command.startswith("stockade bench search-quality --rounds 2")
    for method in bench.methods:
        for budget in bench.budgets:
            tags = {"red": "bline", "method": method, "budget": budget}
            regret, rmse, seconds, reported = (
                find(found.figures, unit, part=part, **tags)[0].rounds
                for unit, part in (("points", "regret"), ("points", "RMSE"), ("s", "time"), ("orders", "reported"))
            )
            assert min(map(len, (regret, rmse, seconds, reported))) == 2
            for seed in (0, 1):
                delivered = deliver(bench, search_config(bench, "bline", method, budget, seed))
                errors = [value - TRUE[order] for order, value in delivered.reported]
                assert regret[seed] == -1.0 - delivered.value
                assert rmse[seed] == pytest.approx(math.sqrt(np.mean(np.square(errors))))
                assert reported[seed] == len(errors)
                assert seconds[seed] > 0
    assert len(found.figures) == 2 * 2 * 4
    assert bench.result().figures == found.figures  # nothing is searched again: the seconds would differ


@pytest.mark.slow
def test_the_first_versions_search_is_extended_and_the_default_begins_anew(faked):
    bench = replace(QUICK, budgets=(800, 1600), max_episodes=400, n_envs=20)  # long enough to comply
    for budget in bench.budgets:
        for method in ("strict", "round-robin"):
            deliver(bench, search_config(bench, "bline", method, budget, 0))
    folders = list(bench.runs.iterdir())
    assert len(folders) == 3
    (extended,) = [path for path in folders if "round-robin" in path.name]
    trainings = json.loads((extended / "summary.json").read_text())["trainings"]
    assert [one["episodes"] for one in trainings] == [400, 400, 400, 400]
    other = search_config(replace(bench, max_episodes=500), "bline", "round-robin", 100, 0)
    assert other.name not in {path.name for path in folders}  # other settings, another search


# -------------------------------------------------------------------------------------------------------- bad arguments
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "lacks 6 of the 6 orders' true values"),
        (["--red-agent", "nobody"], "nobody"),
        (["--methods", "genius"], "genius"),
        (["--budgets", "100"], "must be at least --n-envs 200"),
        (["--seeds", "0"], "--rounds 0 must be at least 1"),
    ],
)
def test_bad_arguments_are_refused_before_any_work(arguments, told, place, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", "search-quality", *arguments])
    assert stop.value.code == 2
    assert told in capsys.readouterr().err
    assert not list(place.iterdir())
