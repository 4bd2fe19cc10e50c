"""Stockade: train and study agents that defend a computer network, on CAGE Challenge 2.

>>> import stockade
>>> envs = stockade.make_vec(200, red="bline")
>>> obs, info = envs.reset(seed=0)
>>> obs.shape, obs.dtype
((200, 52), dtype('uint8'))
"""

import stockade.startup  # first: before anything slow
from stockade.api import evaluate, load, parallel_env, replay, search, train
from stockade.cage2.config import RewardWeights
from stockade.make import make, make_vec, register

__version__ = "0.2.0"
__all__ = [
    "RewardWeights", "__version__", "evaluate", "load", "make", "make_vec", "parallel_env", "replay", "search", "train",
]  # fmt: skip

register()
