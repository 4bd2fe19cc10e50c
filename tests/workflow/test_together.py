"""One training for all orders: it continues bit for bit, keeps to its budget, and spends it where it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stockade.learn.checkpoint import CheckpointFolder
from stockade.workflow import conditioned
from stockade.workflow.conditioned import ConditionedTraining
from stockade.workflow.config import BONUS_STEPS, SearchConfig
from stockade.workflow.orders import FREE, ORDERS, TYPES
from stockade.workflow.together import (
    VALIDATION_SEED,
    HostTraining,
    TogetherTraining,
    best_told,
    next_shares,
    no_longer_improving,
)

SMALL: dict[str, Any] = {"n_envs": 20, "horizon": 10, "total_episodes": 800, "n_eval_episodes": 10}
THREE = [ORDERS[0], ORDERS[50], FREE]


def begun(config: SearchConfig, checkpoints: CheckpointFolder | None) -> TogetherTraining:
    if config.units == "types":
        return TogetherTraining(config, THREE, checkpoints)
    matters = np.zeros(13, np.bool_)
    matters[[1, 2, 3, 7, 9, 10]] = True
    return HostTraining(config, matters, [ORDERS[0], ORDERS[50]], checkpoints)


def trained(config: SearchConfig, folder: Path | None, stop_after: int | None = None) -> TogetherTraining:
    training = begun(config, None if folder is None else CheckpointFolder(folder, keep=2))
    steps = [0]

    def should_stop() -> bool:
        steps[0] += 1
        return stop_after is not None and steps[0] > stop_after

    training.run(should_stop, lambda t: None)
    training.close()
    return training


def same(a: TogetherTraining, b: TogetherTraining) -> None:
    assert a.policy.flat.numpy().tobytes() == b.policy.flat.numpy().tobytes()
    assert a.curves == b.curves
    assert a.orders == b.orders
    assert a.episodes_by_order.tolist() == b.episodes_by_order.tolist()
    assert a.last_goal == b.last_goal


@pytest.mark.parametrize("options", [{}, {"red": "bline,meander"}, {"judge": "observed"}, {"units": "hosts"},
                                     {"update_steps": 7}])  # fmt: skip
def test_an_interrupted_training_continues_bit_for_bit(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stockade.workflow.together.FRESH", 12)  # each of them is measured
    config = SearchConfig(**{**SMALL, "total_episodes": 400, **options})
    whole = trained(config, None)
    for stop_after in (3, 6):
        trained(config, tmp_path / "checkpoints", stop_after)
    same(whole, trained(config, tmp_path / "checkpoints"))


def test_results_do_not_depend_on_threads() -> None:
    config = SearchConfig(**SMALL)
    weights = []
    for threads in (1, 2):
        training = ConditionedTraining(config, TYPES, THREE, 0, threads)
        for _ in range(3):
            training.advance(config.budget)
        weights.append((training.policy.flat.numpy().copy(), training.returns(5, 1)))
        training.close()
    assert np.array_equal(weights[0][0], weights[1][0])
    assert np.array_equal(weights[0][1], weights[1][1])


@pytest.mark.parametrize("total", [800, 815, 819])
def test_the_budget_is_used_and_never_exceeded(total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.workflow.together.no_longer_improving", lambda values: False)
    training = trained(SearchConfig(**{**SMALL, "total_episodes": total}), None)
    assert total - 20 < training.episodes <= total
    assert training.episodes_by_order.sum() == training.episodes


def test_an_extended_training_continues_from_what_was_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stockade.workflow.together.no_longer_improving", lambda values: False)
    short = trained(SearchConfig(**SMALL), tmp_path / "checkpoints")
    longer = trained(SearchConfig(**{**SMALL, "total_episodes": 1600}), tmp_path / "checkpoints")
    assert longer.episodes == 1600
    assert longer.curves.values[: len(short.curves.values)] == short.curves.values
    assert (longer.episodes_by_order >= short.episodes_by_order).all()


def test_values_that_stopped_improving_end_the_training_with_the_schedules_at_their_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stockade.workflow.together.no_longer_improving", lambda values: len(values) == 5)
    training = trained(SearchConfig(**SMALL), None)
    assert training.last_goal < training.budget
    assert training.episodes == 720  # fifteen rounds of 40, five of them after the bonus, and a fifth more
    assert training.progress == pytest.approx(1.0)


def test_greedy_returns_are_paired_by_seed_and_repeat() -> None:
    """Episode e has the same seed for every order: an order that is played twice gives the same returns."""
    training = ConditionedTraining(SearchConfig(**SMALL), TYPES, [ORDERS[0], ORDERS[0], ORDERS[50]], 0)
    returns = training.returns(30, VALIDATION_SEED)
    assert returns.shape == (1, 3, 30)
    assert np.array_equal(returns[:, 0], returns[:, 1])
    assert np.array_equal(returns, training.returns(30, VALIDATION_SEED))
    assert np.array_equal(returns[:, [2]], training.returns(30, VALIDATION_SEED, [2]))
    assert not np.array_equal(returns, training.returns(30, VALIDATION_SEED + 30))
    training.close()


def test_a_policy_that_is_told_another_order_is_still_kept_to_its_own() -> None:
    """Told order 1 and kept to order 0: other returns than told 0, and than kept to 1."""
    training = ConditionedTraining(SearchConfig(**{**SMALL, "horizon": 30}), TYPES, THREE, 0)
    training.policy.flat.add_(torch.randn(training.policy.flat.shape, generator=torch.Generator().manual_seed(0)))
    own, told = training.returns(40, 0), training.returns(40, 0, [0, 0, 1, 1], [0, 1, 0, 1])[0]
    assert np.array_equal(told[[0, 3]], own[0, :2])
    assert not np.array_equal(told[1], told[0])
    assert not np.array_equal(told[1], told[3])
    training.close()


def test_every_order_is_told_what_plays_best_under_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.array([[-4.0, -3.5, -9.0], [-9.0, -5.0, -5.0], [-3.0, -2.0, -1.0]])  # by order kept, by order told
    training = begun(SearchConfig(**SMALL), None)

    def returns(episodes: int, seed: int, orders: list[int], told: list[int]) -> np.ndarray:
        return np.repeat(values[orders, told][None, :, None], episodes, axis=2)

    monkeypatch.setattr(training, "returns", returns)
    assert best_told(training, [0, 1, 2])[0] == [1, 1, 2]  # its own where another one is not better
    assert best_told(training, [0, 2])[0] == [0, 2]
    assert best_told(training, [1])[0] == [1]
    assert best_told(training, [0, 1, 2])[1].tolist() == [-3.5, -5.0, -1.0]
    training.close()


def test_shares_move_to_what_gains_and_to_what_is_near_the_best() -> None:
    flat = np.array([[-4.0, -4.0, -14.0, -14.0]])
    gaining = np.array([[-4.0, -4.0, -14.0, -10.0]])
    shares = next_shares([flat, flat, gaining], "mean")
    assert shares.sum() == pytest.approx(1)
    assert shares[3] > shares[0] == shares[1] > shares[2] > 0.1


def test_a_plateau_needs_every_order_to_have_stopped() -> None:
    still = [np.array([[-4.0, -14.0]])] * 8
    assert no_longer_improving(still)
    assert not no_longer_improving(still[:7])
    slow = [np.array([[-4.0, -14.0 + 0.1 * k]]) for k in range(8)]
    assert not no_longer_improving(slow)


def test_the_bonus_of_restores_runs_out_and_no_measured_value_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SearchConfig(**SMALL)
    bonuses, training = [], ConditionedTraining(config, TYPES, [ORDERS[0], FREE], 0)
    while training.episodes + config.update_episodes <= 400:
        training.advance(400)
        bonuses.append(training.envs[0].restore_bonus)
    half = len(bonuses) // 2
    assert bonuses[:half] == sorted(bonuses[:half], reverse=True)
    assert bonuses[0] > 1 > bonuses[half - 1] > 0 == max(bonuses[half:])  # a Restore costs 1
    assert training.bonus_until(10**7) * config.horizon == BONUS_STEPS
    values, weights = training.returns(20, VALIDATION_SEED), training.policy.flat.detach().clone()
    monkeypatch.setattr(conditioned, "RESTORE_BONUS", 50.0)
    training.advance(10**7)
    assert training.envs[0].restore_bonus > 1
    training.policy.flat.data.copy_(weights)
    assert np.array_equal(training.returns(20, VALIDATION_SEED), values)
    training.close()


def test_whether_an_extension_still_improves_is_not_judged_by_the_rounds_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds before seem to have settled; those after it are fewer than a judgement needs."""
    monkeypatch.setattr("stockade.workflow.together.no_longer_improving", lambda values: False)
    trained(SearchConfig(**SMALL), tmp_path / "checkpoints")
    monkeypatch.setattr("stockade.workflow.together.no_longer_improving", lambda values: len(values) >= 8)
    longer = trained(SearchConfig(**{**SMALL, "total_episodes": 1000}), tmp_path / "checkpoints", stop_after=10)
    assert longer.extended_from == 800
    assert longer.last_goal == 1000


def test_values_at_rest_while_restores_are_paid_for_do_not_end_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[int] = []
    monkeypatch.setattr("stockade.workflow.together.no_longer_improving", lambda values: judged.append(len(values)))
    training = trained(SearchConfig(**SMALL), None)
    curves, paid = training.curves, training.bonus_until(SMALL["total_episodes"])
    after = sum(episodes > paid for episodes in curves.episodes)
    assert judged[-1] == after < len(curves.episodes)
    assert judged[0] == 0
