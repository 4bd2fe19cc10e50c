"""The fixture of a browser, for the pages of replays."""

from tests.browser import browser

__all__ = ["browser"]
