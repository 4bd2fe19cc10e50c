"""Backend `ray` keeps the whole contract; its bits are those of `native`."""

import functools

import gymnasium
import numpy as np
import pytest

import stockade
from stockade.vector import SyntheticEnv, check_vector_env, make_vector
from stockade.vector.check.trial import actions_for, plain, rollout
from tests.vector.environments import EverySpace

pytestmark = pytest.mark.usefixtures("local_ray")

MODES = ("next_step", "same_step", "disabled")
SINGLE = functools.partial(SyntheticEnv, horizon=12, info_size=3, true_state="typed")
WORLD = functools.partial(stockade.make, horizon=15, info=False)
OLD = {"statistics"} if gymnasium.__version__ < "1.4" else set()  # see check_rules.statistics


def allowed(mode):
    return ({"send_and_recv"} if mode == "disabled" else set()) | (OLD if mode == "same_step" else set())


def some(*quick):
    """All modes; the others are in the slow suite, for every new vector environment starts processes."""
    return [pytest.param(mode, marks=() if mode in quick else pytest.mark.slow) for mode in MODES]


@pytest.mark.essential
@pytest.mark.parametrize("mode", some("same_step"))
def test_any_environment(mode):
    def make():
        return make_vector("ray", SINGLE, 3, workers=2, autoreset_mode=mode)

    report = check_vector_env(make, single=SINGLE, strict=True, steps=40)
    assert set(report.skipped) <= allowed(mode)


@pytest.mark.parametrize("mode", some("next_step"))
def test_the_built_in_world(mode):
    def make():
        return stockade.make_vec(3, backend="ray", workers=2, horizon=15, autoreset_mode=mode)

    report = check_vector_env(make, single=WORLD, strict=True, steps=40)
    assert set(report.skipped) <= allowed(mode)


@pytest.mark.essential
@pytest.mark.parametrize(
    ("chance", "mode"),
    [
        ("fast", "next_step"),
        ("fast", "disabled"),
        ("cyborg", "same_step"),
        pytest.param("fast", "same_step", marks=pytest.mark.slow),
        pytest.param("cyborg", "next_step", marks=pytest.mark.slow),
        pytest.param("cyborg", "disabled", marks=pytest.mark.slow),
    ],
)
def test_the_bits_of_native(chance, mode):
    """In uneven shares; and the infos of `serial`, which like ours have no key that nobody has."""
    world = {"red": "mix", "horizon": 12, "chance": chance, "autoreset_mode": mode}
    rich = {"obs": "memory", "obs_dtype": np.float32, "info": True, "action_mask": True}
    rich["reward"] = stockade.RewardWeights(2.0, 0.5, -1.0)
    options = {**world, **(rich if chance == "cyborg" or mode == "same_step" else {})}
    with (
        stockade.make_vec(7, **options) as native,
        stockade.make_vec(7, backend="serial", **options) as serial,
        stockade.make_vec(7, backend="ray", workers=3, **options) as envs,
    ):
        assert envs.workers == 3
        actions = actions_for(native, 30, 3)
        assert rollout(envs, 21, actions, infos=False) == rollout(native, 21, actions, infos=False)
        assert np.array_equal(envs.true_state().red_access, native.true_state().red_access)
        assert rollout(envs, 22, actions) == rollout(serial, 22, actions)


def test_nested_spaces_in_one_actor_and_in_many():
    runs = []
    for workers in (1, 3):
        with make_vector("ray", EverySpace, 3, workers=workers) as envs:
            runs.append(rollout(envs, 9, actions_for(envs, 20, 5)))
    theirs = gymnasium.vector.SyncVectorEnv([EverySpace] * 3)
    assert runs[0] == runs[1] == rollout(theirs, 9, actions_for(theirs, 20, 5))
    theirs.close()


def test_environments_of_a_script_and_infos_of_any_size():
    """Factories and infos travel by value; 1.2 MB a step go through the object store."""

    class Mine(SyntheticEnv):
        def __init__(self):
            super().__init__(info_size=300_000)

    with make_vector("ray", lambda: Mine(), 4, workers=2) as envs:
        envs.reset(seed=0)
        for _ in range(3):
            *_, infos = envs.step(np.zeros(4, np.int64))
        assert infos["payload"].shape == (4, 300_000)
        assert (infos["payload"] == 3).all()
        envs.set_attr("friends", [[Mine, i] for i in range(4)])
        assert envs.get_attr("friends") == tuple([Mine, i] for i in range(4))


def test_calls_reach_worlds_that_have_no_object_of_their_own():
    """What a call sees is the world's present, and what it changes is the world's future."""
    with (
        stockade.make_vec(4, backend="ray", workers=2, chance="cyborg", horizon=20) as envs,
        stockade.make_vec(4, backend="serial", chance="cyborg", horizon=20) as serial,
    ):
        envs.reset(seed=3)
        serial.reset(seed=3)
        first = plain([state.parts for state in envs.call("snapshot")])
        for actions in actions_for(serial, 5, 1):
            envs.step(actions)
            serial.step(actions)
        assert envs.call("random_peek") == serial.call("random_peek")
        assert envs.np_random_seed == serial.np_random_seed == (3, 4, 5, 6)
        assert envs.get_attr("config") == serial.get_attr("config")
        assert plain([state.parts for state in envs.call("snapshot")]) != first
        assert plain(envs.call("true_state")[2].time) == plain(serial.call("true_state")[2].time)
        shot = envs.snapshot()
        for actions in actions_for(serial, 8, 2):
            after = envs.step(actions)
        envs.call("restore", shot.entries[1][0].state)  # all worlds become world 1
        assert len({state.worlds.tobytes() for state in envs.call("snapshot")}) == 1
        serial.restore(shot)  # the snapshots of one backend are those of the other
        for actions in actions_for(serial, 8, 2):
            theirs = serial.step(actions)
        assert plain(after[:4]) == plain(theirs[:4])


@pytest.mark.parametrize(
    "rule",
    ["episode_end", 3, pytest.param("every_step", marks=pytest.mark.slow), pytest.param(None, marks=pytest.mark.slow)],
)
def test_true_states_follow_their_rule(rule):
    options = {"horizon": 7, "true_states": rule}
    with (
        stockade.make_vec(3, backend="ray", workers=2, **options) as envs,
        stockade.make_vec(3, backend="serial", **options) as serial,
    ):
        envs.reset(seed=0)
        serial.reset(seed=0)
        for actions in actions_for(serial, 17, 1):
            envs.step(actions)
            serial.step(actions)
            ours, theirs = envs.true_state(), serial.true_state()
            assert ours.age.tolist() == theirs.age.tolist()
            for name in ("time", "red_access", "known_addresses"):
                assert np.array_equal(getattr(ours, name), getattr(theirs, name))


@pytest.mark.parametrize("rule", ["every_step", pytest.param(3, marks=pytest.mark.essential), "episode_end"])
def test_true_states_and_their_ages_are_those_of_the_restored_moment(rule):
    objects = functools.partial(SyntheticEnv, horizon=12, true_state="object")
    for options in ({"env": objects}, {"horizon": 12}):
        with stockade.make_vec(3, "ray", workers=2, true_states=rule, **options) as envs:
            envs.reset(seed=0)
            for _ in range(16):
                envs.step(np.zeros(3, np.int64))
            snapshot, then = envs.snapshot(), envs.true_state()
            for _ in range(4):
                envs.step(np.zeros(3, np.int64))
            envs.restore(snapshot)
            now = envs.true_state()
            assert now.age.tolist() == then.age.tolist()
            assert now.time.tolist() == then.time.tolist()
