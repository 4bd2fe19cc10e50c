"""The variants of attackers do what their definitions allow, with the probabilities that they name; and the comparison
that says so finds errors. `python -m tests.oracle.variants_run` compares as many steps as one likes."""

import pytest

from . import variants
from .red import RED_AGENTS
from .variants import Hurrying, Tally, VariantModel
from .variants_run import REDS, compare


@pytest.mark.parametrize("red", REDS)
def test_kernel_and_model_agree_after_every_step(red):
    tally = Tally()
    rules = ("current", "leaderboard")[REDS.index(red) % 2]
    assert compare(red, rules, "react_restore", worlds=2, seed=REDS.index(red), tally=tally) is None
    assert tally.unlikely() == []


def test_together_they_attack_in_every_style():
    assert {name for name in variants.VARIANTS if any(name in red for red in REDS)} == {
        *RED_AGENTS, "bline-detour", "meander-aggressive", "meander-stealthy"
    }  # fmt: skip


def _forget_the_detour(monkeypatch):
    monkeypatch.setitem(variants.VARIANTS, "bline-detour", variants.VARIANTS["bline"])


def _outside_in(monkeypatch):
    monkeypatch.setattr(variants, "INSIDE_OUT", variants.INSIDE_OUT[::-1])


def _care(monkeypatch):
    monkeypatch.setitem(variants.VARIANTS, "meander-aggressive", lambda: Hurrying(stealthy=True))


def _disturbed_plan(monkeypatch):
    """Sleep's result instead of that of the attacker's last own action."""
    played = VariantModel._red

    def red(self, given):
        played(self, given)
        self._turn.result = self.red_success, self.red_saw_ports

    monkeypatch.setattr(VariantModel, "_red", red)


@pytest.mark.parametrize(
    ("plant", "red"),
    [
        (_forget_the_detour, "bline-detour"),
        (_outside_in, "meander-aggressive"),
        (_care, "meander-aggressive"),
        (_disturbed_plan, "meander+idle:0.3"),
    ],
)
def test_planted_errors_are_found(monkeypatch, plant, red):
    plant(monkeypatch)
    assert compare(red, "current", "react_restore", worlds=3, seed=0, tally=Tally()) is not None


def test_what_happens_too_often_is_noticed():
    tally = Tally()
    for i in range(1000):
        tally.note("pause", 0.2, i % 4 == 0)
        tally.choice("host", "abcd", "abcd"[i % 4])
    assert tally.unlikely() == []
    for _ in range(200):
        tally.note("pause", 0.2, True)
    assert tally.unlikely() == ["pause: 450 of 1200, expected 240"]
