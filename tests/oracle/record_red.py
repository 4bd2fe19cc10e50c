"""Records a real CybORG 2.1 whose red is played freely: `python -m tests.oracle.record_red FOLDER`.

    red policy, blue policy -> CybORG, several episodes in lockstep -> traces (.npz) -> the model, `stockade verify`

For people with a CybORG (docs/cyborg.md). Red's actions go in by the reference's own door: an agent class whose
`get_action` returns them. The rule set is that of the CybORG that is installed. Fields as in the other traces, and

    red_action   (episodes, steps)      what red was told to do: index into `MOVES`
    red_invalid  (episodes, steps)      1 where the reference made an InvalidAction of it
    red_reward   (episodes, steps)      red's own reward
    red_saw_ports, red_saw_session      what red's own observation showed of ports and sessions
    red_mask     (episodes, steps + 1)  bit i: the reference accepts action i
"""

import importlib
import json
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from stockade.integrations.cyborg import CybORGEnv

from .network import DECOYS, PORT_BIT, PORTS, BlueClass, Exploit, Host, Outcome, RedAction, SessionSeen, Subnet
from .policies import POLICIES, sleep
from .red import MOVES
from .red_policies import RED_POLICIES, RedView

_BLOCK = 624  # words that Python's generator makes at once
_EXPLOITS = (
    "none", "EternalBlue", "BlueKeep", "HTTPRFI", "HTTPSRFI", "SSHBruteForce", "SQLInjection", "HarakaRCE",
    "FTPDirectoryTraversal",
)  # fmt: skip
_KINDS = (
    "Sleep", "DiscoverRemoteSystems", "DiscoverNetworkServices", "ExploitRemoteService", "PrivilegeEscalate", "Impact",
)  # fmt: skip
#: Fields of the true state that a trace holds under the same name, and their types there.
_STATE = dict.fromkeys(("red_root_sessions", "red_removable", "decoys", "files"), np.uint8) | {
    "red_sessions": np.uint16, "n_decoys": np.uint16, "red_ports": np.uint16,
}  # fmt: skip
_STEP_TYPES = {"reward": np.float64, "red_reward": np.float64, "blue_action": np.int16, "red_saw_ports": np.uint16}


class GivenRed:
    """A red agent for CybORG that does what it was told."""

    def __init__(self) -> None:
        self.action: Any = None

    def get_action(self, observation: Any, action_space: Any) -> Any:
        return self.action

    def train(self, results: Any) -> None: ...
    def end_episode(self) -> None: ...
    def set_initial_values(self, action_space: Any, observation: Any) -> None: ...


class Episode:
    """One episode of the reference, and what is recorded of it."""

    def __init__(self, env: CybORGEnv, seed: int) -> None:
        self.env = env
        self.controller = self.env.cyborg.environment_controller
        self._actions = importlib.import_module("CybORG.Shared.Actions")
        self.obs, _ = self.env.reset(seed=seed)
        self._taken = 0
        state = self.controller.state
        self._addresses = {name: address for address, name in state.ip_addresses.items()}
        self._moves = [self._action(kind, target) for kind, target in MOVES]
        self.states = [self._state()]
        self.steps: list[dict[str, Any]] = []

    def _action(self, kind: RedAction, target: int) -> Any:
        """One of red's actions as an object of the reference."""
        make, who = getattr(self._actions, _KINDS[kind]), {"session": 0, "agent": "Red"}
        if kind is RedAction.SLEEP:
            return make()
        if kind is RedAction.DISCOVER_REMOTE_SYSTEMS:
            return make(subnet=self.controller.state.subnet_name_to_cidr[Subnet(target).name.title()], **who)
        host = _name(target)
        if kind in (RedAction.PRIVILEGE_ESCALATE, RedAction.IMPACT):
            return make(hostname=host, **who)
        return make(ip_address=self._addresses[host], **who)

    def view(self) -> tuple[list[bool], np.record]:
        """Red's mask and the true state."""
        red = self.controller.agent_interfaces["Red"]
        return [self.controller.test_valid_action(move, red) for move in self._moves], self.env.true_state()

    def step(self, blue_action: int, red_action: int) -> None:
        move = self._moves[red_action] = self._action(*MOVES[red_action])  # anew: the reference leaves things in it
        self.controller.agent_interfaces["Red"].agent.action = move
        suspicious = self._suspicious()
        self.obs, reward, *_ = self.env.step(blue_action)
        truth, seen = self.env.true_state(), self.env.cyborg.get_observation("Red")
        done = self.controller.action["Red"]
        chosen = type(getattr(move, "sub_action", None)).__name__
        shell = _session_seen(seen) is SessionSeen.SHELL
        self.steps.append({
            "blue_action": blue_action, "reward": reward, "blue_success": truth.blue_success,
            "red_action": red_action, "red_type": MOVES[red_action][0], "red_target": MOVES[red_action][1],
            "red_success": Outcome[seen["success"].name], "red_invalid": type(done).__name__ == "InvalidAction",
            "red_reward": round(self.controller.reward["Red"], 1),
            "exploit": _EXPLOITS.index(chosen) if chosen in _EXPLOITS else Exploit.NONE,
            "detect": sum(self._suspicious()) - sum(suspicious) if shell else -1,
            "red_saw_ports": _ports_seen(seen), "red_saw_session": _session_seen(seen),
            "green_type": truth.green_target >= 0, "green_target": truth.green_target,
        })  # fmt: skip
        self.states.append(self._state())

    def _suspicious(self) -> list[int]:
        found = self.controller.state.sessions["Blue"][0].sus_pids
        return [len(found.get(_name(host), ())) for host in Host]

    def _state(self) -> dict[str, Any]:
        mask, truth = self.view()
        hosts = [self.controller.state.hosts[_name(host)] for host in Host]
        service = hosts[Host.OP_SERVER0].services["OTService"]
        peek, words = self._stream()
        known = [truth.known_addresses >> h & 1 | 2 * (truth.red_ports[h] > 0) | 4 * (truth.known_names >> h & 1)
                 for h in Host]  # fmt: skip
        return {name: truth[name] for name in _STATE} | {
            "obs": self.obs, "red_priv": truth.red_access, "red_subnets": truth.known_subnets, "red_know": known,
            "ot": int(truth.service_down) | 2 * bool(service["active"]) | 4 * (service["process"] is not None)
            | 8 * int(truth.red_knows_service),
            "rng_peek": peek, "rng_words": words, "sus_pids": self._suspicious(),
            "n_processes": [len(host.processes) for host in hosts],
            "n_eph_ports": [len(host.ephemeral_ports) for host in hosts],
            "red_mask": sum(1 << i for i, allowed in enumerate(mask) if allowed),
        }  # fmt: skip

    def _stream(self) -> tuple[int, int]:
        """The next word, and how many were taken since the last call (fewer than a block)."""
        place = self.env.random_state[1][-1] % _BLOCK
        words, self._taken = (place - self._taken) % _BLOCK, place
        return self.env.random_peek(), words


def _name(host: int) -> str:
    """A host as the reference spells it."""
    return Host(host).name.title()


def _ports_seen(observation: dict[str, Any]) -> int:
    """Mask of the known services' ports that red's observation shows as open at somebody's end."""
    mask = 0
    for entry in observation.values():
        for process in entry.get("Processes", ()) if isinstance(entry, dict) else ():
            for connection in process.get("Connections", ()):
                mask |= PORT_BIT.get(connection.get("local_port"), 0)
    return mask


def _session_seen(observation: dict[str, Any]) -> SessionSeen:
    sessions = [s for entry in observation.values() if isinstance(entry, dict) for s in entry.get("Sessions", ())]
    if not sessions:
        return SessionSeen.NONE
    (session,) = sessions
    if session.get("Username") in ("root", "SYSTEM"):
        return SessionSeen.ROOT
    return SessionSeen.SSH if session["Type"].name == "SSH" else SessionSeen.SHELL


@dataclass(frozen=True)
class Recording:
    """Record the installed CybORG with a red that is played freely."""

    folder: tyro.conf.Positional[Path]
    """where the traces go"""
    red: tuple[str, ...] = tuple(RED_POLICIES)
    """red policies, each a file"""
    blue: tuple[str, ...] = ("sleep", "uniform", "react_restore", "react_remove", "late_restore", "restore_and_decoy")
    """blue policies; each episode takes the next one, file after file"""
    green: tuple[str, ...] = ("sleep", "active")
    """green agents"""
    episodes: int = 6
    """episodes per file"""
    horizon: int = 100
    """steps of an episode"""
    seed: int = 0
    """of the first episode, and of the policies"""


def record(settings: Recording, envs: list[CybORGEnv], red: str, number: int) -> dict[str, np.ndarray]:
    """Plays the episodes of one file, one in each environment. Returns its arrays."""
    generator = np.random.default_rng([settings.seed, number])
    n = len(envs)
    seeds = settings.seed + n * number + np.arange(n)
    episodes = [Episode(env, int(seed)) for env, seed in zip(envs, seeds, strict=True)]
    blue = [settings.blue[(n * number + i) % len(settings.blue)] for i in range(n)]
    policies = POLICIES | {"sleep": sleep}
    for t in range(settings.horizon):
        masks, truths = zip(*(episode.view() for episode in episodes), strict=True)
        view = RedView(
            np.array(masks),
            *(np.array([truth[name] for truth in truths]) for name in ("red_access", "red_ports")),
            np.array([bool(truth.red_knows_service) for truth in truths]),
        )
        red_actions = RED_POLICIES[red](generator, view, t)
        observations = np.array([episode.obs for episode in episodes])
        for i, episode in enumerate(episodes):
            blue_action = policies[blue[i]](generator, observations, t)[i]
            episode.step(int(blue_action), int(red_actions[i]))
    return arrays_of(episodes, seeds)


def arrays_of(episodes: list[Episode], seeds: np.ndarray) -> dict[str, np.ndarray]:
    """Episodes of one length as the arrays of a trace."""
    arrays = {"seed": seeds, "valid_steps": np.full(len(seeds), len(episodes[0].steps), np.int16)}
    for name in episodes[0].steps[0]:
        arrays[name] = np.array([[s[name] for s in e.steps] for e in episodes], _STEP_TYPES.get(name, np.int8))
    types = _STATE | {"rng_peek": np.uint32, "rng_words": np.uint16, "red_mask": np.uint64, "sus_pids": np.uint16,
                      "n_processes": np.uint16, "n_eph_ports": np.uint16}  # fmt: skip
    for name in episodes[0].states[0]:
        arrays[name] = np.array([[s[name] for s in e.states] for e in episodes], types.get(name, np.uint8))
    return arrays


def main(settings: Recording) -> int:
    settings.folder.mkdir(parents=True, exist_ok=True)
    made = range(settings.episodes)
    envs = {green: [CybORGEnv(GivenRed, settings.horizon, green=green) for _ in made] for green in settings.green}
    rules = envs[settings.green[0]][0].rules
    for number, (red, green) in enumerate(product(settings.red, settings.green)):
        arrays = record(settings, envs[green], red, number)
        write(settings.folder / f"free_{rules}_{red}_{green}.npz", arrays, rules, red, list(settings.blue), green)
    return 0


def write(path: Path, arrays: dict[str, np.ndarray], rules: str, red: str, blue: list[str], green: str) -> None:
    """A trace, with what it is of."""
    episodes, horizon = arrays["red_action"].shape
    meta = {
        "rules": rules, "red": "player", "red_policy": red, "policy": blue,
        "green": {"sleep": "SleepAgent", "active": "GreenAgent"}[green],
        "horizon": horizon, "episodes": episodes, "hosts": [_name(host) for host in Host],
        "subnets": [subnet.name.title() for subnet in Subnet], "red_types": _KINDS, "exploits": _EXPLOITS,
        "decoys": [BlueClass(BlueClass.DECOY_APACHE + i).name for i in range(len(DECOYS))], "ports": PORTS,
        "python": sys.version.split()[0], "source": "cage-challenge-2 CybORG 2.1, ChallengeWrapper, Scenario2",
    }  # fmt: skip
    np.savez_compressed(path, **arrays, meta=np.array(json.dumps(meta)))
    print(f"{path}  {int(arrays['valid_steps'].sum())} steps  {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Recording)))
