"""What a claim of the notes is, and short ways to ask for the figures that answer it."""

from __future__ import annotations

from dataclasses import dataclass

from stockade.bench.report_tables import Ask, Tags

STEPS, TWICE, EVERY = "steps only", "twice a step", "every step"


@dataclass(frozen=True)
class Claim:
    """A row of the page.

    Attributes:
        what: is claimed.
        notes: what they say.
        before: what was measured of the first version on this machine before we began; empty if nothing was.
        now: what answers it.
        why: the reason of the difference, in a line.
    """

    what: str
    notes: str
    before: str
    now: tuple[Ask, ...]
    why: str


@dataclass(frozen=True)
class Topic:
    """Claims that belong together."""

    title: str
    claims: tuple[Claim, ...]
    text: str = ""


def rate(
    backend: str, n: int, mode: str = STEPS, world: str = "synthetic", label: str = "", over: Ask | None = None
) -> Ask:
    """Steps a second, or their ratio to another case."""
    tags: Tags = {"world": world, "mode": mode, "backend": backend, "n_envs": n}
    return Ask("throughput", tags, "steps/s", label, over)


def three_rates(backend: str, n: int) -> tuple[Ask, ...]:
    """What is shown for a backend: stepping only, with true states as the first version asked for them, our world."""
    return (
        rate(backend, n, label=f"`{backend}`, steps only"),
        rate(backend, n, TWICE, label="true states twice a step"),
        rate(backend, n, world="built-in", label="built-in world, steps only"),
    )


def native(n: int, label: str = "", mode: str = STEPS) -> Ask:
    """Steps a second of the native backend."""
    return rate("native", n, mode, "built-in", label)


def time_of(ask: Ask, steps: int, unit: str) -> Ask:
    """The time of so many steps of all environments, from their steps a second."""
    count = int(str(ask.tags["n_envs"])) * steps * {"s": 1, "ms": 1000}[unit]
    return Ask(ask.bench, ask.tags, ask.unit, ask.label, change=lambda value: count / value, shown=unit)


def ratio(backend: str, other: str, n: int, mode: str = STEPS, world: str = "synthetic", label: str = "") -> Ask:
    """How many times as fast one backend is as another."""
    return rate(backend, n, mode, world, label or f"`{backend}` to `{other}`", rate(other, n, mode, world))


def share(backend: str, part: str, mode: str = TWICE) -> Ask:
    """Of the time of a step."""
    tags: Tags = {"world": "synthetic", "mode": mode, "backend": backend, "part": part}
    return Ask("bottleneck", tags, "% of the time", f"`{backend}`, {mode}")


def shares(part: str) -> tuple[Ask, ...]:
    """Of the backends that the notes speak of; the first is as the first version was."""
    return (
        share("pipes, a worker each", part),
        share("pipes", part),
        share("shared_memory", part),
        share("shared_memory", part, STEPS),
    )


def truth_calls(backend: str) -> Ask:
    """Of the wall time, what the driver waits for true states when it asks for them twice a step."""
    tags: Tags = {"world": "synthetic", "mode": TWICE, "backend": backend, "part": "calls"}
    return Ask("bottleneck", tags, "% of the wall time", f"`{backend}`, all calls for them, {TWICE}")


def efficiency(backend: str, n: int, label: str = "") -> Ask:
    """Of the cores, on steps of the reference's cost."""
    tags: Tags = {
        "part": "n_envs",
        "world": "synthetic",
        "backend": backend,
        "n_envs": n,
    }
    return Ask("scaling", tags, "of the cores", label or f"`{backend}`, {n} environments")


def alone(backend: str, label: str) -> Ask:
    """Steps a second of one environment."""
    tags: Tags = {"part": "n_envs", "world": "synthetic", "backend": backend, "n_envs": 1}
    return Ask("scaling", tags, "steps/s", label)


def crossing(backend: str, n: int) -> Ask:
    """The cost of a step from which a backend is faster than `serial`."""
    label = f"`{backend}` beats `serial` at {n} environments from steps of"
    return Ask("scaling", {"part": "crossing", "backend": backend, "n_envs": n}, "microseconds", label)


def straggling(backend: str, sigma: float, label: str = "") -> Ask:
    """Of the cores, with steps of varying cost."""
    tags: Tags = {"backend": backend, "sigma": sigma, "kind": None}
    return Ask("stragglers", tags, "of the cores", label or f"`{backend}`, sigma {sigma:g}")


def straggling_bound(backend: str, sigma: float, label: str) -> Ask:
    """What theory allows."""
    return Ask("stragglers", {"backend": backend, "sigma": sigma, "kind": "bound"}, "of the cores", label)


def async_gain(sigma: float) -> Ask:
    """How many times as fast `async` is as `shared_memory` with steps of varying cost."""
    tags: Tags = {"backend": "async, batch n/2", "sigma": sigma, "to": "shared_memory"}
    return Ask("stragglers", tags, "times", f"sigma {sigma:g}")


def truth_rate(backend: str, mode: str, label: str = "", over: Ask | None = None) -> Ask:
    """Steps a second by how often true states are got."""
    tags: Tags = {"world": "synthetic", "mode": mode, "backend": backend}
    return Ask("true-state", tags, "steps/s", label or mode, over)


def weight(backend: str, n: int, part: str = "all", label: str = "") -> Ask:
    """Memory of all processes or of a part of them, in MiB."""
    tags: Tags = {"backend": backend, "part": part, "n_envs": n}
    return Ask("memory", tags, "MiB", label or f"`{backend}`" + (f", {part}" if part != "all" else ""))


def starting(backend: str, workers: int, part: str = "start") -> Ask:
    """Seconds to start or close a vector environment with so many workers."""
    tags: Tags = {"backend": backend, "start_method": "forkserver", "workers": workers, "part": part}
    return Ask("startup", tags, "s", f"`{backend}`, {workers} workers, {part}")


def episodes(n: int, case: str = "2 threads", label: str = "") -> Ask:
    """Of training, a second."""
    return Ask("train", {"case": case, "n_envs": n}, "episodes/s", label or f"{n} environments, {case}")
