"""Red policies for comparisons: for many worlds at once, each meant to reach another corner of red's free play.

A policy is a function (generator, view, t) -> actions (n,), indices into `MOVES`. It may look at the truth: what counts
is where it leads, not how it would play.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .network import N_HOSTS, Host, RedAction
from .red import MOVES

N_MOVES = len(MOVES)
_KINDS = np.array([kind for kind, _ in MOVES])
#: Host of each action; -1 for Sleep and the discovery of subnets.
_TARGETS = np.array([target if 0 <= target < N_HOSTS else -1 for _, target in MOVES])


@dataclass(frozen=True)
class RedView:
    """What the policies look at, for n worlds."""

    mask: np.ndarray  # (n, 56) bool: what the reference lets red try
    access: np.ndarray  # (n, 13): 0 none, 1 user, 2 root
    ports: np.ndarray  # (n, 13): ports that red remembers; 0 where it never scanned
    knows_service: np.ndarray  # (n,)


RedPolicy = Callable[[np.random.Generator, RedView, int], np.ndarray]


def _of_kind(kind: RedAction) -> np.ndarray:
    """(56,) bool."""
    return kind == _KINDS


def _on_hosts(hosts: np.ndarray) -> np.ndarray:
    """(n, 56) bool: the action aims at one of these hosts (n, 13)."""
    return np.where(_TARGETS >= 0, hosts[:, _TARGETS], False)


def _pick(generator: np.random.Generator, weights: np.ndarray) -> np.ndarray:
    """An action for each world with probabilities in proportion to its weights (n, 56); Sleep where all are 0."""
    keys = np.where(weights > 0, generator.random(weights.shape) ** (1 / np.maximum(weights, 1e-9)), -1.0)
    return np.where((weights > 0).any(axis=1), keys.argmax(axis=1), 0)


def uniform(generator: np.random.Generator, view: RedView, t: int) -> np.ndarray:
    """Any of the 56 actions, mostly ones that are invalid."""
    return generator.integers(N_MOVES, size=len(view.mask))


def legal(generator: np.random.Generator, view: RedView, t: int) -> np.ndarray:
    """Any action that red may try."""
    return _pick(generator, view.mask.astype(float))


def _progress(view: RedView) -> np.ndarray:
    """Weights (n, 56) of a red that wants to get on: each step of an attack where it is the next one."""
    weights = np.zeros(view.mask.shape)
    weights += 2 * _of_kind(RedAction.DISCOVER_REMOTE_SYSTEMS)
    weights += 8 * _of_kind(RedAction.DISCOVER_NETWORK_SERVICES) * _on_hosts(view.ports == 0)
    weights += 8 * _of_kind(RedAction.EXPLOIT_REMOTE_SERVICE) * _on_hosts((view.ports != 0) & (view.access == 0))
    weights += 60 * _of_kind(RedAction.PRIVILEGE_ESCALATE) * _on_hosts(view.access == 1)
    server = _on_hosts(np.arange(N_HOSTS) == [[Host.OP_SERVER0]] * len(view.mask))
    held = view.knows_service & (view.access[:, Host.OP_SERVER0] > 0)
    weights += 200 * _of_kind(RedAction.IMPACT) * server * held[:, None]
    # Root shells show red the way too, once it looks around from them.
    weights += 1 * _of_kind(RedAction.PRIVILEGE_ESCALATE) * _on_hosts(view.access == 2)
    return weights * view.mask


def climber(generator: np.random.Generator, view: RedView, t: int) -> np.ndarray:
    """Gets on, with one action in ten that is merely legal."""
    wild = generator.random(len(view.mask)) < 0.1
    return np.where(wild, legal(generator, view, t), _pick(generator, _progress(view)))


def hoarder(generator: np.random.Generator, view: RedView, t: int) -> np.ndarray:
    """Opens session upon session on hosts that it holds already, one host a world above all, and seldom escalates."""
    n = len(view.mask)
    favourite = np.arange(N_HOSTS) == 1 + np.arange(n)[:, None] % (N_HOSTS - 1)
    weights = np.where(_of_kind(RedAction.PRIVILEGE_ESCALATE), 0.003, 0.05) * _progress(view) + 0.01 * view.mask
    again = _of_kind(RedAction.EXPLOIT_REMOTE_SERVICE) * view.mask
    weights += 2 * again * _on_hosts((view.access > 0) & (view.ports != 0))
    weights += 6 * again * _on_hosts(favourite & (view.ports != 0))
    return _pick(generator, weights)


def breaker(generator: np.random.Generator, view: RedView, t: int) -> np.ndarray:
    """Gets on, but tries Impact and PrivilegeEscalate everywhere, with and without sessions."""
    everywhere = (_of_kind(RedAction.IMPACT) | _of_kind(RedAction.PRIVILEGE_ESCALATE)) * view.mask
    wild = generator.random(len(view.mask)) < 0.4
    return np.where(wild, _pick(generator, everywhere.astype(float)), _pick(generator, _progress(view)))


def prober(generator: np.random.Generator, view: RedView, t: int) -> np.ndarray:
    """Gets on, but scans and exploits again and again, scanned or not, so that what it remembers goes out of date."""
    again = _of_kind(RedAction.DISCOVER_NETWORK_SERVICES) | _of_kind(RedAction.EXPLOIT_REMOTE_SERVICE)
    wild = generator.random(len(view.mask)) < 0.6
    return np.where(wild, _pick(generator, (again * view.mask).astype(float)), _pick(generator, _progress(view)))


def reckless(generator: np.random.Generator, view: RedView, t: int) -> np.ndarray:
    """Gets on, with one action in four that may be invalid."""
    wild = generator.random(len(view.mask)) < 0.25
    return np.where(wild, uniform(generator, view, t), _pick(generator, _progress(view)))


RED_POLICIES: dict[str, RedPolicy] = {
    policy.__name__: policy for policy in (uniform, legal, climber, hoarder, breaker, prober, reckless)
}
