"""The reference simulator as a Gymnasium environment: action -> CybORG 2.1 -> observation, reward, true state.

`CybORGEnv` wraps an installed CybORG, unmodified, through its own `ChallengeWrapper`, and makes it look like
`stockade.make(...)`: it drops into every vector backend and every evaluation, and judges the built-in world.

The reference draws from Python's global `random`. Here each environment keeps a stream of its own, swapped in for the
length of a call, so that several of them in one process neither disturb each other nor anybody else.
"""

import importlib
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from stockade.cage2.actions import ACTION_NAMES, FALSE, N_ACTIONS, RED_TARGETS, RED_TYPES, TRUE, UNKNOWN, check_action
from stockade.cage2.scenario import HOSTS, NOBODY, PORTS, ROOT_USERS, SERVICE_HOST, SUBNETS
from stockade.cage2.state import INITIAL, OBS_SIZE, WORLD
from stockade.cage2.truth import TrueState

Bits = npt.NDArray[np.uint8]
VERSION = "2.1"
REPOSITORY = "cage-challenge/cage-challenge-2"
REQUIREMENTS = "gym==0.26.2 pyyaml prettytable paramiko"
COMMITS = {"current": "26ce1c1", "leaderboard": "606813b"}  #: commit of the repository that plays by each rule set
HOW_TO_INSTALL = (
    f"CybORG {VERSION} is in no package registry: clone the git repository {REPOSITORY} from GitHub (commit "
    f"{COMMITS['current']} for the rules `current`, {COMMITS['leaderboard']} for `leaderboard`), put the clone's "
    f"folder `CybORG` on PYTHONPATH (or `pip install -e` it), and `pip install {REQUIREMENTS}`."
)

RED_AGENTS = {"bline": "B_lineAgent", "meander": "RedMeanderAgent", "sleep": "SleepAgent"}
GREEN_AGENTS = {"sleep": "SleepAgent", "active": "GreenAgent"}

#: What cannot be read out of the reference: it forgets which exploit it chose and whether blue saw it, and `red` is a
#: matter of the caller.
NOT_READABLE = ("red", "exploit", "detected")
#: The true state: otherwise all fields of the built-in world's `TrueState`, with the same names and types.
TRUE_STATE = np.dtype([(f.name, WORLD[f.name]) for f in fields(TrueState) if f.name not in NOT_READABLE], align=True)
#: Of those, what tells of the last step; at the start of an episode they are as in the built-in world.
_LAST_STEP = ("red_type", "red_target", "red_success", "blue_action", "blue_success", "green_target")

#: Name of the process that each decoy starts, in the order of `cage2.scenario.DECOYS`.
_DECOY_PROCESSES = ("apache2", "femitter", "haraka", "Smss.exe", "Sshd.exe", "Svchost.exe", "Tomcat.exe", "vsftpd")
_DECOY_BIT = {process: 1 << bit for bit, process in enumerate(_DECOY_PROCESSES)}
_FILE_BIT = {"cmd": 1, "escalate": 2}  # by the name before the dot
_PORT_BIT = {port: 1 << bit for bit, port in enumerate(PORTS)}
_SUCCESS = {"FALSE": FALSE, "TRUE": TRUE, "UNKNOWN": UNKNOWN}
#: Held while an environment's stream stands in for the global one: threads take turns.
_GLOBAL_RANDOM = threading.Lock()


def load_reference() -> ModuleType:
    """The package CybORG; ImportError if it, or something it needs, is not there, or it is another version."""
    try:
        package = importlib.import_module("CybORG")
        found = getattr(package, "CYBORG_VERSION", "of no version")
        if found != VERSION:
            raise ImportError(f"it is CybORG {found}, not {VERSION}", name="CybORG")
        importlib.import_module("CybORG.Agents.Wrappers")
    except ImportError as error:
        raise ImportError(f"CybORG cannot be used: {error}. {HOW_TO_INSTALL}", name=error.name) from error
    return package


def detect_rules() -> str:
    """Which rule set the installed CybORG plays by: `current`, `leaderboard`, or `unknown` for a mixture of the two."""
    # Two repairs divide them: a service scan replaces the ports that red remembers, and a restored host keeps the
    # versions of its processes, so that HarakaRCE still works there.
    session = importlib.import_module("CybORG.Simulator.Session").RedAbstractSession
    version = importlib.import_module("CybORG.Shared.Enums").ProcessVersion
    scan_replaces = hasattr(session, "clearports")
    restore_keeps_versions = version.parse_string(version.HARAKA_2_7_0) is version.HARAKA_2_7_0
    found = {(True, True): "current", (False, False): "leaderboard"}
    return found.get((scan_replaces, restore_keeps_versions), "unknown")


class CybORGEnv(gym.Env[Bits, np.int64]):
    """CAGE Challenge 2 played by the reference simulator itself.

    Observation: (52,) uint8. Action: 0..144. Both, and the info of a step, are as the built-in world's.
    Reward: the reference's, rounded by it to one decimal. Termination: never. Truncation: after `horizon` steps.
    State: `true_state()`, a record with the fields of `stockade.cage2.truth.TrueState`, but for `NOT_READABLE`.
    `reset(seed=s)` gives the episode of `random.seed(s); env.reset()`, and `reset()` continues the same stream.

    Args:
        red: `bline`, `meander`, `sleep`, the name of any class in `CybORG.Agents`, or an agent class of your own.
        rules: Refuse to run unless the installed CybORG plays by this rule set. None takes what is there; see `rules`.
        chance: `cyborg`, the only one it has; so that the arguments are those of `stockade.make`.
        green: `sleep` (the challenge) or `active`, or as for red.

    Attributes:
        rules: Rule set that was found: `current`, `leaderboard` or `unknown`.
        cyborg: The `CybORG` object, for whatever is not offered here.
        random_state: This environment's stream, as `random.getstate()` gives it.
    """

    true_state_dtype: ClassVar[np.dtype[np.void]] = TRUE_STATE

    def __init__(
        self,
        red: str | type = "bline",
        horizon: int = 100,
        rules: str | None = None,
        chance: str = "cyborg",
        green: str | type = "sleep",
    ) -> None:
        if horizon < 1:
            raise ValueError(f"horizon must be at least 1, not {horizon}")
        if chance != "cyborg":
            raise ValueError(f"chance={chance!r} is unknown to the reference simulator, which has only 'cyborg'")
        package, self.rules = load_reference(), detect_rules()
        if rules not in (None, self.rules):
            fix = f"check out one of the commits {COMMITS} of {REPOSITORY}"
            raise ValueError(f"asked for the rules {rules!r}, but the installed CybORG plays by {self.rules!r}; {fix}")
        self.horizon = horizon
        self.observation_space = gym.spaces.Box(0, 1, (OBS_SIZE,), np.uint8)
        self.action_space = gym.spaces.Discrete(N_ACTIONS)
        agents = {"Red": _agent_class("red", red, RED_AGENTS), "Green": _agent_class("green", green, GREEN_AGENTS)}
        wrapper = importlib.import_module("CybORG.Agents.Wrappers").ChallengeWrapper
        scenario = Path(package.__file__ or "").parent / "Shared" / "Scenarios" / "Scenario2.yaml"
        self.random_state = random.Random().getstate()
        with self._own_stream():
            self.cyborg = package.CybORG(str(scenario), "sim", agents=agents)
            self._challenge = wrapper(env=self.cyborg, agent_name="Blue")
        names = tuple(str(action) for action in self._challenge.get_attr("possible_actions"))
        if names != ACTION_NAMES:
            raise RuntimeError(f"the installed CybORG offers other actions than CAGE Challenge 2: {names}")
        self._time, self._action = -1, 0  # steps of this episode, -1 before the first; blue's last action

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Bits, dict[str, Any]]:
        if options:
            raise ValueError(f"unknown options {sorted(options)}; this environment takes none")
        super().reset(seed=seed)
        if seed is not None:
            self.random_state = random.Random(int(seed)).getstate()  # what random.seed(seed) sets
        with self._own_stream():
            obs = self._challenge.reset()
        self._time = 0
        return np.asarray(obs, np.uint8), {}

    def step(self, action: np.int64 | int) -> tuple[Bits, float, bool, bool, dict[str, Any]]:
        if not 0 <= self._time < self.horizon:
            raise gym.error.ResetNeeded(f"call reset() first, and when the episode is over after {self.horizon} steps")
        self._action = check_action(action)  # the reference would take -1 for the last action
        with self._own_stream():
            obs, reward, done, _ = self._challenge.step(self._action)
        self._time += 1
        return np.asarray(obs, np.uint8), float(reward), bool(done), self._time >= self.horizon, self._info()

    def true_state(self) -> np.record:
        """What is really going on, as a new record: `env.true_state().red_access` is (13,) uint8."""
        state: np.record = np.zeros(1, TRUE_STATE).view(np.recarray)[0]
        self.write_true_state(state)
        return state

    def write_true_state(self, record: np.void | npt.NDArray[np.void]) -> None:
        """Writes the true state into one record of type `true_state_dtype`, such as a row of shared memory.

        Reads the simulator's objects instead of `get_agent_state("True")`, which says nothing of files and of which
        processes are decoys, and takes 20 times as long because it describes every process in words.
        """
        if self._time < 0:
            raise gym.error.ResetNeeded("call reset() before anything else")
        controller = self.cyborg.environment_controller
        truth = np.zeros((), TRUE_STATE)
        _read_hosts(controller.state, truth)
        _read_sessions(controller.state, truth)
        _read_knowledge(controller.state, controller.agent_interfaces["Red"].action_space, truth)
        self._read_last_step(truth)
        for field in TRUE_STATE.names or ():
            record[field] = truth[field]

    def agent_state(self) -> dict[str, Any]:
        """The reference's own account of the true state, `get_agent_state("True")`: slow and in words."""
        return dict(self.cyborg.get_agent_state("True"))

    def _read_last_step(self, truth: np.ndarray) -> None:
        if self._time == 0:
            for field in _LAST_STEP:
                truth[field] = INITIAL[0][field]
            return
        red_type, red_target = self._last_action("Red")
        green_target = self._last_action("Green")[1]
        truth["time"], truth["blue_action"] = self._time, self._action
        truth["red_type"] = RED_TYPES.index(red_type) if red_type in RED_TYPES else NOBODY
        truth["red_target"] = RED_TARGETS.index(red_target) if red_target else NOBODY
        truth["green_target"] = HOSTS.index(green_target) if green_target else NOBODY
        truth["red_success"], truth["blue_success"] = self._success("Red"), self._success("Blue")

    def random_peek(self) -> int:
        """The next 32 bits of this environment's stream, not drawn."""
        stream = random.Random()
        stream.setstate(self.random_state)
        return stream.getrandbits(32)

    @contextmanager
    def _own_stream(self) -> Iterator[None]:
        """Lets the global `random` continue this environment's stream, and gives it back untouched."""
        with _GLOBAL_RANDOM:
            outside = random.getstate()
            random.setstate(self.random_state)
            try:
                yield
            finally:
                self.random_state = random.getstate()
                random.setstate(outside)

    def _info(self) -> dict[str, Any]:
        scores = self.cyborg.get_reward_breakdown("Blue").values()
        return {
            "red_action": " ".join(self._last_action("Red")).strip(),
            "red_success": self._success("Red") != FALSE,
            "blue_action": " ".join(self._last_action("Blue")).strip(),
            "blue_success": self._success("Blue") != FALSE,
            "reward_hosts": round(sum(score.confidentiality for score in scores), 1) + 0.0,  # no minus zero
            "reward_service": round(sum(score.availability for score in scores), 1) + 0.0,
            "reward_restore": float(self.cyborg.get_last_action("Blue").cost),
        }

    def _last_action(self, agent: str) -> tuple[str, str]:
        """Class and target of an agent's last action; a host or subnet by name where the reference has its address."""
        action, state = self.cyborg.get_last_action(agent), self.cyborg.environment_controller.state
        target = getattr(action, "hostname", "")
        if not target and hasattr(action, "ip_address"):
            target = state.ip_addresses[action.ip_address]
        elif not target and hasattr(action, "subnet"):
            target = next(name for name, network in state.subnet_name_to_cidr.items() if network == action.subnet)
        return type(action).__name__, target

    def _success(self, agent: str) -> int:
        return _SUCCESS[self.cyborg.get_observation(agent)["success"].name]


def _read_hosts(state: Any, truth: np.ndarray) -> None:
    for h, hostname in enumerate(HOSTS):
        for process in state.hosts[hostname].processes:
            if process.name in _DECOY_BIT and process.decoy_type:  # a real service may bear a decoy's name
                truth["decoys"][h] |= _DECOY_BIT[process.name]
                truth["n_decoys"][h] += 1
        for file in state.hosts[hostname].files:
            truth["files"][h] |= _FILE_BIT.get(file.name.partition(".")[0], 0)
    truth["service_down"] = all(p.name != "OTService" for p in state.hosts[HOSTS[SERVICE_HOST]].processes)


def _read_sessions(state: Any, truth: np.ndarray) -> None:
    suspicious = state.sessions["Blue"][0].sus_pids
    for session in state.sessions["Red"].values():
        h, root = HOSTS.index(session.host), session.username in ROOT_USERS
        truth["red_sessions"][h] += 1
        truth["red_root_sessions"][h] += root
        truth["red_removable"][h] += not root and session.pid in suspicious.get(session.host, ())
    truth["red_access"] = np.where(truth["red_root_sessions"] > 0, 2, truth["red_sessions"] > 0)


def _read_knowledge(state: Any, known: Any, truth: np.ndarray) -> None:
    foothold = state.sessions["Red"][0]
    for address, hostname in state.ip_addresses.items():
        h = HOSTS.index(hostname)
        truth["known_addresses"] |= bool(known.ip_address.get(address)) << h
        truth["known_names"] |= bool(known.hostname.get(hostname)) << h
        for port in foothold.ports.get(address, ()):
            truth["red_ports"][h] |= _PORT_BIT.get(port, 0)
    for s, name in enumerate(SUBNETS):
        truth["known_subnets"] |= bool(known.subnet.get(state.subnet_name_to_cidr[name])) << s
    truth["red_knows_service"] = foothold.ot_service is not None


def _agent_class(side: str, choice: str | type, short_names: dict[str, str]) -> type:
    agents = importlib.import_module("CybORG.Agents")
    found = choice if isinstance(choice, type) else getattr(agents, short_names.get(choice, choice), None)
    if not isinstance(found, type):
        known = f"take one of {sorted(short_names)}, the name of a class in CybORG.Agents, or an agent class"
        raise ValueError(f"unknown {side} agent {choice!r}; {known}")
    return found
