"""An episode with all that a replay shows: a policy at play, a recorded trace, or a real CybORG.

player, world, seed -> record -> Episode: true states, what blue saw, actions of both sides, rewards, the policy's view
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from stockade.baselines import Defender
from stockade.cage2.actions import ACTION_HOST, ACTION_KIND, RESTORE
from stockade.cage2.batch import Snapshot
from stockade.cage2.belief import Belief, BeliefFilter
from stockade.cage2.config import GREEN, WorldConfig
from stockade.cage2.history import CLOCK
from stockade.cage2.scenario import HOST_COST, HOSTS, RESTORE_COST, SERVICE_DOWN_COST, SERVICE_HOST
from stockade.cage2.state import INITIAL, MOST_PLANS, OBS_SIZE, ROOT_ACCESS, WORLD
from stockade.cage2.variants import Red, read_red
from stockade.cage2.verify import TraceError, load_trace
from stockade.cage2.views import POSSIBLE_REDS
from stockade.errors import InputError, SettingError
from stockade.learn.agents import Agent, Player, as_player
from stockade.learn.evaluate import reference_envs
from stockade.vector.base import BaseVectorEnv
from stockade.vector.native import NativeVectorEnv

MOST_STEPS = 1000  #: of an episode that a page can hold


@dataclass(frozen=True, eq=False)
class Episode:
    """T steps. Arrays of states have T + 1 rows: the first is the start, row t is after step t."""

    policy: str  #: its name
    style: str  #: how it played: `greedy`, `sampled`, `its own choices`, `recorded`
    source: str  #: where it was played
    config: WorldConfig  #: of the built-in world; `obs` is that of `seen`
    seed: int
    size: int  #: of the observations that the policy saw: the first `size` columns of `seen`
    truth: np.ndarray  #: (T + 1,) records of state.WORLD
    seen: np.ndarray  #: (T + 1, 160 or more), the 52 bits and what blue knows from its own history
    chosen: np.ndarray  #: (T,) int64, what the policy chose
    actions: np.ndarray  #: (T,) int64, what was carried out: Sleep in place of a fix that an order forbids
    rewards: np.ndarray  #: (T,) float64
    probabilities: np.ndarray | None = None  #: (T, 145), if the policy has them
    values: np.ndarray | None = None  #: (T,), the policy's own estimate before each step
    order: str = ""  #: repair order that the policy is bound to, and who judges
    snapshots: tuple[Snapshot, ...] = field(default=(), repr=False)  #: before each step; none if it cannot be copied
    advisor: str = ""  #: whose probabilities and values these are, if not the policy's own

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def refused(self) -> np.ndarray:
        """(T,) bool: a fix that the order forbade."""
        return self.chosen != self.actions

    def costs(self, t: int) -> list[tuple[str, str | None, float]]:
        """What made the reward of step t (from 0): cause, host, points."""
        after, action = self.truth[t + 1], self.actions[t]
        rooted = (after["red_access"] == ROOT_ACCESS) * HOST_COST
        found: list[tuple[str, str | None, float]] = [
            ("root", HOSTS[h], rooted[h].item() / 10) for h in np.flatnonzero(rooted)
        ]
        if after["service_down"]:
            found.append(("service", HOSTS[SERVICE_HOST], SERVICE_DOWN_COST / 10))
        if ACTION_KIND[action] == RESTORE:
            found.append(("restore", HOSTS[ACTION_HOST[action]], RESTORE_COST / 10))
        return found


# ----------------------------------------------------------------------------------------------------------- recording
def check_length(steps: int) -> None:
    """Refuse an episode that no page can hold."""
    if steps > MOST_STEPS:
        raise SettingError("horizon", steps, f"is too long to look at; take up to {MOST_STEPS} steps")


def with_view(config: WorldConfig, *players: Player | None) -> WorldConfig:
    """The same world, which shows what all these players need: a belief, if one has it, else blue's own history."""
    beliefs = {p.view for p in players if p is not None and p.view.kind == "belief"}
    if config.view.kind == "belief":
        beliefs.add(config.view)
    if len(beliefs) > 1:
        views = " and ".join(sorted(map(repr, map(str, beliefs))))
        raise InputError(f"the policies see different beliefs, {views}, which one world cannot show; take others")
    return replace(config, obs=str(beliefs.pop()) if beliefs else "memory")


def seen_by(player: Player, seen: np.ndarray, config: WorldConfig, times: np.ndarray) -> np.ndarray:
    """What a player sees of what worlds of `with_view` show, (n, size), after so many steps, (n,)."""
    if config.view.kind != "belief" or player.view.kind == "belief":
        return seen[:, : player.view.size]
    bits = seen[:, : player.view.size].astype(np.uint8)
    if player.view.kind == "memory":  # which tells the steps left, not those played
        bits[:, -len(CLOCK) :] = (config.horizon - times)[:, None] >= CLOCK
    return bits


def native_worlds(config: WorldConfig, n: int) -> NativeVectorEnv:
    """Worlds of `with_view`, in which its policies can play."""
    c = config
    return NativeVectorEnv(
        n, c.red, c.horizon, c.rules, c.chance, c.green, obs=c.obs, autoreset_mode="disabled", copy=False, threads=1
    )


def record(player: Player, config: WorldConfig, seed: int, actions: np.ndarray | None = None) -> Episode:
    """Play an episode of the built-in world; the same as `stockade evaluate` plays with this seed.

    With `actions` the episode is replayed and ends with them, whatever the player would have chosen.
    """
    config = with_view(config, player)
    with native_worlds(config, 1) as envs:
        return _play(envs, player, config, seed, "stockade", actions)


def record_cyborg(player: Player, config: WorldConfig, seed: int) -> Episode:
    """Play an episode on the installed CybORG.

    It cannot be copied. If the built-in world gives the same observations and rewards for the same seed and actions,
    as it should, its snapshots stand in for the analysis.
    """
    config = replace(with_view(config, player), chance="cyborg")
    with reference_envs(config) as envs:
        episode = _play(envs, player, config, seed, "CybORG 2.1")
    twin = record(player, config, seed, episode.actions)
    equal = np.array_equal(twin.seen, episode.seen) and np.allclose(twin.rewards, episode.rewards)
    return replace(episode, snapshots=twin.snapshots if equal else ())


def record_trace(path: Path, number: int, *judges: Player | None) -> Episode:
    """An episode of a trace of the reference, numbered from 0; TraceError if the built-in world gives another.

    It shows what the `judges` need.
    """
    config, arrays = load_trace(path)
    if config.red == "player":
        raise InputError(f"{path}: its red was played by hand, which no replay shows; `stockade verify` compares it")
    if not 0 <= number < len(arrays["seed"]):
        raise InputError(f"--episode {number}: {path} holds the episodes 0 to {len(arrays['seed']) - 1}")
    steps = int(arrays["valid_steps"][number])
    if not steps:
        raise InputError(f"--episode {number}: nothing of it was recorded in {path}")
    actions = arrays["blue_action"][number, :steps].astype(np.int64)
    player = as_player(Recorded(), path.stem)
    config = with_view(replace(config, horizon=steps), *judges)
    episode = record(player, config, int(arrays["seed"][number]), actions)
    seen, rewards = arrays["obs"][number, : steps + 1], arrays["reward"][number, :steps]
    if not (np.array_equal(episode.seen[:, :OBS_SIZE], seen) and np.allclose(episode.rewards, rewards)):
        raise TraceError(f"{path}: the built-in world does not give episode {number}; see `stockade verify {path}`")
    return replace(episode, style="recorded", source=f"trace of CybORG, episode {number}")


class Recorded:
    """Stands for a player of whom only the actions are known: of a trace, or a person."""

    def act(self, observations: np.ndarray) -> np.ndarray:
        return np.zeros(len(observations), np.int64)


def _play(
    envs: BaseVectorEnv, player: Player, config: WorldConfig, seed: int, source: str, given: np.ndarray | None = None
) -> Episode:
    size, policy = player.view.size, player.policy
    steps = config.horizon if given is None else len(given)
    check_length(steps)
    truth, seen = np.repeat(INITIAL, steps + 1), np.zeros((steps + 1, config.view.size), config.view.dtype)
    chosen, actions, rewards = np.zeros(steps, np.int64), np.zeros(steps, np.int64), np.zeros(steps)
    probabilities, values, snapshots = [], [], []
    generator = np.random.default_rng([seed, 1])  # as `stockade evaluate` has it
    obs, _ = envs.reset(seed=seed)
    player.begin(1)
    for t in range(steps):
        _keep(envs, obs, truth[t : t + 1], seen[t])
        if isinstance(envs, NativeVectorEnv):
            snapshots.append(envs.snapshot())
        shown = seen_by(player, obs, config, np.array([t]))
        if isinstance(policy, Agent):
            probabilities.append(policy.probabilities(shown[0]))
            values.append(policy.value(shown[0]))
        chosen[t : t + 1] = player.act(shown, generator) if given is None else given[t]
        actions[t : t + 1] = player.allowed(chosen[t : t + 1], shown, envs) if given is None else given[t]
        obs, reward, _, _, _ = envs.step(actions[t : t + 1])
        rewards[t] = reward[0]
    _keep(envs, obs, truth[steps:], seen[steps])
    player.end()
    return Episode(
        player.name, player.style, source, config, seed, size, truth, seen, chosen, actions, rewards,
        np.array(probabilities) if probabilities else None, np.array(values) if values else None,
        _order_of(policy), tuple(snapshots),
    )  # fmt: skip


def _keep(envs: BaseVectorEnv, obs: np.ndarray, truth: np.ndarray, seen: np.ndarray) -> None:
    """Copy the present state; what a simulator cannot say stays as it was at the start."""
    states: Any = envs.true_state().states
    for name in states.dtype.names:
        if name in (WORLD.names or ()):
            truth[name] = states[name]
    seen[...] = obs[0]


def _order_of(policy: Any) -> str:
    """In words, for a policy of a search; nothing for others."""
    if not isinstance(policy, Agent) or not hasattr(policy, "allowed"):
        return ""
    bound: Any = policy
    return f"{bound.units.describe(bound.order)} (judge: {bound.judge})"


def belief_of(episode: Episode) -> Belief:
    """What blue had reason to believe at the start and after each step, (T + 1, ...): the policy's own belief, if it
    has one, else that of somebody who does not know who attacks, nor by which rules."""
    view = episode.config.view
    obs = str(view) if view.kind == "belief" else f"belief:64:both:{_suspects(episode.config)}"
    belief = BeliefFilter(1, obs)
    found = [belief.belief()]
    found += [belief.update([action], seen[None, :OBS_SIZE])
              for action, seen in zip(episode.actions, episode.seen[1:], strict=True)]  # fmt: skip
    return Belief.of(np.concatenate([one.features for one in found]))


def _suspects(config: WorldConfig) -> str:
    """The challenge's attackers, and who really attacks if a belief can know it; with staff as they really are."""
    plans = list(read_red(POSSIBLE_REDS).plans)
    rate = GREEN[config.green] if isinstance(config.green, str) else config.green
    with contextlib.suppress(SettingError):  # the mix of these, or an attacker that learned
        plans += read_red(config.red).plans
    if rate:
        plans = [tuple(replace(phase, green=rate) for phase in plan) for plan in plans]
    return str(Red(tuple(dict.fromkeys(plans))[-MOST_PLANS:]))


def is_stateless(player: Player) -> bool:
    """It can continue from any moment of any episode: it keeps nothing that we could not give it there."""
    policy = player.policy
    if isinstance(policy, Defender):
        return True
    recurrent = "lstm" in type(getattr(policy, "policy", None)).__name__.lower()
    return player.parallel and not hasattr(policy, "reset") and not recurrent and not isinstance(policy, Recorded)
