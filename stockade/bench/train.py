"""`stockade bench train` and `learn`: the speed of our PPO and what it learns, beside other libraries'.

All train the same networks with the same batch, minibatches and epochs, in turns: Stable-Baselines3 and SBX on the same
native world, rejax, which compiles world and learner together, on one that costs nothing. `learn` is with constant
rates and several seeds, beside Stable-Baselines3 only.
"""

import collections
import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from stockade.bench.backends import why_not
from stockade.bench.peers import REJAX, SBX, OwnProcess, episodes_per_second, make_sb3_ppo
from stockade.bench.peers import SB3 as THEIRS
from stockade.bench.result import Figure, Result, find
from stockade.bench.runner import BenchCommand, Case, Numbers, Sample, in_turns, option
from stockade.cage2.config import WorldConfig
from stockade.learn.config import PPOConfig, TrainConfig
from stockade.learn.evaluate import mean_interval

LAST = 1000  # Episodes at the end of training whose mean return is compared


@dataclass(frozen=True)
class TrainBench(BenchCommand, name="train"):
    """PPO's speed, and where the time goes, in 100-step episodes against B_line."""

    iterations: int = option(8, quick=1)  # Iterations of a round; one update each.
    n_envs: Numbers = option((25, 100, 256), quick=(25,))  # Numbers of environments.
    obs: Literal["bits", "memory"] = "bits"  # What the agent sees.
    activation: Literal["relu", "tanh"] = "relu"  # Between layers, for all.
    peers: bool = True  # Measure the PPO of other libraries too, those that are installed.

    def measure(self, result: Result) -> None:
        ppo = PPOConfig(activation=self.activation)
        for n in self.n_envs:
            with contextlib.ExitStack() as stack:
                cases = [self._ours(n, "2 threads", ppo, stack)]
                cases += [self._ours(n, "1 thread", replace(ppo, threads=1), stack)]
                if self.peers:
                    cases.append(self._theirs(n, ppo, stack))
                    cases += [self._on_jax(peer, n, ppo, stack) for peer in (SBX, REJAX)]
                (group,) = in_turns([cases], self.rounds, result)
            (ours,) = find(group, "episodes/s", case="2 threads")
            for theirs in find(group, "episodes/s", case=(THEIRS, SBX, REJAX)):
                result.figures.append(ours.over(theirs, to=theirs.tags["case"]))
            result.figures.append(ours.turned_into("minutes", lambda r: 100_000 / r / 60, part="100,000 episodes"))
            for total in find(group, part="total"):
                parts = find(group, "ms per iteration", case=total.tags["case"])
                result.figures += [part.over(total, "%", 100) for part in parts if part is not total]

    def _ours(self, n: int, case: str, ppo: PPOConfig, stack: contextlib.ExitStack) -> Case:
        from stockade.learn.train import make_learner

        learner = make_learner(TrainConfig(n_envs=n, obs=self.obs, action_mask=False, ppo=ppo))
        stack.callback(learner.close)
        learner.iterate(0.0)
        return Case({"n_envs": n, "case": case}, partial(self._round, learner))

    def _round(self, learner: Any) -> list[Sample]:
        """Episodes per second (steps over 100, without those that only reset), and the phases of an iteration."""
        seconds: Any = collections.Counter()
        steps, begin = learner.steps, time.perf_counter()
        for _ in range(self.iterations):
            seconds.update(learner.iterate(0.0).seconds)
        total = time.perf_counter() - begin
        parts = {**seconds, "the rest": total - sum(seconds.values()), "total": total}
        phases = [Sample("ms per iteration", 1000 * taken / self.iterations, {"part": phase})
                  for phase, taken in parts.items()]  # fmt: skip
        return [Sample("episodes/s", (learner.steps - steps) / 100 / total), *phases]

    def _theirs(self, n: int, ppo: PPOConfig, stack: contextlib.ExitStack) -> Case:
        tags = {"n_envs": n, "case": THEIRS}
        if why := why_not(THEIRS):
            return Case(tags, list, why)
        model = make_sb3_ppo(ppo, n, seed=0, obs=self.obs)
        stack.callback(model.get_env().close)
        model.learn(n * ppo.update_steps)
        steps = n * ppo.update_steps * max(1, self.iterations // 4)

        def round_() -> list[Sample]:
            begin = time.perf_counter()
            model.learn(steps, reset_num_timesteps=True)
            return [Sample("episodes/s", steps / 100 / (time.perf_counter() - begin))]

        return Case(tags, round_)

    def _on_jax(self, peer: str, n: int, ppo: PPOConfig, stack: contextlib.ExitStack) -> Case:
        tags = {"n_envs": n, "case": peer}
        if why := why_not(peer):
            return Case(tags, list, why)
        call = partial(stack.enter_context(OwnProcess()).call, episodes_per_second)
        arguments = peer, ppo, n, self.obs, max(1, self.iterations // 4) if peer == SBX else self.iterations
        return Case(tags, lambda: [Sample("episodes/s", call(*arguments))], foreign=True)


@dataclass(frozen=True)
class LearnBench(BenchCommand, name="learn"):
    """PPO's returns beside another library's: means of the last 1000 episodes of trainings, of 100 steps each."""

    rounds: int = option(3, quick=1)  # Trainings of each, with different seeds.
    episodes: int = option(20_000, quick=500)  # Episodes of each training.
    red_agent: str = "bline"  # Who attacks.
    obs: Literal["bits", "memory"] = "bits"  # What the agent sees.
    n_envs: int = option(256, quick=32)  # Environments.

    def check(self) -> None:
        super().check()
        WorldConfig(self.red_agent)

    def measure(self, result: Result) -> None:
        cases = [self._case("ours", self._ours), self._case(THEIRS, self._theirs)]
        (group,) = in_turns([cases], self.rounds, result)
        for one in group if self.rounds > 1 else ():
            tags = {"case": one.tags["case"], "part": "half of the 95% interval"}
            result.figures.append(Figure(tags, "return", mean_interval(np.array(one.rounds))[1:]))

    def _case(self, case: str, train: Callable[[PPOConfig, int], float]) -> Case:
        ppo, seeds = PPOConfig(time_limit="bootstrap"), itertools.count()
        ppo = replace(ppo, final_learning_rate=ppo.learning_rate, final_entropy_weight=ppo.entropy_weight)
        tags = {"case": case, "red": self.red_agent, "obs": self.obs}
        return Case(tags, lambda: [Sample("return", train(ppo, next(seeds)))], why_not(case))

    def _ours(self, ppo: PPOConfig, seed: int) -> float:
        from stockade.learn.train import make_learner

        config = TrainConfig(self.red_agent, obs=self.obs, n_envs=self.n_envs, action_mask=False, seed=seed, ppo=ppo)
        returns: list[float] = []
        with contextlib.closing(make_learner(config)) as learner:
            while learner.episodes < self.episodes:
                returns += learner.iterate(0.0).returns.tolist()
        return float(np.mean(returns[-LAST:]))

    def _theirs(self, ppo: PPOConfig, seed: int) -> float:
        model = make_sb3_ppo(ppo, self.n_envs, seed, window=LAST, obs=self.obs, red=self.red_agent)
        model.learn(100 * self.episodes)
        return float(np.mean([episode["r"] for episode in model.ep_info_buffer or ()])) / ppo.reward_scale
