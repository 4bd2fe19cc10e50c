"""Trainings that run beside the search, from proposal to result, through interruptions.

propose -> written down -> engine trains -> checkpoints, result and policy written down -> learn -> propose ...

Everything that decides what happens next is in state.json before it happens: a search that was killed continues as if
nothing had happened, its trainings from their last checkpoints.
"""

import contextlib
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from stockade.learn.train import StopSignals
from stockade.text import duration, fixed, interval, plural
from stockade.workflow.board import HALF_WIDTH, Board
from stockade.workflow.config import SearchConfig
from stockade.workflow.engine import Event, Failed, Restarted, Trainer, make_engine
from stockade.workflow.orders import UNITS
from stockade.workflow.store import Proposed, Saved, SearchFolder, State, Task, TrainingLog, UpdateRow, WorkflowResult

_LISTEN_SECONDS = 0.2  #: to wait for an event before looking whether a signal came


class Runner:
    """Trains what is proposed and writes everything down, in a folder that it reads first if it was interrupted.

    `label` names a training in the live table; `resume` is what the user continues, the folder of the search.
    """

    def __init__(
        self, config: SearchConfig, folder: SearchFolder, train: Trainer, label: Callable[[Proposed], str],
        resume: Path | None = None,
    ) -> None:  # fmt: skip
        self.config, self.folder, self._train, self._label = config, folder, train, label
        self._search = resume or folder.path
        self._again = f"continue with: stockade search --resume {self._search}"
        self._units, self._strict = UNITS[config.units], config.constraint == "strict"
        state = folder.read_state()
        self.proposals = {p.number: p for p in state.proposals}  #: by number, in the order in which they came
        self.results = {r.number: r for r in state.results}  #: the same; without arrays
        self._begin = time.monotonic() - state.seconds
        self._unsaved: dict[int, WorkflowResult] = {}
        self._board = Board(config.budget, self.used)
        self.say = self._board.say  #: a remark, above the live table

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
        return time.monotonic() - self._begin

    def run(self, propose: Callable[[], Proposed | None], learn: Callable[[WorkflowResult], None]) -> int | None:
        """Train until nothing more is proposed; the signal that ended it before, if one did.

        `propose` gives None if nothing is to be done before the next result; `learn` is given each new result.
        """
        self._learn, waiting = learn, self.unfinished
        self._states = {p.number: saved for p in waiting if (saved := self.folder.load_training(p.number)) is not None}
        last = {**dict.fromkeys(self.results, math.inf), **{n: state.update for n, state in self._states.items()}}
        engine = self._engine = make_engine(self.config, self._train)
        log = self.folder.path / "training_log.csv"
        self._log = TrainingLog(log, lambda number, update: update <= last.get(number, 0))
        done = False
        with contextlib.closing(engine), StopSignals() as stop:
            if self.proposals:
                self.say(f"continuing {self.folder.path}: {plural(len(self.results), 'training')} done, "
                         f"{len(waiting)} interrupted")  # fmt: skip
            while stop.received is None and not done:
                while len(engine.in_flight) < engine.capacity:  # first what was interrupted, then what is proposed
                    if (proposed := waiting.pop(0) if waiting else propose()) is None:
                        break
                    if proposed.number not in self.proposals:
                        self.proposals[proposed.number] = proposed
                        self._try_to_save()
                    engine.submit(self._task(proposed))
                done = not engine.in_flight
                if not done and (event := engine.next_event(_LISTEN_SECONDS)) is not None:
                    self._take(event)
            engine.close()
            while (event := engine.next_event(0)) is not None:
                if not isinstance(event, Failed):
                    self._take(event)
            search = SearchFolder(self._search)
            with search.ending("the last results"):
                self._save()
            search.require_end()
        self._board.clear()
        if stop.received is None or done:
            return None
        parts = [f"stopped by {signal.Signals(stop.received).name} after {plural(len(self.results), 'training')}"]
        for number in engine.in_flight:
            kept = self.folder.load_training(number)
            text = "begins again" if kept is None else f"is kept after {kept.update} updates"
            parts.append(f"training {number} ({self._label(self.proposals[number])}) {text}")
        print(f"{'; '.join(parts)}; {self._again}", file=sys.stderr)
        return stop.received

    # ----------------------------------------------------------------------------------------------------- handing out
    def _task(self, proposed: Proposed) -> Task:
        number, parent = proposed.number, proposed.inherit
        weights = state = None
        note = "begins"
        if number in self._states:
            state = self._states[number].state
            note = f"continues after {self._states[number].update} updates"
        elif parent is not None and self._strict:
            note = f"continues training {parent}"
            found = self._unsaved.get(parent) or self.folder.load_training(parent)
            if found is None:
                raise RuntimeError(f"training {parent} cannot be continued: its state in {self.folder.path} is gone")
            state = found.state
        elif parent is not None:
            note = f"begins with the weights of {parent}"
            known = self._unsaved.get(parent)
            weights = known.weights if known else self.folder.load_policy(parent, self.results[parent].order)[0]
        self.say(f"training {number} {note}: {self._label(proposed)}")
        return Task(number, proposed.order, self.config, proposed.seed, proposed.episodes, weights, state)

    # ------------------------------------------------------------------------------------------------------- taking in
    def _take(self, event: Event) -> None:
        number = event.number
        if isinstance(event, UpdateRow):
            self._log.write(event, self.proposals[number].order, self._units)
            self._show()
        elif isinstance(event, Saved):
            with self._tolerant(f"the checkpoint of training {number}"):
                self._log.sync()
                self.folder.save_training(event)
        elif isinstance(event, Restarted):
            after = event.update
            self._log.keep(lambda n, update: n != number or update <= after)
            again = f"continues after {event.update} updates" if event.update else "begins again"
            self.say(f"training {number} {again}: {event.reason}")
        elif isinstance(event, Failed):
            event.error.add_note(f"What is finished is kept; {self._again}")
            raise event.error
        else:
            self._finish(event)

    def _finish(self, result: WorkflowResult) -> None:
        proposed = self.proposals[result.number]
        if result.episodes > proposed.episodes:
            raise RuntimeError(f"training {result.number} played {result.episodes} episodes instead of "
                               f"{proposed.episodes}")  # fmt: skip
        self._unsaved[result.number] = result
        self.results[result.number] = WorkflowResult(**result.to_json())
        self._learn(self.results[result.number])
        self._try_to_save()
        gain = f", {result.gain:+.2f}" if math.isfinite(result.gain) else ""
        compliance = "" if self._strict else f", compliance {fixed(result.compliance, 3)}, {result.stopped}"
        self.say(f"training {result.number}: {self._label(proposed)} "
                 f"{interval(result.value, HALF_WIDTH * result.value_error)}{gain}{compliance}; "
                 f"{result.episodes:,} episodes in {duration(result.seconds)}")  # fmt: skip
        self._show()

    def _show(self) -> None:
        """The live table: the latest value of each row, its gain, and its share of the trainings in flight."""
        labels = {number: self._label(proposed) for number, proposed in self.proposals.items()}
        latest = {labels[number]: (result.value, abs(result.gain)) for number, result in self.results.items()}
        flying = [labels[number] for number in self._engine.in_flight]
        self._board.show(self._log.total_episodes, self.config.budget, [
            (label, *latest.get(label, (math.nan, math.nan)), flying.count(label) / max(1, len(flying)))
            for label in dict.fromkeys(labels.values())
        ])  # fmt: skip

    # -------------------------------------------------------------------------------------------------------- on disk
    @contextlib.contextmanager
    def _tolerant(self, what: str) -> Iterator[None]:
        """If the disk is full, what was there before is intact and the next time tries again."""
        try:
            yield
        except OSError as error:
            self.say(f"warning: {what} could not be written, the search continues: {error}")

    def _try_to_save(self) -> None:
        with self._tolerant("the state of the search"):
            self._save()

    def _save(self) -> None:
        for number, result in list(self._unsaved.items()):
            self.folder.save_policy(result, self.config)
            if result.state is not None:
                self.folder.save_training(Saved(number, result.updates, result.state))
            del self._unsaved[number]
        self._log.sync()
        results = tuple(self.results.values())
        self.folder.write_state(State(tuple(self.proposals.values()), results, self.seconds()), self._units)
        latest = {r.order: r.number for r in results}.values() if self._strict else ()
        self.folder.forget_trainings({*latest, *(p.number for p in self.unfinished)})
