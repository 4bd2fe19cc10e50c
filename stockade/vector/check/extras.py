"""What Stockade promises beyond Gymnasium, a rule a function; skipped where a vector environment does not have it."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError, ResetNeeded
from gymnasium.vector import AutoresetMode

from stockade.vector.check.trial import NotApplicable, Trial, actions_for, left_behind, mode_of, plain
from stockade.vector.spaces import tree_map

_PATIENCE = 20.0
"""Seconds: libraries under a backend, such as Ray, close their connections a little after the backend is closed."""


def call_order(trial: Trial) -> None:
    """A step before the first reset, or anything after close, raises Gymnasium's errors."""
    trial.only_strict("Gymnasium leaves the errors for a wrong order of calls to the environments")
    envs = trial.open_new()
    (actions,) = actions_for(envs, 1, trial.seed)
    with trial.expect((ResetNeeded,), "a step before the first reset"):
        envs.step(actions)
    envs.close()
    with trial.expect((ClosedEnvironmentError,), "a step after close"):
        envs.step(actions)
    with trial.expect((ClosedEnvironmentError,), "a reset after close"):
        envs.reset()


def bad_actions(trial: Trial) -> None:
    """Bad actions are refused by name, before any environment is touched."""
    trial.only_strict("Gymnasium leaves the checking of actions to the environments")
    envs, twin = trial.open(), trial.open()
    refusal = (gymnasium.error.InvalidAction, ValueError)
    first, *rest = actions_for(envs, 5, trial.seed)
    if not isinstance(first, np.ndarray):
        raise NotApplicable("actions are no single array")
    envs.reset(seed=trial.seed)
    twin.reset(seed=trial.seed)
    with trial.expect(refusal, "too few actions"):
        envs.step(first[:-1])
    with trial.expect(refusal, "actions of a wrong shape"):
        envs.step(first[..., None])
    with trial.expect(refusal, "an action that is NaN", "" if first.dtype.kind != "f" else f"{envs.num_envs - 1}"):
        bad = first.astype(np.float64)
        bad[-1] = np.nan
        envs.step(bad)
    if isinstance(envs.single_action_space, gymnasium.spaces.Discrete):
        for value in (envs.single_action_space.start - 1, envs.single_action_space.start + envs.single_action_space.n):
            bad = first.astype(np.int64)
            bad[-1] = value
            with trial.expect(refusal, f"the action {value}", f"{envs.num_envs - 1}"):
                envs.step(bad)
    for actions in (first, *rest):
        after = plain(envs.step(actions)[:4])
        trial.require(after == plain(twin.step(actions)[:4]), "refused actions changed the environments")


def calls(trial: Trial) -> None:
    """`call`, `get_attr` and `set_attr` reach every environment."""
    envs: Any = trial.open()
    if not hasattr(envs, "call"):
        raise NotApplicable("no call()")
    envs.reset(seed=trial.seed)
    trial.require(len(envs.get_attr("spec")) == envs.num_envs, "get_attr must give one value an environment")
    envs.set_attr("checked_by_stockade", list(range(envs.num_envs)))
    found = envs.get_attr("checked_by_stockade")
    trial.require(found == tuple(range(envs.num_envs)), f"set_attr of a list, then get_attr, gave {found}")
    envs.set_attr("checked_by_stockade", "all")
    trial.require(envs.call("checked_by_stockade") == ("all",) * envs.num_envs, "set_attr of one value is for all")
    with trial.expect((ValueError,), "set_attr with too few values"):
        envs.set_attr("checked_by_stockade", [0] * (envs.num_envs + 1))
    if not trial.strict:  # Gymnasium's AsyncVectorEnv is of no use after this
        return
    with trial.expect((AttributeError,), "an attribute that does not exist"):
        envs.get_attr("no_such_attribute")
    envs.step(actions_for(envs, 1, trial.seed)[0])


def true_states(trial: Trial) -> None:
    """`true_state()` has a row an environment, does not disturb the run, and says how old its rows are."""
    envs, twin = _with(trial, "true_state")
    envs.reset(seed=trial.seed)
    try:
        states = envs.true_state()
    except NotImplementedError as reason:
        raise NotApplicable(str(reason)) from None
    if hasattr(states, "age"):
        trial.require(states.age.shape == (envs.num_envs,), f"age has shape {states.age.shape}")
        trial.require(len(states) == envs.num_envs, f"there are {len(states)} true states")
    run = actions_for(envs, min(trial.steps, 30), trial.seed)
    envs.reset(seed=trial.seed)
    twin.reset(seed=trial.seed)
    for actions in run:
        envs.true_state()
        trial.require(_steps(envs, [actions]) == _steps(twin, [actions]), "looking at true states changed the run")


def snapshots(trial: Trial) -> None:
    """After `restore(snapshot())` the same actions give the same bits."""
    envs, _ = _with(trial, "snapshot")
    run = actions_for(envs, min(trial.steps, 30), trial.seed)
    envs.reset(seed=trial.seed)
    envs.step(run[0])
    try:
        snapshot = envs.snapshot()
    except (NotImplementedError, AttributeError) as reason:
        raise NotApplicable(str(reason).splitlines()[0]) from None
    first = _steps(envs, run[1:])
    envs.restore(snapshot)
    trial.require(first == _steps(envs, run[1:]), "after restore() the same actions gave another run")


def context_manager(trial: Trial) -> None:
    """`with` closes."""
    envs: Any = trial.open()
    if not hasattr(envs, "__enter__"):
        raise NotApplicable("no context manager")
    with envs as entered:
        trial.require(entered is envs, "`with envs as x` must give envs itself")
    trial.require(envs.closed, "`with` must close")


def send_and_recv(trial: Trial) -> None:
    """The asynchronous interface: each environment's own run is the same as in `step`, and nobody starves."""
    envs, twin = _with(trial, "recv")
    if mode_of(envs) is AutoresetMode.DISABLED:
        raise NotApplicable("needs autoreset")
    n, run = envs.num_envs, actions_for(envs, trial.steps, trial.seed)
    envs.reset(seed=trial.seed)
    with trial.expect((NoAsyncCallError,), "recv when nothing was sent"):
        envs.recv()
    envs.async_reset(seed=trial.seed)
    with trial.expect((AlreadyPendingCallError,), "a step while environments are under way"):
        envs.step(run[0])
    with trial.expect((AlreadyPendingCallError,), "send to environments that are under way"):
        envs.send(run[0], list(range(n)))
    rows: list[list[Any]] = [[] for _ in range(n)]
    budget = 100 * n * (trial.steps + 1)
    while min(map(len, rows)) <= trial.steps:
        *values, infos = envs.recv()
        ids = infos["env_id"].tolist()
        trial.require(0 < len(ids) <= envs.batch_size and len(set(ids)) == len(ids), f"env_id is {ids}")
        for place, i in enumerate(ids):
            rows[i].append(_row(values, place))
        budget -= len(ids)
        trial.require(budget > 0, f"some environments starve: steps so far {list(map(len, rows))}")
        chosen = [run[min(len(rows[i]), trial.steps) - 1][i] for i in ids]
        envs.send(np.array(chosen), ids)
    twin.reset(seed=trial.seed)
    for step, actions in enumerate(run, start=1):
        values = list(twin.step(actions)[:4])
        for i in range(n):
            trial.require(rows[i][step] == _row(values, i), f"step {step} of environment {i} is not that of step()")


def nothing_left(trial: Trial) -> None:
    """After close there are no more processes and descriptors than before."""
    _use_and_close(trial)  # the first time may start helpers of multiprocessing that stay
    before = left_behind()
    _use_and_close(trial)
    deadline = time.monotonic() + _PATIENCE
    while (after := left_behind()) > before and time.monotonic() < deadline:
        time.sleep(0.05)
    trial.require(after <= before, f"(children, descriptors) were {before} before and {after} after")


EXTRA_RULES = (
    call_order,
    bad_actions,
    calls,
    true_states,
    snapshots,
    context_manager,
    send_and_recv,
    nothing_left,
)


def _with(trial: Trial, method: str) -> tuple[Any, Any]:
    envs: Any = trial.open()
    if not hasattr(envs, method):
        raise NotApplicable(f"no {method}()")
    return envs, trial.open()


def _steps(envs: Any, run: list[Any]) -> list[Any]:
    record = []
    for actions in run:
        values = envs.step(actions)
        record.append(plain(values[:4]))
        over = values[2] | values[3]
        if mode_of(envs) is AutoresetMode.DISABLED and over.any():
            record.append(plain(envs.reset(options={"reset_mask": over})[0]))
    return record


def _row(values: list[Any], place: int) -> Any:
    """One environment's part of a step, comparable."""
    return plain(tree_map(lambda array: array[place], tuple(values)))


def _use_and_close(trial: Trial) -> None:
    envs = trial.make()
    try:
        envs.reset(seed=trial.seed)
        envs.step(actions_for(envs, 1, trial.seed)[0])
    finally:
        envs.close()
