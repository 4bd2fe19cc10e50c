"""Bad input: a typed error that names the value and what is allowed, before anything changes."""

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

import stockade
from stockade.errors import InvalidActionError

MAKERS = {
    "single": lambda **options: stockade.make(**options),
    "vector": lambda **options: stockade.make_vec(3, **options),
    "registered": lambda **options: gymnasium.make_vec("stockade/CAGE2-v0", num_envs=3, **options),
}
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


# --------------------------------------------------------------------------------------------------------- construction
@every_maker
@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("red", "purple", ["'bline'", "'meander'", "'sleep'", "'mix'", "'B_lineAgent'"]),
        ("red", "", ["'bline'"]),
        ("red", None, ["'bline'"]),
        ("red", ["bline"], ["'bline'"]),
        ("red", 1, ["'bline'"]),
        ("rules", "2021", ["'current'", "'leaderboard'"]),
        ("rules", {"current"}, ["'current'"]),
        ("chance", "slow", ["'fast'", "'cyborg'"]),
        ("chance", True, ["'fast'"]),
        ("green", "busy", ["'sleep'", "'active'"]),
        ("green", False, ["'sleep'", "'active'"]),
        ("obs_dtype", np.float64, ["numpy.uint8", "numpy.float32"]),
        ("obs_dtype", "text", ["numpy.uint8"]),
        ("obs_dtype", np.int32, ["numpy.uint8"]),
        ("horizon", 0, ["1 to"]),
        ("horizon", -5, ["1 to"]),
        ("horizon", 10**9, ["1 to"]),
        ("horizon", 30.0, ["whole number"]),
        ("horizon", "30", ["whole number"]),
        ("horizon", True, ["whole number"]),
        ("horizon", None, ["whole number"]),
    ],
)
def test_an_unknown_option_value_is_named_with_the_allowed_ones(make, name, value, allowed):
    with pytest.raises(ValueError, match=rf"^{name}=") as caught:
        make(**{name: value})
    assert repr(value) in str(caught.value)
    for choice in allowed:
        assert choice in str(caught.value)


@pytest.mark.parametrize("make", [MAKERS["single"], MAKERS["vector"]])
def test_an_unknown_render_mode_is_named(make):
    with pytest.raises(ValueError, match="render_mode='human' is unknown; take None or 'ansi'"):
        make(render_mode="human")


@every_maker
def test_an_option_that_does_not_exist_is_named(make):
    with pytest.raises(TypeError, match="color"):
        make(color="purple")


@pytest.mark.parametrize("mode", ["sometimes", None, ["next_step"], 1])
def test_an_unknown_autoreset_mode_is_named(mode):
    with pytest.raises(ValueError, match="'next_step', 'same_step' or 'disabled'") as caught:
        stockade.make_vec(2, autoreset_mode=mode)
    assert repr(mode) in str(caught.value)


@pytest.mark.parametrize("n", [0, -1, 2.0, "4", None, True])
def test_a_number_of_environments_that_is_none_is_named(n):
    with pytest.raises(ValueError, match="at least 1") as caught:
        stockade.make_vec(n)
    assert repr(n) in str(caught.value)


@pytest.mark.parametrize("threads", [0, -1, 2.0, "4", True])
def test_a_number_of_threads_that_is_none_is_named(threads):
    with pytest.raises(ValueError, match=r"threads=.*at least 1") as caught:
        stockade.make_vec(2, threads=threads)
    assert repr(threads) in str(caught.value)


def test_an_unknown_backend_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'gpu'.*'native', 'serial', 'pipes', 'shared_memory', 'async'"):
        stockade.make_vec(2, backend="gpu")


def test_the_native_backend_takes_no_foreign_environment():
    with pytest.raises(ValueError, match="another backend for env="):
        stockade.make_vec(2, backend="native", env=lambda: gymnasium.make("CartPole-v1"))


def test_options_of_the_built_in_world_do_not_go_with_a_foreign_environment():
    with pytest.raises(ValueError, match=r"\['horizon', 'red'\]"):
        stockade.make_vec(2, backend="serial", env=lambda: gymnasium.make("CartPole-v1"), red="bline", horizon=3)


# -------------------------------------------------------------------------------------------------------------- actions
@pytest.mark.parametrize("chance", ["fast", "cyborg"])
@pytest.mark.parametrize(
    ("action", "message"),
    [
        (145, "145.*0 to 144"), (-1, "-1.*0 to 144"), (2**70, f"{2**70}.*0 to 144"), (np.int64(999), "999.*0 to 144"),
        (3.0, "3.0.*float.*0 to 144"), (float("nan"), "nan.*float"), (np.float32(3), "3.0.*float32"),
        ("3", "'3'.*str"), (None, "None.*NoneType"), (True, "True.*bool"), (np.bool_(True), "bool"),
        ([3], r"\[3\].*list"), (np.array([3]), "ndarray"), (np.array(3.0), "3.0.*float"), (np.array(145), "145"),
    ],
)  # fmt: skip
def test_a_bad_action_is_refused_and_changes_nothing(action, message, chance):
    env = stockade.make(chance=chance)
    env.reset(seed=0)
    env.step(5)
    before = env.snapshot()
    with pytest.raises(InvalidActionError, match=message):
        env.step(action)
    assert env.snapshot() == before
    env.step(144)
    assert env.true_state().time == 2


@pytest.mark.parametrize("chance", ["fast", "cyborg"])
@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0, 145, 0], "145 of environment 1.*0 to 144"),
        ([0, 0, -1], "-1 of environment 2.*0 to 144"),
        (np.array([2**64 - 1, 0, 0], np.uint64), f"{2**64 - 1} of environment 0.*0 to 144"),
        (np.array([0, 2**63, 0], np.uint64), f"{2**63} of environment 1"),
        (np.array([0, 200, 0], np.uint8), "200 of environment 1"),
        ([0, 0], r"shape \(2,\); 3 environments take shape \(3,\)"),
        ([0, 0, 0, 0], r"shape \(4,\)"),
        (np.zeros((3, 1), int), r"shape \(3, 1\)"),
        (0, r"shape \(\)"),
        (None, r"shape \(\)"),
        ([], r"shape \(0,\)"),
        ([0.0, 1.0, 2.0], "dtype float64"),
        ([0.0, float("nan"), 2.0], "dtype float64"),
        ([True, False, True], "dtype bool"),
        (["0", "1", "2"], "dtype <U1"),
        ([0, None, 0], "dtype object"),
        ([0, 2**70, 0], "dtype object"),
        ([[0], [0, 1], [2]], "shape"),
    ],
)
def test_bad_actions_are_refused_and_change_nothing(actions, message, chance):
    """All or nothing: not even the worlds whose action was good move."""
    envs = stockade.make_vec(3, chance=chance, copy=False)
    envs.reset(seed=0)
    obs, rewards, *_ = envs.step([1, 2, 3])
    shown, before = (obs.copy(), rewards.copy()), envs.snapshot()
    with pytest.raises(InvalidActionError, match=message):
        envs.step(actions)
    assert envs.snapshot() == before
    assert np.array_equal(obs, shown[0])
    assert np.array_equal(rewards, shown[1])
    envs.step([144, 0, 0])
    assert envs.true_state().time.tolist() == [2, 2, 2]


def test_an_invalid_action_is_gymnasiums_and_a_value_error():
    assert issubclass(InvalidActionError, gymnasium.error.InvalidAction)
    assert issubclass(InvalidActionError, ValueError)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
def test_whole_numbers_of_any_width_are_actions(dtype):
    envs, same = stockade.make_vec(3), stockade.make_vec(3)
    for e in (envs, same):
        e.reset(seed=0)
    for actions in ([0, 1, 2], [100, 120, 127]):
        envs.step(np.array(actions, dtype))
        same.step(actions)
    assert envs.snapshot() == same.snapshot()


def test_actions_that_are_a_strided_view_are_read_right():
    envs, same = stockade.make_vec(3), stockade.make_vec(3)
    for e in (envs, same):
        e.reset(seed=0)
    envs.step(np.array([[9, 0], [50, 0], [140, 0]])[:, 0])
    same.step([9, 50, 140])
    assert envs.snapshot() == same.snapshot()


# ------------------------------------------------------------------------------------------------------ seeds, options
@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        (-1, ValueError, r"-1 is out of range; take 0 to 2\*\*64-1"),
        (2**64, ValueError, f"{2**64} is out of range"),
        (1.5, TypeError, "not float"),
        ("1", TypeError, "not str"),
        (True, TypeError, "not bool"),
    ],
)
@pytest.mark.parametrize("make", [MAKERS["single"], MAKERS["vector"]])
def test_a_bad_seed_is_refused_and_changes_nothing(make, seed, error, message):
    envs = make(chance="cyborg")
    envs.reset(seed=0)
    before = envs.snapshot()
    with pytest.raises(error, match=message):
        envs.reset(seed=seed)
    assert envs.snapshot() == before


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([1, 2], "2 seeds were given for 3"),
        ([1, 2, 3, 4], "4 seeds were given for 3"),
        ([], "0 seeds"),
        ([1, -2, 3], "-2"),
        ([1, 2**64, 3], f"{2**64}"),
        ([1, 2.5, 3], "2.5"),
        ([1, "2", 3], "'2'"),
        ([1, True, 3], "True"),
        ([1, float("nan"), 3], "nan"),
        (np.array([1.0, 2.0, 3.0]), "1.0"),
    ],
)
def test_bad_lists_of_seeds_are_refused_and_change_nothing(seeds, message):
    envs = stockade.make_vec(3)
    envs.reset(seed=0)
    before = envs.snapshot()
    with pytest.raises((ValueError, TypeError), match=message):
        envs.reset(seed=seeds)
    assert envs.snapshot() == before


def test_the_last_worlds_seed_must_fit_too():
    envs = stockade.make_vec(3)
    envs.reset(seed=2**64 - 3)
    before = envs.snapshot()
    with pytest.raises(ValueError, match="out of range"):
        envs.reset(seed=2**64 - 2)
    assert envs.snapshot() == before


@pytest.mark.parametrize("make", [MAKERS["single"], MAKERS["vector"]])
def test_unknown_reset_options_are_named_and_change_nothing(make):
    envs = make()
    envs.reset(seed=0)
    before = envs.snapshot()
    with pytest.raises(ValueError, match=r"unknown options \['colour'\]"):
        envs.reset(seed=1, options={"colour": "purple"})
    assert envs.snapshot() == before
    envs.reset(seed=1, options={})
    assert envs.snapshot() != before


# ---------------------------------------------------------------------------------------------------------- wrong order
USES = {
    "step": lambda envs: envs.step([0, 0, 0] if hasattr(envs, "num_envs") else 0),
    "true_state": lambda envs: envs.true_state(),
    "snapshot": lambda envs: envs.snapshot(),
    "random_peek": lambda envs: envs.random_peek(),
    "render": lambda envs: envs.render(),
}


@pytest.mark.parametrize("make", [MAKERS["single"], MAKERS["vector"]])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_nothing_works_before_the_first_reset(make, use):
    envs = make(chance="cyborg", render_mode="ansi")
    with pytest.raises(ResetNeeded, match=r"call reset\(\)"):
        use(envs)
    envs.reset(seed=0)
    use(envs)


@pytest.mark.parametrize("make", [MAKERS["single"], MAKERS["vector"]])
@pytest.mark.parametrize("use", [*USES.values(), lambda e: e.reset(), lambda e: e.restore(None)])
def test_nothing_works_after_close(make, use):
    envs = make(chance="cyborg")
    envs.reset(seed=0)
    envs.close()
    envs.close()  # a second time is fine
    with pytest.raises(ClosedEnvironmentError, match="closed"):
        use(envs)


def test_a_single_world_does_not_step_over_its_end():
    env = stockade.make(horizon=2)
    env.reset(seed=0)
    env.step(0)
    env.step(0)
    before = env.snapshot()
    with pytest.raises(ResetNeeded, match="over after 2 steps"):
        env.step(0)
    assert env.snapshot() == before
    env.reset()
    env.step(0)


def test_the_fast_chance_has_no_reference_stream():
    env = stockade.make()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r'chance="fast".*chance="cyborg"'):
        env.random_peek()


def test_restoring_one_world_before_the_first_reset_is_refused():
    source = stockade.make()
    source.reset(seed=0)
    envs = stockade.make_vec(3)
    with pytest.raises(ResetNeeded):
        envs.restore(source.snapshot(), index=1)
