"""The true state that the CybORG adapter reads, against a stand-in whose state the tests arrange."""

from __future__ import annotations

import random
from dataclasses import fields

import numpy as np
import pytest

from stockade.cage2.actions import ACTION_NAMES, MONITOR, TRUE, UNKNOWN, action_index, red_action_name
from stockade.cage2.scenario import HOSTS, PORTS
from stockade.cage2.state import INITIAL
from stockade.cage2.truth import TrueState
from stockade.integrations.cyborg import NOT_READABLE, TRUE_STATE, CybORGEnv
from tests.integrations import stand_in

pytestmark = pytest.mark.usefixtures("cyborg_stand_in")

ACTIONS = [random.Random(1).randrange(145) for _ in range(40)]


def test_true_state_at_the_start() -> None:
    env = CybORGEnv()
    env.reset(seed=0)
    truth = env.true_state()
    expected = np.zeros((), TRUE_STATE)
    for field in ("red_access", "red_sessions", "red_root_sessions"):
        expected[field][HOSTS.index("User0")] = 2 if field == "red_access" else 1
    expected["known_addresses"] = expected["known_names"] = 1 << HOSTS.index("User0")
    expected["known_subnets"] = 4
    expected["red_target"] = expected["green_target"] = -1
    expected["blue_action"] = MONITOR
    expected["red_success"] = expected["blue_success"] = UNKNOWN
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
    assert truth.service_down == 1
    assert truth.red_ports[user3] == sum(1 << PORTS.index(port) for port in (25, 80, 443))
    assert truth.red_knows_service == 1
    assert truth.known_addresses == 1 << HOSTS.index("User0") | 1 << user3
    assert truth.known_names == 1 << HOSTS.index("User0") | 1 << enterprise1
    assert truth.known_subnets == 2 | 4


def test_true_state_tells_the_last_step() -> None:
    env = CybORGEnv(horizon=1000)
    env.reset(seed=6)
    for time, action in enumerate(ACTIONS, start=1):
        info, truth = env.step(action)[4], env.true_state()
        assert (truth.time, truth.blue_action) == (time, action)
        assert red_action_name(truth.red_type, truth.red_target) == info["red_action"]
        assert (truth.red_success == TRUE) == info["red_success"]
    env.reset()
    truth = env.true_state()
    assert (truth.time, truth.blue_action, truth.red_target) == (0, MONITOR, -1)


def test_true_state_names_the_host_that_green_scans() -> None:
    class Scanner(stand_in.SleepAgent):
        def get_action(self, state: stand_in.State) -> stand_in.Action:
            return stand_in.ACTIONS["GreenPortScan"](hostname="User3")

    env = CybORGEnv(green=Scanner)
    env.reset()
    env.step(0)
    assert env.true_state().green_target == HOSTS.index("User3")


def test_true_state_has_the_built_in_worlds_fields() -> None:
    world = TrueState.of(INITIAL.reshape(()))
    assert set(TRUE_STATE.names or ()) | set(NOT_READABLE) == {field.name for field in fields(world)}
    for field in TRUE_STATE.names or ():
        ours = np.asarray(getattr(world, field))
        assert (ours.dtype, ours.shape) == (TRUE_STATE[field].base, TRUE_STATE[field].shape), field


def test_every_decoy_has_its_bit() -> None:
    env = CybORGEnv(red="sleep")
    for bit, decoy in enumerate(stand_in.DECOY_PROCESSES):
        env.reset()
        env.step(action_index(decoy, "Defender"))
        assert env.true_state().decoys[HOSTS.index("Defender")] == 1 << bit


@pytest.mark.parametrize("as_array", [False, True])
def test_writes_into_one_row_only(as_array: bool) -> None:
    env = CybORGEnv()
    env.reset(seed=2)
    for action in ACTIONS:
        env.step(action)
    rows = np.frombuffer(bytearray(b"\xff" * (3 * TRUE_STATE.itemsize)), env.true_state_dtype)
    untouched = rows[0].tobytes()
    env.write_true_state(rows[1, ...] if as_array else rows[1])
    assert rows[0].tobytes() == rows[2].tobytes() == untouched
    for field in TRUE_STATE.names or ():
        np.testing.assert_array_equal(rows[field][1], env.true_state()[field], err_msg=field)


def test_a_true_state_does_not_change_later() -> None:
    env = CybORGEnv(red="sleep")
    env.reset()
    before = env.true_state()
    env.step(action_index("DecoyApache", "User1"))
    assert (before.decoys.any(), env.true_state().decoys.any()) == (False, True)
