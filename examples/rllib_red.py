"""Train PPO of RLlib as red, against a defender inside the environments; what it earns, blue loses.

Needs `pip install 'stockade[ray]'`. The default takes about a minute on two cores: python examples/rllib_red.py
"""

import gymnasium
import ray
import torch
import tyro
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from rllib_ppo import mean_return

import stockade
from stockade.integrations.rllib import register


def main(iterations: int = 20, n_envs: int = 64, blue: str = "react-remove", horizon: int = 30, seed: int = 0) -> None:
    """Train, and evaluate on 200 other episodes.

    Args:
        iterations: of training, each on one episode of each environment.
        n_envs: environments, all in one env runner.
        blue: who defends: a name for `stockade.load`.
        horizon: steps of an episode.
        seed: of everything.
    """
    torch.set_num_threads(1)  # for networks this small a second thread costs more than it gives
    ray.init("local", include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    world = {"side": "red", "blue": stockade.load(blue), "horizon": horizon}
    config = (
        PPOConfig()
        .environment(register(), env_config=world)
        .env_runners(
            num_env_runners=1,
            num_envs_per_env_runner=n_envs,
            gym_env_vectorize_mode=gymnasium.VectorizeMode.VECTOR_ENTRY_POINT,
            rollout_fragment_length=horizon,
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=False))
        .training(
            train_batch_size_per_learner=n_envs * horizon,
            minibatch_size=n_envs * horizon // 4,
            num_epochs=8,
            lr=2e-3,
            gamma=0.99,
            lambda_=0.95,
            entropy_coeff=0.01,
            vf_clip_param=1e6,  # returns go up to 300; the default would hardly let the critic learn
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
