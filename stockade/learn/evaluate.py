"""`stockade evaluate`: the challenge's protocol for any policy, beside the published scores.

policy -> nine cells: B_line, Meander, Sleep x 30, 50, 100 steps, 1000 episodes each -> means, intervals, tails, total
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium
import numpy as np
import tyro

import stockade
from stockade.cage2.config import CHALLENGE_REWARD, RewardWeights
from stockade.cage2.history import MemoryObservation
from stockade.errors import InputError
from stockade.learn.config import AT_LEAST_1, require
from stockade.learn.files import check_runs
from stockade.learn.leaderboard import CELLS, HORIZONS, REDS
from stockade.learn.players import Player, as_player, find_player
from stockade.learn.results import CellResult, EvaluateResult, Section, progress_bar
from stockade.vector.native import NativeVectorEnv

#: Seeds from one cell to the next.
SEEDS_PER_CELL = 1_000_000
#: What of a random stream is not the episode's: its state, its block of words, and the position in it.
_STREAM = ("mt", "words", "next", "blocks")


@dataclass(frozen=True)
class EvaluateConfig:
    """Play the challenge's protocol and print the result beside the published scores of the same rules."""

    # A baseline (sleep, random, react-remove, react-restore, greedy), a shipped policy (champion), a run or a
    # search (its name or folder), the file of a policy, my_module:MyPolicy, or model.zip of Stable-Baselines3.
    policy: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    episodes: Annotated[int, tyro.conf.arg(aliases=["--n-eval-episodes"])] = 1000  # Episodes of each cell.
    rules: Literal["current", "leaderboard"] = "current"  # Rule set.
    greedy: bool = True  # A trained policy plays its likeliest action; --no-greedy samples.
    chance: Literal["fast", "cyborg"] = "fast"
    """Where random numbers come from; with cyborg, seeds give the reference's episodes."""
    seed: int = 153  # Cell k of B_line, Meander, Sleep x 30, 50, 100 has the seeds SEED + 1000000 k, and on from there.
    official_order: bool = False
    """Play one episode after the other on one random stream, as the challenge's script does; needs --chance cyborg."""
    simulator: Literal["stockade", "cyborg"] = "stockade"
    """Where to play: here, or on the reference simulator if it is installed (slow: 400 steps per second)."""
    last: bool = False  # Use a run's last checkpoint instead of its best.
    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs")  # Folder of all runs.

    def __post_init__(self) -> None:
        require(self, ("episodes",), lambda v: v >= 1, AT_LEAST_1)
        require(self, ("seed",), lambda v: v >= 0, "must be 0 or more")
        check_runs(self.runs)
        if self.official_order and self.chance != "cyborg":
            raise InputError("--official-order needs --chance cyborg: the order matters to the reference's stream only")


def play(
    policy: Any, red: str, horizon: int, episodes: int, seed: int, rules: str = "current", chance: str = "fast",
    reward: RewardWeights = CHALLENGE_REWARD,
) -> np.ndarray:  # fmt: skip
    """Returns (episodes,) of episodes with the seeds seed, seed + 1, ...: all at once if the policy can."""
    player, generator = as_player(policy), np.random.default_rng([seed, 1])
    if not player.parallel:
        env = stockade.make(red, horizon, rules, chance, obs=player.obs, reward=reward, info=False)
        return play_one_by_one(player, env, range(seed, seed + episodes), generator)
    with NativeVectorEnv(
        episodes, red, horizon, rules, chance, obs=player.obs, reward=reward, autoreset_mode="disabled", copy=False
    ) as envs:
        obs, _ = envs.reset(seed=seed)
        returns = np.zeros(episodes)
        player.begin(episodes)
        for _ in range(horizon):
            actions = player.allowed(player.act(obs, generator), obs, envs)
            obs, rewards, _, _, _ = envs.step(actions)
            returns += rewards
        player.end()
    return returns


def play_one_by_one(
    policy: Any, env: gymnasium.Env[np.ndarray, Any], seeds: Sequence[int | None], generator: np.random.Generator
) -> np.ndarray:
    """Returns of one episode per seed in a single environment; None continues its random stream."""
    returns, player = [], as_player(policy)
    for seed in seeds:
        obs, _ = env.reset(seed=seed)
        total, over = 0.0, False
        player.begin(1)
        while not over:
            actions = player.allowed(player.act(obs[None], generator), obs[None], env)
            obs, reward, terminated, truncated, _ = env.step(actions[0])
            total += float(reward)
            over = terminated or truncated
        player.end()
        returns.append(total)
    return np.array(returns)


def official_order(player: Player, config: EvaluateConfig) -> Callable[[str, int], np.ndarray]:
    """The cells in the order of the challenge's script, on one stream of random numbers from `random.seed(seed)`.

    The script makes one simulator per cell, which begins an episode when it is made, another when it is wrapped, and
    another before the first that is played; and one more after the last.
    """
    stream: dict[str, np.ndarray] = {}
    generator = np.random.default_rng([config.seed, 1])

    def play_next(red: str, horizon: int) -> np.ndarray:
        env = stockade.make(red, horizon, config.rules, "cyborg", obs=player.obs, info=False)
        ledgers = env._batch.ledgers
        assert ledgers is not None
        env.reset(seed=config.seed)
        if stream:  # continue that of the cell before
            for name, value in stream.items():
                ledgers[name] = value
            env.reset()
        env.reset()
        returns = play_one_by_one(player, env, [None] * config.episodes, generator)
        env.reset()
        stream.update((name, ledgers[name].copy()) for name in _STREAM)
        return returns

    return play_next


#: What else there is to say of a policy: asked after the nine cells; None if nothing.
Extra = Callable[[Player, EvaluateConfig], Section | None]


def evaluate(
    config: EvaluateConfig, policy: Any = None, *, extras: Sequence[Extra] = (), progress: bool = True
) -> EvaluateResult:
    """Play the nine cells with a policy of any form (players.py), by default the one that `config.policy` names."""
    player = (
        as_player(policy, None, config.greedy)
        if policy is not None
        else find_player(config.policy, config.runs, greedy=config.greedy, last=config.last, rules=config.rules)
    )
    play_cell = _cell_player(config, player)
    order = [(red, horizon) for horizon in HORIZONS for red in REDS]  # the script's
    cells = {}
    with progress_bar(progress, total=len(order), desc=f"evaluate {player.name}", unit="cell") as bar:
        for red, horizon in order:
            cells[red, horizon] = CellResult.of(red, horizon, play_cell(red, horizon))
            bar.update()
    sections = tuple(filter(None, (extra(player, config) for extra in extras)))
    return EvaluateResult(player.name, player.style, config, tuple(cells[cell] for cell in CELLS), sections)


def _cell_player(config: EvaluateConfig, player: Player) -> Callable[[str, int], np.ndarray]:
    """(red, horizon) -> returns (episodes,)."""

    def play_cell(red: str, horizon: int) -> np.ndarray:
        first = config.seed + SEEDS_PER_CELL * CELLS.index((red, horizon))
        if config.simulator == "stockade":
            return play(player, red, horizon, config.episodes, first, config.rules, config.chance)
        from stockade.integrations.cyborg import CybORGEnv

        try:
            env: gymnasium.Env[np.ndarray, Any] = CybORGEnv(red, horizon, rules=config.rules)
        except (ImportError, ValueError) as error:
            raise InputError(f"--simulator cyborg: {error}") from error
        env = MemoryObservation(env, horizon) if player.obs == "memory" else env
        return play_one_by_one(player, env, range(first, first + config.episodes), np.random.default_rng([first, 1]))

    official = config.official_order and config.simulator == "stockade"
    return official_order(player, config) if official else play_cell
