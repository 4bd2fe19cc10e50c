"""One world as a Gymnasium environment: `stockade.make()` and `gymnasium.make("stockade/CAGE2-v0")`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

from stockade.cage2 import kernel
from stockade.cage2.actions import ACTION_MASK, check_action
from stockade.cage2.batch import Batch, Snapshot
from stockade.cage2.belief import Belief
from stockade.cage2.config import CHALLENGE_REWARD, RewardWeights, WorldConfig
from stockade.cage2.seeds import read_seeds
from stockade.cage2.sides import DEFAULT_RED, SidedBatch, Tree, make_batch, rows_for, seats, single, spaces_of
from stockade.cage2.state import WORLD
from stockade.cage2.truth import TrueState, WorldInfo, render_world
from stockade.errors import InputError, SettingError


class CAGE2Env(gymnasium.Env[Any, Any]):
    """Defend the network of CAGE Challenge 2, or attack it.

    - Observation: Box(0, 1, (52,), uint8), 4 bits a host: activity in the last step, what blue believes of the host.
      With `obs="memory"` Box(0, 1, (160,), uint8): these and blue's own history, `history.FEATURE_NAMES`.
      With `obs="belief"` Box(0, 1, (366,), float32): what red probably holds and knows too, `belief.FEATURE_NAMES`.
    - Action: Discrete(145): Sleep, Monitor, then Analyse, Remove, eight decoys, Restore on each of 13 hosts.
    - Reward: at most 0; what red's root sessions, a stopped service and each Restore cost, in steps of 0.1.
      `reward=RewardWeights(...)` weighs these three; the parts in info stay the challenge's own.
    - Termination: never. Truncation: after `horizon` steps.
    - Info: see truth.worlds_info; with `action_mask=True` also the static mask of actions that can succeed at all.

    Example:
        >>> import stockade
        >>> env = stockade.make(red="bline", chance="cyborg")
        >>> obs, info = env.reset(seed=0)
        >>> obs, reward, terminated, truncated, info = env.step(0)
        >>> reward, info["red_action"]
        (0.0, 'DiscoverRemoteSystems User')
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012
    #: For vector environments that carry the true state of worlds between processes.
    true_state_dtype = WORLD
    true_state_view = TrueState.of

    def __init__(
        self,
        red: Any = DEFAULT_RED,
        horizon: int = 100,
        rules: str = "current",
        chance: str = "fast",
        green: str | float = "sleep",
        *,
        obs: str = "bits",
        reward: RewardWeights = CHALLENGE_REWARD,
        obs_dtype: Any = None,
        info: bool = True,
        action_mask: bool = False,
        render_mode: str | None = None,
        side: str = "blue",
        blue: Any = None,
    ) -> None:
        """Make a world; see WorldConfig for the first seven, the class for the rest."""
        attacker, self._opponent = seats(side, red, blue, rules)
        if side == "red" and self._opponent is not None and self._opponent.obs is not None:
            obs = self._opponent.obs
        self.side = side
        self.config = WorldConfig(attacker, horizon, rules, chance, green, obs, reward)
        if self.config.red == "player" and side == "blue" and self._opponent is None:
            raise SettingError("red", red, "is no attacker: take side='both' to give red's actions beside blue's")
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode={render_mode!r} is unknown; take None or 'ansi'")
        self.render_mode = render_mode
        self._dtype = _checked_dtype(obs_dtype, self.config)
        self._batch = self.make_batch(1, threads=1)
        self.observation_space, self.action_space = spaces_of(self._batch, self._dtype)
        self.gives_info, self.gives_mask = info, action_mask
        self._is_reset = self._closed = False
        self._bind()

    def make_batch(self, n: int, threads: int | None) -> Batch:
        """n worlds like this one, for a vector environment."""
        return make_batch(self.config, n, threads, self.side, self._opponent)

    def _bind(self) -> None:
        """Make once what every step needs: the kernel's arguments, its observation, a reader of the world's memory."""
        batch = self._batch
        self._actions = np.zeros(1, np.int64)
        self._obs: Tree = rows_for(batch)
        self._reward, self._over = np.zeros(1, np.float64), batch.worlds["over"] != 0
        self._sided = batch if isinstance(batch, SidedBatch) else None
        if self._sided is None:
            given, out = (self._actions, batch.no_red_actions), (batch.words_for(self._obs), self._reward, self._over)
            self._step_arguments: Any = (*batch.records, *batch.constants, *given, *out, False, 0, 1)
        self._world_info = WorldInfo(batch.worlds)

    def over_world(self, batch: Batch, i: int) -> CAGE2Env:
        """An environment like this one whose world is world i of a batch: both see and change the same memory."""
        env = CAGE2Env.__new__(CAGE2Env)
        env.__setstate__({**self.__dict__, "_batch": batch.part(i), "_is_reset": True})
        return env

    def follow(self, is_reset: bool, seed: int | None) -> None:
        """Catch up with a world that others have reset or stepped: whether it was reset, and its last seed."""
        self._is_reset, self._over[0] = is_reset, self._batch.worlds["over"][0]
        if seed is not None and self._np_random_seed != seed:
            super().reset(seed=seed)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_step_arguments": None, "_sided": None, "_world_info": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. Without a seed the stream of chance continues; there are no options."""
        self._check_open()
        if options:
            raise ValueError(f"unknown options {sorted(options)}; this environment takes none")
        seeds = read_seeds(seed, 1)
        super().reset(seed=seed)
        if not self._is_reset:
            seeds = seeds.or_fresh()
        self._batch.reset(self._obs, seeds)
        self._over[0], self._is_reset = False, True
        return self._seen(), {"action_mask": self._mask()} if self.gives_mask else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Blue acts, green acts, red acts; then the reward and what this side sees."""
        if self._closed or not self._is_reset:
            self._check_running()
        if self._over.item():
            raise ResetNeeded(f"the episode is over after {self.config.horizon} steps; call reset()")
        if self._sided is None:
            self._actions[0] = check_action(action)
            kernel.step_batch(*self._step_arguments)
            self._batch.remember(self._actions, self._obs)
        else:
            self._sided.step(self._sided.check(action), self._obs, self._reward, self._over, False)
        info = self._world_info.read() if self.gives_info else {}
        if self.gives_mask:
            info["action_mask"] = self._mask()
        return self._seen(), self._reward.item(), False, self._over.item(), info

    def action_masks(self) -> Any:
        """(145,) or (56,) bool, under the name that sb3-contrib's MaskablePPO asks for; see `action_mask`."""
        mask = self._mask()
        return {side: one != 0 for side, one in mask.items()} if isinstance(mask, dict) else mask != 0

    def _mask(self) -> Tree:
        return ACTION_MASK.copy() if self._sided is None else single(self._sided.masks())

    def _seen(self) -> Tree:
        """A copy of the observation, in the user's dtype."""
        if self.side == "both":
            return {side: rows[0].astype(self._dtype or rows.dtype) for side, rows in self._obs.items()}
        return self._obs[0].astype(self._dtype or self._obs.dtype)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Keep a value under a new name (`set_attr` of vector environments); what the world is made of stays."""
        if hasattr(self.config, name) or hasattr(type(self), name):
            raise InputError(f"{name!r} of the built-in world cannot be changed later; make a new environment")
        return super().set_wrapper_attr(name, value, force=force)

    def belief(self) -> Belief:
        """What red probably holds and knows, from what blue has seen and done; arrays (1, ...). With `obs="belief"`."""
        self._check_running()
        return self._batch.belief()

    def true_state(self) -> TrueState:
        """What is really the case now; arrays without the leading n."""
        self._check_running()
        return TrueState.of(self._batch.worlds[0, ...])

    def write_true_state(self, out: np.ndarray) -> None:
        """Write it as a record of `true_state_dtype`."""
        out[...] = self._batch.worlds[0]

    def place_true_state(self, records: np.ndarray) -> None:
        """Keep it in `records`, one of `true_state_dtype`: the world lives there from now on, so nothing is copied."""
        self._batch.move_to(records)
        self._bind()

    def snapshot(self) -> Snapshot:
        """This moment, chance included."""
        self._check_running()
        return self._batch.snapshot()

    def restore(self, snapshot: Snapshot, seed: int | None = None) -> Any:
        """Go back to a snapshot, with a new stream of chance if a seed is given; returns what is seen there."""
        self._check_open()
        self._batch.restore(snapshot, seed=seed)
        self._batch.observe(self._obs)
        self.follow(True, None)
        return self._seen()

    def random_peek(self) -> int:
        """The next 32 bits of the reference's stream, not drawn; only under `chance="cyborg"`."""
        self._check_running()
        return int(self._batch.peek()[0][0])

    def render(self) -> str | None:
        """With `render_mode="ansi"` the two tables as text."""
        self._check_running()
        if self.render_mode is None:
            return None
        ledgers = self._batch.ledgers
        return render_world(self._batch.worlds[0, ...], None if ledgers is None else ledgers[0])

    def close(self) -> None:
        """End it; a second call does nothing."""
        self._closed = True
        self._batch.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedEnvironmentError("the environment is closed; make a new one")

    def _check_running(self) -> None:
        self._check_open()
        if not self._is_reset:
            raise ResetNeeded("call reset() before anything else")


def _checked_dtype(dtype: Any, config: WorldConfig) -> Any:
    """The type of observations that a user wants, None for that of the kernels."""
    if dtype is None:
        return None
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        wanted = np.dtype(object)  # refused below
    if wanted not in (np.uint8, np.float32):
        raise ValueError(f"obs_dtype={dtype!r} is not possible; take numpy.uint8 or numpy.float32")
    if wanted == np.uint8 and config.view.dtype is not np.uint8:
        raise ValueError(f"obs_dtype={dtype!r} cannot hold the probabilities of obs={config.obs!r}; take numpy.float32")
    return wanted.type
