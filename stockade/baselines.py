"""Defenders that learn nothing, to compare with; and what every policy of the package offers.

observations (n, 52 or more) -> actions (n,). Baselines use the first 52 bits only, so they also play `obs="memory"`.
"""

from typing import Any

import numpy as np

from stockade.cage2.actions import ANALYSE, MONITOR, N_ACTIONS, REMOVE, RESTORE, SLEEP
from stockade.cage2.scenario import FOOTHOLD, HOST_COST, N_HOSTS, SERVICE_DOWN_COST, SERVICE_HOST
from stockade.cage2.state import OBS_SIZE
from stockade.errors import InputError


class Defender:
    """A policy by name: a baseline or a trained agent.

    Attributes:
        obs: observation that it expects: `bits` (52 values) or `memory` (160); `make_vec(n, obs=agent.obs)` gives it.
        side: `blue`; learned attackers have `red`, and expect the 264 values of `make_vec(n, side="red", ...)`.
        greedy: `act` takes the likeliest action instead of a sampled one.
        card: what was saved beside the weights.
        generator: source of chance where none is given; set `np.random.default_rng(seed)` to repeat a result.
    """

    side = "blue"
    _wider_fits = False  #: it uses the first values of an observation and ignores others

    def __init__(self, name: str, obs: str, size: int, greedy: bool, card: dict[str, Any] | None = None) -> None:
        """`size`: values of an observation."""
        self.name, self.obs, self.greedy, self.card = name, obs, greedy, card or {}
        self.generator = np.random.default_rng()
        self._size = size

    def act(self, observations: np.ndarray, generator: np.random.Generator | None = None) -> np.ndarray:
        """Actions (n,) int64 for a batch (n, size); the generator, by default the agent's own, is for sampled ones."""
        batch, single = self._batch(observations)
        if single:
            raise InputError(f"act takes a batch (n, {self._size}), not a single observation: use predict for one")
        return self._choose(batch, None if self.greedy else generator or self.generator)

    def predict(
        self, observation: np.ndarray, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, None]:
        """As of Stable-Baselines3: an int64 for one observation (size,), (n,) int64 for a batch (n, size); and None."""
        batch, single = self._batch(observation)
        actions = self._choose(batch, None if deterministic else self.generator)
        return (actions[0] if single else actions), None

    def probabilities(self, observation: np.ndarray) -> np.ndarray:
        """Probability of each of the 145 actions: (145,) or (n, 145) float64; 0 for those it never takes."""
        raise InputError(f"{self.name} is a baseline: it has no network, so no probabilities and no values")

    def value(self, observation: np.ndarray) -> Any:
        """Expected discounted return from here on, in units of the reward: a float, or (n,) float64."""
        raise InputError(f"{self.name} is a baseline: it has no network, so no probabilities and no values")

    def _choose(self, batch: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
        """(n,) int64 for (n, size); without a generator the likeliest action."""
        raise NotImplementedError

    def _batch(self, observation: np.ndarray) -> tuple[np.ndarray, bool]:
        """As (n, size), and whether it was a single one."""
        array = np.asarray(observation)
        if array.shape == (self._size,):
            return array[None], True
        if array.ndim != 2 or array.shape[1] < self._size or (array.shape[1] > self._size and not self._wider_fits):
            option = "side='red'" if self.side == "red" else f"obs={self.obs!r}"
            fit = f"({self._size},) or (n, {self._size}), not {array.shape}; make its environment with {option}"
            raise InputError(f"{self.name} expects observations of shape {fit}")
        return array, False


class Baseline(Defender):
    """A policy made of a function of `BASELINES`."""

    _wider_fits = True

    def __init__(self, name: str) -> None:
        name = ALIASES.get(name, name)
        if name not in BASELINES:
            raise InputError(f"unknown baseline {name!r}; use one of {', '.join(BASELINES)}")
        super().__init__(name, "bits", OBS_SIZE, greedy=False)
        self._function = BASELINES[name]

    def __repr__(self) -> str:
        return f"<baseline {self.name}: {' '.join((self._function.__doc__ or '').split())}>"

    def _choose(self, batch: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
        bits = batch[:, :OBS_SIZE].reshape(-1, N_HOSTS, 4) == 1
        return self._function(bits[:, :, 0], bits[:, :, 3], generator or self.generator)


# ------------------------------------------------------------------------------------------------------------- policies
# Each gets (n, 13) bool, twice: where something happened in the last step, and where blue believes red to be, as a user
# or privileged.
def _on(kind: int, hosts: np.ndarray) -> np.ndarray:
    """Numbers of the actions of a kind on hosts."""
    return 2 + kind * N_HOSTS + hosts


def _pick(candidates: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """(n,) one of the candidate hosts, all equally likely; -1 where there is none."""
    order = np.where(candidates, generator.random(candidates.shape), -1.0)
    return np.where(candidates.any(axis=1), order.argmax(axis=1), -1)


def sleep(active: np.ndarray, compromised: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Nothing, ever."""
    return np.full(len(active), SLEEP)


def random(active: np.ndarray, compromised: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Any of the 145 actions."""
    return generator.integers(N_ACTIONS, size=len(active))


def react_remove(active: np.ndarray, compromised: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Remove on a host where something happened or that seems compromised; else Monitor."""
    host = _pick(active | compromised, generator)
    return np.where(host >= 0, _on(REMOVE, host), MONITOR)


def react_restore(active: np.ndarray, compromised: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Restore a host that seems compromised; else Monitor (7 of 10) or Analyse any host."""
    n, host = len(active), _pick(compromised, generator)
    idle = np.where(generator.random(n) < 0.7, MONITOR, _on(ANALYSE, generator.integers(N_HOSTS, size=n)))
    return np.where(host >= 0, _on(RESTORE, host), idle)


_WORTH = HOST_COST + SERVICE_DOWN_COST * (np.arange(N_HOSTS) == SERVICE_HOST)


def greedy(active: np.ndarray, compromised: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Restore the most valuable host that seems compromised, but never red's foothold, which survives; else Analyse
    where something happened; else Monitor."""
    worth = np.where(compromised, _WORTH, -1)
    worth[:, FOOTHOLD] = -1
    host = _pick(active, generator)
    idle = np.where(host >= 0, _on(ANALYSE, host), MONITOR)
    return np.where(worth.max(axis=1) >= 0, _on(RESTORE, worth.argmax(axis=1)), idle)


BASELINES = {
    "sleep": sleep, "random": random, "react-remove": react_remove, "react-restore": react_restore, "greedy": greedy,
}  # fmt: skip
ALIASES = {"react": "react-restore"}
