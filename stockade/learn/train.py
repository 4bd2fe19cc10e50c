"""`stockade train`: a run from its settings to its last checkpoint, through interruptions.

runs/NAME/  config.json  metrics.csv  tensorboard/  checkpoints/checkpoint-NNN, best
loop: learner.iterate -> metrics -> checkpoint when due, or when a signal asks to stop
"""

import contextlib
import json
import math
import os
import re
import signal
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any, Self

import numpy as np

import stockade
from stockade.baselines import Defender
from stockade.cage2.actions import ACTION_MASK, N_ACTIONS
from stockade.cage2.features import FEATURE_NAMES, N_FEATURES
from stockade.cage2.history import MEMORY_SIZE
from stockade.cage2.red_view import RED_GATES, RED_OBS_SIZE
from stockade.cage2.views import read_view
from stockade.errors import InputError, SettingError
from stockade.files import json_ready, write_durably
from stockade.learn.agents import Agent, Player, find_defender, load
from stockade.learn.checkpoint import Checkpoint, CheckpointFolder
from stockade.learn.config import TrainConfig, read_config, refuse_changes, require
from stockade.learn.evaluate import play
from stockade.learn.files import COLUMNS, LOWEST, WINDOW, MetricsFile, find_run, new_run_folder, run_session
from stockade.learn.league import League
from stockade.learn.mixture import Cell, cells_of, make_mixture
from stockade.learn.policy import Policy, one_torch_thread
from stockade.learn.ppo import PPO, AnyVectorEnv, Iteration, Shaping
from stockade.learn.torch_ppo import TorchPPO, find_device
from stockade.text import Shown, Table, duration, fixed, in_notebook, plural, progress_bar, size

VALIDATION_SEED = 2_000_000_000  #: validation plays these seeds and on; no evaluation of a result may take them
BONUS_UNTIL = 0.6  #: share of a training over which the bonus for finding out the rules runs out
_SAYS_LEADERBOARD = MEMORY_SIZE + FEATURE_NAMES.index("the rules are leaderboard")
BYTES_PER_WORLD = 1000  #: about what one environment takes, for a check before anything is made


class TrainingDiverged(InputError):
    """Weights or gradients are no longer finite."""


class StopSignals(contextlib.ExitStack):
    """Ctrl-C and SIGTERM ask to stop at the next good moment: `received` is then the signal's number. A second one ends
    the process at once, but in a notebook, where the kernel must survive, it raises KeyboardInterrupt. Outside the main
    thread, where Python allows no handlers, signals keep their meaning."""

    received: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.callback(signal.signal, number, signal.signal(number, self._receive))
        return self

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            if in_notebook():
                raise KeyboardInterrupt
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self.received = number


def make_envs(config: TrainConfig, cells: list[Cell]) -> list[AnyVectorEnv]:
    """The environments of the learner's lanes."""
    if config.backend != "native":
        return [stockade.make_vec(config.n_envs, config.backend, **vars(cells[0].world))]
    if config.device:
        return [make_mixture(cells, config.n_envs, on_gpu=config.device == "cuda")]
    lanes = min(config.ppo.shards, config.n_envs)
    counts = [config.n_envs * (k + 1) // lanes - config.n_envs * k // lanes for k in range(lanes)]
    truth = config.critic == "truth"
    # each its own defenders: lanes play at once
    return [make_mixture(cells, n, defenders(cells, config.runs), with_truth=truth) for n in counts]


def make_learner(config: TrainConfig, cells: list[Cell] | None = None) -> PPO:
    """`cells`: the worlds to learn in; default those of the settings."""
    envs = make_envs(config, cells_of(config) if cells is None else cells)
    is_red, limit = config.side == "red", config.ppo.time_limit
    actions = np.flatnonzero(ACTION_MASK).tolist() if config.action_mask and not is_red else None
    counts_steps = config.obs != "bits" or is_red  # then the end is part of what is seen, or follows from it by chance
    horizon_is_end = limit == "terminal" or (limit == "auto" and counts_steps)
    if config.device:
        return TorchPPO(envs[0], config.ppo, config.seed, actions, horizon_is_end, config.device)
    hidden = N_FEATURES if config.critic == "truth" else 0
    shaping = Shaping(knows_rules) if config.rules_bonus else None
    return PPO(envs, config.ppo, config.seed, actions, horizon_is_end, RED_GATES if is_red else (), hidden, shaping)


def knows_rules(observations: np.ndarray) -> np.ndarray:
    """(n,) from 0, where a belief takes both rule sets to be equally likely, to 1, where it knows which it is."""
    return np.abs(2 * observations[:, _SAYS_LEADERBOARD] - 1)


def _begin_with(policy: Policy, config: TrainConfig) -> None:
    """Take the weights of the policy that `config.start` names."""
    rules = "current" if config.rules == "both" else config.rules
    agent = load(str(config.start), config.runs, rules=rules)
    alike = {policy.architecture, replace(policy.architecture, n_hidden_inputs=0)}
    if not isinstance(agent, Agent) or agent.policy.architecture not in alike or agent.side != config.side:
        problem = "has another network: take the settings that it was trained with, or leave out --start"
        raise SettingError("start", config.start, problem)
    weights = agent.policy.save_weights()
    if agent.policy.architecture != policy.architecture:
        first, n_hidden = "critic.0.weight", policy.architecture.n_hidden_inputs
        weights[first] = _as_hidden(weights[first], n_hidden, agent.obs == "truth")
    policy.load_weights(weights)


def _as_hidden(weight: np.ndarray, n_hidden: int, saw_truth: bool) -> np.ndarray:
    """First layer of a critic that also sees the truth: it sees it from now on where it `saw_truth`, else it begins
    by not looking."""
    nothing = np.zeros((n_hidden, weight.shape[1]), weight.dtype)
    if not saw_truth:
        return np.vstack([weight, nothing])
    return np.vstack([weight[:-n_hidden], nothing, weight[-n_hidden:]])


def defenders(cells: list[Cell], runs: Path) -> dict[Cell, Player]:
    """Who defends in each cell where red learns."""
    found = {}
    for cell in cells:
        if cell.blue:
            found[cell] = find_defender("blue", cell.blue, runs, cell.world.rules)
            found[cell].begin(1)
    return found


def _new_run(config: TrainConfig) -> Path:
    """The folder of a new run, unless that would need more memory than the machine has."""
    view = read_view(config.obs)
    inputs, hidden, rows = (
        max(view.size, RED_OBS_SIZE),
        sum(config.ppo.hidden),
        config.ppo.update_steps * config.n_envs,
    )
    per_row = 32 + inputs + 4 * (inputs + 4 * hidden + N_ACTIONS)  # the rollout, and the workspaces of the update
    if config.device:  # which has workspaces for a minibatch, if for more than the rollout
        per_row = 64 + inputs
    needed = rows * per_row + config.n_envs * BYTES_PER_WORLD
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    problem = f"needs about {size(needed)} of memory with updates of {config.ppo.update_steps} steps; this machine has"
    require(config, ("n_envs",), lambda _: needed <= available, f"{problem} {size(available)}")
    cells = cells_of(config)  # checked, and the reference's names shortened
    what = "-".join(dict.fromkeys(cell.world.red for cell in cells)) + f"-{view.kind}"
    if config.side == "red":
        defenders(cells, config.runs)  # checks that they are there
        what = "red-" + "-".join(dict.fromkeys(re.sub(r"\W+", "-", Path(cell.blue).stem) for cell in cells))
    elif config.preset:
        what = f"{config.preset}-{view.kind}"
    run = new_run_folder(config.runs, config.name, f"{what}-seed{config.seed}")
    content = {"stockade": stockade.__version__, **config.to_json()}
    write_durably(run / "config.json", (json.dumps(content, indent=1) + "\n").encode())
    return run


@dataclass(frozen=True, repr=False)
class TrainResult(Shown):
    """A run, finished or interrupted."""

    folder: Path
    config: TrainConfig
    metrics: dict[str, np.ndarray]  #: the columns of metrics.csv by name, (iterations,) float64 each
    stopped: int | None = None  #: number of the signal that ended it before its time
    saved: bool = True  #: its final state and all metrics are on disk

    @property
    def interrupted(self) -> bool:
        """A signal (Ctrl-C, a notebook's stop button) ended it before its time; `train(resume=folder)` continues."""
        return self.stopped is not None

    @property
    def episodes(self) -> int:
        """Played so far, all sessions together."""
        return int(self.metrics["episodes"][-1]) if len(self.metrics["episodes"]) else 0

    @cached_property
    def agent(self) -> Defender:
        """The policy of the best checkpoint, as `stockade.load(folder)` gives it."""
        return load(self.folder.resolve())

    def __repr__(self) -> str:
        state = ("interrupted" if self.interrupted else "finished") + ("" if self.saved else ", not all on disk,")
        last = self.metrics["return_window"]
        score = f", return {fixed(float(last[-1]))}" if len(last) else ""
        return f"<TrainResult {self.folder}: {state} after {plural(self.episodes, 'episode')}{score}>"

    def tables(self) -> list[Table]:
        """About ten moments of the training."""
        columns = "episodes", "seconds", "return_mean", "return_window", "entropy", "explained_variance", "validation"
        m, n = self.metrics, len(self.metrics["episodes"])
        shown = [name for name in columns if np.isfinite(m[name]).any() or name == "return_window"]
        moments = sorted({round(k) for k in np.linspace(0, n - 1, min(n, 10))})
        whole = ("episodes", "seconds")
        rows = [[f"{m[name][k]:,.0f}" if name in whole else fixed(m[name][k]) for name in shown] for k in moments]
        return [Table([name.replace("_", " ") for name in shown], rows, repr(self).strip("<>"))]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: folder, settings, and the metrics as lists."""
        content = {
            "folder": self.folder, "settings": self.config.to_json(), "episodes": self.episodes,
            "interrupted": self.interrupted, "saved": self.saved, "metrics": self.metrics,
        }  # fmt: skip
        return dict(json_ready(content))


def train(config: TrainConfig, *, progress: bool = True) -> TrainResult:
    """Start a run, or continue one (`TrainConfig.resumed`, nothing changed), until its end or a signal."""
    if config.device:
        find_device(config.device)  # before a folder is made
    if config.resume is None:
        run = _new_run(config)
    else:
        run = find_run(config.resume, config.runs)
        asked, config = config, read_config(run)
        refuse_changes(asked, config, ("resume", "runs", "ppo"))
        refuse_changes(asked.ppo, config.ppo)
    with run_session(run), one_torch_thread():
        league = League(config, run) if config.league else None
        learner = make_learner(config, league.cells() if league else None)
        with contextlib.closing(learner):
            return _Session(config, run, learner, progress, league).play()


class _Session:
    """One session of a run: from its last checkpoint to its end, or to a signal."""

    def __init__(
        self, config: TrainConfig, run: Path, learner: PPO, progress: bool, league: League | None = None
    ) -> None:
        self.config, self.run, self.learner, self.league, self.progress = config, run, learner, league, progress
        self.checkpoints = CheckpointFolder(run / "checkpoints", config.keep_checkpoints)
        self.window: deque[float] = deque(maxlen=WINDOW)
        self.best, self.seconds = LOWEST, 0.0
        if self.checkpoints.numbers():
            saved = self.checkpoints.load_last()
            try:
                learner.restore(saved.arrays, saved.rest)
                self.window.extend(saved.arrays["window"].tolist())
                self.best, self.seconds = float(saved.rest["best"]), float(saved.rest["seconds"])
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise InputError(f"{run}: its checkpoint does not fit its config.json: {error}") from error
        elif config.start:
            _begin_with(learner.policy, config)
        self._begin = time.perf_counter() - self.seconds
        self._saved = learner.iteration  # when the last checkpoint was written

    def play(self) -> TrainResult:
        """Train until the end, or a signal."""
        learner, total = self.learner, self.config.total_episodes
        events = self.run / "tensorboard" if self.config.tensorboard else None
        metrics = MetricsFile(self.run / "metrics.csv", learner.iteration, events, learner.episodes)
        before = min(learner.episodes, total)
        bar = progress_bar(self.progress, total=total, initial=before, unit="ep", desc=self.run.name)
        with bar, StopSignals() as stop:
            while stop.received is None:
                if self.league is not None and self.league.is_due(learner.episodes):
                    stop.received = self._next_round(self.league)
                    continue
                if learner.episodes >= total:
                    break
                done = learner.episodes
                progress = min(1.0, done / total)
                if learner.shaping is not None:
                    learner.shaping.weight = self.config.rules_bonus * max(0.0, 1 - progress / BONUS_UNTIL)
                row = self._row(learner.iterate(progress))
                count, every = plural(learner.episodes, "episode"), self.config.checkpoint_episodes
                due = learner.episodes // every > done // every or learner.episodes >= total
                if due and self.config.validation_episodes:
                    row["validation"] = validate(learner.policy, self.config, self._cells())
                    self._say(f"after {count}: validation {row['validation']:.2f}")
                metrics.write(row)
                shown = f"return {row['return_window']:.2f}, entropy {row['entropy']:.2f}"
                bar.set_postfix_str(shown, False)
                bar.update(min(learner.episodes, total) - bar.n)
                if due:
                    # before there are enough episodes to tell, it may not be the best
                    recent = float(np.mean(self.window)) if len(self.window) == WINDOW else LOWEST
                    self._save(row["validation"] if self.config.validation_episodes else recent)
                    if bar.disable:  # no terminal: a line now and then
                        rate, share = learner.episodes / self.seconds, min(1.0, learner.episodes / total)
                        self._say(f"{count} ({share:.0%}), {rate:.0f} per second, {shown}")
            if self._saved != learner.iteration:
                self._save(LOWEST)  # never the best: a run that was not interrupted would not have judged it here
            saved = metrics.close() and self._saved == learner.iteration
        if returns := list(self.window):
            self._say(f"{self.run}: {plural(learner.episodes, 'episode')} in {duration(self.seconds)}; last "
                      f"{len(returns)}: mean {np.mean(returns):.2f}, median {np.median(returns):.2f}, "
                      f"5% quantile {np.quantile(returns, 0.05):.2f}")  # fmt: skip
        rows = metrics.rows()
        columns = {name: np.array([row[name] for row in rows]) for name in COLUMNS}
        return TrainResult(self.run, self.config, columns, stop.received, saved)

    def _cells(self) -> list[Cell]:
        return cells_of(self.config) if self.league is None else self.league.cells()

    def _next_round(self, league: League) -> int | None:
        """One more attacker learns and joins; the number of a signal that ended that."""
        stopped = league.respond(self.learner.policy, self.learner.episodes, self.progress)
        if stopped is None:
            self._say(f"{league.table()}\n")
            with contextlib.suppress(InputError):  # Matplotlib is not installed
                league.draw()
            self.learner.change_worlds(make_envs(self.config, league.cells()))
            if self.learner.episodes < self.config.total_episodes:
                self.best = LOWEST  # scores against other attackers do not compare
            self._save(LOWEST)
        return stopped

    def _say(self, line: str) -> None:
        if self.progress:
            print(line, flush=True)

    def _row(self, result: Iteration) -> dict[str, float]:
        """Columns of metrics.csv; those about episodes are NaN if none ended."""
        learner, returns = self.learner, result.returns
        if not math.isfinite(result.stats["grad_norm"]):
            raise TrainingDiverged(f"the gradient is not finite in iteration {learner.iteration}; the last checkpoint "
                                   f"is good: lower the learning rate")  # fmt: skip
        self.window.extend(returns.tolist())
        before, self.seconds = self.seconds, time.perf_counter() - self._begin
        row: dict[str, Any] = {
            "iteration": learner.iteration, "episodes": learner.episodes, "steps": learner.steps,
            "seconds": self.seconds, "episodes_per_second": len(returns) / (self.seconds - before), **result.stats,
        }  # fmt: skip
        if len(returns):
            row |= {"return_mean": returns.mean(), "return_median": np.median(returns),
                    "return_q05": np.quantile(returns, 0.05), "length_mean": result.lengths.mean()}  # fmt: skip
        if self.window:
            row["return_window"] = np.mean(self.window)
        return {name: float(row.get(name, math.nan)) for name in COLUMNS}

    def _save(self, score: float) -> None:
        """Write a checkpoint, as the best too if none that is on disk scored as high."""
        arrays, rest = self.learner.state()
        rest |= {
            "best": max(score, self.best), "return": float(np.mean(self.window)) if self.window else LOWEST,
            "seconds": self.seconds, "obs": "red" if self.config.side == "red" else self.config.obs,
            "side": self.config.side, "blue": self.config.blue, "context_rules": self.config.context_rules,
            "belief_rules": self.config.belief_rules,
            "reward_scale": self.config.ppo.reward_scale,
        } | ({} if self.league is None else {"round": self.league.round})  # fmt: skip
        checkpoint = Checkpoint({**arrays, "window": np.array(self.window)}, rest)
        if score > self.best and self.checkpoints.save_best(checkpoint):
            self.best = score
        rest["best"] = self.best  # of what is on disk
        if self.checkpoints.save(self.learner.iteration, checkpoint):
            self._saved = self.learner.iteration


def validate(policy: Policy, config: TrainConfig, cells: list[Cell]) -> float:
    """Sum over the cells of the mean return by the likeliest actions."""
    score, episodes = 0.0, config.validation_episodes
    others = defenders(cells, config.runs)
    for k, cell in enumerate(cells):
        world, seed = cell.world, VALIDATION_SEED + k * episodes
        agent = Agent(policy, world.obs, True, cell.context, side=config.side)
        blue, red, sign = (others[cell], agent, -1.0) if cell.blue else (agent, world.red, 1.0)
        returns = play(blue, red, world.horizon, episodes, seed, world.rules, reward=world.reward)
        score += sign * float(returns.mean())
    return score
