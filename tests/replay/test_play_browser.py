"""The page of `stockade play` in a real browser: the game can be played with mouse or keyboard alone, to its end."""

import re
import threading
from contextlib import contextmanager

import pytest

from stockade.cage2.actions import action_index
from stockade.cage2.scenario import HOSTS
from stockade.replay.play import PlayCommand


@contextmanager
def served(**flags):
    """A game and its address."""
    game = PlayCommand(**{"red": "bline", "seed": 7, "horizon": 5, **flags}).game()
    with game.server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield game, server.address
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def running():
    """A game that no test ends."""
    with served(horizon=30, analyse=False) as made:
        yield made


def after(browser, step):
    browser.wait(f"return document.getElementById('step-title').textContent.startsWith('After step {step} of')")


def focus(browser):
    return browser.run("const e = document.activeElement; return e.dataset.host || e.dataset.action || e.id")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_loads_fits_and_asks_only_its_own_origin(browser, running, width, dark):
    _, address = running
    browser.open(address, width, dark)
    assert browser.text("title") == "You against bline"
    browser.click("ask")
    browser.wait("return document.querySelectorAll('#moves li').length === 5")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.requests() == [address, address + "advice"]
    assert browser.complaints() == []
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 200) == dark
    if width == 400:
        browser.run("scrollTo(0, 0)")
        card = "document.getElementById('act').getBoundingClientRect()"
        assert browser.run(f"return {card}.bottom <= innerHeight && {card}.top > 0"), "actions are always in view"


def test_the_page_shows_blues_view_and_none_of_the_truth(browser, running):
    _, address = running
    browser.open(address)
    hosts = browser.run("return [...document.querySelectorAll('.host')].map((host) => ({...host.dataset}))")
    assert [host["host"] for host in hosts] == list(HOSTS)
    assert all(set(host) == {"host", "belief", "activity", "decoys"} for host in hosts)
    labels = browser.run(
        "return [...document.querySelectorAll('.host')].map((host) => host.getAttribute('aria-label'))"
    )
    assert labels[9] == "User1: blue believes no, 0 decoys"
    unlabelled = "return [...document.querySelectorAll('button')].filter((b) => !b.textContent.trim()).length"
    assert browser.run(unlabelled) == 0


def test_clicking_a_host_and_an_action_makes_a_step_to_the_end_and_the_truth(browser):
    with served(analyse=True) as (game, address):
        browser.open(address)
        assert not browser.driver.find_element("id", "end").is_displayed()
        for step, (host, kind) in enumerate(
            [("User1", "DecoyApache"), ("User2", "Analyse"), ("Enterprise1", "Remove")]
        ):
            browser.driver.find_element("css selector", f"[data-host={host}]").click()
            assert browser.text("act-title") == f"Step {step + 1} of 5: act on {host}"
            action = action_index(kind, host)
            browser.driver.find_element("css selector", f"#actions [data-action='{action}']").click()
            after(browser, step + 1)
            assert browser.text("blue") == f"{kind} {host}"
        decoys = browser.run("return document.querySelector('[data-host=User1]').dataset.decoys")
        assert decoys == "1"
        browser.click("ask")
        browser.wait("return document.querySelectorAll('#moves li').length === 5")
        advised = browser.driver.find_element("css selector", "#moves button")
        name = advised.text
        advised.click()
        after(browser, 4)
        assert browser.text("blue") == name
        assert browser.run("return document.querySelectorAll('#moves li').length") == 0, "the advice was for that step"
        browser.driver.find_element("css selector", "#anywhere button").click()
        browser.wait("return document.getElementById('slider') !== null")
        assert browser.text("title") == "You against bline"
        browser.run("const s = document.getElementById('slider'); s.value = 4; s.dispatchEvent(new Event('input'))")
        assert browser.text("blue").removesuffix(", which fails") == name
        assert browser.text("red")
        assert game.replay.analyses[0].steps[3].label in browser.text("verdict")
        assert browser.text("policy-title") == "What champion would do"
        assert {url.removeprefix(address) for url in browser.requests()} == {"", "act", "advice", "state"}
        assert browser.complaints() == []


def test_the_keyboard_alone_suffices(browser):
    from selenium.webdriver.common.keys import Keys

    with served(horizon=4, analyse=True, seed=2) as (game, address):
        browser.open(address)
        reached = []
        while "User3" not in reached:
            browser.press(Keys.TAB)
            reached.append(focus(browser))
            assert len(reached) < 40
        assert browser.text("act-title").endswith("act on User3")
        browser.press("1")
        after(browser, 1)
        assert focus(browser) == "User3", "the focus stays where it was"
        browser.press(Keys.ENTER)
        assert focus(browser) == str(action_index("Analyse", "User3"))
        browser.press(Keys.TAB)
        browser.press(Keys.ENTER)
        after(browser, 2)
        assert browser.text("blue") == "Remove User3"
        browser.press(Keys.ESCAPE)
        assert focus(browser) == "User3"
        browser.press("0")
        after(browser, 3)
        browser.press("h")
        browser.wait("return document.querySelectorAll('#moves li').length === 5")
        names = set()
        for _ in range(40):
            browser.press(Keys.TAB)
            names.add(focus(browser))
        assert names >= {"ask", "end", "log"}
        browser.run("document.getElementById('end').focus()")
        browser.press("1")
        assert browser.text("step-title").startswith("After step 3"), "a digit elsewhere does nothing"
        browser.press(Keys.ENTER)
        browser.driver.switch_to.alert.dismiss()
        browser.press(Keys.ENTER)
        browser.driver.switch_to.alert.accept()
        browser.wait("return document.getElementById('slider') !== null")
        browser.press(Keys.END)
        assert browser.text("step-title") == "Step 3 of 3"
        assert game.replay.episode.actions.tolist()[:2] == [
            action_index(kind, "User3") for kind in ("Analyse", "Remove")
        ]
        assert not browser.run("return document.getElementById('judged').hidden")
        assert browser.complaints() == []


def test_a_double_click_is_one_step(browser):
    from selenium.webdriver import ActionChains

    with served(horizon=30, analyse=False) as (game, address):
        browser.open(address)
        monitor = browser.driver.find_element("css selector", "#anywhere button")
        ActionChains(browser.driver).double_click(monitor).perform()
        browser.wait("return !document.getElementById('step-title').textContent.startsWith('Before')")
        assert 1 <= game.state()["step"] <= 2  # a slow double click is two
        assert browser.run("return document.getElementById('problem').hidden")
        assert browser.complaints() == []


def test_a_window_that_is_behind_catches_up(browser):
    with served(horizon=30, analyse=False) as (game, address):
        browser.open(address)
        game.act(0, 0)
        browser.driver.find_element("css selector", "#anywhere button").click()
        after(browser, 1)
        assert game.state()["step"] == 1
        browser.complaints()  # of the 409


def test_a_server_that_is_gone_is_said(browser):
    with served(analyse=False) as (game, address):
        browser.open(address)
        browser.driver.set_network_conditions(offline=True, latency=0, throughput=0)
        try:
            browser.driver.find_element("css selector", "#anywhere button").click()
            browser.wait("return !document.getElementById('problem').hidden")
            assert "does not answer" in browser.text("problem")
            assert game.state()["step"] == 0
        finally:
            browser.driver.delete_network_conditions()
        browser.driver.find_element("css selector", "#anywhere button").click()
        after(browser, 1)
        assert browser.run("return document.getElementById('problem').hidden")
