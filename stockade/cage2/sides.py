"""Worlds that two sides play: the actions of one side -> the other side's policy inside -> a step; or those of both.

`side="blue"` and `side="red"` show one side's observations and take its actions; with `side="both"` observations and
actions are dictionaries with the keys `blue` and `red`. Red's reward is minus blue's.
"""

import pkgutil
from typing import Any

import numpy as np
from gymnasium import spaces

from stockade.cage2.actions import ACTION_MASK, N_ACTIONS, N_RED_ACTIONS, check_action
from stockade.cage2.batch import Batch
from stockade.cage2.config import WorldConfig
from stockade.cage2.opponent import Opponent
from stockade.cage2.red_view import RED_OBS_SIZE
from stockade.cage2.seeds import Seeds
from stockade.cage2.variants import Red, is_learned
from stockade.errors import InvalidActionError, SettingError, did_you_mean

SIDES = ("blue", "red", "both")


class _NotNamed(str):
    """The attacker where nobody named one: with side="red" or "both" a named one is refused."""


DEFAULT_RED = _NotNamed("bline")
Tree = Any  #: an array, or a dictionary of those of `blue` and `red`
#: What finds a learned attacker by its name and the rule set; imported when one is named, since it needs Torch.
_LOADER = "stockade.learn.agents:load_red"


def seats(side: str, red: Any, blue: Any, rules: str = "current") -> tuple[str, Opponent | None]:
    """Who plays where: the name of red for WorldConfig, and the policy inside, if there is one."""
    if side not in SIDES:
        known = ", ".join(map(repr, SIDES))
        raise SettingError("side", side, f"is unknown; take one of {known}.{did_you_mean(str(side), SIDES)}")
    if side == "blue":
        if blue is not None:
            raise SettingError("blue", blue, "is for side='red': with side='blue' your own actions are blue's")
        if is_learned(red):
            red = pkgutil.resolve_name(_LOADER)(red, rules)
        if isinstance(red, str | Red):
            return str(red), None
        return "player", Opponent("red", red)
    if red is not DEFAULT_RED and red != "player":
        raise SettingError("red", red, f"is for side='blue': with side={side!r} red's actions are yours")
    if side == "both":
        if blue is not None:
            raise SettingError("blue", blue, "is for side='red': with side='both' blue's actions are yours too")
        return "player", None
    if blue is None or isinstance(blue, str):
        problem = "is no policy; with side='red' take one that defends, such as stockade.load('champion')"
        raise SettingError("blue", blue, problem)
    return "player", Opponent("blue", blue)


def make_batch(config: WorldConfig, n: int, threads: int | None, side: str, opponent: Opponent | None) -> Batch:
    """Worlds as `side` plays them."""
    if config.red != "player":
        return Batch(config, n, threads)
    return SidedBatch(config, n, threads, side, opponent)


def spaces_of(batch: Batch, dtype: Any) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Observation and action space of one world; `dtype` None is for what the kernels write."""
    blue = spaces.Box(0, 1, (batch.obs_size,), dtype or batch.obs_dtype)
    red = spaces.Box(0, 1, (RED_OBS_SIZE,), dtype or np.uint8)
    blue_actions, red_actions = spaces.Discrete(N_ACTIONS), spaces.Discrete(N_RED_ACTIONS)  # new: each has its own seed
    if not isinstance(batch, SidedBatch) or batch.side == "blue":
        return blue, blue_actions
    if batch.side == "red":
        return red, red_actions
    return spaces.Dict(blue=blue, red=red), spaces.Dict(blue=blue_actions, red=red_actions)


def rows_for(batch: Batch) -> Tree:
    """(n, size) for the kernels to write observations into."""
    blue = np.zeros((batch.n, batch.obs_size), batch.obs_dtype)
    if not isinstance(batch, SidedBatch) or batch.side == "blue":
        return blue
    red = np.zeros((batch.n, RED_OBS_SIZE), np.uint8)
    return red if batch.side == "red" else {"blue": blue, "red": red}


def single(rows: Tree) -> Tree:
    """The first row."""
    return {side: one[0] for side, one in rows.items()} if isinstance(rows, dict) else rows[0]


class SidedBatch(Batch):
    """Worlds with `red="player"`, with the methods of `Batch` for what one side, or both, see and do."""

    def __init__(
        self, config: WorldConfig, n: int, threads: int | None, side: str, opponent: Opponent | None = None
    ) -> None:
        """`opponent` plays the other side; with `side="both"` there is none."""
        self.side, self._opponent = side, opponent
        self._hidden: Any = None  # what the opponent sees
        super().__init__(config, n, threads)
        size, dtype = (self.obs_size, self.obs_dtype) if side == "red" else (RED_OBS_SIZE, np.uint8)
        self._hidden = None if side == "both" else np.zeros((self.n, size), dtype)

    def part(self, i: int) -> "SidedBatch":
        part = super().part(i)
        assert isinstance(part, SidedBatch)
        part._hidden = None if self._hidden is None else self._hidden[i : i + 1]
        return part

    def __getstate__(self) -> dict[str, Any]:
        own = {"side": self.side, "_opponent": self._opponent, "_hidden": self._hidden}
        return {**super().__getstate__(), **own}

    def reset(self, obs: Tree, seeds: Seeds, chosen: np.ndarray | None = None) -> None:
        blue, red = self._views(obs)
        super().reset(blue, seeds, chosen)
        self.observe_red(red, False)

    def step(
        self,
        actions: Tree,
        obs: Tree,
        rewards: np.ndarray,
        over: np.ndarray,
        autoreset: bool,
        rows: np.ndarray | None = None,
        red_actions: np.ndarray | None = None,
    ) -> None:
        """As of Batch, with the actions of `side`: the other side's policy chooses its own before anything happens."""
        assert red_actions is None
        mine: Any = actions
        other: Any = None
        if self._opponent is not None:
            other = self._opponent.act(self._hidden, rows, self.red_mask, self._generator)
        if self.side == "both":
            mine, other = actions["blue"], actions["red"]
        blue_actions, red_actions = (other, mine) if self.side == "red" else (mine, other)
        blue, red = self._views(obs)
        super().step(blue_actions, blue, rewards, over, autoreset, rows, red_actions)
        self.observe_red(red, True, rows)
        if self.side == "red":
            where = slice(None) if rows is None else rows
            rewards[where] = 0.0 - rewards[where]  # no minus zero

    def observe(self, obs: Tree) -> None:
        blue, red = self._views(obs)
        super().observe(blue)
        self.observe_red(red, False)

    def masks(self) -> Tree:
        """(n, actions) int8: blue's static mask of what can succeed at all, red's of what it can try now."""
        if self.side == "red":
            return self.red_mask()
        blue = np.tile(ACTION_MASK, (self.n, 1))
        return blue if self.side == "blue" else {"blue": blue, "red": self.red_mask()}

    def check(self, action: Any) -> Tree:
        """One action of `side` as rows of a batch of one, if it is one."""
        if self.side == "red":
            return np.array([check_action(action, N_RED_ACTIONS, "red")])
        if self.side == "blue":
            return np.array([check_action(action)])
        if not isinstance(action, dict) or set(action) != {"blue", "red"}:
            raise InvalidActionError(f"action {action!r} must be a dictionary with the keys 'blue' and 'red'")
        blue, red = check_action(action["blue"]), check_action(action["red"], N_RED_ACTIONS, "red")
        return {"blue": np.array([blue]), "red": np.array([red])}

    def _views(self, obs: Tree) -> tuple[np.ndarray, np.ndarray]:
        """Where what blue and what red sees is written."""
        if self.side == "both":
            return obs["blue"], obs["red"]
        return (self._hidden, obs) if self.side == "red" else (obs, self._hidden)

    def _generator(self) -> np.random.Generator:
        """Chance for the policy inside: a function of the worlds' state, so that seeds and snapshots repeat it."""
        mixed = self.worlds["stream"] * np.uint64(2 * 0x9E3779B9 + 1) + self.worlds["time"].astype(np.uint64)
        if self.ledgers is not None:  # streams of the reference that move
            mixed = mixed ^ (self.ledgers["blocks"].astype(np.uint64) << np.uint64(20))
            mixed = mixed ^ (self.ledgers["next"].astype(np.uint64) << np.uint64(32))
        return np.random.default_rng(int(np.bitwise_xor.reduce(mixed * np.arange(1, 2 * self.n, 2, dtype=np.uint64))))
