"""`--critic truth`: the critic sees more than the actor, while it learns."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from stockade.cage2.features import N_FEATURES
from stockade.errors import InputError, SettingError
from stockade.learn.agents import load
from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.train import make_learner, train

PPO = PPOConfig(update_steps=20, minibatch_size=160, hidden=(16,))
CONFIG = TrainConfig(
    obs="bits", critic="truth", total_episodes=60, n_envs=16, horizon=10, tensorboard=False, name="x", ppo=PPO
)


def test_only_the_critic_sees_the_truth() -> None:
    learner = make_learner(CONFIG)
    policy, rng = learner.policy, np.random.default_rng(0)
    assert (policy.architecture.n_inputs, policy.architecture.n_hidden_inputs) == (52, N_FEATURES)
    rows = rng.integers(0, 2, (8, 52 + N_FEATURES)).astype(np.uint8)
    others = rows.copy()
    others[:, 52:] ^= 1
    (logits, values), (same, different) = ([part.copy() for part in policy.evaluate(seen)] for seen in (rows, others))
    assert np.array_equal(logits, same)
    assert (values != different).all()
    learner.close()


def test_what_results_acts_on_its_observation_alone(tmp_path: Path) -> None:
    result = train(dataclasses.replace(CONFIG, runs=tmp_path), progress=False)
    agent = load(result.folder)
    bits = np.zeros((3, 52), np.uint8)
    assert agent.probabilities(bits).shape == (3, 145)
    assert agent.act(bits).shape == (3,)
    with pytest.raises(InputError, match="saw the true state"):
        agent.value(bits)


@pytest.mark.parametrize(
    "changes",
    [
        {"ppo": dataclasses.replace(PPO, shared=True)}, {"device": "cpu"}, {"backend": "serial"},
        {"side": "red"},
    ],
)  # fmt: skip
def test_it_is_refused_where_it_cannot_be(changes: dict[str, object]) -> None:
    with pytest.raises(SettingError, match="--critic truth"):
        dataclasses.replace(CONFIG, **changes)
