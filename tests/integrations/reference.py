"""The real CybORG 2.1, where one is installed."""

import warnings

import pytest

from stockade.integrations.cyborg import detect_rules, load_reference


def rules_of_the_reference() -> str:
    """The rule set that the installed one plays by; without one the module that asks is skipped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gym announces its own end
        pytest.importorskip("CybORG", reason="CybORG 2.1 is not installed; docs/guides/cyborg.md says how")
        load_reference()
        return detect_rules()
