"""`stockade bench train`: episodes per second of our PPO, where the time goes, and Stable-Baselines3's beside it.

Both train the same networks on the same native world with the same batch, minibatches and epochs; they run in turns, so
that a busy machine hits both alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from stockade.bench.command import BenchCommand, Notes
from stockade.bench.peers import installed
from stockade.bench.result import Figure, find
from stockade.bench.runner import Case, Sample, in_turns
from stockade.learn.config import PPOConfig, TrainConfig

THEIRS = "Stable-Baselines3"
NO_SB3 = "it is not installed: pip install 'stockade[sb3]'"


@dataclass(frozen=True)
class TrainBench(BenchCommand):
    """PPO, 100-step episodes against B_line."""

    iterations: int = 8
    """Iterations of a round; one update each."""
    n_envs: tuple[int, ...] = (25, 100, 256)
    """Numbers of environments."""
    obs: Literal["bits", "memory"] = "bits"
    """What the agent sees."""
    activation: Literal["relu", "tanh"] = "relu"
    """Between layers, for both."""
    sb3: bool = True
    """Measure Stable-Baselines3's PPO too, if it is installed."""

    name: ClassVar[str] = "train"
    quick_settings: ClassVar[dict[str, object]] = {"rounds": 1, "iterations": 1, "n_envs": (25,)}

    def measure(self, notes: Notes) -> None:
        """Number by number, the cases in turns."""
        ppo = PPOConfig(activation=self.activation)
        for n in self.n_envs:
            with contextlib.ExitStack() as stack:
                cases = [
                    self._ours(n, "2 threads", ppo, stack),
                    self._ours(n, "1 thread", dataclasses.replace(ppo, threads=1), stack),
                    *([self._theirs(n, ppo, stack)] if self.sb3 else []),
                ]
                for group in in_turns([cases], self.rounds, notes):
                    self._derive(group, notes)

    def _derive(self, group: list[Figure], notes: Notes) -> None:
        (ours,) = find(group, "episodes/s", case="2 threads")
        notes.figures += [ours.over(theirs, THEIRS) for theirs in find(group, "episodes/s", case=THEIRS)]
        minutes = tuple(100_000 / rate / 60 for rate in ours.rounds)
        notes.figures.append(Figure({**ours.tags, "part": "100,000 episodes"}, "minutes", minutes))
        for total in find(group, "ms per iteration", part="total"):
            for one in find(group, "ms per iteration", case=total.tags["case"]):
                shares = tuple(100 * share for share in one.over(total, "total").rounds)
                notes.figures += [dataclasses.replace(one, unit="%", rounds=shares)] if one is not total else []

    def _ours(self, n: int, case: str, ppo: PPOConfig, stack: contextlib.ExitStack) -> Case:
        from stockade.learn.train import make_learner

        learner = make_learner(TrainConfig(n_envs=n, obs=self.obs, ppo=ppo))
        stack.callback(learner.close)
        learner.iterate(0.0)
        return Case({"n_envs": n, "case": case}, partial(self._round, learner))

    def _round(self, learner: Any) -> list[Sample]:
        """Episodes per second (steps over 100, without those that only reset), and the phases of an iteration."""
        seconds: dict[str, float] = {}
        steps, begin = learner.steps, time.perf_counter()
        for _ in range(self.iterations):
            for phase, taken in learner.iterate(0.0).seconds.items():
                seconds[phase] = seconds.get(phase, 0.0) + taken
        total = time.perf_counter() - begin
        seconds |= {"the rest": total - sum(seconds.values()), "total": total}
        phases = [Sample("ms per iteration", 1000 * taken / self.iterations, {"part": phase})
                  for phase, taken in seconds.items()]  # fmt: skip
        return [Sample("episodes/s", (learner.steps - steps) / 100 / total), *phases]

    def _theirs(self, n: int, ppo: PPOConfig, stack: contextlib.ExitStack) -> Case:
        """Stable-Baselines3's PPO on the native world."""
        tags = {"n_envs": n, "case": THEIRS}
        if not installed("stable_baselines3"):
            return Case(tags, list, NO_SB3)
        from stockade.bench.sb3_ppo import make_sb3_ppo

        model = make_sb3_ppo(ppo, n, seed=0, obs=self.obs)
        envs = model.get_env()
        if envs is not None:
            stack.callback(envs.close)
        model.learn(n * ppo.update_steps)
        steps = n * ppo.update_steps * max(1, self.iterations // 4)

        def round_() -> list[Sample]:
            begin = time.perf_counter()
            model.learn(steps, reset_num_timesteps=True)
            return [Sample("episodes/s", steps / 100 / (time.perf_counter() - begin))]

        return Case(tags, round_)
