"""`champion.py ablate`: short trainings of the champion's recipe with one thing changed at a time.

variant x seed -> stockade.learn.train in a temporary folder -> both rule sets on seeds of their own -> appended
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from champion_evaluate import ABLATION_SEED, RESULTS, RULE_SETS, evaluate_cells, read_json, write_json

from stockade.bench.result import machine_stamp
from stockade.errors import InputError
from stockade.files import check_writable
from stockade.learn.agents import load
from stockade.learn.config import CHAMPION, TrainConfig
from stockade.learn.mixture import cells_of
from stockade.learn.train import train

WHOLE = "whole recipe"
#: Ways to play the same training: of the checkpoint that validation chose, by the likeliest actions, or otherwise.
_BEST: dict[str, dict[str, bool]] = {"": {"greedy": True}}


class Variant(NamedTuple):
    """The recipe with one change; `plays` are ways to play it: a name (empty for the usual) and arguments of `load`."""

    name: str
    config: TrainConfig
    plays: dict[str, dict[str, bool]] = _BEST


def variants(base: TrainConfig) -> list[Variant]:
    """The whole recipe first; changes that the recipe has already are left out."""
    ppo = base.ppo
    changes: list[tuple[str, dict[str, Any]]] = [
        ("no memory: the 52 bits only", {"obs": "bits"}),
        ("100-step episodes only", {"horizons": "", "horizon": 100}),
        ("no action mask", {"action_mask": False}),
        ("B_line only", {"red": "bline"}),
        ("equal shares of all worlds", {"red": "bline,meander,sleep", "horizons": "30,50,100"}),
        ("for the other rules: leaderboard", {"rules": "leaderboard"}),
        ("for both rule sets, told which", {"rules": "both"}),
        ("for both rule sets, not told", {"rules": "both", "tell_rules": False}),
        *((f"network {'-'.join(map(str, sizes))}", {"ppo": replace(ppo, hidden=sizes)})
          for sizes in ((64, 64), (128, 128))),
        *((f"constant discount {gamma}", {"ppo": replace(ppo, gamma=gamma, final_gamma=None)})
          for gamma in (0.95, 0.99, 1.0)),
        ("no entropy bonus", {"ppo": replace(ppo, entropy_weight=0.0, final_entropy_weight=0.0)}),
        ("constant learning rate", {"ppo": replace(ppo, final_learning_rate=ppo.learning_rate)}),
    ]  # fmt: skip
    plays = {**_BEST, "actions sampled": {"greedy": False}}
    if base.validation_episodes:
        plays["last checkpoint, not the best"] = {"greedy": True, "last": True}
    made = [Variant(name, replace(base, **change)) for name, change in changes]
    return [Variant(WHOLE, base, plays), *(variant for variant in made if variant.config != base)]


@dataclass(frozen=True)
class Ablate:
    """Train the recipe and its variants for a short while, to see what each part is worth. Goes on where it stopped."""

    episodes: int = 100_000  # Episodes of each training.
    seeds: tuple[int, ...] = (0, 1)  # Of the trainings.
    only: tuple[str, ...] = ()  # Only variants whose name contains one of these.
    eval_episodes: int = 1000  # Of each cell.
    threads: int | None = None  # Of a training; results do not depend on it.
    out: Path = RESULTS / "champion-ablations.json"  # Results so far; new ones are added.

    def run(self) -> int:
        """Train and evaluate what is not there yet; the exit code of a training that was stopped."""
        check_writable(self.out, "--out")
        if self.episodes < 1 or self.eval_episodes < 1:
            raise InputError("--episodes and --eval-episodes must be at least 1")
        known = variants(CHAMPION)
        chosen = [v for v in known if not self.only or any(part in v.name for part in self.only)]
        if not chosen:
            names = ", ".join(f"'{variant.name}'" for variant in known)
            raise InputError(f"--only {' '.join(self.only)}: no variant has such a name; there are {names}")
        wanted = [(variant, self.shorten(variant.config, seed)) for seed in self.seeds for variant in chosen]
        for _, config in wanted:
            cells_of(config)
        for number, (variant, config) in enumerate(wanted, start=1):
            done = read_json(self.out) or {"entries": []}
            settings = variant.name, self.episodes, self.eval_episodes
            played = {e["play"] for e in done["entries"] if same_recipe(e["settings"], config)
                      and (e["variant"], e["episodes"], e["eval_episodes"]) == settings}  # fmt: skip
            there = played >= set(variant.plays)
            print(f"{number} of {len(wanted)}: {variant.name}, seed {config.seed}{' is there' * there}", flush=True)
            if there:
                continue
            with tempfile.TemporaryDirectory() as folder:
                if train(replace(config, runs=Path(folder), name="run")).interrupted:
                    return 130
                new = self._evaluate(variant, config, Path(folder) / "run")
            write_json(self.out, {"seed": ABLATION_SEED, "entries": done["entries"] + new})
        return 0

    def shorten(self, config: TrainConfig, seed: int) -> TrainConfig:
        """A variant as it is trained here."""
        ppo = replace(config.ppo, threads=self.threads)
        every = max(1, min(config.checkpoint_episodes, self.episodes // 10))
        return replace(config, preset=None, total_episodes=self.episodes, checkpoint_episodes=every, seed=seed,
                       tensorboard=False, ppo=ppo)  # fmt: skip

    def _evaluate(self, variant: Variant, config: TrainConfig, run: Path) -> list[dict[str, Any]]:
        entries, stamp, settings = [], machine_stamp(), config.to_json()
        settings["ppo"] |= {"hidden": list(config.ppo.hidden), "threads": None}
        for play, how in variant.plays.items():
            name = variant.name if not play else f"{variant.name}, {play}"
            policies = {rules: load(str(run), rules=rules, **how) for rules in RULE_SETS}
            results = {rules: evaluate_cells(policy, name, rules, self.eval_episodes, ABLATION_SEED)
                       for rules, policy in policies.items()}  # fmt: skip
            totals = ", ".join(f"{rules} {results[rules]['total']:.2f}" for rules in RULE_SETS)
            print(f"  {name}: {totals}", flush=True)
            entries.append({"variant": variant.name, "play": play, "seed": config.seed, "episodes": self.episodes,
                            "eval_episodes": self.eval_episodes, "settings": settings, "rules": results,
                            "stamp": stamp})  # fmt: skip
        return entries


def same_recipe(settings: dict[str, Any], config: TrainConfig) -> bool:
    """The settings of a result are those of this training, but for its length and what does not change the agent."""

    def comparable(one: TrainConfig) -> TrainConfig:
        return replace(one, preset=None, total_episodes=1, checkpoint_episodes=1, keep_checkpoints=1, tensorboard=False,
                       name=None, runs=Path(), resume=None, ppo=replace(one.ppo, threads=None))  # fmt: skip

    try:
        return comparable(TrainConfig.from_json(settings)) == comparable(config)
    except (InputError, KeyError, TypeError):  # of a version with other settings
        return False
