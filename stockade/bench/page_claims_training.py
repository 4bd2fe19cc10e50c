"""The notes' claims about training, and their estimates of other architectures."""

from __future__ import annotations

from dataclasses import replace

from stockade.bench.page_asks import STEPS, Claim, Topic, efficiency, episodes, native, rate, time_of
from stockade.bench.report_tables import Ask

EPISODES = Topic(
    "Episodes a second in training",
    (
        Claim(
            "25 environments",
            "2.7, optimised 9.1 (3.4 times), with true states",
            "2.6, its best trainer",
            (episodes(25), episodes(25, "1 thread"), episodes(25, "Stable-Baselines3")),
            "the world is no longer what training waits for: the networks are, to choose actions and to be updated",
        ),
        Claim(
            "100 environments",
            "1.1, optimised 3 to 4; elsewhere 70 to 120 (70% efficiency, 30 to 50% below the target of 173)",
            "2.6, its best trainer",
            (episodes(100), episodes(100, "1 thread"), episodes(100, "Stable-Baselines3")),
            "the notes contradict each other by a factor of 30; 173 episodes are 17,300 steps a second, which "
            "no two cores "
            "reach with the reference",
        ),
        Claim(
            "25 to 50 environments are more efficient than 100",
            "recommended",
            "",
            (episodes(25, label="25"), episodes(100, label="100"), episodes(256, label="256")),
            "with a batched world more environments cost less each",
        ),
        Claim(
            "larger batches",
            "1.2 times",
            "",
            (replace(episodes(256, label="256 environments to 100"), over=episodes(100)),),
            "an update costs the less by the step, the more steps it has",
        ),
        Claim(
            "no separate evaluation of a workflow",
            "600 training episodes (the last 3 of 200 environments) in place of 20, and 20 s saved",
            "",
            (time_of(native(200, "600 episodes of `native`"), 300, "s"),),
            "kept: `stockade search` does the same; here the world would take no time worth saving",
        ),
        Claim(
            "a workflow's training",
            "18 to 20 times as fast without the evaluation and with shared memory",
            "2.6 episodes/s",
            (episodes(256, label="256 environments"),),
            "the same change is here (`docs/search.md`): rewards of the last training episodes, no extra evaluation",
        ),
    ),
)

ESTIMATES = Topic(
    "What was estimated for other architectures",
    (
        Claim(
            "true vectorisation in one process",
            "5 to 10 times; 160 to 173 episodes/s",
            "MiniCAGE: 33 thousand steps/s at 100, 53 thousand at 1000 (other actions and observations)",
            (native(100, "`native`, 100 worlds"), native(1000, "1000 worlds"), episodes(256, label="training")),
            "the estimate kept the cost of Python; compiled code over plain arrays does not have it",
        ),
        Claim(
            "a core in C++ / on a GPU",
            "5 times / more than 10 times",
            "",
            (
                native(200, "`native`, 200 worlds"),
                Ask(
                    "throughput",
                    {"world": "built-in", "mode": STEPS, "backend": "native", "n_envs": 200},
                    "steps/s",
                    "to `pipes` on the reference's cost",
                    over=rate("pipes", 200),
                ),
            ),
            "compiled by Numba, which reads as Python does; no graphics card is needed",
        ),
        Claim(
            "all improvements of stepping together",
            "500 to 1000 transitions/s; 3.6 times, 130 to 150 episodes/s",
            "462 transitions/s",
            (rate("shared_memory", 200, label="`shared_memory`"), native(200, "`native`")),
            "as long as the reference steps, its cost is the limit; without it there is none of that kind",
        ),
        Claim(
            "Ray and RLlib",
            "150 to 170 episodes/s, 85 to 98% efficiency",
            "",
            (
                rate("ray", 200, label="`ray`, reference's cost"),
                rate("ray", 200, world="built-in", label="`ray`, built-in world"),
            ),
            "Ray adds machines; on one it costs more than a worker of ours does",
        ),
        Claim(
            "100 times with 100 processes",
            "impossible; 50 to 70% efficiency at best (70% now)",
            "",
            (efficiency("pipes", 200), efficiency("shared_memory", 200), efficiency("async", 200)),
            "efficiency is a matter of cores, not of environments: every core can be kept at work",
        ),
    ),
)
