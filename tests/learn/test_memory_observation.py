"""`obs="memory"`: what blue remembers is true, comes from its own knowledge only, and travels with snapshots."""

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest

import stockade
from stockade.cage2.actions import ACTION_HOST, ACTION_KIND, ACTION_MASK, FIRST_DECOY, N_ACTIONS, RESTORE, action_index
from stockade.cage2.memory import FEATURE_NAMES, MEMORY_SIZE, MemoryObservation
from stockade.cage2.scenario import DECOYS, HOSTS


def feature(name: str) -> int:
    return FEATURE_NAMES.index(name)


def lively(chance: np.random.Generator, n: int) -> np.ndarray:
    """Actions of which many change something."""
    useful = np.flatnonzero(ACTION_MASK)
    return chance.choice(useful, n)


def test_there_are_160_bits_with_names() -> None:
    assert MEMORY_SIZE == len(FEATURE_NAMES) == len(set(FEATURE_NAMES)) == 160
    env = stockade.make(obs="memory")
    assert env.observation_space == gymnasium.spaces.Box(0, 1, (160,), np.uint8)
    with pytest.raises(ValueError, match="obs='all' is unknown"):
        stockade.make(obs="all")


@pytest.mark.parametrize("chance", ["fast", "cyborg"])
def test_the_first_52_are_the_bits_and_nothing_else_changes(chance: str) -> None:
    bits, memory = (stockade.make_vec(50, red="mix", horizon=30, chance=chance, obs=obs) for obs in ("bits", "memory"))
    generator = np.random.default_rng(0)
    seen, known = bits.reset(seed=3)[0], memory.reset(seed=3)[0]
    for _ in range(70):
        np.testing.assert_array_equal(known[:, :52], seen)
        actions = lively(generator, 50)
        (seen, *results, _), (known, *others, _) = bits.step(actions), memory.step(actions)
        for one, other in zip(results, others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_remembered_decoys_are_those_that_stand() -> None:
    envs = stockade.make_vec(200, red="meander", horizon=40, obs="memory")
    obs, _ = envs.reset(seed=0)
    generator = np.random.default_rng(0)
    most = 0
    for _ in range(90):
        true = envs.true_state().decoys
        for d, decoy in enumerate(DECOYS):
            for h, host in enumerate(HOSTS):
                name = f"{decoy.name} stands on {host}"
                stands = true[:, h] >> d & 1
                if name in FEATURE_NAMES:
                    np.testing.assert_array_equal(obs[:, feature(name)], stands, err_msg=name)
                else:
                    assert not stands.any(), name
        most = max(most, int(np.unpackbits(true, axis=1).sum(axis=1).max()))
        obs, *_ = envs.step(lively(generator, 200))
    assert most > 8


def test_history_is_what_was_seen_and_done() -> None:
    envs = stockade.make_vec(64, red="bline", horizon=25, obs="memory")
    obs, _ = envs.reset(seed=0)
    generator = np.random.default_rng(1)
    scanned, exploited, restored = (np.zeros((64, 13), bool) for _ in range(3))
    over = np.zeros(64, bool)
    time = np.zeros(64, int)
    for _ in range(60):
        actions = lively(generator, 64)
        obs, _, _, truncated, _ = envs.step(actions)
        time = np.where(over, 0, time + 1)
        activity = obs[:, :52].reshape(64, 13, 4)
        scanned |= (activity[:, :, 0] == 1) & (activity[:, :, 1] == 0)
        exploited |= activity[:, :, 1] == 1
        rows = np.flatnonzero(ACTION_KIND[actions] == RESTORE)
        restored[rows, ACTION_HOST[actions][rows]] = True
        for array in (scanned, exploited, restored):
            array[over] = False
        for what, array in (("scanned", scanned), ("exploited", exploited), ("restored", restored)):
            found = obs[:, [feature(f"ever {what} {host}") for host in HOSTS]]
            np.testing.assert_array_equal(found, array, err_msg=what)
        success = envs.true_state().blue_success
        np.testing.assert_array_equal(obs[:, feature("last action failed")], (success == 0) & ~over)
        for i, action in enumerate(actions):
            on = [host for h, host in enumerate(HOSTS) if obs[i, feature(f"last action on {host}")]]
            assert on == ([] if over[i] or action < 2 else [HOSTS[ACTION_HOST[action]]])
        clock = {int(name.split()[0]): k for k, name in enumerate(FEATURE_NAMES) if "steps left" in name}
        for steps, k in clock.items():
            np.testing.assert_array_equal(obs[:, k], 25 - time >= steps)
        over = truncated
    assert scanned.any()
    assert exploited.any()


def test_last_action_is_named() -> None:
    env = stockade.make(obs="memory", red="sleep")
    env.reset(seed=0)
    for action, kind in (("Analyse User1", "Analyse"), ("Remove User1", "Remove"), ("DecoyTomcat User1", "decoy"),
                         ("Restore User1", "Restore"), ("Sleep", None)):  # fmt: skip
        obs, *_ = env.step(action_index(action))
        kinds = [name for k, name in enumerate(FEATURE_NAMES) if obs[k] and name.startswith("last action")]
        assert kinds == ([] if kind is None else [f"last action {kind}", "last action on User1"])
    obs, *_ = env.step(action_index("DecoyFemitter User3"))  # Windows only
    assert obs[feature("last action failed")] == 1


@pytest.mark.parametrize("red", ["bline", "meander"])
def test_the_wrapper_of_another_simulator_gives_the_same_bits(red: str) -> None:
    """It gets nothing but what a real CybORG tells: the 52 bits, and whether the action failed."""
    ours = stockade.make(red, 30, obs="memory")
    other = MemoryObservation(stockade.make(red, 30, obs="bits"), 30)
    generator = np.random.default_rng(0)
    for episode in range(5):
        one, two = ours.reset(seed=episode)[0], other.reset(seed=episode)[0]
        for action in lively(generator, 30).tolist():
            np.testing.assert_array_equal(one, two)
            one, two = ours.step(action)[0], other.step(action)[0]
        np.testing.assert_array_equal(one, two)
    with pytest.raises(ValueError, match="shape"):
        MemoryObservation(ours, 30)


def test_single_vector_and_serial_agree_whatever_the_threads() -> None:
    generator = np.random.default_rng(0)
    actions = generator.integers(0, N_ACTIONS, (50, 6))

    def play(**options: Any) -> np.ndarray:
        envs = stockade.make_vec(6, red="mix", horizon=20, obs="memory", **options)
        seen = [envs.reset(seed=1)[0], *(envs.step(a)[0] for a in actions)]
        envs.close()
        return np.stack(seen)

    native = play()
    assert native.shape == (51, 6, 160)
    np.testing.assert_array_equal(native, play(threads=3))
    np.testing.assert_array_equal(native, play(backend="serial"))
    np.testing.assert_array_equal(native, play(obs_dtype=np.float32))


@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_a_new_episode_knows_nothing_of_the_last(mode: str) -> None:
    envs = stockade.make_vec(5, horizon=4, obs="memory", autoreset_mode=mode)
    fresh, _ = envs.reset(seed=0)
    for _ in range(4):
        obs, _, _, truncated, info = envs.step(np.full(5, action_index("DecoyTomcat User1")))
    if mode == "same_step":
        assert info["final_obs"][0][feature("DecoyTomcat stands on User1")] == 1
    else:
        obs, _ = envs.reset(options={"reset_mask": truncated})
    np.testing.assert_array_equal(obs, fresh)


def test_snapshots_carry_it() -> None:
    generator = np.random.default_rng(0)
    envs = stockade.make_vec(4, horizon=30, obs="memory")
    envs.reset(seed=0)
    for _ in range(10):
        obs, *_ = envs.step(lively(generator, 4))
    snapshot = pickle.loads(pickle.dumps(envs.snapshot()))
    assert snapshot == envs.snapshot()
    actions = [lively(generator, 4) for _ in range(10)]
    first = [envs.step(a)[0] for a in actions]
    assert snapshot != envs.snapshot()
    np.testing.assert_array_equal(envs.restore(snapshot), obs)
    again = [envs.step(a)[0] for a in actions]
    np.testing.assert_array_equal(first, again)
    one = stockade.make(horizon=30, obs="memory")
    with pytest.raises(ValueError, match="other worlds"):
        stockade.make(horizon=30, obs="bits").restore(envs.snapshot(0))
    np.testing.assert_array_equal(one.restore(envs.snapshot(2)), again[-1][2])


def test_masked_decoys_are_those_remembered() -> None:
    kinds = ACTION_KIND[np.flatnonzero(ACTION_MASK)]
    assert sum("stands on" in name for name in FEATURE_NAMES) == ((kinds >= FIRST_DECOY) & (kinds < RESTORE)).sum()
