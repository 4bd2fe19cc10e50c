"""The page of a replay in a real browser: what it shows is what happened, and every control does what it says."""

import re
import time

import numpy as np
import pytest

import stockade
from stockade.cage2.belief import BeliefFilter
from stockade.cage2.scenario import HOSTS
from stockade.cage2.truth import ACCESS_NAMES
from stockade.replay.result import BELIEF
from tests.processes import wait_until

SEED, STEPS = 7, 40
HOST_DATA = "return [...document.querySelectorAll('.host')].map((host) => ({...host.dataset}))"


@pytest.fixture(scope="module")
def replay():
    settings = {"red": "meander", "horizon": STEPS, "seed": SEED, "rollouts": 20, "particles": 300}
    return stockade.replay("react-restore", progress=False, **settings)


@pytest.fixture(scope="module")
def page(replay, tmp_path_factory):
    return replay.save(tmp_path_factory.mktemp("page") / "replay.html")


def step_shown(browser):
    return int(browser.run("return document.getElementById('slider').value"))


def number(text):
    return float(text.replace("\N{MINUS SIGN}", "-"))


def go_to(browser, step):
    """As if the slider had been dragged there."""
    script = "const s = document.getElementById('slider'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))"
    browser.run(script, step)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_loads_from_disk_fits_the_window_and_asks_for_nothing(browser, page, width, dark):
    browser.open(page, width, dark)
    assert browser.text("title") == "react-restore against meander"
    assert browser.run("return document.documentElement.scrollWidth") <= width
    go_to(browser, STEPS)
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    assert browser.run("return performance.getEntriesByType('resource').length") == 0
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 200) == dark


def test_every_step_shows_what_the_environment_gives(browser, page, replay):
    """The same actions in an environment of its own: truth, belief, rewards and both sides' actions, step by step."""
    browser.open(page)
    env = stockade.make(red="meander", horizon=STEPS)
    obs, _ = env.reset(seed=SEED)
    total = 0.0
    for step in range(STEPS + 1):
        go_to(browser, step)
        if step:
            action = int(replay.episode.actions[step - 1])
            obs, reward, _, _, info = env.step(action)
            total += reward
            assert number(browser.text("reward")) == pytest.approx(reward)
            assert browser.text("blue").removesuffix(", which fails") == info["blue_action"]
            assert ("which fails" in browser.text("red")) != info["red_success"]
            words = browser.run("return [...document.querySelectorAll('#costs li')].map((item) => item.textContent)")
            costs = [number(text.split()[0]) for text in words if text != "no cost"]
            assert sum(costs) == pytest.approx(reward)
        assert number(browser.text("return")) == pytest.approx(total)
        truth, shown = env.true_state(), browser.run(HOST_DATA)
        for h, host in enumerate(shown):
            assert host["host"] == HOSTS[h]
            assert host["access"] == ACCESS_NAMES[truth.red_access[h]]
            assert host["belief"] == BELIEF[tuple(obs[4 * h + 2 : 4 * h + 4].tolist())]
            facts = truth.red_sessions[h], truth.n_decoys[h], truth.files[h]
            assert [int(host[name]) for name in ("sessions", "decoys", "files")] == [int(fact) for fact in facts]
    assert browser.complaints() == []


def test_hosts_where_truth_and_belief_differ_are_marked(browser, page, replay):
    browser.open(page)
    levels = {"none": "no", "user": "user", "root": "privileged"}
    some = False
    for step, state in enumerate(replay.to_dict()["states"]):
        go_to(browser, step)
        marked = browser.run("return [...document.querySelectorAll('.host.differs')].map((host) => host.dataset.host)")
        pairs = zip(HOSTS, state["access"], state["belief"], strict=True)
        differ = [h for h, true, held in pairs if levels[true] != held and held != "unsure" and h != "User0"]
        assert marked == differ
        some = some or bool(differ)
    assert some


def test_each_step_says_who_probably_attacks_and_where_red_probably_is(browser, page, replay):
    browser.open(page)
    belief = BeliefFilter(1)
    for step in range(STEPS + 1):
        if step:
            now = belief.update(replay.episode.actions[step - 1 : step], replay.episode.seen[step, :52][None])
        else:
            now = belief.reset()
        go_to(browser, step)
        said = dict(re.findall(r"(B_line|Meander|leaderboard) (\d+)%", browser.text("suspects")))
        for name, chance in [("B_line", now.attacker[0, 1]), ("Meander", now.attacker[0, 2])]:
            assert int(said.get(name, 0)) == pytest.approx(100 * chance, abs=0.6)
        assert int(said["leaderboard"]) == pytest.approx(100 * now.leaderboard[0], abs=0.6)
        notes = browser.run("return [...document.querySelectorAll('.host .note')].map((note) => note.textContent)")
        likely = {int(note[:-5]) for note in notes if note.endswith("% red")}
        assert likely <= {round(100 * chance) for chance in now.access[0].tolist()}


def test_buttons_step_jump_and_stop_at_the_ends(browser, page):
    browser.open(page)
    assert step_shown(browser) == 0
    assert not browser.driver.find_element("id", "back").is_enabled()
    for name, step in [("forward", 1), ("forward", 2), ("back", 1), ("last", STEPS), ("back", STEPS - 1), ("first", 0)]:
        browser.click(name)
        assert step_shown(browser) == step


def test_next_loss_visits_every_step_with_a_new_cost(browser, page, replay):
    browser.open(page)
    new, before = [], set()
    for step, entry in enumerate(replay.to_dict()["steps"], start=1):
        now = {(cause, host) for cause, host, _ in entry["costs"]}
        if now - before or any(cause == "restore" for cause, _ in now):
            new.append(step)
        before = now
    visited = []
    while browser.driver.find_element("id", "loss").is_enabled():
        browser.click("loss")
        visited.append(step_shown(browser))
    assert visited == new


def test_play_goes_through_the_steps_and_pause_stops_it(browser, page):
    browser.open(page)
    browser.run("document.getElementById('speed').value = '3'")
    browser.click("play")
    assert browser.text("play") == "Pause"
    wait_until(lambda: step_shown(browser) >= 2, "it does not play")
    browser.click("play")
    stopped = step_shown(browser)
    assert 2 <= stopped < STEPS
    time.sleep(0.5)  # a step takes 0.3 s
    assert (step_shown(browser), browser.text("play")) == (stopped, "Play")


def test_the_keyboard_alone_suffices(browser, page):
    from selenium.webdriver.common.keys import Keys

    browser.open(page)
    for key, step in [
        (Keys.ARROW_RIGHT, 1),
        (Keys.ARROW_RIGHT, 2),
        (Keys.ARROW_LEFT, 1),
        (Keys.END, STEPS),
        (Keys.HOME, 0),
    ]:
        browser.press(key)
        assert step_shown(browser) == step
    browser.press(" ")
    assert browser.text("play") == "Pause"
    browser.press(" ")
    assert browser.text("play") == "Play"
    browser.press(Keys.HOME, "n")
    assert step_shown(browser) > 0
    browser.press(Keys.HOME)
    browser.run("document.getElementById('slider').focus()")
    browser.press(Keys.ARROW_RIGHT)
    assert step_shown(browser) == 1, "the slider's own key must not count twice"
    reached = set()
    for _ in range(60):
        browser.press(Keys.TAB)
        reached.add(browser.run("const e = document.activeElement; return e.dataset.host || e.id || e.textContent"))
    assert reached >= {*HOSTS, "slider", "play", "forward", "loss", "speed", "hindsight", "fair"}
    browser.run("document.querySelector('[data-host=User3]').focus()")
    assert browser.text("host-title").startswith("User3")


def test_the_judgement_of_each_step_is_that_of_the_rollouts(browser, page, replay):
    browser.open(page)
    for k, analysis in enumerate(replay.analyses):
        browser.run("document.querySelectorAll('#views button')[arguments[0]].click()", k)
        assert browser.text("knows").startswith(replay.to_dict()["analyses"][k]["knows"])
        for step in range(1, STEPS + 1, 3):
            go_to(browser, step)
            judged = analysis.steps[step - 1]
            assert judged.label in browser.text("verdict")
            rows = browser.run(
                "return [...document.querySelectorAll('#moves tbody tr')].map((r) => r.cells[1].textContent)"
            )
            values = [number(text.split(" ± ")[0]) for text in rows]
            assert values == pytest.approx([move.value for move in judged.moves], abs=0.006)
    listed = browser.run("return [...document.querySelectorAll('#worst li')].map((item) => item.textContent)")
    worst = replay.analyses[-1].worst()
    assert worst
    for text, t in zip(listed, worst, strict=True):
        assert replay.analyses[-1].in_words(t) in text


def test_a_policy_shows_its_likeliest_actions(browser, tmp_path):
    result = stockade.replay("champion", red="bline", horizon=12, analyse=False)
    browser.open(result.save(tmp_path / "champion.html"), fragment="#step=5")
    assert step_shown(browser) == 5
    rows = browser.run("return [...document.querySelectorAll('#likely .number')].map((item) => item.textContent)")
    best = np.sort(result.episode.probabilities[4])[::-1][:5]
    assert [float(row.removesuffix("%")) for row in rows] == pytest.approx((100 * best).tolist(), abs=0.06)
    assert browser.run("return document.getElementById('judged').hidden")
    assert browser.complaints() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(browser, page, dark):
    """Contrast of 4.5 to 1 (WCAG AA) for each text colour of the page on what it stands on."""
    browser.open(page, dark=dark)
    pairs = [("ink", "card"), ("ink", "soft"), ("muted", "card"), ("muted", "page"), ("muted", "soft"),
             ("user-ink", "user"), ("root-ink", "root"), ("red-ink", "red"), ("blue-ink", "blue"), ("red", "card"),
             ("blue", "card"), ("good", "card"), ("card", "ink"), ("card", "differs")]  # fmt: skip
    script = "return getComputedStyle(document.documentElement).getPropertyValue('--' + arguments[0]).trim()"

    def luminance(name):
        value = browser.run(script, name).lstrip("#")
        parts = [int(value[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    for text, ground in pairs:
        high, low = sorted((luminance(text), luminance(ground)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, f"{text} on {ground}"


def test_names_are_shown_as_text_and_never_run(browser, tmp_path):
    name = "</script><script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">"

    class Policy:
        def act(self, observations):
            return np.zeros(len(observations), np.int64)

    Policy.name = name
    result = stockade.replay(Policy(), horizon=5, analyse=False)
    browser.open(result.save(tmp_path / "hostile.html"))
    assert browser.text("title") == f"{name} against bline"
    assert browser.run("return document.title") == f"{name} against bline"
    assert browser.run("return document.images.length") == 0
    assert browser.complaints() == []


def test_a_notebook_shows_the_same_page_in_a_frame(browser, replay, tmp_path):
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><meta charset=utf-8><body>{replay._repr_html_()}</body>", encoding="utf-8")
    browser.open(notebook)
    browser.driver.switch_to.frame(0)
    browser.click("forward")
    assert step_shown(browser) == 1
    assert browser.text("title") == "react-restore against meander"
    browser.driver.switch_to.default_content()
    assert browser.complaints() == []
