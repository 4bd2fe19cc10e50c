"""A slice of the built-in world as one compiled batch, for backends whose workers are far away: the same commands as
`EnvSlice`, so that a worker need not know which of the two it holds.

rows and their actions -> kernel over runs of neighbouring rows -> rows of arrays; infos returned
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

from stockade.cage2 import kernel
from stockade.cage2.actions import ACTION_MASK
from stockade.cage2.batch import Batch
from stockade.cage2.env import CAGE2Env
from stockade.cage2.history import remember_batch
from stockade.cage2.info import WorldInfo
from stockade.cage2.jit import as_records
from stockade.cage2.observe import observation_words
from stockade.cage2.seeds import Seeds, read_seeds
from stockade.cage2.state import OBS_SIZE
from stockade.vector.description import Inheritance, SliceConfig, layout_of
from stockade.vector.layout import Buffers, RowReader
from stockade.vector.outcome import Failure, Outcome
from stockade.vector.slice import LOST, RESET_OWED, RUNNING, EnvSlice


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
        self, count: int, first: int, buffers: Buffers, config: SliceConfig, inheritance: Inheritance | None
    ) -> NativeSlice:
        """`count` of them as one batch; arguments as of `EnvSlice`."""
        return NativeSlice(self, count, first, buffers, config, inheritance)


class NativeSlice:
    """Some worlds, stepped by the kernel.

    Args:
        factory: makes one of them.
        count: how many.
        first, buffers, config, inheritance: as of `EnvSlice`.
    """

    def __init__(
        self,
        factory: NativeFactory,
        count: int,
        first: int,
        buffers: Buffers,
        config: SliceConfig,
        inheritance: Inheritance | None = None,
    ) -> None:
        world = factory()
        self.first = first
        self.buffers = buffers
        self.config = config
        self.action_reader = RowReader(world.action_space)
        self._factory = factory
        self._batch = Batch(world.config, count, threads=1)  # workers are the way to more cores
        if config.true_states == "every_step":
            assert buffers.truth is not None
            self._batch.move_to(buffers.truth)
        self._seen = np.zeros((count, self._batch.obs_size), np.uint8)
        self._bits = self._seen if self._batch.memory is None else np.zeros((count, OBS_SIZE), np.uint8)
        self._actions = np.zeros(count, np.int64)
        self._state = np.full(count, RUNNING, np.int8)
        self._has_stream = np.zeros(count, np.bool_)  # of chance; a world without one needs a seed
        self._seeds: list[int | None] = [None] * count
        self._next_seed: list[int | None] = [None] * count
        if inheritance is not None:
            self._state[:] = np.where(inheritance.owed, RESET_OWED, LOST)
            self._next_seed = list(inheritance.seeds)
        self._with_mask = bool(factory.options.get("action_mask", False))
        self._infos: list[WorldInfo] = []
        if factory.options.get("info", True):
            self._infos = [WorldInfo(self._batch.worlds[i : i + 1]) for i in range(count)]
        self._singles: EnvSlice | None = None

    # Stepping

    def step(self, actions: np.ndarray) -> Outcome:
        """Advance every world by one action."""
        return self.step_some(np.arange(len(self._actions)), actions)

    def step_some(self, places: Sequence[int] | np.ndarray, actions: np.ndarray) -> Outcome:
        """Advance the worlds `places` of this slice, in any order, the others left alone."""
        rows = np.asarray(places, np.intp)
        self._actions[rows] = actions
        outcome = Outcome()
        self.buffers.truncated[rows] = False
        self._grow_older(rows)
        due = self._state[rows] != RUNNING
        if due.any():
            self._settle(rows[due], outcome)
            rows = rows[~due]
        self._play(rows, outcome)
        outcome.infos.sort(key=lambda pair: pair[0])
        return outcome

    def _play(self, rows: np.ndarray, outcome: Outcome) -> None:
        """The kernel's step; where an episode was over, mode `next_step` begins a new one in its place."""
        batch, buffers = self._batch, self.buffers
        began = batch.worlds["over"][rows] != 0
        autoreset = self.config.autoreset_mode is AutoresetMode.NEXT_STEP
        out = observation_words(self._bits), buffers.rewards, buffers.truncated
        for run in _runs(rows):
            kernel.step_batch(*batch.records, *batch.constants, self._actions, *out, *run, autoreset)
        self._remember(rows)
        buffers.observations[rows] = self._seen[rows]
        ended = buffers.truncated[rows]
        self._refresh(rows, ended)
        same_step = self.config.autoreset_mode is AutoresetMode.SAME_STEP
        infos = self._infos_of(rows, ~began if autoreset else np.ones_like(began))
        if same_step and ended.any():
            self._begin_in_same_step(rows[ended], infos)
        outcome.infos += [(self.first + i, info) for i, info in infos.items() if info]

    def _remember(self, rows: np.ndarray) -> None:
        """With `obs="memory"`, after the kernel's step."""
        batch = self._batch
        if batch.memory is not None:
            times = np.ascontiguousarray(batch.worlds["time"])
            lived = self._actions, np.ascontiguousarray(batch.worlds["blue_success"]), times, batch.config.horizon
            for run in _runs(rows):
                remember_batch(as_records(batch.memory), *lived, self._bits, self._seen, *run)

    def _infos_of(self, rows: np.ndarray, stepped: np.ndarray) -> dict[int, dict[str, Any]]:
        """What `CAGE2Env` says after a step, or after a reset where there was none."""
        if not (self._infos or self._with_mask):
            return {}
        found = {}
        for i, was_step in zip(rows.tolist(), stepped.tolist(), strict=True):
            found[i] = {**(self._infos[i].read() if self._infos and was_step else {}), **self._reset_info()}
        return found

    def _reset_info(self) -> dict[str, Any]:
        return {"action_mask": ACTION_MASK.copy()} if self._with_mask else {}

    def _begin_in_same_step(self, ended: np.ndarray, infos: dict[int, dict[str, Any]]) -> None:
        """New episodes at once; what the last step gave moves to `final_obs` and `final_info`."""
        finals = {i: self.buffers.observations[i].copy() for i in ended.tolist()}
        self._begin(ended)
        for i, final in finals.items():
            infos[i] = {"final_obs": final, "final_info": infos.get(i, {}), **self._reset_info()}

    def _settle(self, rows: np.ndarray, outcome: Outcome) -> None:
        """Instead of a step: the reset that is owed, or the end of an episode that went down with an earlier worker."""
        self.buffers.rewards[rows] = 0.0
        lost, owed = rows[self._state[rows] == LOST], rows[self._state[rows] != LOST]
        infos: dict[int, dict[str, Any]] = {i: {"worker_restarted": True} for i in lost.tolist()}
        self.buffers.truncated[lost] = True
        if self.config.autoreset_mode is AutoresetMode.SAME_STEP:
            self._begin_in_same_step(lost, infos)
            for i in lost.tolist():
                infos[i]["worker_restarted"] = True
        else:
            self._state[lost] = RESET_OWED
        self._begin(owed)
        infos |= {i: self._reset_info() for i in owed.tolist()}
        outcome.infos += [(self.first + i, info) for i, info in infos.items() if info]

    # Resetting

    def reset(self, seeds: Sequence[int | None], options: dict[str, Any] | None, mask: Sequence[bool]) -> Outcome:
        """Begin episodes in the worlds of the mask."""
        outcome = Outcome()
        rows = np.flatnonzero(mask)
        try:
            if options:
                raise ValueError(f"unknown options {sorted(options)}; this environment takes none")
            self._begin(rows, list(seeds))
        except (TypeError, ValueError) as error:
            return self._failure(error, rows, "reset")
        self.buffers.rewards[rows] = 0.0
        self.buffers.truncated[rows] = False
        if self._with_mask:
            outcome.infos = [(self.first + i, self._reset_info()) for i in rows.tolist()]
        return outcome

    def reset_one(self, i: int, seed: int | None, options: dict[str, Any] | None) -> Outcome:
        """Begin an episode in world i of this slice alone."""
        mask = np.arange(len(self._actions)) == i
        return self.reset([seed] * len(mask), options, mask.tolist())

    def _begin(self, rows: np.ndarray, given: list[int | None] | None = None) -> None:
        """New episodes; a world without a seed goes on with its stream, or gets one if it has none."""
        if not len(rows):
            return
        asked = given or [None] * len(self._actions)
        wanted = [next_seed if seed is None else seed for seed, next_seed in zip(asked, self._next_seed, strict=True)]
        seeds = read_seeds(wanted, len(wanted))
        chosen = np.zeros(len(wanted), np.bool_)
        chosen[rows] = True
        values, needed = seeds.or_fresh().values, seeds.given | ~self._has_stream
        self._batch.reset(self._seen, Seeds(values, needed), chosen)
        self.buffers.observations[rows] = self._seen[rows]
        self._has_stream[rows] = True
        self._state[rows] = RUNNING
        for i in rows.tolist():
            self._next_seed[i] = None
            if wanted[i] is not None:
                self._seeds[i] = wanted[i]
        if self.config.true_states == "every_step" or isinstance(self.config.true_states, int):
            self._write_truth(rows)

    # True states

    def _grow_older(self, rows: np.ndarray) -> None:
        if self.config.true_states not in (None, "every_step"):
            age = self.buffers.age
            age[rows] += age[rows] >= 0

    def _refresh(self, rows: np.ndarray, ended: np.ndarray) -> None:
        """After a step: true states of the worlds whose turn it is."""
        rule = self.config.true_states
        if isinstance(rule, int):
            self._write_truth(rows[ended | (self._batch.worlds["time"][rows] % rule == 0)])
        elif rule == "episode_end":
            self._write_truth(rows[ended])

    def _write_truth(self, rows: np.ndarray) -> None:
        assert self.buffers.truth is not None
        if self.config.true_states != "every_step":  # then the worlds live there
            self.buffers.truth[rows] = self._batch.worlds[rows]
        self.buffers.age[rows] = 0

    def refresh_truths(self) -> Outcome:
        """Fetch the true state of every world now."""
        self._write_truth(np.arange(len(self._actions)))
        return Outcome()

    # Other calls: a single environment stands in for each world

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        """Call a method, or read an attribute, of every environment."""
        return self._by_singles(lambda singles: singles.call(name, args, kwargs))

    def set_attr(self, name: str, values: Sequence[Any]) -> Outcome:
        """Set an attribute of every environment."""
        return self._by_singles(lambda singles: singles.set_attr(name, values))

    def apply(self, function: Callable[[Any], Any], chosen: Sequence[bool]) -> Outcome:
        """The function's value for each of the chosen environments, None for the others."""
        return self._by_singles(lambda singles: singles.apply(function, chosen))

    def _by_singles(self, use: Callable[[EnvSlice], Outcome]) -> Outcome:
        """Bring single environments to the moment of the worlds, use them, and bring back what that changed."""
        count, batch = len(self._actions), self._batch
        if self._singles is None:
            worlds = [self._factory() for _ in range(count)]
            self._singles = EnvSlice(worlds, self.first, Buffers.allocate(layout_of(worlds[0]), count), SliceConfig())
        running = np.flatnonzero(self._has_stream).tolist()
        for i in running:
            world: Any = self._singles.environments[i]
            seed = self._seeds[i]
            if seed is not None and world.np_random_seed != seed:
                world.reset(seed=seed)
            world.restore(batch.snapshot(i))
        outcome = use(self._singles)
        for i in running:
            world = self._singles.environments[i]
            batch.restore(world.snapshot(), i)
        return outcome

    # Snapshots, in the form that `EnvSlice` gives them: what one has taken the other can restore

    def snapshot(self) -> Outcome:
        """The state of every world: (its own snapshot, steps, state of autoreset, seed)."""
        if not self._has_stream.all():
            error = ResetNeeded("call reset() before anything else")
            return self._failure(error, np.flatnonzero(~self._has_stream), "snapshot")
        worlds = self._batch.worlds
        owed = (worlds["over"] != 0) & (self.config.autoreset_mode is AutoresetMode.NEXT_STEP)
        states = np.where((self._state == RUNNING) & owed, RESET_OWED, self._state).tolist()
        times = worlds["time"].tolist()
        values = [(self._batch.snapshot(i), times[i], states[i], self._seeds[i]) for i in range(len(times))]
        return Outcome(values=values)

    def restore(self, states: Sequence[tuple[Any, int, int, int | None]]) -> Outcome:
        """Bring every world back to a state that `snapshot` gave."""
        outcome = Outcome()
        for i, (state, _, autoreset, seed) in enumerate(states):
            try:
                self._batch.restore(state, i)
            except (TypeError, ValueError) as error:
                outcome.extend(self._failure(error, np.array([i]), "restore"))
                continue
            self._has_stream[i], self._state[i], self._seeds[i] = True, autoreset, seed
        return outcome

    def close(self) -> Outcome:
        """Nothing runs on after this."""
        self._batch.close()
        return self._singles.close() if self._singles is not None else Outcome()

    def _failure(self, error: Exception, rows: np.ndarray, during: str) -> Outcome:
        """The same failure for each of the rows."""
        times = self._batch.worlds["time"]
        failures = [
            Failure.of(error, self.first + i, during, None, self._seeds[i], int(times[i])) for i in rows.tolist()
        ]
        return Outcome(failures=failures)


def _runs(rows: np.ndarray) -> Iterator[tuple[int, int]]:
    """Different rows in any order as ranges [begin, end) of neighbours: the kernel works on ranges."""
    if not len(rows):
        return
    ordered = np.sort(rows)
    breaks = np.flatnonzero(np.diff(ordered) != 1) + 1
    for run in np.split(ordered, breaks):
        yield int(run[0]), int(run[-1]) + 1
