"""The server of `stockade play` over real sockets: what it refuses, and that it keeps running."""

import json
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stockade.replay.server import MOST_BYTES
from tests.processes import PATIENCE
from tests.replay.client import Client


@pytest.fixture(scope="module")
def client():
    with Client() as made:
        yield made


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
    """Who reads them waits for bytes that never come, and has no answer."""
    headers = {"Content-Length": str(claimed)}
    assert client.request("POST", client.base + "act", b"", headers)[0] == 413
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
    with socket.create_connection(("127.0.0.1", client.port), timeout=PATIENCE) as connection:
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
