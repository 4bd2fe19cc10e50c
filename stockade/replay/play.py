"""`stockade play`: a person defends the network on a page of the browser, then sees the truth and every move judged.

page <-> server.py <-> Game: what blue sees, actions -> the episode, recorded and analysed -> the page of a replay
"""

from __future__ import annotations

import secrets
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from stockade.cage2.actions import ACTION_HOST, ACTION_KIND, ACTION_MASK, ACTION_NAMES, N_ACTIONS, RESTORE, check_action
from stockade.cage2.history import FEATURE_NAMES
from stockade.cage2.scenario import DECOYS, HOSTS
from stockade.errors import InputError, SettingError
from stockade.learn.agents import Agent, Player, as_player
from stockade.learn.config import require, require_seed
from stockade.replay.command import ReplayConfig, find_judges, judged, player_of
from stockade.replay.episode import Recorded, check_length, is_stateless, native_worlds, record, seen_by, with_view
from stockade.replay.result import LIKELIEST, NETWORK, Replay, assemble, observed
from stockade.replay.server import Calls, Refused, Server

PAGE_FILES = ("play.html", "replay.css", "play.css", "network.js", "play.js")
#: Of each host: numbers and kinds of the actions that can succeed there at all.
HOST_ACTIONS = [
    [[a, ACTION_NAMES[a].split()[0]] for a in sorted(range(N_ACTIONS), key=lambda a: "Decoy" in ACTION_NAMES[a])
     if ACTION_HOST[a] == h and ACTION_MASK[a]]
    for h in range(len(HOSTS))
]  # fmt: skip


def blue_view(actions: list[int], seen: list[np.ndarray]) -> dict[str, Any]:
    """What blue knows after its (T,) actions, from its own T + 1 observations (160,) alone: no reward, no truth."""
    known = [{name for name, bit in zip(FEATURE_NAMES, row, strict=False) if bit} for row in seen]
    stand = [[f"{decoy.name} stands on {host}" in known[-1] for decoy in DECOYS] for host in HOSTS]
    log = []
    for t, action in enumerate(actions, start=1):
        activity = observed(seen[t])["activity"]
        log.append({
            "blue": ACTION_NAMES[action], "blue_host": int(ACTION_HOST[action]),
            "blue_failed": "last action failed" in known[t],
            "sees": [[host, what] for host, what in zip(HOSTS, activity, strict=True) if what != "none"],
        })  # fmt: skip
    return {
        "step": len(actions), **observed(seen[-1]), "log": log,
        "decoys": [sum(1 << d for d, there in enumerate(row) if there) for row in stand],
        "n_decoys": [sum(row) for row in stand],
        "ever": [[what for what in ("scanned", "exploited", "restored") if f"ever {what} {host}" in known[-1]]
                 for host in HOSTS],
        "restores": sum(int(ACTION_KIND[action]) == RESTORE for action in actions),
    }  # fmt: skip


class Game:
    """An episode with a person as blue. Requests may come from several threads: each is for a step, and late ones are
    refused. Once it is over, the moves are judged in the background and the page becomes that of a replay."""

    def __init__(self, config: ReplayConfig, advisor: Player | None) -> None:
        """`config` says what is played and how it is judged."""
        self.config, self.advisor = config, advisor
        # A trained policy also judges; not one that is bound to an order, which would refuse what the person does.
        trained = advisor is not None and isinstance(advisor.policy, Agent) and not hasattr(advisor.policy, "allowed")
        self._watches = advisor if advisor is not None and trained else as_player(Recorded())
        self._judges = find_judges(config, self._watches, config.rules) if config.analyse else None
        self._lock = threading.Lock()
        self._world = with_view(config.world(), self.advisor, self._watches, *(self._judges or ()))
        self._envs = native_worlds(self._world, 1)
        obs, _ = self._envs.reset(seed=config.seed)
        self._seen, self._actions = [obs[0].copy()], list[int]()
        self._over, self._judged = False, 0
        self.replay: Replay | None = None  #: the truth, when it is over and all is judged

    # ------------------------------------------------------------------------------------------------- for the server
    def act(self, step: int, action: int) -> dict[str, Any]:
        """Carry out blue's action of this step, from 0."""
        with self._turn(step):
            obs, _, _, over, _ = self._envs.step(np.array([check_action(action)]))
            self._actions.append(action)
            self._seen.append(obs[0].copy())
            if over[0]:
                self._end()
        return self.state()

    def end(self, step: int) -> dict[str, Any]:
        """The player has seen enough: reveal the truth."""
        with self._turn(step):
            if not self._actions:
                raise Refused(409, "nothing has happened yet: act first")
            self._end()
        return self.state()

    def advise(self, step: int) -> dict[str, Any]:
        """What the advisor would do, from what blue has seen: numbers, names and probabilities of actions."""
        with self._turn(step):
            if self.advisor is None:
                raise InputError("this game is without advice")
            policy = self.advisor.policy
            seen = seen_by(self.advisor, self._seen[-1][None], self._world, np.array([step]))[0]
            if not isinstance(policy, Agent):
                action = int(self.advisor.act(seen[None], np.random.default_rng(step))[0])
                return {"moves": [[action, ACTION_NAMES[action], None]], "value": None}
            likely = policy.probabilities(seen)
            best = np.argsort(-likely, kind="stable")[:LIKELIEST].tolist()
            moves = [[a, ACTION_NAMES[a], round(float(likely[a]), 4)] for a in best]
            return {"moves": moves, "value": round(policy.value(seen), 2)}

    def state(self) -> dict[str, Any]:
        with self._lock:
            total = len(self.config.views) * len(self._actions) if self.config.analyse else 0
            over = {"over": self._over, "ready": self.replay is not None, "judged": self._judged, "total": total}
            return {**blue_view(self._actions, self._seen), **(over if self._over else {"over": False})}

    def page(self) -> tuple[str, str]:
        """The page and its Content-Security-Policy: of the game, or at last of the replay."""
        if self.replay is not None:
            return self.replay.page()
        c = self.config
        content = {
            **NETWORK, "blind": True, "red": c.world().red, "rules": c.rules, "horizon": c.horizon,
            "advisor": None if self.advisor is None else self.advisor.name,
            "actions": HOST_ACTIONS, "anywhere": [[a, ACTION_NAMES[a]] for a in (1, 0)], "view": self.state(),
        }  # fmt: skip
        return assemble(PAGE_FILES, f"You against {content['red']}", content, "; connect-src 'self'")

    def server(self, port: int = 0) -> Server:
        """Not yet serving; see `http.server`."""
        calls: Calls = {"advice": (self.advise, ("step",)), "end": (self.end, ("step",))}
        return Server(port, self.page, self.state, calls | {"act": (self.act, ("step", "action"))})

    # --------------------------------------------------------------------------------------------------------- inside
    @contextmanager
    def _turn(self, step: int) -> Iterator[None]:
        with self._lock:
            if self._over:
                raise Refused(409, "the game is over")
            if step != len(self._actions):
                raise Refused(409, f"this is for step {step}; the game is at step {len(self._actions)}")
            yield

    def _end(self) -> None:
        self._over = True
        threading.Thread(target=self._judge, daemon=True).start()

    def _judge(self) -> None:
        played = record(self._watches, self._world, self.config.seed, np.array(self._actions))
        watched = self._watches.name if played.probabilities is not None else ""
        result = Replay(replace(played, policy="You", style="by hand", advisor=watched))
        try:
            if self._judges is not None:
                result = judged(self.config, result.episode, *self._judges, self)
        finally:  # whatever fails, the truth is shown
            self.replay = result
            print(*result.summary(), sep="\n", flush=True)

    def update(self, steps: int) -> None:
        """Progress of the analysis."""
        with self._lock:
            self._judged += steps


@dataclass(frozen=True)
class PlayCommand:
    """Defend the network yourself on a page in the browser, which shows only what blue sees. At the end it shows the
    truth, and what each of your moves was worth."""

    # Who attacks: bline, meander, sleep, mix (one of the three, you do not know which), or CybORG's class names.
    red: Annotated[str, tyro.conf.arg(name="red-agent", metavar="NAME")] = "bline"
    horizon: Annotated[int, tyro.conf.arg(name="max-steps")] = 30  # Steps of the episode.
    rules: Literal["current", "leaderboard"] = "current"  # Rule set.
    seed: Annotated[int | None, tyro.conf.arg(help_behavior_hint="")] = None
    """Seed of the episode. Default: another one each time."""
    # Who gives advice when you ask for it: a policy as for `stockade evaluate`, or none.
    advice: Annotated[str, tyro.conf.arg(metavar="POLICY")] = "champion"
    analyse: bool = True  # Judge every move by rollouts at the end.
    port: int = 0  # Port of the page on this machine; 0 takes any free one.
    open: bool = False  # Open the page in the browser.
    runs: Annotated[Path, tyro.conf.arg(metavar="FOLDER")] = Path("runs")  # Folder of all runs.

    def __post_init__(self) -> None:
        require(self, ("port",), lambda v: 0 <= v < 2**16, "must be from 0 to 65535")
        require_seed(self)
        self.settings()  # checks the rest
        check_length(self.horizon)

    def settings(self) -> ReplayConfig:
        """What is played, and how it is judged."""
        seed = secrets.randbelow(2**31) if self.seed is None else self.seed
        return ReplayConfig("", self.red, self.horizon, self.rules, seed, analyse=self.analyse, runs=self.runs)

    def game(self) -> Game:
        """A new game; InputError if the advisor cannot be found, or cannot advise."""
        config, advisor = self.settings(), None
        try:
            if self.advice != "none":
                advisor = player_of(config, self.advice)
                if not is_stateless(advisor):
                    raise SettingError("advice", self.advice, "cannot advise: it has a memory of its own episodes")
            return Game(config, advisor)
        except InputError as error:
            error.add_note("To play without a trained policy: --advice none --no-analyse")
            raise

    def run(self) -> int:
        with self.game().server(self.port) as server:
            print(f"Only this machine can open the page; Ctrl-C ends it: {server.address}", flush=True)
            if self.open:  # some browsers return only when they are closed
                threading.Thread(target=webbrowser.open, args=(server.address,), daemon=True).start()
            server.serve_forever()
        return 0
