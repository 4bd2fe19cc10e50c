"""The sections of docs/benchmarks.md, as data: what each bench is about, and which tables its figures go into.

Figures that no table asks for are listed one by one below the tables, so that nothing measured is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from stockade.bench.report_tables import Table


@dataclass(frozen=True)
class Section:
    """A bench on the page.

    Attributes:
        bench: its name; a picture of the same name is shown.
        title: heading.
        text: what is measured and how to read it.
        tables: of its figures.
    """

    bench: str
    title: str
    text: str
    tables: tuple[Table, ...] = ()


_WORLDS = {
    "synthetic": "the reference's cost",
    "built-in": "built-in world",
    "CybORG": "CybORG itself",
    "MiniCAGE": "MiniCAGE's world",
    "CartPole": "CartPole",
}
_PARTS = {
    "all": "all processes together",
    "all workers": "all workers",
    "a worker": "one worker",
    "main process": "growth of the main process",
}
_N = "{} environments"
_MODES = ("steps only", "twice a step", "every step")


def _throughput(unit: str, what: str = "") -> tuple[Table, ...]:
    return tuple(
        Table(f"{name}, {mode}{what}", unit, "backend", "n_envs", {"world": world, "mode": mode}, _N)
        for world, name in _WORLDS.items()
        for mode in _MODES
    )


SECTIONS = (
    Section(
        "throughput",
        "Throughput",
        "Steps a second of every backend, beside what people use today, on the built-in world and on a synthetic "
        "environment that costs what the reference simulator does (2.2 ms a step, 16.5 ms a reset, a true state of "
        "1.3 ms and 13 kB pickled). *Twice a step* asks for the true states before and after each step, as the first "
        "version did; *every step* lets the workers bring them along. Process backends have a worker a core.",
        (*_throughput("steps/s"), *_throughput("times", ", ratio to `pipes`")),
    ),
    Section(
        "scaling",
        "Scaling",
        "Native worlds up to a million; then the backends over the number of environments, over workers, and "
        "over the "
        "cost of a step: below the crossing point waking a process costs more than the steps that it saves.",
        (
            Table("native, by threads", "steps/s", "threads", "n_envs", {"part": "native"}, "{} worlds"),
            Table("native, by threads", "of the cores", "threads", "n_envs", {"part": "native"}, "{} worlds"),
            *(
                Table(name, unit, "backend", "n_envs", {"part": "n_envs", "world": world}, _N)
                for world, name in _WORLDS.items()
                for unit in ("steps/s", "of the cores")
            ),
            Table(
                "64 environments", "of the cores", "backend", "workers", {"part": "workers"}, "{} workers", "step_us"
            ),
            Table("64 environments", "steps/s", "backend", "workers", {"part": "workers"}, "{} workers", "step_us"),
            Table("speed beside `serial`", "times", "backend", "step_us", {"part": "takeover"}, "{} us", "n_envs"),
            Table("beats `serial` from steps of", "microseconds", "backend", "n_envs", {"part": "crossing"}, _N),
        ),
    ),
    Section(
        "bottleneck",
        "Where the time of a step goes",
        "Measured inside the workers: the time in the environment, in true states, in messages, waiting for the "
        "slowest, and in the management of processes. The shares of a case sum to 100%.",
        (
            *(
                Table(f"{name}, {mode}", "% of the time", "backend", "part", {"world": world, "mode": mode})
                for world, name in _WORLDS.items()
                for mode in _MODES
            ),
            *(
                Table(f"{name}: {what}", unit, "backend", "mode", {"world": world, "part": part})
                for world, name in _WORLDS.items()
                for what, unit, part in (
                    ("a step of all environments", "ms", "total"),
                    ("calls for true states", "% of the wall time", "calls"),
                    ("start and close", "% of an episode", "start and close"),
                )
            ),
        ),
    ),
    Section(
        "stragglers",
        "Stragglers: sync against async",
        "Steps whose cost varies: sigma is the spread of its logarithm, the mean stays the same. All but "
        "`async` wait "
        "for the slowest. The bound is what no scheduler can exceed.",
        (
            Table("efficiency by sigma", "of the cores", "backend", "sigma", {"kind": None}),
            Table("bound by sigma", "of the cores", "backend", "sigma", {"kind": "bound"}),
            Table("gain by sigma", "times", "backend", "sigma"),
        ),
    ),
    Section(
        "true-state",
        "What true states cost",
        "None, at the end of episodes, every tenth step, every step, and twice a step as in the first version; the "
        "cost is the loss of speed against stepping only.",
        tuple(
            Table(f"{name}{what}", unit, "mode", "backend", {"world": world})
            for world, name in _WORLDS.items()
            for unit, what in (("steps/s", ""), ("%", ", lost"))
        ),
    ),
    Section(
        "memory",
        "Memory",
        "What environments add: all of their workers, and the growth of the main process. PSS counts a page that "
        "several processes share once, in parts.",
        tuple(Table(_PARTS[part], "MiB", "backend", "n_envs", {"part": part}, _N) for part in _PARTS),
    ),
    Section(
        "startup",
        "Start and close",
        "Seconds to construct a vector environment with a worker for each environment, and to close it.",
        tuple(
            Table(f"{part}, {method}", "s", "backend", "workers", {"part": part, "start_method": method}, "{} workers")
            for method in ("fork", "forkserver", "spawn")
            for part in ("start", "close")
        ),
    ),
    Section(
        "train",
        "Training from end to end",
        "PPO with 100-step episodes against B_line; Stable-Baselines3's PPO trains the same networks on the "
        "same native "
        "world with the same batches, in turns.",
        (
            Table("training", "episodes/s", "case", "n_envs", form=_N),
            *(
                Table(f"{case}: phases", unit, "part", "n_envs", {"case": case}, _N)
                for case in ("2 threads", "1 thread")
                for unit in ("%", "ms an iteration")
            ),
        ),
    ),
    Section("kernel", "The kernel", "The world alone: random actions from a prepared array, 100-step episodes."),
    Section(
        "vector",
        "What a vector environment costs",
        "Beside other libraries: steps a second of an environment that costs nothing, so that all time is overhead, "
        "and the share of the cores that steps of known cost reach.",
        (
            Table("free steps", "steps/s", "backend", "n_envs", {"part": "overhead"}, _N),
            Table("free steps, ratio", "times", "backend", "n_envs", {"part": "overhead"}, _N, "to"),
            Table("steps of equal cost", "of the cores", "backend", "step_us", {"part": "efficiency"}, "{} us"),
        ),
    ),
    Section(
        "learn",
        "What is learned",
        "Mean return of the last episodes of training, several seeds; ours beside Stable-Baselines3's PPO.",
    ),
    Section(
        "search",
        "Workflows on Ray",
        "The same search held to one core, one workflow at a time, and on two cores, two at a time. It is not part of "
        "`bench all`, for it needs Ray.",
    ),
)
