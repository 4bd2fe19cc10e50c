"""Train MaskablePPO of sb3-contrib: it never wastes a step on the 63 decoys that no host can run.

Needs `pip install 'stockade[sb3]'`. The default takes about half a minute: python examples/sb3_maskable.py
"""

from collections import Counter
from pathlib import Path

import torch
import tyro
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3.common.vec_env import VecNormalize

from stockade.cage2 import ACTION_NAMES
from stockade.integrations.sb3 import StockadeVecEnv, make_sb3


def favourites(model: MaskablePPO, env: StockadeVecEnv, seed: int) -> list[tuple[str, int]]:
    """What the agent does most in an episode of each environment."""
    env.seed(seed)
    obs = env.reset()
    counts: Counter[str] = Counter()
    ended = False
    while not ended:
        actions, _ = model.predict(obs, action_masks=get_action_masks(env), deterministic=True)
        obs, _, dones, _ = env.step(actions)
        counts.update(ACTION_NAMES[action] for action in actions)
        ended = dones.any()
    return counts.most_common(5)


def main(
    steps: int = 200_000,
    n_envs: int = 64,
    backend: str = "native",
    red: str = "bline",
    horizon: int = 30,
    seed: int = 0,
    save: Path | None = None,
) -> None:
    """Train, evaluate on 200 other episodes, show what the agent does, and save the model if told where."""
    torch.set_num_threads(1)  # networks this small are slower with more
    env = VecNormalize(make_sb3(n_envs, backend, red=red, horizon=horizon), norm_obs=False)  # scales the rewards
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

    test = make_sb3(200, red=red, horizon=horizon)
    test.seed(10_000)
    mean, spread = evaluate_policy(model, test, n_eval_episodes=200)
    print(f"MaskablePPO {mean:.1f} (standard deviation {spread:.1f})")
    for name, count in favourites(model, test, seed=10_000):
        print(f"{count:>6} {name}")


if __name__ == "__main__":
    tyro.cli(main)
