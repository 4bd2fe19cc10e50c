"""Violations made on purpose: the chaos run must find every one, or it finds nothing."""

import os
import socket
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.chaos import checks, commands, world
from tests.chaos.checks import Command, Event, forked, nothing_gained
from tests.chaos.vectors import Session


def honest(event: Event) -> None:
    """The only one without a violation."""
    with nothing_gained():
        Session(event, "serial").play(100, 0.1)
    Command(event, "runs", "--runs", event.folder).end(1)


def leaves_a_process(event: Event) -> None:
    forked(lambda: forked(lambda: time.sleep(60)))


def leaves_a_descriptor(event: Event) -> None:
    with nothing_gained():
        event.kept = socket.socketpair()  # type: ignore[attr-defined]


def leaves_shared_memory(event: Event) -> None:
    with nothing_gained():
        path = Path(f"/dev/shm/stockade-{os.getpid()}")
        path.touch()
    path.unlink()


def says_a_traceback(event: Event) -> None:
    Command(event, "runs", before=lambda: 1 / 0).end(0, 1, 2)  # type: ignore[arg-type]


def has_a_wrong_exit_code(event: Event) -> None:
    Command(event, "evaluate", "nobody").end(0)


def hangs(event: Event) -> None:
    checks.HANG_SECONDS = 0.2
    Command(event, "runs", before=lambda: time.sleep(60)).end(0)


def _plays(event: Event, wrong: Any) -> None:
    with mock.patch.object(world.TellTale, "step", wrong(world.TellTale.step)):
        Session(event, "serial").play(200, 0.0)


def has_a_wrong_number(event: Event) -> None:
    """In one row of thousands."""

    def wrong(step: Any) -> Any:
        def spoiled(self: Any, action: int) -> Any:
            seen, *rest = step(self, action)
            seen[-1] += event.chance.random() < 0.05
            return seen, *rest

        return spoiled

    _plays(event, wrong)


def repeats_a_step(event: Event) -> None:
    """A late answer that is taken for the next: a whole row, but not this one."""

    def wrong(step: Any) -> Any:
        def spoiled(self: Any, action: int) -> Any:
            seen, *rest = step(self, action)
            stale = world.row(*np.add(self._place, (0, 0, -1)), action) if event.chance.random() < 0.05 else seen
            return stale, *rest

        return spoiled

    _plays(event, wrong)


def restarts_without_a_reason(event: Event) -> None:
    model = world.Model(1, "next_step")
    model.begun(0, world.row(5, 0, 0, -1), 5)
    model.stepped(0, 1, (world.row(5, 0, 0, -1), 0.0, False, True), {"worker_restarted": True})


def misses_a_death(event: Event) -> None:
    """A worker is dead, its environments go on."""
    model = world.Model(1, "next_step")
    model.begun(0, world.row(5, 0, 0, -1), 5)
    with mock.patch.object(world, "_NOTICE", 0.0):
        model.suspect([0])
        for step in (1, 2, 3):
            model.stepped(0, 1, (world.row(5, 0, step, 1), step + 1 / 128, False, False), {})


def has_other_weights(event: Event) -> None:
    """The end of a run has one array of another content, which shows in its name."""
    runs = event.references / "train-native"
    for run in (runs / "x", event.folder / "x"):
        (run / "checkpoints").mkdir(parents=True)
        (run / "checkpoints" / f"checkpoint-1-{run.parent.name}.safetensors").touch()
    (runs / "seconds").write_text("1")
    commands.same_as_reference(event, "train native", event.folder / "x")


SCENARIOS = (
    honest, leaves_a_process, leaves_a_descriptor, leaves_shared_memory, says_a_traceback, has_a_wrong_exit_code, hangs,
    has_a_wrong_number, repeats_a_step, restarts_without_a_reason, misses_a_death, has_other_weights,
)  # fmt: skip
