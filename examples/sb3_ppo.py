"""Train PPO of Stable-Baselines3 on the built-in world, and compare it with random actions.

Needs `pip install 'stockade[sb3]'`. The default takes about half a minute: python examples/sb3_ppo.py
"""

from pathlib import Path

import numpy as np
import torch
import tyro
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

from stockade.integrations.sb3 import StockadeVecEnv, make_sb3


def random_return(env: StockadeVecEnv, seed: int) -> float:
    """Mean return of an episode in each environment under random actions."""
    env.seed(seed)
    env.reset()
    chance = np.random.default_rng(seed)
    returns: list[float] = []
    while len(returns) < env.num_envs:
        _, _, _, infos = env.step(chance.integers(env.action_space.n, size=env.num_envs))
        returns += [info["episode"]["r"] for info in infos if "episode" in info]
    return float(np.mean(returns))


def main(
    steps: int = 300_000,
    n_envs: int = 64,
    backend: str = "native",
    red: str = "bline",
    horizon: int = 30,
    seed: int = 0,
    save: Path | None = None,
) -> None:
    """Train, evaluate on 200 other episodes, and save the model if told where."""
    torch.set_num_threads(1)  # networks this small are slower with more
    env = VecNormalize(make_sb3(n_envs, backend, red=red, horizon=horizon), norm_obs=False)  # scales the rewards
    model = PPO(
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

    test = make_sb3(200, red=red, horizon=horizon)
    by_chance = random_return(test, seed=10_000)
    test.seed(10_000)
    mean, spread = evaluate_policy(model, test, n_eval_episodes=200)
    print(f"random actions {by_chance:.1f}")
    print(f"PPO {mean:.1f} (standard deviation {spread:.1f})")


if __name__ == "__main__":
    tyro.cli(main)
