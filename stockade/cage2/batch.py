"""Many worlds in one block of memory: seeding, stepping over threads, snapshots. Both environments stand on this.

step(actions, out) -> slices of the batch -> kernel.step_batch on each, a Python thread a slice (kernels hold no GIL)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stockade.cage2 import kernel
from stockade.cage2.config import WorldConfig
from stockade.cage2.jit import as_records
from stockade.cage2.memory import MEMORY, MEMORY_SIZE, recall_batch, remember_batch
from stockade.cage2.observe import observation_words
from stockade.cage2.scenario import N_HOSTS
from stockade.cage2.state import INITIAL, OBS_SIZE, WORLD, ledger_dtype
from stockade.cage2.truth import TrueState

#: Worlds a thread should have at least; below that, waking it costs more than it does.
WORLDS_PER_THREAD = 2048
LARGEST_SEED = 2**64 - 1


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


SeedLike = int | Sequence[int | None] | np.ndarray | None


class Seeds(NamedTuple):
    """A seed for each world: values (n,) uint64, and which of them were given (n,) bool."""

    values: np.ndarray
    given: np.ndarray


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Worlds as they were at one moment, streams of chance included. Can be pickled,
    compared and restored into any worlds of the same configuration.

    Attributes:
        config: of the worlds.
        worlds: (n, bytes of a WORLD record) uint8.
        ledgers: (n, bytes of a ledger record) uint8 under `chance="cyborg"`, else None.
        memory: (n, bytes of a MEMORY record) uint8 with `obs="memory"`, else None.
    """

    config: WorldConfig
    worlds: np.ndarray
    ledgers: np.ndarray | None
    memory: np.ndarray | None = None

    def __len__(self) -> int:
        """Number of worlds."""
        return len(self.worlds)

    def __eq__(self, other: object) -> bool:
        """Bit equality."""
        if not isinstance(other, Snapshot):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        """Equal snapshots have equal hashes, so that a search can look states up."""
        return hash(self._key())

    def _key(self) -> tuple[WorldConfig, bytes, bytes, bytes]:
        ledgers, memory = (b"" if part is None else part.tobytes() for part in (self.ledgers, self.memory))
        return self.config, self.worlds.tobytes(), ledgers, memory


def rows_of_bytes(records: np.ndarray) -> np.ndarray:
    """(n, itemsize) uint8 view of a structured array; copying it is twenty times faster than copying field by field."""
    return records.view(np.uint8).reshape(len(records), records.dtype.itemsize)


class Batch:
    """`n` worlds of one configuration."""

    def __init__(self, config: WorldConfig, n: int, threads: int | None = None) -> None:
        """Set the memory aside. `threads`: None chooses by the size of the batch and the cores."""
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"the number of environments must be a whole number of at least 1, not {n!r}")
        if threads is None:
            threads = max(1, min(available_cores(), n // WORLDS_PER_THREAD))
        if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)) or threads < 1:
            raise ValueError(f"threads={threads!r} must be a whole number of at least 1, or None to choose by size")
        self.config = config
        self.n = int(n)
        self.worlds = np.zeros(n, WORLD)
        self.ledgers = np.zeros(n, ledger_dtype(config.horizon)) if config.chance == "cyborg" else None
        # What blue remembers, and the 52 bits that kernels write where users get more.
        self.memory = np.zeros(n, MEMORY) if config.obs == "memory" else None
        self._bits = None if self.memory is None else np.zeros((n, OBS_SIZE), np.uint8)
        self._all = np.ones(n, np.bool_)
        self._slices = [(self.n * k // threads, self.n * (k + 1) // threads) for k in range(min(int(threads), self.n))]
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = 0
        self._bind()

    def _bind(self) -> None:
        """Views of the memory: the true state for users, records for the kernel."""
        self.truth = TrueState.of(self.worlds)
        parts = self.worlds, self.ledgers, self.memory
        self._bytes = tuple(None if part is None else rows_of_bytes(part) for part in parts)
        ledgers = None if self.ledgers is None else as_records(self.ledgers)
        self.records = as_records(self.worlds), ledgers
        self.constants = as_records(INITIAL), as_records(self.config.settings())

    def __getstate__(self) -> dict[str, Any]:
        """Everything but threads and views."""
        left_out = {"_pool": None, "truth": None, "_bytes": None, "records": None, "constants": None}
        return {**self.__dict__, **left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Views are made anew, of the new memory."""
        self.__dict__.update(state)
        self._bind()

    @property
    def obs_size(self) -> int:
        """Length of an observation."""
        return OBS_SIZE if self.memory is None else MEMORY_SIZE

    # ----------------------------------------------------------------------------------------------------- running
    def reset(self, obs: np.ndarray, seeds: Seeds, chosen: np.ndarray | None = None) -> None:
        """Begin an episode in the chosen worlds (default all); a world without a seed goes on with its stream."""
        chosen = self._all if chosen is None else chosen
        self._seed(seeds.values, seeds.given & chosen)
        self._run(kernel.reset_batch, *self.records, *self.constants, chosen, self.words_for(obs))
        self._recall(obs)

    def _seed(self, values: np.ndarray, given: np.ndarray) -> None:
        if given.any():
            self._run(kernel.seed_batch, *self.records, values, given)

    def step(
        self, actions: np.ndarray, obs: np.ndarray, rewards: np.ndarray, over: np.ndarray, autoreset: bool
    ) -> None:
        """Step every world; with `autoreset` those whose episode is over begin a new one instead.

        Args:
            actions: (n,) int64, checked by the caller.
            obs: (n, obs_size) uint8 written.
            rewards: (n,) float64 written.
            over: (n,) bool written: the episode reached its horizon.
            autoreset: see above.
        """
        out = self.words_for(obs), rewards, over
        self._run(kernel.step_batch, *self.records, *self.constants, actions, *out, last=(autoreset,))
        self.remember(actions, obs)

    def observe(self, obs: np.ndarray) -> None:
        """Write what blue sees now, (n, obs_size) uint8, without a step."""
        self.words_for(obs)[...] = self.worlds["obs"][:, :N_HOSTS]
        self._recall(obs)

    def words_for(self, obs: np.ndarray) -> np.ndarray:
        """(n, 13) int32 for the kernel to write the bits of `obs` into; with `obs="memory"` on the way there."""
        return observation_words(obs if self._bits is None else self._bits)

    def remember(self, actions: np.ndarray, obs: np.ndarray) -> None:
        """With `obs="memory"`: after the kernel's step, let blue remember it and write all that blue knows."""
        if self.memory is not None:
            lived = actions, self.worlds["blue_success"], self.worlds["time"], self.config.horizon, self._bits
            self._run(remember_batch, as_records(self.memory), *lived, obs)

    def _recall(self, obs: np.ndarray) -> None:
        if self.memory is not None:
            lived = self.worlds["time"], self.config.horizon, self._bits
            self._run(recall_batch, as_records(self.memory), *lived, obs)

    def peek(self) -> tuple[np.ndarray, np.ndarray]:
        """Next 32 bits of each reference stream, and the number of words it has handed out; draws nothing."""
        if self.ledgers is None:
            raise ValueError('there is no reference stream under chance="fast"; make the world with chance="cyborg"')
        peeks, drawn = np.zeros(self.n, np.uint32), np.zeros(self.n, np.int64)
        kernel.peek_batch(as_records(self.ledgers.copy()), peeks, drawn)
        return peeks, drawn

    def _run(self, entry_point: Callable[..., None], *args: Any, last: tuple[Any, ...] = ()) -> None:
        if len(self._slices) == 1:
            entry_point(*args, 0, self.n, *last)
            return
        pool = self._threads()
        waiting = [pool.submit(entry_point, *args, *part, *last) for part in self._slices[1:]]
        entry_point(*args, *self._slices[0], *last)
        for future in waiting:
            future.result()

    def _threads(self) -> ThreadPoolExecutor:
        # Threads do not survive a fork: a child makes its own.
        if self._pool is None or self._pool_process != os.getpid():
            self._pool = ThreadPoolExecutor(len(self._slices) - 1, thread_name_prefix="stockade")
            self._pool_process = os.getpid()
        return self._pool

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None and self._pool_process == os.getpid():
            self._pool.shutdown()
        self._pool = None

    # --------------------------------------------------------------------------------------------------- snapshots
    def snapshot(self, index: int | None = None) -> Snapshot:
        """All worlds, or one."""
        part = slice(None) if index is None else self._one(index)
        worlds, ledgers, memory = (None if rows is None else rows[part].copy() for rows in self._bytes)
        assert worlds is not None
        return Snapshot(self.config, worlds, ledgers, memory)

    def restore(self, snapshot: Snapshot, index: int | None = None, seed: int | None = None) -> None:
        """Put worlds back: all of them, or one. A snapshot of one world can be put into all.

        With a seed, world i goes on with a new stream of chance from seed + i, so that copies of one world differ.
        """
        if not isinstance(snapshot, Snapshot):
            raise TypeError(f"expected a Snapshot as snapshot() gives it, not {type(snapshot).__name__}")
        if snapshot.config != self.config:
            raise ValueError(f"the snapshot is of other worlds: {snapshot.config} instead of {self.config}")
        part = slice(0, self.n) if index is None else self._one(index)
        room = part.stop - part.start
        if len(snapshot) not in (1, room):
            raise ValueError(f"the snapshot holds {len(snapshot)} worlds, which do not fit into {room}; take one of "
                             f"{room} worlds, or of a single one")  # fmt: skip
        seeds = None if seed is None else self.seeds(seed)
        for rows, saved in zip(self._bytes, (snapshot.worlds, snapshot.ledgers, snapshot.memory), strict=True):
            if rows is not None and saved is not None:
                rows[part] = saved
        if seeds is not None:
            given = np.zeros(self.n, np.bool_)
            given[part] = True
            self._seed(seeds.values, given)

    def _one(self, index: int) -> slice:
        if not 0 <= index < self.n:
            raise IndexError(f"there is no world {index}; there are {self.n}, numbered from 0")
        return slice(index, index + 1)

    # ------------------------------------------------------------------------------------------------------- seeds
    def seeds(self, seed: SeedLike) -> Seeds:
        """Check seeds, one for each world: s, s+1, ... of an int; a list as it is; None for streams that go on."""
        if seed is None:
            return Seeds(np.zeros(self.n, np.uint64), np.zeros(self.n, np.bool_))
        if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
            _check_seed(int(seed))
            _check_seed(int(seed) + self.n - 1)
            return Seeds(np.uint64(seed) + np.arange(self.n, dtype=np.uint64), np.ones(self.n, np.bool_))
        if not isinstance(seed, (list, tuple, np.ndarray)):
            raise TypeError(f"a seed must be None, an int, or a list of them, not {type(seed).__name__}")
        if len(seed) != self.n:
            raise ValueError(f"{len(seed)} seeds were given for {self.n} environments; give one each, or one int")
        for s in seed:
            if s is not None:
                _check_seed(int(s))
        given = np.array([s is not None for s in seed], np.bool_)
        return Seeds(np.array([0 if s is None else int(s) for s in seed], np.uint64), given)

    def fresh_seeds(self) -> Seeds:
        """Seeds that nobody chose, out of the operating system's randomness."""
        values = np.random.SeedSequence().generate_state(self.n, np.uint64)
        return Seeds(values, np.ones(self.n, np.bool_))


def _check_seed(seed: int) -> None:
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"seed {seed} is out of range; take 0 to 2**64-1")
