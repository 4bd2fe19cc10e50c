"""benchmarks/views.py: the window shows what was seen and done, results join, and the table says what they say."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import stockade
from stockade.cage2.actions import ACTION_MASK, N_ACTIONS
from stockade.cage2.history import FEATURE_NAMES
from stockade.learn.policy import one_torch_thread

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from common import run_script  # noqa: E402
from pages import fill  # noqa: E402
from views import FILE, PAGE, Views, WindowEnv, make_recurrent, merged, read, scores  # noqa: E402

SMALL = ("--n-envs", "4", "--eval-episodes", "2", "--seeds", "1", "--threads", "1")


def entry(case, seed, mean, seconds=60.0, episodes=40_000):
    return {"case": case, "seed": seed, "episodes": episodes, "seconds": seconds, "mean": mean, "interval": 0.25,
            "window": 5}  # fmt: skip


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- views:scores:begin -->\nold\n<!-- views:scores:end -->\nafter\n")
    return path


# --------------------------------------------------------------------------------------------------- the history window
def test_a_window_shows_bits_and_actions_of_the_last_steps_and_nothing_of_the_episode_before():
    n, length, world = 3, 3, {"red": "bline", "horizon": 5}
    # `memory` tells the bits and the last action too, and has code of its own for it
    own = [k for k, name in enumerate(FEATURE_NAMES) if k < 52 or name.startswith("last action ")]
    own = [k for k in own if FEATURE_NAMES[k] != "last action failed"]
    windows = WindowEnv(stockade.make_vec(n, **world, copy=False), length)
    recorded = stockade.make_vec(n, **world, obs="memory")
    seen, frames = windows.reset(seed=7)[0], [recorded.reset(seed=7)[0][:, own]]
    generator, kept = np.random.default_rng(0), []
    for _ in range(14):
        kept.append((seen, seen.copy()))
        assert windows.observation_space.contains(seen)
        empty = [np.zeros_like(frames[0])] * length
        np.testing.assert_array_equal(seen.reshape(n, length, -1), np.stack([*empty, *frames][-length:], axis=1))
        actions = generator.integers(N_ACTIONS, size=n)
        seen = windows.step(actions)[0]
        if len(frames) == 6:  # five steps are over, so this one only begins an episode
            frames = []
        frames.append(recorded.step(actions)[0][:, own])
    assert all((view == copy).all() for view, copy in kept)  # a later step changes no earlier observation
    assert len(frames) == 3  # of the third episode


# ------------------------------------------------------------------------------------------------ the recurrent network
def test_the_recurrent_network_takes_no_masked_action_and_changes_its_rates_as_our_learner_does():
    pytest.importorskip("sb3_contrib")
    config = replace(Views(n_envs=4).config("recurrent", 0), total_episodes=12)  # three updates
    with one_torch_thread():
        model, schedule = make_recurrent(config)
        model.learn(12 * 100, callback=schedule)
    assert model.num_timesteps == 12 * 100
    taken = model.rollout_buffer.actions.astype(int).ravel()
    assert len(set(taken)) > 30
    assert ACTION_MASK[taken].all()
    assert (model.policy.action_net.bias.detach().numpy() < -1e8).tolist() == (ACTION_MASK == 0).tolist()
    ppo = config.ppo
    (group,) = model.policy.optimizer.param_groups
    assert group["lr"] == pytest.approx(ppo.learning_rate / 3)  # that of the third update
    assert model.ent_coef == pytest.approx(ppo.entropy_weight / 3)
    assert model.gamma == pytest.approx(ppo.gamma + (ppo.final_gamma - ppo.gamma) * 2 / 3)
    model.get_env().close()


# -------------------------------------------------------------------------------------------------------------- results
def test_a_result_takes_the_place_of_an_earlier_one_of_its_case_and_seed_only():
    entries = []
    for new in (entry("truth", 0, -1.0), entry("bits", 1, -2.0), entry("bits", 0, -3.0), entry("bits", 1, -4.0)):
        entries = merged(entries, new)
    found = [(one["case"], one["seed"], one["mean"]) for one in entries]
    assert found == [("bits", 0, -3.0), ("bits", 1, -4.0), ("truth", 0, -1.0)]


def test_a_run_in_parts_joins_its_results_and_counts_the_episodes_with_the_truth(tmp_path, page, capsys):
    out = tmp_path / "views.json"
    for case in ("belief-start", "history"):
        arguments = ["--cases", case, "--episodes", "8", "--window", "2", "--out", str(out), "--page", str(page)]
        assert run_script(Views, None, [*arguments, *SMALL]) == 0, capsys.readouterr().err
    entries = read(out)
    # a quarter of 8 episodes is 2, but 4 are played at once; so 4 are left
    assert [(one["case"], one["episodes"]) for one in entries] == [("history", 8), ("belief-start", 8)]
    assert page.read_text().count("\n| ") == 3
    assert entries[0]["settings"]["obs"] == "bits"
    assert entries[1]["settings"]["obs"].startswith("belief:16:leaderboard")


def test_the_table_has_a_row_for_each_case_and_a_column_for_each_seed(tmp_path, page):
    out = tmp_path / "views.json"
    entries = [
        entry("history", 0, -20.5),
        entry("history", 1, -21.0, seconds=180.0),
        entry("recurrent", 1, -30.25, 6, 20),
    ]
    out.write_text(json.dumps({"entries": entries}))
    assert run_script(Views, None, ["--no-measure", "--out", str(out), "--page", str(page)]) == 0
    before, _, head, _, *rows, empty, _, after, end = page.read_text().split("\n")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in (head, *rows)]
    assert cells == [
        ["what the agent sees", "episodes", "seed 0", "seed 1"],
        ["the bits and blue's action of each of the last 5 steps", "40,000", "-20.50 ± 0.25", "-21.00 ± 0.25"],
        ["the bits, with a recurrent network (LSTM)", "20", "", "-30.25 ± 0.25"],
    ]
    assert (before, empty, after, end) == ("before", "", "after", "")


def test_the_page_shows_the_committed_results():
    entries = read(ROOT / FILE)
    shown = fill(ROOT / PAGE, "views", {"scores": lambda: scores(entries)})
    assert (ROOT / PAGE).read_text() == shown, "run `python benchmarks/views.py --no-measure`"
    assert "<!-- views:scores:begin -->" in shown
