"""Our backends as cases of a bench: open -> one turn is a step of all environments, with or without true states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import stockade
from stockade.bench.turns import Turn, UnavailableError, installed
from stockade.bench.worlds import BUILT_IN, PRELOAD, Factory, FreeEnv
from stockade.vector import AsyncPoolVectorEnv, make_vector
from stockade.vector.outcome import TruthRule

BACKENDS = ("native", "serial", "pipes", "shared_memory", "async", "ray")

#: How true states are got. `twice`: asked for before and after each step, as the first version did; the others are
#: options of `make_vector`, refreshed by the workers along with the step and read by the caller after it.
MODES: dict[str, TruthRule] = {
    "steps only": None,
    "twice a step": None,
    "every step": "every_step",
    "every 10 steps": 10,
    "episode end": "episode_end",
}
_ASYNC_WARM_UP = 5


def why_not(backend: str, world: str, mode: str) -> str:
    """Why there is no such case; empty if there is one."""
    if backend == "native":
        if world != "built-in":
            return "the native backend runs the built-in world only"
        if mode not in ("steps only", "twice a step"):
            return "true states of native worlds are live views of their memory: there is nothing to refresh"
    if backend in ("async", "ray") and mode == "twice a step":
        return "while environments are under way there is no moment to ask all; every step is its counterpart"
    if backend == "ray" and not installed("ray"):
        return "Ray is not installed: pip install 'stockade[ray]'"
    return ""


@contextmanager
def open_ours(backend: str, factory: Factory, n: int, mode: str = "steps only", **options: Any) -> Iterator[Turn]:
    """One of our vector environments, reset and warm."""
    with make_ours(backend, factory, n, mode, **options) as envs:
        actions = envs.action_space.sample()
        if isinstance(envs, AsyncPoolVectorEnv):
            envs.async_reset(seed=0)
            turn = partial(_receive_and_send, envs, actions, mode != "steps only")
            for _ in range(_ASYNC_WARM_UP):  # uses up what is ready from before
                turn()
            yield turn
        else:
            envs.reset(seed=0)
            yield {
                "steps only": partial(_step, envs, actions),
                "twice a step": partial(_look_twice, envs, actions),
            }.get(mode, partial(_step_and_look, envs, actions))


def make_ours(backend: str, factory: Factory, n: int, mode: str = "steps only", **options: Any) -> Any:
    """One of our vector environments."""
    if backend == "native":
        return stockade.make_vec(n, "native", **options)
    if backend == "ray" and not installed("ray"):
        raise UnavailableError("Ray is not installed: pip install 'stockade[ray]'")
    if factory is BUILT_IN and backend not in ("serial", "ray"):
        options.setdefault("preload", PRELOAD)  # as make_vec does
    return make_vector(backend, factory, n, true_states=MODES[mode], **options)


@contextmanager
def ray_kept() -> Iterator[None]:
    """Ray runs until the end of this, so that not every case starts it anew: an idle environment keeps it."""
    with make_ours("ray", FreeEnv, 1):
        yield


def _step(envs: Any, actions: Any) -> int:
    envs.step(actions)
    return len(actions)


def _look_twice(envs: Any, actions: Any) -> int:
    envs.true_state()
    envs.step(actions)
    envs.true_state()
    return len(actions)


def _step_and_look(envs: Any, actions: Any) -> int:
    envs.step(actions)
    envs.true_state()
    return len(actions)


def _receive_and_send(envs: AsyncPoolVectorEnv, actions: Any, look: bool) -> int:
    *_, infos = envs.recv()
    env_id = infos["env_id"]
    if look:
        envs.true_state()
    envs.send(actions[env_id], env_id)
    return len(env_id)
