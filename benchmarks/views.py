"""What is each way to see and to remember worth to a learner? `python benchmarks/views.py --help`.

case x seed -> PPO against Meander, the same environment steps for all -> greedy episodes on common seeds
-> benchmarks/results/belief/views.json, merged by case and seed -> the table in docs/concepts/belief.md
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import gymnasium
import numpy as np
from common import run_script
from gymnasium.vector.utils import batch_space
from pages import fill

import stockade
from stockade.bench.result import RESULTS, machine_stamp
from stockade.cage2.actions import ACTION_HOST, ACTION_KIND, ACTION_MASK, FIRST_DECOY, RESTORE
from stockade.cage2.config import RewardWeights
from stockade.cage2.scenario import N_HOSTS
from stockade.errors import InputError, require_packages
from stockade.files import as_json, check_writable, write_durably
from stockade.learn.agents import Agent
from stockade.learn.config import CHAMPION, TrainConfig
from stockade.learn.evaluate import mean_interval, play
from stockade.learn.mixture import cells_of
from stockade.learn.policy import one_torch_thread
from stockade.learn.ppo import PPO
from stockade.learn.train import make_envs, make_learner
from stockade.text import Table, interval

PAGE, FILE = Path("docs/concepts/belief.md"), RESULTS / "belief" / "views.json"
RED, RULES, HORIZON = "meander", "leaderboard", 100
EVAL_SEED = 310_000_000  # Of the first episode that is evaluated
BELIEF = f"belief:16:{RULES}:meander|bline|sleep"
LSTM = 128  # Values that the recurrent network remembers

Name = Literal["bits", "history", "recurrent", "memory", "belief", "belief-critic", "belief-start", "truth"]


class Case(NamedTuple):
    """A way to see and to remember."""

    label: str
    obs: str  # Of the worlds that it learns in


CASES: dict[str, Case] = {
    "bits": Case("`bits`: the challenge's 52 bits", "bits"),
    "history": Case("the bits and blue's action of each of the last {window} steps", "bits"),
    "recurrent": Case("the bits, with a recurrent network (LSTM)", "bits"),
    "memory": Case("`memory`: the bits, what blue knows from its own history, and the steps left", "memory"),
    "belief": Case("`belief`", BELIEF),
    "belief-critic": Case("`belief`; the critic sees the truth", BELIEF),
    "belief-start": Case("`belief`; begins as the agent that sees the truth", BELIEF),
    "truth": Case("`truth`: everything, for comparison", "truth"),
}


class Trained(NamedTuple):
    """A training, and the returns of its agent."""

    episodes: int
    seconds: float
    returns: np.ndarray


@dataclass(frozen=True)
class Views:
    """Train an agent with each way to see and to remember, and fill the table of their page."""

    cases: tuple[Name, ...] = get_args(Name)  # What to train; results join those of the file, by case and seed.
    episodes: int = 40_000  # Episodes of each training, of 100 steps.
    recurrent_episodes: int = 2000  # At most so many for the recurrent network, which takes longest per episode.
    seeds: int = 2  # Trainings of each case.
    first_seed: int = 0  # Seed of the first of them.
    window: int = 8  # Steps of which `history` sees bits and actions.
    eval_episodes: int = 1000  # Episodes that judge each training.
    n_envs: int = CHAMPION.n_envs  # Environments that run at once.
    threads: int | None = None  # Of our learner; its results do not depend on it.
    out: Path = FILE  # Where the results go.
    page: Path = PAGE  # The page with the table.
    measure: bool = True  # Without, the table is made from the results that are there.

    def run(self) -> int:
        if min(self.episodes, self.recurrent_episodes, self.window, self.n_envs, self.eval_episodes - 1) < 1:
            raise InputError("episodes, environments and window must be at least 1, and --eval-episodes at least 2")
        check_writable(self.out, "--out")
        fill(self.page, "views", {"scores": str})  # refuses wrong markers before hours of work
        require_packages("torch", *["sb3_contrib"] * ("recurrent" in self.cases))
        for k, case in product(range(self.seeds), self.cases) if self.measure else ():
            entry = self.entry(case, self.first_seed + k)
            content = {"entries": merged(read(self.out), entry)}
            write_durably(self.out.absolute(), (as_json(content) + "\n").encode())
            print(f"{case}, seed {entry['seed']}: {interval(entry['mean'], entry['interval'])} after "
                  f"{entry['episodes']:,} episodes in {entry['seconds']:.0f} s", flush=True)  # fmt: skip
        entries = read(self.out)
        write_durably(self.page.absolute(), fill(self.page, "views", {"scores": lambda: scores(entries)}).encode())
        print(scores(entries))
        return 0

    def entry(self, case: str, seed: int) -> dict[str, Any]:
        """Train and judge one agent."""
        stamp, config = machine_stamp(), self.config(case, seed)
        ways = {"history": self.with_window, "recurrent": self.recurrent, "belief-start": self.from_truth}
        episodes, seconds, returns = ways.get(case, self.alone)(config)
        mean, half_width = mean_interval(returns)
        return {"case": case, "seed": seed, "episodes": episodes, "seconds": round(seconds, 1), "mean": round(mean, 4),
                "interval": round(half_width, 4), "eval_episodes": self.eval_episodes, "window": self.window,
                "settings": config.to_json(), "stamp": stamp}  # fmt: skip

    def config(self, case: str, seed: int) -> TrainConfig:
        """The champion's settings, for one attacker, one horizon and one rule set."""
        critic = "truth" if case == "belief-critic" else "observation"
        episodes = min(self.episodes, self.recurrent_episodes) if case == "recurrent" else self.episodes
        return replace(
            CHAMPION, preset=None, red=RED, rules=RULES, horizons="", horizon=HORIZON, obs=CASES[case].obs,
            critic=critic, total_episodes=episodes, n_envs=self.n_envs, seed=seed, validation_episodes=0,
            ppo=replace(CHAMPION.ppo, threads=self.threads),
        )  # fmt: skip

    # -------------------------------------------------------------------------------------------------- ways to train
    def alone(self, config: TrainConfig) -> Trained:
        with closing(make_learner(config)) as learner:
            seconds = learn(learner, config.total_episodes)
        return Trained(learner.episodes, seconds, self.judge(Agent(learner.policy, config.obs)))

    def from_truth(self, config: TrainConfig) -> Trained:
        """As `stockade train --start`: a quarter of the episodes with the truth, then its weights with the belief."""
        with closing(make_learner(replace(config, obs="truth"))) as first:
            seconds = learn(first, config.total_episodes // 4)
        with closing(make_learner(config)) as second:
            second.policy.load_weights(first.policy.save_weights())
            seconds += learn(second, config.total_episodes - first.episodes)
        return Trained(first.episodes + second.episodes, seconds, self.judge(Agent(second.policy, config.obs)))

    def with_window(self, config: TrainConfig) -> Trained:
        envs = [WindowEnv(lane, self.window) for lane in make_envs(config, cells_of(config))]
        with closing(PPO(envs, config.ppo, config.seed, np.flatnonzero(ACTION_MASK).tolist())) as learner:
            seconds = learn(learner, config.total_episodes)
        world = {"red": RED, "horizon": HORIZON, "rules": RULES}
        with closing(WindowEnv(stockade.make_vec(self.eval_episodes, **world), self.window)) as test:
            (obs, _), returns = test.reset(seed=EVAL_SEED), np.zeros(self.eval_episodes)
            for _ in range(HORIZON):
                obs, rewards, *_ = test.step(learner.policy.act(obs, None))
                returns += rewards
        return Trained(learner.episodes, seconds, returns)

    def recurrent(self, config: TrainConfig) -> Trained:
        model, schedule = make_recurrent(config)
        with one_torch_thread(), closing(model.get_env()):
            begin = time.perf_counter()
            model.learn(config.total_episodes * HORIZON, callback=schedule)
            seconds = time.perf_counter() - begin
            return Trained(model.num_timesteps // HORIZON, seconds, self.judge(model))

    def judge(self, policy: Any) -> np.ndarray:
        """Returns by the likeliest actions."""
        return play(policy, RED, HORIZON, self.eval_episodes, EVAL_SEED, RULES)


def learn(learner: PPO, episodes: int) -> float:
    """Train for so many episodes, to the end of an update; the seconds that took."""
    begin = time.perf_counter()
    while learner.episodes < episodes:
        learner.iterate(learner.episodes / episodes)
    return time.perf_counter() - begin


def make_recurrent(config: TrainConfig) -> tuple[Any, Any]:
    """sb3-contrib's RecurrentPPO with our settings, and the callback that changes its rates as our learner does."""
    import torch
    from sb3_contrib import RecurrentPPO

    from stockade.integrations.sb3 import make_sb3

    c, rows = config.ppo, config.n_envs * config.ppo.update_steps
    scaled = RewardWeights(*3 * [c.reward_scale])
    envs = make_sb3(config.n_envs, red=RED, horizon=HORIZON, rules=RULES, reward=scaled)
    layers = {"net_arch": {"pi": list(c.hidden), "vf": list(c.hidden)}, "activation_fn": torch.nn.ReLU}
    model = RecurrentPPO(
        "MlpLstmPolicy", envs, n_steps=c.update_steps, batch_size=min(c.minibatch_size, rows), n_epochs=c.epochs,
        gae_lambda=c.gae_lambda, clip_range=c.clip, vf_coef=c.value_weight, max_grad_norm=c.max_grad_norm,
        seed=config.seed, device="cpu", policy_kwargs={**layers, "lstm_hidden_size": LSTM},
    )  # fmt: skip
    with torch.no_grad():  # it takes no mask; what has probability 0 has no gradient, so this stays as it is
        model.policy.action_net.bias[torch.from_numpy(ACTION_MASK == 0)] = -1e9
    final_gamma = c.gamma if c.final_gamma is None else c.final_gamma

    def schedule(*_: Any) -> bool:
        """In every step; the rates are those of the moment at which the rollout began."""
        done = min(1.0, (model.num_timesteps - 1) // rows * rows / (config.total_episodes * HORIZON))
        rate = c.learning_rate + done * (c.final_learning_rate - c.learning_rate)
        model.lr_schedule = lambda _: rate
        model.ent_coef = c.entropy_weight + done * (c.final_entropy_weight - c.entropy_weight)
        model.gamma = model.rollout_buffer.gamma = c.gamma + done * (final_gamma - c.gamma)
        return True

    return model, schedule


# -------------------------------------------------------------------------------------------------- the history window
#: (145, 17) of each action its kind (Analyse, Remove, a decoy, Restore) and its host; all 0 for Sleep and Monitor.
CODES = np.zeros((len(ACTION_KIND), 4 + N_HOSTS), np.uint8)
_ACTS = np.flatnonzero(ACTION_KIND >= 0)
CODES[_ACTS, np.minimum(ACTION_KIND, FIRST_DECOY)[_ACTS] + (ACTION_KIND == RESTORE)[_ACTS]] = 1
CODES[_ACTS, 4 + ACTION_HOST[_ACTS]] = 1


class WindowEnv(gymnasium.vector.VectorWrapper):
    """Worlds with `obs="bits"` and next_step autoreset that show the last steps of the episode, the latest at the end:
    of each the bits, and the code of the action before them. Steps before the episode, and its first action, are 0."""

    def __init__(self, envs: Any, length: int) -> None:
        super().__init__(envs)
        n, bits = envs.observation_space.shape
        self._frames = np.zeros((n, length, bits + CODES.shape[1]), np.uint8)
        self.single_observation_space = gymnasium.spaces.Box(0, 1, (self._frames[0].size,), np.uint8)
        self.observation_space = batch_space(self.single_observation_space, n)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        bits, info = self.env.reset(seed=seed, options=options)
        n = len(bits)
        self._over = np.zeros(n, np.bool_)
        return self._add(bits, np.zeros(n, np.int64), np.ones(n, np.bool_)), info

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        bits, rewards, terminated, truncated, info = self.env.step(actions)
        obs = self._add(bits, actions, self._over)  # where it was over, this step began an episode without an action
        self._over = terminated | truncated
        return obs, rewards, terminated, truncated, info

    def _add(self, bits: np.ndarray, actions: np.ndarray, begins: np.ndarray) -> np.ndarray:
        self._frames[begins] = 0
        latest = np.hstack([bits, CODES[actions] * ~begins[:, None]])
        self._frames = np.concatenate([self._frames[:, 1:], latest[:, None]], axis=1)
        return self._frames.reshape(len(bits), -1).copy()


# ------------------------------------------------------------------------------------------------------------- results
def read(path: Path) -> list[dict[str, Any]]:
    """The entries of a file of results; none if there is no file."""
    return json.loads(path.read_text())["entries"] if path.exists() else []


def merged(entries: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """With a new entry, in the place of one of the same case and seed; in the order of the table."""
    order = list(CASES)
    by_name = {(order.index(entry["case"]), entry["seed"]): entry for entry in [*entries, new]}
    return [by_name[key] for key in sorted(by_name)]


def scores(entries: list[dict[str, Any]]) -> str:
    """The table of the page: one row for each case, one column for each seed; nothing without results."""
    seeds, rows = sorted({entry["seed"] for entry in entries}), []
    for case in dict.fromkeys(entry["case"] for entry in entries):
        own = {entry["seed"]: entry for entry in entries if entry["case"] == case}
        label = CASES[case].label.format(window=next(iter(own.values()))["window"])
        episodes = " and ".join(f"{n:,}" for n in sorted({entry["episodes"] for entry in own.values()}))
        returns = [interval(own[s]["mean"], own[s]["interval"]) if s in own else None for s in seeds]
        rows.append([label, episodes, *returns])
    head = ["what the agent sees", "episodes", *(f"seed {seed}" for seed in seeds)]
    return Table(head, rows, align="l" + "r" * (len(head) - 1)).markdown() + "\n" if rows else ""


if __name__ == "__main__":
    sys.exit(run_script(Views, __doc__))
