"""What `make_vector` and the base class promise beyond the contract: small things, one fact a test."""

import functools
import os
import subprocess
import sys
import threading

import gymnasium
import numpy as np
import psutil
import pytest

from stockade.vector import LOCAL_BACKENDS as BACKENDS
from stockade.vector import InvalidActionError, SyntheticEnv, available_cores, make_vector
from stockade.vector.testing import SyntheticState
from tests.vector.environments import EverySpace, KeepsStateInPlace

PROCESS_BACKENDS = ("pipes", "shared_memory", "async")
TYPED = functools.partial(SyntheticEnv, horizon=10, fixed_length=True, true_state="typed")
OBJECT = functools.partial(SyntheticEnv, horizon=10, fixed_length=True, true_state="object")


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


def steps(envs, count):
    for _ in range(count):
        envs.step(np.zeros(envs.num_envs, np.int64))


# Workers


@pytest.mark.parametrize("backend", PROCESS_BACKENDS)
def test_workers_default_to_the_cores_and_never_exceed_the_environments(backend):
    with make_vector(backend, SyntheticEnv, 64) as envs:
        assert envs.workers == available_cores()
    with make_vector(backend, SyntheticEnv, 3, workers=50) as envs:
        assert envs.workers == 3


def test_available_cores_respects_affinity():
    everyone = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everyone)})
    try:
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, everyone)


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_workers_use_one_thread(start_method, monkeypatch):
    def env():
        made = SyntheticEnv()
        made.threads = os.environ["OMP_NUM_THREADS"], threading.active_count()
        return made

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with make_vector("pipes", env, 2, workers=1, start_method=start_method) as envs:
        assert envs.get_attr("threads")[0] == ("1", 2)  # ours, and the one that watches the parent
    assert "OMP_NUM_THREADS" not in os.environ  # the user's own are left alone


def test_a_script_needs_no_main_guard_and_is_not_imported_by_workers(tmp_path):
    """Without the guard, multiprocessing would run the script again in every worker."""
    script = tmp_path / "script.py"
    script.write_text(
        "print('imported', flush=True)\n"
        "import gymnasium, numpy as np\n"
        "from stockade.vector import SyntheticEnv, make_vector\n"
        "class Mine(SyntheticEnv):\n"
        "    pass\n"
        "for method in ('forkserver', 'spawn', 'fork'):\n"
        "    with make_vector('shared_memory', lambda: Mine(), 2, start_method=method) as envs:\n"
        "        envs.reset(seed=0)\n"
        "        envs.step(np.zeros(2, int))\n"
        "        envs.set_attr('friend', [(Mine,), (Mine,)])\n"
        "        print(envs.get_attr('friend')[0][0] is Mine, flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout.split() == ["imported", "True", "True", "True"], done.stderr


def test_many_workers_start_and_close():
    with make_vector("shared_memory", SyntheticEnv, 40, workers=40) as envs:
        envs.reset(seed=0)
        steps(envs, 3)
        assert len({psutil.Process(pid).pid for pid in envs.worker_pids}) == 40


# True states


@pytest.mark.parametrize("factory", [TYPED, OBJECT], ids=["typed", "object"])
def test_true_states_every_step_are_present(backend, factory):
    with make_vector(backend, factory, 3, true_states="every_step") as envs:
        envs.reset(seed=0)
        assert envs.true_state().age.tolist() == [0, 0, 0]
        steps(envs, 4)
        states = envs.true_state()
        assert states.time.tolist() == [4, 4, 4]
        assert states.values.shape == (3, 64)
        assert states.age.tolist() == [0, 0, 0]


@pytest.mark.parametrize("factory", [TYPED, OBJECT], ids=["typed", "object"])
def test_true_states_every_third_step_tell_their_age(backend, factory):
    with make_vector(backend, factory, 2, true_states=3) as envs:
        envs.reset(seed=0)
        steps(envs, 5)
        states = envs.true_state()
        assert states.time.tolist() == [3, 3]
        assert states.age.tolist() == [2, 2]


@pytest.mark.parametrize("factory", [TYPED, OBJECT], ids=["typed", "object"])
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_true_states_at_the_end_of_episodes(backend, factory, mode):
    with make_vector(backend, factory, 2, true_states="episode_end", autoreset_mode=mode) as envs:
        envs.reset(seed=0)
        steps(envs, 9)
        assert envs.true_state().age.tolist() == [-1, -1]
        steps(envs, 3)
        states = envs.true_state()
        assert states.time.tolist() == [10, 10]
        assert states.age.tolist() == [2, 2]


@pytest.mark.parametrize("factory", [TYPED, OBJECT], ids=["typed", "object"])
def test_true_states_on_demand_are_fetched_now(backend, factory):
    with make_vector(backend, factory, 2) as envs:
        envs.reset(seed=0)
        steps(envs, 4)
        assert envs.true_state().time.tolist() == [4, 4]
        steps(envs, 1)
        assert envs.true_state().time.tolist() == [5, 5]


def test_environments_may_keep_their_true_state_in_shared_memory(backend):
    """Then it is fresh at every step, and nothing is copied."""
    with make_vector(backend, KeepsStateInPlace, 3, true_states="every_step") as envs:
        envs.reset(seed=0)
        assert envs.true_state().age.tolist() == [0, 0, 0]
        steps(envs, 4)
        assert envs.true_state().time.tolist() == [4, 4, 4]
        assert envs.get_attr("writes") == (0, 0, 0)


def test_true_states_are_records_or_what_the_environment_gave():
    with make_vector("serial", TYPED, 2) as envs:
        envs.reset(seed=0)
        assert envs.true_state()[1]["time"] == 0
        with pytest.raises(AttributeError, match="no field 'nonsense', but time, values"):
            envs.true_state().nonsense  # noqa: B018
    with make_vector("pipes", OBJECT, 2) as envs:
        envs.reset(seed=0)
        assert isinstance(envs.true_state()[1], SyntheticState)


# Observations and actions


def test_without_copies_observations_are_the_live_arrays(backend):
    with make_vector(backend, SyntheticEnv, 2, copy=False) as envs:
        first, _ = envs.reset(seed=0)
        second, *_ = envs.step(np.zeros(2, np.int64))
        assert first is second
        assert (first[:, 0] == 1).all()


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        (np.zeros(3, int), r"shape \(3,\); 2 environments take shape \(2,\)"),
        (np.zeros((2, 1), int), r"shape \(2, 1\)"),
        (np.zeros(2), "needs integers"),
        (np.array([0, 145]), "environment 1 is"),
        ([0, -1], "environment 1 is"),
        (np.array([0, None]), "dtype object"),
        ("no", r"shape \(\)"),
    ],
)
def test_bad_discrete_actions_are_refused_by_name(actions, words):
    with make_vector("serial", SyntheticEnv, 2) as envs:
        envs.reset(seed=0)
        with pytest.raises(InvalidActionError, match=words):
            envs.step(actions)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"force": np.array([[0, 0], [0, np.nan]], np.float32)}, r"action\['force'\] .* of environment 1"),
        ({"force": np.zeros((2, 2), complex)}, "dtype complex128"),
        ({"move": np.array([3, 0])}, r"action\['move'\] 3 of environment 0"),
        ({"move": None}, r"actions\['move'\]"),
    ],
)
def test_bad_nested_actions_are_refused_by_name(change, words):
    with make_vector("serial", EverySpace, 2) as envs:
        envs.reset(seed=0)
        with pytest.raises(InvalidActionError, match=words):
            envs.step({"move": np.zeros(2, int), "force": np.zeros((2, 2), np.float32), **change})


def test_actions_of_other_integer_types_and_lists_are_fine():
    with make_vector("serial", SyntheticEnv, 2) as envs:
        envs.reset(seed=0)
        for actions in ([1, 2], (1, 2), np.array([1, 2], np.uint8), np.array([1, 2], np.int32)):
            observations, *_ = envs.step(actions)
            assert observations[:, 1].tolist() == [1, 2]


# Calls


def test_rendering(backend):
    with make_vector(backend, functools.partial(SyntheticEnv, render_mode="ansi"), 2) as envs:
        envs.reset(seed=0)
        steps(envs, 2)
        assert envs.render() == ("step 2", "step 2")
        assert envs.render_mode == "ansi"


def test_environments_get_their_own_attributes_and_generators(backend):
    with make_vector(backend, SyntheticEnv, 3) as envs:
        envs.reset(seed=5)
        assert envs.np_random_seed == (5, 6, 7)
        assert len(envs.np_random) == 3
        with pytest.raises(ValueError, match="step"):
            envs.call("step", 0)


def test_options_reach_the_environments_without_the_mask(backend):
    with make_vector(backend, SyntheticEnv, 2) as envs:
        mask = np.array([True, False])
        options = {"size": 1, "reset_mask": mask}
        envs.reset(seed=0)
        _, infos = envs.reset(options=options)
        assert infos["options"][0] == ["size"]
        assert infos["_options"].tolist() == [True, False]
        assert options == {"size": 1, "reset_mask": mask}  # the caller's dictionary is his


def test_metadata_of_the_class_stay_as_they_are(backend):
    before = dict(SyntheticEnv.metadata)  # older versions of Gymnasium's own vector environments change them
    with make_vector(backend, SyntheticEnv, 2, autoreset_mode="disabled") as envs:
        assert envs.metadata["render_modes"] == ["ansi"]
    assert before == SyntheticEnv.metadata


def test_infos_of_any_size_pass(backend):
    """More than a socket holds, at every step, from every environment."""
    with make_vector(backend, functools.partial(SyntheticEnv, info_size=300_000), 4) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            *_, infos = envs.step(np.zeros(4, np.int64))
        assert infos["payload"].shape == (4, 300_000)
        assert (infos["payload"] == 3).all()


def test_values_that_cannot_travel_are_named():
    class Locked(SyntheticEnv):
        def __init__(self):
            super().__init__()
            self.lock = threading.Lock()

    for backend in PROCESS_BACKENDS:
        with make_vector(backend, Locked, 2) as envs:
            envs.reset(seed=0)
            with pytest.raises(TypeError, match="cannot be sent to the parent"):
                envs.get_attr("lock")
            steps(envs, 1)


def test_gymnasiums_vector_wrappers_work(backend):
    with make_vector(backend, SyntheticEnv, 2) as envs:
        wrapped = gymnasium.wrappers.vector.NormalizeReward(gymnasium.wrappers.vector.DictInfoToList(envs))
        wrapped.reset(seed=0)
        assert wrapped.step(np.zeros(2, np.int64))[1].shape == (2,)
