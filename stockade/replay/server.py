"""A page for one person at this machine, over HTTP: browser <-> 127.0.0.1, under an address that nobody can guess.

GET /TOKEN/ -> the page; GET /TOKEN/state -> JSON; POST /TOKEN/NAME with a small JSON object of whole numbers -> JSON.
Everything else is refused, also what another site makes the browser send (Host, Origin), before anything is done.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from stockade.errors import InputError, InvalidActionError, SettingError

MOST_BYTES = 1000  #: of a body
SECONDS = 10.0  #: that a client may take for its request
DRAINED = 1 << 20  #: bytes that are read of a refused body, so that the client gets to see the answer
SAFE = "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
Calls = dict[str, tuple[Callable[..., Any], tuple[str, ...]]]


class Refused(Exception):
    """An answer that is no result: its status, and why."""

    def __init__(self, status: int, reason: str, **headers: str) -> None:
        super().__init__(reason)
        self.status, self.headers = status, headers


class Server(ThreadingHTTPServer):
    """`page()` gives HTML and its Content-Security-Policy, `state()` what is JSON; `calls` have names of arguments."""

    def __init__(self, port: int, page: Callable[[], tuple[str, str]], state: Callable[[], Any], calls: Calls) -> None:
        self.token = secrets.token_urlsafe(24)
        self.page, self.state, self.calls = page, state, calls
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError as error:
            raise SettingError("port", port, f"cannot be used: {error.strerror}; 0 takes any free one") from error

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # without the base class's question for this machine's name
        self.names = [f"{name}:{self.server_address[1]}" for name in ("127.0.0.1", "localhost")]

    @property
    def address(self) -> str:
        return f"http://{self.names[0]}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # the client is gone
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request; the connection is closed after it."""

    server: Server
    timeout = SECONDS
    server_version, sys_version = "stockade", ""
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"

    def do_GET(self) -> None:
        """Answer a request of any method."""
        headers: dict[str, str] = {}
        try:
            self._check()
            status, kind, policy, text = 200, *self._result()
        except Refused as refusal:
            status, kind, policy, text = refusal.status, *_as_json({"error": str(refusal)})
            headers = refusal.headers
        body = text.encode()
        headers |= {"Content-Type": f"{kind}; charset=utf-8", "Content-Security-Policy": policy + SAFE}
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if self.command != "HEAD" else b"")
        if status == 413:
            self.wfile.flush()
            self.connection.settimeout(1.0)
            self.rfile.read(DRAINED)

    do_POST = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = do_GET

    def _check(self) -> None:
        """Refuse whoever is not the page itself, or a person with its address."""
        if self.headers.get_all("Host", []) not in ([name] for name in self.server.names):
            raise Refused(403, f"this is {self.server.names[0]}")
        if not {*self.headers.get_all("Origin", [])} <= {f"http://{name}" for name in self.server.names}:
            raise Refused(403, "requests of other sites are refused")
        token = self.path.removeprefix("/").split("/")[0].split("?")[0]
        if not secrets.compare_digest(token.encode(errors="replace"), self.server.token.encode()):
            raise Refused(403, "the address lacks the token that was printed at the start")

    def _result(self) -> tuple[str, str, str]:
        """Content type, policy and content."""
        name = self.path.removeprefix(f"/{self.server.token}/")
        if name not in ("", "state", *self.server.calls):
            raise Refused(404, "there is nothing here")
        method = "GET" if name in ("", "state") else "POST"
        if self.command != method:
            raise Refused(405, f"use {method}", Allow=method)
        if name == "":
            text, policy = self.server.page()
            return "text/html", policy, text
        if name == "state":
            return _as_json(self.server.state())
        call, names = self.server.calls[name]
        values = self._body(names)
        try:
            return _as_json(call(*values))
        except (InputError, InvalidActionError) as error:
            raise Refused(400, str(error)) from error

    def _body(self, names: tuple[str, ...]) -> list[int]:
        """The whole numbers of these names in a JSON object."""
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            raise Refused(411, "a body with a Content-Length is needed")
        if len(length) > 9 or int(length) > MOST_BYTES:
            raise Refused(413, f"a body has at most {MOST_BYTES} bytes")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise Refused(400, "the body is no JSON") from None
        if not isinstance(body, dict) or {*body} != {*names} or {*map(type, body.values())} != {int}:
            raise Refused(400, f"the body must be an object of whole numbers: {', '.join(names)}")
        return [body[name] for name in names]

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """The terminal is not for requests."""


def _as_json(content: Any) -> tuple[str, str, str]:
    return "application/json", "default-src 'none'", json.dumps(content, allow_nan=False)
