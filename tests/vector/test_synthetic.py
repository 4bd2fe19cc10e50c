"""The synthetic environment is itself a good Gymnasium environment, costs what it says, and tuning works on it."""

import functools
import time
import warnings

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from stockade.vector import SyntheticEnv, autotune, make_vector


def test_gymnasiums_checker_is_content():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(maximum|minimum) value is .*infinity.*")
        check_env(SyntheticEnv(render_mode="ansi"), skip_render_check=True)


@pytest.mark.parametrize("work", ["cpu", "spin", "sleep"])
def test_a_step_costs_at_least_what_was_ordered(work):
    env = SyntheticEnv(step_seconds=0.005, work=work)
    env.reset(seed=0)
    start = time.perf_counter()
    for _ in range(10):
        env.step(np.int64(0))
    assert time.perf_counter() - start >= 0.049


def test_lognormal_steps_have_the_ordered_mean_and_do_not_change_the_numbers():
    env = SyntheticEnv(step_seconds=1.0, sigma=1.0)
    costs = []
    env._clock = lambda: 0.0
    env._wait_until = costs.append
    plain = SyntheticEnv()
    for seed in range(60):
        env.reset(seed=seed)
        plain.reset(seed=seed)
        for _ in range(50):
            assert env.step(np.int64(1))[1] == plain.step(np.int64(1))[1]
    assert np.mean(costs) == pytest.approx(1.0, rel=0.1)
    assert max(costs) > 5.0


def test_autotune_measures_and_sorts():
    tuning = autotune(functools.partial(SyntheticEnv, horizon=50), 4, workers=[1, 2], seconds=0.05)
    speeds = [trial.steps_per_second for trial in tuning.trials]
    assert speeds == sorted(speeds, reverse=True)
    assert {trial.backend for trial in tuning.trials} == {"serial", "pipes", "shared_memory", "async"}
    assert len(tuning.trials) == 1 + 2 + 2 + 2 * 3
    assert "steps/s" in str(tuning)
    with make_vector(tuning.best.backend, SyntheticEnv, 4, **tuning.best.options) as envs:
        envs.reset(seed=0)
