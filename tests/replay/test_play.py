"""A game of `stockade play` over real sockets: what it tells, what it refuses, and that it is the environment's."""

import http.client
import itertools
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stockade
from stockade import cli
from stockade.cage2.actions import ACTION_NAMES, N_ACTIONS, action_index
from stockade.learn.agents import as_player
from stockade.replay.play import Game, PlayCommand
from stockade.replay.result import observed
from stockade.replay.server import MOST_BYTES

CONTENT = re.compile(r'<script type="application/json" id="content">(.*?)</script>', re.DOTALL)
SLEEP, STEPS = 0, 30
#: All that a player is told while the game runs.
VIEW = {"step", "activity", "belief", "log", "decoys", "n_decoys", "ever", "restores", "over"}
PAGE = {"hosts", "foothold", "service_host", "gateways", "decoys", "blind", "red", "rules", "horizon", "advisor",
        "actions", "anywhere", "view"}  # fmt: skip


class Client:
    """A game and its server in this process, and requests to it."""

    def __init__(self, **flags):
        self.command = PlayCommand(**{"seed": 3, "advice": "none", "analyse": False, **flags})
        self.game = self.command.game()
        self.server = self.game.server()
        self.port = self.server.server_address[1]
        self.host, self.base = f"127.0.0.1:{self.port}", urlsplit(self.server.address).path
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def request(self, method, path, body=None, headers=()):
        """Status, headers and text of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, {"Host": self.host, **dict(headers)})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def get(self, name=""):
        status, _, text = self.request("GET", self.base + name)
        assert status == 200
        return text

    def post(self, name, **numbers):
        status, _, text = self.request("POST", self.base + name, json.dumps(numbers))
        return status, json.loads(text)

    def act(self, step, action):
        status, view = self.post("act", step=step, action=action)
        assert status == 200
        return view

    def revealed(self, seconds=120):
        """The content of the page, once all is judged."""
        deadline = time.monotonic() + seconds
        while not json.loads(self.get("state"))["ready"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return json.loads(CONTENT.search(self.get())[1])


@pytest.fixture(scope="module")
def client():
    with Client() as made:
        yield made


# ------------------------------------------------------------------------------------------------------------ the game
@pytest.mark.parametrize(("red", "rules"), [("bline", "current"), ("meander", "leaderboard"), ("mix", "current")])
def test_a_game_is_the_environments_episode_step_for_step(red, rules):
    actions = np.random.default_rng(5).integers(N_ACTIONS, size=STEPS).tolist()
    env = stockade.make(red=red, rules=rules, horizon=STEPS)
    obs, _ = env.reset(seed=11)
    rewards, access = [], [env.true_state().red_access.copy()]
    with Client(red=red, rules=rules, seed=11) as client:
        view = json.loads(client.get("state"))
        for step, action in enumerate(actions):
            assert {name: view[name] for name in ("activity", "belief")} == observed(obs)
            assert (view["step"], view["over"]) == (step, False)
            view = client.act(step, action)
            obs, reward, _, _, info = env.step(action)
            rewards.append(reward)
            access.append(env.true_state().red_access.copy())
            assert view["log"][-1]["blue"] == info["blue_action"] == ACTION_NAMES[action]
        assert view["over"]
        content, episode = client.revealed(), client.game.replay.episode
    assert [step["reward"] for step in content["steps"]] == pytest.approx(rewards)
    assert np.array_equal(episode.truth["red_access"], access)
    assert (content["policy"], content["seed"], content["return"]) == ("You", 11, pytest.approx(sum(rewards)))


def worlds_that_look_alike(n_seeds=3000, steps=4):
    """Two seeds with which blue sees the same for all steps of Sleep, while the truth and the rewards differ."""
    envs = stockade.make_vec(n_seeds, red="meander", horizon=STEPS)
    seen, rewards = [envs.reset(seed=0)[0].copy()], []
    for _ in range(steps * 3):
        obs, reward, *_ = envs.step(np.full(n_seeds, SLEEP))
        seen.append(obs.copy())
        rewards.append(reward)
        alike = defaultdict(list)
        for i, history in enumerate(np.concatenate(seen, axis=1)):
            alike[history.tobytes()].append(i)
        for group in alike.values():
            for a, b in itertools.pairwise(group):
                if not np.array_equal(envs.true_state().red_access[a], envs.true_state().red_access[b]) and any(
                    row[a] != row[b] for row in rewards
                ):
                    return a, b, len(rewards)
    raise AssertionError("no such seeds")


def test_worlds_that_blue_cannot_tell_apart_give_the_same_bytes_until_the_end():
    one, other, steps = worlds_that_look_alike()
    flags = {"red": "meander", "advice": "champion"}
    with Client(seed=one, **flags) as a, Client(seed=other, **flags) as b:
        for step in range(steps + 1):
            for client in (a, b):
                client.said = [client.get(), client.get("state"), client.post("advice", step=step)]
            assert a.said == b.said
            assert set(json.loads(CONTENT.search(a.said[0])[1])) == PAGE
            assert set(json.loads(a.said[1])) == VIEW
            assert set(json.loads(a.said[1])["log"][-1] if step else {}) <= {"blue", "blue_host", "blue_failed", "sees"}
            if step < steps:
                assert a.act(step, SLEEP) == b.act(step, SLEEP)
        for client in (a, b):
            assert client.post("end", step=steps)[0] == 200
        first, second = a.revealed(), b.revealed()
        assert first["states"][-1]["access"] != second["states"][-1]["access"]
        assert first["return"] != second["return"]


def test_decoys_and_restores_are_what_blue_did_itself():
    with Client() as client:
        place, again = action_index("DecoyApache", "User1"), action_index("DecoySmss", "User1")
        client.act(0, place)
        view = client.act(1, again)
        assert (view["n_decoys"][9], view["log"][-1]["blue_failed"]) == (2, False)
        view = client.act(2, place)
        assert view["log"][-1]["blue_failed"]
        view = client.act(3, action_index("Restore", "User1"))
        assert (view["n_decoys"][9], view["decoys"][9], view["restores"]) == (0, 0, 1)
        assert "restored" in view["ever"][9]


def test_giving_up_reveals_the_steps_that_were_played_judged_to_the_planned_end():
    with Client(advice="champion", analyse=True, horizon=12) as client:
        assert client.post("end", step=0)[0] == 409
        for step in range(3):
            client.act(step, SLEEP)
        status, view = client.post("end", step=3)
        assert (status, view["over"]) == (200, True)
        assert client.post("act", step=3, action=SLEEP)[0] == 409
        content = client.revealed()
        episode = client.game.replay.episode
    assert len(content["steps"]) == 3
    assert [analysis["view"] for analysis in content["analyses"]] == ["hindsight", "fair"]
    assert content["advisor"] == "champion"
    assert content["steps"][0]["likely"]
    assert (len(episode), episode.config.horizon) == (3, 12)
    same = stockade.replay("sleep", horizon=12, seed=3, particles=0, progress=False)
    for t, step in enumerate(client.game.replay.analyses[0].steps):
        ours, theirs = step.played, same.analyses[0].steps[t].played
        assert ours.action == theirs.action == SLEEP
        assert ours.value > theirs.value - 1, "the champion plays on for nine steps, in place of Sleep"


def test_advice_is_the_policys_view_of_what_blue_has_seen():
    agent = stockade.load("champion")
    env = stockade.make(horizon=STEPS, obs=agent.obs)
    obs, _ = env.reset(seed=3)
    with Client(advice="champion") as client, Client(advice="react-restore") as plain:
        for step in range(6):
            status, advice = client.post("advice", step=step)
            likely = agent.probabilities(obs)
            assert status == 200
            assert [move[2] for move in advice["moves"]] == pytest.approx(np.sort(likely)[::-1][:5].tolist(), abs=1e-4)
            assert [ACTION_NAMES[move[0]] for move in advice["moves"]] == [move[1] for move in advice["moves"]]
            assert advice["value"] == pytest.approx(agent.value(obs), abs=0.01)
            assert json.loads(client.get("state"))["step"] == step, "asking is not acting"
            action = advice["moves"][0][0]
            client.act(step, action)
            obs, *_ = env.step(action)
        assert client.post("advice", step=2)[0] == 409
        assert len(plain.post("advice", step=0)[1]["moves"]) == 1


def test_a_policy_that_is_bound_to_an_order_advises_and_binds_nobody(ordered):
    game = Game(PlayCommand(seed=1, horizon=6).settings(), as_player(ordered))
    fixes = [action_index("Restore", "Op_Server0"), action_index("Remove", "User4")] * 3
    for step, fix in enumerate(fixes):
        assert len(game.advise(step)["moves"]) == 5
        view = game.act(step, fix)
    assert view["over"]
    while game.replay is None:
        time.sleep(0.02)
    episode = game.replay.episode
    assert (episode.actions.tolist(), episode.order, episode.refused.any()) == (fixes, "", False)
    assert game.replay.analyses[0].continued_by == "champion"


def test_a_policy_that_fails_is_named_and_the_game_goes_on():
    with Client(advice="tests.replay.test_play:Fails") as client:
        status, answer = client.post("advice", step=0)
        assert (status, "I do not know" in answer["error"]) == (400, True)
        assert client.act(0, SLEEP)["step"] == 1


class Fails:
    """A policy with no answer."""

    def act(self, observations):
        raise RuntimeError("I do not know")


def test_concurrent_requests_for_a_step_make_one_step():
    with Client(horizon=10) as client:
        for step in range(10):
            answers = []
            click = lambda step=step, answers=answers: answers.append(client.post("act", step=step, action=1)[0])  # noqa: E731
            threads = [threading.Thread(target=click) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(answers) == [200, *[409] * 5]
        assert len(client.revealed()["steps"]) == 10


# -------------------------------------------------------------------------------------------------------- the server
def still_running(client):
    return json.loads(client.get("state"))["step"] == 0


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", ""]
)
def test_other_hosts_are_refused(client, host):
    for path in (client.base, client.base + "state"):
        assert client.request("GET", path, headers={"Host": host.format(port=client.port)})[0] == 403
    assert still_running(client)


def test_its_own_names_are_taken(client):
    for name in ("127.0.0.1", "localhost"):
        host = f"{name}:{client.port}"
        assert client.request("GET", client.base, headers={"Host": host, "Origin": f"http://{host}"})[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1:1", "127.0.0.1:{port}", "null", ""]
)
def test_other_origins_are_refused(client, origin):
    headers = {"Origin": origin.format(port=client.port)}
    body = json.dumps({"step": 0, "action": 0})
    assert client.request("POST", client.base + "act", body, headers)[0] == 403
    assert client.request("GET", client.base, headers=headers)[0] == 403
    assert still_running(client)


def test_wrong_or_missing_tokens_are_refused(client):
    token = client.base.strip("/")
    assert len(token) >= 32
    wrong = ["/", "", "/act", "/state", "/favicon.ico", f"/{token[:-1]}/", f"/{token}x/", "/%C3%A9/"]
    for path in [*wrong, f"/?{token}", f"/{token.swapcase()}/state", f"http://{client.host}{client.base}"]:
        status, _, text = client.request("GET", path)
        assert status == 403, path
        assert token not in text
    assert client.request("POST", "/act", json.dumps({"step": 0, "action": 0}))[0] == 403
    assert still_running(client)
    with Client() as other:
        assert other.base != client.base


@pytest.mark.parametrize("name", ["x", "state/", "../state", "%2e%2e/etc/passwd", "play.js", "state?x=1", "/"])
def test_unknown_paths_are_not_found(client, name):
    assert client.request("GET", client.base + name)[0] == 404
    assert still_running(client)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_wrong_methods_are_refused(client, method):
    for name, right in [("", "GET"), ("state", "GET"), ("act", "POST"), ("advice", "POST"), ("end", "POST")]:
        if method != right:
            status, headers, _ = client.request(method, client.base + name)
            assert (status, headers["Allow"]) == (405, right)
    assert client.request("BREW", client.base)[0] == 501
    assert still_running(client)


@pytest.mark.parametrize("claimed", [MOST_BYTES + 1, 10**12, 10**30])
def test_oversized_bodies_are_refused_without_being_read(client, claimed):
    headers = {"Content-Length": str(claimed)}
    begun = time.monotonic()
    assert client.request("POST", client.base + "act", b"", headers)[0] == 413
    assert time.monotonic() - begun < 8
    assert still_running(client)


def test_an_oversized_body_that_is_sent_gets_an_answer(client):
    assert client.request("POST", client.base + "act", b" " * 500_000)[0] == 413
    assert still_running(client)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"3", b"[0, 0]", b'"act"', b"\xff\xfe", b"[" * 900, b"{}", b'{"step": 0}', b'{"action": 0}',
     b'{"step": 0, "action": 0, "more": 1}', b'{"step": 0, "action": "Sleep"}', b'{"step": 0, "action": 1.0}',
     b'{"step": 0, "action": true}', b'{"step": 0, "action": null}', b'{"step": 0, "action": NaN}',
     b'{"step": 0, "action": -1}', b'{"step": 0, "action": 145}', b'{"step": 0, "action": 1' + b"0" * 900 + b"}"],
)  # fmt: skip
def test_bodies_that_are_no_action_are_refused(client, body):
    status, _, text = client.request("POST", client.base + "act", body)
    assert status == 400
    assert json.loads(text)["error"]
    assert still_running(client)


def test_a_body_of_unknown_length_is_refused(client):
    for headers in ({"Transfer-Encoding": "chunked"}, {"Content-Length": "-1"}, {"Content-Length": "²"}):
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        assert (
            raw(client, f"POST {client.base}act HTTP/1.1\r\nHost: {client.host}\r\n{head}\r\n".encode())[9:12] == b"411"
        )
    assert still_running(client)


def test_steps_that_are_not_now_are_stale(client):
    for step in (-1, 1, 10**20):
        for name, more in (("act", {"action": 0}), ("advice", {}), ("end", {})):
            assert client.post(name, step=step, **more)[0] == 409
    assert client.post("advice", step=0)[0] == 400, "it is a game without advice"
    assert still_running(client)


def test_every_answer_has_the_headers_that_keep_it_in_its_place(client):
    base = client.base
    requests = [("GET", base), ("GET", base + "state"), ("GET", "/"), ("POST", base + "act"), ("GET", base + "x")]
    for method, path in [*requests, ("BREW", "/")]:
        _, headers, _ = client.request(method, path)
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "Access-Control-Allow-Origin" not in headers
        if method != "BREW":
            policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
            assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert "unsafe" not in headers["Content-Security-Policy"]
            assert policy.get("script-src", "'sha256-").startswith("'sha256-")
            assert policy.get("connect-src", "'self'") == "'self'"


def raw(client, data):
    """Send bytes; all that comes back until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
        got = b""
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                got += part
        except ConnectionError:
            pass
        return got


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.builds(lambda *parts: b"".join(parts), st.sampled_from([b"GET /", b"POST /TOKEN/act", b"GET /TOKEN/"]),
                  st.binary(max_size=60), st.just(b" HTTP/1.1\r\nHost: HOST\r\n"), st.binary(max_size=60),
                  st.just(b"\r\n\r\n"), st.binary(max_size=60)),
    )
)  # fmt: skip
def test_random_bytes_change_nothing(client, data):
    data = data.replace(b"TOKEN", client.base.strip("/").encode()).replace(b"HOST", client.host.encode())
    raw(client, data)
    assert still_running(client)


def test_a_client_that_says_nothing_holds_up_nobody(client):
    with socket.create_connection(("127.0.0.1", client.port)):
        assert still_running(client)


def test_only_the_loopback_address_listens(client):
    assert client.server.server_address[0] == "127.0.0.1"
    with pytest.raises(OSError):  # noqa: PT011
        socket.create_connection(("127.0.0.2", client.port), timeout=2).close()


# -------------------------------------------------------------------------------------------------------- the command
def test_ctrl_c_ends_the_command_with_one_line_and_code_130():
    PlayCommand(advice="none", analyse=False).game()  # compiled, so that no line announces it
    command = [sys.executable, "-m", "stockade.cli", "play", "--advice", "none", "--no-analyse", "--max-steps", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().split()[-1]
            parts = urlsplit(address)
            assert (parts.scheme, parts.hostname) == ("http", "127.0.0.1")
            connection = http.client.HTTPConnection(parts.netloc, timeout=30)
            for step in range(2):
                connection.request("POST", parts.path + "act", json.dumps({"step": step, "action": 0}))
                answer = connection.getresponse()
                assert answer.status == 200
                answer.read()
            connection.close()
            assert process.stdout.readline().startswith("return ")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=30)
            assert (process.returncode, err) == (130, "stockade: interrupted\n")
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--advice", "champon"), "Did you mean 'champion'"),
        (("--port", "70000"), "--port 70000 must be from 0 to 65535"),
        (("--max-steps", "5000"), "--max-steps 5000 is too long"),
        (("--seed", "-1"), "--seed -1 must be"),
        (("--red-agent", "blin"), "--red-agent blin is unknown"),
        (("--advice", "tests.replay.test_play:Remembers"), "cannot advise: it has a memory of its own"),
    ],
)
def test_what_cannot_be_played_is_refused_before_anything_is_served(capsys, flags, message):
    with pytest.raises(SystemExit) as ended:
        cli.main(["play", *flags])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""
    assert "Traceback" not in err


def test_a_port_in_use_is_refused(client, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["play", "--advice", "none", "--no-analyse", "--port", str(client.port)])
    assert ended.value.code == 2
    assert f"--port {client.port} cannot be used: Address already in use" in capsys.readouterr().err


class Remembers:
    """A policy that must have played the episode itself."""

    def reset(self, n):
        self.steps = 0

    def act(self, observations):
        return np.zeros(len(observations), np.int64)


def test_without_a_seed_every_game_is_another():
    seeds = {PlayCommand(advice="none", analyse=False).settings().seed for _ in range(5)}
    assert len(seeds) == 5
    assert isinstance(PlayCommand(advice="none", analyse=False, seed=4).game(), Game)
