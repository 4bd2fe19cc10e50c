"""`stockade search`: from settings to a verdict, through interruptions.

settings -> folder -> training (together.py or separate.py) -> Outcome -> answer (summary.py) -> verdict, pictures

runs/NAME/  config.json  checkpoints/ or state.json  policies/  summary.json  pictures/
"""

import html
import math
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stockade.errors import InputError, SettingError
from stockade.files import json_output, json_ready
from stockade.learn.agents import Agent
from stockade.learn.checkpoint import Checkpoint, CheckpointFolder, save
from stockade.learn.config import refuse_changes
from stockade.learn.files import run_session
from stockade.learn.train import StopSignals
from stockade.text import duration, plural
from stockade.workflow.board import HALF_WIDTH, Board
from stockade.workflow.config import SearchConfig
from stockade.workflow.orders import FREE, ORDERS, TYPES, Ranking, hosts_red_can_hold, representative
from stockade.workflow.policies import load_search
from stockade.workflow.store import SearchFolder
from stockade.workflow.summary import Answer, Outcome, answer
from stockade.workflow.together import JUDGE_SEED, HostTraining, TogetherTraining, best_told, finer, goal_value, propose

#: File of the policy for all orders, in the folder of a search.
POLICY = "policies/conditioned.json"


@dataclass(frozen=True)
class SearchResult:
    """A search's result, for notebooks and scripts."""

    folder: Path
    answer: Answer | None  #: the verdict in every form; None if the search was interrupted before it
    stopped: int | None = None  #: the signal that interrupted the search or its certification

    @property
    def exit_code(self) -> int:
        return 0 if self.stopped is None else 128 + self.stopped

    @property
    def verdict(self) -> str:
        return "" if self.answer is None else "\n".join(self.answer.lines)

    @property
    def best(self) -> list[str]:
        """The orders in the winning set."""
        return list(self.to_dict().get("best", ()))

    @cached_property
    def agent(self) -> Agent:
        """The policy for the best order, as `stockade.load(folder)` gives it."""
        return load_search(self.folder)

    def to_dict(self) -> dict[str, Any]:
        """Content of summary.json."""
        return {} if self.answer is None else dict(json_ready(self.answer.summary))

    def __repr__(self) -> str:
        return f"SearchResult({self.folder}):\n{self.verdict or 'interrupted; continue it with resume='}"

    def _repr_html_(self) -> str:
        if self.answer is None:
            return html.escape(repr(self))
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self.answer.lines)
        return lines + self.answer.table._repr_html_()


def search(config: SearchConfig) -> SearchResult:
    """Begin a search or continue one."""
    with json_output(config.json) as write:
        config, folder = _open(config)
        for remark in config.without_effect():
            print(f"warning: {remark}", file=sys.stderr, flush=True)
        with run_session(folder.path):
            folder.extend(config)
            if config.separate:
                from stockade.workflow.separate import SeparateSession

                session = SeparateSession(config, folder)
                stopped = session.run()
                found = session.outcome() if stopped is None else stopped
            else:
                found = _together(config, folder)
            if not isinstance(found, Outcome):
                return SearchResult(folder.path, None, found)
            result = finish(config, folder, found)
            write(result.to_dict())
            folder.require_end()
    return result


def _open(config: SearchConfig) -> tuple[SearchConfig, SearchFolder]:
    """The settings that count and the folder, new or that of the search to continue."""
    if config.resume is None:
        if not config.separate and config.budget < 2 * config.update_episodes:
            least = f"is less than two updates of {config.update_episodes} episodes"
            raise SettingError("total_episodes", config.budget, least)
        if (config.separate or config.certify) and config.engine == "ray":  # before a folder is made
            from stockade.vector.ray.cluster import load_ray, require_listener

            load_ray()
            require_listener(config.address or os.environ.get("RAY_ADDRESS", ""))
        return config, SearchFolder.create(config)
    folder = SearchFolder.find(config.resume, config.runs)
    own = folder.read_config()
    if config.budget < own.budget:
        smaller = f"is less than the {own.budget:,} of {folder.path}: a search can only be extended"
        raise SettingError("total_episodes", config.total_episodes, smaller)
    if config.name not in (None, folder.path.name):
        raise SettingError("name", config.name, f"cannot be changed by --resume: it is {folder.path.name}")
    refuse_changes(config, own, (*own.of_a_session, "total_episodes", "first_version"))
    not_given = [name for name, value in vars(config.first_version).items() if value is None]
    refuse_changes(config.first_version, own.first_version, not_given)
    return config, folder


# ------------------------------------------------------------------------------------------------- all orders together
def _together(config: SearchConfig, folder: SearchFolder) -> Outcome | int:
    """What was measured, or the signal that interrupted it."""
    held = np.any([hosts_red_can_hold(red, config.rules, config.horizon, config.judge) for red in config.reds], axis=0)
    matters = TYPES.matters(held)
    types = list(dict.fromkeys(representative(order, matters) for order in ORDERS) if config.classes else ORDERS)
    checkpoints = CheckpointFolder(folder.path / "checkpoints", keep=2)
    training = (TogetherTraining(config, [*types, FREE], checkpoints) if config.units == "types"
                else HostTraining(config, held, types, checkpoints))  # fmt: skip
    if training.extended_from is not None:
        print(f"extended from {training.extended_from:,} to {training.budget:,} episodes: learning rate, exploration, "
              "discount and the bonus of Restores go back to where the larger budget has them", flush=True)  # fmt: skip
    elif training.episodes:
        print(f"continuing {folder.path} after {training.episodes:,} episodes", flush=True)
    else:
        print(f"{plural(len(types), 'class', 'classes')} of orders that differ in effect against "
              f"{' and '.join(config.reds)}; {training.budget:,} episodes of training", flush=True)  # fmt: skip
    labels = [*(TYPES.describe(order, matters) for order in [*types, FREE]), "best order of hosts"]
    board = Board(training.last_goal, training.episodes)
    try:
        with StopSignals() as stop:
            training.run(lambda: stop.received is not None, lambda t: _show(board, labels, t))
            board.clear()
        received = stop.received
        if received is None:  # from here on there is nothing to save: a signal ends it at once
            outcome = _measure(training, training.units.matters(held))
            with folder.ending("the last checkpoint"):
                training.save()  # again, if there was no room before
                if not training.is_saved:
                    raise OSError("see the warning")
            with folder.ending("the policy"):
                save_policy(folder.path, training, outcome.orders)
            return outcome
    except KeyboardInterrupt:
        received = signal.SIGINT
    finally:
        training.close()
    kept = "which are kept" if training.is_saved else "the last of which could NOT be saved"
    print(f"stopped by {signal.Signals(received).name} after {training.episodes:,} episodes, {kept}; continue with: "
          f"stockade search --resume {folder.path}", file=sys.stderr)  # fmt: skip
    return received


def _measure(training: TogetherTraining, matters: np.ndarray) -> Outcome:
    """The values of all orders of types, the free agent, and with --units hosts the best orders of hosts."""
    judged, references = training.config.judged_episodes, training.n_first
    finalists, extra, tried, seconds = [], {}, "", training.seconds()
    if isinstance(training, HostTraining):
        print("GP-UCB proposes orders of hosts; greedy episodes measure them ...", flush=True)
        before = len(training.orders)
        finalists = propose(training)
        tried = (f"Tried: all {references - 1} classes of orders of types; {len(training.orders) - before:,} of the "
                 f"{math.factorial(int(matters.sum())):,} orders of single hosts. The best {len(finalists)} of these "
                 "were judged.")  # fmt: skip
    print(f"judging every order by {judged:,} greedy episodes ...", flush=True)
    chosen = [*range(references - 1), *finalists, references - 1]  # the free agent is the last
    told, merit = best_told(training, chosen)
    returns = training.returns(judged, JUDGE_SEED, chosen, told)
    noise, level = training.training_noise()
    moved = noise[:, :references]
    sd = np.concatenate([moved[:, :-1], np.repeat(moved.mean(axis=1, keepdims=True), len(finalists), axis=1)], axis=1)
    episodes = np.pad(training.episodes_by_order, (0, len(training.orders) - len(training.episodes_by_order)))
    orders, curves = tuple(training.orders[k] for k in chosen[:-1]), asdict(training.curves)
    if isinstance(training, HostTraining):  # its curves end with the leader of each round in place of the finalists
        types = [training.units.describe(order, matters) for order in orders[: references - 1]]
        curves["orders"] = [*types, "no order", "best order of hosts"]
        extra = finer(training, chosen[:-1], merit[:-1], returns)
    why = "values stopped improving after" if training.last_goal < training.budget else "the budget is used:"
    ended = f"{why} {training.episodes:,} of {training.budget:,} episodes"
    return Outcome(
        training.units, matters, orders, returns[:, :-1], sd, episodes[chosen[:-1]], returns[:, -1], moved[:, -1],
        curves, ended, seconds, total=len(orders), tried=tried, policies=(POLICY,) * len(orders),
        extra=extra, level_sd=level, told=tuple(training.orders[k] for k in told[:-1]),
    )  # fmt: skip


def _show(board: Board, labels: Sequence[str], training: TogetherTraining) -> None:
    rows: list[tuple[str, float, float, float]] = []
    if training.curves.values:
        values = goal_value(np.array(training.curves.values[-1]), training.config.goal)
        own, level = training.training_noise()
        noise = np.hypot(np.hypot(own, level[:, None])[:, : training.n_first], training.value_error).max(axis=0)
        halves = [*HALF_WIDTH * noise, math.nan]  # the last, with --units hosts, is that of many orders
        rows = list(zip(labels, values, halves, training.shares, strict=False))
    board.show(training.episodes, training.last_goal, rows)


def save_policy(folder: Path, training: TogetherTraining, orders: Sequence[Ranking]) -> None:
    """The policy for all orders as a checkpoint that can be played anywhere."""
    policy, config = training.policy, training.config
    arrays = {f"policy.{name}": weights for name, weights in policy.save_weights().items()}
    rest = {
        "architecture": policy.architecture.to_json(), "obs": config.obs, "rules": config.rules, "red": config.red,
        "reward_scale": config.ppo.reward_scale, "constraint": {"units": config.units, "judge": config.judge},
        "orders": {training.units.describe(order): list(order) for order in orders},
    }  # fmt: skip
    save((folder / POLICY).with_suffix(""), Checkpoint(arrays, rest))


# -------------------------------------------------------------------------------------------------------- at the end
def finish(config: SearchConfig, folder: SearchFolder, outcome: Outcome) -> SearchResult:
    """Judge, write summary.json, print the verdict and the table, draw the pictures; certify if that was asked for."""
    found = answer(config, outcome, folder.path.name)
    with folder.ending("summary.json"):
        folder.write_summary(found.summary)
    print("", *found.lines, "", found.table, "= equal to the best, ? still open. Intervals of 95%.", sep="\n")
    print(f"\n{outcome.ended}, {duration(outcome.seconds)}.")
    if config.plots:
        print("drawing pictures ...", flush=True)
        from stockade.workflow.plots import draw_search

        try:
            names = ", ".join(path.name for path in draw_search(folder.path))
            print(f"pictures: {names} in {folder.path / 'pictures'}")
        except InputError as error:
            print(f"pictures: none; {error}")
    stopped = None
    if config.certify and len(outcome.orders) > 1:
        from stockade.workflow.separate import certify

        certified = certify(config, folder, outcome, found.summary)
        if isinstance(certified, int):
            stopped = certified
        else:
            print("\n".join(certified.lines()))
            found.summary["certified"] = asdict(certified)
            with folder.ending("summary.json"):
                folder.write_summary(found.summary)
    print(f"everything else: {folder.path}\ntry next:")
    name = folder.path.name if folder.path.parent == Path("runs") else str(folder.path)
    other = f"{'meander' if config.reds == ('bline',) else 'bline'} --max-steps {config.horizon}"
    commands = {f"evaluate {name}": "play the policy it delivers"}
    if not (config.separate and config.n_workflows):
        commands[f"search --resume {name} --total-episodes {2 * config.budget}"] = "train longer"
    if not (config.certify or config.separate):
        commands[f"search --resume {name} --certify 3"] = "confirm it by training alone"
    commands[f"search --red-agent {other}"] = "another attacker"
    width = max((len(command) for command in commands if len(command) < 70), default=0)
    for command, why in commands.items():
        print(f"  stockade {command:<{width}}  {why}")
    return SearchResult(folder.path, found, stopped)
