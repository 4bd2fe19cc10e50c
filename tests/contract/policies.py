"""Policies of both sides, in a module that worker processes can import."""

import numpy as np


def defend(observations):
    """A policy of blue: restore the first host with activity, if only green's, so that red's reward is random."""
    active = observations.reshape(-1, 13, 4)[:, :, 0]
    return np.where(active.any(axis=1), 132 + active.argmax(axis=1), 1)


def attack(observations):
    """A policy of red: scan its own host."""
    return np.full(len(observations), 12)
