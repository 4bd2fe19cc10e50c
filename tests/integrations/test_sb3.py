"""`stockade.integrations.sb3`: the same episodes as Stable-Baselines3's own vector environment gives."""

import functools
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit, TransformReward
from gymnasium.wrappers import vector as vector_wrappers
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecCheckNan, VecFrameStack, VecMonitor, VecNormalize

import stockade
from stockade.cage2 import ACTION_MASK, CAGE2Env
from stockade.errors import InputError
from stockade.integrations.sb3 import StockadeVecEnv, make_sb3
from stockade.vector import Fault, SyntheticEnv, WorkerDiedError
from tests.integrations.environments import CornerEnv, Plain
from tests.vector.leaks import no_leaks

__all__ = ["no_leaks"]

BACKENDS = ("native", "serial", "pipes", "shared_memory", "async")
PROCESSES = BACKENDS[2:]
MODES = ("same_step", "next_step", "disabled")
#: All modes where it costs nothing, each mode with processes too.
BACKENDS_AND_MODES = (
    *((backend, mode) for backend in ("native", "serial") for mode in MODES),
    *((backend, "same_step") for backend in PROCESSES),
    ("pipes", "disabled"),
    ("shared_memory", "next_step"),
    ("async", "next_step"),
)


def options_of(backend):
    """Two workers, where there are any."""
    return {"workers": 2} if backend in PROCESSES else {}


def theirs(factory, n):
    """What Stable-Baselines3 makes of the same environments, one by one."""
    return DummyVecEnv([lambda: Monitor(factory()) for _ in range(n)])


def plain(value):
    """For comparison: numbers and arrays with their types, but for who measured the time."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items() if key != "t"}
    return (str(value.dtype), value.tolist()) if isinstance(value, np.ndarray) else value


def assert_same_steps(ours, reference, steps, seed):
    """Same seeds and actions give the same bits in both, infos included."""
    space = ours.action_space
    assert (ours.observation_space, space) == (reference.observation_space, reference.action_space)
    assert ours.seed(seed) == reference.seed(seed)
    space.seed(seed)
    assert plain(ours.reset()) == plain(reference.reset())
    ended = 0
    for _ in range(steps):
        actions = np.array([space.sample() for _ in range(ours.num_envs)])
        obs, rewards, dones, infos = ours.step(actions)
        expected_obs, expected_rewards, expected_dones, expected_infos = reference.step(actions)
        assert plain(obs) == plain(expected_obs)
        assert plain(rewards) == plain(expected_rewards)
        assert plain(dones) == plain(expected_dones)
        for done, info, expected in zip(dones, infos, expected_infos, strict=True):
            if not done:  # theirs says in every step that it was none that cut an episode off
                assert expected.pop("TimeLimit.truncated") is False
            assert plain(info) == plain(expected)
        assert plain(dict(enumerate(ours.reset_infos))) == plain(dict(enumerate(reference.reset_infos)))
        ended += int(dones.sum())
    return ended


@pytest.mark.parametrize(("backend", "mode"), BACKENDS_AND_MODES)
def test_episodes_are_those_of_their_own_vector_environment(backend, mode):
    world = {"red": "meander", "horizon": 7, "chance": "cyborg", "info": True, "action_mask": True}
    ours = make_sb3(5, backend, autoreset_mode=mode, **world, **options_of(backend))
    assert assert_same_steps(ours, theirs(lambda: stockade.make(**world), 5), 30, seed=3) == 20
    ours.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_infos_too(backend):
    ours = make_sb3(4, backend, horizon=5, **options_of(backend))
    assert assert_same_steps(ours, theirs(lambda: stockade.make(horizon=5, info=False), 4), 12, seed=0) == 8
    ours.close()


@settings(max_examples=30)
@given(n=st.integers(1, 5), horizon=st.integers(1, 9), mode=st.sampled_from(MODES), seed=st.integers(0, 2**31))
def test_ends_of_both_kinds_at_different_times(n, horizon, mode, seed):
    factory = functools.partial(SyntheticEnv, horizon=max(2, horizon), info_size=3)
    ours = make_sb3(n, "serial", env=factory, autoreset_mode=mode)
    assert assert_same_steps(ours, theirs(factory, n), 25, seed) > 0
    one = make_sb3(n, red="mix", horizon=horizon, autoreset_mode=mode)
    assert assert_same_steps(one, theirs(lambda: stockade.make("mix", horizon, info=False), n), 20, seed) > 0


@pytest.mark.parametrize(("backend", "mode"), [*(("serial", mode) for mode in MODES), ("shared_memory", "same_step")])
def test_dictionaries_and_nested_infos(backend, mode):
    ours = make_sb3(4, backend, env=CornerEnv, autoreset_mode=mode, **options_of(backend))
    assert assert_same_steps(ours, theirs(CornerEnv, 4), 40, seed=8) > 20
    ours.close()


# ------------------------------------------------------------------------------------------------------ infos, returns
def test_infos_belong_to_the_caller():
    env = make_sb3(3, horizon=4)
    env.reset()
    kept = []
    for t in range(9):
        infos = env.step(np.zeros(3, int))[3]
        assert len({id(info) for info in infos}) == 3
        assert all("mine" not in info for info in infos)
        infos[1]["mine"] = t
        kept.append(infos)
    assert [infos[1]["mine"] for infos in kept] == list(range(9))
    assert not any("mine" in infos[0] for infos in kept)


def test_vec_monitor_counts_the_same_returns():
    seed, n, horizon = 5, 6, 20
    actions = np.random.default_rng(0).integers(145, size=(2 * horizon, n))
    world = stockade.make_vec(n, horizon=horizon, autoreset_mode="same_step")
    world.reset(seed=seed)
    rewards = np.array([world.step(row)[1] for row in actions])
    exact = rewards.reshape(2, horizon, n).sum(axis=1)
    counted, recorded = [], []
    for env in (make_sb3(n, horizon=horizon), VecMonitor(make_sb3(n, horizon=horizon, monitor=False))):
        env.seed(seed)
        env.reset()
        episodes = [info["episode"] for row in actions for info in env.step(row)[3] if "episode" in info]
        assert [episode["l"] for episode in episodes] == [horizon] * 2 * n
        (counted if env is env.unwrapped else recorded).extend(episode["r"] for episode in episodes)
    assert counted == [round(r, 6) for r in exact.ravel().tolist()]
    assert recorded == pytest.approx(exact.ravel(), rel=1e-6)  # it counts in float32


def test_monitor_counts_as_a_monitor():
    assert make_sb3(2).env_is_wrapped(Monitor) == [True, True]
    bare = make_sb3(2, monitor=False, horizon=1)
    assert bare.env_is_wrapped(Monitor) == [False, False]
    bare.reset()
    assert all(set(info) == {"terminal_observation", "TimeLimit.truncated"} for info in bare.step([0, 0])[3])
    with pytest.warns(UserWarning, match="already wrapped with a `Monitor`"):
        VecMonitor(make_sb3(2))


def test_an_episode_that_was_counted_inside_stays_as_it_is():
    def factory():
        counted = RecordEpisodeStatistics(stockade.make(horizon=20, info=False))
        return TransformReward(counted, lambda reward: reward / 2)

    env = make_sb3(3, "serial", env=factory)
    env.seed(0)
    env.reset()
    *_, (_, _, _, infos) = [env.step(np.zeros(3, int)) for _ in range(20)]
    env = make_sb3(3, horizon=20)
    env.seed(0)
    env.reset()
    rewards = np.array([env.step(np.zeros(3, int))[1] for _ in range(20)])
    assert [info["episode"]["r"] for info in infos] == pytest.approx(rewards.sum(axis=0))
    assert rewards.sum() < 0


def test_vector_wrappers_of_gymnasium_may_lie_between():
    for mode in MODES:
        inner = stockade.make_vec(3, horizon=20, autoreset_mode=mode)
        env = StockadeVecEnv(vector_wrappers.TransformReward(inner, lambda rewards: rewards / 2))
        plain_env = make_sb3(3, horizon=20)
        for each in (env, plain_env):
            each.seed(0)
            each.reset()
        for _ in range(50):
            obs, rewards, dones, infos = env.step(np.zeros(3, int))
            expected = plain_env.step(np.zeros(3, int))
            assert obs.tolist() == expected[0].tolist()
            assert rewards == pytest.approx(expected[1] / 2)
            for i in np.flatnonzero(dones):
                assert infos[i]["episode"]["r"] == pytest.approx(expected[3][i]["episode"]["r"] / 2)
        assert env.env_method("true_state", indices=1)[0].time == 10


# ---------------------------------------------------------------------------------------------------- their wrappers
def test_their_wrappers_work_on_top():
    raw, wrapped = make_sb3(4, horizon=3), make_sb3(4, horizon=3)
    env = VecFrameStack(VecNormalize(VecCheckNan(wrapped, raise_exception=True), norm_reward=False), 2)
    for each in (raw, env):
        each.seed(1)
    first = raw.reset()
    assert env.reset().shape == (4, 104)
    last = None
    for t in range(1, 7):
        actions = np.arange(4) + t
        obs, _, dones, infos = raw.step(actions)
        stacked, _, wrapped_dones, wrapped_infos = env.step(actions)
        assert np.isfinite(stacked).all()
        assert dones.tolist() == wrapped_dones.tolist() == [t % 3 == 0] * 4
        assert env.get_original_obs().tolist() == obs.tolist()
        if t % 3 == 0:
            last = [info["terminal_observation"] for info in infos]
            normalise = env.venv.normalize_obs
            for one, many in zip(last, wrapped_infos, strict=True):
                assert many["terminal_observation"][52:] == pytest.approx(normalise(one))
    assert first.dtype == last[0].dtype == np.uint8


def test_one_environment_passes_their_check():
    check_env(stockade.make(render_mode="ansi"), warn=True, skip_render_check=True)


# -------------------------------------------------------------------------------------------------- single environments
@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_single_environments_are_reached_alone(backend):
    env = make_sb3(3, backend, env=lambda: Plain(TimeLimit(CornerEnv(), 50)), **options_of(backend))
    assert env.env_method("touch", 2, more=1, indices=[2, 0]) == [3, 3]
    assert env.env_method("touch", 1, indices=1) == [1]
    assert env.env_method("touch", 0) == [3, 1, 3]
    assert env.get_attr("touched", indices=range(1, 3)) == [1, 3]
    env.set_attr("touched", 7, indices=-1)
    assert env.env_method("touch", 0) == [3, 1, 7]  # in the environment itself, not in its wrapper
    env.set_attr("colour", "blue")
    assert env.get_attr("colour") == ["blue"] * 3
    assert env.has_attr("touched")
    assert env.has_attr("action_masks")
    assert not env.has_attr("nothing")
    assert env.env_is_wrapped(Plain, indices=0) == [True]
    assert env.env_is_wrapped(gymnasium.Wrapper) == [True] * 3
    assert env.env_is_wrapped(gymnasium.wrappers.ClipAction) == [False] * 3
    with pytest.raises(AttributeError):
        env.get_attr("nothing")
    with pytest.raises(IndexError):
        env.env_method("touch", 1, indices=[3])
    env.close()


def test_workers_import_nothing_that_only_the_learner_needs():
    env = make_sb3(2, "pipes", env=CornerEnv, workers=1, start_method="spawn")
    assert env.env_method("modules") == [[]] * 2
    env.close()


def test_worlds_of_the_native_backend_are_reached_alone():
    env = make_sb3(3, red="meander", horizon=30, chance="cyborg", render_mode="ansi")
    singles = [CAGE2Env("meander", 30, chance="cyborg", render_mode="ansi") for _ in range(3)]
    env.seed(4)
    env.reset()
    for i, single in enumerate(singles):
        single.reset(seed=4 + i)
    for t in range(12):
        env.step(np.full(3, t))
        for single in singles:
            single.step(t)
    assert env.env_method("render") == [single.render() for single in singles]
    assert env.env_method("random_peek", indices=[1, 2]) == [single.random_peek() for single in singles[1:]]
    assert [state.to_dict() for state in env.env_method("true_state")] == [s.true_state().to_dict() for s in singles]
    moment = env.env_method("snapshot", indices=1)[0]
    before = env.get_attr("unwrapped")[0].true_state().copy()
    later = [env.step(np.zeros(3, int)) for _ in range(3)][-1]
    assert env.env_method("restore", moment, indices=1)[0].shape == (52,)
    assert env.env_method("true_state", indices=1)[0].time == 12
    assert env.env_method("true_state", indices=0)[0].time == 15
    assert before.time == 12
    again = [env.step(np.zeros(3, int)) for _ in range(3)][-1]
    assert again[0][1].tolist() == later[0][1].tolist()
    assert {config.horizon for config in env.get_attr("config")} == {30}
    env.set_attr("colour", "blue", indices=2)
    assert [env.get_attr("colour", 2), env.has_attr("colour")] == [["blue"], False]
    for name in ("horizon", "red", "render_mode", "true_state"):
        with pytest.raises(InputError, match="cannot be changed"):
            env.set_attr(name, 3)
    assert env.env_is_wrapped(gymnasium.Wrapper) == [False] * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_action_masks_are_those_of_the_world(backend):
    env = make_sb3(3, backend, **options_of(backend))
    assert env.has_attr("action_masks")
    masks = np.stack(env.env_method("action_masks"))
    assert masks.dtype == np.bool_
    assert masks.tolist() == [ACTION_MASK.astype(bool).tolist()] * 3
    assert [mask.tolist() for mask in env.env_method("action_masks", indices=2)] == masks[2:].tolist()
    env.env_method("action_masks")[0][:] = False
    assert np.stack(env.env_method("action_masks")).tolist() == masks.tolist()
    env.close()


def test_what_belongs_to_the_whole_is_not_called_on_one():
    for env in (make_sb3(2), make_sb3(2, "serial")):
        for name in ("reset", "step", "close"):
            with pytest.raises(InputError, match=f"call {name}"):
                env.env_method(name)


# ------------------------------------------------------------------------------------------- seeds, options, pictures
def test_seeds_are_used_once():
    env = make_sb3(4, red="meander", chance="cyborg", horizon=9)

    def episode():
        env.reset()
        return [env.step(np.zeros(4, int))[0].tolist() for _ in range(8)]

    assert env.seed(3) == [3, 4, 5, 6]
    first, second = episode(), episode()
    env.seed(3)
    assert (episode(), episode()) == (first, second)
    assert first != second


def test_options_reach_the_environments_that_they_are_for():
    for backend in ("serial", "pipes"):
        ours = make_sb3(4, backend, env=CornerEnv, **options_of(backend))
        reference = theirs(CornerEnv, 4)
        for options in ({"a": np.arange(3)}, [{"a": 1}, {}, {"a": 1}, {"b": 2}], None):
            for env in (ours, reference):
                env.seed(9)
                env.set_options(options)
            assert plain(ours.reset()) == plain(reference.reset())
            assert plain(dict(enumerate(ours.reset_infos))) == plain(dict(enumerate(reference.reset_infos)))
        ours.close()


def test_pictures_are_put_together():
    env = make_sb3(4, "pipes", workers=2, env=lambda: CornerEnv("rgb_array"))
    env.set_attr("touched", 200, indices=3)
    assert env.render_mode == "rgb_array"
    assert env.metadata["render_fps"] == 9
    assert env.render().shape == (4, 4, 3)
    assert env.render()[2:, 2:].min() == 200
    env.close()
    text = make_sb3(2, render_mode="ansi")
    text.reset()
    assert text.render() is None  # as with their own: text is had by env_method
    with pytest.warns(UserWarning, match="rgb_array"):
        assert text.get_images() == [None, None]


# -------------------------------------------------------------------------------------------------------------- faults
def test_a_lost_worker_is_an_error_or_a_truncated_episode():
    # The other worker's environments, without the fault, go on.
    factory = functools.partial(SyntheticEnv, horizon=40, fixed_length=True, faults=(Fault("kill", 3, seed=0),))
    env = make_sb3(2, "shared_memory", env=factory, workers=2)
    env.seed(0)
    env.reset()
    for _ in range(2):
        env.step([1, 1])
    with pytest.raises(WorkerDiedError):
        env.step([1, 1])
    env.close()
    env = make_sb3(2, "shared_memory", env=factory, workers=2, restart=1)
    env.seed(0)
    env.reset()
    for _ in range(2):
        last, _, _, _ = env.step([1, 1])
    obs, rewards, dones, infos = env.step([1, 1])
    assert dones.tolist() == [True, False]
    assert infos[0]["worker_restarted"] is True
    assert infos[0]["TimeLimit.truncated"] is True
    assert infos[0]["terminal_observation"].tolist() == last[0].tolist()
    assert (rewards[0], obs[0, 0]) == (0, 0)
    assert infos[1] == {}
    env.close()


def test_bad_input_is_named():
    with pytest.raises(InputError, match="copy=False"):
        make_sb3(2, copy=False)
    for backend in ("native", "serial"):
        with pytest.raises(InputError, match="copy=False"):
            StockadeVecEnv(stockade.make_vec(2, backend, copy=False))
    with pytest.raises(InputError, match="not CAGE2Env"):
        StockadeVecEnv(stockade.make())
    with pytest.raises(InputError, match="not SyncVectorEnv"):
        StockadeVecEnv(SyncVectorEnv([stockade.make]))
    with pytest.raises(ValueError, match="backend='quick'"):
        make_sb3(2, "quick")


def test_without_the_extra_the_message_names_it():
    code = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "stable_baselines3":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import stockade
stockade.make_vec(2).reset()
print("works")
import stockade.integrations.sb3
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.stdout == "works\n"
    assert "pip install 'stockade[sb3]'" in answer.stderr.splitlines()[-1]
