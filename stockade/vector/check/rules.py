"""Gymnasium's contract, a rule a function: what every vector environment has to keep."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from stockade.vector.check.trial import NotApplicable, Reference, Trial, actions_for, mode_of, plain, rollout

_REFUSALS = (TypeError, ValueError, AssertionError)


def metadata(trial: Trial) -> None:
    """Number of environments, autoreset mode, batched spaces."""
    envs = trial.open()
    trial.require(isinstance(envs.num_envs, int) and envs.num_envs >= 1, f"num_envs is {envs.num_envs!r}")
    mode_of(envs)
    for name in ("observation_space", "action_space"):
        space, single = getattr(envs, name), getattr(envs, f"single_{name}")
        expected = batch_space(single, envs.num_envs)
        trial.require(space == expected, f"{name} is {space}, but {envs.num_envs} times single_{name} is {expected}")


def shapes(trial: Trial) -> None:
    """Observations in their space; rewards float (n,), flags bool (n,), infos a dictionary."""
    envs = trial.open()
    observations, infos = envs.reset(seed=trial.seed)
    trial.require(observations in envs.observation_space, "the observations of reset are not in observation_space")
    trial.require(isinstance(infos, dict), f"the infos of reset are a {type(infos).__name__}, not a dict")
    for actions in actions_for(envs, trial.steps, trial.seed):
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        trial.require(observations in envs.observation_space, "the observations of step are not in observation_space")
        _check_array(trial, "rewards", rewards, envs.num_envs, "f")
        _check_array(trial, "terminations", terminated, envs.num_envs, "b")
        _check_array(trial, "truncations", truncated, envs.num_envs, "b")
        trial.require(isinstance(infos, dict), f"the infos of step are a {type(infos).__name__}, not a dict")
        _check_masks(trial, infos, envs.num_envs)
        _reset_finished(envs, terminated | truncated)


def copies(trial: Trial) -> None:
    """What a step returned is not changed by later ones."""
    envs = trial.open()
    if not getattr(envs, "copy", getattr(envs, "_copy", True)):
        raise NotApplicable("made with copy=False")
    kept: list[tuple[Any, Any]] = []
    observations, _ = envs.reset(seed=trial.seed)
    kept.append((observations, plain(observations)))
    for actions in actions_for(envs, min(trial.steps, 20), trial.seed):
        values = envs.step(actions)
        kept += [(value, plain(value)) for value in values[:4]]
        _reset_finished(envs, values[2] | values[3])
    trial.require(all(plain(value) == was for value, was in kept), "returned arrays are overwritten by later steps")


def single_environments(trial: Trial) -> None:
    """The same numbers and infos, to the bit, as single environments give."""
    if trial.single is None:
        raise NotApplicable("no `single` given to compare with")
    envs = trial.open()
    actions = actions_for(envs, trial.steps, trial.seed)
    reference = Reference(trial.single, envs)
    try:
        ours, theirs = rollout(envs, trial.seed, actions), rollout(reference, trial.seed, actions)
    finally:
        reference.close()
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        trial.require(one == other, f"value {place} of a run is {one}, single environments give {other}")


def seeds(trial: Trial) -> None:
    """Seeds give runs: equal ones equal runs, other ones other runs; no seed goes on."""
    envs, twin = trial.open(), trial.open()
    actions = actions_for(envs, trial.steps, trial.seed)
    first = rollout(envs, trial.seed, actions, infos=False)
    trial.require(first == rollout(envs, trial.seed, actions, infos=False), "the same seed gave another run, later on")
    trial.require(first == rollout(twin, trial.seed, actions, infos=False), "the same seed gave another run elsewhere")
    each: Any = [trial.seed + i for i in range(envs.num_envs)]
    trial.require(first == rollout(twin, each, actions, infos=False), "seed=s is not the same as [s, s + 1, ...]")
    other = rollout(envs, trial.seed + 1000, actions, infos=False)
    trial.require(first != other, "another seed gave the same run (or the environments are not random at all)")
    following = rollout(envs, None, actions, infos=False)
    trial.require(following not in (first, other), "a reset without a seed repeated an earlier run")
    each.append(0)
    with trial.expect(_REFUSALS, "a list of seeds that is too long"):
        envs.reset(seed=each)


def autoreset(trial: Trial) -> None:
    """What happens at the end of an episode, in the mode that the metadata name."""
    envs = trial.open()
    mode = mode_of(envs)
    envs.reset(seed=trial.seed)
    over = np.zeros(envs.num_envs, np.bool_)
    ended = 0
    for actions in actions_for(envs, trial.steps, trial.seed):
        before = over
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        over = terminated | truncated
        ended += int(over.sum())
        if mode is AutoresetMode.NEXT_STEP:
            trial.require(not rewards[before].any(), "the step that resets must give reward 0")
            trial.require(not (over & before).any(), "the step that resets must not end an episode")
        elif mode is AutoresetMode.SAME_STEP:
            _check_finals(trial, envs, infos, over, observations)
        elif over.any():
            if trial.strict:  # Gymnasium's AsyncVectorEnv steps on
                with trial.expect((AssertionError, gymnasium.error.ResetNeeded), "a step after the end"):
                    envs.step(actions)
            _reset_finished(envs, over)
            over = np.zeros_like(over)
    trial.require(ended, f"no episode ended in {trial.steps} steps: give a larger `steps` or shorter episodes")


def reset_masks(trial: Trial) -> None:
    """`options["reset_mask"]` resets those environments and no others; a bad one is refused."""
    envs = trial.open()
    n = envs.num_envs
    envs.reset(seed=trial.seed)
    before, *_ = envs.step(actions_for(envs, 1, trial.seed)[0])
    kept = plain(before)
    mask = np.zeros(n, np.bool_)
    mask[0] = True
    after, infos = envs.reset(seed=trial.seed, options={"reset_mask": mask})
    trial.require(after in envs.observation_space, "the observations of a masked reset are not in observation_space")
    _check_masks(trial, infos, n)
    trial.require(plain(before) == kept or not getattr(envs, "copy", True), "a masked reset changed older arrays")
    expected, _ = envs.reset(seed=trial.seed)
    for rest, was, now in _rows(before, after, expected):
        trial.require(plain(was[1:]) == plain(rest[1:]), "a masked reset changed observations of other environments")
        trial.require(plain(was[:1]) == plain(now[:1]), "a masked reset with a seed is not like a reset with it")
    bad_masks = {"a list": [True] * n, "a wrong shape": np.ones(n + 1, np.bool_), "integers": np.ones(n, np.int64)}
    for name, bad in {**bad_masks, "nothing selected": np.zeros(n, np.bool_)}.items():
        with trial.expect(_REFUSALS, f"a reset_mask that is {name}"):
            envs.reset(options={"reset_mask": bad})


def statistics(trial: Trial) -> None:
    """`RecordEpisodeStatistics` gives the true returns and lengths."""
    envs = trial.open()
    mode = mode_of(envs)
    if mode is AutoresetMode.SAME_STEP and _gymnasium_version() < (1, 4):
        raise NotApplicable("RecordEpisodeStatistics of Gymnasium before 1.4 does not know mode `same_step`")
    wrapped = RecordEpisodeStatistics(envs, buffer_length=10_000)
    wrapped.reset(seed=trial.seed)
    returns, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, int)
    running = np.ones(envs.num_envs, np.bool_)
    for actions in actions_for(envs, trial.steps, trial.seed):
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


RULES = (
    metadata,
    shapes,
    copies,
    single_environments,
    seeds,
    autoreset,
    reset_masks,
    statistics,
    closing,
)


def _check_array(trial: Trial, name: str, array: Any, n: int, kind: str) -> None:
    fine = isinstance(array, np.ndarray) and array.shape == (n,) and array.dtype.kind == kind
    trial.require(fine, f"{name} must be an array of shape ({n},) and kind {kind!r}, got {array!r}")


def _check_masks(trial: Trial, infos: dict[str, Any], n: int) -> None:
    for key, value in infos.items():
        if key.startswith("_"):
            trial.require(key[1:] in infos, f"infos has the mask {key!r} but no {key[1:]!r}")
            _check_array(trial, f"infos[{key!r}]", value, n, "b")
        else:
            trial.require(f"_{key}" in infos, f"infos has {key!r} but no mask '_{key}'")
            if isinstance(value, dict):
                _check_masks(trial, value, n)
            else:
                trial.require(len(value) == n, f"infos[{key!r}] has {len(value)} entries, not {n}")


def _check_finals(trial: Trial, envs: Any, infos: dict[str, Any], over: np.ndarray, observations: Any) -> None:
    for key in ("final_obs", "final_info"):
        mask = infos.get(f"_{key}", np.zeros_like(over))
        trial.require((mask == over).all(), f"_{key} is {mask}, the episodes that ended are {over}")
    for i in np.flatnonzero(over):
        final = infos["final_obs"][i]
        trial.require(final in envs.single_observation_space, f"final_obs of environment {i} is not in its space")


def _reset_finished(envs: Any, over: np.ndarray) -> None:
    if mode_of(envs) is AutoresetMode.DISABLED and over.any():
        envs.reset(options={"reset_mask": over})


def _rows(*trees: Any) -> list[tuple[Any, ...]]:
    """The arrays of several equal trees, side by side."""
    if isinstance(trees[0], dict):
        return [row for key in trees[0] for row in _rows(*(tree[key] for tree in trees))]
    if isinstance(trees[0], tuple):
        return [row for parts in zip(*trees, strict=True) for row in _rows(*parts)]
    return [trees]


def _gymnasium_version() -> tuple[int, ...]:
    return tuple(int(part) for part in gymnasium.__version__.split(".")[:2])
