"""Train PPO of RLlib (new API stack) on the built-in world, and compare it with random actions.

Needs `pip install 'stockade[ray]'`. The default takes about a minute on two cores: python examples/rllib_ppo.py
"""

from typing import Any

import gymnasium
import numpy as np
import ray
import torch
import tyro
from ray.rllib.algorithms import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID, Columns
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

import stockade
from stockade.integrations.rllib import register


def mean_return(algorithm: Algorithm | None, episodes: int, world: dict[str, Any]) -> float:
    """Mean return of the trained policy, or without one of random actions; both draw them."""
    module = None
    if algorithm is not None:
        module = algorithm.get_module()
        module.set_state(algorithm.learner_group.get_weights()[DEFAULT_MODULE_ID])  # the learner's latest
    chance = torch.Generator().manual_seed(0)
    with stockade.make_vec(episodes, **world, obs_dtype=np.float32) as envs:
        obs, _ = envs.reset(seed=10_000)
        returns = np.zeros(episodes)
        for _ in range(world["horizon"]):
            logits = torch.zeros(episodes, int(envs.single_action_space.n))
            if module is not None:
                logits = module.forward_inference({Columns.OBS: torch.from_numpy(obs)})[Columns.ACTION_DIST_INPUTS]
            actions = torch.multinomial(logits.softmax(dim=1), 1, generator=chance)[:, 0]
            obs, rewards, *_ = envs.step(actions.numpy())
            returns += rewards
    return float(returns.mean())


def main(
    iterations: int = 20,
    env_runners: int = 1,
    n_envs: int = 64,
    vectorize: gymnasium.VectorizeMode = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT,
    red: str = "bline",
    horizon: int = 30,
    seed: int = 0,
) -> None:
    """Train, and evaluate on 200 other episodes.

    Args:
        iterations: of training, each on one episode of each environment.
        env_runners: processes that play; 0 plays in this one.
        n_envs: environments in each of them.
        vectorize: how they are stepped: by the compiled kernel, or one by one (sync, async).
        red: the attacker.
        horizon: steps of an episode.
        seed: of everything.
    """
    torch.set_num_threads(1)  # for networks this small a second thread costs more than it gives
    world = {"red": red, "horizon": horizon}
    ray.init("local", include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    config = (
        PPOConfig()
        .environment(register(), env_config=world)
        .env_runners(
            num_env_runners=env_runners,
            num_envs_per_env_runner=n_envs,
            gym_env_vectorize_mode=vectorize,
            rollout_fragment_length=horizon,
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=False))
        .training(
            train_batch_size_per_learner=max(1, env_runners) * n_envs * horizon,
            minibatch_size=max(1, env_runners) * n_envs * horizon // 4,
            num_epochs=4,
            lr=1e-3,
            gamma=0.99,
            lambda_=0.95,
            entropy_coeff=0.01,
            vf_clip_param=1e6,  # returns go down to -300; the default would hardly let the critic learn
            vf_loss_coeff=1e-3,
            grad_clip=0.5,
        )
        .debugging(seed=seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    for iteration in range(1, iterations + 1):
        result = algorithm.train()["env_runners"]
        if iteration % 5 == 0 or iteration == iterations:
            steps, mean = result["num_env_steps_sampled_lifetime"], result["episode_return_mean"]
            print(f"iteration {iteration}: {steps:.0f} steps, mean return {mean:.1f}", flush=True)
    print(f"random actions {mean_return(None, 200, world):.1f}")
    print(f"PPO {mean_return(algorithm, 200, world):.1f}")
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    tyro.cli(main)
