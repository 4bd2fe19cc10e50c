"""Checkpoints hold worlds as bytes, so that their layout, and what is in them, must stay what version 0.1.0 wrote."""

import hashlib

import pytest

import stockade

from .play import play, random_actions

#: Beginnings of SHA-256, computed with version 0.1.0.
WRITTEN_BY_0_1_0 = {"fast": "654571c1dbe7b43f", "cyborg": "a83b63d7fcf62e0e"}


@pytest.mark.parametrize("reward", [stockade.RewardWeights(), stockade.RewardWeights(2.0, 0.0, -1.0)], ids=str)
@pytest.mark.parametrize("chance", WRITTEN_BY_0_1_0)
def test_worlds_are_the_bytes_of_the_first_version(chance, reward):
    """With any weights of the reward: a world does not depend on them."""
    options = {"red": "mix", "green": "active", "horizon": 30, "obs": "memory"}
    with stockade.make_vec(8, chance=chance, reward=reward, **options) as envs:
        envs.reset(seed=1)
        play(envs, random_actions(2, 70, 8))
        parts = [part.tobytes() for part in envs.snapshot().parts if part is not None]
    assert hashlib.sha256(b"".join(parts)).hexdigest()[:16] == WRITTEN_BY_0_1_0[chance]
