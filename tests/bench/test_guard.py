"""The kernel is not much slower than it was, on any machine; and the guard that says so notices one that is."""

import sys
from pathlib import Path

import numba
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import guard

CASES = [pytest.param(*case, id="-".join(case)) for case in guard.COSTS]


@pytest.mark.parametrize(("red", "chance"), CASES)
def test_the_kernel_is_as_fast_as_it_was(red, chance):
    assert guard.too_slow(guard.kernel_slice(red, chance), guard.COSTS[red, chance]) is None


@pytest.mark.parametrize(("red", "chance"), CASES)
def test_a_kernel_that_does_everything_four_times_fails(red, chance):
    play = guard.kernel_slice(red, chance)

    def slow() -> None:
        for _ in range(4):
            play()

    assert guard.too_slow(slow, guard.COSTS[red, chance], attempts=1) is not None


def test_one_good_attempt_is_enough(monkeypatch):
    costs = iter([9.0, 8.0, 2.0])
    monkeypatch.setattr(guard, "cost_of", lambda play: next(costs))
    assert guard.too_slow(lambda: None, expected=1.0) is None


def test_the_best_attempt_is_what_is_reported(monkeypatch):
    costs = iter([9.0, 7.0, 8.0])
    monkeypatch.setattr(guard, "cost_of", lambda play: next(costs))
    assert "costs 7.0 rounds" in (guard.too_slow(lambda: None, expected=2.0, attempts=3) or "")


@pytest.mark.parametrize("red", ["bline", "meander"])
def test_a_step_allocates_nothing_for_a_world(red):
    few, many = (guard.allocations_of(guard.kernel_slice(red, "fast", n)) for n in (2, 512))
    assert few == many


def test_an_allocation_in_compiled_code_is_noticed():
    @numba.njit
    def careless(n):
        return np.zeros(n).sum()

    careless(3)
    assert guard.allocations_of(lambda: careless(3)) == 1
