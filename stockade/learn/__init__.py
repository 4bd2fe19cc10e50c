"""Learning to defend: policy, PPO, runs with checkpoints, evaluation by the challenge's protocol.

config -> train (runs, signals, checkpoints) -> ppo (rollout, advantages, update) -> policy, kernels

Torch is imported by policy.py and ppo.py only, which are imported when they are needed.
"""

from stockade.learn.agents import Agent, load

__all__ = ["Agent", "load"]
