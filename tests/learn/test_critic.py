"""`--critic truth`: the critic sees more than the actor, while it learns."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from stockade.cage2.features import N_FEATURES
from stockade.cage2.history import MEMORY_SIZE
from stockade.errors import InputError, SettingError
from stockade.learn.agents import Agent, load
from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.train import _begin_with, make_learner, train

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


def test_it_begins_as_one_that_saw_the_truth_in_the_same_words(tmp_path: Path) -> None:
    """Actor and critic of `truth` do with belief and truth what they did with the truth, once the belief is right."""
    settings = dataclasses.replace(CONFIG, critic="observation", obs="truth", runs=tmp_path, name="lead")
    lead = load(train(settings, progress=False).folder)
    assert isinstance(lead, Agent)
    following = dataclasses.replace(CONFIG, obs="belief:16", start="lead", runs=tmp_path)
    learner = make_learner(following)
    _begin_with(learner.policy, following)
    rows = np.random.default_rng(0).random((8, MEMORY_SIZE + N_FEATURES), np.float32)
    wanted = [part.copy() for part in lead.policy.evaluate(rows)]
    truth = rows[:, MEMORY_SIZE:]
    assert all(
        np.allclose(part, same, atol=1e-5)
        for part, same in zip(learner.policy.evaluate(np.hstack([rows, truth])), wanted, strict=True)
    )
    logits, values = learner.policy.evaluate(np.hstack([rows, 1 - truth]))
    assert np.allclose(logits, wanted[0], atol=1e-5), "the actor sees no truth"
    assert not np.allclose(values, wanted[1], atol=1e-2), "the critic does"
    learner.close()


def test_one_with_a_belief_has_values_by_what_it_believes(tmp_path: Path) -> None:
    result = train(dataclasses.replace(CONFIG, obs="belief:16", runs=tmp_path), progress=False)
    agent = load(result.folder)
    assert isinstance(agent, Agent)
    seen = np.random.default_rng(1).random((5, MEMORY_SIZE + N_FEATURES), np.float32)
    as_truth = np.hstack([seen, seen[:, MEMORY_SIZE:]])
    assert np.allclose(agent.value(seen), 10 * agent.policy.evaluate(as_truth)[1])
    assert agent.value(seen[0]) == pytest.approx(agent.value(seen)[0], rel=1e-5)


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
