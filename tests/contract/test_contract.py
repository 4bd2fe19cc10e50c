"""Every backend keeps the whole contract, in every autoreset mode, with every start method."""

import functools
import itertools

import gymnasium
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import stockade
from stockade.vector import SyntheticEnv, check_vector_env, make_vector
from tests.contract.policies import attack, defend

MODES = ("next_step", "same_step", "disabled")
PROCESS_BACKENDS = ("pipes", "shared_memory", "async")
SINGLE = functools.partial(SyntheticEnv, horizon=12, info_size=3, true_state="typed")
GYMNASIUM = tuple(map(int, gymnasium.__version__.split(".")[:2]))
OLD = {"statistics"} if GYMNASIUM < (1, 4) else set()  # see check_rules.statistics
WORLD = functools.partial(stockade.make, horizon=15, info=False)


def combinations():
    """Each backend in each mode, with the start methods in turn; the slow suite has all other combinations."""
    methods = ("fork", "forkserver", "spawn")
    for (i, backend), method, (k, mode) in itertools.product(enumerate(PROCESS_BACKENDS), methods, enumerate(MODES)):
        in_turn = method == ("spawn" if (backend, mode) == ("async", "same_step") else methods[(i + k) % 2])
        yield pytest.param(backend, method, mode, marks=() if in_turn else pytest.mark.slow)


@pytest.mark.parametrize(("backend", "start_method", "mode"), list(combinations()))
def test_process_backends(backend, start_method, mode):
    workers = 1 if start_method == "spawn" else 2  # a new interpreter takes a second, and a check starts dozens

    def make():
        return make_vector(backend, SINGLE, 3, workers=workers, start_method=start_method, autoreset_mode=mode)

    report = check_vector_env(make, single=SINGLE, strict=True, steps=40)
    assert set(report.skipped) <= {"send_and_recv"} | OLD
    assert "send_and_recv" in report.passed or backend != "async" or mode == "disabled"


@pytest.mark.parametrize("mode", MODES)
def test_serial(mode):
    report = check_vector_env(
        lambda: make_vector("serial", SINGLE, 3, autoreset_mode=mode), single=SINGLE, strict=True, steps=40
    )
    assert set(report.skipped) <= {"send_and_recv"} | OLD


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "backend",
    ["native", "serial", *(pytest.param(backend, marks=pytest.mark.slow) for backend in PROCESS_BACKENDS)],
)
def test_the_built_in_world(backend, mode):
    def make():
        return stockade.make_vec(3, backend=backend, horizon=15, autoreset_mode=mode)

    report = check_vector_env(make, single=WORLD, strict=True, steps=40)
    assert set(report.skipped) <= {"send_and_recv", "calls"} | OLD


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_gymnasium_itself_keeps_gymnasiums_part(mode):
    """A checker that a well-known implementation fails would be checking something else."""
    report = check_vector_env(lambda: SyncVectorEnv([SINGLE] * 3, autoreset_mode=mode), single=SINGLE)
    assert {"shapes", "single_environments", "seeds", "autoreset", "reset_masks"} <= set(report.passed)


def test_a_foreign_process_backend():
    report = check_vector_env(lambda: AsyncVectorEnv([SINGLE] * 2, context="fork"), single=SINGLE, steps=30)
    assert {"copies", "single_environments", "nothing_left"} <= set(report.passed)


SEATS = {"red": {"side": "red", "blue": defend}, "blue": {"red": attack}, "both": {"side": "both"}}


def seats():
    """Every side in every mode; in the slow suite also one environment after the other, and in processes."""
    for side, backend, mode in itertools.product(SEATS, ("native", "serial", "pipes"), MODES):
        quick = backend == "native" or (backend, mode) == ("serial", "same_step")
        yield pytest.param(backend, mode, side, marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize(("backend", "mode", "side"), list(seats()))
def test_every_side(backend, mode, side):
    def make():
        return stockade.make_vec(3, backend=backend, horizon=15, autoreset_mode=mode, green="active", **SEATS[side])

    single = functools.partial(WORLD, green="active", **SEATS[side])
    report = check_vector_env(make, single=single, strict=True, steps=40)
    by_form = {"bad_actions"} if side == "both" else set()  # that rule is for spaces that are no dictionaries
    assert set(report.skipped) <= {"send_and_recv", "calls"} | by_form | OLD
