"""The learner of `--device`, on the CPU: the mathematics of the compiled learner, its files, and what it learns."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import stockade
from stockade.errors import InputError
from stockade.learn import kernels, torch_ppo
from stockade.learn.checkpoint import CheckpointFolder
from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.evaluate import play
from stockade.learn.ppo import PPO
from stockade.learn.torch_ppo import TorchPPO
from stockade.learn.train import make_learner, train

#: One minibatch, so that the order of rows does not matter.
SMALL = PPOConfig(update_steps=13, minibatch_size=10_000, epochs=3, hidden=(16, 8), shards=2)


def envs(n: int = 12):
    return stockade.make_vec(n, red="mix", horizon=9, obs="memory", copy=False, threads=1)


@pytest.mark.parametrize("horizon_is_end", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"activation": "tanh", "value_clip": 0.02, "max_grad_norm": 100.0},
        {"shared": True, "normalise_advantages": False, "final_gamma": 0.9},
        {"clip": 0.001, "learning_rate": 0.03},
    ],
)
def test_the_same_rollout_gives_the_same_weights(changes, horizon_is_end):
    """Three gradients of one rollout, by written-out derivatives and by autograd: equal but for rounding."""
    config = dataclasses.replace(SMALL, **changes)
    compiled = PPO([envs()], config, 5, horizon_is_end=horizon_is_end)
    other = TorchPPO(envs(), config, 5, horizon_is_end=horizon_is_end)
    before = compiled.policy.flat.clone()
    assert torch.equal(before, other.policy.flat)
    results = compiled.collect(), other.collect()
    for name, array in vars(compiled.rollout).items():
        getattr(other.rollout, name).copy_(torch.from_numpy(array))
    for learner, result in zip((compiled, other), results, strict=True):
        learner.improve(result, 0.4)
        learner.close()
    moved = (compiled.policy.flat - before).abs().max()
    assert moved > 1e-3
    assert torch.allclose(compiled.policy.flat, other.policy.flat, rtol=0, atol=1e-3 * float(moved))
    assert results[1].stats == pytest.approx(results[0].stats, rel=1e-3, abs=1e-5)
    if "clip" in changes:
        assert results[0].stats["clipped"] > 0.1


def test_the_same_uniforms_choose_the_same_actions():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (2000, 145)).astype(np.float32)
    uniforms = rng.random(2000, np.float32)
    expected, log_probs = np.empty(2000, np.int64), np.empty(2000, np.float32)
    kernels.sample(logits, 145, uniforms, expected, log_probs)
    actions, others = torch_ppo.sample(torch.from_numpy(logits), torch.from_numpy(uniforms))
    same = actions.numpy() == expected
    assert same.mean() > 0.998  # a uniform number that falls on a border may go either way
    assert np.allclose(others.numpy()[same], log_probs[same], atol=1e-5)


def test_a_rollout_is_what_the_environments_did():
    """Played again by its actions, `native` gives its observations, rewards and ends; returns are those of episodes."""
    learner = TorchPPO(envs(), SMALL, 3)
    with envs() as again:
        obs = again.reset(seed=int(np.random.SeedSequence([3]).generate_state(1)[0]))[0]
        lived, found = np.zeros(12), []
        for _ in range(2):
            result, r = learner.collect(), learner.rollout
            for t in range(SMALL.update_steps):
                assert np.array_equal(obs, r.obs[t])
                logits, values = learner.policy.evaluate(obs)
                assert np.allclose(values, r.values[t], atol=1e-5)
                chosen = logits[np.arange(12), r.actions[t]] - np.log(np.exp(logits).sum(1))
                assert np.allclose(chosen, r.log_probs[t], atol=1e-5)
                obs, rewards, _, over, _ = again.step(r.actions[t].numpy())
                assert np.allclose(rewards * 0.1, r.rewards[t])
                assert np.array_equal(over, r.ended[t] == kernels.TRUNCATED)
                lived += rewards
                found += lived[over].tolist()
                lived[over] = 0
            assert result.returns.tolist() == pytest.approx(found)
            assert set(result.lengths.tolist()) == {9}
            found = []
    assert learner.steps == 12 * (26 - 2)
    learner.close()


def small(runs: Path, **changes) -> TrainConfig:
    ppo = PPOConfig(update_steps=20, minibatch_size=200, hidden=(16,))
    settings = {"horizon": 12, "n_envs": 24, "total_episodes": 240, "checkpoint_episodes": 60, "tensorboard": False}
    return TrainConfig(**{"runs": runs, "device": "cpu", "name": "run", "ppo": ppo} | settings | changes)


def weights(run: Path) -> dict[str, np.ndarray]:
    saved = CheckpointFolder(run / "checkpoints").load_last()
    return {name: array for name, array in saved.arrays.items() if name.startswith(("policy.", "adam."))}


@pytest.mark.parametrize("mixed", [{}, {"red": "bline:2,meander", "rules": "both"}])
def test_a_run_resumes_exactly_and_its_policy_plays(tmp_path, mixed):
    whole = train(small(tmp_path / "one", **mixed), progress=False)
    config = small(tmp_path / "two", **mixed)
    learner = make_learner(config)
    for k in range(3):
        learner.iterate(k / 10)
    kept = learner.state()
    ahead = [learner.iterate(0.5).returns.tolist() for _ in range(2)]
    learner.close()
    again = make_learner(config)
    again.restore(*kept)
    assert [again.iterate(0.5).returns.tolist() for _ in range(2)] == ahead
    assert torch.equal(again.policy.flat, learner.policy.flat)
    again.close()

    repeated = train(config, progress=False)
    first, second = weights(whole.folder), weights(repeated.folder)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert json.loads((whole.folder / "config.json").read_text())["device"] == "cpu"
    assert len(stockade.evaluate(whole, episodes=2, progress=False).cells) == 9


def test_it_learns_what_the_compiled_learner_learns(tmp_path):
    """Short trainings of both with three seeds each: their mean returns agree within the spread of seeds."""
    found: dict[str | None, list[float]] = {None: [], "cpu": []}
    for device, returns in found.items():
        for seed in range(3):
            config = TrainConfig(
                runs=tmp_path, device=device, seed=seed, horizon=20, n_envs=64, total_episodes=3000, tensorboard=False,
                ppo=PPOConfig(update_steps=40, minibatch_size=640, learning_rate=3e-3),
            )  # fmt: skip
            result = train(config, progress=False)
            assert result.metrics["return_mean"][0] < -40
            returns.append(float(play(result.agent, "bline", 20, 500, 10**9).mean()))
    compiled, other = (np.array(returns) for returns in found.values())
    assert min(compiled.min(), other.min()) > -20, "both have learned"
    assert abs(compiled.mean() - other.mean()) < 3 * max(1.0, compiled.std(), other.std()), found


@pytest.mark.parametrize("changes", [{"side": "red"}, {"league": True}, {"backend": "serial"}])
def test_what_a_device_cannot_do_is_refused(tmp_path, changes):
    with pytest.raises(InputError, match="beside --device cpu"):
        small(tmp_path, **changes)


def test_without_a_gpu_the_error_names_extra_and_device(tmp_path):
    with pytest.raises(InputError, match=r"device='cuda'.*numba-cuda \(pip install 'stockade\[cuda\]'\).*NVIDIA GPU"):
        train(small(tmp_path, device="cuda"), progress=False)
    assert not list(tmp_path.iterdir()), "no run was begun"
