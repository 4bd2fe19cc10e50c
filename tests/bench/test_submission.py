"""benchmarks/submission.py: it reads what the challenge's script writes, and runs no script that it does not know."""

import sys
from pathlib import Path

import pytest

from stockade.errors import InputError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import submission

REPORT = """CybORG v2.1, Scenario2, Commit Hash: 0
author: a, team: b, technique: c
wrappers: ChallengeWrapper(env=env, agent_name='Blue')
steps: 30, adversary: B_lineAgent, mean: -1.1, standard deviation 0.0
actions: [('Restore User1', 'Sleep'), ('Monitor', "it's")], total reward: -1.1
actions: [('Sleep', 'Impact Op_Server0')], total reward: -10.0
steps: 100, adversary: RedMeanderAgent, mean: 0, standard deviation 0.0
actions: [('Sleep', 'Sleep')], total reward: 0
"""


def test_a_report_is_read_cell_by_cell() -> None:
    assert submission.read_report(REPORT) == [
        ("bline", 30, ["Restore User1", "Monitor"], -1.1),
        ("bline", 30, ["Sleep"], -10.0),
        ("meander", 100, ["Sleep"], 0.0),
    ]


def test_sums_of_tenths_are_compared_as_such() -> None:
    assert submission.tenths([0.1 + 0.2, -10.3]).tolist() == submission.tenths([0.3, -10.299999]).tolist() == [3, -103]


@pytest.mark.parametrize(("text", "message"), [(None, "no checkout"), ("MAX_EPS = 100\n", "one line 'agent = Blue")])
def test_another_script_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / submission.SCRIPT).parent.mkdir(parents=True)
        (tmp_path / submission.SCRIPT).write_text(text)
    with pytest.raises(InputError, match=message):
        submission.play_script(tmp_path, "sleep", "current", 2, 0)


def test_what_a_script_that_fails_has_written_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "DRIVER", "import runpy, sys; runpy.run_path(sys.argv[1])")  # needs no CybORG
    report, script = tmp_path / "report.txt", tmp_path / submission.SCRIPT
    script.parent.mkdir(parents=True)
    script.write_text(
        "MAX_EPS = 100\nclass BlueLoadAgent: ...\nagent = BlueLoadAgent()\n"
        f"open({str(report)!r}, 'w').write('x')\nprint('Saving evaluation results to ' + {str(report)!r})\n"
        "raise RuntimeError('a broken script')\n"
    )
    with pytest.raises(InputError, match="a broken script"):
        submission.play_script(tmp_path, "sleep", "current", 2, 0)
    assert not report.exists()


def test_too_few_episodes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert submission.main(["sleep", "--current", str(tmp_path), "--episodes", "1"]) == 2
    assert "at least 2" in capsys.readouterr().err


def test_a_checkout_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert submission.main(["sleep"]) == 2
    assert "--current PATH" in capsys.readouterr().err
