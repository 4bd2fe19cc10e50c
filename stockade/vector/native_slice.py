"""A slice of the built-in world as one compiled batch: rows and their actions -> kernel -> rows of arrays, infos.

It takes the same commands as `EnvSlice`, and is the one place where batches of the built-in world are stepped:
`NativeVectorEnv` holds one of all worlds in this process, the actors of `ray` hold one each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from stockade.cage2.actions import ACTION_MASK
from stockade.cage2.batch import Batch, Snapshot
from stockade.cage2.env import CAGE2Env
from stockade.cage2.seeds import Seeds, read_seeds
from stockade.cage2.sides import SidedBatch, rows_for
from stockade.cage2.truth import worlds_info
from stockade.vector.outcome import NOTHING, Inheritance, Outcome, RunConfig
from stockade.vector.slice import LOST, RESET_OWED, RUNNING, EnvSlice
from stockade.vector.spaces import Buffers, Tree, assign, leaves, rows_of, tree_map, value_of


@dataclass(frozen=True)
class NativeFactory:
    """Makes the built-in world with options of `CAGE2Env`: one, as every factory does, or a whole slice of them."""

    options: dict[str, Any]

    def __call__(self) -> CAGE2Env:
        return CAGE2Env(**self.options)

    def make_slice(
        self, count: int, first: int, buffers: Buffers, config: RunConfig, inheritance: Inheritance | None
    ) -> "NativeSlice":
        """`count` of them as one batch; arguments as of `EnvSlice`."""
        world = self()
        batch = world.make_batch(count, threads=1)  # workers are the way to more cores
        return NativeSlice(world, batch, first, buffers, config, inheritance)


class NativeSlice:
    """The worlds of a batch, stepped by the kernel; `world` is one like them, the rest as of `EnvSlice`."""

    def __init__(
        self,
        world: CAGE2Env,
        batch: Batch,
        first: int,
        buffers: Buffers,
        config: RunConfig,
        inheritance: Inheritance | None = None,
    ) -> None:
        self.first, self.buffers, self.config, self.batch = first, buffers, config, batch
        self._world = world
        self._next_step = config.autoreset_mode is AutoresetMode.NEXT_STEP
        self._same_step = config.autoreset_mode is AutoresetMode.SAME_STEP
        self._ages = config.true_states not in (None, "every_step")
        if config.true_states == "every_step":
            assert buffers.truth is not None
            batch.move_to(buffers.truth)
        # The kernel writes bytes, and at a reset those of all worlds: not where rows of lost worlds must stay.
        rows = rows_for(batch)
        written = rows.values() if isinstance(rows, dict) else [rows]
        same = all(leaf.dtype == row.dtype for leaf, row in zip(leaves(world.observation_space), written, strict=True))
        self._bytes = None if same and inheritance is None else rows
        self._has_stream = np.zeros(batch.n, np.bool_)  # of chance; a world without one needs a seed
        self._seeds = read_seeds(None, batch.n)  # of the last seeded resets
        self._next_seeds = read_seeds(None, batch.n)  # of worlds in the place of lost ones
        self._state = np.full(batch.n, RUNNING, np.int8)
        self._all_running = inheritance is None
        self._singles: EnvSlice | None = None
        if inheritance is not None:
            self._state[:] = np.where(inheritance.owed, RESET_OWED, LOST)
            self._next_seeds = read_seeds(list(inheritance.seeds), batch.n)
            buffers.put_results(slice(None), inheritance.results)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_singles": None}  # which are views

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.config.true_states == "every_step":
            self.buffers.truth = self.batch.worlds  # rows of the new memory

    # Stepping

    def step(self, actions: Tree) -> Outcome:
        if not self._all_running:
            return self.step_some(np.arange(self.batch.n), actions)
        return self._play(None, actions)

    def step_some(self, places: Sequence[int] | np.ndarray, actions: Tree) -> Outcome:
        """Advance the worlds `places` of this slice, in any order, the others left alone."""
        rows = np.asarray(places, np.intp)
        spread = tree_map(lambda _: np.zeros(self.batch.n, np.int64), actions)
        assign(spread, rows, actions)
        self.buffers.truncated[rows] = False
        due = self._state[rows] != RUNNING
        outcome = self._play(rows[~due], spread)
        if due.any():
            outcome.extend(self._one_by_one("step_some", rows[due].tolist(), rows_of(spread, rows[due])))
        return outcome

    def _play(self, rows: np.ndarray | None, actions: Tree) -> Outcome:
        """The kernel's step; where an episode was over, mode `next_step` begins a new one in its place."""
        batch, buffers, world = self.batch, self.buffers, self._world
        stepped = self._mask(rows) if world.gives_info or world.gives_mask else None
        if stepped is not None and self._next_step:
            stepped &= batch.worlds["over"] == 0
        batch.step(actions, self._seen, buffers.rewards, buffers.truncated, self._next_step, rows)
        self._show(rows)
        if self._ages:
            self._age(rows)
        infos = {} if stepped is None else self._infos(stepped, self._mask(rows))
        if self._same_step:
            ended = buffers.truncated if rows is None else self._mask(rows) & buffers.truncated
            if ended.any():
                infos = self._begin_in_same_step(ended, infos)
        return Outcome(gathered=infos) if infos or rows is not None else NOTHING

    def _show(self, rows: np.ndarray | None) -> None:
        """Where the kernel wrote elsewhere: the observations of these rows, in the user's dtype."""
        if self._bytes is not None:
            where = slice(None) if rows is None else rows
            assign(self.buffers.observations, where, rows_of(self._bytes, where))

    @property
    def _seen(self) -> Tree:
        """Where the kernel writes what is seen."""
        return self.buffers.observations if self._bytes is None else self._bytes

    def _mask(self, rows: np.ndarray | None) -> np.ndarray:
        mask = np.full(self.batch.n, rows is None, np.bool_)
        if rows is not None:
            mask[rows] = True
        return mask

    def _infos(self, stepped: np.ndarray, given: np.ndarray) -> dict[str, Any]:
        """What `CAGE2Env` says after a step, and after a reset where there was none, as arrays with masks."""
        infos: dict[str, Any] = {}
        if self._world.gives_mask:
            infos |= {"action_mask": self._action_mask(given), "_action_mask": given}
        if self._world.gives_info:
            infos |= worlds_info(self.batch.worlds, stepped)
        return infos

    def _action_mask(self, given: np.ndarray) -> Tree:
        """What can be tried, 0 where nothing is given."""
        if not isinstance(self.batch, SidedBatch):
            return ACTION_MASK * given[:, None]
        masks = tree_map(lambda mask: mask * given[:, None], self.batch.masks())
        if isinstance(masks, dict):  # infos of the two sides are marked too
            masks |= {f"_{side}": given.copy() for side in list(masks)}
        return masks

    def _begin_in_same_step(self, ended: np.ndarray, infos: dict[str, Any]) -> dict[str, Any]:
        """Begin new episodes where one ended; what the last step gave moves to `final_obs` and `final_info`."""
        final_obs = np.full(self.batch.n, None, object)
        for i in np.flatnonzero(ended).tolist():
            final_obs[i] = value_of(self.buffers.observations, i)
        self._begin(ended, read_seeds(None, self.batch.n))
        mask = {}
        if self._world.gives_mask:  # of the new episode
            mask = {"action_mask": self._action_mask(infos["_action_mask"]), "_action_mask": infos["_action_mask"]}
        return {
            **_only(infos, ~ended), **mask,
            "final_obs": final_obs, "_final_obs": ended.copy(),
            "final_info": _only(infos, ended), "_final_info": ended.copy(),
        }  # fmt: skip

    # Resetting

    def reset(self, seeds: np.ndarray, given: np.ndarray, mask: np.ndarray, options: dict[str, Any] | None) -> Outcome:
        """Begin episodes in the worlds of the mask; `seeds` count where they were given."""
        if options:  # which they refuse
            return self._one_by_one("reset", seeds, given, mask, options)
        mask = np.asarray(mask)
        self._begin(mask, Seeds(np.asarray(seeds, np.uint64), np.asarray(given)))
        self.buffers.rewards[mask] = 0.0
        self.buffers.truncated[mask] = False
        return Outcome(gathered=self._infos(np.zeros_like(mask), mask.copy()) if self._world.gives_mask else {})

    def reset_some(self, places: Sequence[int], seeds: Sequence[int | None], options: dict[str, Any] | None) -> Outcome:
        each: list[int | None] = [None] * self.batch.n
        for place, seed in zip(places, seeds, strict=True):
            each[place] = seed
        try:
            return self.reset(*read_seeds(each, self.batch.n), self._mask(np.asarray(places, np.intp)), options)
        except (TypeError, ValueError):  # a seed that is none: they say which
            return self._one_by_one("reset_some", places, seeds, options)

    def _begin(self, chosen: np.ndarray, seeds: Seeds) -> None:
        """New episodes; a world without a seed continues its stream, or gets one if it has none."""
        used = self._next_seeds.given & chosen & ~seeds.given
        if used.any():
            seeds = Seeds(np.where(used, self._next_seeds.values, seeds.values), seeds.given | used)
        self._next_seeds.given[chosen] = False
        known = seeds.given & chosen
        self._seeds.values[known], self._seeds.given[known] = seeds.values[known], True
        if not self._has_stream[chosen].all():
            seeds = Seeds(seeds.or_fresh().values, seeds.given | ~self._has_stream)
        self.batch.reset(self._seen, seeds, chosen)
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

    def refresh_some(self, places: Sequence[int]) -> Outcome:
        self._write_truth(np.asarray(places, np.intp))
        return Outcome()

    # What is rare

    def _one_by_one(self, command: str, *arguments: Any) -> Outcome:
        """A command for single environments that stand for the worlds, in the same memory.

        They are told before what the kernel did, and asked afterwards what became of the worlds.
        """
        batch, worlds = self.batch, self.batch.worlds
        if self._singles is None:
            alone = [self._world.over_world(batch, i) for i in range(batch.n)]
            self._singles = EnvSlice(alone, self.first, self.buffers, self.config)
        singles: Any = self._singles
        owed = (worlds["over"] != 0) & (self._state == RUNNING) & self._next_step  # the kernel knows by itself
        singles.state = np.where(owed, RESET_OWED, self._state).tolist()
        singles.began = (singles.clock - worlds["time"]).tolist()
        singles.seeds, singles.next_seeds = self._seeds.each(), self._next_seeds.each()
        for i, world in enumerate(singles.environments):
            world.follow(bool(self._has_stream[i]), singles.seeds[i])
        outcome: Outcome = getattr(singles, command)(*arguments)
        self._has_stream[:] = [world._is_reset for world in singles.environments]
        self._seeds = read_seeds(singles.seeds, batch.n)
        self._next_seeds = read_seeds(singles.next_seeds, batch.n)
        self._state[:] = singles.state
        self._state[(self._state == RESET_OWED) & (worlds["over"] != 0) & self._next_step] = RUNNING
        self._all_running = not self._state.any()
        return outcome

    call = partialmethod(_one_by_one, "call")
    set_attr = partialmethod(_one_by_one, "set_attr")
    apply = partialmethod(_one_by_one, "apply")
    snapshot = partialmethod(_one_by_one, "snapshot")
    restore = partialmethod(_one_by_one, "restore")

    def put_back(self, snapshot: Snapshot, index: int | None, seed: int | None, new_arrays: bool) -> None:
        """Restore all worlds, or one, from a snapshot of worlds."""
        self.batch.restore(snapshot, index, seed)
        chosen = self._mask(None if index is None else np.array([index]))
        if new_arrays:
            self.use_new_arrays()
        self.batch.observe(self._seen)
        self._show(None)
        self._has_stream[chosen] = True
        self._state[chosen] = RUNNING
        self._all_running = not self._state.any()
        seeds = read_seeds(seed, self.batch.n)
        self._seeds.values[chosen], self._seeds.given[chosen] = seeds.values[chosen], seeds.given[chosen]

    def use_new_arrays(self) -> None:
        """Leave the arrays of the last step to the user."""
        n, old = self.batch.n, self.buffers
        old.observations = tree_map(np.empty_like, old.observations)
        old.rewards, old.terminated, old.truncated = np.empty(n), np.zeros(n, np.bool_), np.empty(n, np.bool_)

    def close(self) -> Outcome:
        self.batch.close()
        return Outcome()


def _only(infos: dict[str, Any], chosen: np.ndarray) -> dict[str, Any]:
    """The infos of the chosen environments; of the others None, zero or False."""
    kept = {key: _only(value, chosen) if isinstance(value, dict) else value.copy() for key, value in infos.items()}
    for value in kept.values():
        if not isinstance(value, dict):
            value[~chosen] = None if value.dtype == object else 0
    return kept
