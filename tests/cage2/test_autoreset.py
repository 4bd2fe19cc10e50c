"""The three autoreset modes, against Gymnasium's own vector environment over single worlds: all that `step` gives."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import stockade

from .play import CHANCES, play, random_actions

MODES = {"next_step": AutoresetMode.NEXT_STEP, "same_step": AutoresetMode.SAME_STEP, "disabled": AutoresetMode.DISABLED}
N, HORIZON = 4, 9


def pair(mode: str, **options):
    """The native vector environment, and Gymnasium's of the same worlds."""
    options = {"red": "mix", "green": "active", "horizon": HORIZON, "info": True, **options}
    native = stockade.make_vec(N, autoreset_mode=mode, **options)
    return native, SyncVectorEnv([lambda: stockade.make(**options)] * N, autoreset_mode=MODES[mode])


def said(info: dict, within: str = "") -> dict:
    """What an info says, {(key, world): value}: only what the masks cover, so that a key nobody has is no key."""
    facts = {}
    for key, value in info.items():
        if key.startswith("_"):
            continue
        mask = info[f"_{key}"]
        assert (mask.dtype, mask.shape) == (np.bool_, (N,))
        if isinstance(value, dict):
            nested = said(value, f"{within}{key}/")
            assert {i for _, i in nested} <= set(np.flatnonzero(mask)), "a mask within covers more than the one around"
            facts |= nested
        else:
            facts |= {(f"{within}{key}", int(i)): value[i] for i in np.flatnonzero(mask)}
    return facts


def assert_same_info(got: dict, want: dict) -> None:
    got, want = said(got), said(want)
    assert got.keys() == want.keys()
    for key, value in want.items():
        assert np.array_equal(got[key], value), key
        assert np.asarray(got[key]).dtype == np.asarray(value).dtype, key


def assert_same_step(got: tuple, want: tuple) -> None:
    for name, have, expected in zip(("obs", "reward", "terminated", "truncated"), got, want, strict=False):
        assert np.array_equal(have, expected), name
        assert have.dtype == expected.dtype, name
    assert_same_info(got[4], want[4])


@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("action_mask", [False, True])
def test_automatic_resets_are_gymnasiums(mode, chance, action_mask):
    """Worlds end at different times: a first masked reset puts two of them out of step with the others."""
    native, sync = pair(mode, chance=chance, action_mask=action_mask)
    for envs in (native, sync):
        envs.reset(seed=3)
    late = np.array([False, True, False, True])
    for t, actions in enumerate(random_actions(1, 4 * HORIZON, N)):
        if t == 4:
            obs = [envs.reset(options={"reset_mask": late.copy()})[0] for envs in (native, sync)]
            assert np.array_equal(*obs)
        assert_same_step(native.step(actions), sync.step(actions))


@pytest.mark.parametrize("chance", CHANCES)
def test_masked_resets_are_gymnasiums(chance):
    native, sync = pair("disabled", chance=chance)
    for envs in (native, sync):
        envs.reset(seed=3)
    generator = np.random.default_rng(0)
    for actions in random_actions(2, 5 * HORIZON, N):
        want = sync.step(actions)
        assert_same_step(native.step(actions), want)
        mask = want[3] | (generator.random(N) < 0.05)
        if mask.any():
            seed = [None, 5, None, int(generator.integers(100))]
            obs, info = native.reset(seed=seed, options={"reset_mask": mask.copy()})
            want_obs, want_info = sync.reset(seed=seed, options={"reset_mask": mask.copy()})
            assert np.array_equal(obs, want_obs)
            assert_same_info(info, want_info)


def test_the_action_mask_of_a_masked_reset_is_given_to_those_reset():
    native, sync = pair("disabled", action_mask=True)
    mask = np.array([True, False, True, False])
    for envs in (native, sync):
        envs.reset(seed=3)
    assert_same_info(native.reset(options={"reset_mask": mask})[1], sync.reset(options={"reset_mask": mask})[1])


def test_next_step_the_resetting_step_ignores_the_action():
    """It draws nothing for it, gives reward 0 and nothing in infos."""
    ends = []
    for last in (0, 77):
        envs = stockade.make_vec(2, red="bline", horizon=5, info=True, chance="cyborg")
        envs.reset(seed=0)
        play(envs, np.zeros((5, 2), int))
        _, reward, terminated, truncated, info = envs.step([last, last])
        assert not reward.any()
        assert not terminated.any()
        assert not truncated.any()
        assert not any(info[key].any() for key in info if key.startswith("_"))
        assert envs.true_state().time.tolist() == [0, 0]
        ends.append(envs.snapshot())
    assert ends[0] == ends[1]


def test_same_step_final_obs_and_info_are_of_the_ended_episode():
    envs = stockade.make_vec(2, red="bline", horizon=3, info=True, autoreset_mode="same_step")
    alone = stockade.make(red="bline", horizon=3)
    envs.reset(seed=[7, 8])
    alone.reset(seed=8)
    record = play(alone, np.full(3, 40))
    for _ in range(3):
        obs, _, _, truncated, info = envs.step([40, 40])
    assert truncated.all()
    assert np.array_equal(info["final_obs"][1], record.obs[-1])
    assert {key: info["final_info"][key][1] for key in record.infos[-1]} == record.infos[-1]
    assert info["_final_obs"].tolist() == info["_final_info"].tolist() == [True, True]
    assert not obs.any(), "a new episode shows nothing yet"
    assert envs.true_state().time.tolist() == [0, 0]


@pytest.mark.parametrize("mode", MODES)
def test_episode_statistics_are_the_true_returns_and_lengths(mode):
    """Through Gymnasium's wrapper over either vector environment; `next_step` also against plain sums."""
    native, sync = (RecordEpisodeStatistics(envs) for envs in pair(mode, red="bline", horizon=30))
    returns, lengths = np.zeros(N), np.zeros(N, int)
    for envs in (native, sync):
        envs.reset(seed=1)
    ended = 0
    for t, actions in enumerate(random_actions(4, 100, N)):
        _, rewards, _, truncated, info = native.step(actions)
        _, _, _, _, want = sync.step(actions)
        if mode == "next_step":
            resetting = t % 31 == 30
            returns, lengths = (0 * returns, 0 * lengths) if resetting else (returns + rewards, lengths + 1)
        if truncated.any():
            ended += 1
            assert info["episode"]["r"].tolist() == want["episode"]["r"].tolist()
            assert info["episode"]["l"].tolist() == want["episode"]["l"].tolist()
            assert info["_episode"].tolist() == want["_episode"].tolist() == [True] * N
            if mode == "next_step":
                assert info["episode"]["r"].tolist() == returns.tolist()
                assert info["episode"]["l"].tolist() == lengths.tolist() == [30] * N
            if mode == "disabled":
                for envs in (native, sync):
                    envs.reset(options={"reset_mask": truncated.copy()})
    assert ended == 3


# -------------------------------------------------------------------------------------------------------- wrong use
def test_disabled_refuses_to_step_over_the_end_and_changes_nothing():
    envs = stockade.make_vec(3, horizon=2, autoreset_mode="disabled")
    envs.reset(seed=0)
    envs.step([0, 0, 0])
    envs.reset(options={"reset_mask": np.array([True, False, True])})
    envs.step([0, 0, 0])
    before = envs.snapshot()
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"environments \[1\] need a reset.*reset_mask"):
        envs.step([0, 0, 0])
    assert envs.snapshot() == before
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    envs.step([0, 0, 0])
    assert envs.true_state().time.tolist() == [2, 1, 2]


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        ([True, False, True], TypeError, "dtype bool, not list"),
        (np.array([True, False]), ValueError, r"shape \(3,\), not \(2,\)"),
        (np.ones((3, 1), bool), ValueError, r"shape \(3,\), not \(3, 1\)"),
        (np.array([1, 0, 1]), TypeError, "dtype bool, not int64"),
        (np.zeros(3, bool), ValueError, "at least one value must be True"),
        (None, TypeError, "dtype bool, not NoneType"),
    ],
)
def test_a_bad_reset_mask_is_refused_and_changes_nothing(mask, error, message):
    envs = stockade.make_vec(3, autoreset_mode="disabled")
    envs.reset(seed=0)
    envs.step([0, 0, 0])
    before = envs.snapshot()
    with pytest.raises(error, match=message):
        envs.reset(seed=1, options={"reset_mask": mask})
    assert envs.snapshot() == before


def test_a_reset_mask_is_left_to_its_owner():
    """Neither the caller's dictionary nor his array is changed, and the array may change afterwards."""
    envs = stockade.make_vec(3, autoreset_mode="disabled")
    mask = np.array([True, True, True])
    options = {"reset_mask": mask}
    envs.reset(seed=0, options=options)
    mask[:] = False
    envs.step([0, 0, 0])
    assert options == {"reset_mask": mask}
    assert envs.true_state().time.tolist() == [1, 1, 1]


def test_the_first_reset_must_be_of_all():
    envs = stockade.make_vec(3)
    with pytest.raises(gymnasium.error.ResetNeeded, match="first reset must be of all"):
        envs.reset(seed=0, options={"reset_mask": np.array([True, False, True])})
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step([0, 0, 0])


@pytest.mark.parametrize("name", [*MODES, *MODES.values(), *(mode.value for mode in MODES.values())])
def test_modes_by_all_their_names(name):
    envs = stockade.make_vec(2, autoreset_mode=name)
    assert envs.metadata["autoreset_mode"] is (MODES.get(name) or AutoresetMode(name))
