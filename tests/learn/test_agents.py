"""Policies by name: one observation or many, probabilities and values, wrong shapes, names that mean two things."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import stockade
from stockade.baselines import Defender
from stockade.errors import InputError
from stockade.learn.checkpoint import Checkpoint, CheckpointFolder, load, save
from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.train import train

OLD_RUN = "run-0.1.0"
TINY = PPOConfig(update_steps=12, minibatch_size=40, hidden=(8,))


@pytest.fixture(scope="module")
def champion() -> Defender:
    return stockade.load("champion")


@pytest.fixture(scope="module")
def seen(champion: Defender) -> np.ndarray:
    """(40, 160): observations from the champion's own play."""
    envs = stockade.make_vec(40, red="meander", obs=champion.obs)
    obs, _ = envs.reset(seed=0)
    for _ in range(12):
        obs = envs.step(champion.act(obs))[0]
    return obs


def test_predict_takes_one_observation_or_many(champion: Defender, seen: np.ndarray) -> None:
    many, state = champion.predict(seen)
    assert state is None
    assert many.shape == (40,)
    assert len(set(many.tolist())) > 1
    for k in range(40):
        one, _ = champion.predict(seen[k])
        assert np.ndim(one) == 0
        assert one == many[k]
        assert stockade.make().action_space.contains(one)


@pytest.mark.parametrize("shape", [(), (52,), (3, 52), (1, 1, 160), (161,), (160, 1)])
def test_a_wrong_shape_is_an_error_that_says_what_is_expected(champion: Defender, shape: tuple) -> None:
    for method in (champion.predict, champion.act, champion.probabilities, champion.value):
        with pytest.raises(InputError, match=r"\(n, 160\), not \(.*obs='memory'"):
            method(np.zeros(shape, np.uint8))


def test_act_refuses_a_single_observation_instead_of_taking_it_for_160(champion: Defender) -> None:
    with pytest.raises(InputError, match="predict"):
        champion.act(np.zeros(160, np.uint8))


def test_probabilities_are_a_distribution_whose_mode_is_predicted_and_whose_samples_are_drawn(
    champion: Defender, seen: np.ndarray
) -> None:
    p = champion.probabilities(seen)
    assert p.shape == (40, 145)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_array_equal(p.argmax(axis=1), champion.predict(seen)[0])
    np.testing.assert_allclose(champion.probabilities(seen[3]), p[3], atol=1e-6)
    undecided = p.max(axis=1).argmin()
    champion.generator = np.random.default_rng(5)
    drawn, _ = champion.predict(np.repeat(seen[[undecided]], 20_000, axis=0), deterministic=False)
    shares = np.bincount(drawn, minlength=145) / 20_000
    assert np.abs(shares - p[undecided]).max() < 0.02


def test_values_are_about_the_returns_that_follow(champion: Defender) -> None:
    """In units of the reward: at the start of episodes of 30 steps against B_line, the mean return."""
    envs = stockade.make_vec(500, red="bline", horizon=30, obs="memory", autoreset_mode="disabled")
    obs, _ = envs.reset(seed=1)
    first = champion.value(obs)
    assert first.shape == (500,)
    assert champion.value(obs[0]) == pytest.approx(first[0], rel=1e-4)
    returns = np.zeros(500)
    for _ in range(30):
        obs, rewards, *_ = envs.step(champion.act(obs))
        returns += rewards
    # it does not know its attacker yet; were values not rescaled, they would be ten times smaller
    assert returns.mean() * 3 < first.mean() < returns.mean() / 3


def test_neither_load_nor_play_changes_torchs_threads(seen: np.ndarray) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        agent = stockade.load("champion")
        agent.predict(seen)
        agent.value(seen)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_greedy_policy_needs_no_generator_and_a_repr_helps(champion: Defender, seen: np.ndarray) -> None:
    np.testing.assert_array_equal(champion.act(seen), champion.act(seen))
    for fact in ("champion", "obs='memory'", "160", "greedy"):
        assert fact in repr(champion)


@pytest.mark.parametrize("name", ["sleep", "random", "react", "react-remove", "greedy"])
def test_baselines_predict_too_but_have_no_values(name: str) -> None:
    agent = stockade.load(name)
    for obs in ("bits", "memory"):
        observations, _ = stockade.make_vec(3, obs=obs).reset(seed=0)
        assert agent.predict(observations)[0].shape == (3,)
    assert np.ndim(agent.predict(np.zeros(52, np.uint8))[0]) == 0
    assert agent.name in repr(agent)
    with pytest.raises(InputError, match="baseline"):
        agent.value(np.zeros(52, np.uint8))


# ------------------------------------------------------------------------------------------------------------- names
@pytest.mark.parametrize("name", ["champion", "sleep", "react"])
def test_a_name_that_is_a_run_and_a_built_in_policy_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="policy of the package"):
        train(TrainConfig(name=name, runs=tmp_path / "runs"))
    assert not (tmp_path / "runs").exists()
    assert train(
        TrainConfig(name="x", runs=tmp_path, total_episodes=4, n_envs=4, horizon=5, tensorboard=False, ppo=TINY)
    ).saved
    (tmp_path / "x").rename(tmp_path / name)  # as an older version could name it
    with pytest.raises(InputError, match=f"use {tmp_path / name} for the run, builtin:{name} for"):
        stockade.load(name, tmp_path)
    assert stockade.load(tmp_path / name, tmp_path).card["episodes"] >= 4
    assert "episodes" not in stockade.load(f"builtin:{name}", tmp_path).card
    assert stockade.load(name, tmp_path / "elsewhere").name in (name, "react-restore")


def test_a_mistyped_name_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Did you mean 'champion'"):
        stockade.load("champoin", tmp_path)
    with pytest.raises(InputError, match="react-remove"):
        stockade.load("builtin:x", tmp_path)


# ----------------------------------------------------------------------------------------------- files of version 0.1.0
def test_a_run_of_version_0_1_0_loads_and_gets_its_rules_as_context(data_dir: Path) -> None:
    agents = [stockade.load(OLD_RUN, data_dir / "runs", rules=rules) for rules in ("current", "leaderboard")]
    obs, _ = stockade.make_vec(5, obs=agents[0].obs).reset(seed=0)
    p = [agent.probabilities(obs) for agent in agents]
    assert not np.array_equal(*p)  # the same weights under another context
    assert agents[0].predict(obs)[0].shape == (5,)


def test_a_run_of_version_0_1_0_continues_as_that_version_would_have(data_dir: Path, tmp_path: Path) -> None:
    run = tmp_path / OLD_RUN
    shutil.copytree(data_dir / "runs" / OLD_RUN, run)
    final = CheckpointFolder(run / "checkpoints").load_last()
    for path in (run / "checkpoints").glob("checkpoint-00000004*"):
        path.unlink()
    assert train(TrainConfig.resumed(OLD_RUN, tmp_path)).episodes == final.rest["episodes"]
    again = CheckpointFolder(run / "checkpoints").load_last()
    assert again.rest["iteration"] == final.rest["iteration"] == 4
    for name in final.arrays:
        if name.startswith("policy."):
            np.testing.assert_allclose(again.arrays[name], final.arrays[name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_worlds_in_another_layout_are_refused_not_misread(data_dir: Path, tmp_path: Path) -> None:
    run = tmp_path / OLD_RUN
    shutil.copytree(data_dir / "runs" / OLD_RUN, run)
    saved = load(run / "checkpoints" / "checkpoint-00000004")
    save(run / "checkpoints" / "checkpoint-00000005", Checkpoint(saved.arrays, saved.rest | {"layout": "another"}))
    with pytest.raises(InputError, match="another version of stockade"):
        train(TrainConfig.resumed(OLD_RUN, tmp_path))
    assert stockade.load(OLD_RUN, tmp_path).card["layout"] == "another"


def test_a_checkpoint_of_another_version_is_refused_by_name(data_dir: Path, tmp_path: Path) -> None:
    run = tmp_path / OLD_RUN
    shutil.copytree(data_dir / "runs" / OLD_RUN, run)
    for path in (run / "checkpoints").glob("*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    with pytest.warns(UserWarning, match="version 99"), pytest.raises(InputError, match="no usable checkpoint"):
        stockade.load(OLD_RUN, tmp_path)
