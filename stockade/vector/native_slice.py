"""A slice of the built-in world as one compiled batch: rows and their actions -> kernel -> rows of arrays, infos.

It takes the same commands as `EnvSlice`, and is the one place where batches of the built-in world are stepped:
`NativeVectorEnv` holds one of all worlds in this process, the actors of `ray` hold one each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

from stockade.cage2.actions import ACTION_MASK
from stockade.cage2.batch import Batch, Snapshot
from stockade.cage2.env import CAGE2Env
from stockade.cage2.seeds import Seeds, read_seeds
from stockade.cage2.truth import worlds_info
from stockade.vector.outcome import Description, Failure, Inheritance, Outcome, RunConfig, Saved
from stockade.vector.slice import LOST, RESET_OWED, RUNNING, EnvSlice
from stockade.vector.spaces import Buffers, RowReader

_NOTHING = Outcome()
"""Of most steps: making a new one would cost a tenth of a step of a few worlds."""


@dataclass(frozen=True)
class NativeFactory:
    """Makes the built-in world: one environment, as every factory does, or a whole slice of them.

    Attributes:
        options: of `CAGE2Env`.
    """

    options: dict[str, Any]

    def __call__(self) -> CAGE2Env:
        """One environment."""
        return CAGE2Env(**self.options)

    def make_slice(
        self, count: int, first: int, buffers: Buffers, config: RunConfig, inheritance: Inheritance | None
    ) -> NativeSlice:
        """`count` of them as one batch; arguments as of `EnvSlice`."""
        world = self()
        batch = Batch(world.config, count, threads=1)  # workers are the way to more cores
        return NativeSlice(world, batch, first, buffers, config, inheritance)


class NativeSlice:
    """Some worlds, stepped by the kernel.

    Args:
        world: one of them, for what all have in common.
        batch: the worlds.
        first, buffers, config, inheritance: as of `EnvSlice`.
    """

    def __init__(
        self,
        world: CAGE2Env,
        batch: Batch,
        first: int,
        buffers: Buffers,
        config: RunConfig,
        inheritance: Inheritance | None = None,
    ) -> None:
        self.first = first
        self.buffers = buffers
        self.config = config
        self.batch = batch
        self.action_reader = RowReader(world.action_space)
        self._world = world
        self._next_step = config.autoreset_mode is AutoresetMode.NEXT_STEP
        self._same_step = config.autoreset_mode is AutoresetMode.SAME_STEP
        self._ages = config.true_states not in (None, "every_step")
        if config.true_states == "every_step":
            assert buffers.truth is not None
            batch.move_to(buffers.truth)
        # The kernel writes bytes, and at a reset those of all worlds: not where rows of lost worlds must stay.
        direct = world.observation_space.dtype == np.uint8 and inheritance is None
        self._bytes = None if direct else np.zeros((batch.n, batch.obs_size), np.uint8)
        self._has_stream = np.zeros(batch.n, np.bool_)  # of chance; a world without one needs a seed
        self._seeds = read_seeds(None, batch.n)  # of the last seeded resets
        self._next_seeds: Seeds | None = None
        self._state = np.full(batch.n, RUNNING, np.int8)
        self._all_running = inheritance is None
        self._singles: EnvSlice | None = None
        if inheritance is not None:
            self._state[:] = np.where(inheritance.owed, RESET_OWED, LOST)
            self._next_seeds = read_seeds(list(inheritance.seeds), batch.n)
            buffers.put_results(slice(None), inheritance.results)

    def __getstate__(self) -> dict[str, Any]:
        """Without the single environments, which are views."""
        return {**self.__dict__, "_singles": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """True states are rows of the new memory."""
        self.__dict__.update(state)
        if self.config.true_states == "every_step":
            self.buffers.truth = self.batch.worlds

    # Stepping

    def step(self, actions: np.ndarray) -> Outcome:
        """Advance every world by one action."""
        if not self._all_running:
            return self.step_some(np.arange(self.batch.n), actions)
        return self._play(None, actions)

    def step_some(self, places: Sequence[int] | np.ndarray, actions: np.ndarray) -> Outcome:
        """Advance the worlds `places` of this slice, in any order, the others left alone."""
        rows = np.asarray(places, np.intp)
        spread = np.zeros(self.batch.n, np.int64)
        spread[rows] = actions
        self.buffers.truncated[rows] = False
        due = self._state[rows] != RUNNING
        outcome = self._play(rows[~due], spread)
        if due.any():
            self._settle(rows[due], outcome)
        return outcome

    def _play(self, rows: np.ndarray | None, actions: np.ndarray) -> Outcome:
        """The kernel's step; where an episode was over, mode `next_step` begins a new one in its place."""
        batch, buffers, world = self.batch, self.buffers, self._world
        stepped = self._mask(rows) if world.gives_info or world.gives_mask else None
        if stepped is not None and self._next_step:
            stepped &= batch.worlds["over"] == 0
        seen = buffers.observations if self._bytes is None else self._bytes
        batch.step(actions, seen, buffers.rewards, buffers.truncated, self._next_step, rows)
        self._show(rows)
        if self._ages:
            self._age(rows)
        infos = {} if stepped is None else self._infos(stepped, self._mask(rows))
        if self._same_step:
            ended = buffers.truncated if rows is None else self._mask(rows) & buffers.truncated
            if ended.any():
                infos = self._begin_in_same_step(ended, infos)
        return Outcome(gathered=infos) if infos or rows is not None else _NOTHING

    def _show(self, rows: np.ndarray | None) -> None:
        """Where the kernel wrote elsewhere: the observations of these rows, in the user's dtype."""
        if self._bytes is not None:
            where = slice(None) if rows is None else rows
            self.buffers.observations[where] = self._bytes[where]

    def _mask(self, rows: np.ndarray | None) -> np.ndarray:
        mask = np.full(self.batch.n, rows is None, np.bool_)
        if rows is not None:
            mask[rows] = True
        return mask

    def _infos(self, stepped: np.ndarray, given: np.ndarray) -> dict[str, Any]:
        """What `CAGE2Env` says after a step, and after a reset where there was none, as arrays with masks."""
        infos: dict[str, Any] = {}
        if self._world.gives_mask:
            infos |= {"action_mask": ACTION_MASK * given[:, None], "_action_mask": given}
        if self._world.gives_info:
            infos |= worlds_info(self.batch.worlds, stepped)
        return infos

    def _begin_in_same_step(self, ended: np.ndarray, infos: dict[str, Any]) -> dict[str, Any]:
        """Begin new episodes where one ended; what the last step gave moves to `final_obs` and `final_info`."""
        final_obs = np.full(self.batch.n, None, object)
        for i in np.flatnonzero(ended).tolist():
            final_obs[i] = self.buffers.observations[i].copy()
        self._begin(ended, read_seeds(None, self.batch.n))
        mask = {key: value for key, value in infos.items() if key.endswith("action_mask")}
        return {
            **_only(infos, ~ended), **mask,
            "final_obs": final_obs, "_final_obs": ended.copy(),
            "final_info": _only(infos, ended), "_final_info": ended.copy(),
        }  # fmt: skip

    def _settle(self, rows: np.ndarray, outcome: Outcome) -> None:
        """Instead of a step: the reset that is owed, or the end of an episode that was lost with an earlier worker."""
        self.buffers.rewards[rows] = 0.0
        if self._ages:
            self.buffers.age[rows] += self.buffers.age[rows] >= 0
        lost, owed = rows[self._state[rows] == LOST], rows[self._state[rows] != LOST]
        infos: dict[int, dict[str, Any]] = {i: {"worker_restarted": True} for i in lost.tolist()}
        self.buffers.truncated[lost] = True
        begin = owed
        if self._same_step:
            begin = rows
            for i, info in infos.items():
                infos[i] = {"final_obs": self.buffers.observations[i].copy(), "final_info": dict(info), **info}
        self._state[lost] = RESET_OWED
        self._begin(self._mask(begin), read_seeds(None, self.batch.n))
        if self._world.gives_mask:
            for i in begin.tolist():
                infos.setdefault(i, {})["action_mask"] = ACTION_MASK.copy()
        outcome.infos += [(self.first + i, info) for i, info in sorted(infos.items())]

    # Resetting

    def reset(self, seeds: np.ndarray, given: np.ndarray, mask: np.ndarray, options: dict[str, Any] | None) -> Outcome:
        """Begin episodes in the worlds of the mask; `seeds` count where they were given."""
        try:
            refuse_options(options)
        except ValueError as error:
            return self._failure(error, mask, "reset")
        mask = np.asarray(mask)
        self._begin(mask, Seeds(np.asarray(seeds, np.uint64), np.asarray(given)))
        self.buffers.rewards[mask] = 0.0
        self.buffers.truncated[mask] = False
        return Outcome(gathered=self._infos(np.zeros_like(mask), mask.copy()) if self._world.gives_mask else {})

    def reset_some(self, places: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None) -> Outcome:
        """Begin episodes in the worlds `places` of this slice."""
        each: list[int | None] = [None] * self.batch.n
        for place, seed in zip(places, seeds, strict=True):
            each[place] = seed
        mask = self._mask(np.asarray(places, np.intp))
        try:
            return self.reset(*read_seeds(each, self.batch.n), mask, options)
        except (TypeError, ValueError) as error:
            return self._failure(error, mask, "reset")

    def _begin(self, chosen: np.ndarray, seeds: Seeds) -> None:
        """New episodes; a world without a seed continues its stream, or gets one if it has none."""
        if self._next_seeds is not None:  # of worlds in the place of lost ones
            used = self._next_seeds.given & chosen & ~seeds.given
            seeds = Seeds(np.where(used, self._next_seeds.values, seeds.values), seeds.given | used)
            self._next_seeds.given[chosen] = False
        known = seeds.given & chosen
        self._seeds.values[known], self._seeds.given[known] = seeds.values[known], True
        if not self._has_stream[chosen].all():
            seeds = Seeds(seeds.or_fresh().values, seeds.given | ~self._has_stream)
        self.batch.reset(self.buffers.observations if self._bytes is None else self._bytes, seeds, chosen)
        self._show(None if chosen.all() else np.flatnonzero(chosen))
        self._has_stream[chosen] = True
        self._state[chosen] = RUNNING
        self._all_running = not self._state.any()
        if self.config.true_states == "every_step":
            self.buffers.age[chosen] = 0
        elif isinstance(self.config.true_states, int):
            self._write_truth(np.flatnonzero(chosen))

    # True states

    def _age(self, rows: np.ndarray | None) -> None:
        """After a step: true states are a step older, or fresh where it is their turn."""
        age, rule = self.buffers.age, self.config.true_states
        rows = np.arange(self.batch.n) if rows is None else rows
        age[rows] += age[rows] >= 0
        due = self.buffers.truncated[rows]
        if isinstance(rule, int):
            due = due | (self.batch.worlds["time"][rows] % rule == 0)
        self._write_truth(rows[due])

    def _write_truth(self, rows: np.ndarray) -> None:
        assert self.buffers.truth is not None
        if self.config.true_states != "every_step":  # then the worlds live there
            self.buffers.truth[rows] = self.batch.worlds[rows]
        self.buffers.age[rows] = 0

    def refresh_truths(self) -> Outcome:
        """Fetch the true state of every world now."""
        self._write_truth(np.arange(self.batch.n))
        return Outcome()

    # Other calls: a single environment stands for each world, in the same memory

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        """Call a method, or read an attribute, of every environment."""
        return self._environments().call(name, args, kwargs)

    def set_attr(self, values: Sequence[Any], name: str) -> Outcome:
        """Set an attribute of every environment."""
        return self._environments().set_attr(values, name)

    def apply(self, chosen: Sequence[bool], function: Callable[[Any], Any]) -> Outcome:
        """The function's value for each of the chosen environments, None for the others."""
        return self._environments().apply(chosen, function)

    def _environments(self) -> EnvSlice:
        batch, seeds = self.batch, self._seeds.each()
        if self._singles is None:
            worlds = [self._world.over_world(batch, i) for i in range(batch.n)]
            buffers = Buffers.allocate(Description.of(worlds[0]).layout, batch.n)
            self._singles = EnvSlice(worlds, self.first, buffers, RunConfig())
        for i, world in enumerate(self._singles.environments):
            world.unwrapped.follow(bool(self._has_stream[i]), seeds[i])  # type: ignore[attr-defined]
        return self._singles

    # Snapshots

    def put_back(self, snapshot: Snapshot, index: int | None, seed: int | None, new_arrays: bool) -> None:
        """Restore all worlds, or one, from a snapshot of worlds."""
        self.batch.restore(snapshot, index, seed)
        chosen = self._mask(None if index is None else np.array([index]))
        if new_arrays:
            self.use_new_arrays()
        self.batch.observe(self.buffers.observations if self._bytes is None else self._bytes)
        self._show(None)
        self._has_stream[chosen] = True
        self._state[chosen] = RUNNING
        self._all_running = not self._state.any()
        if seed is None:
            self._seeds.given[chosen] = False
        else:
            self._seeds.values[chosen] = read_seeds(seed, self.batch.n).values[chosen]
            self._seeds.given[chosen] = True

    def snapshot(self, chosen: Sequence[bool]) -> Outcome:
        """The chosen worlds as they are now, in the form that `EnvSlice` gives: what one saved the other restores."""
        values: list[Saved | None] = [None] * self.batch.n
        early = np.asarray(chosen) & ~self._has_stream
        if early.any():
            return self._failure(ResetNeeded("call reset() before anything else"), early, "snapshot")
        over, seeds = self.batch.worlds["over"] != 0, self._seeds.each()
        for i in np.flatnonzero(chosen).tolist():
            state = RESET_OWED if over[i] and self._next_step else int(self._state[i])
            time = int(self.batch.worlds["time"][i])
            values[i] = Saved(self.batch.snapshot(i), time, state, seeds[i], self.buffers.row(i))
        return Outcome(values=list(values))

    def restore(self, entries: Sequence[Saved | None], seeds: Sequence[int | None]) -> Outcome:
        """Bring worlds back to what `snapshot` gave, with new chance where there is a seed; None leaves one."""
        outcome = Outcome()
        for i, saved in enumerate(entries):
            if saved is None:
                continue
            seed = seeds[i]
            try:
                self.batch.restore(saved.state, i, None if seed is None else seed - i)
            except (TypeError, ValueError) as error:
                outcome.extend(self._failure(error, np.arange(self.batch.n) == i, "restore"))
                continue
            self._restored(i, saved)
        self._all_running = not self._state.any()
        return outcome

    def _restored(self, i: int, saved: Saved) -> None:
        self._has_stream[i] = True
        self._state[i] = saved.autoreset if saved.autoreset != RESET_OWED else RUNNING  # the kernel resets it
        self._seeds.values[i], self._seeds.given[i] = saved.seed or 0, saved.seed is not None
        if saved.row is not None:
            *row, truth = saved.row
            self.buffers.put_results(i, (*row, None if self.config.true_states == "every_step" else truth))
        else:
            seen = np.empty((self.batch.n, self.batch.obs_size), np.uint8)
            self.batch.observe(seen)
            self.buffers.observations[i] = seen[i]
            self.buffers.rewards[i], self.buffers.truncated[i] = 0.0, False
        if self.config.true_states == "every_step" or (saved.row is None and self.config.true_states):
            self._write_truth(np.array([i]))

    # The rest

    def use_new_arrays(self) -> None:
        """Leave the arrays of the last step to the user."""
        n, old = self.batch.n, self.buffers
        old.observations = np.empty_like(old.observations)
        old.rewards, old.terminated, old.truncated = np.empty(n), np.zeros(n, np.bool_), np.empty(n, np.bool_)

    def close(self) -> Outcome:
        """End the threads."""
        self.batch.close()
        return Outcome()

    def _failure(self, error: Exception, mask: np.ndarray, during: str) -> Outcome:
        """The same failure for each of the mask."""
        times, seeds = self.batch.worlds["time"], self._seeds.each()
        rows = np.flatnonzero(mask).tolist()
        failures = [Failure.of(error, self.first + i, during, None, seeds[i], int(times[i])) for i in rows]
        return Outcome(failures=failures, values=[None] * self.batch.n)


def _only(infos: dict[str, Any], chosen: np.ndarray) -> dict[str, Any]:
    """The infos of the chosen environments; of the others None, zero or False."""
    kept = {key: value.copy() for key, value in infos.items()}
    for value in kept.values():
        value[~chosen] = None if value.dtype == object else 0
    return kept


def refuse_options(options: dict[str, Any] | None) -> None:
    """The built-in world has no options of its own."""
    if options:
        raise ValueError(f"unknown options {sorted(options)}; the built-in world takes none but 'reset_mask'")
