"""What each move of an episode was worth: rollouts from snapshots, with common random numbers.

episode -> per step: candidates (the move played, the likeliest others) x rollouts in one vector environment, all from
the same states with the same chance, played on greedily -> means, intervals of differences -> labels

`hindsight` starts from the true state, which blue did not know. `fair` starts from states that are consistent with
what blue had seen until then: a particle filter whose particles are worlds.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from stockade.cage2.actions import ACTION_NAMES
from stockade.cage2.batch import Snapshot
from stockade.cage2.config import WorldConfig
from stockade.cage2.history import MEMORY_SIZE
from stockade.cores import available_cores
from stockade.learn.agents import Agent, Player
from stockade.replay.episode import Episode, native_worlds, seen_by
from stockade.text import fixed

View = Literal["hindsight", "fair"]
#: Points that a move must have lost at least, beyond the interval, to be called so.
LABELS = {"blunder": 3.0, "mistake": 1.0, "inaccuracy": 0.3}
CONFIDENCE = 0.95
KNOWS: dict[View, str] = {
    "hindsight": "Rollouts start from the true state of the network, which blue could not see: they judge with "
    "hindsight. What chance does afterwards is not known to them.",
    "fair": "Rollouts start from states that are consistent with all that blue had seen, its own actions and the "
    "attacker's name; they know no more than blue could.",
}


@dataclass(frozen=True)
class Move:
    """A candidate of a step: the mean return of the rest of the episode, and by how much it beats the move played."""

    action: int
    value: float
    half_width: float  #: of the value's 95% interval
    gain: float  #: mean difference to the move played, on common random numbers
    gain_half_width: float  #: of its interval; the intervals of a step hold together with 95%

    @property
    def sure_gain(self) -> float:
        """What it gains at least, by the interval."""
        return self.gain - self.gain_half_width


@dataclass(frozen=True)
class Judgement:
    """A step: the move played comes first, then the other candidates, best first."""

    moves: tuple[Move, ...]
    exact: bool = True  #: the states of the rollouts agree with all that blue had seen

    @property
    def played(self) -> Move:
        return self.moves[0]

    @property
    def best(self) -> Move:
        """The candidate with the highest mean; the move played if none is higher."""
        return max(self.moves, key=lambda move: (round(move.gain, 9), move is self.played))

    @property
    def label(self) -> str:
        """`best`, `good`, or by the points lost beyond the interval `inaccuracy`, `mistake`, `blunder`."""
        if self.best is self.played:
            return "best"
        sure = max(move.sure_gain for move in self.moves)
        return next((label for label, points in LABELS.items() if sure >= points), "good")


@dataclass(frozen=True, eq=False)
class Analysis:
    """All steps of an episode, judged by rollouts that know as much as `view` says."""

    view: View
    steps: tuple[Judgement, ...]
    rollouts: int
    continued_by: str  #: name of the policy that played on

    def worst(self, most: int = 12) -> list[int]:
        """Steps (from 0) with a label that names a loss, the greatest loss first."""
        marked = [t for t, step in enumerate(self.steps) if step.label in LABELS]
        return sorted(marked, key=lambda t: -self.steps[t].best.gain)[:most]

    def in_words(self, t: int) -> str:
        """`step 37: Remove Enterprise1, 3.1 points worse than Restore Enterprise1`; steps count from 1."""
        step = self.steps[t]
        played, best = ACTION_NAMES[step.played.action], ACTION_NAMES[step.best.action]
        return f"step {t + 1}: {played}, {fixed(step.best.gain, 1)} points worse than {best}"


# ---------------------------------------------------------------------------------------------------------- candidates
def candidates(episode: Episode, advisor: Player, count: int) -> np.ndarray:
    """(T, 1 + count) actions: the one carried out, then the likeliest others.

    The policy says what is likely; where it has no probabilities, the advisor does.
    """
    likely = episode.probabilities
    if likely is None:
        seen = seen_by(advisor, episode.seen[:-1], episode.config, np.arange(len(episode)))
        likely = advisor.policy.probabilities(seen)
    ranks = np.argsort(-likely, axis=1, kind="stable")
    return np.array([[a, *[o for o in row if o != a][:count]] for a, row in zip(episode.actions, ranks, strict=True)])


def judge(actions: Sequence[int], returns: np.ndarray) -> tuple[Move, ...]:
    """Returns (moves, rollouts) on common random numbers, the move played first -> moves as `Judgement` has them."""
    n, gains = returns.shape[1], returns - returns[0]
    spread = returns.std(axis=1, ddof=1)
    half_widths = _quantile(1) * spread / math.sqrt(n)
    # All differences of a step at once (Bonferroni), since the largest is what is looked at. What makes a difference
    # may be too rare to be seen: in less than 3/n of all rollouts (95%), then by about a standard deviation.
    of_gains = _quantile(max(1, len(returns) - 1)) * gains.std(axis=1, ddof=1) / math.sqrt(n) + 3 / n * spread.max()
    of_gains[0] = 0.0
    figures = np.stack([returns.mean(axis=1), half_widths, gains.mean(axis=1), of_gains], axis=1).tolist()
    moves = [Move(int(action), *row) for action, row in zip(actions, figures, strict=True)]
    return moves[0], *sorted(moves[1:], key=lambda move: -move.gain)


def _quantile(comparisons: int) -> float:
    return NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / 2 / comparisons)


# ------------------------------------------------------------------------------------------------------------ rollouts
class Rollouts(AbstractContextManager["Rollouts"]):
    """Many worlds to play on from a moment: `moves` x `rollouts`, alternatives side by side on the same chance."""

    def __init__(self, config: WorldConfig, player: Player, moves: int, rollouts: int) -> None:
        """`player` continues; a trained one takes its likeliest action. Everything here is for one thread."""
        self.config, self.player = replace(config, chance="fast"), copy.deepcopy(player)
        if isinstance(self.player.policy, Agent):
            self.player.policy.greedy = True
        self._shape = moves, rollouts
        self._starts, self._all = (native_worlds(self.config, n) for n in (rollouts, moves * rollouts))

    def returns(self, start: Snapshot, actions: np.ndarray, seed: int) -> np.ndarray:
        """(moves, rollouts) of the rest of the episode after each of (moves,) actions.

        `start` is one world or one for each rollout. Rollout r of all moves has the same world and the same chance.
        """
        moves, rollouts = self._shape
        self._starts.restore(replace(start, config=self.config, ledgers=None), seed=seed)
        seen = self._all.restore(_rows(self._starts.snapshot(), np.tile(np.arange(rollouts), moves)))
        generator, times = np.random.default_rng([seed, 2]), self._all.true_state().time
        total = np.zeros(moves * rollouts)
        shown = seen_by(self.player, seen, self.config, times)
        chosen = self.player.allowed(np.repeat(actions, rollouts), shown, self._all)
        for left in range(self.config.horizon - int(times[0]), 0, -1):
            seen, reward, *_ = self._all.step(chosen)
            total += reward
            if left > 1:
                shown = seen_by(self.player, seen, self.config, times)
                chosen = self.player.allowed(self.player.act(shown, generator), shown, self._all)
        return total.reshape(moves, rollouts)

    def __exit__(self, *error: object) -> None:
        self._starts.close()
        self._all.close()


# -------------------------------------------------------------------------------------------- what blue could know
@dataclass(frozen=True)
class Start:
    """Where the rollouts of a step begin."""

    states: Snapshot  #: of one world, or of one for each rollout
    exact: bool = True  #: the states agree with all that blue had seen


def consistent_states(episode: Episode, particles: int, rollouts: int, seed: int) -> Iterator[Start]:
    """T + 1 samples of states that are consistent with what blue has seen until then: a particle filter.

    Blue's actions are tried on many worlds. Those that show something else than blue saw are replaced by copies of
    those that agree, with new chance; if none agrees, of those that come nearest.
    """
    generator, size = np.random.default_rng([seed, 3]), min(episode.size, MEMORY_SIZE)
    with native_worlds(replace(episode.config, chance="fast"), particles) as worlds:
        seen, _ = worlds.reset(seed=int(generator.integers(2**62)))
        for t in range(len(episode) + 1):
            wrong = (seen[:, :size] != episode.seen[t, :size]).sum(axis=1)
            agree = np.flatnonzero(wrong == wrong.min())
            sources = np.where(wrong == wrong.min(), np.arange(particles), generator.choice(agree, particles))
            worlds.restore(_rows(worlds.snapshot(), sources), seed=int(generator.integers(2**62)))
            chosen = generator.choice(particles, rollouts, replace=particles < rollouts)
            yield Start(_rows(worlds.snapshot(), chosen), not wrong.min())
            if t < len(episode):
                seen, *_ = worlds.step(np.full(particles, episode.actions[t]))


def _rows(snapshot: Snapshot, rows: np.ndarray) -> Snapshot:
    """Some worlds of a snapshot, in any order and number."""
    parts: list[Any] = [None if part is None else part[rows] for part in snapshot.parts]
    return Snapshot(snapshot.config, *parts)


# ---------------------------------------------------------------------------------------------------------- all of it
def analyse(
    episode: Episode, player: Player, moves: np.ndarray, rollouts: int, seed: int,
    particles: int = 0, threads: int | None = None, progress: Any = None,
) -> Analysis:  # fmt: skip
    """Judge every step: with hindsight, or with `particles` by what blue could know.

    Args:
        player: plays on after the first move; it must be able to continue from any moment.
        moves: (T, k) actions to compare, the one played first; see `candidates`.
        rollouts: of each move.
        progress: object with `update(n)`, called after every step.
    """
    view: View = "fair" if particles else "hindsight"
    starts = [Start(snapshot) for snapshot in episode.snapshots]
    if particles:
        starts = list(consistent_states(episode, particles, rollouts, seed))
    threads = min(threads or available_cores(), len(episode))

    def work(k: int) -> list[tuple[int, Judgement]]:
        judged = []
        with Rollouts(episode.config, player, moves.shape[1], rollouts) as worlds:
            for t in range(k, len(episode), threads):
                chance = int(np.random.default_rng([seed, t, 5]).integers(2**62))  # the same on any number of threads
                returns = worlds.returns(starts[t].states, moves[t], chance)
                judged.append((t, Judgement(judge(moves[t].tolist(), returns), starts[t].exact)))
                if progress is not None:
                    progress.update(1)
        return judged

    with ThreadPoolExecutor(threads) as pool:
        judged = dict(entry for part in pool.map(work, range(threads)) for entry in part)
    return Analysis(view, tuple(judged[t] for t in range(len(episode))), rollouts, player.name)
