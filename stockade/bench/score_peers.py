"""The other libraries' trainings of `stockade bench time-to-score`: our mixture of worlds as one `VecEnv` of
Stable-Baselines3 -> its PPO or SBX's -> a callback that asks the race between updates.
"""

from itertools import pairwise
from typing import Any, cast

import gymnasium
import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from stockade.bench.peers import SBX, sb3_ppo_on, sbx_ppo_on
from stockade.bench.score import Race
from stockade.cage2.actions import ACTION_MASK, N_ACTIONS
from stockade.cage2.config import RewardWeights
from stockade.integrations.sb3 import StockadeVecEnv, make_sb3
from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.mixture import cells_of, share_out

ENDLESS = 10**12  # Steps: the race ends a training


class MixtureVecEnv(VecEnv):
    """All cells of a training as one `VecEnv`, with the actions that ours chooses from; counts the episodes.

    The observation tells how many steps are left, so the horizon is an end and no time limit, as it is for ours.
    """

    def __init__(self, config: TrainConfig, reward_scale: float) -> None:
        cells = cells_of(config)
        counts = share_out(cells, config.n_envs)
        scaled = {"reward": RewardWeights(*3 * [reward_scale]), "monitor": False}
        self.parts: list[StockadeVecEnv] = [
            make_sb3(count, **{**vars(cell.world), **scaled}) for cell, count in zip(cells, counts, strict=True)
        ]
        self._slices = [slice(*ends) for ends in pairwise(np.cumsum([0, *counts]).tolist())]
        self.actions = np.flatnonzero(ACTION_MASK) if config.action_mask else np.arange(N_ACTIONS)
        self.episodes, self._chosen = 0, np.zeros(config.n_envs, np.int64)
        space = gymnasium.spaces.Discrete(len(self.actions))
        super().__init__(config.n_envs, self.parts[0].observation_space, space)

    def reset(self) -> np.ndarray:
        for part, where in zip(self.parts, self._slices, strict=True):
            if self._seeds[where.start] is not None:
                part.seed(self._seeds[where.start])
        self._reset_seeds()
        return np.concatenate([part.reset() for part in self.parts])

    def step_async(self, actions: np.ndarray) -> None:
        self._chosen = self.actions[actions]

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        steps = [part.step(self._chosen[where]) for part, where in zip(self.parts, self._slices, strict=True)]
        obs, rewards, dones = (np.concatenate(each) for each in list(zip(*steps, strict=True))[:3])
        infos = [info for step in steps for info in step[3]]
        ended = np.flatnonzero(dones)
        self.episodes += len(ended)
        for i in ended:
            infos[i]["TimeLimit.truncated"] = False
        return obs, rewards, dones, infos

    def close(self) -> None:
        for part in self.parts:
            part.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        found = [value for part in self.parts for value in part.get_attr(attr_name)]
        return [found[i] for i in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("learners set nothing")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError("learners call nothing")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


class Greedy:
    """A model as a policy of `evaluate`: its likeliest action as a number of the world's."""

    def __init__(self, model: Any, actions: np.ndarray, obs: str) -> None:
        self.model, self.actions, self.obs = model, actions, obs

    def predict(self, observations: np.ndarray, **_: Any) -> tuple[np.ndarray, None]:
        return self.actions[self.model.predict(observations, deterministic=True)[0]], None


class RaceCallback(BaseCallback):
    """Ask the race before each rollout, so after an update, and set the rates of our schedules.

    `total_episodes` is how long they are; without it the rates stay those of the start.
    """

    def __init__(self, race: Race, agent: Greedy, config: PPOConfig, total_episodes: int | None) -> None:
        super().__init__()
        self._race, self._agent, self._config, self._total, self._over = race, agent, config, total_episodes, False

    def _on_training_start(self) -> None:
        self._race.start()

    def _on_rollout_start(self) -> None:
        c, model, envs = self._config, cast(Any, self.model), cast(MixtureVecEnv, self.training_env)
        episodes = envs.episodes
        if model.num_timesteps:  # else nothing was learned yet
            self._over = self._race.is_over(self._agent, episodes)
        progress = min(1.0, episodes / self._total) if self._total else 0.0
        gamma, rate, entropy = (
            first + progress * (last - first)
            for first, last in ((c.gamma, c.gamma if c.final_gamma is None else c.final_gamma),
                                (c.learning_rate, c.final_learning_rate), (c.entropy_weight, c.final_entropy_weight))
        )  # fmt: skip
        model.rollout_buffer.gamma, model.ent_coef, model.lr_schedule = gamma, entropy, lambda _: rate

    def _on_step(self) -> bool:
        return not self._over


def train_theirs(library: str, config: TrainConfig, race: Race, our_settings: bool) -> Greedy:
    """Stable-Baselines3's PPO, or SBX's, until the race is over; with the settings of `bench train`, or ours."""
    ppo, total = (config.ppo, config.total_episodes) if our_settings else (PPOConfig(), None)
    envs = MixtureVecEnv(config, ppo.reward_scale)
    try:
        model = (sbx_ppo_on if library == SBX else sb3_ppo_on)(envs, ppo, config.seed)
        agent = Greedy(model, envs.actions, config.obs)
        race.warm_up(agent)
        if library == SBX:
            _compile(model)
        envs.episodes = 0
        model.learn(ENDLESS, RaceCallback(race, agent, ppo, total))
    finally:
        envs.close()
    return agent


def _compile(model: Any) -> None:
    """One update with the model's own shapes, which JAX compiles for; then its first weights again."""
    policy = model.policy
    first = policy.actor_state, policy.vf_state
    model.learn(model.n_steps * model.n_envs)
    policy.actor_state, policy.vf_state = first
