"""Defenders that learn nothing, to compare with: sleep, random, react-remove, react-restore, greedy."""

from stockade.baselines.defender import BluePolicy, Defender
from stockade.baselines.policies import ALIASES, BASELINES, make_baseline

__all__ = ["ALIASES", "BASELINES", "BluePolicy", "Defender", "make_baseline"]
