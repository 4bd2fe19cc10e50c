"""The fixture of a browser, for the pages of reports."""

from tests.browser import browser

__all__ = ["browser"]
