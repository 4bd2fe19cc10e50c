"""`stockade evaluate`: the challenge's protocol for any policy, beside the published scores.

policy -> nine cells: B_line, Meander, Sleep x 30, 50, 100 steps, 1000 episodes each -> means, intervals, tails, total
With `--suite robustness` the cells of robustness.py follow.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import gymnasium
import numpy as np
import tyro

import stockade
from stockade.cage2.belief import BeliefObservation
from stockade.cage2.config import CHALLENGE_REWARD, RewardWeights, WorldConfig
from stockade.cage2.history import MemoryObservation
from stockade.errors import InputError
from stockade.files import json_ready
from stockade.learn.agents import Player, as_player, find_player
from stockade.learn.config import AT_LEAST_1, require, require_seed
from stockade.text import Shown, Table, fixed, interval, plural, progress_bar
from stockade.vector.base import BaseVectorEnv
from stockade.vector.native import NativeVectorEnv

if TYPE_CHECKING:
    from stockade.learn.robustness import Robustness

SCRIPTED = ("bline", "meander")  #: the challenge's attackers that do attack
REDS = (*SCRIPTED, "sleep")
HORIZONS = (30, 50, 100)
#: Cells of the protocol, in the order of tables and seeds.
CELLS = tuple((red, horizon) for red in REDS for horizon in HORIZONS)
_SCRIPT = sorted(CELLS, key=lambda cell: cell[1])  #: as the challenge's script plays them
SEEDS_PER_CELL = 1_000_000  #: seeds from one cell to the next
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
    # Where random numbers come from; with cyborg, seeds give the reference's episodes.
    chance: Literal["fast", "cyborg"] = "fast"
    seed: int = 153  # Cell k of B_line, Meander, Sleep x 30, 50, 100 has the seeds SEED + 1000000 k, and on from there.
    # Play one episode after the other on one random stream, as the challenge's script does; needs --chance cyborg.
    official_order: bool = False
    # Where to play: here, or on the reference simulator if it is installed (slow: 400 steps per second).
    simulator: Literal["stockade", "cyborg"] = "stockade"
    # The challenge's nine cells, or these and the robustness suite: other attackers, active staff, the other rules.
    suite: Literal["challenge", "robustness"] = "challenge"
    last: bool = False  # Use a run's last checkpoint instead of its best.
    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs")  # Folder of all runs.

    def __post_init__(self) -> None:
        require(self, ("episodes",), lambda v: v >= 1, AT_LEAST_1)
        require_seed(self)
        if self.official_order and self.chance != "cyborg":
            raise InputError("--official-order needs --chance cyborg: the order matters to the reference's stream only")
        if self.official_order and self.simulator == "cyborg":
            raise InputError("--official-order is played here, not with --simulator cyborg: leave one of them out")
        if self.suite == "robustness" and (self.official_order or self.simulator == "cyborg"):
            flag = "--official-order" if self.official_order else "--simulator cyborg"
            raise InputError(f"--suite robustness is played here, not with {flag}: neither the challenge's script nor "
                             "CybORG has its attackers")  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- playing
def play(
    policy: Any, red: Any, horizon: int, episodes: int, seed: int, rules: str = "current", chance: str = "fast",
    reward: RewardWeights = CHALLENGE_REWARD, simulator: str = "stockade",
) -> np.ndarray:  # fmt: skip
    """Blue's returns (episodes,) with the seeds seed, seed + 1, ...: all at once if policy and simulator can. `red` is
    a name, or a policy that attacks."""
    player = as_player(policy)
    world = WorldConfig(
        red if isinstance(red, str) else "player", horizon, rules, chance, obs=player.obs, reward=reward
    )
    if simulator == "cyborg":
        envs = reference_envs(world)
    else:
        n = episodes if player.parallel else 1
        envs = NativeVectorEnv(n, autoreset_mode="disabled", copy=False, **{**vars(world), "red": red})
    with envs:
        seeds = range(seed, seed + episodes, envs.num_envs)
        return _play_in(envs, player, horizon, seeds, np.random.default_rng([seed, 1]))


def reference_envs(world: WorldConfig) -> BaseVectorEnv:
    """The reference simulator, if it is installed, as a vector environment of one."""
    from stockade.integrations.cyborg import CybORGEnv

    try:
        env: gymnasium.Env[np.ndarray, Any] = CybORGEnv(world.red, world.horizon, world.rules, green=str(world.green))
    except (ImportError, ValueError) as error:
        raise InputError(f"--simulator cyborg: {error}") from error
    if world.view.kind == "memory":
        env = MemoryObservation(env, world.horizon)
    elif world.view.kind == "belief":
        env = BeliefObservation(env, world.obs)
    return stockade.make_vec(1, "serial", env=lambda: env, autoreset_mode="disabled")


def _play_in(
    envs: BaseVectorEnv, player: Player, horizon: int, seeds: Iterable[int | None], generator: np.random.Generator
) -> np.ndarray:
    """Returns of one episode per environment for each seed, one after the other; None continues the random streams."""
    returns = []
    for seed in seeds:
        obs, _ = envs.reset(seed=seed)
        returns.append(np.zeros(envs.num_envs))
        player.begin(envs.num_envs)
        for _ in range(horizon):
            obs, rewards, _, _, _ = envs.step(player.allowed(player.act(obs, generator), obs, envs))
            returns[-1] += rewards
        player.end()
    return np.concatenate(returns)


def _official_order(player: Player, config: EvaluateConfig) -> Iterator[np.ndarray]:
    """Returns of cell after cell in the order of the challenge's script, on one stream of random numbers.

    The script makes one simulator per cell, which begins an episode when it is made, another when it is wrapped, and
    another before the first that is played; and one more after the last.
    """
    stream: dict[str, np.ndarray] = {}
    generator = np.random.default_rng([config.seed, 1])
    for red, horizon in _SCRIPT:
        with NativeVectorEnv(1, red, horizon, config.rules, "cyborg", obs=player.obs, copy=False) as envs:
            ledgers = envs._batch.ledgers
            assert ledgers is not None
            envs.reset(seed=config.seed)
            if stream:  # continue that of the cell before
                for name, value in stream.items():
                    ledgers[name] = value
                envs.reset()
            envs.reset()
            yield _play_in(envs, player, horizon, [None] * config.episodes, generator)
            envs.reset()
            stream = {name: ledgers[name].copy() for name in _STREAM}


# -------------------------------------------------------------------------------------------------------------- results
def mean_interval(sample: np.ndarray) -> tuple[float, float]:
    """Mean, and half width of its 95% interval; NaN where there is too little to say."""
    n = len(sample)
    half_width = 1.96 * float(sample.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return float(sample.mean()) if n else math.nan, half_width


@dataclass(frozen=True)
class CellResult:
    """Returns against one attacker over one horizon."""

    red: str
    horizon: int
    episodes: int
    mean: float
    interval: float  #: half width of the mean's 95% interval, NaN for a single episode
    median: float
    q05: float  #: heavy tails show here
    returns: tuple[float, ...]

    @classmethod
    def of(cls, red: str, horizon: int, returns: np.ndarray) -> "CellResult":
        figures = *mean_interval(returns), float(np.median(returns)), float(np.quantile(returns, 0.05))
        return cls(red, horizon, len(returns), *figures, tuple(np.round(returns, 1).tolist()))


def total_interval(cells: Sequence[CellResult]) -> float:
    """Half width of the 95% interval of a sum of cells: they are independent."""
    return math.sqrt(sum(cell.interval**2 for cell in cells))


class Section(NamedTuple):
    """Something else that was measured of a policy: its table, and its entries in `to_dict()`."""

    table: Table
    content: dict[str, Any]


@dataclass(frozen=True, repr=False)
class EvaluateResult(Shown):
    """The challenge's protocol, played by one policy."""

    policy: str
    style: str  #: `greedy`, `sampled`, or `its own choices`
    config: EvaluateConfig
    cells: tuple[CellResult, ...]  #: nine, in the order of CELLS
    sections: tuple[Section, ...] = ()  #: what else was measured
    robustness: "Robustness | None" = None  #: with `suite="robustness"`

    @property
    def total(self) -> float:
        """Sum of the cells' means: the challenge's score."""
        return sum(cell.mean for cell in self.cells)

    @property
    def interval(self) -> float:
        """Half width of the 95% interval of the total."""
        return total_interval(self.cells)

    def __repr__(self) -> str:
        score = interval(self.total, self.interval)
        return f"<EvaluateResult {self.policy}, rules {self.config.rules}, {self.style}: total {score}>"

    def tables(self) -> list[Table]:
        """Our cells; the published scores of the same rules beside ours; what else was measured; the suite's cells."""
        rules, episodes = self.config.rules, plural(self.config.episodes, "episode")
        rows = [[c.red, c.horizon, interval(c.mean, c.interval), fixed(c.median), fixed(c.q05)] for c in self.cells]
        rows.append(["total", None, interval(self.total, self.interval), None, None])
        header = ["attacker", "steps", "mean ± 95%", "median", "5% quantile"]
        ours = Table(header, rows, f"{self.policy}: rules {rules}, {self.style}, {episodes} per cell")
        title = f"Beside published scores under the same rules ({rules}); sleep: sum of its three cells"
        if rules != "leaderboard":
            title += "\nThe challenge's own leader board was played under other rules: see rules leaderboard."
        means = tuple(cell.mean for cell in self.cells)
        compared = [(self.policy, means), *((row.name, row.means) for row in PUBLISHED if row.rules == rules)]
        header = ["mean", *(f"{red} {horizon}" for red, horizon in CELLS[:6]), "sleep", "total"]
        others = Table(header, [[n, *map(fixed, (*m[:6], sum(m[6:]), sum(m)))] for n, m in compared], title)
        suite = self.robustness.tables() if self.robustness else []
        return [ours, others, *(section.table for section in self.sections), *suite]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: settings, total, cells with every single return, and what else was measured."""
        content: dict[str, Any] = {
            "stockade": stockade.__version__, **asdict(self.config), "policy": self.policy, "style": self.style,
            "total": self.total, "total_interval": self.interval, "cells": [asdict(cell) for cell in self.cells],
        }  # fmt: skip
        for section in self.sections:
            content |= section.content
        if self.robustness is not None:
            content["robustness"] = self.robustness.to_dict()
        return dict(json_ready(content))


def evaluate(
    config: EvaluateConfig, policy: Any = None, *, progress: bool = True,
    extras: Sequence[Callable[[Player, EvaluateConfig], Section | None]] = (),
) -> EvaluateResult:  # fmt: skip
    """Play a suite with a policy, by default the one that `config.policy` names; the extras add sections."""
    from stockade.learn.robustness import SUITE, measure, require_learned  # which plays cells as this module does

    if policy is None:
        player = find_player(config.policy, config.runs, greedy=config.greedy, last=config.last, rules=config.rules)
    else:
        player = as_player(policy, None, config.greedy)
    c, official, cells = config, _official_order(player, config), {}
    if config.suite == "robustness":
        require_learned(config.rules)
    total, robustness = len(SUITE if c.suite == "robustness" else CELLS), None
    with progress_bar(progress, total=total, desc=f"evaluate {player.name}", unit="cell") as bar:
        for red, horizon in _SCRIPT:
            seed = config.seed + SEEDS_PER_CELL * CELLS.index((red, horizon))
            if config.official_order:
                returns = next(official)
            else:
                returns = play(player, red, horizon, c.episodes, seed, c.rules, c.chance, simulator=c.simulator)
            cells[red, horizon] = CellResult.of(red, horizon, returns)
            bar.update()
        ours = tuple(cells[cell] for cell in CELLS)
        if config.suite == "robustness":
            robustness = measure(player, config, ours, bar.update)
    sections = tuple(filter(None, (extra(player, config) for extra in extras)))
    return EvaluateResult(player.name, player.style, config, ours, sections, robustness)


# ---------------------------------------------------------------------------------------- scores to print beside ours
class Row(NamedTuple):
    """Who, under which rule set, and the mean returns of CELLS over 1000 episodes each."""

    name: str
    rules: str
    means: tuple[float, ...]

    @property
    def total(self) -> float:
        """Sum over the cells: the challenge's score."""
        return sum(self.means)


_ASLEEP = (0.0, 0.0, 0.0)
#: The leader board of CAGE Challenge 2, and its winner replayed.
PUBLISHED = (
    Row("CardiffUni, published", "leaderboard", (-3.47, -6.41, -13.76, -5.64, -8.69, -16.6, *_ASLEEP)),
    Row("CardiffUni, replayed", "leaderboard", (-3.50, -6.27, -13.20, -5.54, -8.72, -16.37, *_ASLEEP)),
    Row("CardiffUni, replayed", "current", (-5.36, -12.73, -37.23, -5.54, -8.72, -16.37, *_ASLEEP)),
    Row("Keeping it RL, ensemble", "leaderboard", (-3.48, -5.85, -11.39, -6.47, -10.33, -19.38, *_ASLEEP)),
    Row("Mindrake", "leaderboard", (-3.53, -6.2, -12.78, -6.76, -10.13, -17.65, *_ASLEEP)),
    Row("React-Restore, published", "leaderboard",
        (-58.83, -93.05, -184.34, -44.29, -85.75, -192.63, -27.0, -46.0, -92.0)),
    Row("random, published", "leaderboard", (-154.06, -347.1, -726.92, -33.43, -171.49, -566.41, -2.8, -4.45, -8.94)),
    Row("sleep, published", "leaderboard", (-218.65, -480.17, -1134.03, -39.31, -267.6, -972.43, *_ASLEEP)),
)  # fmt: skip
