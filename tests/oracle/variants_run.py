"""Compares the kernel's attackers of variants.py with the model's: `python -m tests.oracle.variants_run --help`.

    blue's actions -> kernel, many worlds -> what chance decided -> model, world by world -> equal rows?

The last line says `N steps compared, 0 mismatches`, unless one was found: then what differs, and where.
"""

import sys
from dataclasses import dataclass
from itertools import count

import numpy as np
import tyro

import stockade
from stockade.cage2.variants import read_red

from .facts import ROW, ROW_AFTER_RESET, explain, kernel_rows, model_row
from .network import RedAction
from .policies import POLICIES
from .variants import Forbidden, Tally, Told, VariantModel

HORIZON, EPISODES = 100, 2
#: Every variant alone, combined, in turns and in mixtures.
REDS = (
    "bline-detour",
    "meander-aggressive",
    "meander-stealthy",
    "bline+delay:7",
    "meander+idle:0.3",
    "bline+idle:0.2+noise:0.2",
    "meander+noise:0.3+green:0.25",
    "bline-detour+noise:0.2+idle:0.1+green:0.5",
    "meander-stealthy+delay:3+noise:0.1",
    "meander>bline@50",
    "bline>meander@20-60",
    "meander+green:0.1>bline-detour+idle:0.2@10-30>meander-aggressive+green:0.9+delay:4@60>sleep+noise:0.5@80-90",
    "sleep+noise:1|meander-aggressive+idle:0.5|bline>meander-stealthy@30",
)


@dataclass(frozen=True)
class Arguments:
    """Compare the variants of attackers with the model."""

    steps: int = 300_000
    """how many steps to compare, at least"""
    seed: int = 0
    """another seed compares other episodes"""


def compare(red: str, rules: str, policy: str, worlds: int, seed: int, tally: Tally) -> str | None:
    """Plays EPISODES episodes in each world. Returns the first difference in words, if there is one."""
    generator = np.random.default_rng(seed)
    seeds = generator.integers(2**32, size=worlds).tolist()
    models = [VariantModel(read_red(red).plans, rules, tally) for _ in seeds]
    options = {"red": red, "rules": rules, "horizon": HORIZON, "chance": "cyborg", "autoreset_mode": "disabled"}
    with stockade.make_vec(worlds, **options) as envs:
        for episode in range(EPISODES):
            observation, _ = envs.reset(seed=None if episode else seeds)
            rows = kernel_rows(envs, observation, np.zeros(worlds))[:, :ROW_AFTER_RESET].tolist()
            for i, model in enumerate(models):
                expected = model_row(model, model.reset(None if episode else seeds[i]), 0.0)[:ROW_AFTER_RESET]
                if expected != rows[i]:
                    return f"{red}, {rules}, seed {seeds[i]}, reset {episode}: {explain(expected, rows[i])}"
            for t in range(HORIZON):
                actions = POLICIES[policy](generator, observation, t)
                observation, reward, _, _, _ = envs.step(actions)
                rows = kernel_rows(envs, observation, reward).tolist()
                worlds_now, truth = envs.unwrapped._batch.worlds, envs.true_state()
                for i, model in enumerate(models):
                    world = worlds_now[i]
                    move = RedAction(int(truth.red_type[i])), int(truth.red_target[i])
                    told = Told(int(world["plan"]), int(world["phase"]), bool(world["held"]), move,
                                bool(truth.green_target[i] >= 0))  # fmt: skip
                    where = f"{red}, {rules}, {policy}, seed {seeds[i]}, episode {episode}, step {t}"
                    try:
                        expected = model_row(model, *model.step_told(int(actions[i]), told))
                    except Forbidden as error:
                        return f"{where}: {error}"
                    if expected != rows[i]:
                        return f"{where}: {explain(expected, rows[i])}"
                    assert len(expected) == ROW
    return None


def main(arguments: Arguments) -> int:
    """Runs the comparison and prints what came out. Returns the exit code."""
    policies, worlds, steps, tally = tuple(POLICIES), 10, 0, Tally()
    for i in count():
        if steps >= arguments.steps:
            break
        red, rules, policy = (
            REDS[i % len(REDS)],
            ("current", "leaderboard")[i // len(REDS) % 2],
            policies[i % len(policies)],
        )
        difference = compare(red, rules, policy, worlds, arguments.seed * 1_000_003 + i, tally)
        if difference is not None:
            print(difference, f"{steps} steps compared before", sep="\n")
            return 1
        steps += worlds * EPISODES * HORIZON
    for (name, probability), (n, happened) in sorted(tally.counts.items()):
        if "each of" not in name:
            print(f"{name} with probability {probability:g}: {happened} of {n}")
    print(*tally.unlikely(), f"{steps} steps compared, 0 mismatches", sep="\n")
    return int(bool(tally.unlikely()))


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Arguments)))
