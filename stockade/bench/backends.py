"""Our backends and what people use today: other libraries' vector environments, other simulators of the same game.

backend, number, world, mode -> why not, or an open environment -> its calls -> a turn -> a case. Everything of ours is
opened by `stockade.make_vec`, so that a figure is of what a user gets. All others are optional.
"""

import contextlib
import importlib
import importlib.util
import io
import multiprocessing
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import stockade
from stockade.bench.result import Tags
from stockade.bench.runner import Case, Sample, Turn, frozen_heap, rate
from stockade.bench.worlds import BUILT_IN, CYBORG, HORIZON, WORLDS, Factory, fixed_cost
from stockade.cores import available_cores
from stockade.integrations.cyborg import load_reference
from stockade.vector.local.machine import interrupts_held

LOCAL = ("serial", "pipes", "shared_memory", "async")  # our backends on this machine
ALONE = "processes without a vector environment"
EACH = ", a worker each"  # After the name of a backend: as many workers as environments, in place of one per core
#: How true states are got. `twice a step`: asked for before and after each step, as the first version did; the others
#: are options of `make_vec`, refreshed by the workers along with the step and read by the caller after it.
MODES: dict[str, Any] = {
    "steps only": None,
    "twice a step": None,
    "every step": "every_step",
    "every 10 steps": 10,
    "episode end": "episode_end",
}
#: What some names begin with: the package that is needed, and how to get it.
_PACKAGES = {
    "ray": ("ray", "pip install 'stockade[ray]'"),
    "PufferLib": ("pufferlib", "pip install pufferlib"),
    "Stable-Baselines3": ("stable_baselines3", "pip install stable-baselines3"),
    "SBX": ("sbx", "pip install 'stockade[peers]'"),
    "rejax": ("rejax", "pip install 'stockade[peers]'"),
    "EnvPool": ("envpool", "pip install envpool"),
    "MiniCAGE": ("mini_CAGE", "put the mini_CAGE folder of CybORG_plus_plus on PYTHONPATH"),
}
#: Of one turn: whether it is for true states alone, and the call; that of `async` returns how many steps it made.
Calls = list[tuple[bool, Callable[[], Any]]]


class Opened(NamedTuple):
    """A vector environment that is ready."""

    envs: Any
    calls: Calls
    pids: list[int]  # of its workers; none if it runs in this process

    def step(self) -> Any:
        """The call for a step, in the mode `steps only`."""
        return self.calls[0][1]()


# ----------------------------------------------------------------------------------------------------- other libraries
def _sb3(kind: str, factory: Factory, n: int, **options: Any) -> Any:
    _module("stable_baselines3.common.env_util")  # else each of its workers would import it
    envs = getattr(_module("stable_baselines3.common.vec_env"), kind)([factory] * n, **options)
    envs.seed(0)
    return envs


def _pufferlib(factory: Factory, n: int) -> Any:
    """Several environments per process in shared memory, workers that never sleep."""
    vector, emulation = (_module(f"pufferlib.{name}") for name in ("vector", "emulation"))
    workers = max(k for k in range(1, available_cores() + 1) if n % k == 0)  # it wants equal shares
    creator = partial(emulation.GymnasiumPufferEnv, env_creator=factory)
    return vector.make(creator, backend=vector.Multiprocessing, num_envs=n, num_workers=workers)


PEERS: dict[str, Callable[[Factory, int], Any]] = {  # Make another library's vector environment
    "Gymnasium SyncVectorEnv": lambda factory, n: SyncVectorEnv([factory] * n),
    "Gymnasium AsyncVectorEnv": lambda factory, n: AsyncVectorEnv([factory] * n, context="fork"),
    "Stable-Baselines3 DummyVecEnv": partial(_sb3, "DummyVecEnv"),
    "Stable-Baselines3 SubprocVecEnv": partial(_sb3, "SubprocVecEnv", start_method="fork"),
    "PufferLib": _pufferlib,
}
MANY_PROCESSES = ("Gymnasium AsyncVectorEnv", "Stable-Baselines3 SubprocVecEnv")  # one for each environment


@contextlib.contextmanager
def _envpool(n: int, _: Factory) -> Iterator[Turn]:
    """EnvPool's own CartPole: the yardstick of a pool written in C++."""
    envs = _module("envpool").make_gymnasium("CartPole-v1", num_envs=n, num_threads=available_cores(), seed=0)
    actions = np.zeros(n, np.int32)
    with contextlib.closing(envs):
        envs.reset()
        yield lambda: len(envs.step(actions)[1])


@contextlib.contextmanager
def _minicage(n: int, _: Factory) -> Iterator[Turn]:
    """MiniCAGE: the same game in vectorised NumPy, with other actions and observations; all worlds begin together."""
    package = _module("mini_CAGE")
    envs, red = package.SimplifiedCAGE(num_envs=n), package.B_line_minimal()
    actions = np.random.default_rng(0).integers(0, 53, (HORIZON, n, 1))

    def play() -> Iterator[int]:
        while True:
            state, *_ = envs.reset()
            for chosen in actions:
                state, *_ = envs.step(blue_action=chosen, red_action=red.get_action(observation=state["Red"]))
                yield n

    with contextlib.redirect_stdout(io.StringIO()):
        yield partial(next, play())


@contextlib.contextmanager
def _processes_alone(n: int, factory: Factory) -> Iterator[Turn]:
    """One process per core steps its share a few times over, and only then reports: nothing can be better."""
    cores, times = available_cores(), 20
    shares = [(factory, n // cores * times)] * cores
    with interrupts_held():
        processes = multiprocessing.get_context("fork").Pool(cores)
    with processes as pool:
        pool.starmap(_step_alone, shares, chunksize=1)
        yield lambda: sum(pool.starmap(_step_alone, shares, chunksize=1))


def _step_alone(factory: Factory, steps: int) -> int:
    env = factory()
    env.reset(seed=0)
    for _ in range(steps):
        env.step(np.int64(0))
    return steps


OTHERS = {"MiniCAGE": "MiniCAGE", "CartPole": "EnvPool"}  # Simulators without a choice of backends, by world
_OPEN_OTHERS = {"MiniCAGE": _minicage, "EnvPool": _envpool, ALONE: _processes_alone}


def installed(package: str) -> bool:
    """Whether a package can be imported; a mere folder of that name, which Python would take for one, cannot."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


def _module(name: str) -> Any:
    """Import a module, from within a folder of no importance: PufferLib puts a link into the current one."""
    with (warnings.catch_warnings(action="ignore"), contextlib.redirect_stderr(io.StringIO()),
          tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder)):  # fmt: skip
        return importlib.import_module(name)


@contextlib.contextmanager
def no_child_left() -> Iterator[None]:
    """End the processes that were started inside and are still there: others' close() may have failed half-way."""
    before = set(multiprocessing.active_children())
    try:
        yield
    finally:
        for process in set(multiprocessing.active_children()) - before:
            process.kill()
            process.join()


# ---------------------------------------------------------------------------------------------------------- one for all
def why_not(backend: str, factory: Factory = BUILT_IN, mode: str = "steps only") -> str:
    """Why there is no such case; empty if there is one."""
    for start, (package, source) in _PACKAGES.items():
        if backend.startswith(start) and not installed(package):
            return f"{start} is not installed: {source}"
    if factory is CYBORG:
        try:
            load_reference()
        except ImportError as error:
            return str(error)
    on_demand = mode in ("steps only", "twice a step")
    reasons = {
        "the native backend runs the built-in world only": backend == "native" and factory is not BUILT_IN,
        "true states of native worlds are live views of their memory: there is nothing to refresh":
            backend == "native" and not on_demand,
        "while environments are in flight there is no moment to ask all; every step is its counterpart":
            backend in ("async", "ray") and mode == "twice a step",
        "PufferLib has no call to its environments": backend == "PufferLib" and mode != "steps only",
        f"other libraries know nothing of true states {mode}": backend in PEERS and not on_demand,
    }  # fmt: skip
    return next((reason for reason, applies in reasons.items() if applies), "")


@contextlib.contextmanager
def open_envs(
    backend: str, n: int, factory: Factory = BUILT_IN, mode: str = "steps only", **options: Any
) -> Iterator[Opened]:
    """A vector environment of ours or of another library, reset."""
    if backend in PEERS:
        with warnings.catch_warnings(action="ignore"), no_child_left():
            with interrupts_held():
                envs = PEERS[backend](factory, n)
            envs.reset(**{} if backend.startswith("Stable") else {"seed": 0})
            pids = [process.pid for process in getattr(envs, "processes", ())]
            yield Opened(envs, _calls(envs, backend, n, mode), pids)
            envs.close()
        return
    if backend.endswith(EACH):
        options["workers"] = n
    if MODES[mode] is not None:
        options["true_states"] = MODES[mode]
    if factory is not BUILT_IN:
        options["env"] = factory
    ours: Any = stockade.make_vec(n, backend.removesuffix(EACH), **options)
    with ours:
        (ours.async_reset if backend == "async" else ours.reset)(seed=0)
        yield Opened(ours, _calls(ours, backend, n, mode), list(getattr(ours, "worker_pids", None) or ()))


def _calls(envs: Any, backend: str, n: int, mode: str) -> Calls:
    """What one turn calls."""
    theirs = backend in PEERS
    actions = np.zeros(n, np.int64) if theirs else envs.action_space.sample()

    def receive_and_send() -> int:
        *_, infos = envs.recv()
        env_id = infos["env_id"]
        if mode != "steps only":
            envs.true_state()
        envs.send(actions[env_id], env_id)
        return len(env_id)

    def ask() -> None:
        (getattr(envs, "env_method", None) or envs.call)("true_state") if theirs else envs.true_state()

    if backend == "async":
        return [(False, receive_and_send)]
    before, after = mode == "twice a step", mode != "steps only"
    return [(True, ask)] * before + [(False, partial(envs.step, actions))] + [(True, ask)] * after


@contextlib.contextmanager
def open_turn(backend: str, n: int, *arguments: Any, **options: Any) -> Iterator[Turn]:
    """One turn is a step of all environments (of `async`: of a batch), with or without true states."""
    with open_envs(backend, n, *arguments, **options) as opened:

        def turn() -> int:
            for _, call in opened.calls:
                made = call()
            return made if backend == "async" else n

        for _ in range(5 if backend == "async" else 0):  # uses up what is ready from before
            turn()
        yield turn


def env_cases(seconds: float, factory: Factory | None = None, copy: bool = True, **tags: Any) -> list[Case]:
    """Steps per second of every combination of tags, of which those that are tuples have several values.

    The tags backend, n_envs, mode, workers and threads say how environments are run, world or step_us which they are.
    """
    values = [tag if isinstance(tag, tuple) else (tag,) for tag in tags.values()]
    return [_env_case(dict(zip(tags, chosen, strict=True)), seconds, factory, copy) for chosen in product(*values)]


def _env_case(tags: Tags, seconds: float, factory: Factory | None, copy: bool) -> Case:
    backend, n, mode = tags["backend"], tags["n_envs"], tags.get("mode", "steps only")
    if factory is None:
        factory = fixed_cost(tags["step_us"]) if "step_us" in tags else WORLDS.get(tags.get("world", ""), BUILT_IN)
    options = {name: tags[name] for name in ("workers", "threads") if tags.get(name, "default") != "default"}
    other, options = _OPEN_OTHERS.get(backend), options if copy else {**options, "copy": False}
    opening = partial(other, n, factory) if other else partial(open_turn, backend, n, factory, mode, **options)
    least = n * MODES[mode] if isinstance(MODES[mode], int) else 1  # a round without a true state would tell nothing

    def round_() -> list[Sample]:
        with opening() as turn, frozen_heap():
            return [Sample("steps/s", rate(turn, seconds, least))]

    return Case(tags, round_, why_not(backend, factory, mode), backend in (*PEERS, *OTHERS.values(), "ray"))
