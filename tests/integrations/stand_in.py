"""A small stand-in for CybORG 2.1: the parts of its interface that the adapter touches, and a toy game behind them.

Names, nesting and types are the reference's (test_cyborg_reference.py holds them against the real one); the game is
not, nor how agents are asked for a move. Like the reference it draws everything from Python's global `random`, through
names imported at module level.
"""

from __future__ import annotations

import enum
import sys
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from random import choice, random, randrange, sample
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

HOSTNAMES = ["Defender", *(f"Enterprise{i}" for i in range(3)), *(f"Op_Host{i}" for i in range(3)), "Op_Server0",
             *(f"User{i}" for i in range(5))]  # fmt: skip
BLUE_ACTIONS = ["Analyse", "Remove", "DecoyApache", "DecoyFemitter", "DecoyHarakaSMPT", "DecoySmss", "DecoySSHD",
                "DecoySvchost", "DecoyTomcat", "DecoyVsftpd", "Restore"]  # fmt: skip
DECOY_PROCESSES = {"DecoyApache": "apache2", "DecoyFemitter": "femitter", "DecoyHarakaSMPT": "haraka",
                   "DecoySmss": "Smss.exe", "DecoySSHD": "Sshd.exe", "DecoySvchost": "Svchost.exe",
                   "DecoyTomcat": "Tomcat.exe", "DecoyVsftpd": "vsftpd"}  # fmt: skip


class TrinaryEnum(enum.Enum):
    TRUE = enum.auto()
    UNKNOWN = enum.auto()
    FALSE = enum.auto()


class DecoyType(enum.Flag):
    NONE = 0
    ESCALATE = enum.auto()
    EXPLOIT = enum.auto()
    SANDBOXING_EXPLOIT = enum.auto()


class Process:
    def __init__(self, process_name: str, pid: int, decoy_type: DecoyType = DecoyType.NONE) -> None:
        self.name, self.pid, self.decoy_type = process_name, pid, decoy_type


class File:
    def __init__(self, name: str) -> None:
        self.name = name


class Session:
    def __init__(self, ident: int, host: str, username: str, pid: int) -> None:
        self.ident, self.host, self.username, self.pid = ident, host, username, pid


class RedAbstractSession(Session):
    """As of commit 606813b; a later one also has `clearports`."""

    def __init__(self, ident: int, host: str, username: str, pid: int) -> None:
        super().__init__(ident, host, username, pid)
        self.ports: dict[IPv4Address, list[int]] = {}
        self.ot_service: str | None = None


class RepairedRedAbstractSession(RedAbstractSession):
    def clearports(self, ip_address: IPv4Address) -> None:
        self.ports[ip_address] = []


class VelociraptorServer(Session):
    def __init__(self, ident: int, host: str, username: str, pid: int) -> None:
        super().__init__(ident, host, username, pid)
        self.sus_pids: dict[str, list[int]] = {}


class ProcessVersion(enum.Enum):
    HARAKA_2_7_0 = enum.auto()
    UNKNOWN = enum.auto()

    @classmethod
    def parse_string(cls, version_string: Any) -> Any:
        return cls.HARAKA_2_7_0 if version_string == "haraka 2.7.0" else cls.UNKNOWN


class RepairedProcessVersion(enum.Enum):
    HARAKA_2_7_0 = enum.auto()
    UNKNOWN = enum.auto()

    @classmethod
    def parse_string(cls, version_string: Any) -> Any:
        return cls.HARAKA_2_7_0 if version_string == "haraka 2.7.0" else version_string


class Host:
    def __init__(self, hostname: str) -> None:
        self.hostname = hostname
        self.processes = [Process("sshd", 1091)]
        if hostname == "User3":
            self.processes.append(Process("apache2", 1100))  # real, though a decoy has that name
        self.files: list[File] = []
        if hostname == "Op_Server0":
            self.processes.append(Process("OTService", 1043))


class State:
    def __init__(self) -> None:
        networks = sample(list(IPv4Network("10.0.0.0/16").subnets(new_prefix=28)), 3)
        self.subnet_name_to_cidr = dict(zip(("Enterprise", "Operational", "User"), networks, strict=True))
        self.ip_addresses = {}
        for name, network in self.subnet_name_to_cidr.items():
            members = [h for h in HOSTNAMES if h.startswith({"Operational": "Op_"}.get(name, name))]
            members += ["Defender"] if name == "Enterprise" else []
            self.ip_addresses.update(zip(sample(list(network.hosts()), len(members)), members, strict=True))
        self.hosts = {name: Host(name) for name in HOSTNAMES}
        self.sessions: dict[str, dict[int, Any]] = {
            "Blue": {0: VelociraptorServer(0, "Defender", "ubuntu", randrange(32768))},
            "Green": {},
            "Red": {0: RepairedRedAbstractSession(0, "User0", "SYSTEM", randrange(32768))},
        }


class Action:
    """Blue's and red's actions all derive from one class whose `str` names the target as the agent knows it."""

    def __init__(self, **target: Any) -> None:
        self.__dict__.update(target)

    @property
    def cost(self) -> int:
        return -1 if type(self).__name__ == "Restore" else 0

    def __str__(self) -> str:
        return " ".join([type(self).__name__, *map(str, self.__dict__.values())])


OTHER_ACTIONS = ["Sleep", "Monitor", "ExploitRemoteService", "PrivilegeEscalate", "DiscoverRemoteSystems",
                 "GreenPortScan"]  # fmt: skip
ACTIONS = {name: type(name, (Action,), {}) for name in (*OTHER_ACTIONS, *BLUE_ACTIONS)}


class SleepAgent:
    def get_action(self, state: State) -> Action:
        return ACTIONS["Sleep"]()


class GreenAgent(SleepAgent):
    pass


class B_lineAgent:
    """Exploits, escalates or scans whatever comes."""

    def get_action(self, state: State) -> Action:
        address = choice(list(state.ip_addresses))
        kind = randrange(3)
        if kind == 0:
            return ACTIONS["DiscoverRemoteSystems"](subnet=choice(list(state.subnet_name_to_cidr.values())))
        if kind == 1:
            return ACTIONS["ExploitRemoteService"](ip_address=address)
        return ACTIONS["PrivilegeEscalate"](hostname=state.ip_addresses[address])


class RedMeanderAgent(B_lineAgent):
    pass


class HostReward(NamedTuple):
    confidentiality: float
    availability: float


class Controller:
    """`CybORG.environment_controller`."""

    def __init__(self, agents: dict[str, Any]) -> None:
        self.agents = {name: agent() for name, agent in agents.items()}
        self.action: dict[str, Action] = {}
        self.success: dict[str, TrinaryEnum] = {}
        self.reset()

    def reset(self) -> None:
        self.state = State()
        known = SimpleNamespace(ip_address={}, hostname={}, subnet={})
        for address, name in self.state.ip_addresses.items():
            known.ip_address[address] = known.hostname[name] = name == "User0"
        known.subnet = {cidr: name == "User" for name, cidr in self.state.subnet_name_to_cidr.items()}
        self.agent_interfaces = {"Red": SimpleNamespace(action_space=known)}

    def step(self, action: Action) -> float:
        self._perform("Blue", action)
        self._perform("Green", self.agents["Green"].get_action(self.state))
        self._perform("Red", self.agents["Red"].get_action(self.state))
        scores = self.scores().values()
        return sum(score.confidentiality + score.availability for score in scores) + self.action["Blue"].cost

    def scores(self) -> dict[str, HostReward]:
        root = {session.host for session in self.state.sessions["Red"].values() if session.username == "root"}
        up = any(process.name == "OTService" for process in self.state.hosts["Op_Server0"].processes)
        return {
            name: HostReward(-0.1 if name in root else 0.0, -10.0 if name == "Op_Server0" and not up else 0)
            for name in HOSTNAMES
        }

    def _perform(self, agent: str, action: Action) -> None:
        self.action[agent] = action
        name, state = type(action).__name__, self.state
        self.success[agent] = TrinaryEnum.UNKNOWN if name == "Sleep" else TrinaryEnum.TRUE
        if name in DECOY_PROCESSES:
            decoy = Process(DECOY_PROCESSES[name], randrange(32768), DecoyType.EXPLOIT)
            state.hosts[action.hostname].processes.append(decoy)
        elif name == "Restore":
            state.hosts[action.hostname] = Host(action.hostname)
            red = state.sessions["Red"]
            state.sessions["Red"] = {i: s for i, s in red.items() if i == 0 or s.host != action.hostname}
        elif name == "ExploitRemoteService":
            if random() < 0.5:
                self.success[agent] = TrinaryEnum.FALSE
                return
            host = state.ip_addresses[action.ip_address]
            ident = max(state.sessions["Red"]) + 1
            state.sessions["Red"][ident] = Session(ident, host, choice(["pi", "root"]), randrange(32768))
            state.hosts[host].files.append(File("cmd.sh"))


class CybORG:
    def __init__(self, scenario_file: str, environment: str = "sim", env_config: Any = None, agents: Any = None):
        assert (environment, Path(scenario_file).name) == ("sim", "Scenario2.yaml")
        self.environment_controller = Controller(agents)

    def get_last_action(self, agent: str) -> Action | None:
        return self.environment_controller.action.get(agent)

    def get_observation(self, agent: str) -> dict[str, Any]:
        return {"success": self.environment_controller.success[agent]}

    def get_reward_breakdown(self, agent: str) -> dict[str, HostReward]:
        assert agent == "Blue"
        return self.environment_controller.scores()

    def get_agent_state(self, agent_name: str) -> dict[str, Any]:
        red = self.environment_controller.state.sessions["Red"].values()
        return {h: {"Sessions": [{"Username": s.username, "Agent": "Red"} for s in red if s.host == h]}
                for h in HOSTNAMES}  # fmt: skip


class ChallengeWrapper:
    """The old gym interface: `reset()` gives an observation, `step()` four values; int64 observations."""

    def __init__(self, agent_name: str, env: CybORG) -> None:
        assert agent_name == "Blue"
        self.cyborg = env
        self.possible_actions = [ACTIONS["Sleep"](), ACTIONS["Monitor"]()]
        self.possible_actions += [ACTIONS[name](hostname=host) for name in BLUE_ACTIONS for host in HOSTNAMES]
        self.reset()

    def reset(self) -> np.ndarray:
        self.cyborg.environment_controller.reset()
        return self._vector()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        reward = self.cyborg.environment_controller.step(self.possible_actions[action])
        return self._vector(), round(reward, 1), False, {}

    def get_attr(self, attribute: str) -> Any:
        return getattr(self, attribute, None)

    def _vector(self) -> np.ndarray:
        touched = {s.host for s in self.cyborg.environment_controller.state.sessions["Red"].values()}
        return np.array([[0, 0, h in touched, 0] for h in HOSTNAMES]).ravel()


def install(monkeypatch: pytest.MonkeyPatch, *, version: str = "2.1", clears_ports: bool = True,
            keeps_versions: bool = True) -> None:  # fmt: skip
    """Makes `import CybORG` find the stand-in. The defaults are commit 26ce1c1, two times False is 606813b."""
    contents: dict[str, dict[str, Any]] = {
        "CybORG": {
            "CybORG": CybORG, "CYBORG_VERSION": version, "__file__": "CybORG/__init__.py", "__path__": [],
        },
        "CybORG.Agents": {"__path__": []} | {
            agent.__name__: agent for agent in (SleepAgent, GreenAgent, B_lineAgent, RedMeanderAgent)
        },
        "CybORG.Agents.Wrappers": {"ChallengeWrapper": ChallengeWrapper},
        "CybORG.Simulator": {"__path__": []},
        "CybORG.Simulator.Session": {
            "RedAbstractSession": RepairedRedAbstractSession if clears_ports else RedAbstractSession,
        },
        "CybORG.Shared": {"__path__": []},
        "CybORG.Shared.Enums": {"ProcessVersion": RepairedProcessVersion if keeps_versions else ProcessVersion},
    }  # fmt: skip
    for name, attributes in contents.items():
        module = ModuleType(name)
        module.__dict__.update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
