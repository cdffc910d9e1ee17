"""The webhook: signed requests, with the answer in the response or at a callback address of the test."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from tests.gateway.conformance import stage
from tests.gateway.conformance.stage import PATIENCE_S, File, Person, Stage, Where
from tests.ports import reserve_port

SECRET = "a secret that is long enough"
Json = dict[str, Any]


class Shown(NamedTuple):
    chat: str
    thread: str | None
    text: str


class Asking(Stage):
    """A program that sends a request and waits for the answer in the response."""

    platform = "webhook"
    can = frozenset((stage.GROUPS, stage.THREADS, stage.STRANGERS, stage.TWICE, stage.COMMANDS, stage.FILES))
    max_length = 1_000_000
    idempotent = False

    def __init__(self) -> None:
        self._port = reserve_port()
        self._numbers = itertools.count(1)
        self._shown: list[Shown] = []
        self._asking: list[threading.Thread] = []

    @property
    def environment(self) -> dict[str, str]:
        return {"WEBHOOK_SECRET": SECRET, "WEBHOOK_PORT": str(self._port)}

    @property
    def config(self) -> dict[str, Any]:
        return {}

    def person(self, name: str, *, known: bool = True) -> Person:
        return Person(f"{name}-{next(self._numbers)}", name, known)

    def dm(self, person: Person) -> Where:
        return Where("dm", person.id)

    def group(self, *people: Person, threads: bool = False) -> Where:
        return Where("group", f"room-{next(self._numbers)}")

    def thread(self, group: Where, by: Person) -> Where:
        return Where("thread", group.chat, f"thread-{next(self._numbers)}")

    def say(self, person: Person, where: Where, text: str, *files: File) -> Json:
        message = self._message(person, where, text, *files)
        self.deliver_again(message)
        return message

    def deliver_again(self, said: Json) -> None:
        """Send the request again in a thread of its own. The thread waits for the answer; the test does
        not."""
        self._asking.append(threading.Thread(target=self._post, args=(said,)))
        self._asking[-1].start()

    def deliver_reversed(self, person: Person, where: Where, first: str, second: str) -> None:
        early, late = (self._message(person, where, text) for text in (first, second))
        self._post(late)
        self._post(early)

    def heard(self, where: Where) -> list[str]:
        return [one.text for one in list(self._shown) if (one.chat, one.thread) == where[1:]]

    def close(self) -> None:
        for thread in self._asking:
            thread.join()

    def _message(self, person: Person, where: Where, text: str, *files: File) -> Json:
        attached = [
            {"name": one.name, "media_type": one.media_type, "data": base64.b64encode(one.content).decode()}
            for one in files
        ]
        chat = {} if where.kind == "dm" else {"chat": where.chat, "thread": where.thread}
        number = f"message-{next(self._numbers)}"
        about = {"user": person.id, "user_name": person.name, "message_id": number, "attachments": attached}
        return {"text": text, "known": person.known, **about, **chat}

    def _post(self, said: Json) -> None:
        values = {name: value for name, value in said.items() if name != "known"}
        body, at = json.dumps(values).encode(), int(time.time())
        key = SECRET if said["known"] else "a secret that somebody guessed"
        signed = hmac.new(key.encode(), b"%d.%s" % (at, body), hashlib.sha256)
        headers = {
            "Content-Type": "application/json",
            "X-Hermes-Signature": f"t={at},v1={signed.hexdigest()}",
        }
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/webhook", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=2 * PATIENCE_S) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as refused:
            refused.close()
            return
        if "reply" in answer:
            self._shown.append(Shown(said.get("chat") or said["user"], said.get("thread"), answer["reply"]))


class CalledBack(Asking):
    """A program that receives answers at a callback address. It can be unavailable when an answer arrives."""

    can = Asking.can | {stage.LATER, stage.LIMITS, stage.SWALLOWS, stage.RECONNECTS}
    idempotent = True

    def __init__(self) -> None:
        super().__init__()
        self._limits = self._swallows = 0
        self._keys: set[str] = set()
        self._closing = threading.Event()
        self._callback = reserve_port()
        self.come_back()

    @property
    def config(self) -> dict[str, Any]:
        return {"callback_hosts": [f"127.0.0.1:{self._callback}"]}

    def deliver_again(self, said: Json) -> None:
        self._post(said)

    def limit_next(self) -> None:
        self._limits = 1

    def was_limited(self) -> bool:
        return self._limits == 0

    def swallow_next(self) -> None:
        self._swallows = 1

    def has_swallowed(self) -> bool:
        return self._swallows == 0

    def go_down(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._serving.join()

    def come_back(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self._callback), _receiver(self))
        self._server.daemon_threads = True
        self._serving = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._serving.start()

    def close(self) -> None:
        self._closing.set()
        self.go_down()
        super().close()

    def called_back(self, told: Json, key: str) -> int:
        """Handle a callback of the gateway. Return the HTTP status of the response, or 0 for no response.

        A callback with a known idempotency key is ignored, as the documentation advises.
        """
        if self._limits:
            self._limits -= 1
            return 429
        if key in self._keys:
            return 204
        self._keys.add(key)
        self._shown.append(Shown(told["chat"], told["thread"], told["reply"]))
        if self._swallows:
            self._swallows -= 1
            self._closing.wait(PATIENCE_S)
            return 0
        return 204

    def _message(self, person: Person, where: Where, text: str, *files: File) -> Json:
        url = f"http://127.0.0.1:{self._callback}/answers"
        return {**super()._message(person, where, text, *files), "callback_url": url}


def _receiver(at: CalledBack) -> type[BaseHTTPRequestHandler]:
    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = at.called_back(data, self.headers["Idempotency-Key"])
            if status == 0:
                return
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", "1")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    return Receiver
