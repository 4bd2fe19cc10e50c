"""Our backends and other libraries' as cases: name, number, world, mode -> an open environment -> its calls -> a turn.

Everything of ours is opened by `stockade.make_vec`, so that a figure is of what a user gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

import stockade
from stockade.bench.peers import PEERS, installed, open_peer, why_no_peer
from stockade.bench.runner import Turn
from stockade.bench.worlds import BUILT_IN, Factory, FreeEnv

PROCESS_BACKENDS = ("pipes", "shared_memory", "async")
LOCAL_BACKENDS = ("serial", *PROCESS_BACKENDS)
EACH = ", a worker each"
"""After the name of a backend: as many workers as environments, in place of one per core."""

#: How true states are got. `twice a step`: asked for before and after each step, as the first version did; the others
#: are options of `make_vec`, refreshed by the workers along with the step and read by the caller after it.
MODES: dict[str, Any] = {
    "steps only": None,
    "twice a step": None,
    "every step": "every_step",
    "every 10 steps": 10,
    "episode end": "episode_end",
}
_ASYNC_WARM_UP = 5

Calls = list[tuple[bool, Callable[[], int]]]
"""Of one turn: whether a call is for true states alone, and the call, which returns how many steps it made."""


def why_not(backend: str, world: str = "built-in", mode: str = "steps only") -> str:
    """Why there is no such case; empty if there is one."""
    if backend in PEERS:
        return why_no_peer(backend, mode)
    if backend == "native":
        if world != "built-in":
            return "the native backend runs the built-in world only"
        if mode not in ("steps only", "twice a step"):
            return "true states of native worlds are live views of their memory: there is nothing to refresh"
    if backend in ("async", "ray") and mode == "twice a step":
        return "while environments are in flight there is no moment to ask all; every step is its counterpart"
    if backend == "ray" and not installed("ray"):
        return "Ray is not installed: pip install 'stockade[ray]'"
    return ""


@contextmanager
def open_envs(backend: str, n: int, factory: Factory = BUILT_IN, mode: str = "steps only", **options: Any) -> Iterator:
    """A vector environment of ours or of another library, reset and ready."""
    if backend in PEERS:
        with open_peer(backend, factory, n) as envs:
            yield envs
        return
    if backend.endswith(EACH):
        options["workers"] = n
    if MODES[mode] is not None:
        options["true_states"] = MODES[mode]
    if factory is not BUILT_IN:
        options["env"] = factory
    ours: Any = stockade.make_vec(n, backend.removesuffix(EACH), **options)
    with ours as envs:
        (envs.async_reset if backend == "async" else envs.reset)(seed=0)
        yield envs


def worker_pids(envs: Any) -> list[int]:
    """Processes of an open vector environment; none if it runs in this one."""
    return list(getattr(envs, "worker_pids", None) or [process.pid for process in getattr(envs, "processes", ())])


def calls_of(envs: Any, backend: str, n: int, mode: str = "steps only") -> Calls:
    """What one turn calls; of `async` a turn is one batch."""
    theirs = backend in PEERS
    actions = np.zeros(n, np.int64) if theirs else envs.action_space.sample()

    def step() -> int:
        envs.step(actions)
        return n

    def receive_and_send() -> int:
        *_, infos = envs.recv()
        env_id = infos["env_id"]
        if mode != "steps only":
            envs.true_state()
        envs.send(actions[env_id], env_id)
        return len(env_id)

    fetch: Callable[[], Any] = getattr(envs, "true_state", lambda: None)
    if theirs:
        fetch = partial(getattr(envs, "env_method", None) or envs.call, "true_state") if mode != "steps only" else fetch

    def ask() -> int:
        fetch()
        return 0

    if backend == "async":
        return [(False, receive_and_send)]
    if mode == "steps only":
        return [(False, step)]
    return [(True, ask), (False, step), (True, ask)] if mode == "twice a step" else [(False, step), (True, ask)]


@contextmanager
def open_turn(
    backend: str, n: int, factory: Factory = BUILT_IN, mode: str = "steps only", **options: Any
) -> Iterator[Turn]:
    """One turn is a step of all environments (of `async`: of a batch), with or without true states."""
    with open_envs(backend, n, factory, mode, **options) as envs:
        calls = [call for _, call in calls_of(envs, backend, n, mode)]
        for _ in range(_ASYNC_WARM_UP if backend == "async" else 0):  # uses up what is ready from before
            calls[0]()
        yield calls[0] if len(calls) == 1 else lambda: sum(call() for call in calls)


@contextmanager
def ray_kept() -> Iterator[None]:
    """Ray runs until the end of this, so that not every case starts it anew: an idle environment keeps it."""
    envs: Any = stockade.make_vec(1, "ray", env=FreeEnv)
    with envs:
        yield
