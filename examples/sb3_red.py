"""Train MaskablePPO of sb3-contrib as red, against a defender inside the environments; what it earns, blue loses.

Needs `pip install 'stockade[sb3]'`. The default takes about a minute on a free core: python examples/sb3_red.py
"""

from pathlib import Path

import numpy as np
import torch
import tyro
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

import stockade
from stockade.integrations.sb3 import make_sb3


def random_red(blue: str, horizon: int, seed: int) -> float:
    """Mean return of a red that tries anything it can."""
    envs = stockade.make_vec(200, side="red", blue=stockade.load(blue), horizon=horizon)
    envs.reset(seed=seed)
    chance, total = np.random.default_rng(seed), np.zeros(200)
    for _ in range(horizon):
        choices = np.where(envs.action_masks(), chance.random((200, 56)), -1.0)
        total += envs.step(choices.argmax(axis=1))[1]
    return float(total.mean())


def main(
    steps: int = 300_000,
    n_envs: int = 64,
    backend: str = "native",
    blue: str = "react-remove",
    horizon: int = 30,
    seed: int = 0,
    save: Path | None = None,
) -> None:
    """Train, evaluate on 200 other episodes, and save the model if told where. `blue` is a name for `stockade.load`."""
    torch.set_num_threads(1)  # networks this small are slower with more
    world = {"side": "red", "blue": stockade.load(blue), "horizon": horizon}
    env = VecNormalize(make_sb3(n_envs, backend, **world), norm_obs=False)  # scales the rewards
    model = MaskablePPO(
        "MlpPolicy",
        env,
        n_steps=horizon,
        batch_size=max(2, n_envs * horizon // 4),
        n_epochs=4,
        learning_rate=1e-3,
        ent_coef=0.01,
        seed=seed,
        device="cpu",
        verbose=1,
    )
    model.learn(steps, log_interval=20)
    env.close()
    if save is not None:
        model.save(save)

    test = make_sb3(200, **world)
    test.seed(10_000)
    mean, spread = evaluate_policy(model, test, n_eval_episodes=200)
    print(f"random red {random_red(blue, horizon, 10_000):.1f}")
    print(f"MaskablePPO {mean:.1f} (standard deviation {spread:.1f})")


if __name__ == "__main__":
    tyro.cli(main)
