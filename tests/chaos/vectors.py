"""Chaos for vector environments: TellTales on every backend, disturbed at random moments, every row judged.

In a chaos run each function is a scenario, in a process of its own.
"""

import contextlib
import importlib.util
import math
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from stockade.errors import EnvironmentFailure, WorkerError, WorkerTimeoutError
from stockade.vector import make_vector
from tests.chaos.checks import Event, Violation, descendants, forked, nothing_gained, nothing_left, patience, waited
from tests.chaos.world import BAD_ACTIONS, ENDS, FAILS, GOOD_ACTIONS, TRAVELS_NOT, Model, factory

PROCESSES = ("pipes", "shared_memory", "async")
MISBEHAVIOUR = (LookupError, ValueError, TypeError, EnvironmentFailure)


class Over(Exception):
    """The session ended as it should: a worker was lost and no restart was left."""


@contextlib.contextmanager
def alarm(seconds: float, action: Callable[[], None]) -> Iterator[None]:
    """Do it in so many seconds, in the main thread, between any two instructions; never after the block."""

    def ring(number: int, frame: Any) -> None:
        with contextlib.suppress(ProcessLookupError):
            action()

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Session:
    """A vector environment, its model, and what may happen to both."""

    def __init__(self, event: Event, backend: str, **fixed: Any) -> None:
        chance = self.chance = event.chance
        self.event, self.backend = event, backend
        self.n, self.mode = chance.randint(1, 8), chance.choice(["next_step", "same_step", "disabled"])
        self.hangs = chance.random() < 0.15
        options: dict[str, Any] = {"autoreset_mode": self.mode}
        if backend in PROCESSES or backend == "ray":
            options |= {"restart": chance.choice([0, 2, 5, 50]), "workers": chance.randint(1, min(3, self.n)),
                        "timeout": 2.0 if self.hangs else 60.0}  # fmt: skip
        if backend in PROCESSES:
            options["start_method"] = "fork" if self.hangs else chance.choice(["fork", "fork", "forkserver", "spawn"])
        if backend in ("async", "ray"):
            options["batch_size"] = chance.randint(1, self.n)
        options["true_states"] = chance.choice([None, "every_step"])
        self.options = options | fixed
        self.by_recv = backend in ("async", "ray") and chance.random() < 0.6
        self.model, self.seconds = Model(self.n, self.mode), chance.choice([0.0, 0.0, 0.001])
        event.note(f"{backend} {self.n} {self.options} {'recv' if self.by_recv else 'step'}")

    def make(self, doomed: dict[int, str] | None = None) -> Any:
        return make_vector(self.backend, factory(self.event.folder, self.seconds, doomed or {}), self.n, **self.options)

    def play(self, steps: int, rate: float) -> None:
        """Step and judge; in that share of the steps, something happens."""
        try:
            with self.make() as self.envs:
                self.begin()
                for _ in range(steps):
                    if self.chance.random() < rate:
                        self.chance.choice(self.happenings())()
                    else:
                        self.step()
        except Over:
            pass

    def happenings(self) -> list[Callable[[], None]]:
        found = [self.fails, self.fails, self.begin, self.compare_truths, self.go_back, self.reset_fails]
        if self.backend in PROCESSES:
            found += [self.kill_before, self.kill_during, self.kill_during, self.ends, self.stop, self.interrupt]
        if self.backend == "ray":
            found = [self.kill_before, self.fails, self.begin]
        return found + [self.kill_fork_server] * (self.options.get("start_method") == "forkserver")

    # ---------------------------------------------------------------------------------------------------------- faults
    def fails(self) -> None:
        kind, i = self.chance.choice((*FAILS, TRAVELS_NOT)), self.chance.randrange(self.n)
        if self.mode == "same_step" and self.model.is_last(i):
            return  # whether it was reset before it failed is nobody's business
        self.event.count(f"environment: {kind}")
        self.step({i: BAD_ACTIONS[kind]})

    def ends(self) -> None:
        """An environment takes its process with it, or never returns."""
        kind = self.chance.choice(ENDS if self.hangs else ENDS[:-1])
        i = self.chance.randrange(self.n)
        if not self.model.is_due(i) and self.model.place[i] is not None:
            self.event.count(f"environment: {kind}")
            self.model.suspect(self.mates(self.worker_of(i)))
            self.step({i: BAD_ACTIONS[kind]})

    def reset_fails(self) -> None:
        """In a reset: of all, for what the others hold would be lost too."""
        self.event.count("environment: raise in reset")
        with contextlib.suppress(LookupError):
            self.guarded(lambda: self.envs.reset(seed=1, options={"misbehave": "raise"}))
            raise Violation("a reset that raised was not reported")
        self.begin()

    def kill_before(self) -> None:
        worker = self.chance.randrange(self.options["workers"])
        self.event.count("kill -9 of a worker between calls")
        self.kill(worker)
        self.step()

    def kill_during(self) -> None:
        worker = self.chance.randrange(self.options["workers"])
        self.event.count("kill -9 of a worker at a random moment")
        with alarm(self.chance.expovariate(1 / 0.002), lambda: self.kill(worker)):
            for _ in range(self.chance.randint(1, 12)):
                self.step()

    def kill_fork_server(self) -> None:
        self.event.count("kill -9 of the fork server")
        for process in fork_servers():
            process.kill()
        for worker in range(self.options["workers"]):
            self.model.suspect(self.mates(worker), math.inf, patience(1.0))  # they die a moment after it
        time.sleep(self.chance.choice([0.0, 0.05]))
        self.step()

    def stop(self) -> None:
        """SIGSTOP, and SIGCONT before or after the deadline."""
        pid, worker = self.envs.worker_pids, self.chance.randrange(self.options["workers"])
        self.event.count("SIGSTOP of a worker" + (" for ever" if self.hangs else ", then SIGCONT"))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid[worker], signal.SIGSTOP)
        if self.hangs:
            self.model.suspect(self.mates(worker))
            self.step()
        else:
            with alarm(self.chance.uniform(0.001, 0.2), lambda: os.kill(pid[worker], signal.SIGCONT)):
                self.step()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid[worker], signal.SIGCONT)

    def interrupt(self) -> None:
        """Ctrl-C in a step: after a reset, late replies do not show."""
        self.event.count("SIGINT in a step")
        moment = alarm(self.chance.expovariate(1 / 0.001), lambda: os.kill(os.getpid(), signal.SIGINT))
        with contextlib.suppress(KeyboardInterrupt), moment:
            for _ in range(self.chance.randint(1, 6)):
                self.step()
        self.begin()

    def go_back(self) -> None:
        """A snapshot, some steps, and back."""
        if not self.by_recv and not self.model.suspects and None not in self.model.place:
            saved, known = self.envs.snapshot(), [self.model.copy_of(i) for i in range(self.n)]
            for _ in range(self.chance.randint(1, 4)):
                self.step()
            if not self.model.suspects:
                seen = self.envs.restore(saved)
                for i in range(self.n):
                    self.model.put_back(i, known[i])
                if not np.array_equal(seen, self.model.seen):
                    raise Violation("restore gave other observations than the snapshot had")
                self.compare_truths()

    def compare_truths(self) -> None:
        if not self.by_recv and not self.model.suspects:
            truths = self.envs.true_state()
            self.model.truths(truths.states, truths.age)

    # ----------------------------------------------------------------------------------------------------------- calls
    def begin(self) -> None:
        """A seeded reset of all."""
        seed, self.asked = self.chance.randrange(1 << 20), time.monotonic()
        if self.by_recv:
            self.guarded(lambda: self.envs.async_reset(seed=seed))
            self.waiting: dict[int, int | None] = dict.fromkeys(range(self.n))  # actions in flight, None for a reset
            self.first = {i: seed + i for i in range(self.n)}
            self.hand: list[int] = []
            self.receive()
        else:
            seen, _ = self.guarded(lambda: self.envs.reset(seed=seed))
            for i in range(self.n):
                self.model.begun(i, seen[i], seed + i, self.asked)

    def step(self, bad: dict[int, int] | None = None) -> None:
        """One step of all, or of those at hand; `bad` actions for some."""
        ids = self.hand if self.by_recv else list(range(self.n))
        actions = {i: (bad or {}).get(i, self.chance.randrange(GOOD_ACTIONS)) for i in ids}
        if self.by_recv:
            self.guarded(lambda: self.envs.send(np.array([actions[i] for i in ids], np.int64), np.array(ids, int)))
            self.waiting |= actions
            self.hand = []
            self.receive()
        else:
            due = {i for i in ids if self.model.is_due(i) or self.model.place[i] is None}
            try:
                self.judge(ids, actions, self.guarded(lambda: self.envs.step(np.array([actions[i] for i in ids]))))
            except MISBEHAVIOUR as error:
                failed = self.failed(error, {i for i in set(actions) - due if actions[i] >= GOOD_ACTIONS})
                results = error.__cause__.results  # type: ignore[union-attr]
                self.judge([i for i in ids if i not in failed], actions, results)
                self.revive(failed)
            if self.mode == "disabled" and any(self.model.over):
                self.revive({i for i in ids if self.model.over[i]})

    def receive(self) -> None:
        """Judge what `recv` gives; under autoreset mode disabled, reset what is over and wait for that too."""
        try:
            *values, infos = self.guarded(self.envs.recv)
        except MISBEHAVIOUR as error:
            bad = {i for i, action in self.waiting.items() if (action or 0) >= GOOD_ACTIONS}
            failed = self.failed(error, bad, exactly=False)
            for i in failed:
                del self.waiting[i]
            self.revive(failed)
            return
        ids = [int(i) for i in infos["env_id"]]
        for place, i in enumerate(ids):
            action = self.waiting.pop(i)
            if action is None:
                self.model.begun(i, values[0][place], self.first.pop(i, None), self.asked)
            else:
                self.model.stepped(i, action, tuple(v[place] for v in values), info_of(infos, place))
        over = {i for i in ids if self.mode == "disabled" and self.model.over[i]}
        self.hand += [i for i in ids if i not in over]
        if over:
            self.revive(over)

    def revive(self, ids: set[int]) -> None:
        """Reset some, without a seed."""
        mask = np.isin(np.arange(self.n), sorted(ids))
        if self.by_recv:
            self.guarded(lambda: self.envs.async_reset(options={"reset_mask": mask}))
            self.waiting |= dict.fromkeys(ids)
            return
        seen, _ = self.guarded(lambda: self.envs.reset(options={"reset_mask": mask}))
        for i in range(self.n):
            if i in ids:
                self.model.begun(i, seen[i])
            elif i not in self.model.suspects and not np.array_equal(seen[i], self.model.seen[i]):
                raise Violation(f"a reset of others changed the row of environment {i}")

    def judge(self, ids: list[int], actions: dict[int, int], values: tuple[Any, ...]) -> None:
        *rows, infos = values
        for i in ids:
            self.model.stepped(i, actions[i], tuple(v[i] for v in rows), info_of(infos, i))

    def guarded(self, call: Callable[[], Any]) -> Any:
        """A worker's loss may be an error only if no restart was left, and must name what we did."""
        try:
            return call()
        except WorkerError as error:
            if self.envs.restarts < self.options["restart"]:
                raise Violation(f"not restarted although {self.options['restart'] - self.envs.restarts} were left: "
                                f"{type(error).__name__}: {error}") from error  # fmt: skip
            if isinstance(error, WorkerTimeoutError) and not self.hangs:
                raise Violation(f"a death was noticed at the deadline only: {error}") from error
            if not set(error.env_ids) & set(self.model.suspects):
                raise Violation(f"a loss without a reason: {error}") from error
            raise Over from error

    def failed(self, error: Exception, bad: set[int], exactly: bool = True) -> set[int]:
        """The environments that an exception is about; they must be those that misbehaved."""
        cause = error if isinstance(error, EnvironmentFailure) else error.__cause__
        if not isinstance(cause, EnvironmentFailure):
            raise error
        found = {cause.env_id, *(other.env_id for other in cause.others)}
        if not found <= bad or (exactly and not bad <= found | set(self.model.suspects)):
            raise Violation(f"{found} are blamed for what {bad} did: {error}")
        return found

    # --------------------------------------------------------------------------------------------------------- workers
    def mates(self, worker: int) -> range:
        count = self.options["workers"]
        return range(self.n * worker // count, self.n * (worker + 1) // count)

    def worker_of(self, i: int) -> int:
        return next(worker for worker in range(self.options["workers"]) if i in self.mates(worker))

    def kill(self, worker: int) -> None:
        if self.backend == "ray":
            while self.by_recv and self.waiting:  # an actor tells its process only while nothing is in flight
                self.receive()
            pid = self.envs.apply(lambda env: os.getpid(), [self.mates(worker)[0]])[0]
        else:
            pid = self.envs.worker_pids[worker]
        self.model.suspect(self.mates(worker))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def info_of(infos: dict[str, Any], place: int) -> dict[str, Any]:
    """One environment's share of Gymnasium's infos."""
    return {key: value[place] for key, value in infos.items() if key in ("worker_restarted", "final_obs")
            and infos[f"_{key}"][place]}  # fmt: skip


def fork_servers() -> list[psutil.Process]:
    return [p for p in descendants() if any("forkserver" in word for word in p.cmdline()) and p.ppid() == os.getpid()]


# ------------------------------------------------------------------------------------------------------------ scenarios
def vector(event: Event) -> None:
    """Any backend, everything that can happen to it."""
    backend = event.chance.choice(("serial", *PROCESSES, *PROCESSES, *PROCESSES))
    with nothing_gained():
        Session(event, backend).play(steps=120, rate=0.15)


def vector_construction(event: Event) -> None:
    """Workers, or the fork server, are killed while they start; environments fail or die while they are built."""
    session = Session(event, event.chance.choice(PROCESSES), timeout=20.0)
    event.count(fault := event.chance.choice(["kill -9 while starting", "exit", "killed", "raise"]))
    doomed = {} if fault.startswith("kill -9") else {event.chance.randint(1, session.n): fault}

    def kill_one() -> None:
        if found := descendants():
            event.chance.choice(found).kill()

    with nothing_gained(), contextlib.suppress(WorkerError, LookupError):
        with alarm(event.chance.uniform(0.001, 0.6) if not doomed else 60.0, kill_one):
            session.envs = session.make(doomed)
        with session.envs:
            session.model.suspect(range(session.n))
            session.begin()


def vector_parent(event: Event) -> None:
    """The process that has the environments is killed, or gets the terminal's Ctrl-C with its workers."""
    session = Session(event, event.chance.choice(PROCESSES), timeout=60.0)
    session.seconds = event.chance.choice([0.0, 0.01, 30.0])
    number = event.chance.choice([signal.SIGKILL, signal.SIGINT])
    event.count(f"{number.name} to the parent" + " and all workers" * (number == signal.SIGINT))

    def work() -> int:
        try:
            session.play(1_000_000, 0.0)
        except KeyboardInterrupt:
            return 130
        return 1

    output = event.folder / "parent"
    pid = forked(work, output)
    time.sleep(event.chance.uniform(0.0, 1.5))
    (os.killpg if number == signal.SIGINT else os.kill)(pid, number)
    code, said = waited(pid, patience(20.0)), output.with_suffix(".err").read_text()
    if said or code != (130 if number == signal.SIGINT else -number):
        raise Violation(f"the parent of workers ended with {code} after {number.name}: {said[-500:]}")
    nothing_left(["vector environment"])


def vector_on_ray(event: Event) -> None:
    """Actors are killed: in the interpreter that has Ray, this one or that of `make test-ray`."""
    own = Path(sys.executable).parents[1]
    python = own.with_name(".venv-ray") / "bin" / "python"
    if importlib.util.find_spec("ray") is None and not python.exists():
        return
    script = f"from tests.chaos.vectors import on_ray; on_ray({event.chance.random()}, {str(event.folder / 'ray')!r})"
    chosen = sys.executable if importlib.util.find_spec("ray") else str(python)
    output = event.folder / "on-ray"
    code = waited(forked(lambda: os.execv(chosen, [chosen, "-c", script]), output), patience(120.0))
    if (event.folder / "ray" / "faults.txt").exists():
        shutil.copy(event.folder / "ray" / "faults.txt", event.folder)
    if code != 0:
        raise Violation(f"a session on Ray ended with {code}: {output.with_suffix('.err').read_text()[-500:]}")
    nothing_left(["session on Ray"])


def on_ray(seed: float, folder: str) -> None:
    """A session on Ray, whose actors are killed and whose environments misbehave."""
    event = Event(0, random.Random(seed), Path(folder), Path(folder))
    Session(event, "ray", restart=50, workers=1, timeout=120.0).play(steps=40, rate=0.15)
