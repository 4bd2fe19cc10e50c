"""The rules, one per function: Gymnasium's contract for every vector environment, then what Stockade promises besides.

A rule that does not apply to a vector environment is skipped, with the reason.
"""

import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError, ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from stockade.vector.check.trial import NotApplicable, Trial, episodes, left_behind, mode_of, plain, play, rollout
from stockade.vector.spaces import rows_of

_REFUSALS = (TypeError, ValueError, AssertionError)
_PATIENCE = 20.0
"""Seconds: libraries under a backend, such as Ray, close their connections a little after the backend is closed."""


# ------------------------------------------------------------------------------------------------ Gymnasium's contract
def metadata(trial: Trial) -> None:
    """Number of environments, autoreset mode, batched spaces."""
    envs = trial.open()
    trial.require(isinstance(envs.num_envs, int) and envs.num_envs >= 1, f"num_envs is {envs.num_envs!r}")
    mode_of(envs)
    for name in ("observation_space", "action_space"):
        space, expected = getattr(envs, name), batch_space(getattr(envs, f"single_{name}"), envs.num_envs)
        trial.require(space == expected, f"{name} is {space}, but {envs.num_envs} times single_{name} is {expected}")


def shapes(trial: Trial) -> None:
    """Observations in their space; rewards float (n,), flags bool (n,), infos a dictionary."""
    envs = trial.open()
    for values in episodes(envs, trial.seed, trial.actions(envs)):
        name = "step" if len(values) == 5 else "reset"
        trial.require(values[0] in envs.observation_space, f"the observations of {name} are not in observation_space")
        if name == "step":
            for place, kind, letter in ((1, "rewards", "f"), (2, "terminations", "b"), (3, "truncations", "b")):
                _check_array(trial, kind, values[place], envs.num_envs, letter)
        trial.require(isinstance(values[-1], dict), f"the infos of {name} are no dict but {type(values[-1]).__name__}")
        _check_masks(trial, values[-1], envs.num_envs)


def copies(trial: Trial) -> None:
    """What a step returned is not changed by later ones."""
    envs = trial.open()
    if not getattr(envs, "copy", getattr(envs, "_copy", True)):
        raise NotApplicable("made with copy=False")
    kept: list[tuple[Any, Any]] = []
    for values in episodes(envs, trial.seed, trial.actions(envs, 20)):
        kept += [(value, plain(value)) for value in values[:-1]]
    trial.require(all(plain(value) == was for value, was in kept), "returned arrays are overwritten by later steps")


def single_environments(trial: Trial) -> None:
    """The same numbers and infos, to the bit, as single environments give, stepped by Gymnasium one after the other."""
    if trial.single is None:
        raise NotApplicable("no `single` given to compare with")
    envs = trial.open()
    actions = trial.actions(envs)
    reference = SyncVectorEnv([trial.single] * envs.num_envs, autoreset_mode=mode_of(envs))
    try:
        ours, theirs = rollout(envs, trial.seed, actions), rollout(reference, trial.seed, actions)
    finally:
        reference.close()
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        trial.require(one == other, f"value {place} of a run is {one}, single environments give {other}")


def seeds(trial: Trial) -> None:
    """Seeds give runs: equal ones equal runs, other ones other runs; no seed continues."""
    envs, twin = trial.open(), trial.open()
    actions = trial.actions(envs)
    each: Any = [trial.seed + i for i in range(envs.num_envs)]
    first = rollout(envs, trial.seed, actions, infos=False)
    for place, seed, problem in (
        (envs, trial.seed, "the same seed gave another run, later on"),
        (twin, trial.seed, "the same seed gave another run elsewhere"),
        (twin, each, "seed=s is not the same as [s, s + 1, ...]"),
    ):
        trial.require(first == rollout(place, seed, actions, infos=False), problem)
    other = rollout(envs, trial.seed + 1000, actions, infos=False)
    trial.require(first != other, "another seed gave the same run (or the environments are not random at all)")
    following = rollout(envs, None, actions, infos=False)
    trial.require(following not in (first, other), "a reset without a seed repeated an earlier run")
    with trial.expect(_REFUSALS, "a list of seeds that is too long"):
        envs.reset(seed=[*each, 0])


def autoreset(trial: Trial) -> None:
    """What happens at the end of an episode, in the mode that the metadata name."""
    envs = trial.open()
    mode = mode_of(envs)
    envs.reset(seed=trial.seed)
    over = np.zeros(envs.num_envs, np.bool_)
    ended = 0
    for actions in trial.actions(envs):
        before = over
        _, rewards, terminated, truncated, infos = envs.step(actions)
        over = terminated | truncated
        ended += int(over.sum())
        if mode is AutoresetMode.NEXT_STEP:
            trial.require(not rewards[before].any(), "the step that resets must give reward 0")
            trial.require(not (over & before).any(), "the step that resets must not end an episode")
        elif mode is AutoresetMode.SAME_STEP:
            for key in ("final_obs", "final_info"):
                mask = infos.get(f"_{key}", np.zeros_like(over))
                trial.require((mask == over).all(), f"_{key} is {mask}, the episodes that ended are {over}")
            for i in np.flatnonzero(over):
                fits = infos["final_obs"][i] in envs.single_observation_space
                trial.require(fits, f"final_obs of environment {i} is not in its space")
        elif over.any():
            if trial.strict:  # Gymnasium's AsyncVectorEnv steps on
                with trial.expect((AssertionError, ResetNeeded), "a step after the end"):
                    envs.step(actions)
            envs.reset(options={"reset_mask": over})
            over = np.zeros_like(over)
    trial.require(ended, f"no episode ended in {trial.steps} steps: give a larger `steps` or shorter episodes")


def reset_masks(trial: Trial) -> None:
    """`options["reset_mask"]` resets those environments and no others; a bad one is refused."""
    envs = trial.open()
    n = envs.num_envs
    envs.reset(seed=trial.seed)
    before, *_ = envs.step(trial.actions(envs, 1)[0])
    kept = plain(before)
    mask = np.arange(n) == 0
    after, infos = envs.reset(seed=trial.seed, options={"reset_mask": mask})
    trial.require(after in envs.observation_space, "the observations of a masked reset are not in observation_space")
    _check_masks(trial, infos, n)
    trial.require(plain(before) == kept or not getattr(envs, "copy", True), "a masked reset changed older arrays")
    expected, _ = envs.reset(seed=trial.seed)
    for rows, wanted, problem in (
        (slice(1, None), before, "a masked reset changed observations of other environments"),
        (slice(1), expected, "a masked reset with a seed is not like a reset with it"),
    ):
        trial.require(plain(rows_of(after, rows)) == plain(rows_of(wanted, rows)), problem)
    bad_masks = {"a list": [True] * n, "a wrong shape": np.ones(n + 1, np.bool_), "integers": np.ones(n, np.int64)}
    for name, bad in {**bad_masks, "nothing selected": np.zeros(n, np.bool_)}.items():
        with trial.expect(_REFUSALS, f"a reset_mask that is {name}"):
            envs.reset(options={"reset_mask": bad})


def statistics(trial: Trial) -> None:
    """`RecordEpisodeStatistics` gives the true returns and lengths."""
    envs = trial.open()
    mode = mode_of(envs)
    version = tuple(int(part) for part in gymnasium.__version__.split(".")[:2])
    if mode is AutoresetMode.SAME_STEP and version < (1, 4):
        raise NotApplicable("RecordEpisodeStatistics of Gymnasium before 1.4 does not know mode `same_step`")
    wrapped = RecordEpisodeStatistics(envs, buffer_length=10_000)
    wrapped.reset(seed=trial.seed)
    returns, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, int)
    running = np.ones(envs.num_envs, np.bool_)
    for actions in trial.actions(envs):
        _, rewards, terminated, truncated, infos = wrapped.step(actions)
        returns += np.where(running, rewards, 0.0)
        lengths += running
        over = terminated | truncated
        if over.any():
            episode = infos["episode"]
            trial.require((episode["l"][over] == lengths[over]).all(), "the recorded lengths of episodes are wrong")
            trial.require((episode["r"][over] == returns[over]).all(), "the recorded returns of episodes are wrong")
            if mode is AutoresetMode.DISABLED:
                if not trial.strict:  # Gymnasium's own vector environments eat the mask before the wrapper sees it
                    over[:] = True
                wrapped.reset(options={"reset_mask": over.copy()})
        returns[over], lengths[over] = 0.0, 0
        running = ~over if mode is AutoresetMode.NEXT_STEP else running


def closing(trial: Trial) -> None:
    """Closing twice is fine."""
    envs = trial.open()
    envs.reset(seed=trial.seed)
    envs.close()
    trial.require(envs.closed, "closed is not True after close()")
    envs.close()


def _check_array(trial: Trial, name: str, array: Any, n: int, kind: str) -> None:
    fine = isinstance(array, np.ndarray) and array.shape == (n,) and array.dtype.kind == kind
    trial.require(fine, f"{name} must be an array of shape ({n},) and kind {kind!r}, got {array!r}")


def _check_masks(trial: Trial, infos: dict[str, Any], n: int) -> None:
    for key, value in infos.items():
        if key.startswith("_"):
            trial.require(key[1:] in infos, f"infos has the mask {key!r} but no {key[1:]!r}")
            _check_array(trial, f"infos[{key!r}]", value, n, "b")
            continue
        trial.require(f"_{key}" in infos, f"infos has {key!r} but no mask '_{key}'")
        if isinstance(value, dict):
            _check_masks(trial, value, n)
        else:
            trial.require(len(value) == n, f"infos[{key!r}] has {len(value)} entries, not {n}")


# --------------------------------------------------------------------------------------------- what Stockade promises
def call_order(trial: Trial) -> None:
    """A step before the first reset, or anything after close, raises Gymnasium's errors."""
    trial.only_strict("Gymnasium leaves the errors for a wrong order of calls to the environments")
    envs = trial.open(unused=True)
    (actions,) = trial.actions(envs, 1)
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
    run = trial.actions(envs, 5)
    good, last, space = run[0], f"{envs.num_envs - 1}", envs.single_action_space
    if not isinstance(good, np.ndarray):
        raise NotApplicable("actions are no single array")

    def ending_in(value: Any, dtype: Any) -> np.ndarray:
        actions = good.astype(dtype)
        actions[-1] = value
        return actions

    bad = [
        ("too few actions", good[:-1], ""),
        ("actions of a wrong shape", good[..., None], ""),
        ("an action that is NaN", ending_in(np.nan, np.float64), last if good.dtype.kind == "f" else ""),
    ]
    if isinstance(space, gymnasium.spaces.Discrete):
        outside = space.start - 1, space.start + space.n
        bad += [(f"the action {value}", ending_in(value, np.int64), last) for value in outside]
    envs.reset(seed=trial.seed)
    twin.reset(seed=trial.seed)
    for deed, actions, naming in bad:
        with trial.expect((gymnasium.error.InvalidAction, ValueError), deed, naming):
            envs.step(actions)
    for actions in run:
        after = plain(envs.step(actions)[:4])
        trial.require(after == plain(twin.step(actions)[:4]), "refused actions changed the environments")


def calls(trial: Trial) -> None:
    """`call`, `get_attr` and `set_attr` reach every environment."""
    envs, name = trial.open(), "checked_by_stockade"
    if not hasattr(envs, "call"):
        raise NotApplicable("no call()")
    envs.reset(seed=trial.seed)
    trial.require(len(envs.get_attr("spec")) == envs.num_envs, "get_attr must give one value an environment")
    envs.set_attr(name, list(range(envs.num_envs)))
    found = envs.get_attr(name)
    trial.require(found == tuple(range(envs.num_envs)), f"set_attr of a list, then get_attr, gave {found}")
    envs.set_attr(name, "all")
    trial.require(envs.call(name) == ("all",) * envs.num_envs, "set_attr of one value is for all")
    with trial.expect((ValueError,), "set_attr with too few values"):
        envs.set_attr(name, [0] * (envs.num_envs + 1))
    if trial.strict:  # Gymnasium's AsyncVectorEnv is of no use after this
        with trial.expect((AttributeError,), "an attribute that does not exist"):
            envs.get_attr("no_such_attribute")
        envs.step(trial.actions(envs, 1)[0])


def true_states(trial: Trial) -> None:
    """`true_state()` has one row per environment, does not disturb the run, and says how old its rows are."""
    envs, twin = trial.open_two("true_state")
    envs.reset(seed=trial.seed)
    try:
        states = envs.true_state()
    except NotImplementedError as reason:
        raise NotApplicable(str(reason)) from None
    if hasattr(states, "age"):
        trial.require(states.age.shape == (envs.num_envs,), f"age has shape {states.age.shape}")
        trial.require(len(states) == envs.num_envs, f"there are {len(states)} true states")
    envs.reset(seed=trial.seed)
    twin.reset(seed=trial.seed)
    for actions in trial.actions(envs, 30):
        envs.true_state()
        same = _steps(envs, [actions]) == _steps(twin, [actions])
        trial.require(same, "looking at true states changed the run")


def snapshots(trial: Trial) -> None:
    """After `restore(snapshot())` the same actions give the same bits."""
    envs, _ = trial.open_two("snapshot")
    start, *run = trial.actions(envs, 30)
    envs.reset(seed=trial.seed)
    envs.step(start)
    try:
        snapshot = envs.snapshot()
    except (NotImplementedError, AttributeError) as reason:
        raise NotApplicable(str(reason).splitlines()[0]) from None
    first = _steps(envs, run)
    envs.restore(snapshot)
    trial.require(first == _steps(envs, run), "after restore() the same actions gave another run")


def context_manager(trial: Trial) -> None:
    """`with` closes."""
    envs = trial.open()
    if not hasattr(envs, "__enter__"):
        raise NotApplicable("no context manager")
    with envs as entered:
        trial.require(entered is envs, "`with envs as x` must give envs itself")
    trial.require(envs.closed, "`with` must close")


def send_and_recv(trial: Trial) -> None:
    """The asynchronous interface: each environment's own run is the same as in `step`, and nobody starves."""
    envs, twin = trial.open_two("recv")
    if mode_of(envs) is AutoresetMode.DISABLED:
        raise NotApplicable("needs autoreset")
    n, run = envs.num_envs, trial.actions(envs)
    envs.reset(seed=trial.seed)
    with trial.expect((NoAsyncCallError,), "recv when nothing was sent"):
        envs.recv()
    envs.async_reset(seed=trial.seed)
    with trial.expect((AlreadyPendingCallError,), "a step while environments are in flight"):
        envs.step(run[0])
    with trial.expect((AlreadyPendingCallError,), "send to environments that are in flight"):
        envs.send(run[0], list(range(n)))
    rows: list[list[Any]] = [[] for _ in range(n)]
    budget = 100 * n * (trial.steps + 1)
    while min(map(len, rows)) <= trial.steps:
        *values, infos = envs.recv()
        ids = infos["env_id"].tolist()
        trial.require(0 < len(ids) <= envs.batch_size and len(set(ids)) == len(ids), f"env_id is {ids}")
        for place, i in enumerate(ids):
            rows[i].append(plain(rows_of(tuple(values), place)))
        budget -= len(ids)
        trial.require(budget > 0, f"some environments starve: steps so far {list(map(len, rows))}")
        chosen = [run[min(len(rows[i]), trial.steps) - 1][i] for i in ids]
        envs.send(np.array(chosen), ids)
    twin.reset(seed=trial.seed)
    for step, actions in enumerate(run, start=1):
        values = tuple(twin.step(actions)[:4])
        for i in range(n):
            same = rows[i][step] == plain(rows_of(values, i))
            trial.require(same, f"step {step} of environment {i} is not that of step()")


def nothing_left(trial: Trial) -> None:
    """After close there are no more processes and descriptors than before."""
    _use_and_close(trial)  # the first time may start helpers of multiprocessing that stay
    before = left_behind()
    _use_and_close(trial)
    deadline = time.monotonic() + _PATIENCE
    while (after := left_behind()) > before and time.monotonic() < deadline:
        time.sleep(0.05)
    trial.require(after <= before, f"(children, descriptors) were {before} before and {after} after")


def _steps(envs: Any, run: list[Any]) -> list[Any]:
    return [plain(values[:-1]) for values in play(envs, run)]


def _use_and_close(trial: Trial) -> None:
    envs = trial.make()
    try:
        envs.reset(seed=trial.seed)
        envs.step(trial.actions(envs, 1)[0])
    finally:
        envs.close()


RULES = (
    metadata, shapes, copies, single_environments, seeds, autoreset, reset_masks, statistics, closing,
    call_order, bad_actions, calls, true_states, snapshots, context_manager, send_and_recv, nothing_left,
)  # fmt: skip
