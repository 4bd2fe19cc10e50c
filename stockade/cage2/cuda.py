"""The same kernels on a GPU, one thread a world: actions on the device -> step, remember -> results on the device.

Entry points of kernel.py and history.py work on worlds [begin, end). Here each is called for [i, i + 1) by the thread
of world i. Numba compiles it, and all that it calls, once more for the device: this file is the only one that knows of
another target, and no rule is written twice.

The world must have `chance="fast"`: a ledger of the reference's stream takes 33 kB a world and is walked through
serially. Nothing here is imported unless somebody asks for the GPU.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from stockade.cage2 import history, kernel
from stockade.cage2.actions import N_ACTIONS, SLEEP
from stockade.cage2.batch import Batch, Ranges, Snapshot
from stockade.cage2.config import WorldConfig
from stockade.cage2.jit import JIT_DISABLED, KERNEL_SOURCES, as_records, cached
from stockade.cage2.prepare import alone
from stockade.cage2.seeds import Seeds
from stockade.cage2.state import INITIAL
from stockade.errors import InvalidActionError, UnsupportedFeatureError

_NEEDS = (
    "this needs the package numba-cuda (pip install 'stockade[cuda]'), which is {package}, and an NVIDIA GPU with its "
    "driver, {device}"
)
_NO_PACKAGE = _NEEDS.format(package="not installed", device="which was not looked for")

try:
    from numba import config, cuda
except ImportError as error:  # Numba without a CUDA target of its own
    raise UnsupportedFeatureError(_NO_PACKAGE) from error

SIMULATED: bool = bool(config.ENABLE_CUDASIM)  #: by Numba, in Python threads, for tests
BLOCK = 128  #: threads that are scheduled together
_NOBODY = [(0, 0)]  # a range of worlds
#: Of what the device runs. Without optimisation at link time it is the PTX that tests/cuda compiles and looks at.
on_device = (
    cuda.jit if SIMULATED else cached(*KERNEL_SOURCES, "cage2/history.py", "cage2/cuda.py", jit=cuda.jit, lto=False)
)


def require_device() -> None:
    """An error that names the package and the device, and which of them is missing."""
    if SIMULATED != JIT_DISABLED:
        both = "NUMBA_ENABLE_CUDASIM=1 and NUMBA_DISABLE_JIT=1"
        raise UnsupportedFeatureError(f"set {both} for backend='cuda' in Numba's simulator, none of them for a GPU")
    if SIMULATED:
        return
    if importlib.util.find_spec("numba_cuda") is None:
        raise UnsupportedFeatureError(_NO_PACKAGE)
    if not cuda.is_available():
        raise UnsupportedFeatureError(_NEEDS.format(package="installed", device="of which none was found"))


# ---------------------------------------------------------------------------------------------- what the device runs
# A kernel cannot be given None, and code for None is code of its own: two cases are two kernels.
@on_device
def seed_worlds(worlds, seeds, seeded, begin, end):  # type: ignore[no-untyped-def]
    i = begin + cuda.grid(1)
    if i < end:
        kernel.seed_batch(worlds, None, seeds, seeded, i, i + 1)


@on_device
def reset_worlds(worlds, initial, settings, chosen, obs, begin, end):  # type: ignore[no-untyped-def]
    i = begin + cuda.grid(1)
    if i < end:
        kernel.reset_batch(worlds, None, initial, settings, chosen, obs, i, i + 1)


@on_device
def step_worlds(  # type: ignore[no-untyped-def]
    worlds, initial, settings, actions, obs, rewards, over, autoreset, begin, end
):
    i = begin + cuda.grid(1)
    if i < end:
        kernel.step_batch(
            worlds, None, initial, settings, actions, None, obs, rewards, over, autoreset, i, i + 1
        )  # fmt: skip


@on_device
def step_plans(  # type: ignore[no-untyped-def]
    worlds, initial, settings, actions, red_actions, obs, rewards, over, autoreset, begin, end
):
    """The same where red follows a plan of attackers (variants.py)."""
    i = begin + cuda.grid(1)
    if i < end:
        kernel.step_batch(
            worlds, None, initial, settings, actions, red_actions, obs, rewards, over, autoreset, i, i + 1
        )  # fmt: skip


@on_device
def remember_step(  # type: ignore[no-untyped-def]
    memory, actions, worlds, success, times, horizon, bits, out, begin, end
):
    """`obs="memory"` after a step; `success` and `times` are room for two fields of the worlds as arrays."""
    i = begin + cuda.grid(1)
    if i < end:
        success[i], times[i] = worlds[i].blue_success, worlds[i].time
        history.remember_batch(memory, actions, success, times, horizon, bits, out, i, i + 1)


@on_device
def recall(memory, worlds, success, times, horizon, bits, out, begin, end):  # type: ignore[no-untyped-def]
    """The same without a step."""
    i = begin + cuda.grid(1)
    if i < end:
        success[i], times[i] = worlds[i].blue_success, worlds[i].time
        history.remember_batch(memory, None, success, times, horizon, bits, out, i, i + 1)


@on_device
def take_actions(given, actions, refused, begin, end):  # type: ignore[no-untyped-def]
    """Copy actions; for one that does not exist blue sleeps, and `refused` names a world where that happened."""
    i = begin + cuda.grid(1)
    if i < end:
        known = given[i] >= 0 and given[i] < N_ACTIONS
        actions[i] = given[i] if known else SLEEP
        if not known:
            refused[0] = i


def _capability() -> str:
    major, minor = cuda.get_current_device().compute_capability
    return f"sm{major}{minor}"


# ------------------------------------------------------------------------------------------------------------- a batch
class CudaBatch(Batch):
    """`n` worlds in the memory of a GPU. As of `Batch`, methods take and fill arrays of the host.

    `advance` and `begin_where_over` work on the arrays of the device instead, named below. The host's copy of the
    worlds is brought up to date when somebody reads it.
    """

    actions: Any  #: (n,) int64, all on the device
    obs: Any  #: (n, obs_size) uint8
    rewards: Any  #: (n,) float64
    over: Any  #: (n,) bool
    terminated: Any  #: (n,) bool, never
    final_obs: Any  #: (n, obs_size) uint8: where an episode ended in `begin_where_over`, its last observation
    refused: Any  #: (1,) int64: a world whose action did not exist, or -1

    def __init__(self, config: WorldConfig, n: int) -> None:
        """Set the memory aside, on the device and for its copy on the host."""
        require_device()
        if config.chance != "fast":
            raise UnsupportedFeatureError(f"backend='cuda' has no chance={config.chance!r}; take backend='native'")
        if config.view.kind == "belief":
            raise UnsupportedFeatureError(f"backend='cuda' has no obs={config.obs!r}; take backend='native'")
        if config.red == "player":
            raise UnsupportedFeatureError("backend='cuda' has scripted attackers only; take backend='native'")
        super().__init__(config, n, threads=1)
        self._compile()

    def _compile(self) -> None:
        """Have every kernel ready, by launching it for no world at all; a first compilation is announced."""
        what = f"{self._kernels[kernel.step_batch].py_func.__name__}-{self.obs_size}"
        with contextlib.nullcontext() if SIMULATED else alone(step_worlds, f"{what}-{_capability()}", 30):
            seeds, words = np.zeros(self.n, np.uint64), self.words_for(self.obs)
            step = self.actions, self.no_red_actions, words, self.rewards, self.over, False
            self._run(kernel.seed_batch, *self.records, seeds, self._all, ranges=_NOBODY)
            self._run(kernel.reset_batch, *self.records, *self.constants, self._all, words, ranges=_NOBODY)
            self._run(kernel.step_batch, *self.records, *self.constants, *step, ranges=_NOBODY)
            self._launch(take_actions, self.actions, self.actions, self.refused, ranges=_NOBODY)
            for actions in (self.actions, None):
                self.remember(actions, self.obs, _NOBODY)

    def _bind(self) -> None:
        self._stale = False  # the copy on the host is older than the worlds
        self.stream: Any = 0  # of CUDA, in whose order everything happens; 0 is the default one
        self._pointer = 0  # to it
        super()._bind()
        host = [None if rows is None else rows.reshape(-1) for rows in self._bytes]
        self._raw = [None if rows is None else cuda.to_device(rows) for rows in host]
        worlds, _, self._memory, _ = [
            None if raw is None else as_records(raw.view(part.dtype))
            for raw, part in zip(self._raw[:4], (self._copy, None, self.memory, None), strict=True)
        ]
        self.records = [worlds, None]
        self.constants = as_records(cuda.to_device(INITIAL)), as_records(cuda.to_device(self.config.settings()))
        seen = np.zeros((self.n, self.obs_size), np.uint8)
        self.obs, self.final_obs = cuda.to_device(seen), cuda.to_device(seen)
        self.actions, self.rewards = cuda.to_device(np.zeros(self.n, np.int64)), cuda.to_device(np.zeros(self.n))
        self.over, self.terminated = (cuda.to_device(np.zeros(self.n, np.bool_)) for _ in range(2))
        self.refused = cuda.to_device(np.array([-1]))
        fields = [self._copy.dtype[name] for name in ("blue_success", "time")]
        self._columns = [cuda.to_device(np.zeros(self.n, dtype)) for dtype in fields]
        if self._bits is not None:
            self._bits = cuda.to_device(self._bits)
        step = step_worlds
        if self.no_red_actions is not None:
            self.no_red_actions, step = cuda.to_device(self.no_red_actions), step_plans
        self._kernels = {
            kernel.seed_batch: seed_worlds, kernel.reset_batch: reset_worlds, kernel.step_batch: step
        }  # fmt: skip

    # ----------------------------------------------------------------------------------------------- on the device
    def advance(self, autoreset: bool, rows: np.ndarray | None = None) -> None:
        """Step all worlds, or these, with `actions`; what comes out is in `obs`, `rewards`, `over`."""
        super().step(self.actions, self.obs, self.rewards, self.over, autoreset, rows)

    def begin_where_over(self) -> None:
        """New episodes where the last step ended one; all observations until then move to `final_obs`."""
        self.final_obs.copy_to_device(self.obs, stream=self.stream)
        self._run(kernel.reset_batch, *self.records, *self.constants, self.over, self.words_for(self.obs))
        self.remember(None, self.obs)

    def take(self, actions: Any) -> None:
        """The next actions, (n,) integers: an array on the device, which is not copied, or one of the host."""
        there = hasattr(actions, "__cuda_array_interface__")
        array = cuda.as_cuda_array(actions) if there else np.asarray(actions)
        if array.shape != (self.n,) or array.dtype.kind not in "iu":
            raise InvalidActionError(
                f"actions have shape {array.shape} and dtype {array.dtype}; take ({self.n},) whole numbers"
            )
        given = array if there else cuda.to_device(array, stream=self.stream)
        self._launch(take_actions, given, self.actions, self.refused)

    def refused_world(self) -> int | None:
        """A world whose action did not exist, since somebody last asked."""
        place = np.empty(1, np.int64)
        self._download(self.refused, place)
        self.refused.copy_to_device(np.array([-1]), stream=self.stream)
        return None if place[0] < 0 else int(place[0])

    def remember(self, actions: Any, obs: Any, ranges: Ranges = None) -> None:
        if self.memory is not None:
            lived = self.records[0], *self._columns, self.config.horizon, self._bits, obs
            if actions is None:
                self._launch(recall, self._memory, *lived, ranges=ranges)
            else:
                self._launch(remember_step, self._memory, actions, *lived, ranges=ranges)

    def _run(self, entry_point: Callable[..., None], *args: Any, ranges: Ranges = None) -> None:
        """An entry point, by its kernel. Arrays of the host are copied to the device first."""
        given = [cuda.to_device(arg, stream=self.stream) if isinstance(arg, np.ndarray) else arg for arg in args]
        self._launch(self._kernels[entry_point], *(arg for arg in given if arg is not None), ranges=ranges)

    def _launch(self, launched: Any, *args: Any, ranges: Ranges = None) -> None:
        for begin, end in [(0, self.n)] if ranges is None else ranges:
            blocks = max(1, -(-(end - begin) // BLOCK))
            launched[blocks, min(BLOCK, max(1, end - begin)), self.stream](*args, begin, end)
        self._stale = True

    def use_stream(self, pointer: int) -> None:
        """Everything from now on happens in the order of this stream of CUDA, after all that was begun so far."""
        if pointer != self._pointer:
            cuda.synchronize()
            self.stream, self._pointer = cuda.external_stream(pointer) if pointer else 0, pointer

    def _wait(self) -> None:
        if self._pointer:
            self.stream.synchronize()

    # ------------------------------------------------------------------------------------------------- on the host
    @property
    def worlds(self) -> Any:
        """(n,) WORLD: the host's copy, up to date."""
        self.fetch()
        return self._copy

    @worlds.setter
    def worlds(self, copy: Any) -> None:
        self._copy = copy

    def fetch(self) -> None:
        """Bring the host's copy of worlds and memories up to date."""
        if self._stale:
            for raw, rows in zip(self._raw, self._bytes, strict=True):
                if raw is not None:
                    self._download(raw, rows.reshape(-1))
            self._stale = False

    def push(self) -> None:
        """The other way: the worlds become what the host's copy says, if it is up to date."""
        for raw, rows in zip(self._raw, self._bytes, strict=True):
            if raw is not None and not self._stale:
                raw.copy_to_device(rows.reshape(-1), stream=self.stream)

    def _download(self, source: Any, target: np.ndarray) -> None:
        source.copy_to_host(target, stream=self.stream)
        self._wait()

    def reset(self, obs: np.ndarray, seeds: Seeds, chosen: np.ndarray | None = None) -> None:
        super().reset(self.obs, seeds, chosen)
        self._download(self.obs, obs)

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
        assert red_actions is None
        results = (self.obs, obs), (self.rewards, rewards), (self.over, over)
        if rows is not None:  # the others stay as they are
            for there, here in results:
                there.copy_to_device(here, stream=self.stream)
        self.actions.copy_to_device(actions, stream=self.stream)
        self.advance(autoreset, rows)
        for there, here in results:
            self._download(there, here)

    def observe(self, obs: np.ndarray) -> None:
        nobody = np.zeros(self.n, np.bool_)
        self._run(kernel.reset_batch, *self.records, *self.constants, nobody, self.words_for(self.obs))
        self.remember(None, self.obs)
        self._download(self.obs, obs)

    def snapshot(self, index: int | None = None) -> Snapshot:
        self.fetch()
        return super().snapshot(index)

    def _put(self, part: slice, snapshot: Snapshot) -> None:
        self.fetch()
        super()._put(part, snapshot)
        self.push()

    def part(self, i: int) -> Batch:
        """World i of the host's copy: `push` makes what it does true."""
        self.fetch()
        part = Batch.__new__(Batch)
        rows = [None if rows is None else rows[i : i + 1] for rows in self._bytes]
        part.__setstate__({**super().__getstate__(), "n": 1, "_slices": [(0, 1)], "_bytes": rows})
        return part

    def move_to(self, worlds: np.ndarray) -> None:
        """Let the host's copy live in this memory."""
        self.fetch()
        super().move_to(worlds)

    def __getstate__(self) -> dict[str, Any]:
        self.fetch()
        return super().__getstate__()
