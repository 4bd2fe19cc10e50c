"""The compiled slice against the slice of single environments: the same commands give the same arrays and infos."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

import stockade
from stockade.vector.check_trial import plain
from stockade.vector.description import Inheritance, SliceConfig, layout_of
from stockade.vector.layout import Buffers
from stockade.vector.native_slice import NativeFactory, NativeSlice
from stockade.vector.outcome import Outcome
from stockade.vector.slice import EnvSlice
from stockade.vector.worker import handle

N, FIRST = 5, 10
MODES = list(AutoresetMode)
RULES = [None, "every_step", "episode_end", 3]
PLAIN = {"info": False}
RICH = {"obs": "memory", "obs_dtype": np.float32, "action_mask": True, "chance": "cyborg"}


def pair(world, config, inheritance=None):
    """A compiled slice and one of single environments, with arrays of their own."""
    options = {"red": "mix", "horizon": 4, **world}
    factory = NativeFactory(options)
    made = []
    for native in (True, False):
        buffers = Buffers.allocate(layout_of(factory()), N)
        buffers.age[:] = -1
        if inheritance is not None:
            buffers.put_results(0, N, inheritance.results)
        if native:
            made.append(factory.make_slice(N, FIRST, buffers, config, inheritance))
        else:
            single = [stockade.make(**options) for _ in range(N)]
            made.append(EnvSlice(single, FIRST, buffers, config, inheritance))
    return made


def step_some(part, places, actions):
    if isinstance(part, NativeSlice):
        return part.step_some(places, actions)
    merged = Outcome()
    for place, action in zip(places, actions, strict=True):
        merged.extend(part.step_one(place, action))
    merged.infos.sort(key=lambda pair: pair[0])
    return merged


def record(part, outcome):
    """Everything that can be seen after a command, comparable."""
    truth = part.buffers.truth if part.config.true_states is not None else None
    arrays = *part.buffers.results()[:-1], None if truth is None else [truth[name] for name in ("time", "red_access")]
    infos = [(env_id, plain(info)) for env_id, info in outcome.infos]
    return [plain(list(arrays)), infos, [failure.env_id for failure in outcome.failures]]


steps = st.tuples(st.just("step"), st.permutations(range(N)), st.integers(1, N), st.integers(0, 144))
resets = st.tuples(st.just("reset"), st.lists(st.booleans(), min_size=N, max_size=N), st.one_of(st.none(), st.just(7)))
states = st.tuples(st.sampled_from(["snapshot", "restore", "truth"]))


@settings(max_examples=60)
@given(
    commands=st.lists(st.one_of(steps, steps, steps, resets, states), max_size=25),
    mode=st.sampled_from(MODES),
    rule=st.sampled_from(RULES),
    world=st.sampled_from([PLAIN, RICH]),
    lost=st.booleans(),
)
def test_any_commands_give_the_same(commands, mode, rule, world, lost):
    config = SliceConfig(mode, true_states=rule)
    ours, theirs = pair(world, config, inheritance(world) if lost else None)
    if not lost:
        for part in (ours, theirs):
            part.reset(range(100, 100 + N), None, [True] * N)
    kept, over = {}, np.zeros(N, bool)
    for kind, *data in commands:
        results = []
        if kind == "step":
            places = [place for place in data[0][: data[1]] if not (over[place] and mode is AutoresetMode.DISABLED)]
        for part in (ours, theirs):
            if kind == "step":
                outcome = step_some(part, places, (np.arange(len(places)) * 29 + data[2]) % 145)
            elif kind == "reset":
                outcome = part.reset([data[1]] * N, None, data[0])
            elif kind == "snapshot" and not lost:
                outcome = handle(part, "snapshot", None)
                kept[part] = outcome.values, over.copy()
            elif kind == "restore" and part in kept:
                outcome = handle(part, "restore", kept[part][0])
            elif kind == "truth":
                outcome = handle(part, "truth", None)
            else:
                continue
            results.append(record(part, outcome))
        if kind == "restore" and ours in kept:
            over = kept[ours][1].copy()
        elif kind == "reset":
            over &= ~np.array(data[0])
        elif kind == "step":
            over[places] = (ours.buffers.terminated | ours.buffers.truncated)[places]
        assert not results or results[0] == results[1]


def inheritance(world):
    """Of a worker that was lost after some steps: two of its environments were at the end of an episode."""
    buffers = Buffers.allocate(layout_of(NativeFactory(world)()), N)
    buffers.observations[:] = 1
    return Inheritance([False, True, False, True, False], list(range(50, 50 + N)), buffers.results())


@pytest.mark.parametrize("mode", MODES)
def test_snapshots_go_from_one_kind_of_slice_to_the_other(mode):
    config = SliceConfig(mode)
    ours, theirs = pair({"info": False, "horizon": 9}, config)
    ours.reset(range(N), None, [True] * N)
    for action in (3, 30, 140):
        ours.step(np.full(N, action))
    theirs.restore(ours.snapshot().values)
    for action in (7, 90):
        mine, other = ours.step(np.full(N, action)), theirs.step(np.full(N, action))
        assert record(ours, mine) == record(theirs, other)


def test_refusals_are_failures_that_name_the_environments():
    ours, _ = pair(PLAIN, SliceConfig())
    mask = [False, True, True, False, False]
    for seeds, options in (([-1] * N, None), ([0] * N, {"size": 3})):
        outcome = ours.reset(seeds, options, mask)
        assert [failure.env_id for failure in outcome.failures] == [11, 12]
        assert isinstance(outcome.failures[0].original(), ValueError)
    early = handle(ours, "snapshot", None)
    assert [failure.env_id for failure in early.failures] == [FIRST + i for i in range(N)]


def test_worlds_without_a_seed_have_different_chances():
    ours, _ = pair({"info": False, "red": "meander", "horizon": 30}, SliceConfig())
    ours.reset([None] * N, None, [True] * N)
    for _ in range(20):
        ours.step(np.zeros(N, np.int64))
    assert len({world.tobytes() for world in ours._batch.worlds}) == N


def test_calls_see_and_change_the_worlds():
    ours, _ = pair({"info": False, "horizon": 9}, SliceConfig())
    assert handle(ours, "call", ("spec", (), {})).values == [None] * N  # before any reset
    ours.reset(range(N), None, [True] * N)
    ours.step(np.zeros(N, np.int64))
    assert [int(state.time) for state in handle(ours, "call", ("true_state", (), {})).values] == [1] * N
    handle(ours, "set_attr", ("label", list("abcde")))
    assert handle(ours, "call", ("label", (), {})).values == list("abcde")
    start = handle(ours, "snapshot", None).values[0][0]
    ours.step(np.zeros(N, np.int64))
    values = handle(
        ours, "apply", (lambda env: env.unwrapped.restore(start) is None, [True, False, True, False, False])
    )
    assert values.values == [False, None, False, None, None]
    assert ours._batch.worlds["time"].tolist() == [1, 2, 1, 2, 2]
