"""Which keys were pressed after a question was on the screen, and which before.

A terminal works off what is written to it in order. A cursor-position request that is written right behind a question
is therefore answered once the question is shown, and keys that arrive before the answer do not count. Where a terminal
does not answer, keys of the first 400 ms do not count.
"""

from __future__ import annotations

import os
import re

REQUEST = "\x1b[6n"
SILENCE_S = 0.4
"""How long keys do not count where the terminal does not answer."""
SLOW_S = 3.0
"""The same for a terminal that has answered earlier requests: a slow connection, not a missing answer."""
ANSWER = re.compile(r"\x1b\[(?!1;(?:[2-9]|1[0-6])R)\d{1,5};\d{1,5}R\Z")
"""F3 with Shift, Alt or Ctrl sends `1;2` to `1;16` in the same form. That is taken for the key, not for an answer."""
LONGEST_ANSWER = len("\x1b[12345;12345R")


def is_answer(text: str) -> bool:
    """Whether this is the answer to a cursor-position request, and nothing else."""
    return ANSWER.match(text) is not None


def can_answer() -> bool:
    """Whether it makes sense to ask: a dumb terminal would print the request."""
    return os.environ.get("TERM", "").lower() not in ("", "dumb", "unknown")


class AnswerReader:
    """Finds the end of the answer in what a terminal sends, byte by byte."""

    def __init__(self) -> None:
        self._tail = ""

    def feed(self, byte: bytes) -> bool:
        """Whether the answer ends with this byte."""
        self._tail = (self._tail + byte.decode("latin-1"))[-LONGEST_ANSWER:]
        return ANSWER.search(self._tail) is not None
