"""Replay protection for signed requests. A signature covers the body, not the path: sent to another path, the same
request would be a message in another chat.

So each signed request belongs to the first chat it was sent to, and is accepted once. This is recorded before the
message is handed in, and again when it is accepted. A request that was not accepted can be repeated to the same chat;
there the inbox recognises the message.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from hermes import atomic_files, clock, home
from hermes.store.spool import append_files

MOST = 100_000
"""Requests that are remembered; of more, the oldest are forgotten."""
SPARE_LINES = 10_000


class SeenRequest(NamedTuple):
    chat: str
    """A hash of the chat that the request belongs to."""
    until: float
    is_accepted: bool


class SeenRequests:
    """A line in a file for each change, the later one counts. Marks are hashes: nothing that was said is in it."""

    def __init__(self, file: Path, most: int = MOST) -> None:
        self._file, self._most = file, most
        self._seen: OrderedDict[str, SeenRequest] = OrderedDict()
        self._lines = 0
        self._lock = Lock()

    def load(self) -> None:
        with self._lock:
            self._seen.clear()
            self._lines = 0
            with suppress(FileNotFoundError):
                for line in self._file.read_bytes().splitlines():
                    self._lines += 1
                    with suppress(ValueError, TypeError):  # a line that a crash cut off
                        mark, chat, until, is_accepted = json.loads(line)
                        self._note(str(mark), SeenRequest(str(chat), float(until), bool(is_accepted)))

    def begin(self, mark: str, chat: str, seconds: float) -> bool:
        """Remember a request for so long; False if it was accepted before, or belongs to another chat."""
        place, now = hashlib.sha256(chat.encode()).hexdigest()[:16], clock.now()
        with self._lock:
            earlier = self._seen.get(mark)
            if earlier is not None and earlier.until >= now:
                return earlier.chat == place and not earlier.is_accepted
            self._write(mark, SeenRequest(place, now + seconds, is_accepted=False))
            return True

    def accept(self, mark: str) -> None:
        """The message of a request is in the inbox."""
        with self._lock:
            request = self._seen.get(mark)
            if request is not None and not request.is_accepted:
                self._write(mark, request._replace(is_accepted=True))

    def _write(self, mark: str, seen: SeenRequest) -> None:
        """On the disk first: a request of which that cannot be said is not taken."""
        line = json.dumps([mark, *seen]).encode() + b"\n"
        home.make_private_folder(self._file.parent)
        has_room = self._lines <= 2 * len(self._seen) + SPARE_LINES
        if has_room and append_files.append_line(self._file, line):
            self._lines += 1
            self._note(mark, seen)
            return
        requests = OrderedDict(self._seen)
        requests[mark] = seen
        atomic_files.replace_file(
            self._file,
            b"".join(json.dumps([name, *request]).encode() + b"\n" for name, request in requests.items()),
        )
        self._lines = len(requests)
        self._note(mark, seen)

    def _note(self, mark: str, seen: SeenRequest) -> None:
        self._seen.pop(mark, None)
        self._seen[mark] = seen
        now = clock.now()
        # Short-lived ones stand between others, so the oldest few are looked at, not only the first.
        for name in [name for name, _ in zip(self._seen, range(4), strict=False)]:
            if self._seen[name].until < now:
                del self._seen[name]
        while len(self._seen) > self._most:
            self._seen.popitem(last=False)
