"""A local server for OpenAI's streaming interface. The test sets the response to each request.

model_server.will(says("hello"), refuses(429, "slow down", {"Retry-After": "0"}), says("again"))
model_server.base_url, model_server.requests
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

DROP = object()
"""In a reply: cut the connection here without closing it properly."""

Chunk = dict[str, Any]
Step = Chunk | bytes | threading.Event | object
"""A chunk of the stream, raw bytes, an event to wait for, or DROP."""


class Reply(NamedTuple):
    steps: Sequence[Step] = ()
    status: int = 200
    headers: Mapping[str, str] = {"Content-Type": "text/event-stream"}


class Asked(NamedTuple):
    path: str
    headers: Mapping[str, str]
    """The header names in lower case."""
    body: dict[str, Any]


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **more: Any) -> Chunk:
    choices = [] if delta is None else [{"index": 0, "delta": dict(delta), "finish_reason": finish}]
    made = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
    return {**made, **more}


def usage(**counts: Any) -> Chunk:
    return chunk(usage=counts)


def says(text: str, *, used: Chunk | None = None, finish: str = "stop") -> Reply:
    """Return a reply that streams `text` word by word, then the finish reason and, if given, the usage."""
    words = [word if place == 0 else f" {word}" for place, word in enumerate(text.split(" "))]
    steps: list[Step] = [chunk({"content": word}) for word in words]
    return Reply([*steps, chunk({}, finish), *([used] if used else []), b"data: [DONE]\n\n"])


def calls(*wanted: tuple[str, str, str]) -> Reply:
    """Return a reply with these tool calls, each given as (id, name, arguments). The arguments are sent in
    two pieces."""
    steps: list[Step] = []
    for index, (call_id, name, arguments) in enumerate(wanted):
        half = len(arguments) // 2
        first = {"index": index, "id": call_id, "type": "function"}
        steps.append(
            chunk({"tool_calls": [{**first, "function": {"name": name, "arguments": arguments[:half]}}]})
        )
        steps.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments[half:]}}]}))
    return Reply([*steps, chunk({}, "tool_calls"), b"data: [DONE]\n\n"])


def refuses(status: int, error: object = "", headers: Mapping[str, str] | None = None) -> Reply:
    """Return an error reply in OpenAI's format. If `error` is not a string, it is sent as the whole body."""
    body = {"error": {"message": error, "type": "error"}} if isinstance(error, str) else error
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Reply([payload], status, {"Content-Type": "application/json", **(headers or {})})


class ModelServer:
    def __init__(self, port: int = 0) -> None:
        self.requests: list[Asked] = []
        self.models = ["small-model", "large-model"]
        self.listing: Reply | None = None
        """The response to a request for the model list, or None for the usual list."""
        self._replies: list[Reply] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def will(self, *replies: Reply) -> ModelServer:
        """Set the responses to the next requests, in order."""
        with self._lock:
            self._replies += replies
        return self

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, asked: Asked) -> Reply:
        with self._lock:
            self.requests.append(asked)
            return self._replies.pop(0) if self._replies else refuses(418, "the script is at its end")


def _handler(server: ModelServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if server.listing is not None:
                return self._send(server.listing)
            listed = {"object": "list", "data": [{"id": name, "object": "model"} for name in server.models]}
            return self._send(
                Reply([json.dumps(listed).encode()], headers={"Content-Type": "application/json"})
            )

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(
                server.take(
                    Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                )
            )

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for step in reply.steps:
                    if step is DROP:
                        return self._cut()
                    if isinstance(step, threading.Event):
                        step.wait(30)
                    else:
                        data = step if isinstance(step, bytes) else f"data: {json.dumps(step)}\n\n".encode()
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                        self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except OSError:  # the client has disconnected
                self.close_connection = True

        def _cut(self) -> None:
            self.close_connection = True
            now = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
            self.connection.close()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    return Handler
