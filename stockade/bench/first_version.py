"""What the notes of the first version claim about its speed, and where this version's answer is found.

(claim, what the notes say, what the first version did when it was measured on the machine of benchmarks/results, with
100 environments against B_line, and the figures that answer it: label, bench, unit, tags)
"""

from __future__ import annotations

from typing import Any

_Answer = tuple[str, str, str, dict[str, Any]]


def _rate(backend: str, n: int, mode: str = "steps only", world: str = "synthetic") -> _Answer:
    tags = {"backend": backend, "n_envs": n, "mode": mode, "world": world, "to": None}
    return f"{backend}: " if mode == "steps only" else f"{backend}, {mode}: ", "throughput", "steps/s", tags


def _share(part: str, backend: str = "pipes") -> _Answer:
    tags = {"world": "synthetic", "mode": "twice a step", "backend": backend, "part": part}
    return f"{backend}: ", "bottleneck", "% of the time", tags


def _training(n: int) -> _Answer:
    return "", "train", "episodes/s", {"n_envs": n, "case": "2 threads", "to": None}


def _async(sigma: float) -> _Answer:
    tags = {"backend": "async, batch n/2", "sigma": sigma, "to": "shared_memory"}
    return f"sigma {sigma:g}: ", "stragglers", "times", tags


def _memory(backend: str, n: int) -> _Answer:
    return f"{backend}: ", "memory", "MiB", {"backend": backend, "n_envs": n, "part": "all"}


_TWICE = "twice a step"
_EACH = "pipes, a worker each"
CLAIMS: tuple[tuple[str, str, str, tuple[_Answer, ...]], ...] = (
    ("one environment", "270 steps/s", "346 to 409",
     (("", "scaling", "steps/s", {"part": "n_envs", "world": "synthetic", "backend": "serial", "n_envs": 1}),)),
    ("pipes, 20 environments", "3,391 steps/s", "462; with true states 118",
     (_rate("pipes", 20), _rate("pipes", 20, _TWICE))),
    ("shared memory, 20 environments", "2,766 steps/s, 0.8 times pipes", "462; with true states 131",
     (_rate("shared_memory", 20), _rate("shared_memory", 20, _TWICE))),
    ("one process, 20 environments", "434 steps/s, 0.1 times pipes", "254; with true states 100",
     (_rate("serial", 20), _rate("serial", 20, _TWICE))),
    ("pipes, 200 environments", "180 steps/s; 550 ms per step of all", "462; with true states 118",
     (_rate("pipes", 200), _rate("pipes", 200, _TWICE))),
    ("shared memory, 200 environments", "3,052 steps/s, 17 times pipes; 33 ms per step of all", "as at 20",
     (_rate("shared_memory", 200), _rate("shared_memory", 200, _TWICE))),
    ("one process, 200 environments", "393 steps/s, 2.2 times pipes", "as at 20", (_rate("serial", 200),)),
    ("vectorised core, C++ or GPU", "5 to more than 10 times (estimate)", "",
     (_rate("native", 200, world="built-in"), _rate("native", 1000, world="built-in"))),
    ("Ray", "85 to 98% efficiency (estimate)", "", (_rate("ray", 200), _rate("ray", 200, world="built-in"))),
    ("time waiting for the slowest", "47% (40%)", "", (_share("waiting for the slowest", _EACH),
                                                       _share("waiting for the slowest"))),
    ("time in true states", "48% (20%)", "60 to 71% of the wall time", (_share("true states", _EACH),
                                                                        _share("true states"))),
    ("time in messages", "20%", "8 to 11% when stepping only", (_share("messages", _EACH), _share("messages"))),
    ("time in process management", "8% (20%)", "", (_share("process management", _EACH),
                                                    _share("process management"))),
    ("gain of async stepping", "1.3 to 1.5 times (2 to 3; estimates)", "never built",
     (_async(0.25), _async(0.5), _async(1.0))),
    ("no true states during episodes", "2 times as fast", "3.9 times",
     (("cost of them, pipes: ", "true-state", "%", {"world": "synthetic", "mode": _TWICE, "backend": "pipes"}),)),
    ("memory of 200 environments", "200 interpreters (no figure)", "",
     (_memory(_EACH, 200), _memory("shared_memory", 200), _memory("native", 200))),
    ("training, 25 environments", "2.7, optimised 9.1 episodes/s", "2.6", (_training(25),)),
    ("training, 100 environments", "1.1, optimised 3 to 4; elsewhere 70 to 120 episodes/s", "2.6", (_training(100),)),
)  # fmt: skip
