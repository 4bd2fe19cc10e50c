"""The contract of all backends: Gymnasium's `VectorEnv`, true states, snapshots <-> a handful of hooks per backend.

The way of an action: `step` -> `spaces.ActionGate` -> the backend's `_step_all` -> `EnvSlice` or `NativeSlice`, here or
in workers (docs/about/architecture.md, file by file). Results come back by the same files, as rows of `spaces.Buffers`.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

import numpy as np
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from stockade.cage2.seeds import SeedLike, Seeds, read_seeds
from stockade.errors import ResetNeededError, UnsupportedFeatureError
from stockade.vector.outcome import Description, Failure, Outcome, RunConfig, Saved, gather_infos, raise_failure
from stockade.vector.slice import RUNNING
from stockade.vector.spaces import ActionGate, Buffers, Tree, copied

StepResult = tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]
"""Observations, rewards (n,) float64, terminations (n,) bool, truncations (n,) bool, infos."""
_NOT_BY_CALL = ("reset", "step", "close")
_SHOWN = 8


@dataclass(frozen=True)
class VectorSnapshot:
    """The state of all environments of a vector environment, or of one, to be given back to `restore`.

    An entry has what the slice saved, the true state (if an object), whether the episode is over, a reset needed.
    """

    entries: tuple[tuple[Saved, Any, bool, bool], ...]

    def __len__(self) -> int:
        return len(self.entries)


@dataclass(frozen=True, eq=False)
class TrueStates:
    """The true states of n environments and how old each is.

    Fields read as arrays with n rows: `envs.true_state().red_access` is (n, 13). For the built-in world all attributes
    and methods of `stockade.cage2.TrueState` are there.

    Attributes:
        states: structured array (n,), or a sequence of the n objects that the environments' `true_state()` gave.
        age: (n,) int32, steps since each was refreshed, 0 for the present one, -1 for one that was never fetched.
    """

    states: np.ndarray | Sequence[Any]
    age: np.ndarray
    named: Any = None  # the same as an object with named arrays, if the environments have one
    view: Callable[[np.ndarray], Any] | None = None  # makes such an object of an array of states, or of a single one

    def copy(self) -> Self:
        """The same, to be kept and changed: on `native` the original follows the worlds as they are stepped."""
        named = None if self.named is None else self.named.copy()
        return replace(self, states=copied(self.states), age=self.age.copy(), named=named)

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, i: int) -> Any:
        if self.view is not None and isinstance(self.states, np.ndarray):
            return self.view(self.states[i, ...])
        return self.states[i]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.named is not None:
            return getattr(self.named, name)
        if isinstance(self.states, np.ndarray):
            names = self.states.dtype.names or ()
            if name in names:
                return self.states[name]
            raise AttributeError(f"true states have no field {name!r}, but {', '.join(names)}")
        return np.stack([getattr(state, name) for state in self.states])


class BaseVectorEnv(VectorEnv[Any, Any, np.ndarray]):
    """A vector environment of any Gymnasium environments.

    Observations, rewards (float64), terminations and truncations (bool) have one row per environment; infos are
    dictionaries of arrays with `_key` masks; the three autoreset modes are Gymnasium's. `reset(seed=s)` gives
    environment i the seed s + i. Without `copy` observations are the live arrays, overwritten by the next call.
    """

    _may_terminate = True  # False where all episodes end by truncation, which saves a pass over the flags

    def __init__(self, description: Description, n_envs: int, buffers: Buffers, config: RunConfig) -> None:
        self.closed = True  # until the backend is ready, there is nothing to close
        layout = description.layout
        self.num_envs = n_envs
        self.autoreset_mode = config.autoreset_mode
        self.metadata = {**description.metadata, "autoreset_mode": config.autoreset_mode}
        self.render_mode = description.render_mode
        self.single_observation_space = layout.observation_space
        self.single_action_space = layout.action_space
        self.observation_space = batch_space(layout.observation_space, n_envs)
        self.action_space = batch_space(layout.action_space, n_envs)
        self.copy = config.copy
        self._description = description
        self._config = config
        self._buffers = buffers
        self._gate = ActionGate(layout.action_space)
        self._needs_reset = np.ones(n_envs, np.bool_)
        self._steppable = False  # no environment needs a reset
        self._never_reset = True
        self._over = np.zeros(n_envs, np.bool_)
        self._truths: dict[int, Any] = {}  # where true states are objects
        self.closed = False

    # What a backend provides

    _slice: Any  # of all environments, for backends in this process; the others override what uses it

    def _step_all(self) -> Outcome:
        """Step every environment with its row of the action arrays."""
        return self._slice.step(self._buffers.actions)

    def _command(self, kind: str, parts: Sequence[Any] = (), common: Sequence[Any] = ()) -> Outcome:
        """Call the method `kind` of all slices: `parts` have one entry per environment, `common` is for all."""
        return getattr(self._slice, kind)(*parts, *common)

    def _shut_down(self, timeout: float) -> None:
        """Close the environments; workers get so many seconds for it."""
        self._slice.close()

    # Gymnasium's interface

    def reset(self, *, seed: SeedLike = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes; gives observations of all environments, infos of those that were reset.

        Args:
            seed: s for the seeds s, s+1, ...; or one seed (or None) per environment; None continues their streams.
            options: for the environments; `options["reset_mask"]`, bool (n,), selects those to be reset.
        """
        self._require_open()
        seeds = read_seeds(seed, self.num_envs)
        mask, options = self._split_mask(options)
        self._require_idle("reset")
        outcome = self._command("reset", (*seeds, mask), (options,))
        self._note_reset(mask, seeds, outcome)
        if outcome.failures:
            raise_failure(outcome.failures)
        return self._observations(), self._infos(outcome)

    def step(self, actions: Any) -> StepResult:
        """Give every environment an action, in the form that `action_space.sample()` has."""
        self._require_idle("step")
        if not self._steppable:
            self._require_reset()
        self._gate.put(self._buffers.actions, actions, self.num_envs)
        outcome = self._step_all()
        observations, rewards, terminated, truncated = self._results()
        self._over = terminated | truncated if self._may_terminate else truncated
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            self._mark_for_reset(self._over)
        results = observations, rewards, terminated, truncated, self._infos(outcome)
        if outcome.truths:
            self._truths.update(outcome.truths)
        if outcome.failures:
            self._fail(outcome.failures, results)
        return results

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method, or read an attribute, of every environment."""
        if name in _NOT_BY_CALL:
            raise ValueError(f"call {name}() of the vector environment itself, not call({name!r})")
        return tuple(self._ask("call", (), (name, args, kwargs)).values)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        return self.call(name)

    def set_attr(self, name: str, values: list[Any] | tuple[Any, ...] | Any) -> None:
        """Set an attribute of every environment: a list or tuple has one value each, anything else is for all."""
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(f"values must have one value for each of {self.num_envs} environments, got {len(values)}")
        self._ask("set_attr", (values,), (name,))

    def apply(self, function: Callable[[Any], Any], indices: Iterable[int] | None = None) -> list[Any]:
        """Call `function(environment)`, sent by cloudpickle, where the environments live.

        Returns its values in the order of `indices` (negative ones from the end; default all).
        """
        places = range(self.num_envs)
        order = list(places) if indices is None else [places[index] for index in indices]
        chosen = np.zeros(self.num_envs, np.bool_)
        chosen[order] = True
        values = self._ask("apply", (chosen,), (function,)).values
        return [values[place] for place in order]

    def render(self) -> tuple[Any, ...] | None:
        """The rendered frame of every environment; None without a `render_mode`."""
        self._require_begun()
        return None if self.render_mode is None else self.call("render")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        return self.get_attr("np_random_seed")

    def close_extras(self, timeout: float | None = None, terminate: bool = False, **kwargs: Any) -> None:
        """Close the environments and end the workers, which get `timeout` seconds (default 2), or none."""
        self._shut_down(0.0 if terminate else 2.0 if timeout is None else timeout)

    # Beyond Gymnasium

    def true_state(self) -> TrueStates:
        """The true states of the environments: fetched now, or as fresh as `true_states=` says; `.age` tells."""
        self._require_begun()
        if not self._description.has_true_state:
            raise UnsupportedFeatureError("these environments have no method true_state()")
        if self._config.true_states is None:
            self._truths.update(self._ask("refresh_some", (range(self.num_envs),)).truths)
        age, truth, view = self._buffers.age, self._buffers.truth, self._description.true_state_view
        if truth is None:
            return TrueStates([self._truths.get(i) for i in range(self.num_envs)], age.copy())
        if self.copy:
            age, truth = age.copy(), truth.copy()
        return TrueStates(truth, age, None if view is None else view(truth), view)

    def snapshot(self, index: int | None = None) -> Any:
        """This moment of all environments, or of one, if they have a method `snapshot()`.

        What it gives is opaque; `len()` of it is the number of environments. For the built-in world on `native` it can
        be compared and hashed, and is one with the `snapshot()` of a single world.
        """
        self._require_begun()
        chosen = self._chosen(index)
        values, truths = self._ask("snapshot", (chosen,)).values, self._truths
        over, needs_reset = self._over.tolist(), self._needs_reset.tolist()
        rows = np.flatnonzero(chosen).tolist()
        return VectorSnapshot(tuple((values[i], truths.get(i), over[i], needs_reset[i]) for i in rows))

    def restore(self, snapshot: Any, index: int | None = None, seed: int | None = None) -> Any:
        """Bring all environments back to a snapshot, or one of them, if they have a method `restore(state)`.

        A restore that is refused changes nothing.

        Args:
            snapshot: what `snapshot` gave. One of a single environment may be put into all of them, for instance to
                try many actions from it; it may also come from the environment's own method `snapshot()`, if its
                `restore()` returns the observation.
            index: the environment; default all.
            seed: environment i continues with new chance from seed + i, if its `restore` takes `seed`.
        """
        self._require_idle("restore")
        if index is not None:
            self._require_begun()
        if not isinstance(snapshot, VectorSnapshot):
            snapshot = VectorSnapshot(((Saved(snapshot, 0, RUNNING, None, None), None, False, False),))
        chosen = self._chosen(index)
        rows = np.flatnonzero(chosen).tolist()
        if len(snapshot) not in (1, len(rows)):
            raise ValueError(f"this is a snapshot of {len(snapshot)} environments, which do not fit into {len(rows)}")
        wanted = dict(zip(rows, snapshot.entries * (len(rows) // len(snapshot)), strict=True))
        entries = [wanted[i][0] if i in wanted else None for i in range(self.num_envs)]
        seeds = read_seeds(seed, self.num_envs).each()
        saved = self._command("snapshot", (chosen,))  # of those that have begun, to be undone if one of them refuses
        outcome = self._command("restore", (entries, seeds))
        if outcome.failures:
            self._command("restore", (saved.values, [None] * self.num_envs))
            raise_failure(outcome.failures)
        for i, (_, truth, over, needs_reset) in wanted.items():
            self._truths[i], self._over[i], self._needs_reset[i] = truth, over, needs_reset
        self._steppable = not self._needs_reset.any()
        self._never_reset = False
        self._truths.update(outcome.truths)
        return self._observations()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        self.close(terminate=kind is not None)  # without waiting if an exception is on its way

    def __del__(self) -> None:
        if not self.__dict__.get("closed", True) and not sys.is_finalizing():
            self.close(terminate=True)

    # Results

    def _results(self) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
        """Observations, rewards, terminations and truncations of the last step, to keep."""
        buffers = self._buffers
        return self._observations(), buffers.rewards.copy(), buffers.terminated.copy(), buffers.truncated.copy()

    def _observations(self) -> Tree:
        return copied(self._buffers.observations) if self.copy else self._buffers.observations

    def _infos(self, outcome: Outcome) -> dict[str, Any]:
        return gather_infos(outcome.infos, self.num_envs) if outcome.infos else outcome.gathered or {}

    # Checks and bookkeeping

    def _ask(self, kind: str, parts: Sequence[Any] = (), common: Sequence[Any] = ()) -> Outcome:
        """A command that is neither step nor reset."""
        self._require_idle(kind)
        outcome = self._command(kind, parts, common)
        if outcome.failures:
            raise_failure(outcome.failures)
        return outcome

    def _note_reset(self, mask: np.ndarray, seeds: Seeds, outcome: Outcome) -> None:
        self._needs_reset[mask] = False
        self._over = self._over & ~mask  # a new array: the user may have this one
        for failure in outcome.failures:
            self._needs_reset[failure.env_id] = True
        self._steppable = not self._needs_reset.any()
        self._never_reset = False
        self._truths.update(outcome.truths)

    def _fail(self, failures: list[Failure], results: StepResult | None) -> NoReturn:
        self._mark_for_reset([failure.env_id for failure in failures])
        raise_failure(failures, results)

    def _mark_for_reset(self, which: Any) -> None:
        self._needs_reset[which] = True
        self._steppable = False

    def _chosen(self, index: int | None) -> np.ndarray:
        """(n,) bool: all environments, or one."""
        if index is not None and not 0 <= index < self.num_envs:
            raise IndexError(f"there is no environment {index}; there are {self.num_envs}, numbered from 0")
        return np.ones(self.num_envs, np.bool_) if index is None else np.arange(self.num_envs) == index

    def _require_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"{type(self).__name__} has been closed; make a new one")

    def _require_begun(self) -> None:
        """For what makes no sense before the first reset."""
        self._require_open()
        if self._never_reset:
            self._require_reset()

    def _require_idle(self, purpose: str) -> None:
        """For what needs all environments here: backends with some in flight refuse it meanwhile."""
        if self.closed:
            self._require_open()

    def _require_reset(self) -> NoReturn:
        ids = np.flatnonzero(self._needs_reset).tolist()
        shown = f"{ids[:_SHOWN]}" if len(ids) <= _SHOWN else f"{ids[:_SHOWN]} and {len(ids) - _SHOWN} more"
        raise ResetNeededError(
            f"environments {shown} need a reset first (never reset, failed, or their episode is over): "
            f"call reset(), or reset(options={{'reset_mask': mask}}) for just these"
        )

    def _split_mask(self, options: dict[str, Any] | None) -> tuple[np.ndarray, dict[str, Any] | None]:
        """The mask of environments to reset, and the options without it. The caller's dictionary stays as it is."""
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, np.bool_), options
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            found = getattr(mask, "dtype", type(mask).__name__)
            raise TypeError(f"options['reset_mask'] must be a NumPy array of dtype bool, not {found}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"options['reset_mask'] must have shape ({self.num_envs},), not {mask.shape}")
        if not mask.any():
            raise ValueError("options['reset_mask'] selects no environment; at least one value must be True")
        if self._never_reset and not mask.all():
            raise ResetNeededError("the first reset must be of all environments, without a reset_mask")
        return mask.copy(), {key: value for key, value in options.items() if key != "reset_mask"}
