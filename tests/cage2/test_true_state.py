"""The true state: live read-only views of the worlds' memory, documented shapes and dtypes, consistent with rewards."""

import dataclasses

import numpy as np
import pytest

import stockade
from stockade.cage2 import HOSTS, TrueState, action_index

from .play import CHANCES, REDS, random_actions
from .traces import load

#: (dtype, has hosts) as the docstring of TrueState promises.
FIELDS = {
    "red_access": ("uint8", True), "red_sessions": ("uint16", True), "red_root_sessions": ("uint16", True),
    "red_removable": ("uint16", True), "decoys": ("uint8", True), "n_decoys": ("uint16", True),
    "files": ("uint8", True), "red_ports": ("int16", True), "service_down": ("uint8", False),
    "red_knows_service": ("uint8", False), "known_addresses": ("int32", False), "known_names": ("int32", False),
    "known_subnets": ("int32", False), "red": ("uint8", False), "red_type": ("int8", False),
    "red_target": ("int8", False), "red_success": ("int8", False), "exploit": ("int8", False),
    "detected": ("int8", False), "blue_action": ("int16", False), "blue_success": ("int8", False),
    "green_target": ("int8", False), "time": ("int32", False),
}  # fmt: skip
DERIVED = {"red_knows_address": 13, "red_knows_name": 13, "red_knows_subnet": 3, "red_scanned": 13}
COSTS = np.array([1, 10, 10, 10, 1, 1, 1, 10, 0, 1, 1, 1, 1])


def arrays_of(truth) -> dict[str, np.ndarray]:
    return {field.name: getattr(truth, field.name) for field in dataclasses.fields(TrueState)}


@pytest.fixture
def envs():
    envs = stockade.make_vec(6, red="bline")
    envs.reset(seed=0)
    return envs


# ----------------------------------------------------------------------------------------------------------- the arrays
@pytest.mark.parametrize("single", [False, True])
def test_shapes_and_dtypes_are_as_documented(single, envs):
    env = stockade.make()
    env.reset(seed=0)
    truth, lead = (env.true_state(), ()) if single else (envs.true_state(), (6,))
    arrays = arrays_of(truth)
    assert arrays.keys() == FIELDS.keys()
    for name, (dtype, has_hosts) in FIELDS.items():
        assert isinstance(arrays[name], np.ndarray), name
        assert arrays[name].dtype == dtype, name
        assert arrays[name].shape == (*lead, *((13,) if has_hosts else ())), name
    for name, last in DERIVED.items():
        assert getattr(truth, name).shape == (*lead, last), name
        assert getattr(truth, name).dtype == np.bool_, name


@pytest.mark.parametrize("single", [False, True])
def test_views_are_live_and_nothing_is_copied(single, envs):
    env = stockade.make(red="bline") if single else envs
    env.reset(seed=0)
    truth = env.true_state()
    before = truth.copy()
    for _ in range(30):
        env.step(0 if single else np.zeros(6, int))
    now = arrays_of(env.true_state())
    for name, array in arrays_of(truth).items():
        assert np.shares_memory(array, now[name]), name
        assert np.array_equal(array, now[name]), name
    assert np.all(truth.time == 30)
    assert (truth.red_access == 2).sum() > (before.red_access == 2).sum()
    assert np.all(before.time == 0), "a copy keeps its moment"


def test_one_object_serves_all_steps(envs):
    truth = envs.true_state()
    envs.step(np.zeros(6, int))
    envs.reset(seed=1)
    assert envs.true_state() is truth
    envs.restore(envs.snapshot())
    assert np.shares_memory(envs.true_state().red_access, truth.red_access)


@pytest.mark.parametrize("single", [False, True])
def test_views_are_read_only(single, envs):
    env = stockade.make() if single else envs
    env.reset(seed=0)
    for name, array in arrays_of(env.true_state()).items():
        assert not array.flags.writeable, name
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        env.true_state().time = 0


def test_a_copy_may_be_written(envs):
    mine = envs.true_state().copy()
    mine.red_access[:] = 7
    assert not (envs.true_state().red_access == 7).any()


# ---------------------------------------------------------------------------------------------------------- the meaning
@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("red", [*REDS, "mix"])
def test_access_sessions_and_service_explain_every_reward(red, chance):
    envs = stockade.make_vec(100, red=red, chance=chance, green="active", horizon=150)
    envs.reset(seed=2)
    truth = envs.true_state()
    for actions in random_actions(2, 150, 100):
        _, rewards, *_ = envs.step(actions)
        tenths = ((truth.red_access == 2) * COSTS).sum(axis=1) + 100 * truth.service_down + 10 * (actions >= 132)
        assert np.array_equal(np.rint(-10 * rewards), tenths)
        assert np.array_equal(truth.red_access == 2, truth.red_root_sessions > 0)
        assert np.array_equal(truth.red_access >= 1, truth.red_sessions > 0)
        assert (truth.red_root_sessions + truth.red_removable <= truth.red_sessions).all()
        assert (truth.red_access[:, 8] == 2).all(), "red's foothold survives everything"
        bits = np.unpackbits(truth.decoys[..., None], axis=-1).sum(axis=-1)
        assert (truth.n_decoys >= bits).all()
        assert np.array_equal(truth.n_decoys == 0, truth.decoys == 0)
        assert np.array_equal(truth.blue_action, actions)


def test_what_red_knows_is_what_was_recorded():
    """Derived arrays against the recorded `red_know`: 1 address known, 2 scanned, 4 name known."""
    trace = load("public_RedMeanderAgent_decoys.npz")
    n = len(trace["seed"])
    envs = stockade.make_vec(n, red="meander", chance="cyborg")
    envs.reset(seed=trace["seed"])
    truth = envs.true_state()
    for t in range(100):
        envs.step(trace["blue_action"][:, t])
        know = trace["red_know"][:, t + 1]
        assert np.array_equal(truth.red_knows_address, know & 1 > 0)
        assert np.array_equal(truth.red_scanned, know & 2 > 0)
        assert np.array_equal(truth.red_knows_name, know & 4 > 0)
        subnets = trace["red_subnets"][:, t + 1, None] >> np.arange(3) & 1
        assert np.array_equal(truth.red_knows_subnet, subnets > 0)


# ------------------------------------------------------------------------------------------------------------ to_dict
def test_to_dict_tells_a_person_what_the_arrays_hold():
    """In a crafted world: decoys on Enterprise0, B_line on its way, a Restore of User3."""
    envs = stockade.make_vec(2, red="bline", chance="cyborg", green="active")
    envs.reset(seed=[1, 0])
    names = ["DecoyApache Enterprise0", "DecoyVsftpd Enterprise0", *["Sleep"] * 12, "Restore User3"]
    for name in names:
        envs.step([0, action_index(name)])
    truth, person = envs.true_state(), envs.true_state().to_dict(1)
    assert person["time"] == 15
    assert person["red_agent"] == "bline"
    assert (person["blue_action"], person["blue_success"]) == ("Restore User3", "TRUE")
    assert person["hosts"].keys() == set(HOSTS)
    assert person["hosts"]["Enterprise0"]["decoys"] == ["DecoyApache", "DecoyVsftpd"]
    restored = person["hosts"]["User3"]
    assert [restored[key] for key in ("red_access", "red_sessions", "decoys", "files")] == ["none", 0, [], []]
    assert person["hosts"]["User0"]["red_access"] == "root"
    ports = (21, 22, 25, 53, 68, 80, 135, 139, 443, 445, 3389, 3390)
    for h, host in enumerate(HOSTS):
        facts = person["hosts"][host]
        assert facts["red_access"] == ("none", "user", "root")[truth.red_access[1, h]]
        assert facts["red_sessions"] == truth.red_sessions[1, h]
        assert facts["red_root_sessions"] == truth.red_root_sessions[1, h]
        assert facts["red_removable"] == truth.red_removable[1, h]
        assert facts["ports_red_remembers"] == [p for b, p in enumerate(ports) if truth.red_ports[1, h] >> b & 1]
        assert ("address" in facts["red_knows"]) == truth.red_knows_address[1, h]
        assert ("name" in facts["red_knows"]) == truth.red_knows_name[1, h]
    assert any(facts["files"] for facts in person["hosts"].values()), "the comparison should have met a file"


def test_to_dict_of_a_single_world_and_of_a_copy_are_the_same():
    envs, env = stockade.make_vec(3, red="meander", chance="cyborg"), stockade.make(red="meander", chance="cyborg")
    envs.reset(seed=4)
    env.reset(seed=6)
    for actions in random_actions(9, 60, 3):
        envs.step(actions)
        env.step(actions[2])
    assert envs.true_state().to_dict(2) == env.true_state().to_dict() == envs.true_state().copy().to_dict(2)
    assert envs.true_state().to_dict(2) != envs.true_state().to_dict(1)


def test_files_are_named_after_the_operating_system():
    trace = load("public_RedMeanderAgent_sleep.npz")
    envs = stockade.make_vec(30, red="meander", chance="cyborg")
    envs.reset(seed=trace["seed"])
    for _ in range(99):
        envs.step(np.zeros(30, int))
    windows, seen = ("Enterprise1", "Enterprise2", "User0", "User1", "User2"), set()
    for i in range(30):
        for h, (host, facts) in enumerate(envs.true_state().to_dict(i)["hosts"].items()):
            ending = ".exe" if host in windows else ".sh"
            recorded = int(trace["files"][i, 99, h])
            assert facts["files"] == ["cmd" + ending] * (recorded & 1) + ["escalate" + ending] * (recorded >> 1)
            seen |= set(facts["files"])
    assert seen == {"cmd.exe", "cmd.sh", "escalate.exe", "escalate.sh"}
