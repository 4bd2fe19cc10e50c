"""What all backends have in common: Gymnasium's `VectorEnv` for the user <-> a handful of hooks for the backend.

step(actions) -> checked -> action rows -> `_step_all()` of the backend -> rows of results -> copies, infos -> user
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from stockade.vector.actions import ActionGate
from stockade.vector.description import Description, SliceConfig
from stockade.vector.errors import ResetNeededError, UnsupportedFeatureError
from stockade.vector.layout import Buffers, Tree, assign, copied
from stockade.vector.outcome import Failure, Outcome, raise_failure
from stockade.vector.truth import TrueStates

_NOT_BY_CALL = ("reset", "step", "close")


@dataclass(frozen=True)
class VectorSnapshot:
    """The state of all environments of a vector environment, to be given back to `restore`."""

    states: tuple[Any, ...]
    observations: Tree
    needs_reset: np.ndarray
    over: np.ndarray


class BaseVectorEnv(VectorEnv[Any, Any, np.ndarray]):
    """A vector environment of any Gymnasium environments.

    Observations, rewards (float64), terminations and truncations (bool) have one row an environment; infos are
    dictionaries of arrays with `_key` masks; the three autoreset modes are Gymnasium's. `reset(seed=s)` gives
    environment i the seed s + i.

    Args:
        description: of the environments.
        n_envs: how many.
        buffers: their arrays.
        config: how they are stepped.
        copy: whether observations are copies; without it they are the live arrays, overwritten by the next call.
    """

    def __init__(
        self, description: Description, n_envs: int, buffers: Buffers, config: SliceConfig, copy: bool
    ) -> None:
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
        self.copy = copy
        self._description = description
        self._config = config
        self._buffers = buffers
        self._gate = ActionGate(layout.action_space, buffers.actions)
        self._needs_reset = np.ones(n_envs, np.bool_)
        self._steppable = False  # no environment needs a reset
        self._over = np.zeros(n_envs, np.bool_)
        self._seeds: list[int | None] = [None] * n_envs
        self._truths: list[Any] = [None] * n_envs
        buffers.age[:] = -1
        self.closed = False

    # What a backend provides

    def _step_all(self) -> Outcome:
        """Step every environment with its row of the action arrays."""
        raise NotImplementedError

    def _command(self, kind: str, parts: Sequence[Any] | None, common: Any) -> Outcome:
        """Serve a command of `worker.handle` in all environments.

        Args:
            kind: the command.
            parts: one value an environment, if the command takes such.
            common: what the command takes besides, the same for all.
        """
        raise NotImplementedError

    def _shut_down(self, timeout: float) -> None:
        """Close the environments."""
        raise NotImplementedError

    # Gymnasium's interface

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes.

        Args:
            seed: s for the seeds s, s+1, ...; or one seed (or None) an environment; None goes on with their streams.
            options: for the environments; `options["reset_mask"]`, bool (n,), selects those to be reset.

        Returns:
            Observations of all environments, infos of those that were reset.
        """
        self._require_open()
        self._require_idle("reset")
        seeds = self._one_seed_each(seed)
        mask, options = self._split_mask(options)
        outcome = self._command("reset", list(zip(seeds, mask, strict=True)), options)
        failed = self._note_reset(mask, seeds, outcome)
        if failed:
            raise_failure(failed)
        return self._observations(), self.gather_infos(outcome.infos, self.num_envs)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Give every environment an action.

        Args:
            actions: a batch as `action_space.sample()` gives it.

        Returns:
            Observations, rewards (n,) float64, terminations (n,) bool, truncations (n,) bool, infos.
        """
        self._require_open()
        self._require_idle("step")
        if not self._steppable:
            self._require_reset()
        self._gate.put(actions, self.num_envs)
        outcome = self._step_all()
        buffers = self._buffers
        terminated, truncated = buffers.terminated.copy(), buffers.truncated.copy()
        self._over = terminated | truncated
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            self._mark_for_reset(self._over)
        infos = self.gather_infos(outcome.infos, self.num_envs) if outcome.infos else {}
        results = self._observations(), buffers.rewards.copy(), terminated, truncated, infos
        self._absorb_truths(outcome)
        if outcome.failures:
            self._fail(outcome.failures, results)
        return results

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method, or read an attribute, of every environment."""
        if name in _NOT_BY_CALL:
            raise ValueError(f"call {name}() of the vector environment itself, not call({name!r})")
        return tuple(self._ask("call", None, (name, args, kwargs)).values)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of every environment."""
        return self.call(name)

    def set_attr(self, name: str, values: list[Any] | tuple[Any, ...] | Any) -> None:
        """Set an attribute of every environment: a list or tuple has one value each, anything else is for all."""
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                f"values must be a list or tuple with one value for each of {self.num_envs} environments, "
                f"got {len(values)}"
            )
        self._ask("set_attr", values, name)

    def apply(self, function: Callable[[Any], Any], indices: Iterable[int] | None = None) -> list[Any]:
        """Call `function(environment)` where the environments live, the others left alone.

        Args:
            function: sent to the workers by cloudpickle.
            indices: of the environments, negative ones from the end; default all.

        Returns:
            Its values, in the order of `indices`.
        """
        places = list(range(self.num_envs))
        order = places if indices is None else [places[index] for index in indices]
        chosen = [False] * self.num_envs
        for place in order:
            chosen[place] = True
        values = self._ask("apply", chosen, function).values
        return [values[place] for place in order]

    def render(self) -> tuple[Any, ...] | None:
        """The rendered frame of every environment."""
        return self.call("render")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The generators of the environments."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int | None, ...]:  # type: ignore[override]
        """The seeds of the environments' generators."""
        return self.get_attr("np_random_seed")

    def close_extras(self, timeout: float | None = None, terminate: bool = False, **kwargs: Any) -> None:
        """Close the environments and end the workers.

        Args:
            timeout: seconds that workers get to close their environments before they are killed (default 2).
            terminate: do not wait at all.
            **kwargs: not used, as in Gymnasium.
        """
        self._shut_down(0.0 if terminate else 2.0 if timeout is None else timeout)

    # Beyond Gymnasium

    def true_state(self) -> TrueStates:
        """The true states of the environments, as fresh as `true_states=` of the constructor says.

        With `true_states=None` they are fetched now, otherwise the last ones are returned; `.age` tells how many steps
        old each is.
        """
        self._require_open()
        if not self._description.has_true_state:
            raise UnsupportedFeatureError("these environments have no method true_state()")
        if self._config.true_states is None:
            self._absorb_truths(self._ask("truth", None, None))
        age, view = self._buffers.age, self._description.true_state_view
        if self._buffers.truth is None:
            return TrueStates(tuple(self._truths), age.copy())
        if not self.copy:
            return TrueStates(self._buffers.truth, age, view)
        return TrueStates(self._buffers.truth.copy(), age.copy(), view)

    def snapshot(self) -> VectorSnapshot:
        """The state of all environments, if they have a method `snapshot()`."""
        states = tuple(self._ask("snapshot", None, None).values)
        return VectorSnapshot(states, copied(self._buffers.observations), self._needs_reset.copy(), self._over.copy())

    def restore(self, snapshot: VectorSnapshot) -> None:
        """Bring all environments back to a snapshot, if they have a method `restore(state)`."""
        if len(snapshot.states) != self.num_envs:
            raise ValueError(f"this is a snapshot of {len(snapshot.states)} environments, not of {self.num_envs}")
        self._ask("restore", snapshot.states, None)
        assign(self._buffers.observations, slice(None), snapshot.observations)
        self._over = snapshot.over.copy()
        self._needs_reset = snapshot.needs_reset.copy()
        self._steppable = not self._needs_reset.any()

    def __enter__(self) -> Self:
        """For `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; without waiting if an exception is under way."""
        self.close(terminate=kind is not None)

    def __del__(self) -> None:
        """Leave no process behind."""
        if not getattr(self, "closed", True) and not sys.is_finalizing():
            self.close(terminate=True)

    # Helpers

    def gather_infos(self, infos: list[tuple[int, dict[str, Any]]], size: int) -> dict[str, Any]:
        """Infos by place -> one dictionary of arrays of that size with masks, as the installed Gymnasium makes them."""
        gathered: dict[str, Any] = {}
        if infos:
            shaper: VectorEnv[Any, Any, Any] = VectorEnv()
            shaper.num_envs = size
            shaper.closed = True
            for place, info in infos:
                gathered = shaper._add_info(gathered, info, place)
        return gathered

    def _observations(self) -> Tree:
        observations = self._buffers.observations
        if not self.copy:
            return observations
        return observations.copy() if isinstance(observations, np.ndarray) else copied(observations)

    def _ask(self, kind: str, parts: Sequence[Any] | None, common: Any) -> Outcome:
        """A command that is neither step nor reset."""
        self._require_open()
        self._require_idle(kind)
        outcome = self._command(kind, parts, common)
        if outcome.failures:
            raise_failure(outcome.failures)
        return outcome

    def _note_reset(self, mask: np.ndarray, seeds: list[int | None], outcome: Outcome) -> list[Failure]:
        """Keep the books after a reset; returns the failures."""
        self._needs_reset[mask] = False
        self._over[mask] = False
        for place in np.flatnonzero(mask):
            if seeds[place] is not None:
                self._seeds[place] = seeds[place]
        for failure in outcome.failures:
            self._needs_reset[failure.env_id] = True
        self._steppable = not self._needs_reset.any()
        self._absorb_truths(outcome)
        return outcome.failures

    def _fail(self, failures: list[Failure], results: tuple[Any, ...] | None) -> NoReturn:
        failed = np.zeros(self.num_envs, np.bool_)
        failed[[failure.env_id for failure in failures]] = True
        self._mark_for_reset(failed)
        raise_failure(failures, results)

    def _mark_for_reset(self, which: np.ndarray) -> None:
        self._needs_reset |= which
        self._steppable = False

    def _absorb_truths(self, outcome: Outcome) -> None:
        for env_id, state in outcome.truths:
            self._truths[env_id] = state

    def _require_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"{type(self).__name__} has been closed; make a new one")

    def _require_idle(self, purpose: str) -> None:
        """Backends with calls under way refuse others meanwhile."""

    def _require_reset(self) -> NoReturn:
        ids = np.flatnonzero(self._needs_reset).tolist()
        shown = f"{ids[:8]}" if len(ids) <= 8 else f"{ids[:8]} and {len(ids) - 8} more"
        raise ResetNeededError(
            f"environments {shown} need a reset before the next step (never reset, failed, or their episode is over): "
            f"call reset(), or reset(options={{'reset_mask': mask}}) for just these"
        )

    def _one_seed_each(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + i for i in range(self.num_envs)]
        seeds = [None if one is None else int(one) for one in seed]
        if len(seeds) != self.num_envs:
            raise ValueError(f"expected one seed for each of {self.num_envs} environments, got {len(seeds)}")
        return seeds

    def _split_mask(self, options: dict[str, Any] | None) -> tuple[np.ndarray, dict[str, Any] | None]:
        """The mask of environments to reset, and the options without it. The caller's dictionary stays as it is."""
        if options is None or "reset_mask" not in options:
            return np.ones(self.num_envs, np.bool_), options
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            kind = mask.dtype if isinstance(mask, np.ndarray) else type(mask).__name__
            raise TypeError(f"options['reset_mask'] must be a NumPy array of dtype bool, got {kind}")
        if mask.shape != (self.num_envs,):
            raise ValueError(f"options['reset_mask'] must have shape ({self.num_envs},), got {mask.shape}")
        if not mask.any():
            raise ValueError("options['reset_mask'] must select at least one environment")
        return mask.copy(), {key: value for key, value in options.items() if key != "reset_mask"}
