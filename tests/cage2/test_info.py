"""What infos say, against recorded episodes and against the true state."""

import json

import numpy as np
import pytest

import stockade
from stockade.cage2 import ACTION_MASK, ACTION_NAMES, HOSTS, action_index

from .play import CHANCES, REDS, random_actions
from .traces import load

BLUE_KINDS = (
    "Analyse", "Remove", "DecoyApache", "DecoyFemitter", "DecoyHarakaSMPT", "DecoySmss", "DecoySSHD", "DecoySvchost",
    "DecoyTomcat", "DecoyVsftpd", "Restore",
)  # fmt: skip
#: Decoys that can succeed, as cage-challenge-2's rules have it.
_LINUX_SERVERS = dict.fromkeys(
    ("Defender", "Enterprise0", "Op_Host0", "Op_Host1", "Op_Host2", "Op_Server0"), "Apache HarakaSMPT Tomcat Vsftpd"
)
POSSIBLE_DECOYS = _LINUX_SERVERS | {
    "Enterprise1": "Femitter",
    "Enterprise2": "Femitter",
    "User0": "Apache Smss Svchost Tomcat",
    "User1": "Apache Smss Svchost Tomcat",
    "User2": "Apache Femitter SSHD Tomcat",
    "User3": "SSHD Vsftpd",
    "User4": "Vsftpd",
}
PARTS = ("reward_hosts", "reward_service", "reward_restore")


def test_action_names_are_in_the_references_order():
    names = ("Sleep", "Monitor", *(f"{kind} {host}" for kind in BLUE_KINDS for host in HOSTS))
    assert names == ACTION_NAMES
    assert action_index("Restore", "User4") == action_index("Restore User4") == 144
    with pytest.raises(ValueError, match=r"'Restore Nowhere'.*Restore.*User4"):
        action_index("Restore", "Nowhere")


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(
    "name", ["public_B_lineAgent_mixed", "public_RedMeanderAgent_react_restore", "green_SleepAgent_mixed"]
)
def test_infos_say_what_was_recorded(name, vector):
    trace, episode = load(f"{name}.npz"), 3
    meta = json.loads(str(trace["meta"]))
    targets = [f" {target}" for target in (*meta["hosts"], *meta["subnets"])] + [""]  # -1: no target
    options = {"red": meta["red"], "chance": "cyborg", "green": "active" if "green" in name else "sleep"}
    seed = int(trace["seed"][episode])
    env = stockade.make_vec(1, info=True, **options) if vector else stockade.make(**options)
    env.reset(seed=seed)
    for t, action in enumerate(trace["blue_action"][episode].tolist()):
        *_, info = env.step([action] if vector else action)
        if vector:
            assert all(info[key].tolist() == [True] for key in info if key.startswith("_"))
            info = {key: value[0] for key, value in info.items() if not key.startswith("_")}
        red = meta["red_types"][trace["red_type"][episode, t]] + targets[trace["red_target"][episode, t]]
        access, ot = trace["red_priv"][episode, t + 1], trace["ot"][episode, t + 1]
        costs = sum(10 if host in (1, 2, 3, 7) else 1 for host in range(13) if access[host] == 2 and host != 8)
        assert info == {
            "red_action": red,
            "red_success": trace["red_success"][episode, t] != 0,
            "blue_action": ACTION_NAMES[action],
            "blue_success": trace["blue_success"][episode, t] != 0,
            "reward_hosts": -costs / 10,
            "reward_service": -10.0 * (ot & 1),
            "reward_restore": -1.0 * (action >= 132),
        }


def test_types_are_plain_in_a_single_worlds_info():
    """So that they can be logged as JSON; and no cost is 0.0, never -0.0."""
    env = stockade.make()
    env.reset(seed=0)
    *_, info = env.step(0)
    assert json.loads(json.dumps(info)) == info
    assert [type(info[key]) for key in ("red_success", "blue_success", *PARTS)] == [bool, bool, float, float, float]
    assert [str(info[key]) for key in PARTS] == ["0.0", "0.0", "0.0"]


@pytest.mark.parametrize("chance", CHANCES)
@pytest.mark.parametrize("red", REDS)
def test_infos_of_many_worlds_agree_with_the_true_state(red, chance):
    """Names and successes, and parts that sum to the reward, exactly to the tenth."""
    envs = stockade.make_vec(20, red=red, chance=chance, info=True, horizon=200)
    envs.reset(seed=1)
    seen = set()
    for actions in random_actions(1, 100, 20):
        _, rewards, _, _, info = envs.step(actions)
        truth = envs.true_state()
        for i in (0, 19):
            person = truth.to_dict(i)
            assert info["red_action"][i] == person["red_action"]
            assert info["blue_action"][i] == person["blue_action"] == ACTION_NAMES[actions[i]]
        assert np.array_equal(info["red_success"], truth.red_success != 0)
        assert np.array_equal(info["blue_success"], truth.blue_success != 0)
        assert np.array_equal(np.round(sum(info[part] for part in PARTS), 1) + 0.0, rewards + 0.0)
        assert np.array_equal(info["reward_service"], -10.0 * truth.service_down)
        assert np.array_equal(info["reward_restore"], -1.0 * (actions >= 132))
        seen |= {part for part in PARTS if info[part].any()}
    assert seen == ({"reward_restore"} if red == "sleep" else set(PARTS))


def test_no_info_unless_asked():
    envs = stockade.make_vec(2)
    assert envs.reset(seed=0)[1] == {}
    assert envs.step([0, 0])[4] == {}
    env = stockade.make(info=False)
    assert env.reset(seed=0)[1] == {}
    assert env.step(0)[4] == {}


# ---------------------------------------------------------------------------------------------------------- action mask
@pytest.mark.parametrize("chance", CHANCES)
def test_the_action_mask_is_what_can_be_observed_on_a_fresh_world(chance):
    """Each of the 145 actions is tried in a world of its own; only decoys fail."""
    envs = stockade.make_vec(145, red="sleep", chance=chance, action_mask=True)
    _, info = envs.reset(seed=0)
    assert info["action_mask"].shape == (145, 145)
    assert info["_action_mask"].all()
    *_, info = envs.step(np.arange(145))
    succeeded = envs.true_state().blue_success != 0
    assert np.array_equal(info["action_mask"][0], succeeded)
    for host, decoys in POSSIBLE_DECOYS.items():
        possible = {f"Decoy{decoy} {host}" for decoy in decoys.split()}
        assert {ACTION_NAMES[a] for a in range(28, 132) if succeeded[a] and ACTION_NAMES[a].endswith(host)} == possible


def test_a_masked_action_never_succeeds_later_either():
    envs = stockade.make_vec(500, red="mix", green="active")
    envs.reset(seed=0)
    for actions in random_actions(5, 99, 500):
        envs.step(actions)
        succeeded = envs.true_state().blue_success != 0
        assert not (succeeded & (ACTION_MASK[actions] == 0)).any()


def test_the_action_mask_of_a_single_world():
    env = stockade.make(action_mask=True)
    assert np.array_equal(env.reset(seed=0)[1]["action_mask"], ACTION_MASK)
    assert np.array_equal(env.step(0)[4]["action_mask"], ACTION_MASK)
    assert env.action_masks().dtype == np.bool_
    assert np.array_equal(env.action_masks(), ACTION_MASK == 1)
    assert env.action_space.sample(mask=env.step(0)[4]["action_mask"]) in np.flatnonzero(ACTION_MASK)
