"""A million worlds in one vector environment: what they weigh, and that each is the world it would be alone."""

import tracemalloc

import numpy as np

import stockade

from .play import play, random_actions

MILLION = 1_000_000


def test_an_environment_of_many_worlds_takes_less_than_a_kibibyte_each():
    """All of it: buffers, views and what a step gives."""
    n = 20_000
    stockade.make_vec(2).reset(seed=0)
    tracemalloc.start()
    envs = stockade.make_vec(n)
    envs.reset(seed=0)
    envs.step(np.zeros(n, np.int64))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most / n < 1024


def test_a_million_worlds_are_the_worlds_of_a_small_batch():
    """The first thousand and the last, over the end of an episode, by however many threads."""
    horizon, few, steps = 4, 1000, 6
    some = random_actions(0, steps, few)
    with stockade.make_vec(MILLION, red="mix", horizon=horizon, copy=False) as many:
        many.reset(seed=50)
        many_obs, many_rewards = [], []
        for actions in some:
            obs, rewards, *_ = many.step(np.resize(actions, MILLION))
            many_obs.append(np.concatenate([obs[:few], obs[-few:]]))
            many_rewards.append(np.concatenate([rewards[:few], rewards[-few:]]))
        assert (many.true_state().time == 1).all()
        last = many.snapshot(MILLION - 1)
    for place, first_seed in ((slice(0, few), 50), (slice(few, None), 50 + MILLION - few)):
        envs = stockade.make_vec(few, red="mix", horizon=horizon)
        envs.reset(seed=first_seed)
        record = play(envs, some)
        assert np.array_equal(np.array(many_obs)[:, place], record.obs)
        assert np.array_equal(np.array(many_rewards)[:, place], record.rewards)
    assert envs.snapshot(few - 1) == last
