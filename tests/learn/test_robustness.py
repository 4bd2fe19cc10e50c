"""The robustness suite: cells, seeds, figures and their form; policies of all kinds; what cannot be played."""

import json

import numpy as np
import pytest

import stockade
from stockade import cli
from stockade.learn.evaluate import CELLS, SEEDS_PER_CELL, play
from stockade.learn.robustness import ROBUSTNESS_VERSION, SUITE

EPISODES, SEED = 6, 40


@pytest.fixture(scope="module")
def result():
    return stockade.evaluate("react-restore", suite="robustness", episodes=EPISODES, seed=SEED, progress=False)


def test_the_suite_begins_with_the_challenge_and_its_attackers_are_all_different():
    assert tuple((cell.red, cell.horizon) for cell in SUITE[: len(CELLS)]) == CELLS
    assert len({(cell.red, cell.horizon, cell.other_rules) for cell in SUITE}) == len(SUITE)
    assert [cell.horizon for cell in SUITE[len(CELLS) :]] == [100] * (len(SUITE) - len(CELLS))


def test_the_challenges_cells_are_those_of_an_evaluation(result):
    plain = stockade.evaluate("react-restore", episodes=EPISODES, seed=SEED, progress=False)
    assert plain.robustness is None
    assert plain.cells == result.cells == tuple(cell.result for cell in result.robustness.cells[: len(CELLS)])


def test_every_cell_is_played_with_its_own_seeds_and_rules(result):
    for k in range(len(CELLS), len(SUITE)):
        cell, (rules, seed) = SUITE[k], (result.robustness.cells[k].rules, SEED + SEEDS_PER_CELL * k)
        returns = play(stockade.load("react-restore"), cell.red, 100, EPISODES, seed, rules)
        assert result.robustness.cells[k].result.returns == tuple(np.round(returns, 1)), cell
    assert {cell.rules for cell in result.robustness.cells if cell.group == "rules"} == {"leaderboard"}
    assert {cell.rules for cell in result.robustness.cells if cell.group != "rules"} == {"current"}


def test_figures_follow_from_the_returns(result):
    cells = result.robustness.cells
    base = {red: result.cells[CELLS.index((red, 100))].mean for red in ("bline", "meander", "sleep")}
    for cell in cells:
        assert cell.worst == min(cell.result.returns)
        if cell.ratio is not None:
            hardest = min(("bline", "meander"), key=base.__getitem__)
            assert cell.base == hardest if cell.group == "learned" else cell.result.red.startswith(cell.base)
            assert cell.ratio * base[cell.base] == pytest.approx(cell.result.mean)
    assert {cell.result.horizon for cell in cells if cell.ratio is None and cell.base != "sleep"} == {30, 50}
    assert result.robustness.worst.result.mean == min(cell.result.mean for cell in cells)


def test_the_last_line_names_the_worst_cell_and_tables_fit_a_terminal(result):
    lines = str(result).splitlines()
    worst = result.robustness.worst
    assert f"{worst.attacker}, 100 steps: {worst.result.mean:.2f}, {worst.ratio:.2f} times" in lines[-1]
    assert max(map(len, lines)) <= 100


def test_the_command_prints_it_and_writes_a_documented_form(tmp_path, capsys):
    path = tmp_path / "result.json"
    with pytest.raises(SystemExit) as ended:
        cli.main(["evaluate", "sleep", "--suite", "robustness", "--episodes", "1", "--json", str(path)])
    assert ended.value.code == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Worst cell: ")
    content = json.loads(path.read_text())
    suite = content["robustness"]
    assert (content["suite"], suite["version"]) == ("robustness", ROBUSTNESS_VERSION)
    assert len(content["cells"]) == 9
    assert len(suite["cells"]) == len(SUITE)
    figures = ("mean", "interval", "median", "q05", "worst", "ratio", "returns")
    assert suite["cells"][0].keys() == {"group", "attacker", "red", "horizon", "rules", "base", "episodes", *figures}
    assert suite["cells"][suite["worst"]["index"]]["mean"] == suite["worst"]["mean"]


class OneAtATime:
    """An agent of the challenge's form: it defends one world, and hears of the end of an episode."""

    ended = 0

    def get_action(self, observation, action_space):
        return 1

    def end_episode(self):
        type(self).ended += 1


def test_agents_of_the_challenges_form_play_it_too():
    result = stockade.evaluate(OneAtATime, suite="robustness", episodes=2, progress=False)
    assert OneAtATime.ended == 2 * len(SUITE)
    asleep = stockade.evaluate("sleep", suite="robustness", episodes=2, progress=False)
    assert [cell.result.returns for cell in result.robustness.cells] == [
        cell.result.returns for cell in asleep.robustness.cells
    ]  # Monitor and Sleep differ in nothing that red meets


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--suite", "robust"], "invalid choice"),
        (["--suite", "robustness", "--simulator", "cyborg"], "not with --simulator cyborg"),
        (["--suite", "robustness", "--chance", "cyborg", "--official-order"], "not with --official-order"),
    ],
)
def test_what_cannot_be_played_is_said_before_anything_is(capsys, arguments, said):
    with pytest.raises(SystemExit) as ended:
        cli.main(["evaluate", "sleep", *arguments])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_wrong_suite_in_python_is_named():
    with pytest.raises(ValueError, match="suite"):
        stockade.evaluate("sleep", suite="robust")
