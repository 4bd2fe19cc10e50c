"""An agent for the evaluation script of CAGE Challenge 2, which shows an agent 52 bits and nothing else.

get_action(52 bits) -> belief from these and its own last action -> policy -> 0..144; end_episode() -> forget

The script's order of calls: reset, then for each step get_action and step, then end_episode, then reset. So the first
observation after `end_episode` is that of the next reset, and every later one follows the action chosen before it.
CybORG is not imported here: the script does that.
"""

from __future__ import annotations

from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

import stockade
from stockade.cage2.actions import N_ACTIONS
from stockade.cage2.belief import BeliefFilter
from stockade.cage2.state import OBS_SIZE
from stockade.cage2.views import read_view
from stockade.errors import InputError

_CHALLENGE = "the challenge shows an agent 52 bits and nothing else"


class ChallengeAgent:
    """A policy in the challenge's form: `agent = ChallengeAgent()` in the place of `BlueLoadAgent()`.

    It plays one episode after the other, and knows what it saw and did in the present one. It is not told the horizon,
    the attacker, or whether its actions succeed; the rules only if its policy knows them.

    Args:
        policy: what `stockade.load` takes: a run's name or folder, the file of a policy, a baseline; or a policy that
            it returned. It must be one of `obs="bits"` or `obs="belief..."`.
        rules: rule set that the script plays by, for policies whose belief knows it, as that of `challenger-told`.

    Raises:
        InputError: the policy needs more than 52 bits and its own actions, as the shipped `champion` does.

    Example:
        >>> import numpy as np
        >>> from stockade.integrations.cage2_submission import ChallengeAgent
        >>> agent = ChallengeAgent("sleep")
        >>> agent.get_action(np.zeros(52, int), 145)
        0
        >>> agent.end_episode()
    """

    # No attribute `obs`: whoever plays it, also `stockade.evaluate`, gives it the 52 bits.

    def __init__(self, policy: Any = "challenger", rules: str = "current") -> None:
        self.policy = stockade.load(policy, rules=rules) if isinstance(policy, str | Path) else policy
        _check_policy(self.policy)
        self.name = self.policy.name
        obs = self.policy.obs
        self._filter = BeliefFilter(1, obs) if read_view(obs).kind == "belief" else None
        self._last: int | None = None  # its last action of this episode; None before the first

    def get_action(self, observation: Any, action_space: Any) -> int:
        """The next action, 0 to 144. `observation`: (52,) zeros and ones of any type; `action_space`: 145."""
        _check_space(action_space)
        inputs = self._take_in(_read_bits(observation))
        self._last = int(self.policy.act(inputs)[0])
        return self._last

    def end_episode(self) -> None:
        """Forget the episode: the next observation is that of a reset."""
        self._last = None

    def _take_in(self, bits: np.ndarray) -> np.ndarray:
        """What the policy sees, (1, size), after the bits (1, 52)."""
        if self._last is None:
            # The reference shows no bit at a reset. Anything else is a step: a belief that starts there would be wrong
            # for a whole episode, without a sign of it.
            if bits.any():
                problem = "the first observation of an episode has no bit set, but this one has"
                raise InputError(f"{problem}: call end_episode() when an episode is over, then reset the simulator")
            if self._filter is not None:
                self._filter.reset()
        elif self._filter is not None:
            self._filter.update([self._last], bits)
        return bits if self._filter is None else self._filter.observation


def _check_policy(policy: Any) -> None:
    """Refuse a policy that needs to be told more than the challenge tells."""
    name, card = policy.name, policy.card
    if policy.side != "blue":
        raise InputError(f"{name} attacks; the challenge wants a policy that defends")
    told = {"memory": "how many steps are left and whether its actions succeed", "truth": "what red does"}
    if more := told.get(read_view(policy.obs).kind):
        raise InputError(f"{name} sees obs={policy.obs!r}, which tells it {more}; {_CHALLENGE}: train a policy with "
                         "--obs belief or --obs bits")  # fmt: skip
    if card.get("context_rules", card.get("told_rules")):  # `told`: as version 0.1.0 wrote it
        raise InputError(f"{name} is told by which rules it plays; {_CHALLENGE}: train a policy with --no-tell-rules")
    if hasattr(policy, "allowed"):
        raise InputError(f"{name} is kept to a repair order by its simulator; the challenge's carries out all actions")


def _check_space(action_space: Any) -> None:
    n = getattr(action_space, "n", action_space)  # the script gives a number, other wrappers a Discrete
    if not (isinstance(n, Integral) and n == N_ACTIONS):
        raise InputError(f"the action space should be {N_ACTIONS} numbered actions, as ChallengeWrapper(env, 'Blue') "
                         f"has them, not {action_space!r:.80}")  # fmt: skip


def _read_bits(observation: Any) -> np.ndarray:
    """(1, 52) uint8."""
    bits = np.asarray(observation)
    if bits.shape != (OBS_SIZE,):
        raise InputError(f"an observation has shape ({OBS_SIZE},), as ChallengeWrapper(env, 'Blue') gives it, not "
                         f"{bits.shape}")  # fmt: skip
    good = (bits == 0) | (bits == 1)
    if not good.all():
        at = int(np.argmin(good))
        raise InputError(f"an observation consists of zeros and ones, but its value {at} is {bits[at]!r}")
    return bits.astype(np.uint8)[None]
