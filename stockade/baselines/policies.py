"""Simple policies for many worlds at once: observations (n, 52 or more) -> actions (n,).

They only use the first 52 bits, so they also play with `obs="memory"`.
"""

from __future__ import annotations

import numpy as np

from stockade.baselines.defender import Defender
from stockade.cage2.actions import ANALYSE, MONITOR, N_ACTIONS, REMOVE, RESTORE, SLEEP
from stockade.cage2.scenario import FOOTHOLD, HOST_COST, N_HOSTS, SERVICE_DOWN_COST, SERVICE_HOST
from stockade.cage2.state import OBS_SIZE
from stockade.errors import InputError


class Baseline(Defender):
    """A policy made of a function (bits (n, 13, 4), generator) -> actions (n,)."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "bits", OBS_SIZE, greedy=False)
        self._function = BASELINES[name]

    def __repr__(self) -> str:
        """`<baseline sleep: Nothing, ever.>`."""
        return f"<baseline {self.name}: {' '.join((self._function.__doc__ or '').split())}>"

    def _choose(self, batch: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
        return self._function(batch[:, :OBS_SIZE].reshape(-1, N_HOSTS, 4), generator or self.generator)

    def _fits(self, size: int) -> bool:
        return size >= OBS_SIZE


def _active(bits: np.ndarray) -> np.ndarray:
    """(n, 13) bool: something happened there in the last step."""
    return bits[:, :, 0] == 1


def _compromised(bits: np.ndarray) -> np.ndarray:
    """(n, 13) bool: blue believes red to be there, as a user or privileged."""
    return bits[:, :, 3] == 1


def _on(kind: int, hosts: np.ndarray) -> np.ndarray:
    """Numbers of the actions of a kind on hosts."""
    return 2 + kind * N_HOSTS + hosts


def _pick(candidates: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """(n,) one of the candidate hosts, all equally likely; -1 where there is none."""
    order = np.where(candidates, generator.random(candidates.shape), -1.0)
    return np.where(candidates.any(axis=1), order.argmax(axis=1), -1)


def sleep(bits: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Nothing, ever."""
    return np.full(len(bits), SLEEP)


def random(bits: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Any of the 145 actions."""
    return generator.integers(N_ACTIONS, size=len(bits))


def react_remove(bits: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Remove on a host where something happened or that seems compromised; else Monitor."""
    host = _pick(_active(bits) | _compromised(bits), generator)
    return np.where(host >= 0, _on(REMOVE, host), MONITOR)


def react_restore(bits: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Restore a host that seems compromised; else Monitor (7 of 10) or Analyse any host.

    The policy of that name whose returns on the reference simulator are recorded in tests/data.
    """
    n = len(bits)
    host = _pick(_compromised(bits), generator)
    idle = np.where(generator.random(n) < 0.7, MONITOR, _on(ANALYSE, generator.integers(N_HOSTS, size=n)))
    return np.where(host >= 0, _on(RESTORE, host), idle)


_WORTH = HOST_COST + SERVICE_DOWN_COST * (np.arange(N_HOSTS) == SERVICE_HOST)


def greedy(bits: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Restore the most valuable host that seems compromised, but never red's foothold, which survives; else Analyse
    where something happened; else Monitor."""
    worth = np.where(_compromised(bits), _WORTH, -1)
    worth[:, FOOTHOLD] = -1
    active = _pick(_active(bits), generator)
    idle = np.where(active >= 0, _on(ANALYSE, active), MONITOR)
    return np.where(worth.max(axis=1) >= 0, _on(RESTORE, worth.argmax(axis=1)), idle)


BASELINES = {
    "sleep": sleep, "random": random, "react-remove": react_remove, "react-restore": react_restore, "greedy": greedy,
}  # fmt: skip
ALIASES = {"react": "react-restore"}


def make_baseline(name: str) -> Baseline:
    """The baseline of that name; `react` is `react-restore`."""
    name = ALIASES.get(name, name)
    if name not in BASELINES:
        raise InputError(f"unknown baseline {name!r}; use one of {', '.join(BASELINES)}")
    return Baseline(name)
