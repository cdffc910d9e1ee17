"""Words of messages in files that people keep: found so that they can be named. Nothing is changed here.

A file holds a message if it holds what every format writes alike: the longest run of its words between which stands
nothing but single spaces, or a word that mixes letters and digits, as keys and passwords do. What is said in every
conversation ("please go on") is too short to tell anything.
"""

from __future__ import annotations

import re
from collections import defaultdict

RUN = re.compile(r"[^\W_]+(?: [^\W_]+)*")
WORD = re.compile(r"[^\W_]+")
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
SHORTEST, LONGEST = 16, 60
HEAD = 10
"""How many characters are looked up before all of it is compared; a single word has at least so many."""


class Words:
    def __init__(self) -> None:
        self._by_head: dict[str, set[str]] = defaultdict(set)

    def add(self, text: str) -> None:
        text = _without_escapes(text)
        run = max(RUN.findall(text), key=len, default="")
        keys = [word for word in WORD.findall(text) if len(word) >= HEAD and _is_mixed(word)]
        for found in [*keys, *([run] if len(run) >= SHORTEST else [])]:
            self._by_head[found[:HEAD]].add(found[:LONGEST])

    def __bool__(self) -> bool:
        return bool(self._by_head)

    def are_in(self, data: bytes) -> bool:
        text = _without_escapes(data.decode("utf-8", "replace"))
        for word in WORD.finditer(text):
            at = word.start()
            wanted = self._by_head.get(text[at : at + HEAD], ())
            if any(text.startswith(one, at) for one in wanted):
                return True
        return False


def _is_mixed(word: str) -> bool:
    return not word.isalpha() and not word.isdecimal()


def _without_escapes(text: str) -> str:
    """JSON's escapes as what they stand for: `\\n` would make one word of the `n` and what follows it."""
    if "\\" not in text:
        return text
    return ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else " ", text)
