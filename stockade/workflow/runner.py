"""Trainings that run beside the search, from proposal to result, through interruptions.

propose -> written down -> engine trains -> checkpoints, result and policy written down -> learn -> propose ...

runs/NAME/  state.json  training_log.csv  gp_log.csv  policies/  trainings/

Everything that decides what happens next is in state.json before it happens: a search that was killed continues as if
nothing had happened, its trainings from their last checkpoints.
"""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stockade.errors import WorkError
from stockade.learn.train import StopSignals
from stockade.text import duration, fixed, interval, plural
from stockade.workflow.board import Board
from stockade.workflow.config import SearchConfig
from stockade.workflow.engine import Engine, Event, Failed, Restarted, Trainer, local_engine
from stockade.workflow.logs import TrainingLog, write_gp_log
from stockade.workflow.records import Saved, Task, UpdateRow, WorkflowResult
from stockade.workflow.store import Proposed, SearchFolder, State, without_arrays
from stockade.workflow.training import train_workflow
from stockade.workflow.units import UNITS

_LISTEN_SECONDS = 0.2
"""How long to wait for an event before looking whether a signal came."""


def make_engine(config: SearchConfig, train: Trainer = train_workflow) -> Engine:
    """What `config.engine` names."""
    if config.engine == "local":
        return local_engine(config.parallel, train)
    from stockade.workflow.ray_engine import RayEngine

    return RayEngine(config.parallel, train, address=config.address, num_cpus=config.num_cpus_per_workflow)


class Runner:
    """Trains what is proposed and writes everything down.

    Args:
        config: of the search.
        folder: where it is written to, and read from if it was interrupted.
        budget: episodes in all, for the progress bar.
        train: what trains an order.

    Attributes:
        proposals, results: by number, in the order in which they came; results without arrays.
        labels: rows of the live table; see `set_rows`. resume: what the user continues, the folder of the search.
    """

    def __init__(
        self, config: SearchConfig, folder: SearchFolder, budget: int, train: Trainer = train_workflow
    ) -> None:
        self.config, self.folder, self.budget, self._train = config, folder, budget, train
        self.resume = folder.path
        self.units = UNITS[config.units]
        state = folder.read_state()
        self.proposals = {p.number: p for p in state.proposals}
        self.results = {r.number: r for r in state.results}
        self.set_rows([], lambda proposed: proposed.number)
        self._before, self._begin = state.seconds, time.monotonic()
        self._unsaved: dict[int, WorkflowResult] = {}
        self._in_flight: dict[int, UpdateRow | None] = {}

    @property
    def used(self) -> int:
        """Episodes of the trainings that are over."""
        return sum(result.episodes for result in self.results.values())

    @property
    def unfinished(self) -> list[Proposed]:
        """Proposals without a result."""
        return [p for p in self.proposals.values() if p.number not in self.results]

    def seconds(self) -> float:
        """That the trainings have taken, earlier sessions included."""
        return self._before + time.monotonic() - self._begin

    def set_rows(self, labels: Sequence[str], row_of: Callable[[Proposed], int]) -> None:
        """The rows of the live table, and which one a training belongs to; before `run`, and whenever they change."""
        self.labels, self._row_of = labels, row_of
        self._board = Board(labels, self.budget, self.used)

    def say(self, text: str) -> None:
        """A remark, above the live table."""
        self._board.say(text)

    def run(self, propose: Callable[[], Proposed | None], learn: Callable[[WorkflowResult], None]) -> int | None:
        """Train until nothing more is proposed; the signal that ended it before, if one did.

        Args:
            propose: gives the next one, or None if nothing is to be done before the next result.
            learn: is given each new result.
        """
        self._learn = learn
        self._interrupted = self.unfinished
        found = {p.number: self.folder.load_training(p.number) for p in self._interrupted}
        self._states = {number: state for number, state in found.items() if state is not None}
        last = {**dict.fromkeys(self.results, math.inf), **{n: update for n, (update, _) in self._states.items()}}
        engine = make_engine(self.config, self._train)
        self._log = TrainingLog(self.folder.path / "training_log.csv", last)
        done = False
        try:
            if self.proposals:
                self.say(f"continuing {self.folder.path}: {plural(len(self.results), 'training')} done, "
                         f"{len(self._interrupted)} interrupted")  # fmt: skip
            with StopSignals() as stop:
                while stop.received is None and not done:
                    while len(self._in_flight) < engine.capacity and (proposed := self._next(propose)) is not None:
                        self._submit(engine, proposed)
                    done = not self._in_flight
                    if not done and (event := engine.next_event(_LISTEN_SECONDS)) is not None:
                        self._take(event)
                engine.close()
                while not done and (event := engine.next_event(0)) is not None:
                    if not isinstance(event, Failed):
                        self._take(event)
                self._save_at_the_end()
            self._board.clear()
        finally:
            engine.close()
            self._log.close()
        if done:
            return None
        assert stop.received is not None
        self._say_stopped(stop.received)
        return stop.received

    def _say_stopped(self, number: int) -> None:
        parts = [f"stopped by {signal.Signals(number).name} after {plural(len(self.results), 'training')}"]
        for training in self._in_flight:
            kept = self.folder.load_training(training)
            text = "begins again" if kept is None else f"is kept after {kept[0]} updates"
            parts.append(f"training {training} ({self._label(self.proposals[training])}) {text}")
        print(f"{'; '.join(parts)}; continue with: stockade search --resume {self.resume}", file=sys.stderr)

    # ----------------------------------------------------------------------------------------------------- handing out
    def _next(self, propose: Callable[[], Proposed | None]) -> Proposed | None:
        """First what was interrupted, then what is proposed."""
        if self._interrupted:
            return self._interrupted.pop(0)
        proposed = propose()
        if proposed is not None:
            self.proposals[proposed.number] = proposed
            self._save()
        return proposed

    def _submit(self, engine: Engine, proposed: Proposed) -> None:
        number, parent = proposed.number, proposed.inherit
        weights = state = None
        note = "begins"
        if number in self._states:
            update, state = self._states.pop(number)
            note = f"continues after {update} updates"
        elif parent is not None:
            note = f"continues training {parent}" if self._strict else f"begins with the weights of {parent}"
            weights, state = self._inherited(parent)
        engine.submit(Task(number, proposed.order, self.config, proposed.seed, proposed.episodes, weights, state))
        self._in_flight[number] = None
        self.say(f"training {number} {note}: {self._label(proposed)}")

    @property
    def _strict(self) -> bool:
        return self.config.constraint == "strict"

    def _inherited(self, parent: int) -> tuple[dict[str, np.ndarray] | None, Any]:
        """Weights, or with strict the whole state, of a training that is over."""
        if parent in self._unsaved:
            result = self._unsaved[parent]
            return (None, result.state) if self._strict else (result.weights, None)
        if not self._strict:
            return self.folder.load_policy(parent, self.results[parent].order)[0], None
        found = self.folder.load_training(parent)
        if found is None:
            raise RuntimeError(f"training {parent} cannot be continued: its state in {self.folder.path} is gone")
        return None, found[1]

    def _label(self, proposed: Proposed) -> str:
        return self.labels[self._row_of(proposed)]

    # ------------------------------------------------------------------------------------------------------- taking in
    def _take(self, event: Event) -> None:
        number = event.number
        if isinstance(event, UpdateRow):
            order = self.proposals[number].order
            self._kept("training_log.csv", lambda: self._log.write(event, order, self.units))
            self._in_flight[number] = event
            self._show()
        elif isinstance(event, Saved):
            self._kept(f"the checkpoint of training {number}", lambda: self._save_training(event))
        elif isinstance(event, Restarted):
            self._kept("training_log.csv", lambda: self._log.forget(number, event.update))
            again = f"continues after {event.update} updates" if event.update else "begins again"
            self.say(f"training {number} {again}: {event.reason}")
        elif isinstance(event, Failed):
            event.error.add_note(f"What is finished is kept; continue with: stockade search --resume {self.resume}")
            raise event.error
        else:
            self._finish(event)

    def _save_training(self, event: Saved) -> None:
        self._log.sync()
        self.folder.save_training(event.number, event.update, event.state)

    def _finish(self, result: WorkflowResult) -> None:
        allowed = self.proposals[result.number].episodes
        if result.episodes > allowed:
            raise RuntimeError(f"training {result.number} played {result.episodes} episodes instead of {allowed}")
        del self._in_flight[result.number]
        self._unsaved[result.number] = result
        self.results[result.number] = without_arrays(result)
        self._learn(self.results[result.number])
        self._save()
        gain = f", {result.gain:+.2f}" if math.isfinite(result.gain) else ""
        compliance = "" if self._strict else f", compliance {fixed(result.compliance, 3)}, {result.stopped}"
        self.say(f"training {result.number}: {self._label(self.proposals[result.number])} "
                 f"{interval(result.value, 1.96 * result.value_error)}{gain}{compliance}; "
                 f"{result.episodes:,} episodes in {duration(result.seconds)}")  # fmt: skip
        self._show()

    def _show(self) -> None:
        """The live table: the latest value of each row, its gain, and its share of the trainings in flight."""
        values, gains, shares = (np.full(len(self.labels), x) for x in (np.nan, np.nan, 0.0))
        for number, result in self.results.items():
            row = self._row_of(self.proposals[number])
            values[row], gains[row] = result.value, abs(result.gain)
        for number in self._in_flight:
            shares[self._row_of(self.proposals[number])] += 1 / len(self._in_flight)
        self._board.show(self._log.total_episodes, self.budget, values, gains, shares)

    # -------------------------------------------------------------------------------------------------------- on disk
    def _save(self) -> None:
        """All that is known; if the disk is full, what was there before is intact and the next time tries again."""
        self._kept("the state of the search", self._save_all)

    def _save_at_the_end(self) -> None:
        try:
            self._save_all()
        except OSError as error:
            raise WorkError(f"the end of the search could not be written: {error}. Make room, then continue with: "
                            f"stockade search --resume {self.resume}") from error  # fmt: skip

    def _kept(self, what: str, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self.say(f"warning: {what} could not be written, the search goes on: {error}")

    def _save_all(self) -> None:
        for number, result in list(self._unsaved.items()):
            self.folder.save_policy(result, self.config)
            if result.state is not None:
                self.folder.save_training(number, result.updates, result.state)
            del self._unsaved[number]
        self._log.sync()
        results = tuple(self.results.values())
        self.folder.write_state(State(tuple(self.proposals.values()), results, self.seconds()))
        latest = {r.order: r.number for r in results}.values() if self._strict else ()
        self.folder.forget_trainings({*latest, *(p.number for p in self.unfinished)})
        write_gp_log(self.folder.path / "gp_log.csv", self.proposals.values(), self.results, self.units)
