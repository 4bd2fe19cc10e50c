"""The notes' claims about what is inside a step: bottlenecks, waiting, true states, memory."""

from __future__ import annotations

from stockade.bench.page_asks import (
    EVERY,
    STEPS,
    TWICE,
    Claim,
    Topic,
    async_gain,
    native,
    shares,
    starting,
    straggling,
    straggling_bound,
    truth_calls,
    truth_rate,
    weight,
)

_OPTIMISED = "402 steps only, 173 with true states (stale ones)"

BOTTLENECK = Topic(
    "Bottleneck shares",
    (
        Claim(
            "waiting for the slowest environment",
            "47% (40% in another note)",
            "",
            shares("waiting for the slowest"),
            "a worker a core steps its share of environments one after the other, so that single slow steps even out",
        ),
        Claim(
            "true states",
            "48% (47.9%, and 20% in another note)",
            "60 to 71% of the wall time",
            (*shares("true states"), truth_calls("pipes")),
            "two true states of 1.3 ms against one step of 2.2 ms, and half as much again to send them; the built-in "
            "world has them in shared memory for nothing",
        ),
        Claim(
            "messages",
            "20%, 800 pipe operations a step of 200 environments",
            "8 to 11% when stepping only",
            shares("messages"),
            "one message a worker and not four an environment, so that steps alone have none to speak of; what is left "
            "is the true states: pickled, unpickled, and collected as garbage",
        ),
        Claim(
            "process management",
            "8% (20% in another note)",
            "",
            shares("process management"),
            "200 processes were scheduled on a few cores; here there are as many workers as cores, which are idle only "
            "while the caller unpacks true states",
        ),
        Claim(
            "the environment itself",
            "23.8% in parallel, 71% sequentially (29% the choice of actions)",
            "",
            shares("environment"),
            "the notes' four shares add up to 123%, since waiting was counted on top of what was waited for; "
            "ours are "
            "measured inside the workers and sum to 100%",
        ),
    ),
    "The notes: 47% + 48% + 20% + 8%. Ours on steps of the reference's cost.",
)

ASYNC = Topic(
    "What async gains",
    (
        Claim(
            "async stepping",
            "30 to 50% (1.5 times; 2 to 3 times in another note), an estimate",
            "it was never built",
            (async_gain(0.5), async_gain(1.0), async_gain(1.5)),
            "the gain is set by the spread of step times, not by async as such; on steps of equal cost there is none",
        ),
        Claim(
            "waiting for the slowest of 100 loses 70 to 75%, as the slowest takes 3 to 4 times the mean",
            "25 to 30% of the machine left",
            "",
            (
                straggling("shared_memory", 0.5),
                straggling("shared_memory", 1.0),
                straggling("async, batch n/2", 1.0),
                straggling_bound("a core each", 1.0, "the most that a core for each environment allows, sigma 1"),
            ),
            "true only with a core for each environment; with several environments a core their sums are what "
            "is waited for",
        ),
    ),
)

TRUTH = Topic(
    "What true states cost",
    (
        Claim(
            "twice a step, as the first version asked",
            "48% of the time, 1.112 s a call at 200 environments",
            "60 to 71% of the time (118 against 462 steps/s with pipes)",
            (
                truth_rate("pipes", STEPS, label="`pipes`, steps only"),
                truth_rate("pipes", TWICE, label="`pipes`, twice a step"),
                truth_rate("shared_memory", TWICE, label="`shared_memory`, twice a step"),
            ),
            "asking for all states between steps is a round of messages and dictionaries of its own",
        ),
        Claim(
            "cached and sparse states",
            "2 to 3 times as fast",
            f"{_OPTIMISED}",
            tuple(
                truth_rate(
                    "shared_memory", mode, label=f"{mode} to twice a step", over=truth_rate("shared_memory", TWICE)
                )
                for mode in (EVERY, "every 10 steps", "episode end")
            ),
            "fewer states are less work; ours say how old each is, where the first version's cache was silently stale",
        ),
        Claim(
            "no true states during episodes",
            "2 times as fast",
            "3.9 times (462 against 118)",
            (truth_rate("pipes", STEPS, label="none to twice a step, `pipes`", over=truth_rate("pipes", TWICE)),),
            "a true state costs more than half a step; the native world's are live views, and cost nothing",
        ),
        Claim(
            "messages of true states",
            "5 kB a state, asked for 200 times an episode; 710 kB a step and 71 MB an episode of 100 environments",
            "13 kB a state",
            (native(100, "`native`, no message at all, twice a step", TWICE), native(100, "`native`, steps only")),
            "typed arrays in shared memory in place of pickled dictionaries",
        ),
    ),
)

MEMORY = Topic(
    "Memory and processes at scale",
    (
        Claim(
            "200 environments in 200 processes",
            "200 interpreters, 200 times the memory (no figure)",
            "",
            (
                weight("pipes, a worker each", 200),
                weight("pipes, a worker each", 200, "a worker"),
                weight("shared_memory", 200),
                weight("native", 200),
            ),
            "a worker a core by default; forked workers share most of their pages, which PSS counts once",
        ),
        Claim(
            "starting 200 processes; setting up shared memory",
            "an overhead (no figure)",
            "",
            (starting("pipes", 200), starting("shared_memory", 200), starting("shared_memory", 200, "close")),
            "it is paid once; a fork server gives every worker what is imported already, and two workers are "
            "the default here",
        ),
        Claim(
            "1000 environments",
            "memory at scale was left as a next step",
            "",
            (weight("shared_memory", 1000), weight("serial", 1000), weight("native", 1000)),
            "a native world is a few hundred bytes",
        ),
        Claim(
            "one process needs more memory",
            "higher usage in a single process (no figure)",
            "",
            (weight("serial", 200),),
            "it is less in all: one interpreter in place of many",
        ),
    ),
)
