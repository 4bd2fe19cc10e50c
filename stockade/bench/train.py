"""`stockade bench train`: episodes a second of our PPO, where the time goes, and Stable-Baselines3's beside it.

Both train the same networks on the same native world with the same batch, minibatches and epochs; they run in turns, so
that a busy machine hits both alike.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tqdm import tqdm

from stockade.bench.command import BenchCommand, Notes, announce, require_counts
from stockade.bench.figures import Tag, figure_of, ratios
from stockade.bench.turns import installed
from stockade.learn.config import PPOConfig, TrainConfig

if TYPE_CHECKING:
    from stockade.learn.ppo import PPO


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

    def check(self) -> None:
        """Refuse options that cannot be used."""
        super().check()
        require_counts("--iterations", [self.iterations])
        require_counts("--n-envs", self.n_envs)

    def measure(self, notes: Notes) -> None:
        """Number by number, the cases in turns."""
        ppo = PPOConfig(activation=self.activation)
        theirs = self.sb3 and installed("stable_baselines3")
        if self.sb3 and not theirs:
            notes.skip("Stable-Baselines3", "it is not installed: pip install 'stockade[sb3]'")
        announce(self.name, (self.rounds + 0.3) * self.iterations * sum(0.006 * n for n in self.n_envs))
        for n in tqdm(self.n_envs, desc="bench train", unit="size", disable=None):
            cases: dict[str, Any] = {
                "2 threads": _Ours(self, n, ppo),
                "1 thread": _Ours(self, n, dataclasses.replace(ppo, threads=1)),
            }
            if theirs:
                cases["Stable-Baselines3"] = _Theirs(self, n, ppo)
            try:
                self._measure_size(notes, n, cases)
            finally:
                for case in cases.values():
                    case.close()

    def _measure_size(self, notes: Notes, n: int, cases: dict[str, Any]) -> None:
        rates: dict[str, list[float]] = {case: [] for case in cases}
        for _ in range(self.rounds):
            for case, trainer in cases.items():
                rates[case].append(trainer.round())
        ours = rates["2 threads"]
        figures = [
            figure_of(f"n={n}, episodes, {case}", rounds, "episodes/s", n_envs=n, case=case)
            for case, rounds in rates.items()
        ]
        if "Stable-Baselines3" in rates:
            gain, what = ratios(ours, rates["Stable-Baselines3"]), f"n={n}, ours, 2 threads, to Stable-Baselines3"
            figures.append(figure_of(what, gain, "times", n_envs=n, case="2 threads", to="Stable-Baselines3"))
        minutes = [100_000 / rate / 60 for rate in ours]
        figures.append(figure_of(f"n={n}, 100,000 episodes take", minutes, "minutes", n_envs=n, case="2 threads"))
        for case in ("2 threads", "1 thread"):
            phases = cases[case].phases
            for phase, rounds in phases.items():
                tags: dict[str, Tag] = {"n_envs": n, "case": case, "part": phase}
                figures.append(figure_of(f"n={n}, {case}: {phase}", rounds, "ms an iteration", **tags))
                if phase != "total":
                    shares = [100 * share for share in ratios(rounds, phases["total"])]
                    figures.append(figure_of(f"n={n}, {case}: {phase}, share", shares, "%", **tags))
        notes.figures += figures


class _Ours:
    """Our PPO. Logging is what a run does besides: metrics of an iteration, and the state of a checkpoint."""

    def __init__(self, bench: TrainBench, n: int, ppo: PPOConfig) -> None:
        from stockade.learn.train import make_learner

        self.learner: PPO = make_learner(TrainConfig(n_envs=n, obs=bench.obs, ppo=ppo))
        self._iterations = bench.iterations
        self.phases: dict[str, list[float]] = {}
        self.learner.iterate(0.0)

    def round(self) -> float:
        """Episodes a second: steps a second over 100, without those that only reset."""
        seconds = {"world": 0.0, "policy": 0.0, "advantage": 0.0, "update": 0.0}
        steps, begin = self.learner.steps, time.perf_counter()
        for _ in range(self._iterations):
            for phase, taken in self.learner.iterate(0.0).seconds.items():
                seconds[phase] += taken
        total = time.perf_counter() - begin
        seconds["the rest"] = total - sum(seconds.values())
        seconds["total"] = total
        for phase, taken in seconds.items():
            self.phases.setdefault(phase, []).append(1000 * taken / self._iterations)
        return (self.learner.steps - steps) / 100 / total

    def close(self) -> None:
        """End its threads."""
        self.learner.close()


class _Theirs:
    """Stable-Baselines3's PPO on the native world."""

    def __init__(self, bench: TrainBench, n: int, ppo: PPOConfig) -> None:
        from stockade.bench.sb3_ppo import make_sb3_ppo

        self._batch = n * ppo.update_steps
        self._rounds_steps = self._batch * max(1, bench.iterations // 4)
        self._model = make_sb3_ppo(ppo, n, seed=0, obs=bench.obs)
        self._model.learn(self._batch)

    def round(self) -> float:
        """Episodes a second: steps a second over 100."""
        begin = time.perf_counter()
        self._model.learn(self._rounds_steps, reset_num_timesteps=True)
        return self._rounds_steps / 100 / (time.perf_counter() - begin)

    def close(self) -> None:
        """End its world's threads."""
        envs = self._model.get_env()
        if envs is not None:
            envs.close()
