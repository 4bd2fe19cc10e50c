"""A slice of environments in one process: actions -> step, autoreset -> rows of arrays; infos and failures returned.

This is the only place where Gymnasium environments are stepped, for every backend: `serial` holds one slice of all
environments, the backends with workers hold one in each. Commands are method calls: what differs by environment comes
first (one entry per environment of the slice), then what is the same for all.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from stockade.errors import NonFiniteError, UnsupportedFeatureError
from stockade.vector.outcome import Factory, Failure, Inheritance, Outcome, RunConfig, Saved
from stockade.vector.spaces import Buffers, Tree, all_values, copied, leaves, row_writer, value_of

RUNNING, RESET_OWED, LOST, FAILED = range(4)
"""State of one environment. LOST: its episode was lost with an earlier worker and must be reported as truncated."""


class EnvSlice:
    """Some environments, stepped one after the other.

    `first` is the global id of the first one, `buffers` are their rows, `inheritance` is given if this slice takes the
    place of one that died. `NativeSlice` sets state, clock, began, seeds and next_seeds for its worlds.
    """

    def __init__(
        self,
        environments: Sequence[gymnasium.Env[Any, Any]],
        first: int,
        buffers: Buffers,
        config: RunConfig,
        inheritance: Inheritance | None = None,
    ) -> None:
        count = len(environments)
        self.environments = environments
        self.first = first
        self.buffers = buffers
        self.config = config
        self.seeds: list[int | None] = [None] * count
        self.next_seeds: list[int | None] = [None] * count
        self.clock = 0  # steps of the slice
        self.began = [0] * count  # what the clock showed when the episode began: their difference is its steps
        self.state = [RUNNING] * count
        if inheritance is not None:
            self.state = [RESET_OWED if owed else LOST for owed in inheritance.owed]
            self.next_seeds = list(inheritance.seeds)
            buffers.put_results(slice(None), inheritance.results)
        space = environments[0].observation_space
        self._step = [environment.step for environment in environments]
        self._write = row_writer(space, buffers.observations)
        self._rewards, self._terminated, self._truncated = buffers.rewards, buffers.terminated, buffers.truncated
        self._float_leaves = [leaf.of(buffers.observations) for leaf in leaves(space) if leaf.dtype.kind == "f"]
        self._must_be_finite = [array.reshape(-1) for array in (self._rewards, *self._float_leaves)]
        self._truths: list[tuple[int, Any]] = []
        self._last_outcome = Outcome()
        self._records = None if buffers.truth is None else [buffers.truth[i, ...] for i in range(count)]
        rule = config.true_states
        self._refresh_every = 1 if rule == "every_step" else rule if isinstance(rule, int) else 0
        self._refresh_at_end = rule == "episode_end"
        self._ages = self._refresh_every > 1 or self._refresh_at_end
        self._lives_in_buffer = rule == "every_step" and self._move_worlds()
        if self._lives_in_buffer:
            self._refresh_every = 0

    # Stepping

    def step(self, actions: Tree) -> Outcome:
        """Advance every environment by its row of the actions."""
        self.clock += 1
        self._terminated.fill(False)
        self._truncated.fill(False)
        if self._ages:
            self.buffers.age[self.buffers.age >= 0] += 1
        places = range(len(self.environments))
        outcome = self._advance(places, actions)
        # A sum of squares is finite only if all numbers are, and several times cheaper than asking each.
        if self.config.check_finite and not all(math.isfinite(array.dot(array)) for array in self._must_be_finite):
            self._check_finite(places, outcome)
        return outcome

    def step_some(self, places: Sequence[int], actions: Tree) -> Outcome:
        """Advance the environments `places` of this slice, one row of the actions for each in this order."""
        for i in places:
            self.began[i] -= 1  # so that it alone has made a step
            self._terminated[i] = self._truncated[i] = False
            if self._ages and self.buffers.age[i] >= 0:
                self.buffers.age[i] += 1
        outcome = self._advance(places, actions)
        if self.config.check_finite:
            self._check_finite(places, outcome)
        return outcome

    def _advance(self, places: Sequence[int], actions: Tree) -> Outcome:
        """One step of each, or what is due in its place; writes their rows, whose flags are False before."""
        if self._last_outcome:  # else nothing came of it, as of most steps, and it serves again
            self._last_outcome = Outcome()
        outcome = self._last_outcome
        state, step, write, rewards = self.state, self._step, self._write, self._rewards
        for i, action in zip(places, all_values(actions, len(places)), strict=True):
            try:
                if state[i]:
                    info = self._settle(i)
                else:
                    observation, reward, terminated, truncated, info = step[i](action)
                    if info.__class__ is not dict:
                        info = _checked_info(info)
                    write(i, observation)
                    rewards[i] = reward
                    if terminated or truncated:
                        self._terminated[i], self._truncated[i] = terminated, truncated
                        info = self._end_episode(i, observation, info)
                    elif self._refresh_every and (self.clock - self.began[i]) % self._refresh_every == 0:
                        self._refresh_truth(i)
                if info:
                    outcome.infos.append((self.first + i, info))
            except Exception as exception:
                self._fail(i, exception, "step", action, outcome)
        self._hand_over_truths(outcome)
        return outcome

    def _end_episode(self, i: int, observation: Any, info: dict[str, Any]) -> dict[str, Any]:
        """An episode is over: remember it, or reset at once, as the mode says."""
        if self._refresh_every or self._refresh_at_end:
            self._refresh_truth(i)
        if self.config.autoreset_mode is not AutoresetMode.SAME_STEP:
            if self.config.autoreset_mode is AutoresetMode.NEXT_STEP:
                self.state[i] = RESET_OWED
            return info
        final = copied(observation)  # some environments reuse their observation
        if self.config.check_finite:
            self._require_finite(i)
        return {"final_obs": final, "final_info": info, **self._reset(i, None, None)}

    def _settle(self, i: int) -> dict[str, Any]:
        """Instead of a step: the reset that is owed, or the end of an episode that was lost."""
        if self.state[i] == FAILED:
            raise RuntimeError("this environment failed before and has not been reset")
        self._rewards[i] = 0.0
        if self.state[i] != LOST:
            return self._reset(i, None, None)
        self._truncated[i] = True
        marked: dict[str, Any] = {"worker_restarted": True}
        if self.config.autoreset_mode is AutoresetMode.SAME_STEP:
            last = value_of(self.buffers.observations, i)
            return {"final_obs": last, "final_info": marked, **self._reset(i, None, None), **marked}
        self.state[i] = RESET_OWED
        return marked

    # Resetting

    def reset(self, seeds: np.ndarray, given: np.ndarray, mask: np.ndarray, options: dict[str, Any] | None) -> Outcome:
        """Reset the environments of the mask; `seeds` count where they were given."""
        places = np.flatnonzero(mask).tolist()
        return self.reset_some(places, [int(seeds[i]) if given[i] else None for i in places], options)

    def reset_some(self, places: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None) -> Outcome:
        outcome = Outcome()
        for i, seed in zip(places, seeds, strict=True):
            self._rewards[i], self._terminated[i], self._truncated[i] = 0.0, False, False
            try:
                info = self._reset(i, seed, options)
                if self.config.check_finite:
                    self._require_finite(i)
                if info:
                    outcome.infos.append((self.first + i, info))
            except Exception as exception:
                self._fail(i, exception, "reset", None, outcome)
        self._hand_over_truths(outcome)
        return outcome

    def _reset(self, i: int, seed: int | None, options: dict[str, Any] | None) -> dict[str, Any]:
        """Reset one environment and write its observation. Autoreset passes neither seed nor options."""
        if seed is None:
            seed = self.next_seeds[i]
        self.next_seeds[i] = None
        environment = self.environments[i]
        if seed is None and options is None:
            observation, info = environment.reset()
        else:
            observation, info = environment.reset(seed=seed, options=options)
        if seed is not None:
            self.seeds[i] = seed
        self._write(i, observation)
        self.began[i] = self.clock
        self.state[i] = RUNNING
        if self._refresh_every or self._lives_in_buffer:
            self._refresh_truth(i)
        return _checked_info(info)

    # True states

    def _move_worlds(self) -> bool:
        """Let the environments keep their true state in its row of the buffer, if they can: then it is always fresh."""
        worlds: list[Any] = [environment.unwrapped for environment in self.environments]
        truth = self.buffers.truth
        if truth is None or not all(hasattr(world, "place_true_state") for world in worlds):
            return False
        for i, world in enumerate(worlds):
            world.place_true_state(truth[i : i + 1])
        return True

    def _refresh_truth(self, i: int) -> None:
        world: Any = self.environments[i].unwrapped
        if self._records is None:
            self._truths.append((self.first + i, _method(world, "true_state")()))
        elif not self._lives_in_buffer:
            world.write_true_state(self._records[i])
        self.buffers.age[i] = 0

    def refresh_some(self, places: Sequence[int]) -> Outcome:
        outcome = self._each("true_state", self._refresh_truth, places)
        self._hand_over_truths(outcome)
        return outcome

    def _hand_over_truths(self, outcome: Outcome) -> None:
        if self._truths:
            outcome.truths, self._truths = self._truths, []

    # Other calls

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        def called(i: int) -> Any:
            value = self.environments[i].get_wrapper_attr(name)
            return value(*args, **kwargs) if callable(value) else value

        return self._each(name, called)

    def set_attr(self, values: Sequence[Any], name: str) -> Outcome:
        return self._each(f"set_attr({name!r})", lambda i: self.environments[i].set_wrapper_attr(name, values[i]))

    def apply(self, chosen: Sequence[bool], function: Callable[[Any], Any]) -> Outcome:
        """The function's value for each of the chosen environments, None for the others."""
        return self._each("apply", lambda i: function(self.environments[i]), np.flatnonzero(chosen).tolist())

    def snapshot(self, chosen: Sequence[bool]) -> Outcome:
        """The chosen environments as they are now (`Saved`), None for the others."""

        def saved(i: int) -> Saved:
            state, row = _method(self.environments[i].unwrapped, "snapshot")(), value_of(self.buffers.results(), i)
            return Saved(state, self.clock - self.began[i], self.state[i], self.seeds[i], row)

        return self._each("snapshot", saved, np.flatnonzero(chosen).tolist())

    def restore(self, entries: Sequence[Saved | None], seeds: Sequence[int | None]) -> Outcome:
        """Bring environments back to what `snapshot` gave, with new chance where there is a seed; None leaves one."""
        places = [i for i, saved in enumerate(entries) if saved is not None]
        outcome = self._each("restore", lambda i: self._restore(i, entries[i], seeds[i]), places)
        self._hand_over_truths(outcome)
        return outcome

    def close(self) -> Outcome:
        return self._each("close", lambda i: self.environments[i].close())

    def _each(self, during: str, function: Callable[[int], Any], places: Sequence[int] | None = None) -> Outcome:
        """`function(i)` for the environments `places` (default all); one that fails is not broken by it."""
        outcome = Outcome(values=[None] * len(self.environments))
        for i in range(len(self.environments)) if places is None else places:
            try:
                outcome.values[i] = function(i)
            except Exception as exception:
                self._fail(i, exception, during, None, outcome, broken=False)
        return outcome

    def _restore(self, i: int, saved: Any, seed: int | None) -> None:
        world = self.environments[i].unwrapped
        restore = _method(world, "restore")
        if saved.row is not None:
            self.buffers.put_results(i, saved.row)  # first: the world itself may live in the row
        observation = restore(saved.state) if seed is None else restore(saved.state, seed=seed)
        if saved.row is None:
            if observation is None:
                raise UnsupportedFeatureError(
                    f"{type(world).__name__}.restore() returns no observation, so only snapshots of a vector "
                    f"environment can be restored, not those of a single one"
                )
            self._write(i, observation)
            self._rewards[i], self._terminated[i], self._truncated[i] = 0.0, False, False
        self.began[i], self.state[i], self.seeds[i] = self.clock - saved.steps, saved.autoreset, saved.seed
        self.next_seeds[i] = None
        if self._lives_in_buffer or self._refresh_every == 1 or (saved.row is None and self.config.true_states):
            self._refresh_truth(i)

    # Trouble

    def _fail(
        self, i: int, exception: Exception, during: str, action: Any, outcome: Outcome, broken: bool = True
    ) -> None:
        if broken:
            self.state[i] = FAILED
            self._rewards[i], self._terminated[i], self._truncated[i] = 0.0, False, False
        if isinstance(action, np.ndarray):
            action = action.copy()
        steps = self.clock - self.began[i]
        outcome.failures.append(Failure.of(exception, self.first + i, during, action, self.seeds[i], steps))

    def _check_finite(self, places: Iterable[int], outcome: Outcome) -> None:
        """Failures in the place of infos, where a row has numbers that are not finite."""
        for i in places:
            if self.state[i] != FAILED:
                try:
                    self._require_finite(i)
                except NonFiniteError as error:
                    outcome.infos = [pair for pair in outcome.infos if pair[0] != self.first + i]
                    self._fail(i, error, "step", None, outcome)

    def _require_finite(self, i: int) -> None:
        if not math.isfinite(self._rewards[i]):
            raise NonFiniteError(self.first + i, self.clock - self.began[i], "reward")
        for array in self._float_leaves:
            if not np.isfinite(array[i]).all():
                raise NonFiniteError(self.first + i, self.clock - self.began[i], "observation")


def build_environments(factory: Factory, count: int) -> list[gymnasium.Env[Any, Any]]:
    """Build `count` environments; if one fails, close those that exist."""
    environments: list[gymnasium.Env[Any, Any]] = []
    try:
        for _ in range(count):
            environments.append(factory())
            first, latest = environments[0], environments[-1]
            if (latest.observation_space, latest.action_space) != (first.observation_space, first.action_space):
                raise ValueError(f"the factory gives environments with different spaces: {first} and {latest}")
    except BaseException:
        for environment in environments:
            environment.close()
        raise
    return environments


def _method(world: Any, name: str) -> Callable[..., Any]:
    method = getattr(world, name, None)
    if method is None:
        raise UnsupportedFeatureError(f"{type(world).__name__} has no method {name}()")
    return method


def _checked_info(info: Any) -> dict[str, Any]:
    if not isinstance(info, dict):
        raise TypeError(f"an info must be a dictionary, not a {type(info).__name__}: {info!r}")
    return info
