"""Many worlds in one block of memory: seeding, stepping over threads, snapshots. Both environments stand on this.

step(actions, out) -> slices of the batch -> kernel.step_batch on each, a Python thread a slice (kernels hold no GIL)
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from stockade.cage2 import kernel
from stockade.cage2.actions import N_RED_ACTIONS
from stockade.cage2.belief import Belief, Particles
from stockade.cage2.config import WorldConfig
from stockade.cage2.features import N_FEATURES
from stockade.cage2.history import MEMORY, MEMORY_SIZE, remember_batch
from stockade.cage2.jit import as_records
from stockade.cage2.particles import describe_batch, describe_truth_batch, follow_batch
from stockade.cage2.prepare import is_compiled, prepare
from stockade.cage2.red_view import RED_MEMORY, observe_red_batch, red_mask_batch
from stockade.cage2.scenario import N_HOSTS
from stockade.cage2.seeds import Seeds, read_seeds
from stockade.cage2.state import INITIAL, OBS_SIZE, WORLD, ledger_dtype
from stockade.cage2.truth import TrueState
from stockade.cores import available_cores

#: Worlds that a thread should have at least. To wake it and to wait for it takes 0.1 to 0.2 ms on a virtual machine, as
#: long as 4096 worlds take; with twice as many a second thread gains even then.
WORLDS_PER_THREAD = 8192
Ranges = list[tuple[int, int]] | None  #: of worlds, [begin, end); None for all
#: How records lie in memory: snapshots and checkpoints hold them as bytes, which mean nothing in another layout.
LAYOUT = hashlib.sha256(str((WORLD, ledger_dtype(1), MEMORY)).encode()).hexdigest()[:16]
#: Layouts whose bytes mean the same in ours: versions 0.1 and 0.2 left out fields that are 0 in their worlds.
READABLE_LAYOUTS = (LAYOUT, "987f82cc5ebf99c5")
#: The same of worlds with a red player.
RED_LAYOUT = hashlib.sha256(str((LAYOUT, RED_MEMORY)).encode()).hexdigest()[:16]


def _dtypes(config: WorldConfig) -> list[Any]:
    """Of worlds, ledgers, memories, beliefs. All are rows of bytes: copies are quick, and equal to the last padding."""
    ledger, view = ledger_dtype(config.horizon) if config.chance == "cyborg" else None, config.view
    belief = np.dtype((np.void, Particles.size(view))) if view.kind == "belief" else None
    memory, red_memory = None if view.kind == "bits" else MEMORY, RED_MEMORY if config.red == "player" else None
    return [WORLD, ledger, memory, red_memory, belief]


def compile_ahead(config: WorldConfig) -> None:
    """Compile here, and say so, what worker processes would have to compile; nothing if the cache has it."""
    ledger = _dtypes(config)[1]
    if not is_compiled(ledger, config.has_free_red):
        prepare(ledger, config.view.kind, config.has_free_red)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Worlds at one moment, streams of chance included, for any worlds of the same configuration.

    Its arrays are (n, bytes of a record) uint8 that nobody can change. Snapshots are equal if all their bytes are, and
    can be hashed, so that a search can look states up.
    """

    config: WorldConfig
    worlds: np.ndarray
    ledgers: np.ndarray | None  #: under `chance="cyborg"`
    memory: np.ndarray | None = None  #: with `obs="memory"` or "belief"
    red_memory: np.ndarray | None = None  #: with `red="player"`
    particles: np.ndarray | None = None  #: with `obs="belief"`
    layout: str = ""  #: of the records; by default the present one

    def __post_init__(self) -> None:
        if not self.layout:
            object.__setattr__(self, "layout", LAYOUT if self.red_memory is None else RED_LAYOUT)
        for part in self.parts:
            if part is not None:
                part.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"layout": "unknown", "red_memory": None, "particles": None, **state})
        self.__post_init__()  # pickles and copies are frozen too

    @property
    def parts(self) -> tuple[np.ndarray | None, ...]:
        """Worlds, ledgers, blue's memory, red's, blue's belief."""
        return self.worlds, self.ledgers, self.memory, self.red_memory, self.particles

    def __len__(self) -> int:
        return len(self.worlds)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Snapshot) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[WorldConfig, tuple[bytes | None, ...]]:
        return self.config, tuple(None if part is None else part.tobytes() for part in self.parts)


class Batch:
    """`n` worlds of one configuration."""

    worlds: Any  #: (n,) WORLD
    ledgers: Any  #: under `chance="cyborg"`, else None
    memory: Any  #: what blue remembers, (n,) MEMORY with `obs="memory"` or "belief", else None
    red_memory: Any  #: what red remembers, (n,) RED_MEMORY with `red="player"`, else None

    def __init__(self, config: WorldConfig, n: int, threads: int | None = None) -> None:
        """Set the memory aside. `threads`: None chooses by the size of the batch and the cores."""
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"the number of environments must be a whole number of at least 1, not {n!r}")
        if threads is None:
            threads = max(1, min(available_cores(), n // WORLDS_PER_THREAD))
        if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)) or threads < 1:
            raise ValueError(f"threads={threads!r} must be a whole number of at least 1, or None to choose by size")
        self.config, self.n = config, int(n)
        view = config.view
        prepare(_dtypes(config)[1], view.kind, config.has_free_red)
        self.obs_size, self.obs_dtype = view.size, view.dtype
        self._bytes: list[Any] = [None if d is None else np.zeros((n, d.itemsize), np.uint8) for d in _dtypes(config)]
        parts = min(int(threads), self.n)
        self._slices = [(self.n * k // parts, self.n * (k + 1) // parts) for k in range(parts)]
        self._bind()

    def _bind(self) -> None:
        """Views of the memory: records for us and for the kernel, the true state for users."""
        parts = [None if rows is None else rows.reshape(-1).view(dtype)
                 for rows, dtype in zip(self._bytes, _dtypes(self.config), strict=True)]  # fmt: skip
        self.worlds, self.ledgers, self.memory, self.red_memory = parts[:4]
        *self.records, self._memory, self._red_memory = [None if x is None else as_records(x) for x in parts[:4]]
        belief = self._bytes[4]
        self._particles = None if belief is None else Particles(self.config.view, belief)
        self.constants = as_records(INITIAL), as_records(self.config.settings())
        self.truth = TrueState.of(self.worlds)
        # The 52 bits that kernels write where users get more.
        self._bits = None if self.memory is None else np.zeros((self.n, OBS_SIZE), np.uint8)
        self._all = np.ones(self.n, np.bool_)
        #: For the kernel where no player acts for red.
        self.no_red_actions = np.zeros(self.n, np.int64) if self.config.has_free_red else None
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = 0  # threads do not survive a fork

    def part(self, i: int) -> Batch:
        """World i alone, in the same memory: each sees what the other does."""
        part = type(self).__new__(type(self))
        rows = [None if rows is None else rows[i : i + 1] for rows in self._bytes]
        part.__setstate__({**self.__getstate__(), "n": 1, "_slices": [(0, 1)], "_bytes": rows})
        return part

    def move_to(self, worlds: np.ndarray) -> None:
        """Let the worlds live in this memory from now on, such as memory that is shared with another process."""
        rows = worlds.view(np.uint8).reshape(self.n, -1)
        rows[...] = self._bytes[0]
        self._bytes[0] = rows
        self._bind()

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("config", "n", "obs_size", "obs_dtype", "_slices", "_bytes")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()

    # ----------------------------------------------------------------------------------------------------- running
    def reset(self, obs: np.ndarray, seeds: Seeds, chosen: np.ndarray | None = None) -> None:
        """Begin an episode in the chosen worlds (default all); a world without a seed continues its stream."""
        chosen = self._all if chosen is None else chosen
        given = seeds.given & chosen
        if given.any():
            self._run(kernel.seed_batch, *self.records, seeds.values, given)
        self._run(kernel.reset_batch, *self.records, *self.constants, chosen, self.words_for(obs))
        self.remember(None, obs)

    def step(
        self,
        actions: np.ndarray,
        obs: np.ndarray,
        rewards: np.ndarray,
        over: np.ndarray,
        autoreset: bool,
        rows: np.ndarray | None = None,
        red_actions: np.ndarray | None = None,
    ) -> None:
        """Step every world, or the (k,) `rows`, in any order; with `autoreset` those that are over begin anew instead.

        `actions` are (n,) int64, checked by the caller; with `red="player"` so are `red_actions`. Written are `obs`
        (n, obs_size) of `obs_dtype`, `rewards` (n,) float64 and `over` (n,) bool: the episode reached its horizon.
        """
        if (red_actions is None) != (self.red_memory is None):
            raise ValueError('red_actions are for worlds with red="player", and these need them')
        out = self.words_for(obs), rewards, over
        ranges = None if rows is None else _ranges(rows)
        given = actions, self.no_red_actions if red_actions is None else red_actions
        self._run(kernel.step_batch, *self.records, *self.constants, *given, *out, autoreset, ranges=ranges)
        self.remember(actions, obs, ranges)

    def observe(self, obs: np.ndarray) -> None:
        """Write what blue sees now, (n, obs_size) of `obs_dtype`, without a step."""
        self.words_for(obs)[...] = self.worlds["obs"][:, :N_HOSTS]
        self.remember(None, obs)

    def observe_red(self, obs: np.ndarray, stepped: bool, rows: np.ndarray | None = None) -> None:
        """Write what red sees, (n, 264) uint8. With `stepped` red takes in its last result: once after each step."""
        ranges = None if rows is None else _ranges(rows)
        self._run(
            observe_red_batch,
            self._red_memory,
            self.records[0],
            self.config.horizon,
            stepped,
            obs.view(np.uint64),
            ranges=ranges,
        )

    def red_mask(self) -> np.ndarray:
        """(n, 56) int8, 1 for the actions that red can try now."""
        mask = np.empty((self.n, N_RED_ACTIONS), np.int8)
        self._run(red_mask_batch, self.records[0], mask)
        return mask

    def words_for(self, obs: np.ndarray) -> np.ndarray:
        """(n, 13) int32 for the kernel to write the bits of `obs` into; where blue sees more, on the way there."""
        return (obs if self._bits is None else self._bits).view(np.int32)

    def remember(self, actions: np.ndarray | None, obs: np.ndarray, ranges: Ranges = None) -> None:
        """Where blue sees more than the bits, after the kernel: let it remember its step, if any, and write all that it
        knows."""
        if self.memory is None:
            return
        times = self._column("time")
        if self._particles is None:
            sees_truth = self.config.view.kind == "truth"
            horizon = 0 if sees_truth else self.config.horizon
            lived = actions, self._column("blue_success"), times, horizon, self._bits
            self._run(remember_batch, self._memory, *lived, obs, ranges=ranges)
            if sees_truth:
                self.describe_truth(obs[:, MEMORY_SIZE:], ranges)
            return
        assert self._bits is not None
        self._run(follow_batch, *self._particles.followed(actions, self._bits, times), ranges=ranges)
        lived = actions, self._particles.success, times, 0, self._bits
        self._run(remember_batch, self._memory, *lived, obs, ranges=ranges)
        self._run(describe_batch, *self._particles.described(obs[:, MEMORY_SIZE:]), ranges=ranges)

    def describe_truth(self, out: np.ndarray, ranges: Ranges = None) -> None:
        """Write what is true, as 0 and 1 in the place of a belief's probabilities, (n, N_FEATURES)."""
        self._run(describe_truth_batch, self.records[0], self.constants[1], out, ranges=ranges)

    def belief(self) -> Belief:
        """What red probably holds and knows, with `obs="belief"`."""
        if self._particles is None:
            raise ValueError(f"there is no belief with obs={self.config.obs!r}; make the world with obs='belief'")
        features = np.zeros((self.n, N_FEATURES), np.float32)
        self._run(describe_batch, *self._particles.described(features))
        return Belief.of(features)

    def _column(self, field: str) -> np.ndarray:
        """A field of all worlds, contiguous: a kernel would be compiled once more for one that is not."""
        return np.ascontiguousarray(self.worlds[field])

    def peek(self) -> tuple[np.ndarray, np.ndarray]:
        """Next 32 bits of each reference stream, and the number of words it has handed out; draws nothing."""
        if self.ledgers is None:
            raise ValueError('there is no reference stream under chance="fast"; make the world with chance="cyborg"')
        peeks, drawn = np.zeros(self.n, np.uint32), np.zeros(self.n, np.int64)
        scratch = as_records(np.zeros(1, self.ledgers.dtype))
        kernel.peek_batch(self.records[1], scratch, peeks, drawn)
        return peeks, drawn

    def _run(self, entry_point: Callable[..., None], *args: Any, ranges: Ranges = None) -> None:
        """Call a kernel on all worlds, a thread per slice; or on these ranges of worlds, in this thread."""
        if ranges is not None or len(self._slices) == 1:
            for begin, end in self._slices if ranges is None else ranges:
                entry_point(*args, begin, end)
            return
        if self._pool is None or self._pool_process != os.getpid():
            self._pool = ThreadPoolExecutor(len(self._slices) - 1, thread_name_prefix="stockade")
            self._pool_process = os.getpid()
        waiting = [self._pool.submit(entry_point, *args, *part) for part in self._slices[1:]]
        entry_point(*args, *self._slices[0])
        for future in waiting:
            future.result()

    def close(self) -> None:
        if self._pool is not None and self._pool_process == os.getpid():
            self._pool.shutdown()
        self._pool = None

    # --------------------------------------------------------------------------------------------------- snapshots
    def snapshot(self, index: int | None = None) -> Snapshot:
        """All worlds, or one."""
        part = slice(None) if index is None else self._one(index)
        copies: list[Any] = [None if rows is None else rows[part].copy() for rows in self._bytes]
        return Snapshot(self.config, *copies)

    def restore(self, snapshot: Snapshot, index: int | None = None, seed: int | None = None) -> None:
        """Put worlds back: all of them, or one. A snapshot of one world can be put into all.

        With a seed, world i continues with a new stream of chance from seed + i, so that copies of one world differ.
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
        shapes = [(None if rows is None else (len(snapshot), rows.shape[1])) for rows in self._bytes]
        layouts = READABLE_LAYOUTS if self.red_memory is None else (RED_LAYOUT,)
        if snapshot.layout not in layouts or shapes != [
            None if part is None else part.shape for part in snapshot.parts
        ]:
            raise ValueError("the snapshot is laid out differently, as one of another version of Stockade may be")
        seeds = None if seed is None else read_seeds(seed, self.n)
        self._put(part, snapshot)
        if seeds is not None:
            inside = np.zeros(self.n, np.bool_)
            inside[part] = True
            self._run(kernel.seed_batch, *self.records, seeds.values, inside)

    def _put(self, part: slice, snapshot: Snapshot) -> None:
        for rows, saved in zip(self._bytes, snapshot.parts, strict=True):
            if rows is not None:
                rows[part] = saved

    def _one(self, index: int) -> slice:
        if not 0 <= index < self.n:
            raise IndexError(f"there is no world {index}; there are {self.n}, numbered from 0")
        return slice(index, index + 1)


def _ranges(rows: np.ndarray) -> list[tuple[int, int]]:
    """Different rows in any order as ranges [begin, end) of neighbours: kernels work on ranges."""
    if not len(rows):
        return []
    ordered = np.sort(rows)
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(ordered, np.flatnonzero(np.diff(ordered) != 1) + 1)]
