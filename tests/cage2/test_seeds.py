"""Seeds: the same ones give the same bits, however many worlds and threads there are; streams go on without one."""

import multiprocessing
import os
import random
import threading

import numpy as np
import pytest

import stockade
from stockade.cage2 import action_index
from tests.oracle.model import ReferenceModel

from .play import CHANCES, REDS, play, random_actions

BIGGEST = 2**64 - 1


# ------------------------------------------------------------------------------------------- single and vector, threads
@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("red", [*REDS, "mix"])
def test_world_i_of_a_vector_is_the_single_world_with_seed_plus_i(red, chance):
    options = {"red": red, "chance": chance, "green": "active", "horizon": 60}
    envs = stockade.make_vec(5, **options)
    actions = random_actions(1, 60, 5)
    first, _ = envs.reset(seed=123)
    record = play(envs, actions)
    for i in range(5):
        env = stockade.make(**options)
        obs, _ = env.reset(seed=123 + i)
        alone = play(env, actions[:, i])
        assert np.array_equal(obs, first[i])
        assert np.array_equal(alone.obs, np.array(record.obs)[:, i])
        assert np.array_equal(alone.rewards, np.array(record.rewards)[:, i])
        assert np.array_equal(alone.truncated, np.array(record.truncated)[:, i])
        assert env.snapshot() == envs.snapshot(i)


@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("threads", [2, 3, 7, 20])
def test_threads_change_nothing(threads, chance):
    """More threads than worlds too; and with resets on the way."""
    options = {"red": "mix", "chance": chance, "horizon": 25}
    actions = random_actions(2, 80, 7)
    snapshots, records = [], []
    for count in (1, threads):
        with stockade.make_vec(7, threads=count, **options) as envs:
            envs.reset(seed=5)
            records.append(play(envs, actions))
            snapshots.append(envs.snapshot())
    assert records[0] == records[1]
    assert snapshots[0] == snapshots[1]


def _step_in_child(envs, actions, connection):
    connection.send((play(envs, actions), envs.snapshot()))
    envs.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_steps_on_with_threads_of_its_own():
    """Threads of the parent do not live on in it."""
    actions = random_actions(3, 20, 8)
    with stockade.make_vec(8, red="meander", threads=3) as envs:
        envs.reset(seed=1)
        envs.step(actions[0])
        mine, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=_step_in_child, args=(envs, actions, theirs))
        child.start()
        assert mine.poll(60), "the child hangs"
        record, snapshot = mine.recv()
        child.join(60)
        assert child.exitcode == 0
        assert play(envs, actions) == record
        assert envs.snapshot() == snapshot


def test_close_ends_the_threads():
    def running() -> int:
        return sum(thread.name.startswith("stockade") for thread in threading.enumerate())

    before = running()
    envs = stockade.make_vec(8, threads=3)
    envs.reset(seed=1)
    envs.step(np.zeros(8, int))
    assert running() == before + 2, "the caller's thread takes a share too"
    envs.close()
    assert running() == before


@pytest.mark.parametrize("chance", CHANCES)
def test_a_list_of_seeds_gives_each_world_its_own(chance):
    envs = stockade.make_vec(3, red="meander", chance=chance)
    envs.reset(seed=[40, 7, 40])
    play(envs, np.zeros((30, 3), int))
    assert envs.snapshot(0) == envs.snapshot(2)
    assert envs.snapshot(0) != envs.snapshot(1)
    env = stockade.make(red="meander", chance=chance)
    env.reset(seed=7)
    play(env, np.zeros(30, int))
    assert env.snapshot() == envs.snapshot(1)


@pytest.mark.parametrize("chance", CHANCES)
def test_none_in_a_list_lets_that_stream_go_on(chance):
    envs = stockade.make_vec(2, red="meander", chance=chance)
    envs.reset(seed=[3, 4])
    actions = random_actions(4, 50, 2)
    play(envs, actions)
    envs.reset(seed=[3, None])
    going_on = stockade.make(red="meander", chance=chance)
    going_on.reset(seed=4)
    play(going_on, actions[:, 1])
    going_on.reset()
    assert np.array_equal(play(envs, actions[:40]).obs[-1][1], play(going_on, actions[:40, 1]).obs[-1])
    assert going_on.snapshot() == envs.snapshot(1)


@pytest.mark.parametrize("chance", CHANCES)
def test_none_in_the_first_list_of_seeds_is_a_seed_nobody_chose(chance):
    streams = set()
    for _ in range(3):
        envs = stockade.make_vec(2, red="meander", chance=chance)
        envs.reset(seed=[3, None])
        play(envs, np.zeros((40, 2), int))
        streams.add(envs.snapshot(1))
    assert len(streams) == 3


@pytest.mark.parametrize("chance", CHANCES)
def test_other_seeds_give_other_episodes(chance):
    envs = stockade.make_vec(300, red="meander", chance=chance)
    envs.reset(seed=0)
    obs = np.array(play(envs, np.zeros((60, 300), int)).obs)
    assert len({obs[:, i].tobytes() for i in range(300)}) > 290
    assert len({envs.snapshot(i) for i in range(300)}) == 300


@pytest.mark.parametrize("chance", CHANCES)
def test_the_same_seed_again_repeats_the_episode(chance):
    """From any state; what snapshots say of it is in test_snapshots.py."""
    env = stockade.make(red="meander", chance=chance, green="active")
    actions = random_actions(5, 70, 1)[:, 0]
    env.reset(seed=11)
    first = play(env, actions)
    for steps_before in (0, 31, 100):
        env.reset(seed=99)
        play(env, random_actions(6, steps_before, 1)[:, 0])
        env.reset(seed=11)
        assert play(env, actions) == first


# -------------------------------------------------------------------------------------------------------- without seeds
@pytest.mark.parametrize("chance", CHANCES)
def test_unseeded_resets_differ(chance):
    """Of one environment one after the other, and of two environments."""
    seen = []
    for _ in range(2):
        env = stockade.make(red="meander", chance=chance)
        for _ in range(3):
            env.reset()
            seen.append(np.array(play(env, np.zeros(60, int)).obs).tobytes())
    assert len(set(seen)) == 6


@pytest.mark.parametrize("chance", CHANCES)
def test_unseeded_worlds_of_a_vector_differ(chance):
    envs = stockade.make_vec(4, red="meander", chance=chance)
    envs.reset()
    obs = np.array(play(envs, np.zeros((60, 4), int)).obs)
    assert len({obs[:, i].tobytes() for i in range(4)}) == 4


@pytest.mark.parametrize("red", REDS)
@pytest.mark.parametrize("seed", [8, 2**64 - 1])
def test_under_cyborg_a_reset_without_a_seed_goes_on_as_the_model_does(red, seed):
    """Three episodes, the second cut short: as an evaluation script of the challenge plays."""
    env = stockade.make(red=red, chance="cyborg", green="active")
    model = ReferenceModel(red, green="active")
    for episode, steps in enumerate((100, 37, 60)):
        begins_with = seed if episode == 0 else None
        obs, _ = env.reset(seed=begins_with)
        assert obs.tolist() == model.reset(begins_with)
        assert env.random_peek() == model.random_peek()
        for action in random_actions(episode, steps, 1)[:, 0].tolist():
            obs, reward, *_ = env.step(action)
            assert (obs.tolist(), reward) == model.step(action)
            assert env.random_peek() == model.random_peek()


# ------------------------------------------------------------------------------------------------------ big ones, peeks
@pytest.mark.parametrize("chance", CHANCES)
def test_seeds_of_64_bits(chance):
    """The largest is taken, and none of its bits is lost."""
    env = stockade.make(red="meander", chance=chance)
    seen = []
    for seed in (BIGGEST, 2**32 - 1, 2**63 - 1, BIGGEST - 2**33):
        env.reset(seed=seed)
        seen.append(np.array(play(env, np.zeros(60, int)).obs).tobytes())
    assert len(set(seen)) == 4
    envs = stockade.make_vec(3, red="meander", chance=chance)
    envs.reset(seed=BIGGEST - 2)
    obs = np.array(play(envs, np.zeros((60, 3), int)).obs)
    assert obs[:, 2].tobytes() == seen[0]


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**63, BIGGEST])
def test_random_peek_is_the_next_word_of_cpythons_stream(seed):
    """The reset takes 54 to 105 words of `random.Random(seed)`; then blue's choice of a session is a known draw."""
    env = stockade.make(red="sleep", chance="cyborg")
    env.reset(seed=seed)
    source = random.Random(seed)
    words = [source.getrandbits(32) for _ in range(106)]
    assert env.random_peek() in words[54:]
    source = random.Random(seed)
    for _ in range(words.index(env.random_peek())):
        source.getrandbits(32)
    draws = {
        "Sleep": lambda: None,
        "Monitor": lambda: None,
        "Analyse Defender": lambda: source.choice("ab"),  # blue has two sessions there, one elsewhere
        "Analyse User1": lambda: source.choice("a"),
        "DecoySSHD User1": lambda: source.choice("a"),  # fails: a port in use
        "Restore User4": lambda: source.choice("a"),
    }
    for name, draw in 10 * list(draws.items()):
        env.step(action_index(name))
        draw()
        state = source.getstate()
        assert env.random_peek() == source.getrandbits(32), name
        source.setstate(state)


def test_random_peek_draws_nothing():
    envs = stockade.make_vec(2, chance="cyborg")
    envs.reset(seed=0)
    before = envs.snapshot()
    assert envs.random_peek().tolist() == envs.random_peek().tolist()
    assert envs.random_peek().dtype == np.uint32
    assert envs.snapshot() == before
