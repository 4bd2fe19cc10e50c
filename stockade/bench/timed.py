"""An environment that keeps the time of its own calls where the driver can read it: env.step -> clock -> shared row.

The rows are a file that every process maps, so that reading them takes no message and does not disturb what is being
measured; it works with every backend, and with other libraries' too.
"""

from __future__ import annotations

import functools
import mmap
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from stockade.bench.worlds import Factory

#: Columns of a row: seconds of CPU time in step and reset, and in true states; when the last call ended.
STEP_CPU, TRUTH_CPU, END = range(3)
_WIDTH = 4


class TimedEnv(gymnasium.Env[Any, Any]):
    """An environment around another that notes how much CPU time its calls take, and when they ended.

    Not a Gymnasium wrapper, because vector environments look for true states behind wrappers. It takes the row of the
    number it is seeded with: environment i is seeded with i.

    Args:
        path: of the rows.
        factory: makes the environment.
    """

    def __init__(self, path: Path, factory: Factory) -> None:
        self._inner = factory()
        world: Any = self._inner.unwrapped
        self.observation_space, self.action_space = self._inner.observation_space, self._inner.action_space
        self.metadata, self.render_mode = self._inner.metadata, self._inner.render_mode
        with path.open("r+b") as file:
            self._memory = memoryview(mmap.mmap(file.fileno(), 0)).cast("d")
        self._row = self._memory[:_WIDTH]
        for name in ("true_state_dtype", "true_state_view", "place_true_state"):
            if hasattr(world, name):
                setattr(self, name, getattr(world, name))
        for name in ("true_state", "write_true_state"):
            if hasattr(world, name):
                setattr(self, name, functools.partial(self._timed, getattr(world, name), TRUTH_CPU))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        if seed is not None:
            self._row = self._memory[seed * _WIDTH : (seed + 1) * _WIDTH]
        return self._timed(functools.partial(self._inner.reset, seed=seed, options=options), STEP_CPU)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step."""
        row, begin = self._row, time.thread_time()
        results = self._inner.step(action)
        row[STEP_CPU] += time.thread_time() - begin
        row[END] = time.perf_counter()
        return results

    def _timed(self, call: Callable[..., Any], column: int, *arguments: Any) -> Any:
        row, begin = self._row, time.thread_time()
        value = call(*arguments)
        row[column] += time.thread_time() - begin
        row[END] = time.perf_counter()
        return value

    def close(self) -> None:
        """Let go of the memory."""
        self._row.release()
        self._memory.release()
        self._inner.close()


@contextmanager
def timed(factory: Factory, n: int) -> Iterator[tuple[Factory, np.ndarray]]:
    """A factory of timed environments, and their rows (n, 4) float64, live."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        path.write_bytes(bytes(8 * _WIDTH * n))
        rows = np.memmap(path, np.float64, "r", shape=(n, _WIDTH))
        yield functools.partial(TimedEnv, path, factory), rows


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, to the nanosecond, without asking it (Linux: the clock that `man` calls
    clock_getcpuclockid)."""
    return time.clock_gettime((~pid << 3) | 2)
