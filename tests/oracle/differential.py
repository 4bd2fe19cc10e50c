"""Comparing the kernel with the reference model, step by step: one case, or many worlds at once.

    actions -> kernel -> rows of facts  \\
                                          equal? -> the first row that is not, as a Case that anyone can replay
    actions -> model  -> rows of facts  /

A `Case` holds all that an episode depends on. `minimise` makes a long one short.
"""

import json
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np

import stockade

from .facts import ROW, ROW_AFTER_RESET, explain, kernel_rows, model_row
from .model import GREEN, RULES, ReferenceModel
from .network import N_ACTIONS, SLEEP, action_name
from .played import PlayedKernel, PlayedModel, joint, joint_name
from .policies import POLICIES, sleep
from .red import RED_AGENTS
from .red_policies import RED_POLICIES

MAX_HORIZON = 500
PLAYER = "player"
BLUE_POLICIES = POLICIES | {"sleep": sleep}
Actions = tuple[int, ...]


@dataclass(frozen=True, order=True)
class Config:
    """Which world. With `red="player"` actions are joint ones, see played.py."""

    red: str
    rules: str = "current"
    green: str = "sleep"

    def model(self, horizon: int = MAX_HORIZON) -> ReferenceModel:
        if self.red == PLAYER:
            return PlayedModel(self.rules, self.green, horizon)
        return ReferenceModel(red=self.red, rules=self.rules, green=self.green)

    def kernel(self, n: int, horizon: int, autoreset_mode: str) -> Any:
        if self.red == PLAYER:
            return PlayedKernel(self.rules, self.green, horizon, n, autoreset_mode == "next_step")
        return stockade.make_vec(
            n,
            backend="native",
            red=self.red,
            rules=self.rules,
            green=self.green,
            horizon=horizon,
            chance="cyborg",
            autoreset_mode=autoreset_mode,
        )


CONFIGS = tuple(Config(red, rules, green) for red, rules, green in product(RED_AGENTS, RULES, GREEN))
PLAYED = tuple(Config(PLAYER, rules, green) for rules, green in product(RULES, GREEN))


@dataclass(frozen=True)
class Case:
    """Episodes of one world: the first after `reset(seed)`, the others after `reset()`."""

    config: Config
    seed: int
    episodes: tuple[Actions, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Case":
        fields = json.loads(text)
        episodes = tuple(tuple(actions) for actions in fields["episodes"])
        return cls(Config(**fields["config"]), fields["seed"], episodes)


@dataclass(frozen=True)
class Mismatch:
    """The first difference of a case, which ends with the step in question."""

    case: Case
    differences: str

    def __str__(self) -> str:
        config, last = self.case.config, self.case.episodes[-1]
        name = joint_name if config.red == PLAYER else action_name
        where = f"step {len(last) - 1}, {name(last[-1])}," if last else "reset"
        lines = [f"After the {where} of episode {len(self.case.episodes) - 1}:", self.differences]
        lines += [f"red={config.red!r} rules={config.rules!r} green={config.green!r} seed={self.case.seed}"]
        lines += [f"episode {i}: actions {list(actions)}" for i, actions in enumerate(self.case.episodes)]
        return "\n".join([*lines, f"python -m tests.oracle.differential_run --replay '{self.case.to_json()}'"])


# ---------------------------------------------------------------------- one world


@cache
def _single(config: Config) -> Any:
    return config.kernel(1, MAX_HORIZON, "disabled")


class Duel:
    """The kernel (a vector of one world) and the model, side by side through the episodes of one case."""

    def __init__(self, config: Config, seed: int) -> None:
        self.config, self.seed = config, seed
        self.model, self._envs = config.model(), _single(config)
        self._episodes: list[list[int]] = []
        self.observation: list[int] = []

    def reset(self) -> Mismatch | None:
        """Starts the first episode with the seed, the next ones without. Returns a difference, if there is one."""
        seed = None if self._episodes else self.seed
        self._episodes.append([])
        self.observation = self.model.reset(seed)
        observation, _ = self._envs.reset(seed=seed)
        return self._compare(observation, np.zeros(1), 0.0, ROW_AFTER_RESET)

    def step(self, action: int) -> Mismatch | None:
        """One step of both. Returns a difference, if there is one."""
        self._episodes[-1].append(action)
        self.observation, reward = self.model.step(action)
        observation, rewards, terminated, truncated, _ = self._envs.step(np.array([action]))
        at_horizon = len(self._episodes[-1]) == MAX_HORIZON
        if terminated[0] or truncated[0] != at_horizon:
            ends = f"terminated={terminated[0]} truncated={truncated[0]}"
            return Mismatch(self.case, f"{ends} after {len(self._episodes[-1])} of {MAX_HORIZON} steps")
        return self._compare(observation, rewards, reward, ROW)

    @property
    def case(self) -> Case:
        """What was played so far."""
        return Case(self.config, self.seed, tuple(map(tuple, self._episodes)))

    def _compare(self, observation: np.ndarray, rewards: np.ndarray, reward: float, columns: int) -> Mismatch | None:
        got = kernel_rows(self._envs, observation, rewards)[0, :columns].tolist()
        expected = model_row(self.model, self.observation, reward)[:columns]
        return None if expected == got else Mismatch(self.case, explain(expected, got))


def first_mismatch(case: Case) -> Mismatch | None:
    """Plays a case and stops at the first difference."""
    duel = Duel(case.config, case.seed)
    for actions in case.episodes:
        mismatch = duel.reset()
        for action in actions:
            mismatch = mismatch or duel.step(action)
        if mismatch:
            return mismatch
    return None


def minimise(mismatch: Mismatch) -> Mismatch:
    """A shorter case that differs as well: fewer episodes, fewer steps, and Sleep instead of whatever is not needed."""
    best = mismatch
    for episode in mismatch.case.episodes[:-1]:  # is one episode enough?
        best = first_mismatch(replace(mismatch.case, episodes=(episode,))) or best
    for i in range(len(best.case.episodes)):
        best = _simplify(best, i, lambda chunk: ())
        best = _simplify(best, i, lambda chunk: (SLEEP,) * len(chunk))
        best = _simplify(best, i, lambda chunk: tuple(action - action % N_ACTIONS for action in chunk))  # blue alone
    return best


def _simplify(mismatch: Mismatch, i: int, simpler: Callable[[Actions], Actions]) -> Mismatch:
    """Puts something simpler in the place of parts of episode i, large parts first, wherever the difference stays."""
    best = mismatch
    size = len(best.case.episodes[i])
    while size:
        start = 0
        while i < len(best.case.episodes) and start < len(actions := best.case.episodes[i]):
            chunk = actions[start : start + size]
            changed = (*actions[:start], *simpler(chunk), *actions[start + size :])
            episodes = (*best.case.episodes[:i], changed, *best.case.episodes[i + 1 :])
            found = first_mismatch(replace(best.case, episodes=episodes)) if changed != actions else None
            if found is None or len(found.case.episodes[-1]) == len(actions):
                start += size
            best = found or best
        size //= 2
    return best


# ---------------------------------------------------------------------- many worlds


@dataclass(frozen=True)
class Batch:
    """Many worlds of one configuration under one policy: what to play."""

    config: Config
    policy: str
    horizon: int
    worlds: int
    episodes: int
    seed: int  # of the worlds' seeds and the policy's choices
    red_policy: str = ""  # where red is played

    @property
    def steps(self) -> int:
        return self.worlds * self.episodes * self.horizon


@dataclass(frozen=True)
class Result:
    """What came out of a batch."""

    batch: Batch
    mismatches: tuple[Mismatch, ...]
    restarted_services: int  # how often the rare path was taken on which Remove hits a decoy


def compare_batch(batch: Batch) -> Result:
    """Plays a batch in the kernel, with automatic resets, then world by world in the model."""
    generator = np.random.default_rng(batch.seed)
    seeds = generator.integers(2**32, size=batch.worlds).tolist()
    actions, rows = _play_kernel(batch, seeds, generator)
    mismatches, restarted = [], 0
    for world, seed in enumerate(seeds):
        model = batch.config.model(batch.horizon)
        expected = _play_model(model, seed, actions[:, :, world])
        restarted += model.restarted_services
        unequal = expected != rows[:, :, world]
        unequal[:, 0, ROW_AFTER_RESET:] = False  # nothing happened yet
        if unequal.any():
            episode, t = np.argwhere(unequal.any(axis=2))[0].tolist()
            played = [*actions[:episode, :, world].tolist(), actions[episode, :t, world].tolist()]
            case = Case(batch.config, seed, tuple(map(tuple, played)))
            differences = explain(expected[episode, t].tolist(), rows[episode, t, world].tolist())
            mismatches.append(Mismatch(case, differences))
    return Result(batch, tuple(mismatches), restarted)


def _play_kernel(batch: Batch, seeds: list[int], generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Actions (episodes, horizon, worlds) and rows (episodes, 1 + horizon, worlds, ROW)."""
    policy, n, horizon = BLUE_POLICIES[batch.policy], batch.worlds, batch.horizon
    envs = batch.config.kernel(n, horizon, "next_step")
    actions = np.empty((batch.episodes, horizon, n), np.int64)
    rows = np.empty((batch.episodes, 1 + horizon, n, ROW), np.int64)
    observation, _ = envs.reset(seed=seeds)
    for episode in range(batch.episodes):
        if episode:  # the step after the last one only resets
            observation, _, _, _, _ = envs.step(np.zeros(n, np.int64))
        rows[episode, 0] = kernel_rows(envs, observation, np.zeros(n))
        for t in range(horizon):
            actions[episode, t] = policy(generator, observation, t)
            if batch.red_policy:
                red = RED_POLICIES[batch.red_policy](generator, envs.view(), t)
                actions[episode, t] = joint(actions[episode, t], red)
            observation, reward, _, truncated, _ = envs.step(actions[episode, t])
            rows[episode, 1 + t] = kernel_rows(envs, observation, reward)
            assert truncated.all() == truncated.any() == (t == horizon - 1), f"truncated {truncated} at step {t}"
    envs.close()
    return actions, rows


def _play_model(model: ReferenceModel, seed: int, actions: np.ndarray) -> np.ndarray:
    """The rows that the model gives for the actions (episodes, horizon) of one world."""
    rows = array("q")
    for episode, moves in enumerate(actions.tolist()):
        rows.extend(model_row(model, model.reset(None if episode else seed), 0.0))
        for action in moves:
            rows.extend(model_row(model, *model.step(action)))
    return np.frombuffer(rows, np.int64).reshape(len(actions), 1 + actions.shape[1], ROW)
