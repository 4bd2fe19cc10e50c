"""`obs="memory"` beside the true state and the other backends; tests/cage2/test_history.py checks it bit by bit."""

from typing import Any

import numpy as np
import pytest

import stockade
from stockade.cage2.actions import ACTION_KIND, ACTION_MASK, FIRST_DECOY, N_ACTIONS, RESTORE
from stockade.cage2.history import FEATURE_NAMES
from stockade.cage2.scenario import DECOYS, HOSTS


def feature(name: str) -> int:
    return FEATURE_NAMES.index(name)


def lively(chance: np.random.Generator, n: int) -> np.ndarray:
    """Actions of which many change something."""
    useful = np.flatnonzero(ACTION_MASK)
    return chance.choice(useful, n)


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


def test_masked_decoys_are_those_remembered() -> None:
    kinds = ACTION_KIND[np.flatnonzero(ACTION_MASK)]
    assert sum("stands on" in name for name in FEATURE_NAMES) == ((kinds >= FIRST_DECOY) & (kinds < RESTORE)).sum()
