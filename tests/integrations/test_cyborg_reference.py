"""The CybORG adapter on the real CybORG 2.1, where one is installed; docs/guides/cyborg.md says how.

Replays recorded episodes and compares everything that the adapter shows with the recording, then plays the built-in
world and the reference side by side. STOCKADE_CYBORG_EPISODES sets the episodes for each recording and red agent (1).
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import stockade
from stockade.cage2.actions import ACTION_NAMES, FALSE, red_action_name
from stockade.cage2.scenario import HOSTS
from stockade.integrations.cyborg import TRUE_STATE, CybORGEnv
from tests.integrations import stand_in
from tests.integrations.reference import rules_of_the_reference
from tests.oracle import record_red

RULES = rules_of_the_reference()

pytestmark = pytest.mark.filterwarnings("ignore")

EPISODES = int(os.environ.get("STOCKADE_CYBORG_EPISODES", "1"))
TRACES = sorted((Path(__file__).parents[1] / "data" / "traces").glob("*.npz"))
PLAYED = [path for path in TRACES if path.stem.startswith("free_")]


def rules_of(trace: Path) -> str:
    return json.loads(str(np.load(trace)["meta"])).get("rules", "current")


def recorded_truth(trace: dict[str, np.ndarray], episode: int, time: int) -> dict[str, Any]:
    """The recording's hidden state under the names of `TRUE_STATE`."""
    at = {name: values[episode, time] for name, values in trace.items() if values.ndim >= 2 and name != "host_ip"
          and values.shape[1] == trace["obs"].shape[1]}  # fmt: skip
    same = ("red_sessions", "red_root_sessions", "red_removable", "decoys", "n_decoys", "files", "red_ports")
    truth = {name: at[name] for name in same} | {"red_access": at["red_priv"], "known_subnets": at["red_subnets"]}
    hosts = 1 << np.arange(len(HOSTS))
    truth["known_addresses"] = hosts @ (at["red_know"] & 1).astype(int)
    truth["known_names"] = hosts @ (at["red_know"] >> 2 & 1).astype(int)
    truth |= {"service_down": at["ot"] & 1, "red_knows_service": at["ot"] >> 3 & 1, "time": time}
    if time > 0:
        last = ("red_type", "red_target", "red_success", "blue_action", "blue_success", "green_target")
        truth |= {name: trace[name][episode, time - 1] for name in last}
        assert set(truth) == set(TRUE_STATE.names or ())
    return truth


def of_these_rules(paths: list[Path]) -> Any:
    return pytest.mark.parametrize("path", [p for p in paths if rules_of(p) == RULES], ids=lambda path: path.stem)


@of_these_rules(PLAYED)
def test_replays_recordings_of_a_played_red(path: Path) -> None:
    """Red's actions go in as those of an agent; all that the recorder writes down comes out again."""
    trace = dict(np.load(path))
    env = CybORGEnv(record_red.GivenRed, green="active" if "active" in path.stem else "sleep")
    for number in range(min(EPISODES, len(trace["seed"]))):
        episode = record_red.Episode(env, int(trace["seed"][number]))
        for time in range(trace["valid_steps"][number]):
            episode.step(int(trace["blue_action"][number, time]), int(trace["red_action"][number, time]))
        for rows in (episode.steps, episode.states):
            for field in rows[0]:
                got = np.array([row[field] for row in rows], trace[field].dtype)
                np.testing.assert_array_equal(got, trace[field][number], err_msg=f"{field} of episode {number}")


@of_these_rules([path for path in TRACES if path not in PLAYED])
def test_replays_recordings(path: Path) -> None:
    trace = dict(np.load(path))
    env = CybORGEnv(red=json.loads(str(trace["meta"]))["red"], green="active" if "green" in path.stem else "sleep")

    def compare_state(episode: int, time: int, obs: np.ndarray) -> None:
        np.testing.assert_array_equal(obs, trace["obs"][episode, time])
        truth = env.true_state()
        for field, expected in recorded_truth(trace, episode, time).items():
            np.testing.assert_array_equal(truth[field], expected, err_msg=f"{field} at {episode}, {time}")
        assert env.random_peek() == trace["rng_peek"][episode, time]

    for episode in range(min(EPISODES, len(trace["seed"]))):
        obs, _ = env.reset(seed=int(trace["seed"][episode]))
        compare_state(episode, 0, obs)
        for time in range(trace["valid_steps"][episode]):
            obs, reward, terminated, truncated, info = env.step(int(trace["blue_action"][episode, time]))
            compare_state(episode, time + 1, obs)
            at = episode, time
            assert reward == trace["reward"][at]
            assert (terminated, truncated) == (False, time == 99)
            causes = [info.pop(f"reward_{cause}") for cause in ("hosts", "service", "restore")]
            assert round(sum(causes), 1) == reward
            assert causes[1] == -10 * int(trace["ot"][episode, time + 1] & 1)
            assert causes[2] == -int(trace["blue_action"][at] >= 132)
            assert info == {
                "red_action": red_action_name(trace["red_type"][at], trace["red_target"][at]),
                "red_success": trace["red_success"][at] != FALSE,
                "blue_action": ACTION_NAMES[trace["blue_action"][at]],
                "blue_success": trace["blue_success"][at] != FALSE,
            }


def test_gymnasium_accepts_it() -> None:
    check_env(CybORGEnv(), skip_render_check=True)


def test_agrees_with_the_references_own_account() -> None:
    """`true_state` reads objects; `get_agent_state("True")` says the same of sessions and the service."""
    env = CybORGEnv(red="meander")
    env.reset(seed=4)
    for _ in range(100):
        env.step(0)
        account, truth = env.agent_state(), env.true_state()
        red = [[s["Username"] for s in account[host].get("Sessions", []) if s["Agent"] == "Red"] for host in HOSTS]
        root = [sum(user in ("root", "SYSTEM") for user in users) for users in red]
        assert truth.red_sessions.tolist() == [len(users) for users in red]
        assert truth.red_root_sessions.tolist() == root
        assert truth.red_access.tolist() == [2 if r else min(1, len(u)) for r, u in zip(root, red, strict=True)]
        processes = [process.get("Process Name") for process in account["Op_Server0"]["Processes"]]
        assert truth.service_down == ("OTService" not in processes)


def test_an_episode_does_not_depend_on_the_ones_before() -> None:
    used, fresh = CybORGEnv(), CybORGEnv()
    used.reset(seed=8)
    for action in range(0, 145, 2):
        used.step(action)
    start = [env.reset(seed=9)[0].tobytes() for env in (used, fresh)]
    assert start[0] == start[1]
    for action in range(0, 145, 3):
        (obs, reward, *_), (other_obs, other_reward, *_) = used.step(action), fresh.step(action)
        assert (obs.tobytes(), reward) == (other_obs.tobytes(), other_reward)
        assert used.true_state() == fresh.true_state()


def test_an_agent_of_ones_own() -> None:
    agents = importlib.import_module("CybORG.Agents")

    class Lazy(agents.SleepAgent):
        pass

    env = CybORGEnv(red=Lazy)
    env.reset(seed=0)
    assert env.step(1)[4]["red_action"] == "Sleep"


def test_the_stand_in_is_faithful() -> None:
    """Every attribute that the stand-in has, and so every one the adapter may rely on, the reference has as well."""
    env = CybORGEnv(red="sleep")
    env.reset(seed=0)
    env.step(0)
    toy = stand_in.CybORG("Scenario2.yaml", agents={"Red": stand_in.SleepAgent, "Green": stand_in.SleepAgent})
    toy_state, state = toy.environment_controller.state, env.cyborg.environment_controller.state
    toy_wrapper = stand_in.ChallengeWrapper("Blue", toy)
    pairs: list[tuple[Any, Any, set[str]]] = [
        (toy, env.cyborg, set()),
        (toy.environment_controller, env.cyborg.environment_controller, {"agents", "success", "scores"}),
        (toy_state, state, set()),
        (toy_wrapper, env._challenge, {"cyborg", "possible_actions"}),
        (toy_state.hosts["User3"], state.hosts["User3"], set()),
        (toy_state.hosts["User3"].processes[0], state.hosts["User3"].processes[0], set()),
        (toy_state.sessions["Red"][0], state.sessions["Red"][0], set() if RULES == "current" else {"clearports"}),
        (toy_state.sessions["Blue"][0], state.sessions["Blue"][0], set()),
        (toy.environment_controller.agent_interfaces["Red"].action_space,
         env.cyborg.environment_controller.agent_interfaces["Red"].action_space, set()),
        (stand_in.ACTIONS["Sleep"](), env._challenge.get_attr("possible_actions")[0], set()),
        (toy.get_reward_breakdown("Blue")["User1"], env.cyborg.get_reward_breakdown("Blue")["User1"], set()),
        (stand_in.TrinaryEnum, importlib.import_module("CybORG.Shared.Enums").TrinaryEnum, set()),
        (stand_in.DecoyType, importlib.import_module("CybORG.Shared.Enums").DecoyType, set()),
    ]  # fmt: skip
    for ours, theirs, toys_own in pairs:
        names = {name for name in dir(ours) if not name.startswith("_")}
        assert {name for name in names if not hasattr(theirs, name)} <= toys_own, type(theirs)
    assert inspect.signature(stand_in.CybORG).parameters.keys() == inspect.signature(type(env.cyborg)).parameters.keys()
    assert [str(action) for action in toy_wrapper.possible_actions] == [
        str(action) for action in env._challenge.get_attr("possible_actions")
    ]
    assert "OTService" in [process.name for process in state.hosts["Op_Server0"].processes]


# -------------------------------------------------------------------------------------------- beside the built-in world
def never(_: np.random.Generator, __: np.ndarray) -> int:
    return 0


def anything(rng: np.random.Generator, _: np.ndarray) -> int:
    return int(rng.integers(145))


def repair_what_shows(rng: np.random.Generator, obs: np.ndarray) -> int:
    """Removes or restores a host that looks compromised; else analyses, or places a decoy."""
    suspects = np.flatnonzero(obs.reshape(13, 4)[:, 2:].any(1))
    if len(suspects) and rng.random() < 0.7:
        return int(rng.choice([15, 132]) + rng.choice(suspects))
    return int(rng.integers(2, 15) if rng.random() < 0.3 else rng.integers(28, 132))


@pytest.mark.skipif(RULES == "unknown", reason="the installed CybORG plays by neither rule set")
@pytest.mark.parametrize("red", ["bline", "meander", "sleep"])
@pytest.mark.parametrize("green", ["sleep", "active"])
@pytest.mark.parametrize("policy", [never, anything, repair_what_shows])
def test_side_by_side(red: str, green: str, policy: Callable[[np.random.Generator, np.ndarray], int]) -> None:
    """The same seeds give the same episodes; every second one goes on with the stream."""
    reference = CybORGEnv(red=red, green=green)
    world = stockade.make(red=red, rules=RULES, chance="cyborg", green=green)
    rng = np.random.default_rng([len(red), len(policy.__name__)])
    for episode in range(EPISODES):
        seed = 90_000 + episode if episode % 2 == 0 else None
        obs, _ = reference.reset(seed=seed)
        ours, _ = world.reset(seed=seed)
        np.testing.assert_array_equal(ours, obs)
        truncated = False
        while not truncated:
            action = policy(rng, obs)
            obs, reward, _, truncated, info = reference.step(action)
            ours, our_reward, _, our_truncated, our_info = world.step(action)
            np.testing.assert_array_equal(ours, obs)
            assert (our_reward, our_truncated) == (reward, truncated)
            assert world.random_peek() == reference.random_peek()
            truth, our_truth = reference.true_state(), world.true_state()
            for field in TRUE_STATE.names or ():
                np.testing.assert_array_equal(getattr(our_truth, field), truth[field], err_msg=field)
            assert our_info == info


@pytest.mark.skipif(RULES == "unknown", reason="the installed CybORG plays by neither rule set")
@pytest.mark.parametrize("backend", ["serial", "pipes", "shared_memory"])
def test_on_every_backend(backend: str) -> None:
    """Four references in worker processes equal four built-in worlds, over the end of an episode."""
    native = stockade.make_vec(4, red="meander", horizon=20, rules=RULES, chance="cyborg")
    options = {} if backend == "serial" else {"workers": 2}
    envs = stockade.make_vec(4, backend=backend, env=lambda: CybORGEnv(red="meander", horizon=20), **options)
    try:
        np.testing.assert_array_equal(envs.reset(seed=3)[0], native.reset(seed=3)[0])
        rng = np.random.default_rng(0)
        for _ in range(30):
            actions = rng.integers(145, size=4)
            for theirs, ours in zip(envs.step(actions)[:4], native.step(actions)[:4], strict=True):
                np.testing.assert_array_equal(theirs, ours)
            truth, our_truth = envs.true_state(), native.true_state()
            for field in TRUE_STATE.names or ():
                np.testing.assert_array_equal(getattr(truth, field), getattr(our_truth, field), err_msg=field)
    finally:
        envs.close()
