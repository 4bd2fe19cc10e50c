"""The order as a rule: environments in which a fix that the order forbids is not carried out.

actions -> forbidden fixes become Sleep (a lost step) -> world -> observation and the order's context

A fix (Remove or Restore) of a host is forbidden while red holds a host that stands earlier in the order. Who says what
red holds: the `truth`, or `observed`, what blue's own observation calls compromised (user or privileged). While nothing
is held, every fix is allowed. After a forbidden fix the agent sees what it would see had it chosen Sleep, its own
history included; nothing shows it the refusal.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from stockade.cage2.actions import ACTION_KIND, RESTORE, SLEEP
from stockade.cage2.jit import cached
from stockade.cage2.scenario import FOOTHOLD, N_HOSTS
from stockade.learn.mixture import restore_worlds, save_worlds
from stockade.workflow.orders import FIXED_HOST, NOT_A_FIX, Judge, compromised

Rows = TypeVar("Rows")
_entry_point = cached("cage2/actions.py", "cage2/scenario.py", "workflow/orders.py", "workflow/strict.py")


@dataclass(frozen=True)
class Played:
    """Episodes that ended, one row each."""

    order: np.ndarray  #: int64, index of its order
    value: np.ndarray  #: float64, return
    fixes: np.ndarray  #: int64, that were tried
    refused: np.ndarray  #: int64, of these the forbidden ones


def joined(parts: Sequence[Rows]) -> Rows:
    """One after the other; of dataclasses of arrays."""
    kind = type(parts[0])
    return kind(**{name: np.concatenate([vars(part)[name] for part in parts]) for name in vars(parts[0])})


@_entry_point
def _refuse(
    held: Any, actions: Any, dead: Any, order: Any, places: Any, allowed: Any, fixes: Any, refused: Any
) -> None:
    """Write the actions that are carried out, and count; `held` (n, 13), anything above 0 is held."""
    for i in range(len(actions)):
        host = FIXED_HOST[actions[i]]
        allowed[i] = actions[i]
        if host == NOT_A_FIX or dead[i]:
            continue
        fixes[i] += 1
        mine = places[order[i]]
        for h in range(N_HOSTS):
            if held[i, h] > 0 and h != FOOTHOLD and mine[h] < mine[host]:
                # An earlier host is held. Hosts of equal place are never forbidden to each other.
                allowed[i] = SLEEP
                refused[i] += 1
                break


def allowed_actions(held: np.ndarray, actions: np.ndarray, places: np.ndarray) -> np.ndarray:
    """(n,) the actions that an order lets through: forbidden fixes are Sleep.

    held: (n, 13), above 0 for hosts that are held. actions: (n,) int64. places: (13,) int8 of the order.
    """
    out, order, fixes, refused = np.zeros((4, len(actions)), np.int64)
    _refuse(held, actions, np.zeros(len(actions), np.bool_), order, places[None], out, fixes, refused)
    return out


class OrderedVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray], Generic[Rows]):
    """A vector environment with more in its observations: what the agent sees of an order, `context` inputs.

    Episodes that ended are `rows` of the label of their environment, (n,), and of what a subclass sums up (`_sums`).
    """

    _columns: ClassVar[dict[str, type]]  #: of `rows` after the first, as a checkpoint calls them

    def __init__(self, envs: Any, context: int, rows: Callable[..., Rows], labels: np.ndarray) -> None:
        self.envs, self._rows, self._labels = envs, rows, labels
        self.num_envs, self.metadata = envs.num_envs, envs.metadata
        self.single_action_space, self.action_space = envs.single_action_space, envs.action_space
        (self._size,) = envs.single_observation_space.shape
        shape = (self._size + context,)
        self.single_observation_space = gymnasium.spaces.Box(0, 1, shape, np.uint8)
        self.observation_space = gymnasium.spaces.Box(0, 1, (self.num_envs, *shape), np.uint8)
        self._seen = np.zeros((self.num_envs, *shape), np.uint8)
        self._begin()

    def _begin(self) -> None:
        self._dead = np.zeros(self.num_envs, np.bool_)
        self._sums: dict[str, np.ndarray] = {
            name: np.zeros(self.num_envs, kind) for name, kind in self._columns.items()
        }
        self._ended: list[Rows] = []

    def _running(self) -> dict[str, np.ndarray]:
        """Arrays of running episodes, which belong in a checkpoint."""
        return {"was_over": self._dead, **self._sums}

    def _after_step(self, obs: np.ndarray, over: np.ndarray) -> None:
        if over.any():
            self._file(np.flatnonzero(over))
        self._dead = over
        self._seen[:, : self._size] = obs

    def _file(self, over: np.ndarray) -> None:
        """Episodes have ended: keep their sums, and begin anew for these environments."""
        self._ended.append(self._rows(self._labels[over], *(column[over] for column in self._sums.values())))
        for column in self._sums.values():
            column[over] = 0

    def take(self) -> Rows:
        """Episodes that ended since the last time."""
        self._file(np.zeros(0, np.int64))
        taken, self._ended = joined(self._ended), []
        return taken

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin episodes in all environments."""
        if options:
            raise ValueError("an environment with an order begins all its episodes together and takes no options")
        obs, info = self.envs.reset(seed=seed)
        self._begin()
        self._seen[:, : self._size] = obs
        return self._seen, info

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments."""
        self.envs.close()

    def save_worlds(self) -> dict[str, np.ndarray]:
        """What `learn.mixture.save_worlds` keeps of it in a checkpoint, after a `take`."""
        return {**save_worlds(self.envs), **{name: array.copy() for name, array in self._running().items()}}

    def restore_worlds(self, arrays: dict[str, np.ndarray]) -> None:
        """Put it back."""
        restore_worlds(self.envs, arrays)
        self._begin()
        for name, array in self._running().items():
            array[...] = arrays[name]


def play(env: OrderedVectorEnv[Rows], act: Callable[[np.ndarray], np.ndarray], horizon: int, seed: int) -> Rows:
    """One episode in each environment, by the actions that `act` chooses for the observations; closes `env`."""
    with contextlib.closing(env):
        obs, _ = env.reset(seed=seed)
        for _ in range(horizon):
            obs = env.step(act(obs))[0]
        return env.take()


class StrictVectorEnv(OrderedVectorEnv[Played]):
    """A native vector environment (next_step autoreset, uint8) in which each environment keeps to an order.

    places: (orders, 13) int8, see `Units.places`; contexts: (orders, c) uint8, added to the observations. `order`, (n,)
    int64, is that of each environment's episode, `next_order` that of the episode after it: it may be written to.
    `restore_bonus` is added to the reward of a step that carries out a Restore; `Played.value` leaves it out.
    """

    _columns: ClassVar[dict[str, type]] = {"episode_return": np.float64, "fixes": np.int64, "refused": np.int64}
    restore_bonus = 0.0

    def __init__(self, envs: Any, places: np.ndarray, contexts: np.ndarray, judge: Judge) -> None:
        self.judge = judge
        self.set_orders(places, contexts)
        self.order, self.next_order, self._allowed = np.zeros((3, envs.num_envs), np.int64)
        super().__init__(envs, contexts.shape[1], Played, self.order)

    def set_orders(self, places: np.ndarray, contexts: np.ndarray) -> None:
        """Exchange the tables of orders; running episodes keep their index."""
        self.places, self.contexts = np.ascontiguousarray(places, np.int8), np.asarray(contexts, np.uint8)

    def _begin(self) -> None:
        super()._begin()
        self._take_orders(slice(None))

    def _running(self) -> dict[str, np.ndarray]:
        return {**super()._running(), "order": self.order, "next_order": self.next_order, "seen": self._seen}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all; the observation is overwritten by the next step."""
        held = self.envs.true_state().red_access if self.judge == "truth" else compromised(self._seen)
        returns, fixes, refused = self._sums.values()
        _refuse(held, actions, self._dead, self.order, self.places, self._allowed, fixes, refused)
        obs, rewards, terminated, truncated, info = self.envs.step(self._allowed)
        if self._dead.any():  # these have just begun a new episode
            self._take_orders(self._dead)
        returns += rewards
        if self.restore_bonus:
            rewards = rewards + self.restore_bonus * ((ACTION_KIND[self._allowed] == RESTORE) & ~self._dead)
        self._after_step(obs, terminated | truncated)
        return self._seen, rewards, terminated, truncated, info

    def _take_orders(self, which: Any) -> None:
        self.order[which] = self.next_order[which]
        self._seen[which, self._size :] = self.contexts[self.order[which]]
