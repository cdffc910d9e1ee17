"""Distinguish keys pressed before a question was visible from keys pressed after it.

A terminal processes its output in order. A cursor-position request written directly after a question is
therefore answered once the question is visible. Keys that arrive before this reply do not count. If the
terminal does not reply, keys of the first 400 ms do not count.
"""

from __future__ import annotations

import os
import re

REQUEST = "\x1b[6n"
SILENCE_S = 0.4
"""Seconds for which keys do not count if the terminal does not reply."""
SLOW_S = 3.0
"""The same limit for a terminal that has replied before. It is longer, because a slow connection is then more
likely than a missing reply."""
ANSWER = re.compile(r"\x1b\[(?!1;(?:[2-9]|1[0-6])R)\d{1,5};\d{1,5}R\Z")
"""Matches the reply to a cursor-position request. F3 with Shift, Alt or Ctrl sends `1;2` to `1;16` in the
same format; these are treated as the key, not as a reply."""
LONGEST_ANSWER = len("\x1b[12345;12345R")


def is_answer(text: str) -> bool:
    """Return whether `text` is exactly the reply of a terminal to a cursor-position request."""
    return ANSWER.match(text) is not None


def can_answer() -> bool:
    """Return whether the terminal of this process replies to a cursor-position request. A dumb terminal would
    print the request instead."""
    return os.environ.get("TERM", "").lower() not in ("", "dumb", "unknown")


class AnswerReader:
    """Finds the end of the reply to a cursor-position request in the bytes that a terminal sends."""

    def __init__(self) -> None:
        self._tail = ""

    def feed(self, byte: bytes) -> bool:
        """Add the next byte that the terminal has sent. Return whether the reply ends with this byte."""
        self._tail = (self._tail + byte.decode("latin-1"))[-LONGEST_ANSWER:]
        return ANSWER.search(self._tail) is not None
