"""Train APPO of RLlib on the built-in world: env runners play on while the learner learns, nobody waits for anybody.

Needs `pip install 'stockade[ray]'`. The default takes about a minute on two cores: python examples/rllib_appo.py
"""

import math

import gymnasium
import ray
import torch
import tyro
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from rllib_ppo import mean_return

from stockade.integrations.rllib import register


def main(
    steps: int = 25_000,
    env_runners: int = 2,
    n_envs: int = 32,
    red: str = "bline",
    horizon: int = 30,
    seed: int = 0,
) -> None:
    """Train, and evaluate on 200 other episodes.

    Args:
        steps: of training, over all environments.
        env_runners: processes that play.
        n_envs: environments in each of them.
        red: the attacker.
        horizon: steps of an episode.
        seed: of networks and environments; how the processes interleave differs from run to run.
    """
    torch.set_num_threads(1)  # for networks this small a second thread costs more than it gives
    world = {"red": red, "horizon": horizon}
    cpus = env_runners + 1  # one for this process, which learns; more than there are may be promised
    ray.init("local", num_cpus=cpus, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    config = (
        APPOConfig()
        .environment(register(), env_config=world)
        .env_runners(
            num_env_runners=env_runners,
            num_envs_per_env_runner=n_envs,
            gym_env_vectorize_mode=gymnasium.VectorizeMode.VECTOR_ENTRY_POINT,
            rollout_fragment_length=horizon,
        )
        .learners(num_learners=0)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=False))
        .training(
            train_batch_size_per_learner=n_envs * horizon,
            lr=1e-3,
            gamma=0.99,
            entropy_coeff=0.01,
            vf_loss_coeff=1e-3,
            grad_clip=0.5,
            circular_buffer_num_batches=4,
            circular_buffer_iterations_per_batch=8,
        )
        .reporting(min_time_s_per_iteration=1)
        .debugging(seed=seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    sampled = 0.0
    while sampled < steps:
        result = algorithm.train()["env_runners"]
        sampled = result.get("num_env_steps_sampled_lifetime", sampled)
        mean = result.get("episode_return_mean", math.nan)
        if not math.isnan(mean):  # some episodes have ended since the last time
            print(f"{sampled:.0f} steps, mean return {mean:.1f}", flush=True)
    print(f"random actions {mean_return(None, 200, world):.1f}")
    print(f"APPO {mean_return(algorithm, 200, world):.1f}")
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    tyro.cli(main)
