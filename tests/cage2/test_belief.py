"""`obs="belief"`: the probabilities are those of all worlds that fit what blue has seen, and nothing else."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stockade
from stockade.cage2 import ACTION_NAMES, HOSTS
from stockade.cage2.actions import FALSE
from stockade.cage2.belief import FEATURE_NAMES, BeliefFilter, BeliefObservation
from stockade.cage2.features import FEATURE_NAMES as PROBABILITIES
from stockade.cage2.history import MEMORY_SIZE
from stockade.cage2.particles import FIRST_WORD, PARTICLE
from stockade.cage2.state import OBS_SIZE, WORLD
from stockade.cage2.views import POSSIBLE_REDS, View, read_view
from stockade.errors import InputError, SettingError

#: Some of everything that blue can do.
MOVES = [ACTION_NAMES.index(name) for name in (
    "Monitor", "DecoyApache Enterprise0", "Analyse User1", "Remove User2", "Monitor", "Restore User3", "Analyse User4",
    "Monitor", "Restore User1", "Monitor",
)]  # fmt: skip


def histories(red: str, rules: str, moves: list[int], n: int, seed: int) -> tuple[list[bytes], np.ndarray, np.ndarray]:
    """Of n episodes with these moves: what blue saw, the last bits, and the true state's access of red."""
    envs = stockade.make_vec(n, red=red, rules=rules, horizon=100)
    envs.reset(seed=seed)
    seen = np.zeros((len(moves), n, OBS_SIZE), np.uint8)
    for t, action in enumerate(moves):
        seen[t] = envs.step(np.full(n, action))[0]
    packed = np.packbits(seen.transpose(1, 0, 2).reshape(n, -1), axis=1)
    return [row.tobytes() for row in packed], seen, envs.true_state().red_access.copy()


@pytest.mark.parametrize("steps", [3, 6, 10])
def test_it_is_the_share_of_the_worlds_that_fit(steps: int) -> None:
    """Bayes by brute force: among 300,000 worlds of the prior, those that show the same history."""
    moves, n = MOVES[:steps], 50_000
    parts = [(red, rules, *histories(red, rules, moves, n, 7))
             for rules in ("current", "leaderboard") for red in POSSIBLE_REDS.split("|")]  # fmt: skip
    counts = Counter(key for part in parts for key in part[2])
    for history, size in counts.most_common(3)[1:]:  # the first is of an attacker that sleeps
        fits = [np.array([key == history for key in part[2]]) for part in parts]
        seen = next(part[3][:, fit] for part, fit in zip(parts, fits, strict=True) if fit.any())[:, 0]
        belief = BeliefFilter(1)
        for action, bits in zip(moves, seen, strict=True):
            found = belief.update([action], bits[None])
        access = np.concatenate([part[4][fit] for part, fit in zip(parts, fits, strict=True)])
        error = 5 * (0.25 / size) ** 0.5  # of the share, not of the belief
        assert size > 500
        assert found.access[0] == pytest.approx((access >= 1).mean(axis=0), abs=error)
        assert found.root[0] == pytest.approx((access == 2).mean(axis=0), abs=error)
        for k, red in enumerate(("sleep", "bline", "meander")):
            share = sum(fit.sum() for part, fit in zip(parts, fits, strict=True) if part[0] == red) / size
            assert found.attacker[0, k] == pytest.approx(share, abs=error)
        share = sum(fit.sum() for part, fit in zip(parts, fits, strict=True) if part[1] == "leaderboard") / size
        assert found.leaderboard[0] == pytest.approx(share, abs=error)


def test_it_is_calibrated_along_whole_episodes() -> None:
    """Of what it calls likely to some degree, about that share is true; and it knows more than what is usual."""
    envs = stockade.make_vec(400, red="meander", horizon=30, obs="belief:64:current:meander")
    defender = stockade.load("react-remove")
    obs, _ = envs.reset(seed=3)
    said, true = [], []
    for _ in range(30):
        obs, *_ = envs.step(defender.act(obs[:, :OBS_SIZE]))
        belief, truth = envs.belief(), envs.true_state().red_access
        said += [belief.access, belief.root]
        true += [truth >= 1, truth == 2]
    guess, fact = np.concatenate(said), np.concatenate(true)
    errors, sizes = [], []
    for low in np.arange(0.1, 0.9, 0.1):
        inside = (guess >= low) & (guess < low + 0.1)
        if inside.sum() > 100:
            errors.append(abs(fact[inside].mean() - guess[inside].mean()))
            sizes.append(inside.sum())
    assert np.average(errors, weights=sizes) < 0.04
    assert fact[guess < 0.1].mean() < 0.01
    assert fact[guess >= 0.9].mean() > 0.98
    usual = np.broadcast_to(fact.mean(axis=0), fact.shape)  # of each host
    scores = [-np.where(fact, np.log(p), np.log(1 - p)).mean() for p in np.clip([guess, usual], 0.001, 0.999)]
    assert scores[0] < 0.3 * scores[1]


def test_nothing_of_the_true_state_shows() -> None:
    """Worlds that differ in truth but not in what blue saw and did have the same observation, bit for bit."""
    n = 2000
    envs = stockade.make_vec(n, red="meander", obs="belief:16", horizon=100)
    obs, _ = envs.reset(seed=11)
    groups = {b"": list(range(n))}
    hidden = 0
    for action in MOVES:
        obs, *_ = envs.step(np.full(n, action))
        truth = [row.tobytes() for row in envs.true_state().red_access]
        split: dict[bytes, list[int]] = {}
        for past, members in groups.items():
            for i in members:
                split.setdefault(past + obs[i, :OBS_SIZE].astype(np.uint8).tobytes(), []).append(i)
        groups = split
        for members in groups.values():
            assert (obs[members] == obs[members[0]]).all()
            hidden += len({truth[i] for i in members}) > 1
    assert hidden > 20


def test_success_and_history_follow_from_the_bits_alone() -> None:
    """The first 150 values are those of `obs="memory"`, which is told whether blue's action succeeded."""
    n, rng = 40, np.random.default_rng(5)
    world = {"red": "meander", "rules": "leaderboard", "horizon": 50}
    belief, memory = (stockade.make_vec(n, obs=obs, **world) for obs in ("belief:16", "memory"))
    assert np.array_equal(belief.reset(seed=1)[0][:, :150], memory.reset(seed=1)[0][:, :150])
    failures = 0
    for t in range(110):  # two beginnings of an episode are among them
        actions = rng.integers(0 if t % 3 else 28, 145 if t % 3 else 132, n)
        seen, told = belief.step(actions)[0], memory.step(actions)[0]
        assert np.array_equal(seen[:, :150], told[:, :150])
        failures += (memory.true_state().states["blue_success"] == FALSE).sum()
    assert failures > 200
    assert len(FEATURE_NAMES) == seen.shape[1] == MEMORY_SIZE + len(PROBABILITIES)


def test_the_clock_counts_down_to_where_the_challenge_ends_episodes() -> None:
    """It tells the steps left to whoever knows the horizon, which is 30, 50 or 100, and never which of them it is."""
    clock = FEATURE_NAMES[150:MEMORY_SIZE]
    envs = [stockade.make_vec(1, obs="belief:16", horizon=horizon, red="sleep") for horizon in (30, 150)]
    seen = [one.reset(seed=0)[0] for one in envs]
    for t in range(150):
        end = next(end for end in (30, 50, 100, 130, 150) if end > t)
        facts = {"step 30 is over": t % 100 >= 30, "step 50 is over": t % 100 >= 50}
        for name, value in zip(clock, seen[1][0, 150:MEMORY_SIZE], strict=True):
            steps = name.removesuffix(" steps or more until the episode may end")
            assert value == (facts[name] if name in facts else end - t >= int(steps)), (t, name)
        if t < 30:
            assert np.array_equal(*seen), "a horizon of 30 looks like one of 150 until it is over"
        seen = [one.step(np.zeros(1, np.int64))[0] for one in envs]


@pytest.mark.parametrize("backend", ["serial", "shared_memory"])
def test_backends_agree(backend: str) -> None:
    world = {"obs": "belief:16:current:bline|meander+green:0.3", "red": "mix", "horizon": 12}
    rng = np.random.default_rng(0)
    with stockade.make_vec(5, backend, **world) as one, stockade.make_vec(5, **world) as other:
        assert np.array_equal(one.reset(seed=4)[0], other.reset(seed=4)[0])
        for _ in range(30):
            actions = rng.integers(0, 145, 5)
            assert np.array_equal(one.step(actions)[0], other.step(actions)[0])


def test_it_can_be_taken_back_and_repeated() -> None:
    envs, rng = stockade.make_vec(4, obs="belief:32", red="bline"), np.random.default_rng(2)
    envs.reset(seed=0)
    moves = [rng.integers(0, 145, 4) for _ in range(20)]
    for actions in moves[:10]:
        before, *_ = envs.step(actions)
    moment = envs.snapshot()
    after = [envs.step(actions)[0] for actions in moves[10:]]
    assert np.array_equal(envs.restore(moment), before)
    assert all(np.array_equal(envs.step(actions)[0], seen) for actions, seen in zip(moves[10:], after, strict=True))


def test_the_truth_is_told_in_the_same_words() -> None:
    """`obs="truth"`: what blue remembers, and 0 or 1 for each probability."""
    n, rng, world = 50, np.random.default_rng(3), {"red": "meander", "horizon": 30}
    truth, belief = (stockade.make_vec(n, obs=obs, **world) for obs in ("truth", "belief:64:current:meander"))
    known, believed = truth.reset(seed=6)[0], belief.reset(seed=6)[0]
    said, fact = [], []
    for _ in range(30):
        assert np.array_equal(known[:, :MEMORY_SIZE], believed[:, :MEMORY_SIZE])
        features, access = known[:, MEMORY_SIZE:], truth.true_state().red_access
        assert set(np.unique(features)) <= {0.0, 1.0}
        assert np.array_equal(features[:, :13], access >= 1)
        assert np.array_equal(features[:, 13:26], access == 2)
        said.append(believed[:, MEMORY_SIZE:])
        fact.append(features)
        actions = rng.integers(0, 145, n)
        known, believed = truth.step(actions)[0], belief.step(actions)[0]
    guess, facts = np.concatenate(said), np.concatenate(fact) == 1
    assert not facts[guess == 0].any(), "what is impossible is never the case"
    assert facts[guess > 0.999].all(axis=None)
    for k in np.flatnonzero((guess > 0.05).sum(axis=0) > 200):  # of each feature, as often as believed
        assert facts[:, k].mean() == pytest.approx(guess[:, k].mean(), abs=0.05), PROBABILITIES[k]


def test_another_simulator_gets_the_same() -> None:
    """The wrapper sees 52 bits and nothing else."""
    env, own = BeliefObservation(stockade.make(red="meander", info=False)), stockade.make(red="meander", obs="belief")
    assert np.array_equal(env.reset(seed=9)[0], own.reset(seed=9)[0])
    for action in MOVES * 3:
        assert np.array_equal(env.step(action)[0], own.step(action)[0])
    assert env.observation_space.contains(env.reset(seed=1)[0])


def test_a_particle_ends_with_its_world() -> None:
    """Their bytes are copied."""
    fields = {name: PARTICLE.fields[name] for name in WORLD.names}
    assert fields == {name: (dtype, 8 * FIRST_WORD + offset) for name, (dtype, offset) in WORLD.fields.items()}


def test_an_attacker_out_of_the_blue_is_not_overlooked() -> None:
    """Where no possible attacker explains an exploit, it may have succeeded, and may not."""
    belief = BeliefFilter(1, "belief:64:both:sleep")
    bits = np.zeros((1, OBS_SIZE), np.uint8)
    host = HOSTS.index("Enterprise1")
    bits[0, 4 * host : 4 * host + 4] = 1, 1, 0, 1  # an exploit is seen
    found = belief.update([0], bits)
    assert found.access[0, host] == 0.5
    bits[0, 4 * host : 4 * host + 2] = 0  # the next step shows nothing new
    assert belief.update([0], bits).access[0, host] == found.access[0, host]


def test_a_belief_that_is_lost_says_so() -> None:
    """Who attacks is open after a step that nobody explains, less and less so while everything is explained; red may
    have become one that goes on from where it was seen."""
    belief, bits = BeliefFilter(1, "belief:64:current:bline|sleep|meander"), np.zeros((1, OBS_SIZE), np.uint8)
    assert belief.update([0], bits).attacker[0].sum() == pytest.approx(1)
    host = HOSTS.index("Op_Server0")
    bits[0, 4 * host : 4 * host + 4] = 1, 1, 0, 1  # an exploit where nobody can be yet
    found = belief.update([0], bits)
    assert found.attacker[0].sum() == 0
    assert found.known[0, host] == 1
    assert 0 < found.features[0, PROBABILITIES.index("Meander takes for exploited Op_Server0")] < 1
    bits[0, 4 * host : 4 * host + 2] = 0
    sure = [belief.update([0], bits).attacker[0].sum() for _ in range(40)]
    assert sure[0] == pytest.approx(0.05)
    assert all(before < after for before, after in itertools.pairwise(sure))
    assert sure[-1] == pytest.approx(1 - 0.95**40, abs=1e-4)
    assert belief.reset().attacker[0].sum() == pytest.approx(1)


def test_a_plan_that_was_not_needed_for_long_is_not_given_up() -> None:
    """Green that shows up after 60 steps is taken for green, and for nothing else."""
    belief, nothing = BeliefFilter(1, "belief:16:current:sleep|sleep+green:0.5|bline+delay:80"), (1, OBS_SIZE)
    for _ in range(60):
        found = belief.update([0], np.zeros(nothing, np.uint8))
    assert 0 < found.green[0] < 1e-3
    bits = np.zeros(nothing, np.uint8)
    bits[0, 4 * HOSTS.index("Enterprise1")] = 1  # a scan is seen
    found = belief.update([0], bits)
    assert found.green[0] == 1
    assert found.access[0].sum() == 1, "the foothold alone"


# --------------------------------------------------------------------------------------------------------- its string
@settings(max_examples=50)
@given(
    st.sampled_from([16, 64, 1000]),
    st.sampled_from(["both", "current"]),
    st.sampled_from([POSSIBLE_REDS, "meander+green:0.1"]),
)
def test_views_are_their_strings(particles: int, rules: str, red: str) -> None:
    view = View("belief", particles, rules, red)
    assert read_view(str(view)) == view


@pytest.mark.parametrize(
    ("obs", "problem"),
    [
        ("beleif", "Did you mean 'belief'"), ("bits:5", "only 'belief' can"), ("belief:many", "whole number"),
        ("belief:0", "16 to"), ("belief:64:currant", "Did you mean 'current'"),
        ("belief:64:both:blin", "Did you mean 'bline'"), (3, "unknown"),
    ],
)  # fmt: skip
def test_bad_views_are_refused(obs: object, problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        stockade.make_vec(2, obs=obs)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="holds no belief"):
        BeliefFilter(1, "memory")
    with pytest.raises(InputError, match=r"shape \(2,\)"):
        BeliefFilter(2).update([0], np.zeros((2, 52)))
    envs = stockade.make_vec(2)
    envs.reset()
    with pytest.raises(ValueError, match="obs='belief'"):
        envs.belief()
    with pytest.raises(ValueError, match="probabilities"):
        stockade.make_vec(2, obs="belief", obs_dtype=np.uint8)
