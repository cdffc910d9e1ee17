"""An index that finds a conversation by the history that a client sends. It survives a restart.

The index maps each conversation to a mark: a keyed hash of the messages that its client knows. The hash uses
the client's key, so a mark reveals nothing. The index is only a hint: the stored messages are always compared
with the request. If a mark is wrong or missing, the request only starts a new session. The index is not part
of the routing table, because each row of that table is a chat, which is mirrored and can be reset.
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
"""The maximum number of conversations. The entry whose last change is the oldest is removed first."""
MOST_ALIKE = 100
"""The maximum number of conversations with the same mark that `find` returns."""
SPARE_LINES = 10_000


class HistoryIndex:
    """The index and its file.

    The file has one line per change. For each conversation, the last line is valid. The file is rewritten
    when most of its lines are obsolete.
    """

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
                    # A killed process may leave an incomplete last line.
                    with suppress(ValueError, TypeError):
                        conversation, mark = json.loads(line)
                        self._note(str(conversation), None if mark is None else str(mark))
                if text and not text.endswith(b"\n"):
                    self._write_anew()
            self._tidy()

    def find(self, mark: str) -> list[str]:
        """Return the conversations with this mark, the latest first."""
        with self._lock:
            return list(reversed(self._alike.get(mark, {})))[:MOST_ALIKE]

    def put(self, conversation: str, mark: str | None) -> None:
        """Set the mark of a conversation. With None, remove the conversation from the index."""
        with self._lock:
            if self._marks.get(conversation) == mark:
                return
            self._note(conversation, mark)
            line = json.dumps([conversation, mark]).encode()
            self._lines += 1
            with suppress(OSError):  # losing an entry only leads to a new session after a restart
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
