"""A real browser for the tests of pages: Chromium of the system's packages, without a window; fixture `browser`.

Where there is none, these tests are skipped, and the summary of pytest says so.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.processes import PATIENCE, wait_until

CHROMIUM, DRIVER = (
    next(filter(None, map(shutil.which, names)), None)
    for names in (("chromium", "chromium-browser", "google-chrome"), ("chromedriver",))
)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


class Browser:
    """A window with a page of ours in it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path | str, width: int = 1280, dark: bool = False, fragment: str = "") -> None:
        """Load a page, from disk or by its address, in a window of this width, in a colour scheme."""
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.driver.get("about:blank")
        self.complaints(), self.requests()  # of pages before
        self.driver.get((page.as_uri() if isinstance(page, Path) else page) + fragment)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str) -> None:
        """Until a script gives true."""
        wait_until(lambda: self.run(condition), f"never came true: {condition}")

    def text(self, name: str) -> str:
        return self.run("return document.getElementById(arguments[0]).textContent", name)

    def click(self, name: str) -> None:
        self.driver.find_element("id", name).click()

    def press(self, *keys: str) -> None:
        """Keys, for whatever has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def complaints(self) -> list[str]:
        """What the console said since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call; `data:` is in the page itself."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        asked = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [url for params in asked if not (url := params["request"]["url"]).startswith("data:")]


@contextmanager
def open_browser(profile: Path) -> Iterator[Browser]:
    """A browser of its own, gone at the end; `profile` is a folder for its files."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(PATIENCE)
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for the tests of a module, gone after them: other tests look for processes that were left behind."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("NO BROWSER: THE PAGES ARE NOT TESTED. `make browser` installs Chromium on Debian, as root.")
    pytest.importorskip("selenium.webdriver")
    with open_browser(tmp_path_factory.mktemp("profile")) as found:
        yield found
