"""The page as a file, the command, and the function for notebooks."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import stockade
from stockade import cli
from stockade.errors import InputError
from stockade.replay import result as result_module
from tests.cage2.traces import TRACES

PAGE = Path(result_module.__file__).parent / "page"
CONTENT = re.compile(r'<script type="application/json" id="content">(.*?)</script>', re.DOTALL)


@pytest.fixture
def command(capsys, tmp_path, monkeypatch):
    """Runs `stockade replay` in a folder of its own; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main(["replay", *map(str, arguments)])
        return ended.value.code, *capsys.readouterr()

    return run


def test_the_page_holds_the_whole_episode_is_small_and_names_no_other_file(tmp_path):
    replay = stockade.replay("champion", red="meander", seed=7, rollouts=2, particles=50, progress=False)
    page = replay.save(tmp_path / "page.html")
    assert page.stat().st_size < 2_000_000
    text = page.read_text("utf-8")
    assert json.loads(CONTENT.search(text)[1]) == replay.to_dict()
    assert set(re.findall(r"https?://[^\s\"'<>]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, no address
    assert not re.search(r"<(link|img|iframe)|\bsrc=|@import|url\(", text)


def test_the_longest_episode_is_still_below_two_megabytes():
    replay = stockade.replay("react-restore", horizon=1000, analyse=False)
    assert len(replay.html().encode()) < 2_000_000
    with pytest.raises(InputError, match="horizon=1001 is too long"):
        stockade.replay("sleep", horizon=1001, analyse=False)


def test_no_text_of_the_content_can_end_its_element_or_be_taken_for_markup():
    class Policy:
        name = "</script><script>alert(1)</script><!-- @script@ @content@ &amp; \u2028"

        def act(self, observations):
            return np.ones(len(observations), np.int64)

    replay = stockade.replay(Policy(), horizon=3, analyse=False)
    text = replay.html()
    assert "<script>alert" not in text
    assert "<!-- " not in text
    assert text.count("</script>") == 2
    assert json.loads(CONTENT.search(text)[1])["policy"] == Policy.name
    frame = re.search(r'srcdoc="([^"]*)"', replay._repr_html_())
    assert html.unescape(frame[1]) == text


@pytest.mark.skipif(
    shutil.which("node") is None, reason="node is not installed: the syntax of the scripts is not checked"
)
@pytest.mark.parametrize("script", sorted(PAGE.glob("*.js")), ids=lambda path: path.name)
def test_scripts_are_valid_javascript(script):
    subprocess.run(["node", "--check", script], check=True)


def test_the_command_writes_a_page_and_names_it(command, tmp_path):
    code, out, err = command(
        "react-restore", "--red-agent", "meander", "--seed", 3, "--max-steps", 20, "--rollouts", 10
    )
    assert (code, err) == (0, "")
    page = tmp_path / "replay-react-restore-meander-3.html"
    assert out.splitlines()[-1] == f"page: {page.name}"
    content = json.loads(CONTENT.search(page.read_text("utf-8"))[1])
    assert (content["red"], content["seed"], len(content["steps"])) == ("meander", 3, 20)
    assert [analysis["view"] for analysis in content["analyses"]] == ["hindsight", "fair"]
    assert out.splitlines()[0] == f"return {content['return']:.1f}"
    for entry in content["analyses"][0]["worst"]:
        assert entry["text"] in out


def test_text_has_one_line_per_step_and_writes_no_page(command, tmp_path):
    code, out, _ = command("sleep", "--max-steps", 30, "--text", "--no-analyse")
    rows = [line.split() for line in out.splitlines() if re.match(r" +\d+ ", line)]
    assert code == 0
    assert [int(row[0]) for row in rows] == list(range(1, 31))
    assert float(rows[-1][2]) == pytest.approx(sum(float(row[1]) for row in rows))
    assert not list(tmp_path.iterdir())


def test_json_is_all_that_the_page_shows(command, tmp_path):
    code, out, _ = command("sleep", "--max-steps", 5, "--no-analyse", "--out", "a b.html", "--json", "-")
    assert code == 0
    assert json.loads(out) == json.loads(CONTENT.search((tmp_path / "a b.html").read_text("utf-8"))[1])


def test_a_trace_is_shown_with_its_episode(command, tmp_path):
    trace = TRACES / "public_RedMeanderAgent_decoys.npz"
    code, _, _ = command(trace, "--episode", 3, "--no-analyse", "--out", "t.html")
    content = json.loads(CONTENT.search((tmp_path / "t.html").read_text("utf-8"))[1])
    with np.load(trace) as arrays:
        assert [step["reward"] for step in content["steps"]] == pytest.approx(arrays["reward"][3].tolist())
        assert content["seed"] == arrays["seed"][3]
    assert (code, content["red"], content["style"]) == (0, "meander", "recorded")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("champon",), "Did you mean 'champion'"),
        (("sleep", "--out", "no/such/folder.html"), "there is no folder"),
        (("sleep", "--rollouts", "1"), "--rollouts 1 must be"),
        (("sleep", "--max-steps", "5000"), "--max-steps 5000 is too long"),
        (("sleep", "--advisor", "greedy"), "--advisor greedy must be a trained policy"),
        (("nothing.npz",), "nothing.npz"),
        (("nothing.npz", "--red-agent", "meander"), "--red-agent meander cannot be chosen for a trace"),
        (("sleep", "--episode", "2"), "--episode 2 is for traces"),
    ],
)
def test_what_cannot_be_shown_is_one_line_and_code_2(command, tmp_path, arguments, message):
    code, _, err = command(*arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert not list(tmp_path.glob("*.html"))


def test_a_policy_with_a_memory_of_its_own_is_played_on_by_the_advisor():
    class Remembers:
        def reset(self, n):
            self.steps = 0

        def act(self, observations):
            self.steps += 1
            return np.full(len(observations), self.steps % 2)

    replay = stockade.replay(Remembers(), horizon=6, rollouts=5, particles=0, progress=False)
    assert replay.analyses[0].continued_by == "champion"
    assert replay.episode.actions.tolist() == [1, 0, 1, 0, 1, 0]
