"""Blue policies for comparisons: for many worlds at once, each meant to reach another corner of the rules.

A policy is a function (generator, observations (n, 52), t) -> actions (n,); world i is told from the others by its
place only. None of them is good at defending.
"""

from collections.abc import Callable

import numpy as np

from .network import DECOYS, HOSTS, MONITOR, N_ACTIONS, N_HOSTS, SLEEP, BlueClass, Host, System

Policy = Callable[[np.random.Generator, np.ndarray, int], np.ndarray]

_LINUX = np.array([host for host in Host if HOSTS[host].system is System.LINUX])


def _possible_decoys(host: Host) -> list[int]:
    """The decoys that can start on a host, as action numbers."""
    taken = {port for process in HOSTS[host].processes for port in process.ports}
    return [
        BlueClass(BlueClass.DECOY_APACHE + i).on(host)
        for i, decoy in enumerate(DECOYS)
        if decoy.system in (None, HOSTS[host].system) and decoy.port_that_must_be_free not in taken
    ]


_POSSIBLE_DECOYS = np.array([action for host in Host for action in _possible_decoys(host)])
# Where red's shells leave suspicious process ids, with one decoy each.
_SHELL_HOSTS = np.array([Host.USER1, Host.USER2, Host.USER3, Host.USER4, Host.ENTERPRISE1, Host.ENTERPRISE2])
_SHELL_HOST_DECOYS = np.array([_possible_decoys(Host(host))[-1] for host in _SHELL_HOSTS])


def believed_compromised(observations: np.ndarray) -> np.ndarray:
    """Hosts that blue's table calls user or privileged: (n, 13) bool."""
    return observations.reshape(-1, N_HOSTS, 4)[:, :, 3] == 1


def active(observations: np.ndarray) -> np.ndarray:
    """Hosts on which something happened in the last step: (n, 13) bool."""
    return observations.reshape(-1, N_HOSTS, 4)[:, :, 0] == 1


def one_of(generator: np.random.Generator, candidates: np.ndarray) -> np.ndarray:
    """A uniformly drawn candidate host for each world, -1 where there is none: (n,)."""
    order = np.where(candidates, generator.random(candidates.shape), -1.0)
    return np.where(candidates.any(axis=1), order.argmax(axis=1), -1)


def sleep(generator: np.random.Generator, observations: np.ndarray, t: int) -> np.ndarray:
    return np.full(len(observations), SLEEP)


def uniform(generator: np.random.Generator, observations: np.ndarray, t: int) -> np.ndarray:
    """The policy `random` of the recorded returns: any of the 145 actions."""
    return generator.integers(N_ACTIONS, size=len(observations))


def react_restore(generator: np.random.Generator, observations: np.ndarray, t: int) -> np.ndarray:
    """The policy `react_restore` of the recorded traces and returns, as their actions show it.

    Restores a host that blue believes compromised, drawn from all of them; if there is none, Monitor (0.7) or
    Analyse of any host (0.3).
    """
    n = len(observations)
    host = one_of(generator, believed_compromised(observations))
    analyse = BlueClass.ANALYSE.on(generator.integers(N_HOSTS, size=n))
    idle = np.where(generator.random(n) < 0.7, MONITOR, analyse)
    return np.where(host >= 0, BlueClass.RESTORE.on(host), idle)


def react_remove(generator: np.random.Generator, observations: np.ndarray, t: int) -> np.ndarray:
    """Analyses or removes wherever something happened, so that red's user shells die and its root shells stay."""
    n = len(observations)
    host = one_of(generator, active(observations) | believed_compromised(observations))
    fix = np.where(generator.random(n) < 0.7, BlueClass.REMOVE.on(host), BlueClass.ANALYSE.on(host))
    return np.where(host >= 0, fix, MONITOR)


def decoy_spam(generator: np.random.Generator, observations: np.ndarray, t: int) -> np.ndarray:
    """All kinds of decoys on one host a world, now and then elsewhere; a Remove between them."""
    n = len(observations)
    host = np.where(generator.random(n) < 0.8, np.arange(n) % N_HOSTS, generator.integers(N_HOSTS, size=n))
    blue_class = generator.integers(BlueClass.REMOVE, BlueClass.DECOY_VSFTPD + 1, size=n)
    return 2 + N_HOSTS * blue_class + host


def stack_vsftpd(generator: np.random.Generator, observations: np.ndarray, t: int) -> np.ndarray:
    """Vsftpd upon Vsftpd on a Linux host, which has no limit; seldom a Restore or an Apache."""
    n = len(observations)
    host = _LINUX[np.arange(n) % len(_LINUX)]
    blue_class = generator.choice(
        [BlueClass.DECOY_VSFTPD, BlueClass.DECOY_APACHE, BlueClass.RESTORE, BlueClass.REMOVE],
        p=[0.85, 0.05, 0.02, 0.08],
        size=n,
    )
    return 2 + N_HOSTS * blue_class + host


def restore_and_decoy(generator: np.random.Generator, observations: np.ndarray, t: int) -> np.ndarray:
    """Restore, decoy, Remove, by turns, where something happened or else anywhere: decoys meet stale process ids."""
    n = len(observations)
    seen = one_of(generator, active(observations))
    host = np.where(seen >= 0, seen, generator.integers(N_HOSTS, size=n))
    decoy = generator.choice(_POSSIBLE_DECOYS, size=n)
    decoy_here = 2 + N_HOSTS * generator.integers(BlueClass.DECOY_APACHE, BlueClass.RESTORE, size=n) + host
    turns = (BlueClass.RESTORE.on(host), np.where(seen >= 0, decoy_here, decoy), BlueClass.REMOVE.on(host))
    return np.choose((t + np.arange(n)) % 3, turns)


def stale_ids(generator: np.random.Generator, observations: np.ndarray, t: int) -> np.ndarray:
    """Restore, decoy, Remove on one host where red gets shells: where ids most often meet by chance."""
    place = np.arange(len(observations)) % len(_SHELL_HOSTS)
    host = _SHELL_HOSTS[place]
    turns = (BlueClass.RESTORE.on(host), _SHELL_HOST_DECOYS[place], BlueClass.REMOVE.on(host))
    return turns[t % 3]


def remove_spam(generator: np.random.Generator, observations: np.ndarray, t: int) -> np.ndarray:
    """Remove of any host, and decoys for it to hit: what it does when there is nothing to kill."""
    n = len(observations)
    remove = BlueClass.REMOVE.on(generator.integers(N_HOSTS, size=n))
    return np.where(generator.random(n) < 0.7, remove, generator.choice(_POSSIBLE_DECOYS, size=n))


def late_restore(generator: np.random.Generator, observations: np.ndarray, t: int) -> np.ndarray:
    """Lets red come through to Impact, then restores Op_Server0 or an Enterprise host, so that red comes again."""
    n = len(observations)
    servers = np.array([Host.OP_SERVER0, Host.OP_SERVER0, Host.ENTERPRISE0, Host.ENTERPRISE1, Host.ENTERPRISE2])
    fix = BlueClass.RESTORE.on(generator.choice(servers, size=n))
    at_op_server = 2 + N_HOSTS * generator.integers(len(BlueClass), size=n) + Host.OP_SERVER0
    chance = generator.random(n)
    return np.where(chance < 0.06, fix, np.where(chance < 0.16, at_op_server, SLEEP))


def mixture(generator: np.random.Generator, observations: np.ndarray, t: int) -> np.ndarray:
    """In each step each world takes another policy's word."""
    advice = [policy(generator, observations, t) for policy in _PURE]
    return np.choose(generator.integers(len(_PURE), size=len(observations)), advice)


_PURE = (
    uniform,
    react_restore,
    react_remove,
    decoy_spam,
    stack_vsftpd,
    restore_and_decoy,
    stale_ids,
    remove_spam,
    late_restore,
)
POLICIES: dict[str, Policy] = {policy.__name__: policy for policy in (*_PURE, mixture)}
