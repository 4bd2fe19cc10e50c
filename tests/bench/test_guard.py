"""The guard of the kernel's speed, by a clock that the tests set; and that a step allocates nothing."""

import sys
from pathlib import Path

import numba
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import guard


@pytest.mark.parametrize(("times", "fails"), [(1, False), (4, True)])
def test_a_kernel_that_does_everything_four_times_fails(times, fails, monkeypatch):
    clock, cost = [0.0], 2.1

    def take(seconds):
        clock[0] += seconds

    monkeypatch.setattr(guard.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(guard, "_reference", lambda states, table, steps: take(steps))
    found = guard.too_slow(lambda: take(times * cost * guard.SLICE_STEPS), cost)
    assert (found is not None) == fails


def test_the_command_fails_for_a_kernel_that_is_too_slow(monkeypatch, capsys):
    monkeypatch.setattr(guard, "kernel_slice", lambda *case: case)
    monkeypatch.setattr(guard, "cost_of", guard.COSTS.__getitem__)
    assert guard.main() == 0
    monkeypatch.setattr(guard, "cost_of", lambda case: 3 * guard.COSTS[case])
    assert guard.main() == 1
    assert "find what made the kernel slower" in capsys.readouterr().out


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
