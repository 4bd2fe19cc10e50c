"""Defenders that learn nothing, to compare with: sleep, random, react-remove, react-restore, greedy."""

from stockade.baselines.policies import BASELINES, BluePolicy, make_baseline

__all__ = ["BASELINES", "BluePolicy", "make_baseline"]
