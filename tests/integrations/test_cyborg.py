"""The CybORG adapter against a stand-in for CybORG's interface; test_cyborg_reference.py has the real one."""

from __future__ import annotations

import inspect
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

import stockade
from stockade.cage2.actions import UNKNOWN, action_index
from stockade.cage2.env import CAGE2Env
from stockade.cage2.history import MemoryObservation
from stockade.cage2.scenario import HOSTS
from stockade.errors import InvalidActionError
from stockade.integrations.cyborg import CybORGEnv
from tests.integrations import stand_in

pytestmark = pytest.mark.usefixtures("cyborg_stand_in")


def play(env: CybORGEnv, actions: list[int]) -> list[Any]:
    """Everything that an episode shows, without its reset."""
    return [(obs.tobytes(), reward, info) for obs, reward, _, _, info in map(env.step, actions)]


ACTIONS = [random.Random(1).randrange(145) for _ in range(40)]


def test_arguments_come_in_the_order_of_the_built_in_worlds() -> None:
    built_in, reference = (list(inspect.signature(kind).parameters) for kind in (CAGE2Env, CybORGEnv))
    assert reference == built_in[: len(reference)]


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
    assert obs in env.observation_space
    assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)


def test_truncates_at_the_horizon_and_never_terminates() -> None:
    env = CybORGEnv(horizon=3)
    for _ in range(2):
        env.reset()
        assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


def test_needs_a_reset_first_and_after_an_episode() -> None:
    env = CybORGEnv(horizon=1)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(0)
    with pytest.raises(gym.error.ResetNeeded):
        env.true_state()
    env.reset()
    env.step(0)
    with pytest.raises(gym.error.ResetNeeded, match="over after 1 steps"):
        env.step(0)
    assert env.true_state().time == 1


def test_takes_no_options() -> None:
    with pytest.raises(ValueError, match="unknown options"):
        CybORGEnv().reset(options={"red": "sleep"})


@pytest.mark.parametrize("action", [-1, 145, 1.5])
def test_refuses_actions_that_do_not_exist(action: Any) -> None:
    env = CybORGEnv()
    env.reset()
    with pytest.raises(InvalidActionError, match="0 to 144"):
        env.step(action)


def test_refuses_other_actions_than_the_challenges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_in, "BLUE_ACTIONS", stand_in.BLUE_ACTIONS[::-1])
    with pytest.raises(RuntimeError, match="other actions"):
        CybORGEnv()


def test_can_be_made_in_another_process() -> None:
    make = cloudpickle.loads(cloudpickle.dumps(lambda: CybORGEnv(red="meander", horizon=7)))
    assert make().horizon == 7


def test_in_a_vector_environment() -> None:
    envs = stockade.make_vec(3, backend="serial", env=CybORGEnv)
    obs, _ = envs.reset(seed=4)
    singles = [CybORGEnv() for _ in range(3)]
    np.testing.assert_array_equal(obs, [env.reset(seed=4 + i)[0] for i, env in enumerate(singles)])
    for action in ACTIONS:
        obs = envs.step(np.full(3, action))[0]
        np.testing.assert_array_equal(obs, [env.step(action)[0] for env in singles])
        truth = envs.true_state()
        np.testing.assert_array_equal(truth.red_access, [env.true_state().red_access for env in singles])
    envs.close()


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
    random_after = random.Random()
    random_after.setstate(after)

    assert [s if isinstance(s, bytes) else s[:2] for s in seen] == expected
    assert env.random_state == after
    assert env.random_peek() == env.random_peek() == random_after.getrandbits(32)


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
        env = CybORGEnv(horizon=1000)
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
    exploits = {info["red_success"] for info in infos if info["red_action"].startswith("Exploit")}
    others = {info["red_success"] for info in infos if not info["red_action"].startswith("Exploit")}
    assert (exploits, others) == ({False, True}, {True})


def test_info_tells_the_reward_by_cause() -> None:
    env = CybORGEnv(red="sleep")
    env.reset()
    state = env.cyborg.environment_controller.state
    for ident, host in enumerate(["User1", "User2", "User2", "Op_Host0"], start=1):
        state.sessions["Red"][ident] = stand_in.Session(ident, host, "root", 70 + ident)
    state.hosts["Op_Server0"].processes.clear()
    _, reward, _, _, info = env.step(action_index("Restore", "Defender"))
    causes = {name: info[name] for name in info if name.startswith("reward")}
    assert causes == {"reward_hosts": -0.3, "reward_service": -10.0, "reward_restore": -1.0}
    assert reward == -11.3


def test_sleep_does_not_fail() -> None:
    env = CybORGEnv(red="sleep")
    env.reset()
    info = env.step(0)[4]
    assert (info["red_action"], info["red_success"]) == ("Sleep", True)
    assert (info["blue_action"], info["blue_success"]) == ("Sleep", True)
    truth = env.true_state()
    assert (truth.red_success, truth.blue_success) == (UNKNOWN, UNKNOWN)


def test_same_keys_and_types_as_the_built_in_world() -> None:
    types = []
    for env in (CybORGEnv(), stockade.make()):
        env.reset()
        types.append({name: type(value) for name, value in env.step(0)[4].items()})
    assert types[0] == types[1]


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


# ------------------------------------------------------------------------------------------------- in an evaluation
@pytest.mark.parametrize("obs", ["bits", "memory"])
def test_evaluation_plays_its_episodes(obs: str) -> None:
    class Reactive:
        def act(self, observations: np.ndarray) -> np.ndarray:
            return observations.astype(np.int64).sum(axis=1) % 145

    policy = Reactive()
    policy.obs = obs  # type: ignore[attr-defined]
    result = stockade.evaluate(policy, simulator="cyborg", episodes=2, progress=False)
    for k, cell in enumerate(result.cells):
        env: Any = CybORGEnv(cell.red, cell.horizon)
        env = MemoryObservation(env, cell.horizon) if obs == "memory" else env
        for seed, total in enumerate(cell.returns, start=result.config.seed + 1_000_000 * k):
            observation, rewards = env.reset(seed=seed)[0], []
            for _ in range(cell.horizon):
                observation, reward, *_ = env.step(policy.act(observation[None])[0])
                rewards.append(reward)
            assert round(sum(rewards), 1) == total
