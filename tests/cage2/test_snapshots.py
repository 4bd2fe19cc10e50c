"""Snapshots: back to a moment bit for bit, one world or all, with the same chance or another; pickles; equality."""

import copy
import dataclasses
import pickle

import cloudpickle
import gymnasium
import numpy as np
import pytest

import stockade
from stockade.cage2 import Snapshot

from .play import CHANCES, REDS, play, random_actions


def played(chance: str, n: int = 4, steps: int = 40, **options):
    """A vector environment in the middle of episodes."""
    envs = stockade.make_vec(n, **{"red": "mix", "chance": chance, "green": "active", "horizon": 90, **options})
    envs.reset(seed=17)
    play(envs, random_actions(0, steps, n))
    return envs


# -------------------------------------------------------------------------------------------------------- back in time
@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("red", REDS)
def test_the_same_future_follows_again(red, chance):
    """Over the end of the episode too: with its stream, a world has its next episodes."""
    envs = played(chance, red=red)
    snapshot, actions = envs.snapshot(), random_actions(1, 120, 4)
    first, end = play(envs, actions), envs.snapshot()
    assert end != snapshot
    envs.restore(snapshot)
    assert envs.snapshot() == snapshot
    assert play(envs, actions) == first
    assert envs.snapshot() == end


@pytest.mark.parametrize("chance", CHANCES)
def test_the_same_future_follows_in_another_environment(chance):
    envs = played(chance)
    snapshot, actions = envs.snapshot(), random_actions(1, 60, 4)
    first = play(envs, actions)
    fresh = stockade.make_vec(4, red="mix", chance=chance, green="active", horizon=90, threads=3)
    fresh.restore(snapshot)  # before any reset
    assert play(fresh, actions) == first
    assert fresh.snapshot() == envs.snapshot()


@pytest.mark.parametrize("chance", CHANCES)
def test_a_single_world_goes_back(chance):
    env = stockade.make(red="meander", chance=chance)
    env.reset(seed=2)
    actions = random_actions(3, 100, 1)[:, 0]
    obs = play(env, actions[:40]).obs[-1]
    snapshot = env.snapshot()
    first = play(env, actions[40:])
    assert first.truncated[-1]
    assert np.array_equal(env.restore(snapshot), obs), "restore gives the observation of that moment"
    assert play(env, actions[40:]) == first


@pytest.mark.parametrize("chance", CHANCES)
def test_one_world_of_many_goes_back_and_leaves_the_others(chance):
    envs = played(chance)
    snapshot = envs.snapshot(2)
    play(envs, random_actions(1, 20, 4))
    before = [envs.snapshot(i) for i in range(4)]
    obs = envs.restore(snapshot, index=2)
    assert [envs.snapshot(i) == before[i] for i in range(4)] == [True, True, False, True]
    assert envs.snapshot(2) == snapshot
    single = stockade.make(red="mix", chance=chance, green="active", horizon=90)
    assert np.array_equal(single.restore(snapshot), obs[2])
    envs.restore(snapshot, index=0)
    assert envs.snapshot(0) == snapshot


def test_restore_gives_the_observations_of_all_worlds():
    envs = played("fast")
    obs = play(envs, random_actions(1, 1, 4)).obs[-1]
    snapshot, one = envs.snapshot(), envs.snapshot(1)
    play(envs, random_actions(2, 10, 4))
    assert np.array_equal(envs.restore(snapshot), obs)
    assert np.array_equal(envs.restore(one, index=3), obs[[0, 1, 2, 1]])


def test_an_ended_episode_is_restored_as_ended():
    env, envs = stockade.make(horizon=3), stockade.make_vec(2, horizon=3)
    env.reset(seed=0)
    envs.reset(seed=0)
    play(env, np.zeros(3, int))
    play(envs, np.zeros((3, 2), int))
    ended = env.snapshot(), envs.snapshot()
    env.reset()
    envs.reset()
    env.restore(ended[0])
    envs.restore(ended[1])
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    assert not envs.step([0, 0])[1].any()
    assert envs.true_state().time.tolist() == [0, 0], "the step after the last one resets"


# --------------------------------------------------------------------------------------------- one moment, many futures
@pytest.mark.parametrize("chance", CHANCES)
def test_one_world_put_into_all_has_one_future_or_with_a_seed_many(chance):
    source = played(chance, n=1, red="meander", horizon=300)
    snapshot = source.snapshot(0)
    envs = stockade.make_vec(50, red="meander", chance=chance, green="active", horizon=300)
    zeros = np.zeros((60, 50), int)

    envs.restore(snapshot)
    play(envs, zeros)
    assert len({envs.snapshot(i) for i in range(50)}) == 1

    obs = envs.restore(snapshot, seed=5)
    assert (obs == obs[0]).all(), "the same moment"
    assert (envs.true_state().known_addresses == envs.true_state().known_addresses[0]).all()
    futures = np.array(play(envs, zeros).obs)
    assert len({futures[:, i].tobytes() for i in range(50)}) > 45

    envs.restore(snapshot, seed=5)
    assert np.array_equal(play(envs, zeros).obs, futures), "the same seed, the same futures"
    envs.restore(snapshot, seed=6)
    shifted = np.array(play(envs, zeros).obs)
    assert np.array_equal(shifted[:, :49], futures[:, 1:]), "world i has seed + i"

    envs.restore(snapshot)
    envs.restore(snapshot, index=7, seed=5)
    assert np.array_equal(np.array(play(envs, zeros).obs)[:, 7], futures[:, 7])


# ------------------------------------------------------------------------------------------------- equality and pickles
@pytest.mark.parametrize("chance", CHANCES)
def test_equality_and_hash(chance):
    envs = played(chance)
    a, b = envs.snapshot(), envs.snapshot()
    assert a == b
    assert hash(a) == hash(b)
    assert {a: "known"}[b] == "known"
    assert (len(a), len(envs.snapshot(1))) == (4, 1)
    assert a != envs.snapshot(0)
    assert a != "something else"
    envs.step(np.zeros(4, int))
    assert a != envs.snapshot()
    assert stockade.make_vec(4, **{**dataclasses.asdict(envs.config), "rules": "leaderboard"}).config != a.config


@pytest.mark.parametrize("chance", CHANCES)
def test_the_same_state_gives_equal_snapshots_whatever_came_before(chance):
    """A search that looks states up must find them again."""
    fresh, used = stockade.make(red="meander", chance=chance), stockade.make(red="meander", chance=chance)
    used.reset(seed=1)
    play(used, random_actions(0, 100, 1)[:, 0])
    actions = random_actions(1, 50, 1)[:, 0]
    for env in (fresh, used):
        env.reset(seed=8)
    assert fresh.snapshot() == used.snapshot()
    assert play(fresh, actions) == play(used, actions)
    assert fresh.snapshot() == used.snapshot()


def test_a_snapshot_is_a_value():
    """It does not follow the worlds, and cannot be changed."""
    envs = played("cyborg")
    snapshot = envs.snapshot()
    key = hash(snapshot)
    play(envs, random_actions(1, 5, 4))
    assert hash(snapshot) == key
    with pytest.raises(dataclasses.FrozenInstanceError):
        snapshot.worlds = None
    for array in (snapshot.worlds, snapshot.ledgers):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1


CLONES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "newest pickle": lambda x: pickle.loads(pickle.dumps(x, pickle.HIGHEST_PROTOCOL)),
    "cloudpickle": lambda x: pickle.loads(cloudpickle.dumps(x)),
}


@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("clone", CLONES.values(), ids=CLONES)
def test_pickles_and_copies_play_on_alike(clone, chance):
    """Of a snapshot, of a vector environment (with threads), and of a single one."""
    envs = played(chance, threads=2)
    snapshot, twin = clone(envs.snapshot()), clone(envs)
    assert snapshot == envs.snapshot()
    assert hash(snapshot) == hash(envs.snapshot())
    actions = random_actions(4, 80, 4)
    first = play(envs, actions)
    assert play(twin, actions) == first
    assert twin.snapshot() == envs.snapshot()
    assert not np.shares_memory(twin.true_state().time, envs.true_state().time)
    assert np.array_equal(twin.true_state().time, envs.true_state().time), "views are of the twin's own memory"
    twin.restore(snapshot)
    assert play(twin, actions) == first

    env = stockade.make(red="meander", chance=chance, obs_dtype=np.float32, action_mask=True)
    env.reset(seed=3)
    play(env, actions[:30, 0])
    twin = clone(env)
    first, again = play(env, actions[30:, 0]), play(twin, actions[30:, 0])
    assert again == first
    assert [info["red_action"] for info in again.infos] == [info["red_action"] for info in first.infos]
    assert twin.snapshot() == env.snapshot()
    twin.step(0)
    assert twin.snapshot() != env.snapshot()


@pytest.mark.parametrize("clone", CLONES.values(), ids=CLONES)
def test_a_snapshot_out_of_a_pickle_cannot_be_changed_either(clone):
    snapshot = clone(played("cyborg").snapshot())
    for array in (snapshot.worlds, snapshot.ledgers):
        assert not array.flags.writeable


# ----------------------------------------------------------------------------------------------------- what is refused
def test_what_does_not_fit_is_refused_and_changes_nothing():
    envs = played("fast")
    before = envs.snapshot()
    other = {
        "chance": stockade.make_vec(4, red="mix", green="active", horizon=90, chance="cyborg"),
        "red": stockade.make_vec(4, red="bline", green="active", horizon=90),
        "horizon": stockade.make_vec(4, red="mix", green="active", horizon=91),
        "rules": stockade.make_vec(4, red="mix", green="active", horizon=90, rules="leaderboard"),
    }
    for what, theirs in other.items():
        theirs.reset(seed=0)
        with pytest.raises(ValueError, match=rf"other worlds: .*{what}='?{getattr(theirs.config, what)}.* instead of"):
            envs.restore(theirs.snapshot())
    two = played("fast", n=2)
    with pytest.raises(ValueError, match="holds 2 worlds, which do not fit into 4"):
        envs.restore(two.snapshot())
    with pytest.raises(ValueError, match="holds 2 worlds, which do not fit into 1"):
        envs.restore(two.snapshot(), index=0)
    for index in (4, -1):
        with pytest.raises(IndexError, match=f"no world {index}; there are 4"):
            envs.restore(before, index=index)
        with pytest.raises(IndexError, match=f"no world {index}; there are 4"):
            envs.snapshot(index)
    with pytest.raises(TypeError, match=r"expected a Snapshot.*not bytes"):
        envs.restore(before.worlds.tobytes())
    with pytest.raises(ValueError, match="seed -1 is out of range"):
        envs.restore(two.snapshot(0), seed=-1)
    with pytest.raises(TypeError, match="not float"):
        envs.restore(two.snapshot(0), seed=1.5)
    assert envs.snapshot() == before


def test_a_snapshot_of_another_layout_is_refused_and_changes_nothing():
    """As a pickle from another version may be: too few bytes a world, or no ledgers."""
    envs = played("cyborg")
    good = envs.snapshot()
    play(envs, random_actions(1, 3, 4))
    before = envs.snapshot()
    for bad in (
        Snapshot(good.config, good.worlds[:, :-8].copy(), good.ledgers),
        Snapshot(good.config, good.worlds, good.ledgers[:, :-8].copy()),
        Snapshot(good.config, good.worlds, None),
        Snapshot(good.config, good.worlds[:, :1].copy(), good.ledgers),
        Snapshot(good.config, good.worlds, good.ledgers[:2].copy()),
    ):
        with pytest.raises(ValueError, match="snapshot"):
            envs.restore(bad)
        assert envs.snapshot() == before
