"""The journal of accepted requests. With it, a client can repeat a request after a crash of the server.

A request is written to the journal before its message is stored. It is identified by a mark: a keyed hash of its
`Idempotency-Key`, or of its messages if it has no such key. The message is stored with the same mark. Therefore the
journal needs no text, and the stored messages show how far the request was processed.

A request without an `Idempotency-Key` is removed when its answer is sent. If the client sends the same messages again,
they begin a new conversation. A request with a key is kept for a day.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hermes import clock
from hermes.server.api_keys import Person
from hermes.server.conversations.line_map import LineMap

MOST, MOST_OF_PERSON = 50_000, 5_000
"""The maximum number of entries, and of entries of one person. The oldest are removed first."""
REMEMBERED_S = {True: clock.DAY, False: clock.HOUR}
"""How long a request with and without an `Idempotency-Key` is remembered, in seconds."""


class RequestMark(NamedTuple):
    """The values that identify a request among the requests of its person."""

    mark: str
    digest: str
    """A keyed hash of everything that the request asks for."""
    has_key: bool
    """Whether the client sent an `Idempotency-Key`."""


class AcceptedRequest(NamedTuple):
    person: str
    session_id: str
    digest: str
    at: float
    has_key: bool
    is_temporary: bool
    """Whether the conversation must be moved to the trash."""
    is_done: bool = False
    """Whether the answer was sent."""


def make_request_mark(person: Person, key: str | None, details: bytes) -> RequestMark:
    """Return the mark of a request. It is computed from `key`, the `Idempotency-Key` of the request, or from `details`,
    the whole content of the request, if `key` is None."""
    digest = person.make_mark("request", details)
    mark = digest if key is None else person.make_mark("idempotency", key.encode("utf-8", "replace"))
    return RequestMark(mark, digest, key is not None)


class RequestJournal:
    def __init__(self, file: Path, most: int = MOST, most_of_person: int = MOST_OF_PERSON) -> None:
        self._most_of_person = most_of_person
        self._by_person: dict[str, OrderedDict[str, None]] = {}
        self._requests = LineMap(file, most, self._note)
        self._lock = threading.Lock()
        self._done: set[str] = set()
        """Marks of finished requests that `write_finished` has not written yet."""

    def load(self) -> None:
        with self._lock:
            self._requests.load()

    def find(self, mark: str) -> AcceptedRequest | None:
        with self._lock:
            request = _read(self._requests.entries.get(mark))
        if request is None or not 0 <= clock.now() - request.at < REMEMBERED_S[request.has_key]:
            return None
        return None if mark in self._done and not request.has_key else request

    def list_open(self) -> list[tuple[str, AcceptedRequest]]:
        """Return the mark and the record of each request in the journal whose answer was not sent."""
        with self._lock:
            requests = [(mark, _read(entry)) for mark, entry in self._requests.entries.items()]
        return [(mark, request) for mark, request in requests if request is not None and not request.is_done]

    def put(self, mark: str, request: AcceptedRequest) -> None:
        self._done.discard(mark)
        with self._lock:
            self._requests.put(mark, list(request))
            others = self._by_person[request.person]
            if len(others) > self._most_of_person:
                self._requests.put(next(iter(others)), None)

    def finish(self, mark: str) -> None:
        """Note in memory that the request with this mark is finished. `write_finished` writes this to the journal
        file."""
        self._done.add(mark)

    def write_finished(self, mark: str, session_id: str) -> None:
        """Write to the journal file that the request with this mark is finished. Do nothing if the request was accepted
        again in a session other than `session_id`."""
        with self._lock:
            request = _read(self._requests.entries.get(mark))
            if request is not None and request.session_id == session_id and mark in self._done:
                kept = list(request._replace(is_done=True)) if request.has_key else None
                self._requests.put(mark, kept)
        self._done.discard(mark)

    def remove(self, mark: str) -> None:
        with self._lock:
            self._requests.put(mark, None)

    def _note(self, mark: str, old: Any, new: Any) -> None:
        for entry, is_added in ((old, False), (new, True)):
            request = _read(entry)
            if request is None:
                continue
            marks = self._by_person.setdefault(request.person, OrderedDict())
            marks.pop(mark, None)
            if is_added:
                marks[mark] = None
            elif not marks:
                del self._by_person[request.person]


def _read(entry: Sequence[Any] | None) -> AcceptedRequest | None:
    """Parse a value of the journal file. Return None if there is no value, or if another version of the program wrote
    it."""
    if not isinstance(entry, list) or len(entry) != len(AcceptedRequest._fields):
        return None
    return AcceptedRequest._make(entry)
