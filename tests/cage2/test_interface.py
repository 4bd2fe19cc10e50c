"""Both environments as Gymnasium and Stable-Baselines3 want them: spaces, checkers, registration, copies, dtypes."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv

import stockade
from stockade.cage2 import CAGE2Env
from stockade.vector import NativeVectorEnv

from .play import CHANCES, play, random_actions

ENV_ID = "stockade/CAGE2-v0"
OPTIONS = [
    {},
    {"chance": "cyborg", "red": "meander", "green": "active"},
    {"obs_dtype": np.float32, "horizon": 30},
    {"action_mask": True},
    {"info": False},
    {"render_mode": "ansi"},
    {"obs": "memory"},
]


# ------------------------------------------------------------------------------------------------------------- checkers
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gymnasiums_checker_has_nothing_to_say(options):
    env = gymnasium.make(ENV_ID, **options).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_stable_baselines3s_checker_has_nothing_to_say(options):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(stockade.make(**options), warn=True)


# ------------------------------------------------------------------------------------------------------- spaces, dtypes
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, "uint8", "float32"])
def test_spaces(dtype):
    env, envs = stockade.make(obs_dtype=dtype), stockade.make_vec(3, obs_dtype=dtype)
    assert env.observation_space == gymnasium.spaces.Box(0, 1, (52,), np.dtype(dtype).type)
    assert env.action_space == gymnasium.spaces.Discrete(145)
    assert envs.single_observation_space == env.observation_space
    assert envs.single_action_space == env.action_space
    assert envs.observation_space == gymnasium.vector.utils.batch_space(env.observation_space, 3)
    assert envs.action_space == gymnasium.vector.utils.batch_space(env.action_space, 3)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_float32_observations_are_the_same_bits(mode):
    """Of steps, resets, restores and final observations."""
    as_bytes, as_floats = (
        stockade.make_vec(3, red="bline", horizon=20, autoreset_mode=mode, obs_dtype=dtype)
        for dtype in (np.uint8, np.float32)
    )
    assert np.array_equal(as_bytes.reset(seed=0)[0], as_floats.reset(seed=0)[0])
    for actions in random_actions(0, 50, 3):
        want, *_, want_info = as_bytes.step(actions)
        got, *_, got_info = as_floats.step(actions)
        assert (want.dtype, got.dtype) == (np.uint8, np.float32)
        assert np.array_equal(want, got)
        assert got in as_floats.observation_space
        if "final_obs" in want_info:
            assert np.array_equal(np.stack(want_info["final_obs"]), np.stack(got_info["final_obs"]))
            assert got_info["final_obs"][0].dtype == np.float32
    assert np.array_equal(as_floats.restore(as_bytes.snapshot()), want)


def test_float32_of_a_single_world():
    as_bytes, as_floats = stockade.make(), stockade.make(obs_dtype=np.float32)
    for env in (as_bytes, as_floats):
        env.reset(seed=3)
    actions = random_actions(0, 60, 1)[:, 0]
    want, got = play(as_bytes, actions), play(as_floats, actions)
    assert want == got
    assert got.obs[0].dtype == np.float32
    assert as_floats.reset()[0].dtype == as_floats.restore(as_floats.snapshot()).dtype == np.float32


@pytest.mark.parametrize("make", [lambda: stockade.make(horizon=7), lambda: stockade.make_vec(2, horizon=7)])
def test_episodes_end_by_truncation_at_the_horizon(make):
    envs = make()
    envs.reset(seed=0)
    record = play(envs, np.zeros((7, 2), int) if hasattr(envs, "num_envs") else np.zeros(7, int))
    assert [bool(np.all(t)) for t in record.truncated] == [False] * 6 + [True]
    assert [bool(np.any(t)) for t in record.truncated] == [False] * 6 + [True]


def test_types_of_a_single_worlds_step():
    env = stockade.make()
    env.reset(seed=0)
    obs, reward, terminated, truncated, info = env.step(np.int64(5))
    types = [type(value) for value in (obs, reward, terminated, truncated, info)]
    assert types == [np.ndarray, float, bool, bool, dict]
    same = stockade.make()
    same.reset(seed=0)
    assert np.array_equal(same.step(np.array(5))[0], obs), "a policy's 0-dimensional array is an action too"


# --------------------------------------------------------------------------------------------------------------- copies
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_copies_are_kept_and_views_are_overwritten(mode, dtype):
    """The same numbers either way; with `copy=False` in the same memory every time."""
    options = {"red": "bline", "horizon": 8, "autoreset_mode": mode, "obs_dtype": dtype}
    copying, sharing = stockade.make_vec(3, copy=True, **options), stockade.make_vec(3, copy=False, **options)
    begin = copying.reset(seed=0)[0], sharing.reset(seed=0)[0]
    kept, moments, shared = [], [], []
    for actions in random_actions(0, 20, 3):
        new, same = copying.step(actions)[:4], sharing.step(actions)[:4]
        assert all(np.array_equal(a, b) for a, b in zip(new, same, strict=True))
        kept.append(new)
        moments.append([array.copy() for array in new])
        shared.append(same)
    assert all(np.array_equal(a, b) for k, m in zip(kept, moments, strict=True) for a, b in zip(k, m, strict=True))
    arrays = [array for step in kept for array in step]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    for which in range(4):
        assert all(np.shares_memory(shared[0][which], step[which]) for step in shared)
    assert not np.shares_memory(begin[0], kept[0][0])
    assert np.shares_memory(begin[1], shared[0][0])


def test_a_single_worlds_observations_are_copies():
    env = stockade.make()
    obs = [env.reset(seed=0)[0]] + [env.step(0)[0] for _ in range(5)] + [env.restore(env.snapshot())]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(obs) for b in obs[:i])


def test_writing_into_an_observation_changes_no_world():
    for copy in (True, False):
        envs = stockade.make_vec(2, red="bline", copy=copy)
        untouched = stockade.make_vec(2, red="bline")
        for e in (envs, untouched):
            e.reset(seed=0)
        for _ in range(30):
            obs = envs.step([0, 0])[0]
            assert np.array_equal(obs, untouched.step([0, 0])[0])
            obs[:] = 1


# --------------------------------------------------------------------------------------------------------- registration
@pytest.mark.parametrize("chance", CHANCES)
def test_gymnasium_makes_the_same_worlds(chance):
    options = {"red": "meander", "chance": chance, "horizon": 12}
    direct = stockade.make_vec(3, **options)
    registered = gymnasium.make_vec(ENV_ID, num_envs=3, **options)
    by_entry_point = gymnasium.make_vec(ENV_ID, num_envs=3, vectorization_mode="vector_entry_point", **options)
    sync = gymnasium.make_vec(ENV_ID, num_envs=3, vectorization_mode="sync", **options)
    assert isinstance(registered.unwrapped, NativeVectorEnv)
    assert isinstance(by_entry_point.unwrapped, NativeVectorEnv)
    assert isinstance(sync.unwrapped, SyncVectorEnv)
    actions = random_actions(3, 40, 3)
    records = []
    for envs in (direct, registered, by_entry_point, sync):
        envs.reset(seed=21)
        records.append(play(envs, actions))
        envs.close()
    assert records[0] == records[1] == records[2] == records[3]


def test_gymnasium_makes_the_same_single_world():
    registered = gymnasium.make(ENV_ID, red="meander", chance="cyborg", horizon=50)
    assert isinstance(registered.unwrapped, CAGE2Env)
    direct = stockade.make(red="meander", chance="cyborg", horizon=50)
    for env in (registered, direct):
        env.reset(seed=4)
    actions = random_actions(3, 50, 1)[:, 0]
    assert play(registered, actions) == play(direct, actions)


def test_options_pass_through_gymnasiums_make_vec():
    envs = gymnasium.make_vec(ENV_ID, num_envs=2, horizon=3, info=True, autoreset_mode="same_step", render_mode="ansi")
    envs.reset(seed=0)
    infos = play(envs, np.zeros((3, 2), int)).infos
    assert "red_action" in infos[0]
    assert "final_obs" in infos[2]
    assert len(envs.render()) == 2


def test_defaults_of_make_vec_and_make_are_the_same_world():
    assert stockade.make().config == stockade.make_vec(2).config
    config = stockade.make().config
    assert (config.red, config.horizon, config.rules) == ("bline", 100, "current")
    assert (config.chance, config.green) == ("fast", "sleep")


@pytest.mark.parametrize(
    ("alias", "red"), [("B_lineAgent", "bline"), ("RedMeanderAgent", "meander"), ("SleepAgent", "sleep")]
)
def test_the_references_class_names_name_the_same_agents(alias, red):
    assert stockade.make(red=alias).config == stockade.make(red=red).config


@pytest.mark.parametrize("chance", CHANCES)
def test_numbers_may_be_numpys(chance):
    """As they come out of a table of settings."""
    envs = stockade.make_vec(np.int64(2), horizon=np.int32(20), threads=np.int8(1), chance=chance)
    same = stockade.make_vec(2, horizon=20, chance=chance)
    assert envs.config == same.config
    assert type(envs.config.horizon) is int
    assert type(envs.num_envs) is int
    envs.reset(seed=np.uint64(3))
    same.reset(seed=3)
    assert play(envs, random_actions(0, 30, 2)) == play(same, random_actions(0, 30, 2))
