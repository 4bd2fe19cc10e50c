"""What a replay records is what happened: in the built-in world, in traces of the reference, under a repair order."""

import numpy as np
import pytest

import stockade
from stockade.cage2.actions import ACTION_NAMES, SLEEP
from stockade.cage2.config import WorldConfig
from stockade.cage2.history import MEMORY_SIZE
from stockade.cage2.state import OBS_SIZE
from stockade.cage2.verify import TraceError
from stockade.errors import InputError
from stockade.learn.agents import as_player
from stockade.learn.evaluate import play
from stockade.replay.analysis import Rollouts
from stockade.replay.episode import belief_of, is_stateless, record, record_cyborg, record_trace
from stockade.replay.result import Replay
from tests.cage2.traces import TRACES, load, shortened
from tests.integrations.conftest import cyborg_stand_in  # noqa: F401


@pytest.mark.parametrize("name", ["champion", "react-restore", "random"])
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_the_episode_is_the_one_that_evaluate_plays(name, red):
    policy = stockade.load(name)
    episode = record(as_player(policy), WorldConfig(red=red, horizon=50), 11)
    assert episode.rewards.sum() == pytest.approx(play(policy, red, 50, 1, 11)[0])


def test_costs_by_cause_and_host_are_the_parts_of_the_reward():
    episode = record(as_player(stockade.load("react-restore")), WorldConfig(red="bline", horizon=100), 4)
    env = stockade.make(red="bline", horizon=100)
    env.reset(seed=4)
    causes = set()
    for t in range(100):
        _, reward, _, _, info = env.step(episode.actions[t])
        parts = {"root": info["reward_hosts"], "service": info["reward_service"], "restore": info["reward_restore"]}
        assert episode.rewards[t] == reward
        for cause, part in parts.items():
            assert -sum(cost for name, _, cost in episode.costs(t) if name == cause) == pytest.approx(part)
        causes |= {name for name, _, _ in episode.costs(t)}
    assert causes >= {"root", "restore"}


def test_the_belief_shown_is_the_one_that_the_policy_saw():
    episode = record(as_player(stockade.load("challenger")), WorldConfig(red="meander", horizon=40), 5)
    belief = belief_of(episode)
    assert np.array_equal(belief.features, episode.seen[:, MEMORY_SIZE:])
    assert belief.attacker[-1, 2] > 0.9


@pytest.mark.parametrize(
    ("red", "green"), [("bline", "sleep"), ("meander", "active"), ("bline+delay:12", 0.3), ("nemesis", "sleep")]
)
def test_a_policy_without_a_belief_is_shown_one_too(red, green):
    """Where red really is, is mostly called likely, and where it is not, unlikely; whoever attacks."""
    likely, unlikely = [], []
    for seed in range(5):
        episode = record(as_player(stockade.load("react-restore")), WorldConfig(red=red, green=green, horizon=50), seed)
        access, held = belief_of(episode).access, episode.truth["red_access"] > 0
        likely.append(access[held].mean())
        unlikely.append(access[~held].mean())
    assert np.mean(likely) > 0.7
    assert np.mean(unlikely) < 0.1


@pytest.mark.parametrize(
    "file", ["public_RedMeanderAgent_mixed", "leaderboard_B_lineAgent_decoys", "green_B_lineAgent_mixed"]
)
def test_an_episode_of_a_trace_is_the_recorded_one(file):
    path, arrays = TRACES / f"{file}.npz", load(f"{file}.npz")
    episode = record_trace(path, 2)
    assert np.array_equal(episode.actions, arrays["blue_action"][2])
    assert np.array_equal(episode.seen[:, :OBS_SIZE], arrays["obs"][2])
    assert np.array_equal(episode.truth["red_access"], arrays["red_priv"][2])
    assert np.array_equal(episode.truth["decoys"], arrays["decoys"][2])
    assert episode.rewards == pytest.approx(arrays["reward"][2])


def test_a_trace_that_the_world_does_not_give_is_refused(tmp_path):
    arrays = shortened(load("public_B_lineAgent_random.npz"), episodes=3, steps=20)
    arrays["reward"][1, 7] -= 1
    np.savez(tmp_path / "altered.npz", **arrays)
    assert len(record_trace(tmp_path / "altered.npz", 0)) == 20
    with pytest.raises(TraceError, match="does not give episode 1"):
        record_trace(tmp_path / "altered.npz", 1)
    with pytest.raises(InputError, match=r"--episode 3.*0 to 2"):
        record_trace(tmp_path / "altered.npz", 3)


def test_a_trace_whose_red_was_played_is_refused():
    with pytest.raises(InputError, match="played by hand"):
        record_trace(TRACES / "free_current_climber_sleep.npz", 0)


def test_a_fix_that_the_order_forbids_is_shown_as_refused(ordered):
    episode = record(as_player(ordered), WorldConfig(red="bline", horizon=100), 1)
    assert episode.refused.any()
    assert not episode.refused.all()
    assert (episode.actions[episode.refused] == SLEEP).all()
    content = Replay(episode).to_dict()
    assert ordered.units.describe(ordered.order) in content["order"]
    for t, step in enumerate(content["steps"]):
        assert step["blue"] == ACTION_NAMES[episode.actions[t]]
        assert step["chosen"] == (ACTION_NAMES[episode.chosen[t]] if episode.refused[t] else None)
    t = int(np.flatnonzero(episode.refused)[0])
    assert f"{ACTION_NAMES[episode.chosen[t]]} (refused)" in str(Replay(episode)).splitlines()[t + 2]


def test_rollouts_keep_to_the_order_too(ordered):
    """Of a step in which a fix was refused: the fix is worth exactly what Sleep is, for it becomes Sleep."""
    episode = record(as_player(ordered), WorldConfig(red="bline", horizon=60), 1)
    t = int(np.flatnonzero(episode.refused)[0])
    with Rollouts(episode.config, as_player(ordered), 2, 50) as worlds:
        slept, fixed = worlds.returns(episode.snapshots[t], np.array([SLEEP, episode.chosen[t]]), 0)
    assert np.array_equal(slept, fixed)


@pytest.mark.usefixtures("cyborg_stand_in")
def test_an_episode_of_another_simulator_is_shown_but_not_judged_by_worlds_that_differ(tmp_path):
    """The stand-in for CybORG plays another game, so that the built-in world cannot stand in for it."""
    episode = record_cyborg(as_player(stockade.load("react-restore")), WorldConfig(red="bline", horizon=12), 3)
    assert (len(episode), episode.source, episode.snapshots) == (12, "CybORG 2.1", ())
    replay = Replay(episode)
    assert "No analysis" in "\n".join(replay.summary())
    assert replay.save(tmp_path / "page.html").stat().st_size > 10_000
    assert [step["reward"] for step in replay.to_dict()["steps"]] == pytest.approx(episode.rewards.tolist(), abs=0.051)


def test_only_policies_that_keep_nothing_continue_in_mid_episode():
    class Plain:
        def act(self, observations):
            return np.zeros(len(observations), np.int64)

    class Remembers(Plain):
        def reset(self, n):
            self.seen = np.zeros(n)

    class Challenge:
        def get_action(self, observation, action_space):
            return 0

    assert is_stateless(as_player(stockade.load("champion")))
    assert is_stateless(as_player(stockade.load("random")))
    assert is_stateless(as_player(Plain()))
    assert not is_stateless(as_player(Remembers()))
    assert not is_stateless(as_player(Challenge()))
