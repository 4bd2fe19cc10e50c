"""The world: CAGE Challenge 2, seed for seed the reference's, as Numba kernels behind Gymnasium environments.

scenario, actions -> state -> chance (mt19937, ledger) -> blue, green, red, observe -> kernel -> batch -> env
"""

from stockade.cage2.actions import ACTION_MASK, ACTION_NAMES, N_ACTIONS, action_index
from stockade.cage2.batch import Snapshot
from stockade.cage2.config import RewardWeights, WorldConfig
from stockade.cage2.env import CAGE2Env
from stockade.cage2.scenario import HOSTS
from stockade.cage2.truth import TrueState

__all__ = [
    "ACTION_MASK",
    "ACTION_NAMES",
    "HOSTS",
    "N_ACTIONS",
    "CAGE2Env",
    "RewardWeights",
    "Snapshot",
    "TrueState",
    "WorldConfig",
    "action_index",
]
