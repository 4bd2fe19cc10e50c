"""Finds by brute force what every order is worth, for `stockade bench search-quality`.

    python benchmarks/search_truth.py --red-agent bline

every order trained alone, and all together for long -> strict returns on common seeds -> search-truth-*.json in
benchmarks/results, written after every training: what is there already is not trained again.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from common import read_result, run_script, write_result
from search_quality import SEED, classes, truth_path

from stockade.bench.result import Figure, Result, Tags, find, machine_stamp
from stockade.cage2.config import WorldConfig
from stockade.text import fixed
from stockade.workflow.conditioned import ConditionedTraining
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import FREE, TYPES, Order
from stockade.workflow.together import TogetherTraining, best_told

TRUTH_SEED = 1_000  # First of the trainings; no search that is measured has it


@dataclass(frozen=True)
class SearchTruth:
    """Find by brute force what every order is worth."""

    red_agent: tuple[str, ...] = ("bline", "meander")  # Who attacks; one after the other.
    max_steps: int = 30  # Steps of an episode.
    together_seeds: int = 2  # Trainings of all orders together.
    together_episodes: int = 200_000  # Of each of them.
    alone_seeds: int = 1  # Trainings of every order alone.
    alone_episodes: int = 60_000  # Of each of them.
    n_eval_episodes: int = 4_000  # Greedy episodes that a policy is judged by.

    def run(self) -> int:
        """One table per attacker; what cannot be trained is refused before any work."""
        reds = list(dict.fromkeys(WorldConfig(red).red for red in self.red_agent))
        for red in reds:
            self.config(red, min(self.alone_episodes, self.together_episodes), TRUTH_SEED)
        for red in reds:
            self.make_truth(red).print()
        return 0

    def config(self, red: str, episodes: int, seed: int) -> SearchConfig:
        """The settings of a training."""
        return SearchConfig(red, self.max_steps, episodes, seed=seed, n_eval_episodes=self.n_eval_episodes)

    def make_truth(self, red: str) -> Result:
        """Train what the table lacks: all orders together, then each alone."""
        path, begin = truth_path(red, self.max_steps), time.perf_counter()
        path.parent.mkdir(parents=True, exist_ok=True)
        known = read_result(path) if path.exists() else Result()
        settings = {"red_agent": red, "max_steps": self.max_steps}
        command = shlex.join(["python", "benchmarks/search_truth.py", *sys.argv[1:]])
        result = Result(path.stem, command, machine_stamp(), settings, known.seconds, known.figures)
        every, judged = classes(red, self.max_steps)[1], self.n_eval_episodes
        trainings = [("together", self.together_episodes, TRUTH_SEED + k, every) for k in range(self.together_seeds)]
        for seed in range(TRUTH_SEED, TRUTH_SEED + self.alone_seeds):
            trainings += [("alone", self.alone_episodes, seed, {label: every[label]}) for label in every]
        for training, episodes, seed, orders in trainings:
            tags: Tags = {"training": training, "episodes": episodes, "judged": judged, "seed": seed}
            if all(find(result.figures, order=label, **tags) for label in orders):
                continue
            values = self.values(red, orders, episodes, seed)
            new = [Figure({"order": label, **tags}, "return", (value,)) for label, value in values.items()]
            result.figures += new
            result.seconds = known.seconds + time.perf_counter() - begin
            write_result(result, path)
            print("\n".join(f"{red}: {figure.name}: {fixed(figure.value)}" for figure in new), flush=True)
        write_result(result, path)
        return result

    def values(self, red: str, orders: Mapping[str, Order], episodes: int, seed: int) -> dict[str, float]:
        """Train one policy for these orders, and judge it for each."""
        config = self.config(red, episodes, seed)
        training = (TogetherTraining(config, [*orders.values(), FREE], None) if len(orders) > 1
                    else ConditionedTraining(config, TYPES, list(orders.values()), seed))  # fmt: skip
        with contextlib.closing(training):
            if isinstance(training, TogetherTraining):
                training.run(lambda: False, lambda _: None)
            else:
                while training.episodes + config.update_episodes <= episodes:
                    training.advance(episodes)
            told = best_told(training, range(len(training.orders)))[0][: len(orders)]
            means = training.returns(self.n_eval_episodes, SEED, range(len(orders)), told).mean(axis=(0, 2))
        return dict(zip(orders, means.tolist(), strict=True))


if __name__ == "__main__":
    sys.exit(run_script(SearchTruth, __doc__))
