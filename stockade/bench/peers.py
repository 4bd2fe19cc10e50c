"""What people use today: other libraries' vector environments, and other simulators of the same game.

Each is optional; what is not installed raises `UnavailableError` with what to install.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import multiprocessing
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from stockade.bench.runner import Turn, UnavailableError
from stockade.bench.worlds import HORIZON, Factory
from stockade.cores import available_cores

_JOIN_SECONDS = 5.0


# ------------------------------------------------------------------------------------ vector environments of others
def _sb3(kind: str, factory: Factory, n: int, **options: Any) -> Any:
    _module("stable_baselines3.common.env_util", "stable-baselines3")  # else each of its workers would import it
    vec_env = _module("stable_baselines3.common.vec_env", "stable-baselines3")
    return getattr(vec_env, kind)([factory] * n, **options)


def _pufferlib(factory: Factory, n: int) -> Any:
    """Several environments per process in shared memory, workers that never sleep."""
    vector, emulation = (_module(f"pufferlib.{name}", "pufferlib") for name in ("vector", "emulation"))
    workers = max(k for k in range(1, available_cores() + 1) if n % k == 0)  # it wants equal shares
    creator = partial(emulation.GymnasiumPufferEnv, env_creator=factory)
    return vector.make(creator, backend=vector.Multiprocessing, num_envs=n, num_workers=workers)


PEERS: dict[str, Callable[[Factory, int], Any]] = {
    "Gymnasium SyncVectorEnv": lambda factory, n: SyncVectorEnv([factory] * n),
    "Gymnasium AsyncVectorEnv": lambda factory, n: AsyncVectorEnv([factory] * n, context="fork"),
    "Stable-Baselines3 DummyVecEnv": partial(_sb3, "DummyVecEnv"),
    "Stable-Baselines3 SubprocVecEnv": partial(_sb3, "SubprocVecEnv", start_method="fork"),
    "PufferLib": _pufferlib,
}
"""Make another library's vector environment."""
#: Those with a process for each environment.
MANY_PROCESSES = ("Gymnasium AsyncVectorEnv", "Stable-Baselines3 SubprocVecEnv")


def why_no_peer(peer: str, mode: str = "steps only") -> str:
    """Why there is no such case; empty if there is one."""
    package = "stable_baselines3" if peer.startswith("Stable") else peer.split()[0].lower()
    if not installed(package):
        return f"{peer.split()[0]} is not installed: pip install {package.replace('_', '-')}"
    if peer == "PufferLib" and mode != "steps only":
        return "PufferLib has no call to its environments"
    if mode not in ("steps only", "twice a step"):
        return f"other libraries know nothing of true states {mode}"
    return ""


def installed(package: str) -> bool:
    """Whether a package can be imported; a mere folder of that name, which Python would take for one, cannot."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


@contextmanager
def open_peer(peer: str, factory: Factory, n: int) -> Iterator[Any]:
    """Another library's vector environment, reset and ready."""
    with _quietly(), no_child_left():
        with interrupts_later():
            envs = PEERS[peer](factory, n)
        if peer.startswith("Stable"):
            envs.seed(0)
            envs.reset()
        else:
            envs.reset(seed=0)
        yield envs
        envs.close()


# --------------------------------------------------------------------------------------------------- other simulators
@contextmanager
def open_envpool(n: int) -> Iterator[Turn]:
    """EnvPool's own CartPole: the yardstick of a pool written in C++."""
    envpool = _module("envpool", "envpool")
    envs = envpool.make_gymnasium("CartPole-v1", num_envs=n, num_threads=available_cores(), seed=0)
    actions = np.zeros(n, np.int32)
    with contextlib.closing(envs):
        envs.reset()
        yield lambda: len(envs.step(actions)[1])


@contextmanager
def open_minicage(n: int) -> Iterator[Turn]:
    """MiniCAGE: the same game in vectorised NumPy, with other actions and observations; all worlds begin together."""
    package = _module("mini_CAGE", "the mini_CAGE folder of CybORG_plus_plus, put on PYTHONPATH")
    envs, red = package.SimplifiedCAGE(num_envs=n), package.B_line_minimal()
    actions = np.random.default_rng(0).integers(0, 53, (HORIZON, n, 1))
    state, now = envs.reset()[0], 0

    def turn() -> int:
        nonlocal state, now
        if now == HORIZON:
            state, now = envs.reset()[0], 0
        state, *_ = envs.step(blue_action=actions[now], red_action=red.get_action(observation=state["Red"]))
        now += 1
        return n

    with contextlib.redirect_stdout(io.StringIO()):
        yield turn


def cyborg_factory() -> Factory:
    """Makes environments of the reference simulator itself.

    Raises:
        UnavailableError: it is not installed.
    """
    from stockade.integrations.cyborg import CybORGEnv, load_reference

    try:
        load_reference()
    except ImportError as error:
        raise UnavailableError(str(error)) from error
    return partial(CybORGEnv, "bline", HORIZON)


# --------------------------------------------------------------------------------------------------------------- help
@contextmanager
def no_child_left() -> Iterator[None]:
    """End the processes that were started inside and are still there: others' close() may have failed half-way."""
    before = set(multiprocessing.active_children())
    try:
        yield
    finally:
        late = [child for child in multiprocessing.active_children() if child not in before]
        if len(late) == 1:
            late[0].join(0.1)
        for process in late:
            process.terminate()
        for process in late:
            process.join(_JOIN_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Let Ctrl-C wait while processes are forked: in the middle of a fork it can get lost.

    The children inherit that, so that it ends only the main process, which then ends them.
    """
    if threading.current_thread() is not threading.main_thread():  # it is never interrupted
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _quietly() -> Iterator[None]:
    """Their hints to the user, such as of Gym's end, are not for ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _module(name: str, package: str) -> Any:
    """Import a module, from within a folder of no importance: PufferLib puts a link into the current one."""
    try:
        with (_quietly(), contextlib.redirect_stderr(io.StringIO()), tempfile.TemporaryDirectory() as folder,
              contextlib.chdir(folder)):  # fmt: skip
            return importlib.import_module(name)
    except ImportError as error:
        raise UnavailableError(f"{name.split('.')[0]} cannot be imported ({error}): pip install {package}") from error
