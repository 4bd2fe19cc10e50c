"""`stockade bench train`: episodes a second of our PPO, where the time goes, and Stable-Baselines3's beside it.

Both train the same networks on the same native world with the same batch, minibatches and epochs; they run in turns, so
that a busy machine hits both alike.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json as jsonlib
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stockade.bench.figures import figure_of
from stockade.bench.stamp import describe, machine_stamp
from stockade.learn.config import PPOConfig, TrainConfig

if TYPE_CHECKING:
    from stockade.learn.ppo import PPO


@dataclass(frozen=True)
class TrainBench:
    """PPO, 100-step episodes against B_line."""

    rounds: int = 5
    """Rounds of each case, in turns."""
    iterations: int = 12
    """Iterations of a round; one update each."""
    n_envs: int = 256
    """Environments."""
    obs: Literal["bits", "memory"] = "bits"
    """What the agent sees."""
    activation: Literal["relu", "tanh"] = "relu"
    """Between layers, for both."""
    sb3: bool = True
    """Measure Stable-Baselines3's PPO too, if it is installed."""
    json: Path | None = None
    """Write the figures to this file too."""

    def run(self) -> int:
        """Measure, print, write."""
        stamp = machine_stamp()
        ppo = PPOConfig(activation=self.activation)
        cases: dict[str, Any] = {
            "2 threads": _Ours(self, ppo),
            "1 thread": _Ours(self, dataclasses.replace(ppo, threads=1)),
        }
        if self.sb3 and importlib.util.find_spec("stable_baselines3") is not None:
            cases["Stable-Baselines3"] = _Theirs(self, ppo)
        elif self.sb3:
            print("Stable-Baselines3 is not installed: pip install 'stockade[sb3]' to compare with it")
        rates: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(self.rounds):
            for name, case in cases.items():
                rates[name].append(case.round())
        figures = [figure_of(f"episodes, {name}", rounds, "a second") for name, rounds in rates.items()]
        ours = rates["2 threads"]
        if "Stable-Baselines3" in rates:
            ratios = [a / b for a, b in zip(ours, rates["Stable-Baselines3"], strict=True)]
            figures.append(figure_of("ours, 2 threads, to Stable-Baselines3", ratios, "times"))
        figures.append(figure_of("100,000 episodes take", [100_000 / rate / 60 for rate in ours], "minutes"))
        for name in ("2 threads", "1 thread"):
            figures += [
                figure_of(f"{name}: {phase}", rounds, "ms an iteration") for phase, rounds in cases[name].phases.items()
            ]
        print(describe(stamp))
        print(
            f"{self.n_envs} environments x {ppo.update_steps} steps, {ppo.epochs} epochs, minibatches of "
            f"{ppo.minibatch_size}, hidden layers {ppo.hidden} {self.activation}, actor and critic, obs={self.obs}"
        )
        width = max(len(f.what) for f in figures)
        for f in figures:
            print(f"{f.what:<{width}}  {f.value:>8,.4g} {f.unit:<16} ({f.low:,.4g} to {f.high:,.4g})")
        if self.json is not None:
            settings = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self).items() if k != "json"}
            content = {"bench": "train", "stamp": stamp, **settings, "figures": [asdict(f) for f in figures]}
            self.json.write_text(jsonlib.dumps(content, indent=1) + "\n")
        return 0


class _Ours:
    """Our PPO. Logging is what a run does besides: metrics of an iteration, and the state of a checkpoint."""

    def __init__(self, bench: TrainBench, ppo: PPOConfig) -> None:
        from stockade.learn.train import make_learner

        self.learner: PPO = make_learner(TrainConfig(n_envs=bench.n_envs, obs=bench.obs, ppo=ppo))
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


class _Theirs:
    """Stable-Baselines3's PPO on the native world."""

    def __init__(self, bench: TrainBench, ppo: PPOConfig) -> None:
        from stockade.bench.sb3_ppo import make_sb3_ppo

        self._batch = bench.n_envs * ppo.update_steps
        self._rounds_steps = self._batch * max(1, bench.iterations // 4)
        self._model = make_sb3_ppo(ppo, bench.n_envs, seed=0, obs=bench.obs)
        self._model.learn(self._batch)

    def round(self) -> float:
        """Episodes a second: steps a second over 100."""
        begin = time.perf_counter()
        self._model.learn(self._rounds_steps, reset_num_timesteps=True)
        return self._rounds_steps / 100 / (time.perf_counter() - begin)
