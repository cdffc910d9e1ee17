"""An index that finds a conversation by the history that a client sends. It survives a restart.

The index maps each conversation to a mark: a keyed hash of the messages that its client has. The hash uses the client's
key, so a mark reveals nothing. The index is only a hint. The stored messages are always compared with the request. If a
mark is wrong or missing, the request starts a new session. The index is not part of the routing table, because each row
of that table is a chat, which has an entry in `sessions.json` and can be reset.
"""

from __future__ import annotations

import threading
from pathlib import Path

from hermes.server.conversations.line_map import LineMap

MOST = 50_000
"""The maximum number of conversations. The entry whose last change is the oldest is removed first."""
MOST_ALIKE = 100
"""The maximum number of conversations with the same mark that `find` returns."""


class HistoryIndex:
    def __init__(self, file: Path, most: int = MOST) -> None:
        self._alike: dict[str, dict[str, None]] = {}
        self._marks = LineMap(file, most, self._note)
        self._lock = threading.Lock()

    def load(self) -> None:
        with self._lock:
            self._marks.load()

    def find(self, mark: str) -> list[str]:
        """Return the ids of the conversations whose mark is `mark`, the latest first."""
        with self._lock:
            return list(reversed(self._alike.get(mark, {})))[:MOST_ALIKE]

    def put(self, conversation: str, mark: str | None) -> None:
        """Set the mark of a conversation. If the mark is None, remove the conversation from the index."""
        with self._lock:
            self._marks.put(conversation, mark)

    def _note(self, conversation: str, old: object, new: object) -> None:
        if old is not None:
            alike = self._alike[str(old)]
            del alike[conversation]
            if not alike:
                del self._alike[str(old)]
        if new is not None:
            self._alike.setdefault(str(new), {})[conversation] = None
