"""What the benches compute from their measurements, against slow or independent ways to say the same."""

import math
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stockade
from stockade.bench.backends import installed, open_envs, open_turn
from stockade.bench.bottleneck import PARTS, bounds, idle_seconds, share_out
from stockade.bench.result import Result
from stockade.bench.runner import Case, Sample, in_turns, rate
from stockade.bench.throughput import crossing
from stockade.bench.worlds import (
    BUILT_IN,
    REFERENCE_RESET,
    REFERENCE_STEP,
    REFERENCE_TRUTH,
    STEP_CPU,
    TRUTH_CPU,
    ReferenceCost,
    timed,
)
from stockade.make import BACKENDS
from tests.vector.environments import StepsTogether, steps_in

seconds = st.floats(0.0, 1e3)


# ----------------------------------------------------------------------------------------------------------- bottleneck
@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(1, 8))
def test_idle_cores_counted_one_moment_after_the_other(ends: list[int], cores: int) -> None:
    cores = min(cores, len(ends))
    slowly = sum(max(0, cores - sum(end > t for end in ends)) for t in range(min(ends), max(ends)))
    assert idle_seconds(np.array(ends, float), cores) == slowly


@given(seconds, seconds, seconds, seconds, seconds)
def test_shares_sum_to_the_time_of_the_cores(
    total: float, environment: float, truth: float, waiting: float, cpu: float
) -> None:
    parts = share_out(total, environment, truth, waiting, cpu)
    assert tuple(parts) == PARTS
    assert min(parts.values()) >= 0
    assert math.isclose(sum(parts.values()), max(total, environment + truth), abs_tol=1e-9)
    assert parts["environment"] == environment
    assert parts["true states"] == truth


def test_time_of_each_kind_goes_where_it_belongs() -> None:
    # 10 s of core time: 4 in environments, 1 in true states, 2 waiting; 6 of CPU, so 1 for messages; 2 nobody used
    assert list(share_out(10, 4, 1, 2, 6).values()) == [4, 1, 1, 2, 2]


@pytest.mark.parametrize(("step", "truth"), [(0.02, 0.0), (0.0, 0.02)])
def test_a_timed_environment_tells_its_cpu_time(step: float, truth: float) -> None:
    with timed(partial(ReferenceCost, step=step, truth=truth), 4) as (factory, rows):
        with open_turn("pipes", 4, factory, "twice a step") as turn:
            before = rows.sum(axis=0)
            turn()
            used = rows.sum(axis=0) - before
        assert used[STEP_CPU] >= 4 * step
        assert used[TRUTH_CPU] >= 8 * truth
        assert (used[STEP_CPU] > used[TRUTH_CPU]) == (step > truth)


# ----------------------------------------------------------------------------------------------------------- stragglers
@given(st.integers(1, 40), st.integers(1, 8))
def test_equal_steps_lose_nothing_but_what_cannot_be_shared_out(n: int, cores: int) -> None:
    found = bounds(0.0, n, cores)
    workers = min(cores, n)
    largest = max(n * (k + 1) // workers - n * k // workers for k in range(workers))
    assert found["shared_memory"] == pytest.approx(n / (workers * largest))
    assert found["a core each"] == pytest.approx(1)
    assert found["async"] == 1


def test_more_spread_loses_more() -> None:
    found = [bounds(sigma, 64, 2) for sigma in (0.0, 0.25, 0.5, 1.0, 1.5)]
    for name in ("shared_memory", "a core each"):
        values = [bound[name] for bound in found]
        assert values == sorted(values, reverse=True)
        assert values[-1] < 0.9
    for bound in found:
        assert 0 < bound["a core each"] <= bound["shared_memory"] <= bound["async"]


def test_the_bound_of_a_core_each_is_mean_over_expected_maximum() -> None:
    draws = np.random.default_rng(1).lognormal(-0.5, 1.0, (20_000, 100))
    assert bounds(1.0, 100, 2)["a core each"] == pytest.approx(1 / draws.max(axis=1).mean(), rel=0.1)


# -------------------------------------------------------------------------------------------------------------- scaling
@given(st.floats(-2, 2), st.floats(0.2, 2))
def test_crossing_of_a_power_law_is_found_exactly(where: float, slope: float) -> None:
    points = [(10.0**k, 10 ** (slope * (k - where))) for k in (-2, -1, 0, 1, 2)]
    found = crossing(points)
    if points[-1][1] < 1:
        assert found is None
    elif points[0][1] >= 1:
        assert found == points[0][0]
    else:
        assert found == pytest.approx(10**where, rel=1e-6)


def test_a_lucky_measurement_is_no_crossing() -> None:
    assert crossing([(10, 0.2), (30, 1.1), (100, 0.5), (300, 2.0)]) == pytest.approx(173.2, rel=0.01)


# ------------------------------------------------------------------------------------------------------------- backends
@pytest.mark.parametrize("backend", BACKENDS)
def test_our_backends_are_opened_as_users_open_them(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a figure would be of something else: on Ray, make_vec holds the built-in world as compiled batches."""
    asked: list[tuple[tuple[object, ...], dict[str, object]]] = []

    def make_vec(*arguments: object, **options: object) -> None:
        asked.append((arguments, options))
        raise InterruptedError

    monkeypatch.setattr(stockade, "make_vec", make_vec)
    for factory in (BUILT_IN, ReferenceCost):
        with pytest.raises(InterruptedError), open_envs(backend, 7, factory):
            pass
    assert asked == [((7, backend), {}), ((7, backend), {"env": ReferenceCost})]


# --------------------------------------------------------------------------------------------------------------- worlds
def test_the_synthetic_world_costs_what_the_reference_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still: what each call waits for."""
    env, waits = ReferenceCost(), []
    env._clock = lambda: 0.0
    monkeypatch.setattr("stockade.bench.worlds.time.thread_time", lambda: 0.0)
    env._wait_until = waits.append  # type: ignore[method-assign, assignment]
    env.reset(seed=0)
    assert not any(waits)  # opening is not measured, and should be quick
    waits.clear()
    env.step(np.int64(0))
    env.reset()
    assert 12_000 < len(pickle.dumps(env.true_state())) < 14_000
    assert waits == [REFERENCE_STEP, REFERENCE_RESET, REFERENCE_TRUTH]


def test_resets_are_spread_evenly_over_the_steps() -> None:
    lengths = []
    for seed in range(200):
        env = ReferenceCost(step=0.0, reset=0.0)
        env.reset(seed=seed)
        length = 1
        while not env.step(np.int64(0))[3]:
            length += 1
        lengths.append(length)
    counts = np.histogram(lengths, bins=10, range=(0.5, 100.5))[0]
    assert counts.sum() == 200
    assert counts.min() >= 18
    assert counts.max() <= 22


# ---------------------------------------------------------------------------------------------------------------- turns
def test_known_costs_give_known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only the turns move: 4 steps in 20 ms."""
    now = [0.0]

    def turn() -> int:
        now[0] += 0.02
        return 4

    monkeypatch.setattr("stockade.bench.runner.time.perf_counter", lambda: now[0])
    assert rate(turn, 0.4) == pytest.approx(200)


@pytest.mark.parametrize(("backend", "together"), [("serial", 1), ("pipes", 4), ("async", 4)])
def test_a_turn_tells_how_many_steps_it_made_and_workers_make_them_at_once(
    backend: str, together: int, tmp_path: Path
) -> None:
    """Environments that wait for each other in every step: one after the other they would never come to an end."""
    options = {} if backend == "serial" else {"workers": 4}
    with open_turn(backend, 4, partial(StepsTogether, tmp_path, together), **options) as turn:
        before = sum(steps_in(tmp_path)) if backend != "async" else 0
        made = sum(turn() for _ in range(20))
    in_flight = 5 * 4 + 4 if backend == "async" else 0  # those that use up what is ready, and the last ones
    assert made <= sum(steps_in(tmp_path)) - before <= made + in_flight


def test_a_round_has_the_steps_that_its_case_asks_for() -> None:
    turns: list[int] = []
    rate(lambda: turns.append(4) or 4, seconds=1e-9, least=17)  # type: ignore[func-returns-value]
    assert len(turns) == 1 + 5  # one to warm up


def test_cases_take_turns_and_what_cannot_run_is_told() -> None:
    order: list[str] = []

    class Way:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> object:
            order.append(self.name)
            if self.name == "broken":
                raise RuntimeError("their fault")
            return lambda: 1

        def __exit__(self, *_: object) -> None:
            order.append("closed")

    def steps_per_second(name: str) -> list[Sample]:
        with Way(name) as turn:
            return [Sample("steps/s", rate(turn, 1e-4))]  # type: ignore[arg-type]

    def case(name: str, foreign: bool = False, why_not: str = "") -> Case:
        return Case({"case": name}, partial(steps_per_second, name), why_not, foreign)

    notes = Result("test")
    group = [case("a"), case("broken", foreign=True), case("refused", why_not="too big"), case("b")]
    (figures,) = in_turns([group], rounds=2, result=notes)
    assert [one.tags["case"] for one in figures] == ["a", "b"]
    assert figures == notes.figures
    assert all(len(one.rounds) == 2 and min(one.rounds) > 0 for one in figures)
    assert order == ["a", "closed", "broken", "b", "closed", "a", "closed", "b", "closed"]
    assert {(skip.what, skip.why) for skip in notes.skipped} == {
        ("refused", "too big"),
        ("broken", "it failed with RuntimeError: their fault"),
    }
    with pytest.raises(RuntimeError, match="their fault"):  # ours must not be hushed up
        list(in_turns([[case("broken")]], rounds=1, result=notes))


def test_samples_of_a_round_become_figures_with_their_own_tags() -> None:
    values = iter([1.0, 2.0])

    def both() -> list[Sample]:
        value = next(values)
        return [Sample("s", value, {"part": "start"}), Sample("s", 10 * value, {"part": "close"})]

    (figures,) = in_turns([[Case({"backend": "pipes"}, both)]], rounds=2, result=Result())
    assert [(one.tags["part"], one.rounds) for one in figures] == [("start", (1.0, 2.0)), ("close", (10.0, 20.0))]


def test_a_folder_is_no_package(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "surely_no_package"  # type: ignore[operator]
    folder.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not installed("surely_no_package")
    assert not installed("surely_not_there")
    assert installed("numpy")
