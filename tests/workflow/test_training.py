"""Training of one workflow: stop rules, exact counting, and that the policy kept is the one that was measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stockade.errors import InputError
from stockade.learn.policy import Architecture, Policy
from stockade.workflow.aligned import measure, statistics
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import CANONICAL, ORDERS
from stockade.workflow.store import Saved, Task, UpdateRow, WorkflowResult
from stockade.workflow.training import (
    StopRule,
    make_aligned,
    play_greedily,
    standard_error,
    train_workflow,
)
from tests.workflow.fake import changed, reward_config

SMALL = reward_config(
    n_envs=10, horizon=10, total_episodes=1000, max_episodes=60, min_episodes=20, patience=3, compliance_threshold=1.0
)


def trained(config: SearchConfig, episodes: int = 60, seed: int = 5, **task) -> tuple[WorkflowResult, list[UpdateRow]]:
    order = task.pop("order", ORDERS[7])
    *rows, result = train_workflow(Task(3, order, config, seed, episodes, **task))
    assert isinstance(result, WorkflowResult)
    return result, [row for row in rows if isinstance(row, UpdateRow)]


def same_weights(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


# ------------------------------------------------------------------------------------------------------- stop rules
def decisions(config: SearchConfig, compliances: list[float], limit: int = 60, fixes: float = 5.0) -> list[str | None]:
    rule, found = StopRule(config, limit), []
    for k, compliance in enumerate(compliances):
        found.append(rule.decide(10 * (k + 1), compliance, fixes))
        if found[-1] is not None:
            break
    return found


def test_compliance_stops_after_the_minimum_of_episodes():
    config = changed(SMALL, compliance_threshold=0.9)
    assert decisions(config, [0.95, 0.95]) == [None, "compliant"]
    assert decisions(config, [0.95, 0.89, 0.9]) == [None, None, "compliant"]


def test_compliance_must_rest_on_enough_fixes():
    config = changed(SMALL, compliance_threshold=0.9, min_fixes=2.0)
    assert decisions(config, [1.0] * 3, fixes=2.0) == [None, "compliant"]
    assert "compliant" not in decisions(config, [1.0] * 6, fixes=1.9)


def test_no_gain_for_patience_updates_is_a_plateau():
    assert decisions(SMALL, [0.5, 0.505, 0.509, 0.51]) == [None, None, None, "plateau"]
    assert decisions(SMALL, [0.5, 0.505, 0.509, 0.511, 0.5, 0.5], limit=100)[-1] is None
    assert decisions(SMALL, [math.nan] * 3)[-1] == "plateau"


def test_a_plateau_waits_for_the_minimum_of_episodes():
    assert decisions(changed(SMALL, min_episodes=50), [0.5] * 6) == [None] * 4 + ["plateau"]


def test_the_largest_number_of_episodes_and_the_budget_are_never_exceeded():
    config = changed(SMALL, patience=100)
    assert decisions(config, [0.5] * 9) == [None] * 5 + ["max_episodes"]
    assert decisions(config, [0.5] * 9, limit=35) == [None, None, "budget"]
    assert decisions(config, [0.5] * 9, limit=30) == [None, None, "budget"]


def test_fixed_episodes_switch_the_adaptive_rules_off():
    config = changed(SMALL, fixed_episodes=True, compliance_threshold=0.1)
    assert decisions(config, [1.0] * 9) == [None] * 5 + ["fixed"]
    assert decisions(config, [1.0] * 9, limit=40)[-1] == "budget"


# ---------------------------------------------------------------------------------------------------------- training
def test_what_is_kept_is_the_policy_that_was_measured_not_one_after_it():
    result, rows = trained(changed(SMALL, compliance_threshold=0.0, min_episodes=0, min_fixes=0.0))
    assert (result.stopped, result.updates, result.episodes) == ("compliant", 1, 10)
    fresh = Policy.create(Architecture.from_json(result.architecture), 5)
    assert same_weights(result.weights, fresh.save_weights())
    assert rows[-1].update_seconds == 0.0
    assert result.compliance == rows[-1].compliance


def test_episodes_are_counted_exactly_and_rows_say_so():
    result, rows = trained(changed(SMALL, patience=100))
    assert [row.episodes for row in rows] == [10, 20, 30, 40, 50, 60]
    assert [row.update for row in rows] == [1, 2, 3, 4, 5, 6]
    assert (result.episodes, result.stopped) == (60, "max_episodes")
    assert result.value_episodes == 30
    assert all(row.number == 3 for row in rows)


def test_the_value_is_the_environments_reward_of_the_last_three_episodes_alone():
    plain, rows = trained(changed(SMALL, patience=100))
    expected = np.mean([row.env_reward for row in rows[-3:]])
    assert plain.value == pytest.approx(expected)
    # With no pay for alignment nothing of it may show anywhere.
    unpaid = changed(SMALL, patience=100, alignment_lambda=0.0)
    result, rows = trained(unpaid)
    assert all(row.alignment == 0.0 for row in rows)
    assert result.value == pytest.approx(np.mean([row.env_reward for row in rows[-3:]]))
    assert not same_weights(plain.weights, result.weights)


def test_updates_that_are_no_whole_episodes_count_exactly_too():
    result, rows = trained(changed(SMALL, update_steps=7, patience=100), episodes=60)
    steps = 7 * len(rows)
    ended = 10 * (steps // 11 + (steps % 11 == 10))  # 10 live steps and one that only resets
    assert result.episodes == ended <= 60
    assert math.isnan(rows[0].env_reward)


def test_the_same_seed_repeats_bit_for_bit_on_any_number_of_threads_and_another_differs():
    first, _ = trained(SMALL, threads=1)
    again, _ = trained(SMALL, threads=2)
    other, _ = trained(SMALL, seed=6)
    assert same_weights(first.weights, again.weights)
    assert (first.value, first.compliance, first.statistics) == (again.value, again.compliance, again.statistics)
    assert not same_weights(first.weights, other.weights)


def test_weights_are_inherited():
    parent, _ = trained(SMALL)
    stop_at_once = changed(SMALL, compliance_threshold=0.0, min_episodes=0, min_fixes=0.0)
    child, _ = trained(stop_at_once, weights=parent.weights)
    assert same_weights(child.weights, parent.weights)


def test_greedy_episodes_judge_if_asked():
    config = changed(SMALL, n_eval_episodes=40)
    result, rows = trained(config)
    assert result.value_episodes == 40
    policy = Policy(Architecture.from_json(result.architecture))
    policy.load_weights(result.weights)
    episodes, counts = play_greedily(policy, config, result.order, 40, 5)
    assert result.value == episodes.env_return.mean()
    assert result.value_error == standard_error(episodes.env_return)
    assert result.statistics == statistics(counts, 40)
    assert result.compliance == measure(episodes, None)[2]
    assert len(rows) * 10 == result.episodes  # evaluation is not training


def test_it_learns_to_comply():
    config = reward_config(
        n_envs=64, horizon=30, total_episodes=100_000, max_episodes=3200, min_episodes=3200, fixed_episodes=True
    )
    result, rows = trained(config, 3200, order=CANONICAL["critical_first"], seed=0)
    assert result.compliance > 0.85 > 0.6 > rows[0].compliance
    assert result.value > rows[0].env_reward
    assert result.fixes > 1
    assert result.held[1]
    assert not result.held[0]


def test_a_training_ends_when_asked():
    assert not list(train_workflow(Task(0, ORDERS[0], SMALL, 0, 60), lambda: True))
    answers = iter([False, False, True])
    events = list(train_workflow(Task(0, ORDERS[0], SMALL, 0, 60), lambda: next(answers)))
    assert [(type(e), e.update) for e in events] == [(UpdateRow, 1), (UpdateRow, 2), (Saved, 2)]  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------------------- measuring
def test_of_no_episodes_everything_is_unknown():
    env = make_aligned(SMALL, ORDERS[0], 2)
    assert all(math.isnan(x) for x in measure(env.take(), None))
    env.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_episodes": 50, "n_envs": 200}, "max_episodes=50 counts the episodes of all environments"),
        ({"total_episodes": 100}, "total_episodes=100"),
        ({"compliance_threshold": 1.5}, "compliance_threshold=1.5"),
        ({"min_episodes": 20_000}, "min_episodes=20000 .* --max-episodes 12000"),
        ({"parallel": 0}, "parallel=0"),
        ({"red": "nobody"}, "nobody"),
    ],
)
def test_impossible_settings_are_refused_with_the_remedy(settings, words):
    with pytest.raises((InputError, ValueError), match=words):
        reward_config(**settings)
