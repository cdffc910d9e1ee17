"""Lookup of stored messages by uid, for an import. There is no SQL index on uid.

A message has the same timestamp in every copy. The timestamps of all messages are therefore read once, from
an SQL index alone, and kept with their ids in sorted arrays (16 bytes per message). For each message with the
right timestamp, the uid is read from the store and compared, so that a deleted or replaced row is never
returned. If many messages have the same timestamp, their uids are read once and cached.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import NamedTuple

from hermes.store.content import format_uid
from hermes.store.engine import Reader

TIMES_ABOVE = "SELECT timestamp, id FROM messages WHERE id > ?"
ALL_TIMES = "SELECT timestamp, id FROM messages"
UID = "SELECT uid FROM messages WHERE id = ?"
HOLDER = """SELECT m.uid, m.session_id, s.owner, EXISTS (SELECT 1 FROM carried_context c
        WHERE c.session_id = m.session_id AND m.id BETWEEN c.first_message_id AND c.last_message_id)
    FROM messages m JOIN sessions s ON s.id = m.session_id WHERE m.id = ?"""


FEW = 8
"""If at most this many messages have the same timestamp, their uids are compared one by one, without a
cache."""


class Stored(NamedTuple):
    """The place of a message in the store: its id, its session and the owner of that session."""

    id: int
    session_id: str
    owner: str
    is_carried: bool
    """Whether the session that contains the message also carries it. A message that moved there from another
    session is carried."""


class _Run(NamedTuple):
    times: array[float]
    ids: array[int]


class _SameTime(NamedTuple):
    """The ids and uids of many stored messages that all have the same timestamp."""

    ids: dict[str, int]
    """Message ids by uid."""
    unread: list[int]
    """The ids whose uid has not been read yet."""


class StoredMessages:
    """The stored messages by time. Call `refresh` in each transaction before `find`."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        """Runs of messages, each sorted by time. The longest run is first."""
        self._crowded: dict[float, _SameTime] = {}
        """Messages by timestamp. It contains only timestamps that were looked up and that more than `FEW`
        messages have."""
        self.highest = 0
        """The highest id that was read. Messages with a lower id that are inserted later are not read; they
        must be passed to `add`."""

    def refresh(self, reader: Reader) -> None:
        """Read the messages that were stored since the last call."""
        rows = reader.each(TIMES_ABOVE, self.highest) if self.highest else reader.each(ALL_TIMES)
        self.add((time, message_id) for time, message_id in rows)

    def add(self, messages: Iterable[tuple[object, int]]) -> None:
        """Add stored messages to these arrays. Each message is given as (timestamp, id). A message whose
        timestamp is not a number is skipped."""
        pairs = sorted((float(time), number) for time, number in messages if isinstance(time, int | float))
        if not pairs:
            return
        self.highest = max(self.highest, *(number for _time, number in pairs))
        for time, number in pairs:
            if time in self._crowded:
                self._crowded[time].unread.append(number)
        self._runs.append(_make_run(pairs))
        while len(self._runs) > 1 and 2 * len(self._runs[-1].ids) > len(self._runs[-2].ids):
            last, before = self._runs.pop(), self._runs.pop()
            self._runs.append(_make_run(merge(zip(*before, strict=True), zip(*last, strict=True))))

    def find(self, reader: Reader, uid: str, time: float) -> Stored | None:
        for message_id in self._find_candidates(reader, uid, time):
            row = reader.row(HOLDER, message_id)
            if row is not None and format_uid(row[0]) == uid:
                return Stored(message_id, row[1], row[2], bool(row[3]))
        return None

    def _find_candidates(self, reader: Reader, uid: str, time: float) -> list[int]:
        if time not in self._crowded:
            ids = list(self._find_ids(time))
            if len(ids) <= FEW:
                return ids
            self._crowded[time] = _SameTime({}, ids)
        same = self._crowded[time]
        for message_id in same.unread:
            stored = format_uid(reader.value(UID, message_id))
            if stored is not None:
                same.ids[stored] = message_id
        same.unread.clear()
        return [same.ids[uid]] if uid in same.ids else []

    def _find_ids(self, time: float) -> Iterator[int]:
        for times, ids in self._runs:
            at = bisect_left(times, time)
            while at < len(times) and times[at] == time:
                yield ids[at]
                at += 1


def _make_run(pairs: Iterable[tuple[float, int]]) -> _Run:
    run = _Run(array("d"), array("q"))
    for time, message_id in pairs:
        run.times.append(time)
        run.ids.append(message_id)
    return run
