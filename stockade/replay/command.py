"""`stockade replay`: settings -> an episode, recorded and analysed -> a page, or lines of text."""

from __future__ import annotations

import re
import webbrowser
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from stockade.cage2.config import WorldConfig
from stockade.cage2.verify import load_trace
from stockade.errors import InputError, SettingError
from stockade.files import JsonFile, check_writable, json_output
from stockade.learn.agents import Agent, Player, as_player, find_player
from stockade.learn.config import require
from stockade.learn.files import check_runs
from stockade.replay.analysis import analyse, candidates
from stockade.replay.episode import Episode, is_stateless, record, record_cyborg, record_trace, with_view
from stockade.replay.result import Replay
from stockade.text import progress_bar


@dataclass(frozen=True)
class ReplayConfig:
    """Record an episode and judge every move by rollouts."""

    # A policy as for `stockade evaluate`, or a trace of CybORG (.npz), whose episode --episode is shown.
    policy: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")]
    # Who attacks: bline, meander, sleep, mix (one of the three), or CybORG's class names.
    red: Annotated[str, tyro.conf.arg(name="red-agent", metavar="NAME")] = "bline"
    horizon: Annotated[int, tyro.conf.arg(name="max-steps")] = 100  # Steps of the episode.
    rules: Literal["current", "leaderboard"] = "current"  # Rule set.
    seed: int = 0  # Seed of the episode, and of the rollouts.
    # Where random numbers come from; with cyborg, seeds give the reference's episodes.
    chance: Literal["fast", "cyborg"] = "fast"
    green: Literal["sleep", "active"] = "sleep"  # The staff: asleep as in the challenge, or active.
    greedy: bool = True  # A trained policy plays its likeliest action; --no-greedy samples.
    # Where to play: here, or on the reference simulator if it is installed.
    simulator: Literal["stockade", "cyborg"] = "stockade"
    episode: int = 0  # Of a trace: which episode, from 0.
    analyse: bool = True  # Judge every move by rollouts.
    alternatives: int = 5  # Moves to compare with the one played: the policy's likeliest.
    rollouts: int = 400  # Rollouts of each move.
    # States that agree with what blue has seen, for the fair judgement; 0 judges only with hindsight.
    particles: int = 4000
    # Who proposes moves where the policy has no probabilities, and plays on where it cannot continue in mid-episode.
    advisor: str = "champion"
    last: bool = False  # Use a run's last checkpoint instead of its best.
    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs")  # Folder of all runs.

    def __post_init__(self) -> None:
        require(self, ("alternatives",), lambda v: 1 <= v <= 20, "must be from 1 to 20")
        require(self, ("rollouts",), lambda v: 2 <= v <= 100_000, "must be from 2 to 100000")
        require(self, ("particles",), lambda v: 0 <= v <= 1_000_000, "must be from 0 to 1000000")
        require(self, ("seed", "episode"), lambda v: v >= 0, "must be 0 or more")
        self.world()  # checks the rest
        check_runs(self.runs)
        recorded = ("red", "horizon", "rules", "chance", "green", "simulator")
        for field in fields(self):
            if (
                field.name in (recorded if self.is_trace else ("episode",))
                and getattr(self, field.name) != field.default
            ):
                what = "cannot be chosen for a trace: it was recorded" if self.is_trace else "is for traces (.npz) only"
                raise SettingError(field.name, getattr(self, field.name), what)

    @property
    def is_trace(self) -> bool:
        return self.policy.endswith(".npz")

    @property
    def views(self) -> list[int]:
        """Numbers of particles: none for the judgement with hindsight, some for the fair one."""
        return sorted({0, self.particles})

    def world(self) -> WorldConfig:
        return WorldConfig(self.red, self.horizon, self.rules, self.chance, self.green)


def replay(config: ReplayConfig, policy: Any = None, *, progress: bool = True) -> Replay:
    """Record the episode that the settings name and judge its moves; `policy` is an object in place of a name."""
    if policy is None and config.is_trace:
        path = Path(config.policy)
        judges = find_judges(config, None, load_trace(path)[0].rules) if config.analyse else ()
        episode = record_trace(path, config.episode, *judges)
    else:
        player = player_of(config, config.policy if policy is None else policy)
        judges = find_judges(config, player, config.rules) if config.analyse else ()
        plays = record_cyborg if config.simulator == "cyborg" else record
        episode = plays(player, with_view(config.world(), player, *judges), config.seed)
    if not judges or not episode.snapshots:
        return Replay(episode)
    with progress_bar(progress, total=len(config.views) * len(episode), desc="rollouts", unit="step") as bar:
        return judged(config, episode, *judges, bar)


def find_judges(config: ReplayConfig, player: Player | None, rules: str) -> tuple[Player, Player]:
    """Who plays on in rollouts, and who proposes other moves: the player if it can, else the advisor."""
    continues = player if player is not None and is_stateless(player) else None
    if continues is not None and isinstance(continues.policy, Agent):
        return continues, continues
    advisor = find_player(config.advisor, config.runs, greedy=True, last=False, rules=rules)
    if not isinstance(advisor.policy, Agent):
        raise InputError(f"--advisor {config.advisor} must be a trained policy of Stockade")
    return continues or advisor, advisor


def judged(config: ReplayConfig, episode: Episode, continues: Player, advisor: Player, progress: Any) -> Replay:
    """Judge the moves of an episode; `progress` is an object with `update(n)`, called after every step of each view."""
    moves = candidates(episode, advisor, config.alternatives)
    settings = continues, moves, config.rollouts, config.seed
    return Replay(episode, tuple(analyse(episode, *settings, view, progress=progress) for view in config.views))


def player_of(config: ReplayConfig, policy: Any) -> Player:
    """By name, searches included, or whatever object a user calls a policy."""
    if not isinstance(policy, str):
        return as_player(policy, greedy=config.greedy)
    if ":" not in policy and not policy.endswith(".zip"):
        from stockade.learn.files import builtin_names

        if policy not in builtin_names():
            from stockade.workflow.policies import find_policy

            if (agent := find_policy(policy, config.runs, greedy=config.greedy)) is not None:
                return as_player(agent, policy)
    return find_player(policy, config.runs, greedy=config.greedy, last=config.last, rules=config.rules)


@dataclass(frozen=True)
class ReplayCommand:
    """Look at an episode: a page for the browser with every step, what was true, what blue believed, and what each
    move was worth."""

    settings: Annotated[ReplayConfig, tyro.conf.arg(name="")]  # What to show.
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Write the page here. Default: replay-POLICY-ATTACKER-SEED.html; with --text none."""
    open: bool = False  # Open the page in the browser.
    text: bool = False  # Print the episode, one line per step.
    json: JsonFile = None  # Write all that the page shows to this file too; - is standard output.

    def run(self) -> int:
        out = self.out
        if out is None and (self.open or not self.text):
            named = self.settings
            name = (
                f"replay-{Path(named.policy).stem}-{named.episode if named.is_trace else f'{named.red}-{named.seed}'}"
            )
            out = Path(re.sub(r"[^\w.-]+", "_", name) + ".html")
        if out is not None:
            check_writable(out, "--out")
        with json_output(self.json) as write:
            result = replay(self.settings)
            print(result if self.text else "\n".join(result.summary()))
            if out is not None:
                print(f"page: {result.save(out)}")
                if self.open:
                    webbrowser.open(out.resolve().as_uri())
            write(result.to_dict())
        return 0
