"""`stockade search`: a search from its settings to its ranking, through interruptions.

strategy.propose -> written down -> engine trains -> result and policy written down -> strategy.tell -> propose ...

runs/NAME/  config.json  state.json  training_log.csv  gp_log.csv  summary.json  policies/

Everything that decides what happens next is in state.json before it happens, and everything else is derived: a search
that was killed goes on as if nothing had happened.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from stockade.cage2.config import WorldConfig
from stockade.errors import InputError
from stockade.learn.files import write_durably
from stockade.learn.train import StopSignals
from stockade.workflow.config import SearchConfig
from stockade.workflow.engine import Engine, Event, Failed, Restarted, Trainer, local_engine
from stockade.workflow.logs import TrainingLog, write_gp_log
from stockade.workflow.orders import ALL_MATTER, UNIT_TYPES, Order, kendall, restricted, types_red_can_hold
from stockade.workflow.progress import Progress, make_progress
from stockade.workflow.proposals import Proposal, make_strategy
from stockade.workflow.records import Task, UpdateRow, WorkflowResult
from stockade.workflow.store import Proposed, SearchFolder, State
from stockade.workflow.summary import label, ranking_table, standings, summary_of
from stockade.workflow.training import train_workflow

_LISTEN_SECONDS = 0.2
"""How long to wait for an event before looking whether a signal came."""

_OF_A_SITTING = ("plots", "json", "engine", "address", "num_cpus_per_workflow")
"""Settings that a resumed search takes from the command line: where and how, not what."""

Draw = Callable[[Path], list[Path]]
"""Draws the pictures of a search, given its folder; the files. Raises InputError if it cannot."""


def search(
    config: SearchConfig, train: Trainer = train_workflow, draw: Draw | None = None,
    make_engine: Callable[[int, Trainer], Engine] | None = None,
) -> int:  # fmt: skip
    """Begin a search or go on with one; the exit code.

    Args:
        config: settings; with `resume` they are those of the search that is gone on with.
        train: trains one workflow.
        draw: draws the pictures at the end; this layer knows nothing of pictures.
        make_engine: makes what trains so many workflows at once; None for what `config.engine` names.
    """
    if config.json is not None and not config.json.absolute().parent.is_dir():
        raise InputError(f"--json {config.json}: there is no folder {config.json.parent}")
    folder = None
    if config.resume is None:
        _check_budget(config)
    else:
        folder = SearchFolder.find(config.resume, config.runs)
        config = replace(folder.read_config(), **{name: getattr(config, name) for name in _OF_A_SITTING})
    engine = (make_engine or _engine_maker(config))(config.parallel, train)  # before the folder: it may be refused
    try:
        folder = folder or SearchFolder.create(config)
        sitting = _Sitting(config, folder, engine)
        stopped = sitting.play()
    finally:
        engine.close()
    if stopped is not None:
        done = f"{len(sitting.results)} trainings, {sitting.used} episodes"
        print(f"stopped by {signal.Signals(stopped).name} after {done}; go on with: stockade search --resume "
              f"{folder.path}", file=sys.stderr)  # fmt: skip
        return 128 + stopped
    sitting.report(draw if config.plots else None)
    return 0


def _engine_maker(config: SearchConfig) -> Callable[[int, Trainer], Engine]:
    if config.engine == "local":
        return local_engine
    from stockade.workflow.ray_engine import RayEngine

    return partial(RayEngine, address=config.address, num_cpus=config.num_cpus_per_workflow)


class _Sitting:
    """One sitting of a search: from where it stands to its end, or to a signal.

    Attributes:
        results: by number, in the order in which they came; without weights.
        ended: why the search is over, once it is.
    """

    def __init__(self, config: SearchConfig, folder: SearchFolder, engine: Engine) -> None:
        self.config, self.folder, self.engine = config, folder, engine
        state = folder.read_state()
        red = WorldConfig(red=config.red).red
        matters = types_red_can_hold(red, config.rules, config.horizon) if config.classes else ALL_MATTER
        self.strategy = make_strategy(config, matters)
        self.results: dict[int, WorkflowResult] = {}
        self.ended: str | None = None
        self._nothing_more: str | None = None
        self._proposals = {p.number: p for p in state.proposals}
        self._unsaved: dict[int, WorkflowResult] = {}
        self._before, self._begin = state.seconds, time.monotonic()
        self._remarks: list[str] = []
        for result in state.results:
            self._learn(result)
        self._interrupted = [p for p in state.proposals if p.number not in self.results]
        self._under_way: set[int] = set()
        self._log = TrainingLog(folder.path / "training_log.csv", self.results)
        self._progress: Progress = make_progress(config.budget, self.used)

    @property
    def used(self) -> int:
        """Episodes of the trainings that are over."""
        return sum(result.episodes for result in self.results.values())

    def play(self) -> int | None:
        """Search; the signal that ended it, if one did."""
        if self._proposals:
            self._progress.say(f"going on with {self.folder.path}: {len(self.results)} trainings are done, "
                               f"{len(self._interrupted)} begin again")  # fmt: skip
        self._say_new()
        try:
            with StopSignals() as stop:
                while stop.received is None:
                    while len(self._under_way) < self.engine.capacity and (proposed := self._next()) is not None:
                        self._submit(proposed)
                    if not self._under_way:
                        self.ended = self._nothing_more
                        break
                    event = self.engine.next_event(_LISTEN_SECONDS)
                    if event is not None:
                        self._take(event)
                    self._progress.tick()
                self._save()
        finally:
            self._progress.close()
            self._log.close()
        return stop.received if self.ended is None else None

    # ----------------------------------------------------------------------------------------------------- handing out
    def _next(self) -> Proposed | None:
        """What to train next: first what was interrupted, then what is proposed; None if nothing is for now."""
        if self._interrupted:
            return self._interrupted.pop(0)
        config = self.config
        unfinished = [p for p in self._proposals.values() if p.number not in self.results]
        number = len(self._proposals)
        if number == config.n_workflows:
            self._nothing_more = f"all {number} trainings are done"
            return None
        episodes = allowance(config, self.used, sum(p.episodes for p in unfinished), first=number == 0)
        if episodes == 0:
            self._nothing_more = "the rest of the budget is too small for another training"
            return None
        proposal = self.strategy.propose([p.order for p in unfinished])
        if proposal is None:
            self._nothing_more = "there is nothing left to try"
            return None
        inherit = parent_of(proposal.order, config.protocol.inherit, self.results, self.strategy.matters)
        proposed = Proposed(
            number, proposal.order, seed_of(config.seed, number), episodes, inherit,
            proposal.ucb, proposal.mean, proposal.sd, proposal.feasibility, self._top(proposal),
        )  # fmt: skip
        self._proposals[number] = proposed
        self._save()
        return proposed

    def _top(self, proposal: Proposal) -> str:
        return "; ".join(
            f"{label(c.order, self.strategy.matters)} ucb {c.ucb:.2f} mean {c.mean:.2f} sd {c.sd:.2f} "
            f"feasible {c.feasibility:.2f}"
            for c in proposal.top
        )

    def _submit(self, proposed: Proposed) -> None:
        weights, note = None, "new weights"
        if proposed.inherit is not None:
            parent = proposed.inherit
            if parent in self._unsaved:
                weights = self._unsaved[parent].weights
            else:
                weights = self.folder.load_weights(parent, self.results[parent].order)
            note = f"from {parent}"
        self.engine.submit(
            Task(proposed.number, proposed.order, self.config, proposed.seed, proposed.episodes, weights)
        )
        self._under_way.add(proposed.number)
        self._progress.begin(proposed.number, label(proposed.order, self.strategy.matters), note)

    # ------------------------------------------------------------------------------------------------------- taking in
    def _take(self, event: Event) -> None:
        number = event.number
        if isinstance(event, UpdateRow):
            self._kept("training_log.csv", lambda: self._log.write(event, self._proposals[number].order))
            self._progress.update(event, self._log.total_episodes)
        elif isinstance(event, Restarted):
            self._kept("training_log.csv", lambda: self._log.forget(number))
            self._progress.restart(number, event.reason, self._log.total_episodes)
        elif isinstance(event, Failed):
            event.error.add_note(f"What is finished is kept: go on with stockade search --resume {self.folder.path}")
            raise event.error
        else:
            self._finish(event)

    def _finish(self, result: WorkflowResult) -> None:
        allowed = self._proposals[result.number].episodes
        if result.episodes > allowed:
            raise RuntimeError(f"training {result.number} played {result.episodes} episodes instead of {allowed}")
        self._under_way.remove(result.number)
        self._unsaved[result.number] = result
        self._learn(replace(result, weights={}, architecture={}))
        self._save()
        self._progress.finish(result, self._log.total_episodes)
        self._say_new()

    def _learn(self, result: WorkflowResult) -> None:
        """Tell the strategy; also if red held a type that nobody thought it could."""
        self.results[result.number] = result
        new = np.array(result.held) & ~self.strategy.matters
        if new.any():
            names = ", ".join(UNIT_TYPES[unit] for unit in np.flatnonzero(new))
            self._remarks.append(f"in training {result.number} red held what it was not thought to: {names}. Orders "
                                 "that differ there count as different from now on.")  # fmt: skip
            self.strategy.set_matters(self.strategy.matters | new)
        self.strategy.tell(result)

    def _say_new(self) -> None:
        for remark in self._remarks:
            self._progress.say(remark)
        self._remarks.clear()

    # -------------------------------------------------------------------------------------------------------- on disk
    def _save(self) -> None:
        """All that is known; if the disk is full, what was there before is intact and the next time tries again."""
        self._kept("the state of the search", self._save_all)

    def _kept(self, what: str, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self._progress.say(f"warning: {what} could not be written, the search goes on: {error}")

    def _save_all(self) -> None:
        for number, result in list(self._unsaved.items()):
            self.folder.save_policy(result, self.config)
            del self._unsaved[number]
        self._log.sync()
        self.folder.write_state(State(tuple(self._proposals.values()), tuple(self.results.values()), self._seconds()))
        write_gp_log(self.folder.path / "gp_log.csv", self._proposals.values(), self.results)
        content = json.dumps(self._summary(), indent=1, allow_nan=False) + "\n"
        write_durably(self.folder.path / "summary.json", content.encode())

    def _seconds(self) -> float:
        return self._before + time.monotonic() - self._begin

    def _summary(self) -> dict[str, object]:
        paths = {n: self.folder.policy_path(n, r.order).relative_to(self.folder.path) for n, r in self.results.items()}
        return summary_of(self.config, self.strategy, list(self.results.values()),
                          {n: f"{path}.json" for n, path in paths.items()}, self.ended, self._seconds())  # fmt: skip

    # ------------------------------------------------------------------------------------------------------ at the end
    def report(self, draw: Draw | None) -> None:
        """Print the ranking and where everything is."""
        rows = standings(self.strategy, list(self.results.values()))
        print(f"\n{ranking_table(rows, self.strategy.matters)}\n")
        print(f"{len(self.results)} trainings, {self.used:,} of {self.config.budget:,} episodes, "
              f"{self._seconds():.0f} s; {self.ended}.")  # fmt: skip
        if not any(row.feasible for row in rows):
            print("No order was complied with: raise --max-episodes or --alignment-lambda, or lower "
                  "--compliance-threshold.")  # fmt: skip
        if self.config.json is not None:
            write_durably(self.config.json, (self.folder.path / "summary.json").read_bytes())
        print(f"tables, policies: {self.folder.path}")
        if draw is not None:
            try:
                print(f"pictures: {', '.join(str(path) for path in draw(self.folder.path))}")
            except InputError as error:
                print(f"pictures: none; {error}")


def _check_budget(config: SearchConfig) -> None:
    if allowance(config, used=0, reserved=0, first=True) == 0:
        raise InputError(f"a single update of {config.ppo.update_steps} steps plays more episodes than --max-episodes "
                         f"{config.task_episodes} and --total-episodes {config.budget} allow; take fewer "
                         "--update-steps or --n-envs")  # fmt: skip


def seed_of(seed: int, number: int) -> int:
    """Of a training, from the seed of the search."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def allowance(config: SearchConfig, used: int, reserved: int, first: bool) -> int:
    """Episodes that a new training may use: whole updates that surely fit the budget; 0 if that is too little for one.

    Args:
        config: of the search.
        used: by trainings that are over.
        reserved: what those under way may still use, with what they have used.
        first: nothing was trained yet, so that even a short training is better than none.
    """
    left = config.budget - used - reserved
    episodes = whole_updates(config, min(config.task_episodes, left))
    most = whole_updates(config, config.task_episodes)
    least = most if config.protocol.fixed_episodes else min(config.protocol.min_episodes, most)
    return episodes if first or episodes >= least else 0


def whole_updates(config: SearchConfig, limit: int) -> int:
    """The most episodes, not above `limit`, after which an update can end.

    All environments are in step: each row of an update is a step of all of them, and an episode takes its steps and a
    row in which the next one begins. So after u updates (u x steps + 1) // (episode + 1) episodes of each are over.
    """
    episode, steps = config.horizon, config.ppo.update_steps
    each = limit // config.n_envs
    updates = ((each + 1) * (episode + 1) - 2) // steps if each > 0 else 0
    return config.n_envs * ((updates * steps + 1) // (episode + 1))


def parent_of(order: Order, inherit: str, results: Mapping[int, WorkflowResult], matters: np.ndarray) -> int | None:
    """The training whose weights another one begins with; of equally good ones the latest.

    Args:
        order: of the other one.
        inherit: as in SearchConfig.
        results: that are there, in the order in which they came.
        matters: types of which the place in an order counts.
    """
    latest_first = list(results.values())[::-1]
    if inherit == "same":
        kept = restricted(order, matters)
        latest_first = [r for r in latest_first if restricted(r.order, matters) == kept]
    if inherit == "none" or not latest_first:
        return None
    if inherit == "nearest":
        return min(latest_first, key=lambda r: kendall(order, r.order, matters)).number
    return latest_first[0].number
