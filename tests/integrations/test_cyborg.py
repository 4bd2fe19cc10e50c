"""The CybORG adapter against a stand-in for CybORG's interface; test_cyborg_reference.py has the real one."""

from __future__ import annotations

import random
import sys
import threading
import warnings
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from stockade.cage2.actions import ACTION_NAMES, action_index
from stockade.cage2.scenario import HOSTS, PORTS
from stockade.integrations.cyborg import TRUE_STATE, CybORGEnv

from . import stand_in


@pytest.fixture
def cyborg(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.install(monkeypatch)


pytestmark = pytest.mark.usefixtures("cyborg")


def play(env: CybORGEnv, actions: list[int]) -> list[Any]:
    """Everything that an episode shows, without its reset."""
    return [(obs.tobytes(), reward, info) for obs, reward, _, _, info in map(env.step, actions)]


ACTIONS = [random.Random(1).randrange(145) for _ in range(40)]


# ------------------------------------------------------------------------------------------------- Gymnasium's contract
def test_gymnasium_accepts_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*not within the bounds.*|.*render.*|.*spec.*")
        check_env(CybORGEnv(), skip_render_check=True)


def test_spaces_and_types() -> None:
    env = CybORGEnv()
    obs, info = env.reset(seed=0)
    assert env.action_space == gym.spaces.Discrete(145)
    assert (obs.shape, obs.dtype, info) == ((52,), np.uint8, {})
    obs, reward, terminated, truncated, info = env.step(np.int64(3))
    assert obs.dtype == np.uint8 and obs in env.observation_space
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)


def test_truncates_at_the_horizon_and_never_terminates() -> None:
    env = CybORGEnv(horizon=3)
    for _ in range(2):
        env.reset()
        assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


def test_step_needs_a_reset() -> None:
    with pytest.raises(gym.error.ResetNeeded):
        CybORGEnv().step(0)


@pytest.mark.parametrize("action", [-1, 145])
def test_refuses_actions_that_do_not_exist(action: int) -> None:
    env = CybORGEnv()
    env.reset()
    with pytest.raises(ValueError, match=r"0\.\.144"):
        env.step(action)


def test_refuses_other_actions_than_the_challenges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_in, "BLUE_ACTIONS", stand_in.BLUE_ACTIONS[::-1])
    with pytest.raises(RuntimeError, match="other actions"):
        CybORGEnv()


def test_can_be_made_in_another_process() -> None:
    make = cloudpickle.loads(cloudpickle.dumps(lambda: CybORGEnv(red="meander", horizon=7)))
    assert make().horizon == 7


# ------------------------------------------------------------------------------------------------------------- seeding
def test_seeds_are_those_of_the_global_stream() -> None:
    """Two episodes in a row equal those of a script that uses CybORG and `random` directly."""
    env = CybORGEnv(red="bline")
    seen = [env.reset(seed=5)[0].tobytes(), *play(env, ACTIONS), env.reset()[0].tobytes(), *play(env, ACTIONS)]

    agents = {"Red": stand_in.B_lineAgent, "Green": stand_in.SleepAgent}
    direct = stand_in.ChallengeWrapper("Blue", stand_in.CybORG("Scenario2.yaml", agents=agents))
    before = random.getstate()
    random.seed(5)
    expected: list[Any] = []
    for _ in range(2):
        expected.append(direct.reset().astype(np.uint8).tobytes())
        expected += [(obs.astype(np.uint8).tobytes(), reward) for obs, reward, _, _ in map(direct.step, ACTIONS)]
    after = random.getstate()
    random.setstate(before)

    assert [s if isinstance(s, bytes) else s[:2] for s in seen] == expected
    assert env.random_state == after


def test_leaves_the_global_stream_alone() -> None:
    random.seed(11)
    before = random.getstate()
    env = CybORGEnv()
    env.reset(seed=1)
    play(env, ACTIONS)
    env.true_state()
    assert random.getstate() == before


def test_environments_in_one_process_keep_their_own_streams() -> None:
    alone = []
    for seed in (1, 2):
        env = CybORGEnv()
        env.reset(seed=seed)
        alone.append(play(env, ACTIONS))

    first, second = CybORGEnv(), CybORGEnv()
    first.reset(seed=1)
    second.reset(seed=2)
    together: list[list[Any]] = [[], []]
    for action in ACTIONS:
        together[0] += play(first, [action])
        random.random()
        together[1] += play(second, [action])
    assert together == alone
    assert alone[0] != alone[1]


def test_threads_take_turns() -> None:
    def episodes(seed: int, results: dict[int, Any]) -> None:
        env = CybORGEnv()
        env.reset(seed=seed)
        results[seed] = [play(env, ACTIONS) for _ in range(5)]

    alone: dict[int, Any] = {}
    for seed in range(4):
        episodes(seed, alone)
    together: dict[int, Any] = {}
    threads = [threading.Thread(target=episodes, args=(seed, together)) for seed in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert together == alone


def test_unseeded_environments_differ() -> None:
    random.seed(0)
    first = CybORGEnv()
    random.seed(0)
    second = CybORGEnv()
    assert first.random_state != second.random_state


def test_gives_the_global_stream_back_when_the_simulator_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    env = CybORGEnv()
    env.reset(seed=1)

    def fail(*_: Any) -> None:
        random.random()
        raise KeyError("a bug of the reference")

    monkeypatch.setattr(stand_in.B_lineAgent, "get_action", fail)
    before = random.getstate()
    with pytest.raises(KeyError):
        env.step(0)
    assert random.getstate() == before


# --------------------------------------------------------------------------------------------------------- information
def test_info_names_hosts_and_subnets_not_addresses() -> None:
    env = CybORGEnv(horizon=1000)
    env.reset(seed=3)
    infos = [env.step(action_index("Remove", "User2"))[4] for _ in range(300)]
    assert {info["blue_action"] for info in infos} == {"Remove User2"}
    expected = {f"{kind} {host}" for kind in ("ExploitRemoteService", "PrivilegeEscalate") for host in HOSTS}
    expected |= {f"DiscoverRemoteSystems {subnet}" for subnet in ("Enterprise", "Operational", "User")}
    assert {info["red_action"] for info in infos} == expected
    assert {(info["red_action"].split()[0], info["red_success"]) for info in infos} == {
        ("ExploitRemoteService", 0), ("ExploitRemoteService", 1), ("PrivilegeEscalate", 1), ("DiscoverRemoteSystems", 1),
    }  # fmt: skip


def test_sleep_succeeds_unknowably() -> None:
    env = CybORGEnv(red="sleep")
    env.reset()
    assert env.step(0)[4] == {"red_action": "Sleep", "red_success": 2, "blue_action": "Sleep", "blue_success": 2}


# ---------------------------------------------------------------------------------------------------------- true state
def test_true_state_at_the_start() -> None:
    env = CybORGEnv()
    env.reset(seed=0)
    truth = env.true_state()
    expected = np.zeros((), TRUE_STATE)
    for field in ("red_access", "red_sessions", "red_root_sessions"):
        expected[field][HOSTS.index("User0")] = 2 if field == "red_access" else 1
    expected["known_addresses"] = expected["known_names"] = 1 << HOSTS.index("User0")
    expected["known_subnets"] = 4
    expected["service_active"] = expected["service_has_process"] = 1
    for field in TRUE_STATE.names or ():
        np.testing.assert_array_equal(truth[field], expected[field], err_msg=field)


def test_true_state_of_a_network_in_trouble() -> None:
    env = CybORGEnv(red="sleep")
    env.reset(seed=0)
    for action in ("DecoyVsftpd User3", "DecoyVsftpd User3", "DecoyTomcat Enterprise1", "DecoySmss User1"):
        env.step(ACTION_NAMES.index(action))
    controller = env.cyborg.environment_controller
    state = controller.state
    red, address = state.sessions["Red"], {name: ip for ip, name in state.ip_addresses.items()}
    for ident, (host, user, pid) in enumerate(
        [("User3", "pi", 70), ("User3", "root", 71), ("User3", "pi", 72), ("Enterprise1", "vagrant", 73)], start=1
    ):
        red[ident] = stand_in.Session(ident, host, user, pid)
    state.sessions["Blue"][0].sus_pids = {"User3": [70, 71], "User4": [73]}
    state.hosts["User3"].files += [stand_in.File("cmd.sh"), stand_in.File("cmd.sh")]
    state.hosts["Enterprise1"].files += [stand_in.File("escalate.exe"), stand_in.File("notes.txt")]
    server = state.hosts["Op_Server0"]
    server.processes = [process for process in server.processes if process.name != "OTService"]
    server.services["OTService"] = {"active": False, "process": None}
    red[0].ports[address["User3"]] = [25, 80, 443, 80]
    red[0].ot_service = "OTService"
    known = controller.agent_interfaces["Red"].action_space
    known.ip_address[address["User3"]] = known.hostname["Enterprise1"] = True
    known.subnet[state.subnet_name_to_cidr["Operational"]] = True

    truth = env.true_state()
    user3, enterprise1, user1 = map(HOSTS.index, ("User3", "Enterprise1", "User1"))
    assert list(truth.red_access[[user3, enterprise1, user1]]) == [2, 1, 0]
    assert list(truth.red_sessions[[user3, enterprise1, user1]]) == [3, 1, 0]
    assert list(truth.red_root_sessions[[user3, enterprise1]]) == [1, 0]
    assert list(truth.red_removable[[user3, enterprise1]]) == [1, 0]
    assert list(truth.decoys[[user3, enterprise1, user1]]) == [128, 64, 8]
    assert list(truth.n_decoys[[user3, enterprise1, user1]]) == [2, 1, 1]
    assert list(truth.files[[user3, enterprise1, user1]]) == [1, 2, 0]
    assert (truth.service_down, truth.service_active, truth.service_has_process) == (1, 0, 0)
    assert truth.red_ports[user3] == sum(1 << PORTS.index(port) for port in (25, 80, 443))
    assert truth.red_knows_service == 1
    assert truth.known_addresses == 1 << HOSTS.index("User0") | 1 << user3
    assert truth.known_names == 1 << HOSTS.index("User0") | 1 << enterprise1
    assert truth.known_subnets == 2 | 4


def test_every_decoy_has_its_bit() -> None:
    env = CybORGEnv(red="sleep")
    for bit, decoy in enumerate(stand_in.DECOY_PROCESSES):
        env.reset()
        env.step(action_index(decoy, "Defender"))
        assert env.true_state().decoys[HOSTS.index("Defender")] == 1 << bit


def test_writes_into_one_row_only() -> None:
    env = CybORGEnv()
    env.reset(seed=2)
    play(env, ACTIONS)
    rows = np.frombuffer(bytearray(b"\xff" * (3 * TRUE_STATE.itemsize)), env.true_state_dtype)
    untouched = rows[0].tobytes()
    env.write_true_state(rows[1])
    assert rows[0].tobytes() == rows[2].tobytes() == untouched
    for field in TRUE_STATE.names or ():
        np.testing.assert_array_equal(rows[field][1], env.true_state()[field], err_msg=field)


def test_a_true_state_does_not_change_later() -> None:
    env = CybORGEnv(red="sleep")
    env.reset()
    before = env.true_state()
    env.step(action_index("DecoyApache", "User1"))
    assert not before.decoys.any() and env.true_state().decoys.any()


# ------------------------------------------------------------------------------------------- the installed simulator
@pytest.mark.parametrize(
    ("clears_ports", "keeps_versions", "rules"),
    [(True, True, "current"), (False, False, "leaderboard"), (False, True, "unknown"), (True, False, "unknown")],
)
def test_finds_out_the_rules(
    monkeypatch: pytest.MonkeyPatch, clears_ports: bool, keeps_versions: bool, rules: str
) -> None:
    stand_in.install(monkeypatch, clears_ports=clears_ports, keeps_versions=keeps_versions)
    assert CybORGEnv().rules == rules


def test_refuses_the_wrong_rules() -> None:
    assert CybORGEnv(rules="current").rules == "current"
    with pytest.raises(ValueError, match="606813b"):
        CybORGEnv(rules="leaderboard")


@pytest.mark.parametrize(
    ("red", "expected"),
    [
        ("bline", stand_in.B_lineAgent),
        ("meander", stand_in.RedMeanderAgent),
        ("sleep", stand_in.SleepAgent),
        ("RedMeanderAgent", stand_in.RedMeanderAgent),
        (stand_in.GreenAgent, stand_in.GreenAgent),
    ],
)
def test_red_agents(red: str | type, expected: type) -> None:
    assert type(CybORGEnv(red=red).cyborg.environment_controller.agents["Red"]) is expected


def test_green_agents() -> None:
    for green, expected in (("sleep", stand_in.SleepAgent), ("active", stand_in.GreenAgent)):
        assert type(CybORGEnv(green=green).cyborg.environment_controller.agents["Green"]) is expected


@pytest.mark.parametrize("arguments", [{"red": "mix"}, {"green": "lively"}, {"horizon": 0}])
def test_refuses_unknown_settings(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        CybORGEnv(**arguments)


@pytest.mark.parametrize("missing", ["CybORG", "CybORG.Agents.Wrappers"])
def test_says_how_to_get_what_is_missing(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"cage-challenge/cage-challenge-2.*PYTHONPATH.*pip install gym") as caught:
        CybORGEnv()
    assert caught.value.name == missing


def test_refuses_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.install(monkeypatch, version="3.1")
    with pytest.raises(ImportError, match=r"CybORG 3\.1, not 2\.1.*cage-challenge-2"):
        CybORGEnv()
