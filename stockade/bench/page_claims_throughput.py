"""The notes' claims about throughput, and at how many environments which backend is best."""

from __future__ import annotations

from stockade.bench.page_asks import TWICE, Claim, Topic, alone, crossing, native, rate, ratio, three_rates, time_of

_PIPES, _SHARED, _ONE = (
    "462 steps only, 118 with true states",
    "462 steps only, 131 with true states",
    "254 steps only, 100 with true states",
)

THROUGHPUT_20 = Topic(
    "Throughput at 20 environments",
    (
        Claim(
            "pipes (`ParallelEnvWrapper`)",
            "3,391 transitions/s, the baseline",
            _PIPES,
            three_rates("pipes", 20),
            "no two cores can step the reference that often: cores over the time of a step is the limit, and "
            "the notes "
            "do not tell their machine",
        ),
        Claim(
            "shared memory",
            "2,766 transitions/s, 0.8 times pipes",
            _SHARED,
            (*three_rates("shared_memory", 20), ratio("shared_memory", "pipes", 20)),
            "steps of the reference's cost drown the messages, so both are near the limit of the cores; where "
            "steps are "
            "cheap (built-in world) ours is ahead already at 20, for a signal costs less than a pickled message",
        ),
        Claim(
            "vectorised, one process",
            "434 transitions/s, 0.1 times pipes",
            _ONE,
            (*three_rates("serial", 20), ratio("serial", "pipes", 20)),
            "one core steps one environment after the other: one over the time of a step is its limit, then and now",
        ),
    ),
    "20 environments, B_line, 145 actions.",
)

THROUGHPUT_200 = Topic(
    "Throughput at 200 environments",
    (
        Claim(
            "sequential, one environment",
            "270 transitions/s",
            "346 to 409, the reference alone",
            (
                alone("serial", "one environment of the reference's cost"),
                native(20, "20 worlds of `native`"),
            ),
            "theirs includes the choice of the action (29% of its time by the notes)",
        ),
        Claim(
            "pipes",
            "180 transitions/s, 1.5 times slower than sequential",
            _PIPES,
            (*three_rates("pipes", 200), ratio("pipes", "serial", 200)),
            "theirs had a process for each environment and asked twice a step for true states; ours has a "
            "worker a core",
        ),
        Claim(
            "shared memory",
            "3,052 transitions/s, 17 times pipes",
            _SHARED,
            (
                *three_rates("shared_memory", 200),
                ratio("shared_memory", "pipes", 200),
                ratio("shared_memory", "pipes", 200, world="built-in", label="the same, built-in world"),
            ),
            "the 17 compares stepping only with stepping and true states twice; like with like there was no "
            "gain in the "
            "first version, and there cannot be one where steps cost milliseconds",
        ),
        Claim(
            "shared memory, gain alone",
            "20 to 30%",
            "none (462 against 462)",
            (
                ratio("shared_memory", "pipes", 100),
                ratio("shared_memory", "pipes", 100, world="built-in", label="the same, built-in world"),
            ),
            "what it saves are messages, whose share depends on the cost of a step",
        ),
        Claim(
            "vectorised, one process",
            "393 transitions/s, 2.2 times pipes",
            _ONE,
            (*three_rates("serial", 200), ratio("serial", "pipes", 200)),
            "one process cannot beat two cores that are both at work; it did only against pipes that also moved "
            "true states",
        ),
        Claim(
            "a step of 200 environments",
            "550 ms with pipes, 33 ms with shared memory",
            "",
            (
                time_of(rate("pipes", 200, TWICE, label="`pipes`, true states twice"), 1, "ms"),
                time_of(rate("shared_memory", 200, label="`shared_memory`, steps only"), 1, "ms"),
                time_of(native(200, "`native`"), 1, "ms"),
            ),
            "33 ms for 200 steps of the reference would need more than a dozen cores",
        ),
        Claim(
            "an episode of 100 steps in 200 environments",
            "111 s with pipes, 6.6 s with shared memory; 0.554 s an environment against 0.242 s sequentially, "
            "2.3 times slower",
            "",
            (
                time_of(rate("pipes", 200, TWICE, label="`pipes`, true states twice"), 100, "s"),
                time_of(rate("shared_memory", 200, label="`shared_memory`, steps only"), 100, "s"),
                time_of(native(200, "`native`"), 100, "s"),
            ),
            "as above: true states in one and not in the other, and more cores than here",
        ),
    ),
)

CROSSING = Topic(
    "Crossing points",
    (
        Claim(
            "pipes are best up to 50 environments",
            "best below 50",
            "equal at 100",
            (
                ratio("shared_memory", "pipes", 20),
                ratio("shared_memory", "pipes", 20, world="built-in", label="built-in"),
            ),
            "with a worker a core, messages grow with the workers, not with the environments",
        ),
        Claim(
            "shared memory is competitive at 50",
            "about equal",
            "",
            (
                ratio("shared_memory", "pipes", 50),
                ratio("shared_memory", "pipes", 50, world="built-in", label="built-in"),
            ),
            "there is no crossing between the two; what decides is the cost of a step",
        ),
        Claim(
            "shared memory wins at 100 to 1000 environments",
            "significantly, 17 times at 200",
            "equal at 100",
            (
                ratio("shared_memory", "pipes", 200),
                ratio("shared_memory", "pipes", 200, world="built-in", label="built-in"),
            ),
            "as above",
        ),
        Claim(
            "one process is for debugging only",
            "0.1 times pipes at 20, 2.2 times at 200",
            "0.55 times pipes",
            (crossing("pipes", 8), crossing("shared_memory", 8), crossing("shared_memory", 128)),
            "the crossing is one of the cost of a step: below it waking a process costs more than stepping here",
        ),
    ),
)
