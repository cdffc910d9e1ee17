"""A model server over HTTP that repeats the prompt. It can hold an answer until the test releases it.

The prompt decides what the model does: `hold kiwi` waits for `model.let_go("kiwi")`, `long kiwi` returns an
answer that is too long for one message on any platform, `remove kiwi` calls a command that removes a folder.
Each scenario uses its own word, so that scenarios do not affect each other.
"""

from __future__ import annotations

import json
import re
import threading
from collections import defaultdict
from typing import Any

from tests.agent.openai_server import Asked, ModelServer, Reply, calls, chunk, says

NAMING = "Name a conversation."
"""The beginning of a request for a title."""
WISH = re.compile(r"(hold|long|remove)(?: \w+)?? (\w+)\Z")
"""Matches a wish at the end of the prompt. The beginning is ignored, because it can consist of earlier
unanswered messages."""
DONE = b"data: [DONE]\n\n"


class EchoModel(ModelServer):
    def __init__(self) -> None:
        super().__init__()
        self._gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)

    def take(self, asked: Asked) -> Reply:
        with self._lock:
            self.requests.append(asked)
        if _is_naming(asked):
            # the text for which a title is requested is in code fences
            beginning = _words(asked.body["messages"][-1])[:200].replace("`", " ")
            return says(f"About {beginning.split()[-1].strip('.')}")
        prompt = _words(asked.body["messages"][-1])
        wish = WISH.search(prompt)
        if wish is None:
            return says(echo(prompt))
        kind, word = wish.groups()
        if kind == "long":
            return says(long_answer(word))
        if kind == "remove":
            return calls(("c1", "terminal", json.dumps({"command": f"rm -rf {word}"})))
        half, rest = chunk({"content": "I begin, "}), chunk({"content": f"and end: {word}"})
        return Reply([half, self._gates[word], rest, chunk({}, "stop"), DONE])

    def let_go(self, word: str) -> None:
        """Release the held answer for `word`. Later answers for the same word are not held."""
        self._gates[word].set()

    def asked(self, word: str) -> list[Asked]:
        """Return the requests whose last message contains `word`. Requests for titles are left out."""
        return [
            one
            for one in list(self.requests)
            if not _is_naming(one) and word in _words(one.body["messages"][-1])
        ]

    def request_text(self, word: str) -> str:
        """Return the whole text of the last request with this word."""
        return json.dumps(self.asked(word)[-1].body["messages"], ensure_ascii=False)

    def was_ever_shown(self, word: str) -> bool:
        return any(word in json.dumps(one.body) for one in list(self.requests))


def echo(text: str) -> str:
    return f"You said: {text}"


def held(word: str) -> str:
    """Return the complete text of an answer that was held."""
    return f"I begin, and end: {word}"


CODE = "\n".join(f"line_{number:03} = {number}" for number in range(60))


def long_answer(word: str) -> str:
    """Return an answer of numbered words with a code block in the middle. The numbers show whether a word is
    missing."""

    def prose(first: int) -> str:
        parts = (
            " ".join(f"{word}{number}" for number in range(at, at + 25))
            for at in range(first, first + 500, 25)
        )
        return "\n\n".join(parts)

    return f"{prose(1000)}\n\n```python\n{CODE}\n```\n\n{prose(1500)}"


def long_words(word: str) -> list[str]:
    return [f"{word}{number}" for number in range(1000, 2000)]


def _is_naming(asked: Asked) -> bool:
    return _words(asked.body["messages"][0]).startswith(NAMING)


def _words(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if part["type"] == "text")
