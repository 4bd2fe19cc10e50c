"""The built-in world in JAX: the same numbers as `native`, as a pure function, and a PPO that learns on it."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stockade

jax = pytest.importorskip("jax", reason="the extra `jax` is not installed: make test-cuda")

from stockade.integrations.jax import JaxWorlds  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def played(worlds, state, actions):
    """A whole run in one compiled loop: last state, observations, rewards, flags."""

    def body(state, row):
        state, *results = worlds.step(state, row)
        return state, results

    return jax.jit(lambda state, actions: jax.lax.scan(body, state, actions))(state, jax.numpy.asarray(actions))


def equal(one, other):
    """All arrays of two trees, to the bit."""
    return bool(jax.tree.all(jax.tree.map(np.array_equal, one, other)))


@pytest.mark.parametrize(
    "world",
    [
        {"red": "mix", "obs": "memory", "rules": "leaderboard"},
        {"red": "meander", "chance": "cyborg", "green": "active"},
        {"red": "bline-detour|meander+idle:0.3", "reward": {"hosts": 2.0, "service": 1.0, "restore": 0.5}},
    ],
)
def test_the_same_numbers_as_native(world):
    n, steps = 5, 25
    actions = np.random.default_rng(0).integers(145, size=(steps, n))
    worlds = JaxWorlds(n, horizon=10, **world)
    state, first = worlds.reset(11)
    state, (obs, rewards, done) = played(worlds, state, actions)
    with stockade.make_vec(n, horizon=10, autoreset_mode="same_step", **world) as envs:
        assert np.array_equal(envs.reset(seed=11)[0], first)
        for k in range(steps):
            expected = envs.step(actions[k])
            assert np.array_equal(expected[0], obs[k])
            assert np.array_equal(expected[1].astype(np.float32), rewards[k])
            assert np.array_equal(expected[3], done[k])
        assert [part.tobytes() for part in envs.snapshot().parts if part is not None] == [
            np.asarray(part).tobytes() for part in state
        ]
    assert int(done.sum()) == 2 * n


def test_a_step_changes_nothing_but_its_result():
    worlds = JaxWorlds(3, horizon=10, red="mix")
    state, _ = worlds.reset(jax.random.key(0))
    kept = [np.array(part) for part in state]
    actions = np.random.default_rng(1).integers(145, size=(20, 3))
    first, second = played(worlds, state, actions), played(worlds, state, actions)
    assert equal(first, second)
    assert equal(tuple(kept), state)


def test_several_states_at_once():
    """`vmap` over states: each row is as if it were alone."""
    worlds = JaxWorlds(2, red="meander")
    states = [worlds.reset(seed)[0] for seed in (1, 7)]
    together = jax.tree.map(lambda *parts: jax.numpy.stack(parts), *states)
    actions = jax.numpy.array([[3, 4], [5, 6]])
    stepped = jax.vmap(worlds.step)(together, actions)
    for k, state in enumerate(states):
        alone = worlds.step(state, actions[k])
        assert equal([part[k] for part in jax.tree.leaves(stepped)], jax.tree.leaves(alone))


def test_keys_give_different_episodes():
    worlds = JaxWorlds(64, red="meander", horizon=20)
    streams = [np.asarray(worlds.reset(jax.random.key(k))[0][0])[:, :8] for k in (0, 1, 0)]
    assert np.array_equal(streams[0], streams[2])
    assert len({row.tobytes() for row in np.concatenate(streams[:2])}) == 128


@pytest.mark.parametrize("action", [-1, 145, 0.5])
def test_actions_that_do_not_exist_are_refused(action):
    worlds = JaxWorlds(2)
    state, _ = worlds.reset(0)
    with pytest.raises(Exception, match="whole numbers from 0 to 144"):
        jax.block_until_ready(worlds.step(state, jax.numpy.array([0, action])))


def test_the_example_learns():
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "ppo_jax.py"), "--total-steps", "150000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^(doing nothing|PPO) (-[\d.]+)$", done.stdout, re.MULTILINE)
    returns = {name: float(value) for name, value in found}
    assert returns["doing nothing"] < -180
    assert returns["PPO"] > -60  # -8 after 200,000 steps when this was written
