"""The API server, used by programs through the real OpenAI client. Each program has its own key and names its
conversation."""

from __future__ import annotations

import base64
import threading
from itertools import count
from typing import Any

import openai

from tests.gateway.conformance import stage
from tests.gateway.conformance.stage import PATIENCE_S, File, Person, Stage, Where
from tests.ports import reserve_port

SESSION = "X-Hermes-Session-Id"
MOST_PEOPLE = 40
MOST_RETRIES = 20
"""How often the client retries by itself, with increasing delays."""


class OnApiServer(Stage):
    platform = "api-server"
    can = frozenset((stage.STRANGERS, stage.ASKS_AGAIN))
    max_length = 1_000_000
    idempotent = False

    def __init__(self) -> None:
        self._port = reserve_port()
        self._keys = {f"person-{number}": f"the key of person {number}" for number in range(MOST_PEOPLE)}
        self._free = iter(self._keys)
        self._numbers = count(1)
        self._sessions: dict[str, str] = {}
        self._shown: list[tuple[str, str]] = []
        self._asking: list[threading.Thread] = []

    @property
    def environment(self) -> dict[str, str]:
        return {"API_SERVER_PORT": str(self._port)}

    @property
    def config(self) -> dict[str, Any]:
        return {"enabled": True, "keys": self._keys}

    def person(self, name: str, *, known: bool = True) -> Person:
        return Person(next(self._free) if known else name, name, known)

    def dm(self, person: Person) -> Where:
        return Where("session", f"notes-of-{person.id}")

    def say(self, person: Person, where: Where, text: str, *files: File) -> None:
        """Send a message in a thread of its own. The thread waits for the answer; the test does not."""
        key = self._keys.get(person.id, "a key that somebody guessed")
        content: list[dict[str, Any]] = [{"type": "text", "text": text}, *map(_part, files)]
        asked = {"role": "user", "content": content if files else text}
        self._asking.append(threading.Thread(target=self._ask, args=(key, where, asked)))
        self._asking[-1].start()

    def heard(self, where: Where) -> list[str]:
        return [text for chat, text in list(self._shown) if chat == where.chat]

    def session_id(self, where: Where) -> str | None:
        return self._sessions.get(where.chat)

    def close(self) -> None:
        for thread in self._asking:
            thread.join()

    def _ask(self, key: str, where: Where, asked: Any) -> None:
        address = f"http://127.0.0.1:{self._port}/v1"
        named = {SESSION: where.chat}
        with openai.OpenAI(
            base_url=address, api_key=key, max_retries=MOST_RETRIES, timeout=PATIENCE_S
        ) as client:
            try:
                answer = client.chat.completions.with_raw_response.create(
                    model="hermes", messages=[asked], extra_headers=named
                )
            except openai.AuthenticationError:
                return
        self._sessions[where.chat] = answer.headers[SESSION]
        self._shown.append((where.chat, answer.parse().choices[0].message.content or ""))


def _part(file: File) -> dict[str, Any]:
    if file.media_type.startswith("image/"):
        url = f"data:{file.media_type};base64,{base64.b64encode(file.content).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "text", "text": file.content.decode()}
