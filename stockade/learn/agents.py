"""What plays: policies by name (baselines, trained runs, those of the package), and any other in the protocol.

name, object or class -> as_player -> begin(n) -> act((n, size)) -> (n,), checked -> end

| form | methods | played |
|---|---|---|
| own | `act(observations (n, size)) -> (n,)`, optional `reset(n)`, optional attribute `obs` | n episodes at once |
| challenge | `get_action(observation (52,), action_space)`, optional `end_episode()` | one episode after another |
| Stable-Baselines3 | `predict(observations, state, episode_start, deterministic)` | n episodes at once |
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import traceback
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from stockade import startup
from stockade.baselines import BASELINES, Baseline, Defender
from stockade.cage2.actions import N_ACTIONS, N_RED_ACTIONS
from stockade.cage2.config import WorldConfig
from stockade.cage2.views import VIEWS, read_view, with_rules
from stockade.errors import InputError, SettingError, did_you_mean, missing_package
from stockade.learn.files import SHIPPED, builtin_names, check_runs, shipped_names
from stockade.learn.mixture import rules_context

if TYPE_CHECKING:
    from stockade.learn.checkpoint import Checkpoint
    from stockade.learn.policy import Policy

BUILTIN = "builtin:"  #: `builtin:NAME` is always the baseline or shipped policy, never a run


class AttackerError(InputError):
    """A policy that attacks, `agent`, was given where one that defends is wanted."""

    def __init__(self, message: str, agent: Any) -> None:
        super().__init__(message)
        self.agent = agent


class Agent(Defender):
    """A trained policy at play. It never changes Torch's global number of threads.

    Its `context` is bits that follow every observation, for instance the order of a workflow; `reward_scale` is what
    rewards were multiplied by in training: `value` divides by it.
    """

    def __init__(
        self, policy: Policy, obs: str, greedy: bool = True, context: ArrayLike = (),
        card: dict[str, Any] | None = None, name: str = "agent", reward_scale: float = 1.0, side: str = "blue",
    ) -> None:  # fmt: skip
        self.policy, self.context, self._reward_scale = policy, np.array(context, np.uint8), reward_scale
        self.side = side
        super().__init__(name, obs, policy.architecture.n_inputs - len(self.context), greedy, card)

    def __repr__(self) -> str:
        arch = self.policy.architecture
        episodes = self.card.get("episodes", self.card.get("trained", {}).get("episodes"))
        parts = [
            f"obs={self.obs!r} ({self._size} values)",
            f"context of {len(self.context)} bits" if len(self.context) else "",
            f"{len(arch.actions)} actions",
            f"hidden layers {' x '.join(map(str, arch.hidden))}",
            "greedy" if self.greedy else "samples its actions",
            f"trained for {episodes:,} episodes" if episodes else "",
        ]
        return f"<Agent {self.name}: {', '.join(filter(None, parts))}>"

    def probabilities(self, observation: np.ndarray) -> np.ndarray:
        batch, single = self._batch(observation)
        logits, _ = self.policy.evaluate(self._inputs(batch))
        weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
        out = np.zeros((len(batch), N_ACTIONS if self.side == "blue" else N_RED_ACTIONS))
        out[:, self.policy.actions] = weights / weights.sum(axis=1, keepdims=True)
        return out[0] if single else out

    def value(self, observation: np.ndarray) -> Any:
        batch, single = self._batch(observation)
        inputs, unseen = self._inputs(batch), self.policy.architecture.n_hidden_inputs
        if unseen and read_view(self.obs).kind != "belief":
            raise InputError(f"{self.name} has no values: its critic saw the true state (--critic truth)")
        if unseen:  # what is probable in the place of the truth, in the same words
            inputs = np.hstack([inputs, batch[:, -unseen:]])
        values = self.policy.evaluate(inputs)[1].astype(np.float64) / self._reward_scale
        return float(values[0]) if single else values

    def _choose(self, batch: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
        return self.policy.act(self._inputs(batch), generator)

    def _inputs(self, batch: np.ndarray) -> np.ndarray:
        """Observations with the context: (n, inputs of the network)."""
        context = np.broadcast_to(self.context, (len(batch), len(self.context)))
        return np.hstack([batch, context]) if len(self.context) else batch


def load(
    name: str | Path, runs: Path | str = "runs", *, greedy: bool = True, last: bool = False, rules: str = "current"
) -> Defender:
    """`stockade.load`, but for searches; InputError if nothing, or more than one thing, has this name."""
    name, runs = str(name), Path(runs)
    check_runs(runs)
    WorldConfig(rules=rules)  # checks it
    builtin = name.removeprefix(BUILTIN)
    if builtin in builtin_names():
        if builtin == name and (runs / name / "config.json").exists():
            raise InputError(f"{name!r} is both a policy of the package and a run: use {runs / name} for the run, "
                             f"{BUILTIN}{name} for the policy of the package")  # fmt: skip
        if last:
            raise InputError(f"--last is for runs: {name!r} has no checkpoints")
        if builtin not in shipped_names():
            return Baseline(builtin)
    elif builtin != name:
        raise InputError(f"no policy of the package is called {builtin!r}; these are: {', '.join(builtin_names())}")
    try:
        from stockade.learn.checkpoint import CheckpointFolder, load
    except ModuleNotFoundError as error:
        raise missing_package(error) from error

    if builtin in shipped_names():
        path = SHIPPED / f"{builtin}-{rules}"
        if not path.with_name(f"{path.name}.json").exists():  # one policy for both rule sets
            path = SHIPPED / f"{builtin}-current"
        return agent_of(load(path), name, greedy, rules)
    for path in (runs / name, Path(name)):  # `workflow.policies` finds those of searches
        if (path / "checkpoints").is_dir():
            return agent_of(CheckpointFolder(path / "checkpoints").load_best(last), name, greedy, rules)
        if path.suffix == ".json" and path.is_file():
            return agent_of(load(path.with_suffix("")), name, greedy, rules)
    near = did_you_mean(name, [*builtin_names(), *(path.parent.name for path in runs.glob("*/config.json"))])
    raise InputError(f"{name!r} is neither a baseline nor shipped ({', '.join([*BASELINES, *shipped_names()])}), nor "
                     f"a run or search in {runs}, nor the folder of one, nor the file of a policy.{near}")  # fmt: skip


def agent_of(saved: Checkpoint, name: str, greedy: bool, rules: str) -> Agent:
    """The policy in a checkpoint, or in the file that an export made of one."""
    try:
        with startup.interrupts_at_once():
            from stockade.learn.policy import Architecture, Policy
    except ModuleNotFoundError as error:
        raise missing_package(error) from error

    card = saved.rest
    policy = Policy(Architecture.from_json(card["architecture"]))
    policy.load_weights(saved.arrays, prefix="policy.")
    has_rules = card.get("context_rules", card.get("told_rules"))  # `told`: as version 0.1.0 wrote it
    context = rules_context(rules) if has_rules else card.get("context", card.get("told")) or ()
    scale = card.get("trained", {}).get("settings", {}).get("ppo", {}).get("reward_scale", 0.1)
    scale, side = card.get("reward_scale", scale), card.get("side", "blue")
    obs = with_rules(card["obs"], rules) if card.get("belief_rules") else card["obs"]
    return Agent(policy, obs, greedy, context, card, name, scale, side)


def load_red(name: str, rules: str) -> Defender:
    """A learned attacker by name: `nemesis` and others of the package, or the path of a run or of a policy's file."""
    try:
        agent = load(name, rules=rules)
    except InputError as error:
        raise SettingError("red", name, f"cannot attack: {error}") from error
    if agent.side != "red":
        raise SettingError("red", name, "defends; take a policy that attacks, such as 'nemesis'")
    return agent


# ----------------------------------------------------------------------------------------------- in the protocol
class Player:
    """A policy in play, of the own form; `greedy` is for those that leave it to us, `style` is for tables."""

    parallel = True  #: it can play many episodes at once
    method = "act"

    def __init__(self, policy: Any, name: str, greedy: bool) -> None:
        self.policy, self.name, self.greedy = policy, name, greedy
        self.obs = getattr(policy, "obs", "bits")
        self.style = ("greedy" if policy.greedy else "sampled") if isinstance(policy, Agent) else "its own choices"
        try:
            self.view = read_view(self.obs)
        except SettingError as error:
            raise InputError(f"the policy {name} has obs={self.obs!r}, which {error.problem}") from error

    def begin(self, n: int) -> None:
        if hasattr(self.policy, "reset"):
            with self._blamed("reset"):
                self.policy.reset(n)

    def act(self, observations: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """(n,) int64 for (n, size); InputError if it failed, or gave something else than n actions."""
        if isinstance(self.policy, Defender):  # checks itself
            return self.policy.act(observations, generator)
        with self._blamed(method := self.method):
            actions = np.asarray(self._ask(observations.copy(), generator))  # a copy: it may keep or change it
        n = len(observations)
        if actions.shape != (n,) or not np.issubdtype(actions.dtype, np.integer):
            raise InputError(f"{method}() of the policy {self.name} must give {n} whole numbers, shape ({n},); it "
                             f"gave {actions.dtype} of shape {actions.shape}")  # fmt: skip
        wrong = np.flatnonzero((actions < 0) | (actions >= N_ACTIONS))
        if len(wrong):
            raise InputError(f"{method}() of the policy {self.name} chose action {actions[wrong[0]]} in episode "
                             f"{wrong[0]}; actions are 0 to {N_ACTIONS - 1}")  # fmt: skip
        return actions.astype(np.int64)

    def allowed(self, actions: np.ndarray, observations: np.ndarray, env: Any) -> np.ndarray:
        """What is carried out of its actions: all, unless the policy is bound by a rule (a method `allowed`)."""
        rule = getattr(self.policy, "allowed", None) if isinstance(self.policy, Agent) else None
        return actions if rule is None else rule(actions, observations, env)

    def end(self) -> None:
        """The episodes are over."""

    def _ask(self, observations: np.ndarray, generator: np.random.Generator) -> Any:
        try:
            inspect.signature(self.policy.act).bind(observations, generator)
        except (TypeError, ValueError):  # it takes no generator, or that cannot be found out
            return self.policy.act(observations)
        return self.policy.act(observations, generator)

    @contextmanager
    def _blamed(self, method: str) -> Iterator[None]:
        """Name the policy, and the line that failed, in what it raises."""
        try:
            yield
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            raise InputError(f"{method}() of the policy {self.name} failed: {type(error).__name__}: {error} "
                             f"({where.filename}, line {where.lineno})") from error  # fmt: skip


class ChallengePlayer(Player):
    """An agent written for the challenge's own script."""

    parallel = False
    method = "get_action"

    def begin(self, n: int) -> None:
        """Only the end of an episode is announced to it."""

    def _ask(self, observations: np.ndarray, generator: np.random.Generator) -> Any:
        return [self.policy.get_action(observations[0].astype(np.int64), N_ACTIONS)]

    def end(self) -> None:
        if hasattr(self.policy, "end_episode"):
            with self._blamed("end_episode"):
                self.policy.end_episode()


class SB3Player(Player):
    """A model of Stable-Baselines3, recurrent or not."""

    method = "predict"

    def __init__(self, policy: Any, name: str, greedy: bool) -> None:
        super().__init__(policy, name, greedy)
        self.style = "greedy" if greedy else "sampled"
        shape = getattr(getattr(policy, "observation_space", None), "shape", None)
        if not hasattr(policy, "obs") and shape is not None:
            sizes = {(read_view(kind).size,): kind for kind in VIEWS}
            if shape not in sizes:
                known = ", ".join(f"{size} with obs={kind!r}" for size, kind in sizes.items())
                raise InputError(f"the model {name} was trained on observations of shape {shape}; worlds give {known}")
            self.obs = sizes[shape]

    def begin(self, n: int) -> None:
        self._state, self._start = None, np.ones(n, np.bool_)

    def _ask(self, observations: np.ndarray, generator: np.random.Generator) -> Any:
        memory = {"state": self._state, "episode_start": self._start}
        actions, self._state = self.policy.predict(observations, **memory, deterministic=self.greedy)
        self._start = np.zeros_like(self._start)
        return actions


def as_player(policy: Any, name: str | None = None, greedy: bool = True) -> Player:
    """Whatever a user calls a policy, ready to play: an object of one of the forms above, its class, or a function
    that makes it."""
    if isinstance(policy, Player):
        return policy
    name = str(name or getattr(policy, "name", None) or getattr(policy, "__name__", type(policy).__name__))
    if isinstance(policy, type) or (callable(policy) and _form_of(policy) is None):
        try:
            policy = policy()
        except Exception as error:
            raise InputError(f"{name}() cannot be called without arguments: {type(error).__name__}: {error}") from error
    if _form_of(policy) is None:
        policy = getattr(policy, "agent", policy)  # of a result of `train` or `search`
    form = _form_of(policy)
    if getattr(policy, "side", "blue") == "red":
        raise AttackerError(f"{name} attacks; take a policy that defends", policy)
    if form is None:
        raise InputError(f"{name} is no policy: it needs a method act(observations), get_action(observation, "
                         "action_space) or predict(observations)")  # fmt: skip
    return form(policy, name, greedy)


def _form_of(policy: Any) -> type[Player] | None:
    return next((form for form in (Player, ChallengePlayer, SB3Player) if hasattr(policy, form.method)), None)


def find_player(name: str, runs: Path, *, greedy: bool, last: bool, rules: str) -> Player:
    """By name: `module:attribute`, a saved model of Stable-Baselines3 (.zip), or whatever `load` knows."""
    if name.endswith(".zip"):
        policy = _load_sb3(Path(name))
    elif ":" in name and not name.startswith(BUILTIN) and not Path(name).exists():
        policy = _imported(*name.split(":", 1))
    else:
        policy = load(name, runs, greedy=greedy, last=last, rules=rules)
    return as_player(policy, name, greedy)


def find_defender(setting: str, name: str, runs: Path, rules: str) -> Player:
    """Who defends while red learns, by the name that a setting gives."""
    player = find_player(name, runs, greedy=True, last=False, rules=rules)
    if not player.parallel:
        raise SettingError(setting, name, "plays one episode after the other; red needs many at once")
    return player


def _imported(module: str, attribute: str) -> Any:
    """An object of a module in the current folder or on the path."""
    name, here = f"{module}:{attribute}", str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
    except Exception as error:
        what = f"the module cannot be imported: {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            what = f"there is no module {module} in {here} or on Python's path"
        raise InputError(f"{name}: {what}") from error
    if not hasattr(found, attribute):
        raise InputError(f"{name}: {module} has no {attribute!r}.{did_you_mean(attribute, dir(found))}")
    return getattr(found, attribute)


def _load_sb3(path: Path) -> Any:
    """A saved model: which algorithm it is shows in its settings. The format holds pickles: only for trusted files."""
    try:
        import stable_baselines3
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    try:
        with zipfile.ZipFile(path) as file:
            settings = json.loads(file.read("data"))
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path}") from error
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is no saved model of Stable-Baselines3: {error}") from error
    name = "PPO" if "clip_range" in settings else "DQN" if "exploration_fraction" in settings else "A2C"
    if "sb3_contrib" in str(settings.get("policy_class", {}).get("__module__")):
        raise InputError(f"{path} is a model of sb3-contrib: load it in Python and use stockade.evaluate(model)")
    return getattr(stable_baselines3, name).load(path, device="cpu")
