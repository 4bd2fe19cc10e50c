"""What red probably holds and knows: `obs="belief"`, `envs.belief()`, and the same for any other simulator.

BeliefFilter: blue's actions (n,), the 52 bits (n, 52) -> particles -> Belief, named probabilities

Nothing here looks at the true state: the filter sees what the challenge shows, and blue's own actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium import spaces

from stockade.cage2.config import MAX_HORIZON, WorldConfig
from stockade.cage2.features import FEATURE_NAMES as PROBABILITY_NAMES
from stockade.cage2.features import HOST_FEATURES
from stockade.cage2.green import GREEN_FOLLOWS_PLAN
from stockade.cage2.history import CLOCK, ENDS, MEMORY, MEMORY_SIZE, N_COUNTED, remember_batch
from stockade.cage2.history import FEATURE_NAMES as MEMORY_NAMES
from stockade.cage2.jit import as_records
from stockade.cage2.particles import PARTICLE, describe_batch, follow_batch
from stockade.cage2.scenario import N_HOSTS
from stockade.cage2.state import INITIAL, OBS_SIZE, PLANNED
from stockade.cage2.variants import read_red
from stockade.cage2.views import View, read_view
from stockade.errors import InputError

#: What each value of `obs="belief"` says. Nobody tells it how many steps are left: it counts those that it played.
FEATURE_NAMES: tuple[str, ...] = (
    *MEMORY_NAMES[: -len(CLOCK)],
    *(f"{steps} steps or more until the episode may end" for steps in CLOCK[:N_COUNTED]),
    *(f"step {end} is over" for end in ENDS[:-1]),
    *(f"probability that {name}" for name in PROBABILITY_NAMES),
)


@dataclass(frozen=True)
class Belief:
    """Probabilities, from blue's history alone; arrays (n, ...) float32."""

    access: np.ndarray  #: (n, 13) red has access to the host, at least as a user
    root: np.ndarray  #: (n, 13) red is root there
    removable: np.ndarray  #: (n, 13) Remove would end a session there
    known: np.ndarray  #: (n, 13) red knows the host's address
    attacker: np.ndarray  #: (n, 3) red is asleep, B_line, Meander; what is missing to 1: it does what none of them does
    service_down: np.ndarray  #: (n,) the operational service is stopped
    green: np.ndarray  #: (n,) green is active
    leaderboard: np.ndarray  #: (n,) the rules are `leaderboard`
    features: np.ndarray  #: (n, 206) all of them, `features.FEATURE_NAMES`

    @classmethod
    def of(cls, features: np.ndarray) -> Self:
        """Name the probabilities."""
        hosts = features[:, : len(HOST_FEATURES) * N_HOSTS].reshape(-1, len(HOST_FEATURES), N_HOSTS)
        at = PROBABILITY_NAMES.index("red is asleep")
        rest = {name: features[:, PROBABILITY_NAMES.index(name)] for name in PROBABILITY_NAMES[-3:]}
        down, green, leaderboard = rest.values()
        return cls(
            hosts[:, 0], hosts[:, 1], hosts[:, 2], hosts[:, 7], features[:, at : at + 3], down, green, leaderboard,
            features,
        )  # fmt: skip


def settings_of(view: View) -> np.ndarray:
    """For the kernels: a row of `kernel.SETTINGS` for each rule set that blue takes to be possible."""
    rows, red = [], read_red(view.red)
    for rules in view.rule_sets:
        settings = WorldConfig(rules=rules, horizon=MAX_HORIZON).settings()
        red.fill(settings[0])
        settings["red"], settings["green"] = PLANNED, GREEN_FOLLOWS_PLAN if red.has_green else 0
        rows.append(settings)
    return np.concatenate(rows)


class Particles:
    """Memory of a filter for n worlds, and the kernels' arguments; a batch of worlds holds one."""

    def __init__(self, view: View, memory: np.ndarray) -> None:
        """`memory`: (n, `size`) uint8."""
        shape = len(memory), len(view.rule_sets), 2, view.particles + 1
        rows = memory.reshape(-1)
        self._particles = as_records(rows.view(PARTICLE).reshape(shape))
        self._words = rows.view(np.uint64).reshape(*shape, -1)
        self._initial, self._settings = INITIAL.view(np.uint64).reshape(1, -1), as_records(settings_of(view))
        self._no_red = np.zeros(1, np.int64)
        self.success = np.zeros(len(memory), np.int8)  #: of blue's last action, as it follows from its history

    @staticmethod
    def size(view: View) -> int:
        """Bytes for each world."""
        return 2 * len(view.rule_sets) * (view.particles + 1) * PARTICLE.itemsize

    def followed(self, actions: np.ndarray | None, bits: np.ndarray, times: np.ndarray) -> tuple[Any, ...]:
        """Arguments of `follow_batch`."""
        memory = self._particles, self._words, self._initial, self._settings
        return (*memory, actions, bits.view(np.int32), times, self._no_red, self.success)

    def described(self, out: np.ndarray) -> tuple[Any, ...]:
        """Arguments of `describe_batch`."""
        return self._particles, self._settings, out


class BeliefFilter:
    """A belief about n episodes of the challenge in any simulator, for instance a real CybORG.

    Example:
        >>> import numpy as np
        >>> from stockade.cage2.belief import BeliefFilter
        >>> belief = BeliefFilter()
        >>> belief.reset().root[0].argmax()  # red begins as root on User0
        8
        >>> belief.update([0], np.zeros((1, 52), np.uint8)).attacker.shape
        (1, 3)
    """

    def __init__(self, n: int = 1, obs: str = "belief") -> None:
        """`obs` says how many particles there are, and what blue takes to be possible: see views.py."""
        self.n, self.view = n, read_view(obs)
        if self.view.kind != "belief":
            raise InputError(f"obs={obs!r} holds no belief; take for instance 'belief' or 'belief:256'")
        self._particles = Particles(self.view, np.zeros((n, Particles.size(self.view)), np.uint8))
        self._memory = as_records(np.zeros(n, MEMORY))
        self._times = np.zeros(n, np.int32)
        self._observation = np.zeros((n, self.view.size), np.float32)
        self.reset()

    @property
    def observation(self) -> np.ndarray:
        """(n, size) float32, what `obs="belief"` shows: for the policies that were trained on it."""
        return self._observation.copy()

    def reset(self) -> Belief:
        """Episodes begin."""
        self._times[:] = 0
        return self._take_in(None, np.zeros((self.n, OBS_SIZE), np.uint8))

    def update(self, actions: Any, bits: Any) -> Belief:
        """Blue took these actions, (n,), and then saw the 52 bits, (n, 52)."""
        given, seen = np.asarray(actions), np.asarray(bits)
        if given.shape != (self.n,) or seen.shape != (self.n, OBS_SIZE):
            raise InputError(f"update takes actions of shape ({self.n},) and bits of shape ({self.n}, {OBS_SIZE}), not "
                             f"{given.shape} and {seen.shape}")  # fmt: skip
        self._times += 1
        return self._take_in(given.astype(np.int64), np.ascontiguousarray(seen, np.uint8))

    def belief(self) -> Belief:
        """The present one."""
        return Belief.of(self._observation[:, MEMORY_SIZE:].copy())

    def _take_in(self, actions: np.ndarray | None, bits: np.ndarray) -> Belief:
        particles, out, everyone = self._particles, self._observation, (0, self.n)
        follow_batch(*particles.followed(actions, bits, self._times), *everyone)
        remember_batch(self._memory, actions, particles.success, self._times, 0, bits, out, *everyone)
        describe_batch(*particles.described(out[:, MEMORY_SIZE:]), *everyone)
        return self.belief()


class BeliefObservation(gymnasium.Wrapper[np.ndarray, Any, np.ndarray, Any]):
    """`obs="belief"` for another simulator of the challenge; `env` gives the 52 bits as (52,), and nothing else."""

    def __init__(self, env: gymnasium.Env[np.ndarray, Any], obs: str = "belief") -> None:
        if env.observation_space.shape != (OBS_SIZE,):
            raise ValueError(f"expected observations of shape ({OBS_SIZE},), not {env.observation_space.shape}")
        super().__init__(env)
        self.filter = BeliefFilter(1, obs)
        self.observation_space = spaces.Box(0, 1, (self.filter.view.size,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode and forget the last."""
        _, info = self.env.reset(seed=seed, options=options)
        self.filter.reset()
        return self.filter.observation[0], info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """Act, and take in what is seen."""
        bits, reward, terminated, truncated, info = self.env.step(action)
        self.filter.update([action], [bits])
        return self.filter.observation[0], reward, terminated, truncated, info
