"""A red that is played: the model and the kernel with both sides' actions in one number.

joint action = blue's + 145 * red's, so that one list of numbers is a whole episode and 0 is sleep for both
"""

from typing import Any

import numpy as np

from stockade.cage2.batch import Batch
from stockade.cage2.config import WorldConfig
from stockade.cage2.red_view import RED_OBS_SIZE
from stockade.cage2.seeds import read_seeds
from stockade.cage2.state import OBS_SIZE

from .model import ReferenceModel
from .network import N_ACTIONS, action_name
from .red import MOVES
from .red_observer import RedObserver
from .red_policies import RedView

_WORD = 60  # bits of red's observation in one fact
RED_WORDS = -(-RED_OBS_SIZE // _WORD)
_WEIGHTS = 1 << np.arange(_WORD, dtype=np.int64)


def joint(blue: Any, red: Any) -> Any:
    """One number for both sides' actions."""
    return blue + N_ACTIONS * red


def joint_name(action: int) -> str:
    """As a person reads it, e.g. `Sleep and IMPACT(7)`."""
    red, blue = divmod(action, N_ACTIONS)
    kind, target = MOVES[red]
    return f"{action_name(blue)} and {kind.name}({target})"


def _words(bits: np.ndarray) -> np.ndarray:
    """Red's observation (n, 264) as integers (n, RED_WORDS)."""
    padded = np.zeros((len(bits), RED_WORDS * _WORD), np.int64)
    padded[:, :RED_OBS_SIZE] = bits
    return padded.reshape(len(bits), RED_WORDS, _WORD) @ _WEIGHTS


class PlayedModel(ReferenceModel):
    """The model, stepped by joint actions, and what red may know of it."""

    def __init__(self, rules: str, green: str, horizon: int) -> None:
        super().__init__("sleep", green, rules)
        self._observer = RedObserver(rules, horizon)

    def reset(self, seed: int | None = None) -> list[int]:
        observation = super().reset(seed)
        self._observer.reset(self.red_mask)
        return observation

    def step(self, action: int, red_action: int | None = None) -> tuple[list[int], float]:
        red, blue = divmod(action, N_ACTIONS)
        result = super().step(blue, red)
        self._observer.see(red, self.red_success, self.red_saw_ports, self.red_mask)
        return result

    def red_facts(self) -> tuple[int, ...]:
        """Red's mask and observation, as in `PlayedKernel.red_facts`."""
        seen = self._observer.observation()
        return self.red_mask, *(seen >> shift & (1 << _WORD) - 1 for shift in range(0, RED_WORDS * _WORD, _WORD))


class PlayedKernel:
    """The kernel, stepped by joint actions; otherwise like a vector environment."""

    def __init__(self, rules: str, green: str, horizon: int, n: int, autoreset: bool) -> None:
        config = WorldConfig(red="player", horizon=horizon, rules=rules, chance="cyborg", green=green)
        self._batch, self._n, self._autoreset = Batch(config, n, threads=1), n, autoreset
        self._obs, self._red_obs = np.zeros((n, OBS_SIZE), np.uint8), np.zeros((n, RED_OBS_SIZE), np.uint8)

    def reset(self, seed: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self._batch.reset(self._obs, read_seeds(seed, self._n))
        self._batch.observe_red(self._red_obs, False)
        return self._obs.copy(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        red, blue = np.divmod(actions, N_ACTIONS)
        rewards, over = np.zeros(self._n), np.zeros(self._n, np.bool_)
        self._batch.step(blue, self._obs, rewards, over, self._autoreset, red_actions=red)
        self._batch.observe_red(self._red_obs, True)
        return self._obs.copy(), rewards, np.zeros(self._n, np.bool_), over, {}

    def true_state(self) -> Any:
        return self._batch.truth

    def random_peek(self) -> np.ndarray:
        return self._batch.peek()[0]

    def red_facts(self) -> np.ndarray:
        """(n, 1 + RED_WORDS): red's mask and observation."""
        mask = self._batch.red_mask().astype(np.int64) @ (1 << np.arange(len(MOVES), dtype=np.int64))
        return np.column_stack([mask, _words(self._red_obs)])

    def view(self) -> RedView:
        """For the red policies."""
        truth = self._batch.truth
        return RedView(self._batch.red_mask() != 0, truth.red_access, truth.red_ports, truth.red_knows_service != 0)

    def close(self) -> None:
        self._batch.close()
