"""A game of `stockade play` that is served in this process, and requests to it over real sockets."""

import http.client
import json
import re
import threading
from urllib.parse import urlsplit

from stockade.replay.play import PlayCommand
from tests.processes import PATIENCE, wait_until

CONTENT = re.compile(r'<script type="application/json" id="content">(.*?)</script>', re.DOTALL)


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
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
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

    def revealed(self):
        """The content of the page, once all is judged."""
        wait_until(lambda: json.loads(self.get("state"))["ready"], "the game is never judged")
        return json.loads(CONTENT.search(self.get())[1])
