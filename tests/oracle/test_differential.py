"""The kernel under `chance="cyborg"` and the reference model agree on everything, after every step.

Everything: observation, reward, red's action, target and success, exploit, detection, blue's and green's part, access,
sessions, decoys, files, known ports, the service, and the next number of the random stream.

Hypothesis draws a world and a script for blue, as a person would write one down: stretches of moves, repeated. A
failure shrinks to few stretches, few repetitions and Sleep; its message holds the plain list of actions, to be replayed
by `python -m tests.oracle.differential_run --replay`. `HYPOTHESIS_PROFILE=explore` searches on (see tests/conftest.py).
"""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from . import model as model_module
from .differential import CONFIGS, MAX_HORIZON, Batch, Case, Config, Duel, compare_batch, first_mismatch, minimise
from .facts import ROW_AFTER_RESET, explain, kernel_rows, model_row
from .network import DECOYS, MONITOR, N_ACTIONS, SLEEP, BlueClass, Host
from .policies import POLICIES
from .stream import Stream

# ---------------------------------------------------------------------- what blue can be told to do


@dataclass(frozen=True)
class Reaction:
    """A move that depends on what blue sees: an action class for the first host with a bit set, else an idle one."""

    blue_class: BlueClass
    bit: int  # of the host's four: 0 activity, 1 exploit, 3 believed compromised
    idle: int = MONITOR

    def __call__(self, observation: list[int]) -> int:
        seen = observation[self.bit :: 4]
        return self.blue_class.on(seen.index(1)) if 1 in seen else self.idle


Move = int | Reaction


@dataclass(frozen=True)
class Stretch:
    """Moves, in turn, so many times."""

    moves: list[Move]
    times: int


def _on_host(host: Host) -> st.SearchStrategy[list[int]]:
    """All of blue's attention on one host: decoys (the same one again, too), Remove, Restore, in any order."""
    return st.lists(st.sampled_from([blue_class.on(host) for blue_class in BlueClass]), min_size=1, max_size=6)


_ANY_ACTIONS = st.lists(st.integers(0, N_ACTIONS - 1), min_size=1, max_size=40)
_REACTIONS = st.lists(
    st.builds(Reaction, st.sampled_from(BlueClass), st.sampled_from([0, 1, 3]), st.integers(0, N_ACTIONS - 1)),
    min_size=1,
    max_size=3,
)
_FIXES = st.lists(
    st.builds(BlueClass.on, st.sampled_from([BlueClass.REMOVE, BlueClass.RESTORE]), st.sampled_from(Host)),
    min_size=1,
    max_size=6,
)
_MOVES = st.one_of(
    st.just([SLEEP]),
    _ANY_ACTIONS,
    st.sampled_from(Host).flatmap(_on_host),
    _FIXES,
    _REACTIONS,
    st.just([BlueClass.RESTORE.on(Host.OP_SERVER0)]),
)
_SCRIPT = st.lists(st.builds(Stretch, _MOVES, st.integers(1, 60)), min_size=1, max_size=8)
_WORLDS = st.sampled_from(CONFIGS)
_SEEDS = st.integers(0, 2**32 - 1)


def _play(duel: Duel, script: list[Stretch]) -> None:
    """One episode of a script, up to the longest horizon."""
    _expect_none(duel.reset())
    moves = [move for stretch in script for _ in range(stretch.times) for move in stretch.moves]
    for move in moves[:MAX_HORIZON]:
        _expect_none(duel.step(move(duel.observation) if isinstance(move, Reaction) else move))


def _expect_none(mismatch: object) -> None:
    if mismatch is not None:
        pytest.fail(str(mismatch), pytrace=False)


# ---------------------------------------------------------------------- tests


@given(config=_WORLDS, seed=_SEEDS, scripts=st.lists(_SCRIPT, min_size=1, max_size=2))
def test_kernel_equals_model_for_any_script(config: Config, seed: int, scripts: list[list[Stretch]]):
    """Up to two episodes in a row; the second goes on with the stream of the first."""
    duel = Duel(config, seed)
    for script in scripts:
        _play(duel, script)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.red}-{c.rules}-{c.green}")
def test_kernel_equals_model_for_each_policy(config: Config, policy: str):
    """Two episodes with an automatic reset between them, in a vector of worlds."""
    result = compare_batch(Batch(config, policy, horizon=100, worlds=3, episodes=2, seed=1))
    assert not result.mismatches, str(result.mismatches[0])


@pytest.mark.parametrize("policy", ["stack_vsftpd", "restore_and_decoy", "late_restore"])
@pytest.mark.parametrize("red", ["bline", "meander"])
def test_kernel_equals_model_over_long_episodes(red: str, policy: str):
    """500 steps: long lists of suspicious process ids and used ports, a hundred decoys upon each other."""
    result = compare_batch(Batch(Config(red), policy, MAX_HORIZON, worlds=2, episodes=1, seed=2))
    assert not result.mismatches, str(result.mismatches[0])


@pytest.mark.parametrize("red", ["bline", "meander"])
@pytest.mark.parametrize(
    "action",
    [SLEEP, BlueClass.DECOY_VSFTPD.on(Host.ENTERPRISE0), *(BlueClass.RESTORE.on(h) for h in (Host.USER0, Host.USER2))],
)
def test_kernel_equals_model_when_blue_does_one_thing_only(red: str, action: int):
    """500 times the same: 500 decoys on one host, or as many shells and suspicious ids as red can make."""
    _expect_none(first_mismatch(Case(Config(red), 3, ((action,) * MAX_HORIZON,))))


def test_reset_equals_model_for_many_seeds():
    """5,000 resets; some draw a process id that is 0 or in use on its host, and must draw again."""
    n, config = 5000, Config("bline")
    envs, model = config.kernel(n, 100, "next_step"), config.model()
    observation, _ = envs.reset(seed=0)
    got = kernel_rows(envs, observation, np.zeros(n))[:, :ROW_AFTER_RESET].tolist()
    for seed in range(n):
        expected = model_row(model, model.reset(seed), 0.0)[:ROW_AFTER_RESET]
        assert expected == got[seed], f"{seed=}: {explain(expected, got[seed])}"
    envs.close()


def test_mix_is_one_of_the_three_agents_in_each_episode():
    """Which one is drawn leaves the reference's stream alone: the episode is the pure agent's, number for number."""
    n, red_of = 40, {code: name for name, code in (("sleep", 0), ("bline", 1), ("meander", 2))}
    envs = Config("mix").kernel(n, MAX_HORIZON, "disabled")
    observation, _ = envs.reset(seed=100)
    streams = [Stream(100 + world) for world in range(n)]
    seen = set()
    for _ in range(3):
        models = [Config(red_of[code]).model() for code in envs.true_state().red.tolist()]
        seen |= {tuple(envs.true_state().red.tolist())}
        for model, stream in zip(models, streams, strict=True):
            model.stream = stream
            model.reset()
        for action in (SLEEP, MONITOR, BlueClass.RESTORE.on(Host.USER1)) * 10:
            observation, reward, _, _, _ = envs.step(np.full(n, action))
            expected = [model_row(model, *model.step(action)) for model in models]
            assert expected == kernel_rows(envs, observation, reward).tolist()
        envs.reset()
    assert len(seen) == 3, "the same agents in every episode"
    assert set.union(*map(set, seen)) == set(red_of)


def test_a_planted_error_is_found_and_made_small(monkeypatch):
    """The comparison can fail: a model in which Vsftpd does not stack differs, and two steps are left of a hundred."""
    honest = DECOYS[-1]
    monkeypatch.setattr(model_module, "DECOYS", (*DECOYS[:-1], honest._replace(port_that_must_be_free=honest.port)))
    result = compare_batch(Batch(Config("bline"), "stack_vsftpd", horizon=100, worlds=2, episodes=2, seed=4))
    assert len(result.mismatches) == 2
    smallest = minimise(result.mismatches[0])
    ((first, second),) = smallest.case.episodes
    assert first == second == BlueClass.DECOY_VSFTPD.on(Host.DEFENDER)
    assert "blue_success: expected 0, got 1" in smallest.differences
    assert Case.from_json(smallest.case.to_json()) == smallest.case


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40 + 5, 2**63 - 1])
def test_seeds_of_any_size(seed: int):
    """CPython seeds MT19937 with as many 32-bit words as the number has."""
    _expect_none(first_mismatch(Case(Config("meander"), seed, ((SLEEP,) * 40,))))
