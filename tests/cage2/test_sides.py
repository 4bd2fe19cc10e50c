"""One side with the other side's policy inside, or both sides: the same worlds, rewards, masks, errors, snapshots."""

import pickle

import cloudpickle
import numpy as np
import pytest

import stockade
from stockade.baselines import Baseline
from stockade.cage2.actions import ACTION_MASK, N_ACTIONS, N_RED_ACTIONS
from stockade.errors import InvalidActionError, PolicyError, SettingError

N = 6


def blue_policy(observations):
    """Restore the first host that seems compromised, else Monitor."""
    seen = observations.reshape(-1, 13, 4)[:, :, 3] == 1
    return np.where(seen.any(axis=1), 132 + seen.argmax(axis=1), 1)


def red_policy(observations, action_mask):
    """Discover a subnet, escalate where there is a session, exploit what is scanned, scan what is not."""
    ports = observations[:, 65:221].reshape(-1, 13, 12).any(axis=2)
    session, root = observations[:, 26:39] == 1, observations[:, 39:52] == 1
    sleep, discover = np.full((len(observations), 1), 0.1), observations[:, 224:227] == 0
    wanted = np.hstack([sleep, discover * 4, ~ports * 1, (ports & ~session) * 2, (session & ~root) * 3, root * 0.2])
    return (wanted * action_mask).argmax(axis=1)


def both(chance="fast", n=N, **options):
    return stockade.make_vec(n, side="both", chance=chance, horizon=20, **options)


def random_pair(generator, n=N):
    return {"blue": generator.integers(N_ACTIONS, size=n), "red": generator.integers(N_RED_ACTIONS, size=n)}


# ----------------------------------------------------------------------------------------------------- the same game
@pytest.mark.parametrize("chance", ["fast", "cyborg"])
@pytest.mark.parametrize("side", ["blue", "red"])
def test_a_policy_inside_is_the_same_game_as_its_actions_from_outside(side, chance):
    inside = {"blue": {"red": red_policy}, "red": {"blue": blue_policy}}[side]
    policies = {"blue": blue_policy, "red": red_policy}
    with both(chance, action_mask=True) as two, stockade.make_vec(
        N, side=side, chance=chance, horizon=20, **inside
    ) as one:  # fmt: skip
        pair, info = two.reset(seed=3)
        obs, _ = one.reset(seed=3)
        total = 0.0
        for _ in range(100):
            assert np.array_equal(pair[side], obs)
            actions = {"blue": blue_policy(pair["blue"]), "red": red_policy(pair["red"], info["action_mask"]["red"])}
            pair, reward, *ends, info = two.step(actions)
            masks = one.action_masks() if side == "red" else ()
            obs, own, *own_ends, _ = one.step(policies[side](obs, masks) if side == "red" else blue_policy(obs))
            assert np.array_equal(own, -reward if side == "red" else reward)
            assert np.array_equal(ends, own_ends)
            total += reward.sum()
        assert total < 0, "something happened"


@pytest.mark.parametrize("side", ["blue", "red", "both"])
def test_single_environments_and_vectors_agree(side):
    options = {"side": side, "horizon": 12, "action_mask": True}
    options |= {"blue": {"red": red_policy}, "red": {"blue": blue_policy}, "both": {}}[side]
    with stockade.make_vec(2, autoreset_mode="disabled", **options) as envs:
        single = stockade.make(info=False, **options)
        seen, infos = envs.reset(seed=[5, 6])
        alone, info = single.reset(seed=6)
        for _ in range(12):
            if side != "both":
                seen, alone, infos, info = (
                    {"": tree} for tree in (seen, alone, infos["action_mask"], info["action_mask"])
                )
            else:
                infos, info = infos["action_mask"], info["action_mask"]
            for key in alone:
                assert np.array_equal(seen[key][1], alone[key])
                assert np.array_equal(infos[key][1], info[key])
            action = envs.action_space.sample()
            own = {k: int(v[1]) for k, v in action.items()} if side == "both" else int(action[1])
            seen, rewards, _, truncated, infos = envs.step(action)
            alone, reward, _, over, info = single.step(own)
            assert (rewards[1], truncated[1]) == (reward, over)


def test_reward_of_red_is_minus_blues_without_minus_zero():
    with stockade.make_vec(N, side="red", blue=Baseline("sleep"), horizon=100) as envs:
        envs.reset(seed=0)
        total, generator = 0.0, np.random.default_rng(0)
        for _ in range(60):
            mask = envs.action_masks()
            assert (mask.shape, mask.dtype) == ((N, 56), np.bool_)
            actions = np.array([generator.choice(np.flatnonzero(allowed)) for allowed in mask])
            _, rewards, *_ = envs.step(actions)
            assert not np.signbit(rewards).any()
            total += rewards.sum()
    assert total > 0


def test_masks_of_both_sides():
    with both(action_mask=True) as envs:
        _, info = envs.reset(seed=0)
        assert np.array_equal(info["action_mask"]["blue"], np.tile(ACTION_MASK, (N, 1)))
        assert info["action_mask"]["red"].sum() == N * 6
        envs.step({"blue": np.zeros(N, np.int64), "red": np.full(N, 3)})
        assert envs.action_masks()["red"].sum() == N * (6 + 8)


@pytest.mark.parametrize("side", ["blue", "red", "both"])
@pytest.mark.parametrize("chance", ["fast", "cyborg"])
def test_a_snapshot_repeats_what_follows_also_of_a_policy_that_samples(side, chance):
    def sampled_red(observations, generator):
        return generator.integers(N_RED_ACTIONS, size=len(observations))

    options = {"blue": {"red": sampled_red}, "red": {"blue": Baseline("react-restore")}, "both": {}}[side]
    with stockade.make_vec(N, side=side, chance=chance, horizon=25, **options) as envs:
        envs.action_space.seed(1)
        actions = [envs.action_space.sample() for _ in range(40)]
        envs.reset(seed=1)
        for action in actions[:10]:
            envs.step(action)
        snapshot = pickle.loads(pickle.dumps(envs.snapshot()))

        def onwards():
            return [envs.step(action)[:4] for action in actions[10:]]

        first = onwards()
        seen = envs.restore(snapshot)
        assert isinstance(seen, dict) == (side == "both")
        again = onwards()
        assert pickle.dumps(first) == pickle.dumps(again)
        envs.reset(seed=1)
        for action in actions[:10]:
            envs.step(action)
        assert pickle.dumps(onwards()) == pickle.dumps(first), "and so does a seed"


def test_a_snapshot_without_a_red_player_does_not_fit():
    with both() as envs, stockade.make_vec(N, horizon=20) as plain:
        envs.reset(seed=0)
        plain.reset(seed=0)
        with pytest.raises(ValueError, match="the snapshot is of other worlds"):
            envs.restore(plain.snapshot())


def test_an_environment_with_a_policy_inside_is_pickled_with_it():
    with stockade.make_vec(N, side="red", blue=blue_policy, horizon=20) as envs:
        envs.reset(seed=0)
        actions = np.random.default_rng(0).integers(N_RED_ACTIONS, size=(10, N))
        envs.step(actions[0])
        with cloudpickle.loads(cloudpickle.dumps(envs)) as other:
            for action in actions:
                for mine, its in zip(envs.step(action)[:4], other.step(action)[:4], strict=True):
                    assert np.array_equal(mine, its)


@pytest.mark.parametrize("obs", ["bits", "memory"])
def test_a_policy_of_blue_gets_what_it_expects(obs):
    sizes = []

    class Watching:
        def act(self, observations):
            sizes.append(observations.shape[1])
            return np.zeros(len(observations), np.int64)

    policy = Watching()
    policy.obs = obs
    env = stockade.make(side="red", blue=policy)
    env.reset(seed=0)
    env.step(0)
    assert sizes == [{"bits": 52, "memory": 160}[obs]]


def test_floats_for_networks():
    with both(obs_dtype=np.float32) as envs, both() as plain:
        obs, _ = envs.reset(seed=0)
        bits, _ = plain.reset(seed=0)
        action = random_pair(np.random.default_rng(0))
        for side in ("blue", "red"):
            assert obs[side].dtype == np.float32
            assert np.array_equal(envs.step(action)[0][side], plain.step(action)[0][side])
            assert np.array_equal(obs[side], bits[side])


# ------------------------------------------------------------------------------------------------------------ errors
class Faulty:
    """Plays well until it is told not to."""

    def __init__(self):
        self.answer = None

    def act(self, observations):
        if isinstance(self.answer, Exception):
            raise self.answer
        return np.zeros(len(observations), np.int64) if self.answer is None else self.answer


@pytest.mark.parametrize("backend", ["native", "single"])
@pytest.mark.parametrize("inside", ["blue", "red"])
@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (KeyError("gone"), PolicyError, "failed in environment.*KeyError: 'gone'"),
        (np.array([999, 0, 0]), InvalidActionError, "chose action 999 .*in environment 0; take whole numbers from 0"),
        (np.array([0, -1, 0]), InvalidActionError, "chose action -1 .*in environment 1"),
        (np.array([0, np.nan, 1.0]), InvalidActionError, "chose action nan .*in environment 1"),
        (np.array([0.0, 1.0, 2.0]), InvalidActionError, "float64"),
        (np.zeros((3, 2), np.int64), InvalidActionError, r"shape \(3, 2\)"),
        ("nonsense", InvalidActionError, r"shape \(\)"),
    ],
)
def test_a_policy_that_fails_is_named_and_the_environment_stays_usable(inside, answer, kind, said, backend):
    policy = Faulty()
    side = {"blue": "red", "red": "blue"}[inside]
    if backend == "single":
        if isinstance(answer, np.ndarray):
            answer = answer[1:2] if said.endswith("environment 1") else answer[:1]
            said = said.replace("environment 1", "environment 0").replace(r"\(3, 2\)", r"\(1, 2\)")
        env = stockade.make(side=side, **{inside: policy})
        action = 0
    else:
        env = stockade.make_vec(3, side=side, **{inside: policy})
        action = np.zeros(3, np.int64)
    env.reset(seed=0)
    before = env.snapshot()
    policy.answer = answer
    with pytest.raises(kind, match=f"{inside}'s policy Faulty.*{said}") as caught:
        env.step(action)
    if kind is PolicyError:
        assert caught.value.side == inside
        assert isinstance(caught.value.__cause__, KeyError)
        assert pickle.loads(pickle.dumps(caught.value)).side == inside
    assert env.snapshot() == before, "nothing was touched"
    policy.answer = None
    env.step(action)
    env.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"side": "green"}, "side='green' is unknown; take one of 'blue', 'red', 'both'"),
        ({"side": "rad"}, "Did you mean 'red'?"),
        ({"side": "red"}, "blue=None is no policy"),
        ({"side": "red", "blue": "champion"}, "stockade.load"),
        ({"side": "red", "blue": 3}, "blue=3 is no policy"),
        ({"side": "red", "blue": blue_policy, "red": "meander"}, "red='meander' is for side='blue'"),
        ({"side": "red", "blue": blue_policy, "red": "bline"}, "red='bline' is for side='blue'"),
        ({"side": "both", "red": "bline"}, "red='bline' is for side='blue'"),
        ({"side": "both", "blue": blue_policy}, "blue="),
        ({"side": "blue", "blue": blue_policy}, "is for side='red'"),
        ({"red": object()}, "is no policy"),
        ({"red": "player"}, "side='both'"),
    ],
)
@pytest.mark.parametrize("make", [stockade.make, lambda **options: stockade.make_vec(2, **options)])
def test_seats_that_make_no_sense_are_refused(options, said, make):
    with pytest.raises(SettingError) as caught:
        make(**options)
    assert said in str(caught.value)


def test_an_action_that_is_none_names_the_side_and_the_environment():
    with both() as envs:
        envs.reset(seed=0)
        bad = random_pair(np.random.default_rng(0))
        bad["red"][4] = 56
        with pytest.raises(InvalidActionError, match=r"\['red'\] 56 of environment 4") as caught:
            envs.step(bad)
        assert caught.value.index == 4
        with pytest.raises(InvalidActionError, match="red"):
            envs.step({"blue": bad["blue"]})
    env = stockade.make(side="both")
    env.reset(seed=0)
    with pytest.raises(InvalidActionError, match="red's action 56 is out of range; take 0 to 55"):
        env.step({"blue": 0, "red": 56})
    with pytest.raises(InvalidActionError, match="keys 'blue' and 'red'"):
        env.step(0)
    env = stockade.make(side="red", blue=blue_policy)
    env.reset(seed=0)
    with pytest.raises(InvalidActionError, match="red's action -1"):
        env.step(-1)
