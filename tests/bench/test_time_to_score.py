"""`stockade bench time-to-score`: when a training has passed, what a failure is reported as, who trains in what."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stockade.bench import score
from stockade.bench.peers import REJAX, SB3, SBX, OwnProcess
from stockade.bench.result import Result, find
from stockade.bench.score import OURS, Outcome, Race, TimeToScoreBench, attempt
from stockade.bench.train import TrainBench
from stockade.cage2.actions import ACTION_MASK
from stockade.learn.config import SPRINT, TrainConfig
from stockade.learn.mixture import cells_of, share_out

TINY: dict[str, Any] = {"rounds": 1, "n_envs": 20, "total_episodes": 1000, "validate_from": 30, "validate_every": 30,
                        "validation_episodes": 2, "confirmation_episodes": 2}  # fmt: skip
ANY, NONE = -1e6, 1e6  # Scores that every agent passes, and that none does


def seconds_of(result: Result, part: str, case: str = OURS) -> list[tuple[float, ...]]:
    return [figure.rounds for figure in find(result.figures, "s", case=case, part=part)]


# --------------------------------------------------------------------------------------------------- real trainings
@pytest.mark.parametrize("case", [OURS, SB3, SB3 + score.SAME, SBX, SBX + score.SAME])
def test_a_training_ends_at_the_first_validation_above_the_score(case: str) -> None:
    if case != OURS:
        pytest.importorskip("sbx" if case.startswith(SBX) else "stable_baselines3")
    bench = TimeToScoreBench(score=ANY, cases=(case,), **TINY)
    with OwnProcess() as process:
        outcome = process.call(attempt, bench, case, 0)
    assert outcome.passed
    assert 30 <= outcome.episodes < 90  # an update has at most 20 * (100 // 30) episodes
    assert outcome.training > 0
    assert outcome.validation > 0
    assert -5000 < outcome.confirmation < -53.6  # as bad as chance, nearly
    assert outcome.interval > 0


def test_a_score_that_is_not_reached_has_no_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "score.json"
    assert TimeToScoreBench(score=NONE, cases=(OURS,), limit=0.5, json=path, **TINY).run() == 0
    content = json.loads(path.read_text())
    assert content["bench"] == "time-to-score"
    assert content["settings"]["rules"] == "leaderboard"
    figures = {(one["unit"], one["tags"].get("part")): one for one in content["figures"]}
    assert not [unit for unit, _ in figures if unit == "s"]
    assert figures["passed: 1, failed: 0", None]["rounds"] == [0.0]
    assert figures["episodes", None]["rounds"][0] > 0
    best = figures["total", "validation"]["rounds"][0]
    why = f"{NONE:g} not reached within 0.5 s, best total {best:.2f}"
    assert content["skipped"] == [{"what": "ours, 1 of 1 trainings", "why": why}]
    assert why in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------- several seeds
def measured(monkeypatch: pytest.MonkeyPatch, outcomes: list[Outcome]) -> Result:
    """A bench whose training with seed k has the outcome k."""

    class Process(OwnProcess):
        def __init__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

        def call(self, function: object, *arguments: Any) -> Outcome:
            assert function is attempt
            assert arguments[1] == OURS
            return outcomes[arguments[2]]

    monkeypatch.setattr(score, "OwnProcess", Process)
    return TimeToScoreBench(rounds=len(outcomes), cases=(OURS,), limit=100.0).result()


def outcome(passed: bool, training: float, total: float = -50.0) -> Outcome:
    return Outcome(passed, training, 5.0, 1000, total, -51.0, 0.5)


def test_the_median_is_of_all_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured(monkeypatch, [outcome(True, 40.0), outcome(True, 20.0), outcome(True, 30.0)])
    assert seconds_of(result, "training") == [(40.0, 20.0, 30.0)]
    (both,) = find(result.figures, "s", part="training and validation")
    assert both.value == 35.0
    assert not result.skipped


def test_a_failure_counts_as_longer_than_every_success(monkeypatch: pytest.MonkeyPatch) -> None:
    result = measured(monkeypatch, [outcome(False, 98.0, -60.0), outcome(True, 20.0), outcome(True, 30.0)])
    (training,) = find(result.figures, "s", part="training")
    assert training.value == 30.0
    assert [(skip.what, skip.why) for skip in result.skipped] == [
        ("ours, 1 of 3 trainings", "-53.6 not reached within 100 s, best total -60.00")
    ]


@pytest.mark.parametrize("passed", [[True, False, False], [True, False]])
def test_if_the_median_is_a_failure_there_is_no_time(monkeypatch: pytest.MonkeyPatch, passed: list[bool]) -> None:
    result = measured(monkeypatch, [outcome(one, 20.0) for one in passed])
    assert not find(result.figures, "s")
    assert find(result.figures, "passed: 1, failed: 0")[0].rounds == tuple(map(float, passed))


def test_a_library_that_is_missing_is_left_out_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sbx", None)
    result = TimeToScoreBench(cases=(SBX,)).result()
    assert not result.figures
    (skip,) = result.skipped
    assert skip.what == SBX
    assert "pip install 'stockade[peers]'" in skip.why


# ------------------------------------------------------------------------------------------------------------ the race
class Judged(Race):
    """A race by a given clock and with given totals."""

    def __init__(self, totals: list[float], bench: TimeToScoreBench) -> None:
        super().__init__(bench)
        self.totals, self.asked = totals, 0

    def play(self, agent: Any, episodes: int, seed: int) -> Any:
        self.asked += 1
        return SimpleNamespace(total=self.totals.pop(0), interval=1.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(score.time, "perf_counter", lambda: clock.now)
    return clock


def test_a_race_validates_when_due_and_ends_above_the_score(clock: SimpleNamespace) -> None:
    bench = TimeToScoreBench(score=-53.6, validate_from=100, validate_every=50, limit=1000.0)
    race = Judged([-60.0, -53.6, -53.5, -54.0], bench)
    race.start()
    over = []
    for episodes in (60, 120, 160, 180, 230):
        clock.now += 10.0
        over.append((race.is_over(None, episodes), race.asked))
    assert over == [(False, 0), (False, 1), (False, 1), (False, 2), (True, 3)]
    assert race.outcome(None) == Outcome(True, 50.0, 0.0, 230, -53.5, -54.0, 1.0)


def test_what_passes_after_the_limit_has_failed(clock: SimpleNamespace) -> None:
    race = Judged([-50.0, -51.0], TimeToScoreBench(validate_from=100, limit=15.0))
    race.start()
    clock.now = 16.0
    assert race.is_over(None, 200)
    assert race.outcome(None) == Outcome(False, 16.0, 0.0, 200, -50.0, -51.0, 1.0)


# --------------------------------------------------------------------------------------------------- other libraries
def test_others_train_in_the_same_worlds_with_the_same_actions() -> None:
    pytest.importorskip("stable_baselines3")
    from stockade.bench.score_peers import MixtureVecEnv

    config: TrainConfig = TimeToScoreBench(**TINY).config(3)
    envs = MixtureVecEnv(config, reward_scale=0.1)
    counts = share_out(cells_of(config), config.n_envs)
    assert [part.num_envs for part in envs.parts] == list(counts)
    assert sum(counts) == envs.num_envs == 20
    assert np.array_equal(envs.actions, np.flatnonzero(ACTION_MASK))
    envs.seed(3)
    envs.reset()
    horizons = np.repeat([cell.world.horizon for cell in cells_of(config)], counts)
    for t in range(1, 61):
        _, _, dones, infos = envs.step(np.zeros(20, np.int64))
        assert np.array_equal(dones, t % horizons == 0)
        assert all(infos[i]["TimeLimit.truncated"] is False for i in np.flatnonzero(dones))
    assert envs.episodes == (60 // horizons).sum()
    envs.close()


@pytest.mark.parametrize("our_settings", [True, False])
def test_others_follow_our_schedules_only_with_our_settings(our_settings: bool) -> None:
    pytest.importorskip("stable_baselines3")
    from stockade.bench.score_peers import train_theirs

    bench = TimeToScoreBench(score=ANY, **{**TINY, "total_episodes": 30})  # so that the schedules are at their end
    model = train_theirs(SB3, bench.config(0), Race(bench), our_settings).model
    rates = model.rollout_buffer.gamma, model.ent_coef, model.lr_schedule(1.0)
    assert rates == ((SPRINT.ppo.final_gamma, 0.0, 0.0) if our_settings else (0.99, 0.01, 1e-3))


def test_training_stands_beside_each_library_or_says_why_not() -> None:
    result = TrainBench(rounds=1, iterations=1, n_envs=(4,)).result()
    (ours,) = find(result.figures, "episodes/s", case="2 threads")
    left_out = {skip.what: skip.why for skip in result.skipped}
    for library in (SB3, SBX, REJAX):
        theirs = find(result.figures, "episodes/s", case=library)
        assert bool(theirs) != (f"n=4, {library}" in left_out)
        for one in theirs:
            assert find(result.figures, "times", to=library)[0].value == pytest.approx(ours.value / one.value)
    assert all("pip install" in why for why in left_out.values())


def test_a_process_that_raises_or_dies_is_an_error() -> None:
    with OwnProcess() as process:
        assert process.call(divmod, 7, 2) == (3, 1)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            process.call(divmod, 7, 0)
        assert process.call(os.getpid) != os.getpid()
        with pytest.raises(RuntimeError, match="exit code 3"):
            process.call(os._exit, 3)
