"""An index from the history that a client sends to its conversation; it survives a restart.

Each conversation has a mark of what its client knows, made with the client's key, so a mark reveals nothing. The index
is only a hint: the store decides. A wrong or missing mark costs a new session and mixes nothing up. It is no table of
the store, because a row in the routing is a chat, which is mirrored and can be reset.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from hermes import atomic_files, home

MOST = 50_000
"""Conversations that are remembered; of more, those are forgotten in which nothing was said for longest."""
MOST_ALIKE = 100
"""How many that say the same are looked at."""
SPARE_LINES = 10_000


class HistoryIndex:
    """A line for each change, the later one counts; written anew when most lines count no more."""

    def __init__(self, file: Path, most: int = MOST) -> None:
        self._file, self._most = file, most
        self._marks: OrderedDict[str, str] = OrderedDict()
        self._alike: dict[str, dict[str, None]] = {}
        self._lines = 0
        self._lock = threading.Lock()

    def load(self) -> None:
        with self._lock:
            self._marks.clear()
            self._alike.clear()
            self._lines = 0
            with suppress(FileNotFoundError):
                text = self._file.read_bytes()
                for line in text.splitlines():
                    self._lines += 1
                    with suppress(ValueError, TypeError):  # the last line of a killed process may be cut off
                        conversation, mark = json.loads(line)
                        self._note(str(conversation), None if mark is None else str(mark))
                if text and not text.endswith(b"\n"):
                    self._write_anew()
            self._tidy()

    def find(self, mark: str) -> list[str]:
        """Conversations that may stand there, the latest first."""
        with self._lock:
            return list(reversed(self._alike.get(mark, {})))[:MOST_ALIKE]

    def put(self, conversation: str, mark: str | None) -> None:
        """A conversation stands there now; None: nobody is to find it."""
        with self._lock:
            if self._marks.get(conversation) == mark:
                return
            self._note(conversation, mark)
            line = json.dumps([conversation, mark]).encode()
            self._lines += 1
            with suppress(OSError):  # a hint that is lost costs a new session after the next start
                if not self._file.exists():
                    self._write_anew()
                else:
                    descriptor = home.open_private_file(self._file, os.O_WRONLY | os.O_APPEND)
                    with os.fdopen(descriptor, "ab") as file:
                        file.write(b"%s\n" % line)
                    self._tidy()

    def _note(self, conversation: str, mark: str | None) -> None:
        self._forget(conversation)
        if mark is not None:
            self._marks[conversation] = mark
            self._alike.setdefault(mark, {})[conversation] = None
            if len(self._marks) > self._most:
                self._forget(next(iter(self._marks)))

    def _forget(self, conversation: str) -> None:
        mark = self._marks.pop(conversation, None)
        if mark is not None:
            alike = self._alike[mark]
            del alike[conversation]
            if not alike:
                del self._alike[mark]

    def _tidy(self) -> None:
        if self._lines > 2 * len(self._marks) + SPARE_LINES:
            self._write_anew()

    def _write_anew(self) -> None:
        lines = b"".join(b"%s\n" % json.dumps(item).encode() for item in self._marks.items())
        atomic_files.replace_file(self._file, lines)
        self._lines = len(self._marks)
