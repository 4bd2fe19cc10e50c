"""A guard against a kernel that became slower, for every machine: no time is compared with a number of seconds.

kernel and a small reference loop in turns -> best slice of each -> their ratio -> a limit with a wide margin

The reference loop is compiled by the same Numba, does what a world does (integers, shifts, look-ups, branches that
nobody can foresee) and stays in the first cache, so that a slow, busy or throttled machine slows both alike. Only the
best of many short slices counts: so short a slice is seldom disturbed by anybody, even on a busy machine.
`python benchmarks/guard.py` prints today's ratios, to write them down below after a change that is intended, and fails
if one is above its limit. No test does: on a slow day it would fail for nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numba
import numpy as np
from numba.core.runtime import _nrt_python, rtsys

from stockade.cage2.actions import N_ACTIONS
from stockade.cage2.batch import Batch
from stockade.cage2.config import WorldConfig
from stockade.cage2.seeds import read_seeds

N_WORLDS = 512
HORIZON = 100
SLICE_STEPS = 10
"""A slice is this many steps of all worlds: about a quarter of a millisecond, or two with the reference's chance."""
SLICES = 150
ATTEMPTS = 5
FACTOR = 2.5
"""A kernel this many times slower than written down fails. Other processors need room: their ratios are not ours."""
COSTS = {("bline", "fast"): 2.1, ("meander", "fast"): 2.6, ("bline", "cyborg"): 7.4, ("meander", "cyborg"): 14.7}
"""By red and chance: a step of a world, in rounds of the reference loop, as measured when this was written."""

Play = Callable[[], object]
"""One slice of the kernel."""


def kernel_slice(red: str, chance: str, n: int = N_WORLDS) -> Play:
    """A slice of random play on one thread; everything is compiled already.

    Episodes begin one after the other, so that each slice has its share of resets and of late and early steps.
    """
    batch = Batch(WorldConfig(red, HORIZON, chance=chance), n, threads=1)
    obs = np.zeros((n, batch.obs_size), np.uint8)
    rewards, over = np.zeros(n), np.zeros(n, np.bool_)
    batch.reset(obs, read_seeds(0, n))
    actions = np.random.default_rng(0).integers(0, N_ACTIONS, (HORIZON, n))
    for time_step, chosen in enumerate(actions):
        batch.step(chosen, obs, rewards, over, True)
        batch.reset(obs, read_seeds(None, n), np.arange(n) % HORIZON == time_step)

    def play() -> None:
        for chosen in actions[:SLICE_STEPS]:
            batch.step(chosen, obs, rewards, over, True)

    return play


def cost_of(play: Play, slices: int = SLICES) -> float:
    """Time of the best slice of the kernel over that of the best slice of the reference loop, measured in turns."""
    states = np.arange(1, N_WORLDS + 1, dtype=np.uint64)
    table = np.random.default_rng(0).integers(0, 1 << 20, 256).astype(np.uint64)
    _reference(states, table, 1)
    ours, reference = [], []
    for _ in range(slices):
        ours.append(_seconds(play))
        reference.append(_seconds(lambda: _reference(states, table, SLICE_STEPS)))
    return min(ours) / min(reference)


def too_slow(play: Play, expected: float, attempts: int = ATTEMPTS) -> str | None:
    """Why the kernel fails the guard, or None. One good attempt is enough: noise can only make it seem slower."""
    costs = []
    for _ in range(attempts):
        costs.append(cost_of(play))
        if costs[-1] <= FACTOR * expected:
            return None
    return (
        f"a step of a world costs {min(costs):.1f} rounds of the reference loop, more than {FACTOR:g} times the "
        f"{expected:g} noted in benchmarks/guard.py: find what made the kernel slower, or write the new cost down"
    )


def allocations_of(play: Play) -> int:
    """How many blocks of memory compiled code asked for: a few for the arguments of a call, none for a world."""
    enabled = _nrt_python.memsys_stats_enabled()
    _nrt_python.memsys_enable_stats()
    try:
        before = rtsys.get_allocation_stats().alloc
        play()
        return int(rtsys.get_allocation_stats().alloc - before)
    finally:
        if not enabled:
            _nrt_python.memsys_disable_stats()


def _seconds(call: Play) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


@numba.njit(nogil=True)
def _reference(states, table, steps):  # type: ignore[no-untyped-def]
    """A round is four turns of a xorshift generator that, by its lowest bit, looks something up or counts."""
    one, seven, thirteen, seventeen = np.uint64(1), np.uint64(7), np.uint64(13), np.uint64(17)
    count = 0
    for _ in range(steps):
        for i in range(len(states)):
            x = states[i]
            for _ in range(4):
                x ^= x << thirteen
                x ^= x >> seven
                x ^= x << seventeen
                if x & one:
                    x += table[(x >> np.uint64(40)) & np.uint64(255)]
                else:
                    count += 1
            states[i] = x
    return count


def main() -> int:
    """Print the cost of every case; 1 if the kernel is too slow."""
    failed = False
    for (red, chance), cost in COSTS.items():
        play = kernel_slice(red, chance)
        print(f"{red}, {chance}: {cost_of(play):.2f} rounds (written down: {cost:g})")
        if problem := too_slow(play, cost):
            print(problem)
            failed = True
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
