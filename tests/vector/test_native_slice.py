"""The compiled slice against the slice of single environments: the same commands give the same arrays and infos."""

import pickle

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

import stockade
from stockade.cage2.seeds import read_seeds
from stockade.vector.check.trial import plain
from stockade.vector.native_slice import NativeFactory
from stockade.vector.outcome import Description, Inheritance, RunConfig, scatter_infos
from stockade.vector.slice import EnvSlice
from stockade.vector.spaces import Buffers

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
        buffers = Buffers.allocate(Description.of(factory()).layout, N)
        if native:
            made.append(factory.make_slice(N, FIRST, buffers, config, inheritance))
        else:
            single = [stockade.make(**options) for _ in range(N)]
            made.append(EnvSlice(single, FIRST, buffers, config, inheritance))
    return made


def reset(part, seeds, mask):
    return part.reset(*read_seeds(seeds, N), np.array(mask), None)


def record(part, outcome):
    """Everything that can be seen after a command, comparable."""
    truth = part.buffers.truth if part.config.true_states is not None else None
    arrays = *part.buffers.results()[:-1], None if truth is None else [truth[name] for name in ("time", "red_access")]
    given = [{} for _ in range(N)]
    scatter_infos(outcome.gathered, given)  # of the compiled slice
    told = outcome.infos + [(FIRST + i, info) for i, info in enumerate(given) if info]
    infos = sorted([(env_id, plain(info)) for env_id, info in told], key=lambda pair: pair[0])
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
    config = RunConfig(mode, true_states=rule)
    ours, theirs = pair(world, config, inheritance(world) if lost else None)
    if not lost:
        for part in (ours, theirs):
            reset(part, 100, [True] * N)
    kept, over = {}, np.zeros(N, bool)
    for kind, *data in commands:
        results = []
        if kind == "step":
            places = [place for place in data[0][: data[1]] if not (over[place] and mode is AutoresetMode.DISABLED)]
        for part in (ours, theirs):
            if kind == "step":
                outcome = part.step_some(places, (np.arange(len(places)) * 29 + data[2]) % 145)
            elif kind == "reset":
                outcome = reset(part, [data[1]] * N, data[0])
            elif kind == "snapshot" and not lost:
                outcome = part.snapshot([True] * N)
                kept[part] = outcome.values, over.copy()
            elif kind == "restore" and part in kept:
                outcome = part.restore(kept[part][0], [None] * N)
            elif kind == "truth":
                outcome = part.refresh_some(range(N))
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
    buffers = Buffers.allocate(Description.of(NativeFactory(world)()).layout, N)
    buffers.observations[:] = 1
    return Inheritance([False, True, False, True, False], list(range(50, 50 + N)), buffers.results())


@pytest.mark.parametrize("mode", MODES)
def test_snapshots_go_from_one_kind_of_slice_to_the_other(mode):
    config = RunConfig(mode)
    ours, theirs = pair({"info": False, "horizon": 9}, config)
    reset(ours, 0, [True] * N)
    for action in (3, 30, 140):
        ours.step(np.full(N, action))
    theirs.restore(ours.snapshot([True] * N).values, [None] * N)
    for action in (7, 90):
        mine, other = ours.step(np.full(N, action)), theirs.step(np.full(N, action))
        assert record(ours, mine) == record(theirs, other)


def test_refusals_are_failures_that_name_the_environments():
    ours, _ = pair(PLAIN, RunConfig())
    for seeds, options in (([-1, -1], None), ([0, 0], {"size": 3})):
        outcome = ours.reset_some([1, 2], seeds, options)
        assert [failure.env_id for failure in outcome.failures] == [11, 12]
        assert isinstance(pickle.loads(outcome.failures[0].pickled), ValueError)
    early = ours.snapshot([True] * N)
    assert [failure.env_id for failure in early.failures] == [FIRST + i for i in range(N)]


def test_worlds_without_a_seed_have_different_chances():
    ours, _ = pair({"info": False, "red": "meander", "horizon": 30}, RunConfig())
    reset(ours, None, [True] * N)
    for _ in range(20):
        ours.step(np.zeros(N, np.int64))
    assert len({world.tobytes() for world in ours.batch.worlds}) == N


def test_calls_see_and_change_the_worlds():
    ours, _ = pair({"info": False, "horizon": 9}, RunConfig())
    assert ours.call("spec", (), {}).values == [None] * N  # before any reset
    reset(ours, 0, [True] * N)
    ours.step(np.zeros(N, np.int64))
    assert [int(state.time) for state in ours.call("true_state", (), {}).values] == [1] * N
    ours.set_attr(list("abcde"), "label")
    assert ours.call("label", (), {}).values == list("abcde")
    start = ours.snapshot([True] * N).values[0].state
    ours.step(np.zeros(N, np.int64))
    values = ours.apply([True, False, True, False, False], lambda env: env.unwrapped.restore(start) is None)
    assert values.values == [False, None, False, None, None]
    assert ours.batch.worlds["time"].tolist() == [1, 2, 1, 2, 2]
