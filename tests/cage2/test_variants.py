"""Attackers as data: their string, what they do, how they draw, and that plain attackers are what they were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stockade
from stockade.cage2.config import WorldConfig
from stockade.cage2.scenario import HOSTS
from stockade.cage2.variants import ATTACKERS, Phase, Red, read_red
from stockade.errors import SettingError

SLEEP = 0

probabilities = st.sampled_from([0.0, 0.05, 0.2, 0.5, 1.0])
turns = st.builds(
    Phase, st.sampled_from(sorted(ATTACKERS)), st.integers(0, 40), probabilities, probabilities, probabilities
)


@st.composite
def plans(draw):
    first, *later = draw(st.lists(turns, min_size=1, max_size=4))
    times, plan = 0, [first]
    for phase in later:
        begin = times + draw(st.integers(1, 50))
        times = begin + draw(st.integers(0, 50))
        plan.append(Phase(**{**vars(phase), "first": begin, "last": times}))
    return tuple(plan)


reds = st.builds(Red, st.lists(plans(), min_size=1, max_size=5).map(tuple))


# ------------------------------------------------------------------------------------------------------- the string
@given(reds)
def test_the_string_says_all(red):
    assert read_red(str(red)) == red
    assert WorldConfig(red=red) == WorldConfig(red=str(red))


@pytest.mark.parametrize(
    ("text", "red"),
    [
        ("bline", Red()),
        ("B_lineAgent", Red()),
        ("bline+delay:5", Red(((Phase("bline", delay=5),),))),
        ("meander>bline@50", Red(((Phase("meander"), Phase("bline", first=50, last=50)),))),
        ("meander>bline@5-9+delay:2", Red(((Phase("meander"), Phase("bline", 2, first=5, last=9)),))),
        ("sleep|meander+idle:0.2", Red(((Phase("sleep"),), (Phase("meander", idle=0.2),)))),
    ],
)
def test_strings_that_people_write(text, red):
    assert read_red(text) == red


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("blne", "Did you mean 'bline'?"),
        ("blne", "for example 'bline+delay:5'"),
        ("bline+dely:5", "Did you mean 'delay'?"),
        ("bline+delay:2.5", "takes a whole number"),
        ("bline+idle:often", "takes a probability"),
        ("bline+idle:1.5", "from 0 to 1"),
        ("bline+idle:nan", "from 0 to 1"),
        ("bline+delay:-1", "0 to 30000"),
        ("bline+idle:0.1+idle:0.2", "'idle' twice"),
        ("meander>bline", "when 'bline' takes over"),
        ("meander>bline@x", "when 'bline' takes over"),
        ("meander>bline@0", "too early"),
        ("meander>bline@50>sleep@20", "too early"),
        ("meander>bline@50-40", "too early"),
        ("bline|mix", "names 'mix'"),
        ("bline|player", "names 'player'"),
        ("|".join(["bline"] * 17), "too many"),
    ],
)
def test_mistakes_are_named_with_what_is_possible(text, said):
    with pytest.raises(SettingError) as caught:
        stockade.make(red=text)
    assert said in str(caught.value)
    assert text in str(caught.value)


# ------------------------------------------------------------------------------------------------------ what they do
def episode(red, seed=0, steps=60, chance="fast", blue=lambda t: SLEEP, **options):
    """Red's actions, with a mark where they failed; and the total reward."""
    env = stockade.make(red=red, chance=chance, horizon=max(steps, 30), **options)
    env.reset(seed=seed)
    actions, total = [], 0.0
    for t in range(steps):
        _, reward, _, _, info = env.step(blue(t))
        actions.append(info["red_action"] + ("" if info["red_success"] else "!"))
        total += reward
    return actions, total


def test_a_delay_moves_the_same_episode():
    plain, _ = episode("bline", steps=40)
    late, _ = episode("bline+delay:7", steps=47)
    assert late == ["Sleep"] * 7 + plain


@pytest.mark.parametrize("chance", ["fast", "cyborg"])
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_pauses_do_not_disturb_a_plan(red, chance):
    """Under `cyborg` the reference's stream is not asked while red pauses, so the very same episode follows."""
    actions, _ = episode(f"{red}+idle:0.5", steps=100, chance=chance)
    awake = [action for action in actions if action != "Sleep"]
    assert 30 < len(awake) < 70
    if chance == "cyborg":
        assert awake == episode(red, steps=len(awake), chance=chance)[0]


@pytest.mark.parametrize("chance", ["fast", "cyborg"])
def test_another_attacker_takes_over_and_begins_anew(chance):
    actions, _ = episode("meander>bline@6", steps=40, chance=chance)
    assert actions[:6] == episode("meander", steps=6, chance=chance)[0]
    assert actions[6] == "DiscoverRemoteSystems User"
    assert "Impact Op_Server0" in actions
    assert [action for action in actions[6:] if action.endswith("User0")] == []


def test_a_random_time_of_taking_over_is_uniform():
    with stockade.make_vec(3000, red="sleep>bline@5-9") as envs:
        envs.reset(seed=0)
        begun = np.zeros(3000, int)
        for t in range(12):
            envs.step(np.zeros(3000, np.int64))
            first = (begun == 0) & (envs.true_state().red_type != 0)
            begun[first] = t
    counts = np.bincount(begun, minlength=12)
    assert counts[:5].sum() == 0
    assert counts.sum() == counts[5:10].sum() == 3000
    assert np.all(abs(counts[5:10] - 600) < 5 * np.sqrt(600))


def test_one_of_several_plans_is_drawn_in_each_episode():
    with stockade.make_vec(3000, red="sleep|bline|bline+delay:2", horizon=2) as envs:
        envs.reset(seed=0)
        seen = []
        for _ in range(2):
            envs.step(np.zeros(3000, np.int64))
            seen.append((envs.true_state().red.mean(), (envs.true_state().red_type != 0).mean()))
            envs.step(np.zeros(3000, np.int64))
            before = envs.true_state().plan if hasattr(envs.true_state(), "plan") else None
            envs.step(np.zeros(3000, np.int64))
        assert before is None or len(np.unique(before)) == 3
    for bline, awake in seen:
        assert abs(bline - 2 / 3) < 0.05
        assert abs(awake - 1 / 3) < 0.05


def test_a_detour_takes_one_more_user_host():
    actions, _ = episode("bline-detour", seed=1, steps=60)
    taken = [action.split()[1] for action in actions if action.startswith("PrivilegeEscalate")]
    users = [host for host in taken if host.startswith("User")]
    assert len(users) == len(set(users)) == 2
    assert taken[-1] == "Op_Server0"
    assert actions[-1] == "Impact Op_Server0"


def test_an_aggressive_meander_is_much_faster_and_a_stealthy_one_rests():
    def first_impact(red):
        actions, _ = episode(red, seed=3, steps=100)
        return next(t for t, action in enumerate(actions) if action == "Impact Op_Server0"), actions

    plain, (hurried, _), (careful, actions) = first_impact("meander")[0], *map(
        first_impact, ("meander-aggressive", "meander-stealthy")
    )  # fmt: skip
    assert hurried < plain
    assert careful > hurried
    assert set(actions[1::2]) == {"Sleep"}
    attacked = {action.split()[1].rstrip("!") for action in actions if action.startswith("Exploit")}
    assert sum(host.startswith("User") for host in attacked) == 1, "it goes inwards"


def test_errors_are_anything_that_red_can_try():
    actions, _ = episode("sleep+noise:1", steps=400)
    assert "Sleep" not in actions
    kinds = {action.split()[0] for action in actions}
    assert len(kinds) == 5
    with stockade.make_vec(50, red="bline+noise:0.3", horizon=60) as envs:
        envs.reset(seed=0)
        before = np.zeros((50, len(HOSTS)), bool)
        for _ in range(60):
            before = envs.true_state().red_knows_address.copy()
            envs.step(np.zeros(50, np.int64))
            truth = envs.true_state()
            aimed = np.isin(truth.red_type, (2, 3))
            assert before[aimed, truth.red_target[aimed]].all()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("chance", ["fast", "cyborg"])
def test_green_is_active_at_the_rate_of_the_plan(rate, chance):
    with stockade.make_vec(500, red=f"sleep+green:{rate}", chance=chance) as envs:
        envs.reset(seed=0)
        active = 0
        for _ in range(20):
            envs.step(np.zeros(500, np.int64))
            active += (envs.true_state().green_target >= 0).sum()
    assert abs(active / 10_000 - rate) < 0.025


def test_the_rate_one_half_is_the_references_active_green():
    """Bit for bit, also under the reference's stream."""
    runs = []
    for options in ({"red": "bline+green:0.5"}, {"red": "bline", "green": "active"}, {"red": "bline", "green": 0.5}):
        with stockade.make_vec(5, chance="cyborg", **options) as envs:
            envs.reset(seed=0)
            steps = [envs.step(np.full(5, 1))[0] for _ in range(60)]
            runs.append((steps, envs.random_peek()))
    for other in runs[1:]:
        assert np.array_equal(runs[0][0], other[0])
        assert np.array_equal(runs[0][1], other[1])


@pytest.mark.parametrize(
    ("red", "same"), [("bline", "bline+green:0.25"), ("meander>bline@20", "meander+green:0.25>bline+green:0.25@20")]
)
def test_a_rate_of_green_may_stand_beside_the_attacker(red, same):
    runs = []
    for options in ({"red": red, "green": 0.25}, {"red": same}):
        with stockade.make_vec(50, **options) as envs:
            envs.reset(seed=1)
            runs.append([envs.step(np.full(50, 1))[0] for _ in range(60)])
    assert np.array_equal(*runs)


def test_what_green_does_is_said_once_and_by_a_probability():
    assert WorldConfig(green=0.0).green == "sleep"
    for options in ({"green": 1.5}, {"green": float("nan")}, {"red": "bline+green:0.1", "green": "active"}):
        with pytest.raises(SettingError, match=r"^green="):
            stockade.make(**options)


@pytest.mark.parametrize("chance", ["fast", "cyborg"])
def test_variants_repeat_by_seed_and_snapshot(chance):
    red = "meander+idle:0.3>bline-detour+noise:0.2@10-30|meander-stealthy+green:0.3|meander-aggressive+delay:3"
    with stockade.make_vec(20, red=red, chance=chance, horizon=50) as envs:
        actions = np.random.default_rng(0).integers(145, size=(80, 20))

        def run(part):
            return [np.concatenate([x.ravel() for x in envs.step(a)[:3]]) for a in part]

        envs.reset(seed=4)
        run(actions[:20])
        snapshot = envs.snapshot()
        rest = run(actions[20:])
        envs.restore(snapshot)
        assert np.array_equal(run(actions[20:]), rest)
        envs.reset(seed=4)
        run(actions[:20])
        assert np.array_equal(run(actions[20:]), rest)
