"""`stockade evaluate`: the challenge's protocol for any policy, beside the published scores.

policy -> nine cells: B_line, Meander, Sleep x 30, 50, 100 steps, 1000 episodes each -> means, intervals, tails, total
"""

from __future__ import annotations

import json as jsonlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
import tyro
from tqdm import tqdm

import stockade
from stockade.baselines import BluePolicy
from stockade.cage2.memory import MemoryObservation
from stockade.errors import InputError
from stockade.learn.agents import load
from stockade.learn.leaderboard import CELLS, HORIZONS, PUBLISHED, REDS
from stockade.vector.native import NativeVectorEnv

#: Seeds from one cell to the next.
SEEDS_PER_CELL = 1_000_000
#: What of a random stream is not the episode's: its state, its block of words, and where in it we are.
_STREAM = ("mt", "words", "next", "blocks")


@dataclass(frozen=True)
class CellResult:
    """Returns against one attacker over one horizon.

    Attributes:
        mean, interval: with the half width of its 95% interval. median, q05: heavy tails show there.
    """

    red: str
    horizon: int
    episodes: int
    mean: float
    interval: float
    median: float
    q05: float
    returns: tuple[float, ...]

    @classmethod
    def of(cls, red: str, horizon: int, returns: np.ndarray) -> CellResult:
        """Sum up."""
        n = len(returns)
        interval = 1.96 * float(returns.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
        figures = float(returns.mean()), interval, float(np.median(returns)), float(np.quantile(returns, 0.05))
        return cls(red, horizon, n, *figures, tuple(np.round(returns, 1).tolist()))


def play(
    policy: BluePolicy, red: str, horizon: int, episodes: int, seed: int, rules: str = "current", chance: str = "fast"
) -> np.ndarray:
    """Returns (episodes,) of episodes with seeds seed, seed + 1, ..., all played at once."""
    generator = np.random.default_rng([seed, 1])
    with NativeVectorEnv(
        episodes, red, horizon, rules, chance, obs=policy.obs, autoreset_mode="disabled", copy=False
    ) as envs:
        obs, _ = envs.reset(seed=seed)
        returns = np.zeros(episodes)
        for _ in range(horizon):
            obs, rewards, _, _, _ = envs.step(policy.act(obs, generator))
            returns += rewards
    return returns


def play_one_by_one(
    policy: BluePolicy, env: gymnasium.Env[np.ndarray, Any], seeds: list[int | None], generator: np.random.Generator
) -> np.ndarray:
    """Returns of one episode a seed in a single environment; None goes on with its stream."""
    returns = []
    for seed in seeds:
        obs, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(policy.act(obs[None], generator)[0])
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
    return np.array(returns)


class OfficialOrder:
    """The cells in the order of the challenge's script, on one stream of random numbers from `random.seed(seed)`.

    The script makes a simulator a cell, which begins an episode when it is made, another when it is wrapped, and
    another before the first that is played; and one more after the last.
    """

    def __init__(self, policy: BluePolicy, episodes: int, seed: int, rules: str) -> None:
        """Nothing is played yet."""
        self._policy, self._episodes, self._rules = policy, episodes, rules
        self._generator = np.random.default_rng([seed, 1])
        self._seed: int | None = seed
        self._stream: dict[str, np.ndarray] = {}

    def cell(self, red: str, horizon: int) -> np.ndarray:
        """Play the next cell."""
        env = stockade.make(red, horizon, self._rules, "cyborg", obs=self._policy.obs, info=False)
        ledgers = env._batch.ledgers
        assert ledgers is not None
        env.reset(seed=self._seed if self._seed is not None else 0)
        if self._seed is None:  # go on with the stream of the cell before
            for name, value in self._stream.items():
                ledgers[name] = value
            env.reset()
        env.reset()
        self._seed = None
        returns = play_one_by_one(self._policy, env, [None] * self._episodes, self._generator)
        env.reset()
        self._stream = {name: ledgers[name].copy() for name in _STREAM}
        return returns


@dataclass(frozen=True)
class EvaluateConfig:
    """Play the challenge's protocol and print the result beside the published scores."""

    policy: tyro.conf.Positional[str]
    """sleep, random, react-remove, react-restore, greedy, a shipped policy, a run or a search: its name or folder, or
    the file of a policy in a search."""
    episodes: Annotated[int, tyro.conf.arg(aliases=["--n-eval-episodes"])] = 1000
    """Episodes of each cell."""
    rules: Literal["current", "leaderboard"] = "current"
    """Rule set."""
    chance: Literal["fast", "cyborg"] = "fast"
    """Where random numbers come from; with cyborg, seeds give the reference's episodes."""
    seed: int = 153
    """Cell k of B_line, Meander, Sleep x 30, 50, 100 has the seeds SEED + 1000000 k, and on from there."""
    official_order: bool = False
    """Play one episode after the other on one stream of chance, as the challenge's script does; needs --chance
    cyborg."""
    simulator: Literal["stockade", "cyborg"] = "stockade"
    """Where to play: here, or on the reference simulator if it is installed (slow: 400 steps a second)."""
    greedy: bool = False
    """A trained policy plays its likeliest action instead of drawing one."""
    last: bool = False
    """Take a run's last checkpoint instead of its best."""
    runs: Path = Path("runs")
    """Folder of all runs."""
    json: Path | None = None
    """Write the result, each single return included, to this file too."""

    def __post_init__(self) -> None:
        """Refuse what could not work, before any work."""
        if self.episodes < 1 or self.seed < 0:
            raise InputError("--episodes must be at least 1, and --seed 0 or more")
        if self.official_order and self.chance != "cyborg":
            raise InputError("--official-order needs --chance cyborg: the order matters to the reference's stream only")

    def run(self) -> int:
        """Play, print, write."""
        policy = load(self.policy, self.runs, greedy=self.greedy, last=self.last, rules=self.rules)
        results = evaluate(self, policy)
        print(table(self.policy, self.rules, results))
        more = self.more(policy)
        if self.json is not None:
            settings = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items() if k != "json"}
            content = {
                "stockade": stockade.__version__,
                **settings,
                "total": sum(r.mean for r in results),
                "total_interval": total_interval(results),
                "cells": [asdict(r) for r in results],
                **more,
            }
            self.json.write_text(jsonlib.dumps(content, indent=1) + "\n")
        return 0

    def more(self, policy: BluePolicy) -> dict[str, Any]:
        """What else there is to say of a policy: printed here, and returned for the JSON file."""
        return {}


def evaluate(config: EvaluateConfig, policy: BluePolicy) -> list[CellResult]:
    """The nine cells, in the order of CELLS."""
    player = _player(config, policy)
    order = [(red, horizon) for horizon in HORIZONS for red in REDS]  # the script's
    results = {}
    for red, horizon in tqdm(order, desc=f"evaluate {config.policy}", unit="cell", disable=None):
        results[red, horizon] = CellResult.of(red, horizon, player(red, horizon))
    return [results[cell] for cell in CELLS]


def _player(config: EvaluateConfig, policy: BluePolicy) -> Callable[[str, int], np.ndarray]:
    def seed_of(red: str, horizon: int) -> int:
        return config.seed + SEEDS_PER_CELL * CELLS.index((red, horizon))

    if config.simulator == "cyborg":
        from stockade.integrations.cyborg import CybORGEnv

        def on_the_reference(red: str, horizon: int) -> np.ndarray:
            env: gymnasium.Env[np.ndarray, Any] = CybORGEnv(red, horizon, rules=config.rules)
            if policy.obs == "memory":
                env = MemoryObservation(env, horizon)
            first = seed_of(red, horizon)
            seeds: list[int | None] = list(range(first, first + config.episodes))
            return play_one_by_one(policy, env, seeds, np.random.default_rng([first, 1]))

        return on_the_reference
    if config.official_order:
        return OfficialOrder(policy, config.episodes, config.seed, config.rules).cell
    return lambda red, horizon: play(
        policy, red, horizon, config.episodes, seed_of(red, horizon), config.rules, config.chance
    )


def total_interval(results: list[CellResult]) -> float:
    """Half width of the 95% interval of the total: cells are independent."""
    return math.sqrt(sum(r.interval**2 for r in results))


def table(name: str, rules: str, results: list[CellResult]) -> str:
    """Ours with intervals, medians and tails, then the published rows."""
    head = ["", "rules", *(f"{red} {horizon}" for red, horizon in CELLS), "total"]
    total = sum(r.mean for r in results)
    rows = [
        [name, rules, *(f"{r.mean:.2f}" for r in results), f"{total:.2f}"],
        ["  95% interval", "", *(f"± {r.interval:.2f}" for r in results), f"± {total_interval(results):.2f}"],
        ["  median", "", *(f"{r.median:.2f}" for r in results), ""],
        ["  5% quantile", "", *(f"{r.q05:.2f}" for r in results), ""],
    ]
    rows += [[row.name, row.rules, *(f"{m:.2f}" for m in row.means), f"{row.total:.2f}"] for row in PUBLISHED]
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [cell.ljust(w) if k < 2 else cell.rjust(w) for k, (cell, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
