"""A red that is played: kernel, model and reference agree, on what happens, on what red may try and on what it sees.

`python -m tests.oracle.differential_run --red player` compares millions of steps.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stockade.cage2.batch import Batch as WorldBatch
from stockade.cage2.config import WorldConfig
from stockade.cage2.red_view import RED_FEATURE_NAMES, RED_OBS_SIZE
from stockade.cage2.seeds import read_seeds

from .differential import BLUE_POLICIES, MAX_HORIZON, PLAYED, Batch, Case, Config, Duel, compare_batch, minimise
from .model import ReferenceModel
from .network import N_ACTIONS, Host, Outcome, RedAction
from .played import PlayedModel, joint
from .red import MOVES
from .red_observer import RedObserver
from .red_policies import N_MOVES, RED_POLICIES

_TRACES = sorted((Path(__file__).parents[1] / "data" / "traces").glob("free_*.npz"))
_BLUE = tuple(BLUE_POLICIES)


def move(kind: RedAction, target: int) -> int:
    return MOVES.index((kind, target))


# ---------------------------------------------------------------------- kernel and model


@pytest.mark.parametrize("red_policy", RED_POLICIES)
@pytest.mark.parametrize("config", PLAYED, ids=lambda c: f"{c.rules}-{c.green}")
def test_kernel_equals_model_for_each_policy(config: Config, red_policy: str):
    """Two episodes with an automatic reset between them; blue's policy is another one for each of red's."""
    place = list(RED_POLICIES).index(red_policy) * len(PLAYED) + PLAYED.index(config)
    policy = _BLUE[place % len(_BLUE)]
    result = compare_batch(Batch(config, policy, 50, worlds=3, episodes=2, seed=5, red_policy=red_policy))
    assert not result.mismatches, str(result.mismatches[0])


@pytest.mark.parametrize("red_policy", ["hoarder", "prober"])
def test_kernel_equals_model_over_long_episodes(red_policy: str):
    """500 steps: hundreds of sessions on one host, most of the foothold's ports in use."""
    batch = Batch(PLAYED[0], "late_restore", MAX_HORIZON, worlds=2, episodes=1, seed=6, red_policy=red_policy)
    result = compare_batch(batch)
    assert not result.mismatches, str(result.mismatches[0])


@settings(max_examples=60)
@given(
    config=st.sampled_from(PLAYED),
    seed=st.integers(0, 2**32 - 1),
    script=st.lists(st.tuples(st.integers(0, N_ACTIONS - 1), st.integers(0, 10**6), st.integers(1, 12)), max_size=30),
)
def test_kernel_equals_model_for_any_script(config: Config, seed: int, script: list[tuple[int, int, int]]):
    """Each line of a script: blue's action, one of those that red may try, and how often."""
    duel = Duel(config, seed)
    mismatch = duel.reset()
    for blue, choice, times in script:
        for _ in range(times):
            allowed = [i for i in range(N_MOVES) if duel.model.red_mask >> i & 1]
            mismatch = mismatch or duel.step(joint(blue, allowed[choice % len(allowed)]))
    assert mismatch is None, str(mismatch)


def test_a_planted_error_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch):
    """A model in which a new scan replaces the ports of the last one under `leaderboard` too; a Case says all of it."""
    honest = ReferenceModel._discover_network_services

    def forgetful(self: ReferenceModel, host: int) -> Outcome:
        outcome = honest(self, host)
        self.knowledge.ports[host] &= self.red_saw_ports
        return outcome

    actions = list(ReferenceModel._RED_ACTIONS)
    actions[RedAction.DISCOVER_NETWORK_SERVICES] = forgetful
    monkeypatch.setattr(ReferenceModel, "_RED_ACTIONS", tuple(actions))
    config = Config("player", "leaderboard")
    batch = Batch(config, "restore_and_decoy", 100, worlds=6, episodes=1, seed=7, red_policy="prober")
    result = compare_batch(batch)
    assert result.mismatches
    smallest = minimise(result.mismatches[0])
    assert "red_ports" in smallest.differences
    assert len(smallest.case.episodes[0]) < 100
    assert Case.from_json(smallest.case.to_json()) == smallest.case


# ---------------------------------------------------------------------- kernel and reference


@pytest.mark.parametrize("path", _TRACES, ids=lambda path: path.stem)
def test_red_sees_what_its_own_results_told_it(path: Path):
    """The kernel's observation of red equals one that is made of the reference's recorded results and nothing else."""
    with np.load(path) as file:
        trace = {name: file[name] for name in file.files}
    meta = json.loads(str(trace["meta"]))
    green = {"SleepAgent": "sleep", "GreenAgent": "active"}[meta["green"]]
    episodes, steps = trace["red_action"].shape
    batch = WorldBatch(WorldConfig("player", steps, meta["rules"], "cyborg", green), episodes, threads=1)
    obs, seen = np.zeros((episodes, 52), np.uint8), np.zeros((episodes, RED_OBS_SIZE), np.uint8)
    rewards, over = np.zeros(episodes), np.zeros(episodes, np.bool_)
    observers = [RedObserver(meta["rules"], steps) for _ in range(episodes)]
    for step in range(-1, steps):
        if step < 0:
            batch.reset(obs, read_seeds(trace["seed"], episodes))
        else:
            blue, red = (trace[name][:, step].astype(np.int64) for name in ("blue_action", "red_action"))
            batch.step(blue, obs, rewards, over, False, red_actions=red)
        batch.observe_red(seen, step >= 0)
        for episode, observer in enumerate(observers):
            mask = int(trace["red_mask"][episode, step + 1])
            if step < 0:
                observer.reset(mask)
            else:
                results = (trace[name][episode, step] for name in ("red_action", "red_success", "red_saw_ports"))
                observer.see(*map(int, results), mask)
            expected = observer.observation()
            different = [name for i, name in enumerate(RED_FEATURE_NAMES) if seen[episode, i] != expected >> i & 1]
            assert not different, f"{episode=} {step=}: {different}"


def test_recordings_reach_what_scripted_reds_do_not():
    """What makes free play another game: invalid actions, several sessions to choose from, Impact without root."""
    reached: set[str] = set()
    for path in _TRACES:
        with np.load(path) as trace:
            kind, host, success = trace["red_type"], trace["red_target"], trace["red_success"]
            sessions = np.take_along_axis(trace["red_sessions"][:, :-1], host[:, :, None].clip(0, 12), 2)[:, :, 0]
            roots = np.take_along_axis(trace["red_root_sessions"][:, :-1], host[:, :, None].clip(0, 12), 2)[:, :, 0]
            invalid, worked = trace["red_invalid"] == 1, success == Outcome.TRUE
        impact, escalation = (kind == RedAction.IMPACT) & ~invalid, kind == RedAction.PRIVILEGE_ESCALATE
        exploit = kind == RedAction.EXPLOIT_REMOTE_SERVICE
        cases = {
            "invalid": invalid & ~worked,
            "escalation with a choice of sessions": escalation & worked & (sessions > 1) & (roots == 0),
            "Impact without root": impact & worked & (roots == 0),
            "Impact elsewhere": impact & (host != Host.OP_SERVER0) & (sessions > 0),
            "exploit of a host that red holds": exploit & worked & (sessions > 0),
            "ten sessions on one host": sessions > 9,
        }
        reached |= {name for name, found in cases.items() if found.any()}
        assert not (invalid & (success != Outcome.FALSE)).any()
    assert reached == cases.keys()


# ---------------------------------------------------------------------- rules, one by one


def test_red_pays_for_invalid_actions_and_not_for_restores():
    """As in the reference: an invalid action costs red 0.1, and blue's Restore is no gain of red's."""
    model = PlayedModel("current", "sleep", 100)
    model.reset(0)
    model.step(joint(132, move(RedAction.IMPACT, Host.OP_SERVER0)))
    assert (model.red_success, model.red_reward) == (Outcome.FALSE, -0.1)
    _, reward = model.step(joint(132, 0))
    assert (model.red_success, model.red_reward, reward) == (Outcome.UNKNOWN, 0.0, -1.0)
