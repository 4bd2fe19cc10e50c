"""The agent for the challenge's script, in that script, where a CybORG 2.1 is installed from a clone.

STOCKADE_CYBORG_EPISODES sets the episodes of each of the nine cells (2).
"""

import importlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stockade.integrations.cyborg import COMMITS
from stockade.learn.evaluate import EvaluateConfig, evaluate
from tests.integrations.reference import rules_of_the_reference
from tests.integrations.test_cage2_submission import saved, untrained

RULES = rules_of_the_reference()
EPISODES = max(2, int(os.environ.get("STOCKADE_CYBORG_EPISODES", "2")))  # the script wants a standard deviation

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import submission  # noqa: E402

CHECKOUT = Path(str(importlib.import_module("CybORG").__file__)).parents[2]
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(RULES == "unknown", reason="the installed CybORG plays by neither rule set"),
    pytest.mark.skipif(not (CHECKOUT / ".git").exists(), reason="the script asks git for the commit of a clone"),
]


def test_every_action_and_return_is_the_same_in_the_script_and_here(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="the script imports it")
    name = str(saved(untrained("belief:16", seed=1), tmp_path))
    config = EvaluateConfig(name, EPISODES, RULES, chance="cyborg", seed=5, official_order=True)  # type: ignore[arg-type]
    ours, others = (evaluate(replace(config, rules=rules), progress=False) for rules in COMMITS)
    assert ours.total != others.total, "this policy plays alike under both rule sets: the wrong one would go unnoticed"
    theirs = submission.play_script(CHECKOUT, name, RULES, EPISODES, 5)
    for cell in submission.compare(theirs, submission.Recorded(name, RULES), config):
        equal = {cell[key] for key in cell if key.startswith("equal")}
        assert equal == {cell["episodes"]} == {EPISODES}, cell
