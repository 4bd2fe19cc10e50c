"""`stockade bench time-to-score`: seconds of training until an agent beats the challenge's winner.

a case and a seed -> a process of its own: warm up -> train, by the preset `sprint` or another library's PPO in the same
worlds -> every so many episodes, greedy validation of the nine cells -> the first total above the score ends it -> the
same agent on seeds that nothing was chosen by

The clock starts when everything is imported and compiled and the first weights are made. It counts training and
validation apart. A training that has not passed when both together reach the limit has failed, and is reported so.
"""

import contextlib
import math
import os
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from stockade.bench.backends import why_not
from stockade.bench.peers import SB3, SBX, OwnProcess
from stockade.bench.result import Result, find
from stockade.bench.runner import BenchCommand, Case, Sample, Words, in_turns, option
from stockade.errors import require_packages
from stockade.learn.agents import Agent
from stockade.learn.config import SPRINT, TrainConfig
from stockade.learn.evaluate import EvaluateConfig, EvaluateResult, evaluate
from stockade.learn.mixture import cells_of

#: First seeds; cell k has those from SEED + k * SEEDS_PER_CELL on. Validation's lie beyond those of `stockade train`.
#: Nothing is ever chosen by those of the confirmation, the settings of `sprint` included.
VALIDATION_SEED, CONFIRMATION_SEED = 2_500_000_000, 1_200_000_000
WINNER = -53.60  # CardiffUni's total, replayed under the rules of the leader board
CORES = 2  # For each training, whoever trains
OURS, SAME = "ours", ", our settings"
#: Other libraries train with the settings of `bench train`, and with those of `sprint`.
CASES = (OURS, SB3, SB3 + SAME, SBX, SBX + SAME)


class Outcome(NamedTuple):
    """What one training gave."""

    passed: bool
    training: float  # seconds
    validation: float  # seconds
    episodes: int  # of training
    total: float  # the validation that passed, else the best one
    confirmation: float  # total of the agent as it ended, on other seeds
    interval: float  # half width of the 95% interval of the confirmation


@dataclass(frozen=True)
class TimeToScoreBench(BenchCommand, name="time-to-score"):
    """Seconds of training until greedy play of the challenge's nine cells beats its winner; not part of `all`."""

    rounds: Annotated[int, tyro.conf.arg(aliases=["--seeds"])] = option(3, quick=1)
    """Trainings of each case, with the seeds 0, 1, ..."""
    score: float = option(WINNER, least=-math.inf)  # Total to pass; the default is the winner's.
    rules: Literal["current", "leaderboard"] = "leaderboard"  # Rule set of training, validation and confirmation.
    cases: Words = option(CASES, choices=CASES)  # Who trains; others with the settings of `bench train`, or with ours.
    limit: float = option(600.0, quick=3.0)  # Seconds after which a training has failed.
    total_episodes: int = option(SPRINT.total_episodes, quick=1000)  # Episodes until rates reach their final values.
    n_envs: int = option(SPRINT.n_envs, quick=32)  # Environments.
    validate_from: int = option(SPRINT.total_episodes // 5, quick=500)  # Episodes of training before any validation.
    validate_every: int = option(SPRINT.checkpoint_episodes, quick=500)  # Episodes from one validation to the next.
    validation_episodes: int = option(SPRINT.validation_episodes, quick=50, least=2)  # Of each cell.
    confirmation_episodes: int = option(1000, quick=50, least=2)  # Of each cell.

    def check(self) -> None:
        super().check()
        require_packages("torch", "safetensors")
        cells_of(self.config(0))  # checks the number of environments

    def config(self, seed: int) -> TrainConfig:
        """The settings of `sprint`, with what the options change."""
        return replace(SPRINT, rules=self.rules, n_envs=self.n_envs, total_episodes=self.total_episodes, seed=seed)

    def measure(self, result: Result) -> None:
        outcomes: dict[str, list[Outcome]] = {case: [] for case in self.cases}
        cases = [Case({"case": case}, partial(self._round, case, found), why_not(case), case != OURS)
                 for case, found in outcomes.items()]  # fmt: skip
        in_turns([cases], self.rounds, result)
        for case, found in outcomes.items():
            if failed := [outcome for outcome in found if not outcome.passed]:
                best = max(outcome.total for outcome in failed)
                why = f"{self.score:g} not reached within {self.limit:g} s, best total {best:.2f}"
                result.skip(f"{case}, {len(failed)} of {len(found)} trainings", why)
            if 2 * len(failed) >= len(found):  # then the median is a failure, which has no time
                for figure in find(result.figures, "s", case=case):
                    result.figures.remove(figure)

    def _round(self, case: str, found: list[Outcome]) -> list[Sample]:
        """One training, added to what was found: its seed is how many there are."""
        with OwnProcess() as process:
            one = process.call(attempt, self, case, len(found))
        found.append(one)
        # A failure counts as the limit, which no success exceeds, so that a median of mostly successes is right.
        training, both = (one.training, one.training + one.validation) if one.passed else (self.limit, self.limit)
        return [
            Sample("passed: 1, failed: 0", float(one.passed)),
            Sample("s", training, {"part": "training"}),
            Sample("s", one.validation, {"part": "validation"}),
            Sample("s", both, {"part": "training and validation"}),
            Sample("episodes", one.episodes),
            Sample("total", one.total, {"part": "validation"}),
            Sample("total", one.confirmation, {"part": "confirmation"}),
            Sample("total", one.interval, {"part": "half of the confirmation's 95% interval"}),
        ]


class Race:
    """The clock and the judge of one training, which asks `is_over` between updates."""

    def __init__(self, bench: TimeToScoreBench) -> None:
        self.bench, self.passed, self.best = bench, False, -math.inf
        self.training, self.validation, self.episodes = 0.0, 0.0, 0
        self._next = bench.validate_from

    def play(self, agent: Any, episodes: int, seed: int) -> EvaluateResult:
        """The nine cells, by the likeliest actions."""
        config = EvaluateConfig("the agent", episodes, self.bench.rules, seed=seed)
        return evaluate(config, agent, progress=False)

    def warm_up(self, agent: Any) -> None:
        """Before the start: validations compile, and take their memory."""
        self.play(agent, self.bench.validation_episodes, VALIDATION_SEED)

    def start(self) -> None:
        self._since = time.perf_counter()

    def is_over(self, agent: Any, episodes: int) -> bool:
        """Stop the clock and validate, if that is due; whether the score is passed or the time is up."""
        now = time.perf_counter()
        self.training += now - self._since
        self.episodes, total = episodes, -math.inf
        if episodes >= self._next:
            self._next = episodes + self.bench.validate_every
            total = self.play(agent, self.bench.validation_episodes, VALIDATION_SEED).total
            self.best = max(self.best, total)
            self.validation += time.perf_counter() - now
        late = self.training + self.validation > self.bench.limit
        self.passed = total > self.bench.score and not late
        self.start()
        return self.passed or late

    def outcome(self, agent: Any) -> Outcome:
        """After the end, with the confirmation; what was never validated is now, and it counts for nothing but that."""
        if self.best == -math.inf:
            self.best = self.play(agent, self.bench.validation_episodes, VALIDATION_SEED).total
        other = self.play(agent, self.bench.confirmation_episodes, CONFIRMATION_SEED)
        seconds = self.training, self.validation
        return Outcome(self.passed, *seconds, self.episodes, self.best, other.total, other.interval)


def attempt(bench: TimeToScoreBench, case: str, seed: int) -> Outcome:
    """One training, from its settings to its outcome, on two cores."""
    if hasattr(os, "sched_setaffinity"):  # before JAX and the thread pools count the cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    race, config = Race(bench), bench.config(seed)
    if case == OURS:
        agent: Any = train_ours(config, race)
    else:
        from stockade.bench.score_peers import train_theirs

        agent = train_theirs(case.removesuffix(SAME), config, race, case.endswith(SAME))
    return race.outcome(agent)


def train_ours(config: TrainConfig, race: Race) -> Agent:
    """Our PPO until the race is over."""
    from stockade.learn.train import make_learner

    with contextlib.closing(make_learner(replace(config, ppo=replace(config.ppo, update_steps=2)))) as small:
        small.iterate(0.0)
        race.warm_up(Agent(small.policy, config.obs, True))
    with contextlib.closing(make_learner(config)) as learner:
        agent = Agent(learner.policy, config.obs, True)
        race.start()
        while True:
            learner.iterate(min(1.0, learner.episodes / config.total_episodes))
            if race.is_over(agent, learner.episodes):
                return agent
