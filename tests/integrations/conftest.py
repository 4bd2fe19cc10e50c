"""Fixtures of the bridges to other people's software."""

import pytest

from tests.integrations import stand_in


@pytest.fixture
def cyborg_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """`import CybORG` finds the stand-in."""
    stand_in.install(monkeypatch)
