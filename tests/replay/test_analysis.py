"""Rollouts judge moves rightly: on positions whose values are known, and against rollouts that are much longer."""

import numpy as np
import pytest

import stockade
from stockade.cage2.actions import action_index
from stockade.cage2.config import WorldConfig
from stockade.cage2.scenario import SERVICE_HOST
from stockade.cage2.state import OBS_SIZE, USER_ACCESS, WORLD
from stockade.learn.agents import as_player
from stockade.replay.analysis import Judgement, Rollouts, analyse, candidates, consistent_states, judge
from stockade.replay.episode import record, record_trace
from tests.cage2.traces import TRACES

SLEEP, MONITOR = 0, 1
RESTORE_SERVER, REMOVE_SERVER = (action_index(kind, "Op_Server0") for kind in ("Restore", "Remove"))


FRESH = 730_000_000  # seeds from here on: nothing was chosen by looking at them


def asleep_until_root_on_the_server(seed: int) -> int:
    """Steps after which B_line has just become root on Op_Server0, so that it stops the service in the next one."""
    episode = record(as_player(stockade.load("sleep")), WorldConfig(red="bline", horizon=60), seed)
    return int(np.flatnonzero(episode.truth["red_root_sessions"][:, SERVICE_HOST])[0])


@pytest.fixture(scope="module")
def champion():
    return as_player(stockade.load("champion"))


@pytest.mark.parametrize("seed", [0, 1, FRESH, FRESH + 1])
def test_the_move_that_saves_the_service_in_the_last_step_is_best_by_exactly_ten_points(seed):
    """In the last step red stops the service, -10, unless its session is gone: Restore costs 1 and saves 1 for the
    root access and 10 for the service. Remove does nothing to a root session."""
    steps = asleep_until_root_on_the_server(seed)
    config, player = WorldConfig(red="bline", horizon=steps + 1), as_player(stockade.load("sleep"))
    played = np.zeros(steps + 1, np.int64)
    for last, label in [(RESTORE_SERVER, "best"), (SLEEP, "blunder"), (REMOVE_SERVER, "blunder")]:
        played[-1] = last
        episode = record(player, config, seed, played)
        others = [a for a in (SLEEP, MONITOR, REMOVE_SERVER, RESTORE_SERVER) if a != last]
        moves = np.tile([last, *others], (steps + 1, 1))
        moves[:, 0] = played
        for particles in (0, 500):
            step = analyse(episode, player, moves, rollouts=50, seed=1, particles=particles).steps[-1]
            assert step.label == label
            assert step.best.action == RESTORE_SERVER
            assert step.played.value == pytest.approx(episode.rewards[-1])
            assert step.best.gain == pytest.approx(0 if label == "best" else 10)
            assert step.best.gain_half_width == pytest.approx(0)


class Blunders:
    """Plays as the champion, but in one step restores Op_Server0 for nothing and loses the decoys there."""

    obs, name = "memory", "blunders"

    def __init__(self, step):
        self.champion, self.step = stockade.load("champion"), step

    def reset(self, n):
        self.steps = 0

    def act(self, observations):
        self.steps += 1
        if self.steps == self.step:
            return np.full(len(observations), RESTORE_SERVER)
        return self.champion.act(observations)


@pytest.mark.parametrize(("step", "red", "seed"), [(9, "bline", 3), (30, "bline", FRESH), (18, "meander", FRESH + 1)])
def test_a_planted_blunder_is_found_and_comes_first(step, red, seed):
    settings = {"red": red, "horizon": 50, "seed": seed, "rollouts": 100, "alternatives": 3, "particles": 500}
    replay = stockade.replay(Blunders(step), progress=False, **settings)
    for analysis in replay.analyses:
        assert analysis.worst()[0] == step - 1
        judged = analysis.steps[step - 1]
        assert judged.label in ("inaccuracy", "mistake", "blunder")
        assert judged.best.gain > 0.9, "a Restore alone costs a point"
        assert analysis.in_words(step - 1).startswith(f"step {step}: Restore Op_Server0, ")


@pytest.mark.parametrize("count", [50, pytest.param(400, marks=pytest.mark.slow)])
def test_intervals_cover_the_value_of_a_long_rollout_in_nine_of_ten_positions(champion, count):
    """Fresh positions, two of each episode; values of two moves and their difference, 400 rollouts against 4000."""
    generator, covered = np.random.default_rng(count), []
    for k in range(count // 2):
        config = WorldConfig(red=("bline", "meander")[k % 2], horizon=30)
        episode = record(champion, config, FRESH + 100 + k)
        moves = candidates(episode, champion, 1)
        with Rollouts(episode.config, champion, 2, 400) as short, Rollouts(episode.config, champion, 2, 4000) as long:
            for t in generator.choice(np.arange(2, 28), 2, replace=False).tolist():
                got = judge(moves[t].tolist(), short.returns(episode.snapshots[t], moves[t], 1000 * k + t))
                true = long.returns(episode.snapshots[t], moves[t], 10**9 + 1000 * k + t)
                for move, value in zip(got, true.mean(axis=1), strict=True):
                    covered.append(abs(move.value - value) <= move.half_width + 1e-9)
                gain = float((true[1] - true[0]).mean())
                covered.append(abs(got[1].gain - gain) <= got[1].gain_half_width + 1e-9)
    assert len(covered) == 3 * count
    for part in (covered[0::3], covered[1::3], covered[2::3]):  # the move played, the other, their difference
        assert sum(part) >= 0.9 * count


def test_the_label_goes_by_what_was_lost_beyond_the_interval():
    generator = np.random.default_rng(0)
    played = generator.normal(-10, 1, 1000)
    for gain, label in [(0, "best"), (0.2, "good"), (0.5, "inaccuracy"), (2, "mistake"), (5, "blunder"), (-4, "best")]:
        step = Judgement(judge([0, 1], np.array([played, played + gain])))
        assert step.label == label
        assert step.best.gain == pytest.approx(max(0, gain))
    noisy = generator.normal(-9, 30, 1000)  # one point better, by a mean that says nothing
    assert Judgement(judge([0, 1], np.array([played, noisy]))).label in ("best", "good")


def test_the_same_move_is_judged_the_same_by_common_random_numbers(champion):
    episode = record(champion, WorldConfig(red="meander", horizon=40), 2)
    with Rollouts(episode.config, champion, 2, 300) as worlds:
        same = worlds.returns(episode.snapshots[12], np.full(2, episode.actions[12]), 5)
        assert np.array_equal(same[0], same[1])
        assert same[0].std() > 0
        assert not np.array_equal(same, worlds.returns(episode.snapshots[12], np.full(2, episode.actions[12]), 6))


def test_the_result_does_not_depend_on_the_number_of_threads(champion):
    episode = record(champion, WorldConfig(red="meander", horizon=20), 2)
    moves = candidates(episode, champion, 3)
    for particles in (0, 200):
        one, three = (analyse(episode, champion, moves, 30, 4, particles, threads=n) for n in (1, 3))
        assert one.steps == three.steps


def test_candidates_are_the_move_played_and_the_likeliest_others(champion):
    episode = record(champion, WorldConfig(horizon=15), 0)
    for t, (played, *others) in enumerate(candidates(episode, champion, 4).tolist()):
        assert played == episode.actions[t]
        likely = np.argsort(-episode.probabilities[t])
        assert others == [a for a in likely if a != played][:4]


def test_sampled_states_show_what_blue_saw_and_are_as_likely_as_the_truth_is(champion):
    """The fair judgement's states agree with blue's observations, and what they say of red is calibrated: hosts that
    they call held with probability p are held in a share p of episodes."""
    said, true = [], []
    for seed in range(8):
        episode = record(champion, WorldConfig(red="meander", horizon=60), seed)
        for t, start in enumerate(consistent_states(episode, 1000, 500, seed)):
            worlds = start.states.worlds.reshape(-1).view(WORLD)
            if start.exact:
                shown = worlds["obs"][:, :13].copy().view(np.uint8).reshape(500, OBS_SIZE)
                assert (shown == episode.seen[t, :OBS_SIZE]).all()
            said.append((worlds["red_access"] >= USER_ACCESS).mean(axis=0))
            true.append(episode.truth["red_access"][t] >= USER_ACCESS)
    said, true = np.concatenate(said), np.concatenate(true)
    assert true[said > 0.98].mean() > 0.97
    assert true[said < 0.02].mean() < 0.01
    doubtful = (said > 0.1) & (said < 0.9)
    assert doubtful.sum() >= 10
    assert abs(said[doubtful].mean() - true[doubtful].mean()) < 0.15


def test_a_trace_of_the_reference_can_be_judged(champion):
    episode = record_trace(TRACES / "public_B_lineAgent_react_restore.npz", 3)
    analysis = analyse(episode, champion, candidates(episode, champion, 2), rollouts=10, seed=0)
    assert len(analysis.steps) == 100
    assert analysis.worst(), "restoring whatever looks compromised loses points that the champion keeps"
