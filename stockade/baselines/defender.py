"""What every policy of the package offers: `act` for many worlds at once, `predict` as in Stable-Baselines3."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from stockade.errors import InputError


class BluePolicy(Protocol):
    """Whatever can be evaluated.

    Attributes:
        obs: what it wants to see, `bits` or `memory`.
    """

    @property
    def obs(self) -> str:
        """What it wants to see, `bits` or `memory`."""
        ...

    def act(self, observations: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Actions (n,) int64 for observations (n, size); chance comes from the generator."""
        ...


class Defender:
    """A policy by name: a baseline or a trained agent.

    Attributes:
        name: as it was loaded.
        obs: observation that it expects: `bits` (52 values) or `memory` (160); `make_vec(n, obs=agent.obs)` gives it.
        greedy: `act` takes the likeliest action instead of a sampled one.
        card: what was saved beside the weights.
        generator: source of chance where none is given; set `np.random.default_rng(seed)` to repeat a result.
    """

    def __init__(self, name: str, obs: str, size: int, greedy: bool, card: dict[str, Any] | None = None) -> None:
        """`size`: values of an observation."""
        self.name, self.obs, self.greedy, self.card = name, obs, greedy, card or {}
        self.generator = np.random.default_rng()
        self._size = size

    def act(self, observations: np.ndarray, generator: np.random.Generator | None = None) -> np.ndarray:
        """Actions for a batch.

        Args:
            observations: (n, size).
            generator: for sampled actions; default the agent's own. A greedy policy needs none.

        Returns:
            (n,) int64.
        """
        batch, single = self._batch(observations)
        if single:
            raise InputError(f"act takes a batch (n, {self._size}), not a single observation: use predict for one")
        return self._choose(batch, None if self.greedy else generator or self.generator)

    def predict(
        self, observation: np.ndarray, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, None]:
        """Actions in the manner of Stable-Baselines3; `state` and `episode_start` are ignored.

        Args:
            observation: (size,) or (n, size).
            deterministic: the likeliest action; otherwise a sampled one.

        Returns:
            An int64 for one observation, (n,) int64 for a batch; and None.
        """
        batch, single = self._batch(observation)
        actions = self._choose(batch, None if deterministic else self.generator)
        return (actions[0] if single else actions), None

    def probabilities(self, observation: np.ndarray) -> np.ndarray:
        """Probability of each of the 145 actions: (145,) or (n, 145) float64."""
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
        if array.ndim != 2 or not self._fits(array.shape[1]):
            raise InputError(
                f"{self.name} expects observations of shape ({self._size},) or (n, {self._size}), not {array.shape}; "
                f"make its environment with obs={self.obs!r}"
            )
        return array, False

    def _fits(self, size: int) -> bool:
        return size == self._size
