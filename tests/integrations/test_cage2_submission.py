"""The agent for the challenge's script: in step with it, given nothing but bits, and strict about what it is given.

The script's loop is played on the built-in world, with what the script's wrapper delivers: int64 bits, and 145.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stockade
from stockade.cage2.views import read_view
from stockade.errors import InputError
from stockade.integrations.cage2_submission import ChallengeAgent
from stockade.learn.agents import Agent
from stockade.learn.checkpoint import Checkpoint, save
from stockade.learn.policy import Architecture, Policy

NOTHING = np.zeros(52, np.int64)
EPISODES, STEPS, SEED = 4, 30, 77


def untrained(obs: str, seed: int = 3, **card: Any) -> Agent:
    """A network with random weights: what it does depends on everything that it sees."""
    architecture = Architecture(read_view(obs).size, tuple(range(145)), (16,))
    return Agent(Policy.create(architecture, seed), obs, card={"obs": obs, **card})


def saved(policy: Agent, folder: Path) -> Path:
    """The file of a policy."""
    arrays = {f"policy.{name}": array for name, array in policy.policy.save_weights().items()}
    card = {**policy.card, "architecture": policy.policy.architecture.to_json()}
    save(folder / "mine", Checkpoint(arrays, card))
    return folder / "mine.json"


class Notebook:
    """A policy that writes down what it is shown, and takes actions that depend on the step alone."""

    name, side = "notebook", "blue"

    def __init__(self, obs: str) -> None:
        self.obs, self.card, self.shown = obs, {}, []

    def act(self, observations: np.ndarray) -> np.ndarray:
        self.shown.append(observations.copy())
        return np.full(len(observations), self.action(len(self.shown)))

    @staticmethod
    def action(step: int) -> int:
        return (37 * step) % 145


def challenge_loop(agent: ChallengeAgent, red: str, rules: str) -> Iterator[list[int]]:
    """Actions of one episode after another, with the calls of the challenge's script in their order."""
    env = stockade.make(red=red, horizon=STEPS, rules=rules, chance="cyborg")
    observation = env.reset(seed=SEED)[0].astype(np.int64)
    for episode in range(EPISODES):
        actions = []
        for _ in range(STEPS):
            actions.append(agent.get_action(observation, 145))
            observation = env.step(actions[-1])[0].astype(np.int64)
        agent.end_episode()
        yield actions
        observation = env.reset(seed=SEED + episode + 1)[0].astype(np.int64)


@pytest.mark.parametrize("rules", ["current", "leaderboard"])
@pytest.mark.parametrize("red", ["bline", "meander", "sleep"])
@pytest.mark.parametrize("obs", ["bits", "belief:16"])
def test_it_acts_as_the_policy_does_in_worlds_that_show_it_its_observation(obs: str, red: str, rules: str) -> None:
    policy = untrained(obs)
    envs = stockade.make_vec(EPISODES, red=red, horizon=STEPS, rules=rules, chance="cyborg", obs=obs)
    seen, _ = envs.reset(seed=SEED)
    expected = []
    for _ in range(STEPS):
        expected.append(policy.act(seen))
        seen = envs.step(expected[-1])[0]
    assert list(challenge_loop(ChallengeAgent(policy), red, rules)) == np.transpose(expected).tolist()
    assert len(np.unique(expected)) > 1 or red == "sleep"  # which shows it nothing


@pytest.mark.parametrize("obs", ["bits", "belief:16", "belief:16:leaderboard:meander"])
def test_every_decision_is_shown_what_the_world_shows_after_the_action_before(obs: str) -> None:
    policy = Notebook(obs)
    agent = ChallengeAgent(policy)
    for k, actions in enumerate(challenge_loop(agent, "meander", "leaderboard")):
        env = stockade.make(red="meander", horizon=STEPS, rules="leaderboard", chance="cyborg", obs=obs)
        expected = [env.reset(seed=SEED + k)[0], *(env.step(action)[0] for action in actions[:-1])]
        np.testing.assert_array_equal(np.concatenate(policy.shown[-STEPS:]), expected)
        assert len(np.unique(expected, axis=0)) > 5
        assert all(type(action) is int for action in actions)


def test_evaluated_in_the_order_of_the_script_it_scores_what_its_policy_scores() -> None:
    policy = untrained("belief:16")
    agent = ChallengeAgent(policy)
    settings = {"episodes": 2, "chance": "cyborg", "official_order": True, "progress": False}
    ours, expected = (stockade.evaluate(player, **settings) for player in (agent, policy))
    assert [cell.returns for cell in ours.cells] == [cell.returns for cell in expected.cells]
    assert ours.policy == policy.name


def test_the_end_of_an_episode_is_forgotten_and_only_then() -> None:
    policy = Notebook("belief:16")
    agent = ChallengeAgent(policy)
    bits = NOTHING.copy()
    bits[[4, 5, 7]] = 1
    agent.get_action(NOTHING, 145)
    for _ in range(3):
        agent.get_action(bits, 145)
    agent.end_episode()
    agent.end_episode()  # does no harm
    agent.get_action(NOTHING, 145)
    agent.get_action(NOTHING, 145)
    first, *_, again, second = policy.shown
    np.testing.assert_array_equal(again, first)
    assert (second != first).any()


def test_a_first_observation_that_is_no_reset_is_refused() -> None:
    agent = ChallengeAgent(untrained("belief:16"))
    bits = NOTHING.copy()
    bits[8] = 1
    for _ in range(2):
        with pytest.raises(InputError, match=r"first observation of an episode has no bit set.*end_episode\(\)"):
            agent.get_action(bits, 145)
        agent.get_action(NOTHING, 145)
        agent.get_action(bits, 145)
        agent.end_episode()


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(51), r"shape \(52,\).*not \(51,\)"),
        (np.zeros((1, 52)), r"not \(1, 52\)"),
        ({"success": True}, r"not \(\)"),
        (None, r"not \(\)"),
        ([0] * 51 + [2], "value 51 is .*2"),
        ([0] * 3 + [-1] + [0] * 48, "value 3 is .*-1"),
        ([0.5] * 52, "value 0 is .*0.5"),
        ([0] * 51 + [np.nan], "value 51 is .*nan"),
        ([0] * 51 + [None], "value 51 is None"),
        (["0"] * 52, "value 0 is"),
    ],
)
def test_what_is_no_observation_is_refused(observation: Any, message: str) -> None:
    agent = ChallengeAgent(untrained("belief:16"))
    agent.get_action(NOTHING, 145)
    with pytest.raises(InputError, match=message):
        agent.get_action(observation, 145)


@pytest.mark.parametrize("space", [144, 41, None, [145], {"action": {}}, spaces.Discrete(41), 145.0])
def test_another_action_space_is_refused(space: Any) -> None:
    with pytest.raises(InputError, match="145 numbered actions, as ChallengeWrapper"):
        ChallengeAgent("sleep").get_action(NOTHING, space)


@pytest.mark.parametrize("kind", [np.float32, np.uint8, bool, list])
@pytest.mark.parametrize("space", [145, np.int64(145), spaces.Discrete(145)])
def test_bits_and_action_spaces_of_other_types_mean_the_same(kind: Any, space: Any) -> None:
    policy = untrained("belief:16")
    agent, other = ChallengeAgent(policy), ChallengeAgent(policy)
    bits = NOTHING.copy()
    bits[[20, 21, 23]] = 1
    for seen in (NOTHING, bits, NOTHING):
        given = seen.tolist() if kind is list else seen.astype(kind)
        assert other.get_action(given, space) == agent.get_action(seen, 145)


# -------------------------------------------------------------------------------------------------------- which policy
class KeptToAnOrder(Agent):
    def allowed(self, actions: np.ndarray, observations: np.ndarray, env: Any) -> np.ndarray:
        return actions


def test_policies_that_are_told_more_than_bits_are_refused() -> None:
    refused = {
        "how many steps are left and whether its actions succeed": untrained("memory"),
        "by which rules it plays.*--no-tell-rules": untrained("belief:16", context_rules=True),
        "by which rules it plays": untrained("bits", told_rules=True),  # as version 0.1.0 wrote it
        "sees obs='memory'": stockade.load("champion"),
        "sees obs='truth'": stockade.load("oracle"),
        "attacks": stockade.load("nemesis"),
        "kept to a repair order": KeptToAnOrder(untrained("bits").policy, "bits"),
    }
    for message, policy in refused.items():
        with pytest.raises(InputError, match=message):
            ChallengeAgent(policy)


def test_the_shipped_one_is_told_nothing_and_another_the_rules() -> None:
    for rules in ("current", "leaderboard"):
        agents = ChallengeAgent(rules=rules), ChallengeAgent("challenger-told", rules)
        assert [agent.name for agent in agents] == ["challenger", "challenger-told"]
        assert [agent.policy.obs.split(":")[2] for agent in agents] == ["both", rules]
        assert all(0 <= agent.get_action(NOTHING, 145) < 145 for agent in agents)


def test_a_policy_by_path_and_by_name(tmp_path: Path) -> None:
    policy = untrained("belief:16", context_rules=False)
    ours, loaded = ChallengeAgent(policy), ChallengeAgent(saved(policy, tmp_path))
    assert list(challenge_loop(ours, "bline", "current")) == list(challenge_loop(loaded, "bline", "current"))
    assert ChallengeAgent("sleep").get_action(NOTHING, 145) == 0
    with pytest.raises(InputError, match="neither a baseline nor shipped"):
        ChallengeAgent("no such policy")


def test_it_imports_neither_the_simulator_nor_torch() -> None:
    code = "import stockade.integrations.cage2_submission, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "stockade.integrations.cage2_submission" in loaded
    assert not {"CybORG", "gym", "torch"} & set(loaded)
